"""Reference material that comes with the repository: README.md there says what each file is."""

from pathlib import Path

REFERENCE = Path(__file__).parent
GOLDEN = sorted(REFERENCE.glob("golden/*.json"))
