"""The package as users get it: a wheel brings the configuration, the demo's data and the
command.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """The wheel's files, unpacked into a folder of their own."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    ignored = shutil.ignore_patterns(".*", "outputs", "build", "*.egg-info", "__pycache__")
    shutil.copytree(REPOSITORY, source, ignore=ignored)
    uv = shutil.which("uv") or str(Path(sys.executable).with_name("uv"))
    build = [
        uv,
        "build",
        "-q",
        "--wheel",
        "--no-build-isolation",
        "--offline",
        "--python",
        sys.executable,
    ]
    subprocess.run([*build, "-o", str(folder / "dist"), str(source)], check=True, timeout=120)
    (wheel,) = (folder / "dist").glob("*.whl")
    shutil.unpack_archive(wheel, folder / "site", "zip")
    return folder / "site"


def _desa(site: Path, *arguments: str, cwd: Path) -> subprocess.CompletedProcess:
    environment = {**os.environ, "PYTHONPATH": str(site), "DESA_HOME": str(cwd / "home")}
    script = (
        "import sys, desa_ray.jobs.__main__ as m; assert m.__file__.startswith(sys.argv.pop(1)),"
        " m.__file__; m.main()"
    )
    command = [sys.executable, "-c", script, str(site), *arguments]
    return subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.long
def test_the_wheel_runs_from_any_folder(installed, tmp_path):
    done = _desa(installed, "--version", cwd=tmp_path)
    assert done.stdout.startswith("desa-ray "), done.stderr
    done = _desa(installed, "plan", "-m", "+experiment=demo", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "5 cells" in done.stdout


def test_the_wheel_adds_no_package_named_jobs(installed, tmp_path):
    """Top level: the platform and Hydra's namespace; the verbs are `desa_ray.jobs`."""
    (info,) = installed.glob("*.dist-info")
    assert (info / "top_level.txt").read_text().split() == ["desa_ray", "hydra_plugins"]
    assert "desa = desa_ray.jobs.__main__:main" in (info / "entry_points.txt").read_text()
    assert not (installed / "jobs").exists()
    verbs = {path.name for path in (REPOSITORY / "jobs").rglob("*.py")}
    assert {path.name for path in (installed / "desa_ray" / "jobs").rglob("*.py")} == verbs


def test_a_wheel_and_a_checkout_have_one_code_hash(installed, tmp_path):
    """A cluster installs the wheel, a user submits from a checkout."""
    script = "import desa_ray.pipeline.provenance as p; print(p.__file__, p.code_hash())"
    found = {}
    for name, environment in (("wheel", {"PYTHONPATH": str(installed)}), ("checkout", {})):
        done = subprocess.run(
            [sys.executable, "-c", script],
            cwd=tmp_path,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        found[name], code = done.stdout.split()
        found[f"{name} code"] = code
    assert found["wheel"].startswith(str(installed))
    assert found["checkout"].startswith(str(REPOSITORY))
    assert found["wheel code"] == found["checkout code"]


def test_help_names_every_verb(installed, tmp_path):
    done = _desa(installed, "--help", cwd=tmp_path)
    assert done.returncode == 0
    for verb in (path.stem for path in (REPOSITORY / "jobs").glob("*.py")):
        if "def main(arguments" in (REPOSITORY / "jobs" / f"{verb}.py").read_text():
            assert f"  {verb} " in done.stdout
