"""A collection that does not fit into memory is refused while it is read."""

import json

import pytest

from desa_ray import memory
from desa_ray.config import DatasetConfig
from desa_ray.data import load_collection
from desa_ray.errors import DesaError


def container(folder, limit: int, used: int, cache: int) -> None:
    for name, value in (("max", limit), ("current", used), ("stat", f"inactive_file {cache}")):
        (folder / f"memory.{name}").write_text(f"{value}\n")


def test_what_is_left_is_that_of_the_container(tmp_path, monkeypatch):
    assert 0 < memory.available() < 1 << 50  # this machine's own
    monkeypatch.setattr(memory, "CGROUP", tmp_path)
    container(tmp_path, 1000, 600, 50)
    assert memory.available() == 450
    (tmp_path / "memory.max").write_text("max\n")  # no limit: the machine's
    assert memory.available() > 450


@pytest.mark.parametrize(("left", "fits"), [(2_000, False), (3_000_000, True)])
def test_a_corpus_beyond_the_memory_is_refused(left, fits, collection, tmp_path, monkeypatch):
    """A million letters need a copy of themselves."""
    rows = [{"_id": f"d{n}", "text": "x" * 1000} for n in range(1000)]
    with (collection / "corpus.jsonl").open("a") as corpus:
        corpus.writelines(json.dumps(row | {"_id": f"more{row['_id']}"}) + "\n" for row in rows)
    monkeypatch.setattr(memory, "CGROUP", tmp_path)
    monkeypatch.setattr(memory, "STEP", 10_000)
    container(tmp_path, 10_000_000, 10_000_000 - left, 0)
    config = DatasetConfig(name="tiny", kind="beir_folder", path=str(collection))
    if fits:
        assert load_collection(config, data_home=tmp_path).documents.height == 1003
    else:
        with pytest.raises(
            DesaError, match=r"corpus\.jsonl: needs more memory than is available: "
        ):
            load_collection(config, data_home=tmp_path)
