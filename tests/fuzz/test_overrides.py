"""Spoilt overrides: `desa plan` plans, or refuses them with one line each; nothing else happens."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hydra.core.global_hydra import GlobalHydra

from desa_ray.jobs.__main__ import main
from tests.fuzz.changes import WORDS, bytes_changed, words_changed
from tests.hostile import odd

FEW, MANY = 6, 700
HARMLESS = [word for word in WORDS if "/etc" not in word and "\x00" not in word]
GOOD = [
    *("method=desa", "encoder=minilm_l6", "fusion.kappa=60", "fusion.k=20", "n_refs=5", "draws=1"),
    *("cluster=serial", "evaluation.measures=[nDCG@10]", "generator.map={}", "sparse=bm25"),
    *("dataset.split=test", "cluster.batch_size=4", "tracking.enabled=false", "ranking=lazy"),
    *("+experiment=demo", "method=desa,shared", "-m", "encoder.max_tokens=256"),
    *("method.channels=[{kind: dense, weight: 1/2}]", "~tracking", "dataset.limit=null"),
]


def spoilt_overrides(draw: random.Random) -> list[str]:
    """One to three overrides with other words, signs or bytes in them."""
    found = []
    for own in draw.sample(GOOD, draw.choice((1, 1, 2, 3))):
        changed = own.encode()
        if draw.randrange(5) == 0:
            changed = bytes_changed(changed, draw)
        elif draw.randrange(2):
            changed = words_changed(changed, draw)
        else:
            changed = (own.partition("=")[0] + "=" + draw.choice(HARMLESS)).encode(
                errors="surrogatepass"
            )
        text = changed.decode(errors="surrogateescape").replace("\x00", "").replace("/etc", "etc")
        found.append(text)
    return found


def inputs(count: int, seed: int) -> Iterator[list[str]]:
    draw = random.Random(seed)
    for _ in range(count):
        yield spoilt_overrides(draw)


def plan(collection: Path, tmp_path: Path, monkeypatch, capsys, overrides: list[str]) -> int:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DESA_HOME", str(tmp_path / "home"))
    common = ["dataset=beir_folder", f"dataset.path={collection}", "cluster=serial"]
    monkeypatch.setattr("sys.argv", ["desa", "plan", *common, *overrides])
    GlobalHydra.instance().clear()
    with pytest.raises(SystemExit) as ended:
        main()
    code, told = int(ended.value.code or 0), capsys.readouterr()
    assert code in (0, 2), (overrides, told.err)
    assert "Traceback" not in told.err
    assert odd(told.out + told.err) == [], overrides
    if code == 2:
        assert "error" in told.err, overrides
    return code


def held(count: int, seed: int, *surroundings) -> None:
    codes = [plan(*surroundings, overrides) for overrides in inputs(count, seed)]
    assert codes.count(2) > count // 6


def test_a_few_spoilt_overrides(collection, tmp_path, monkeypatch, capsys):
    assert plan(collection, tmp_path, monkeypatch, capsys, ["method=desa"]) == 0
    held(FEW, 0, collection, tmp_path, monkeypatch, capsys)


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_hundreds_of_spoilt_overrides(collection, tmp_path, monkeypatch, capsys):
    held(MANY, 1, collection, tmp_path, monkeypatch, capsys)
