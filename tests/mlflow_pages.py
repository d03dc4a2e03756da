"""Screenshots of a sweep in MLflow, for docs/mlflow.md: `python -m tests.mlflow_pages ADDRESS`.

`desa ui` must serve the sweep at ADDRESS (http://127.0.0.1:5000); DESA_HOME is its home. Needs
Chromium.
"""

import asyncio
import base64
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import aiohttp

from desa_ray.experiment.places import home
from desa_ray.tracking.last import last_runs, links

FOLDER = Path(__file__).resolve().parent.parent / "docs"
NAMES = ("chromium", "chromium-browser", "google-chrome")
MOST_BYTES = 300_000
WAIT_S = 20  # for the page's own requests
# MLflow's assistant opens by itself in a fresh browser and takes a quarter of the page.
NO_ASSISTANT = "localStorage['mlflow.assistant.fab.autoOpenedOnFirstLoad_v1'] = 'true'"


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
        "mlflow_plots": found["sweep"].replace("?", "/artifactPath/pareto.svg?"),
        **({"mlflow_report": found["report"]} if "report" in found else {}),
    }


def take(address: str, path: Path) -> None:
    """The page as a PNG, 1360 by 850 pixels, once its requests have ended and frames are drawn."""
    with tempfile.TemporaryDirectory(prefix="desa-pages-") as profile:
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        options += ["--window-size=1360,850", f"--user-data-dir={profile}"]
        options += ["--remote-debugging-port=0", "about:blank"]
        process = subprocess.Popen(
            [browser() or NAMES[0], *options],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            picture = asyncio.run(_picture(address, Path(profile) / "DevToolsActivePort"))
        finally:
            process.terminate()
            process.wait(30)
    path.write_bytes(picture)
    assert len(picture) < MOST_BYTES, f"{path} is too large"


async def _picture(address: str, port_file: Path) -> bytes:
    """What the browser shows some real seconds after it has opened the address: virtual time, as
    of `--screenshot`, does not wait for what frames draw.
    """
    async with asyncio.timeout(WAIT_S * 4):
        while not port_file.exists() or not port_file.read_text():
            await asyncio.sleep(0.2)
        port = port_file.read_text().splitlines()[0]
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
            async with session.get("/json/list") as answer:
                tabs = [tab for tab in await answer.json() if tab["type"] == "page"]
            place = tabs[0]["webSocketDebuggerUrl"].partition(port)[2]
            async with session.ws_connect(place, max_msg_size=0) as tab:
                size = {"width": 1360, "height": 850, "deviceScaleFactor": 1, "mobile": False}
                await _told(tab, 1, "Emulation.setDeviceMetricsOverride", size)
                await _told(tab, 2, "Page.enable", {})
                script = {"source": NO_ASSISTANT}
                await _told(tab, 3, "Page.addScriptToEvaluateOnNewDocument", script)
                await _told(tab, 4, "Page.navigate", {"url": address})
                await asyncio.sleep(WAIT_S)
                shot = await _told(tab, 5, "Page.captureScreenshot", {"format": "png"})
    return base64.b64decode(shot["data"])


async def _told(
    tab: aiohttp.ClientWebSocketResponse, number: int, method: str, params: dict[str, Any]
) -> dict[str, Any]:
    await tab.send_json({"id": number, "method": method, "params": params})
    while True:
        answer = await tab.receive_json()
        if answer.get("id") == number:
            return answer["result"]


def main(arguments: list[str]) -> int:
    """Takes all of them."""
    folder = Path(arguments[1]) if len(arguments) > 1 else FOLDER
    for name, address in pages(arguments[0]).items():
        take(address, folder / f"{name}.png")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
