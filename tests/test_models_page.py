"""docs/models.md lists every model that a configuration names, with the hashes of what is
installed.
"""

import re
from importlib.metadata import distribution
from pathlib import Path

import pytest
import yaml

from desa_ray.engines.smollm2 import GGUF, GGUF_SHA256
from desa_ray.files import sha256_file

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
HASHES = dict(re.findall(r"^\| (\w+: \S+) \| `([0-9a-f]{64})` \|$", PAGE, re.MULTILINE))


@pytest.mark.parametrize("group", ["encoder", "generator"])
def test_every_model_of_a_configuration_is_listed(group):
    rows = {name: row for row, name in re.findall(r"^(\| (\w+) \| .*)$", PAGE, re.MULTILINE)}
    for file in sorted((ROOT / "conf" / group).glob("*.yaml")):
        given = yaml.safe_load(file.read_text(encoding="utf-8"))
        row = rows[file.stem]
        for name in ("model", "package"):
            assert (given.get(name) or "") in row, (file.stem, name)
        assert (given.get("revision") or "")[:8] in row


def test_hashes_are_those_of_what_is_installed():
    found = {f"smollm2: {GGUF}": GGUF_SHA256}
    for file in sorted((ROOT / "conf" / "encoder").glob("*.yaml")):
        given = yaml.safe_load(file.read_text(encoding="utf-8"))
        if given["package"] is None:
            continue
        version = distribution(given["package"])
        assert f"{given['package']} {version.version}" in PAGE
        for part in version.files or ():
            named = f"{file.stem}: {part.name}"
            if named in HASHES:
                found[named] = sha256_file(Path(str(version.locate_file(part))))
    assert found == HASHES
