"""Screenshots of a sweep in MLflow, for docs/mlflow.md: `python -m tests.mlflow_pages ADDRESS`.

`desa ui` must serve the sweep at ADDRESS (http://127.0.0.1:5000); DESA_HOME is its home. Needs
Chromium.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from desa_ray.experiment.places import home
from desa_ray.tracking.last import last_runs, links

FOLDER = Path(__file__).resolve().parent.parent / "docs"
NAMES = ("chromium", "chromium-browser", "google-chrome")
MOST_BYTES = 300_000
WAIT_MS = 25_000  # for the page's own requests


def browser() -> str | None:
    """The path of a Chromium, if there is one."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


def pages(address: str) -> dict[str, str]:
    """Name of the picture -> address, of the last sweep in this home."""
    noted = last_runs(home())
    found = dict(line.split(": ", 1) for line in links(address, noted))
    runs = noted["run_ids"]
    assert isinstance(runs, list)
    return {
        "mlflow_experiment": found["experiment"],
        "mlflow_sweep": found["sweep"],
        "mlflow_cell": found["sweep"].replace(runs[0], runs[-1]),
        "mlflow_compare": found["compare"],
    }


def take(address: str, path: Path) -> None:
    """The page as a PNG, 1360 by 850 pixels."""
    with tempfile.TemporaryDirectory(prefix="desa-pages-") as profile:
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        options += ["--window-size=1360,850", f"--virtual-time-budget={WAIT_MS}"]
        options += [f"--user-data-dir={profile}", f"--screenshot={path}", address]
        command = [browser() or NAMES[0], *options]
        subprocess.run(command, check=True, capture_output=True, timeout=240)
    assert path.stat().st_size < MOST_BYTES, f"{path} is too large"


def main(arguments: list[str]) -> int:
    """Takes all of them."""
    folder = Path(arguments[1]) if len(arguments) > 1 else FOLDER
    for name, address in pages(arguments[0]).items():
        take(address, folder / f"{name}.png")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
