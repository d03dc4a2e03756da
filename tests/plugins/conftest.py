"""The example distribution, built and installed into a folder of its own, as a user installs it."""

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from desa_ray import plugins
from desa_ray.engines import prompts
from desa_ray.stages import plugged

EXAMPLE = Path(__file__).with_name("example")


def forget() -> None:
    """What this process remembers of plug-ins, as if it were new."""
    plugins._entries.cache_clear()
    plugins.plugins.cache_clear()
    plugins._IDENTITIES.clear()
    plugged._operator.cache_clear()
    plugged._rule.cache_clear()
    prompts.load_prompt.cache_clear()
    for name in [name for name in sys.modules if name.partition(".")[0] == "desa_example"]:
        del sys.modules[name]


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the installed distribution; for copying."""
    source = shutil.copytree(EXAMPLE, tmp_path_factory.mktemp("example") / "source")
    target = source.parent / "installed"
    install = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--offline", "--no-deps"]
    subprocess.run([*install, "--no-build-isolation", "--target", target, source], check=True)
    return target


@pytest.fixture
def installed(built: Path, tmp_path: Path, monkeypatch) -> Iterator[Path]:
    """A copy of it on the path of this process."""
    target = shutil.copytree(built, tmp_path / "installed")
    monkeypatch.syspath_prepend(str(target))
    forget()
    yield target
    forget()


@pytest.fixture
def offering(tmp_path: Path, monkeypatch) -> Iterator[Callable[..., Path]]:
    """Makes a distribution of one module, with its entry points, and puts it on the path."""

    def offer(name: str, module: str, *entries: str) -> Path:
        place = tmp_path / name
        facts = place / f"{name}-1.dist-info"
        facts.mkdir(parents=True)
        (place / f"{name}.py").write_text(module)
        (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
        (facts / "RECORD").write_text(f"{name}.py,,\n{name}-1.dist-info/METADATA,,\n")
        (facts / "entry_points.txt").write_text("\n".join(entries) + "\n")
        monkeypatch.syspath_prepend(str(place))
        monkeypatch.delitem(sys.modules, name, raising=False)
        forget()
        return place

    yield offer
    forget()
