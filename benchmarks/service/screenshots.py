"""Screenshots of every page, from a made-up study: what docs/service.md shows.

    python -m benchmarks.service.screenshots [--out docs/service] [--trials 1500]

Needs the distribution's Chromium (apt-get install chromium) and the development packages.
"""

from __future__ import annotations

import argparse
import io
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image

from autotuner.store import Store
from autotuner.sweeps import queue
from autotuner.tuning.workbench import load_space
from benchmarks.service.made_up import spread_times, write
from tests.helpers.browser import browser, served

WIDTH, HEIGHT = 1200, 780
SHOTS = {
    "overview": "",
    "why_rejected": "/rejects",
    "variants": "/variants?x=MULTICAST&y=speedup&colour=EXP",
    "leaderboard": "/leaderboard",
    "problems": "/problems",
    "timeline": "/timeline",
    "beliefs": "/beliefs",
    "trial": "/trials/{best}",
}
"""The pages of a study, by the names of their files."""
COLOURS = 96
"""Of a screenshot: drawings have few, and a file is then small."""


def store_of(folder: Path, trials: int) -> tuple[Path, str, str]:
    """A store with two made-up studies and two sweeps in its queue; the names of the studies."""
    path = folder / "studies.db"
    with Store.open(str(path)) as store:
        first = write(store, trials)
        second = write(store, trials // 2, seed=1, name="NVIDIA L4 (made up)")
        for priority, trials_of in ((0, 200), (5, 60)):
            request = queue.request_for([load_space("sdpa_cuda")], trials=trials_of, minutes=30.0)
            queue.submit(store, request, priority)
    for name in (second, first):
        spread_times(path, name)
    return path, first, second


def shoot(page: Any, url: str, out: Path, name: str) -> None:
    """One screenshot, with few colours."""
    page.goto(url)
    if "/variants" in url:
        page.wait_for_selector("#scatter-live[data-ready]")
    if url.endswith("/beliefs"):
        page.wait_for_selector("#matters", timeout=120_000)
    page.wait_for_timeout(200)
    taken = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    taken.quantize(COLOURS, dither=Image.Dither.NONE).save(out / f"{name}.png", optimize=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.service.screenshots", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/service"))
    parser.add_argument("--trials", type=int, default=1500)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="autotuner-screenshots-") as folder, browser() as chromium:
        path, first, second = store_of(Path(folder), options.trials)
        with served(path, "--read-only") as server:
            context = chromium.new_context(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
            page = context.new_page()
            best = page.request.get(f"{server.url}/api/v1/studies/{first}/best").json()["entry"]["number"]
            base = f"{server.url}/studies/{first}"
            for name, tab in SHOTS.items():
                shoot(page, base + tab.format(best=best), options.out, name)
            shoot(page, f"{server.url}/", options.out, "studies")
            shoot(page, f"{server.url}/queue", options.out, "queue")
            shoot(page, f"{server.url}/compare?a={first}&b={second}", options.out, "compare")
            page.emulate_media(color_scheme="dark")
            shoot(page, base, options.out, "overview_dark")
    size = sum(file.stat().st_size for file in options.out.glob("*.png"))
    print(f"{len(list(options.out.glob('*.png')))} screenshots in {options.out}, {size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
