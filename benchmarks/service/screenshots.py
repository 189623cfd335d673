"""Screenshots of every page, from made-up studies and sweeps: what docs/reference/service.md shows.

    python -m benchmarks.service.screenshots [--out docs/service] [--trials 1500]
    python -m benchmarks.service.screenshots --out FOLDER --every-look    each page whole: light, dark, and narrow

Needs the distribution's Chromium (apt-get install chromium) and the development packages.
"""

from __future__ import annotations

import argparse
import io
import re
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, cast

from PIL import Image, ImageColor

from autotuner.jobs import queue
from autotuner.store import Store, sweeps
from autotuner.tuning.workbench import load_space
from autotuner.web.templates import static_text
from benchmarks.service.made_up import PROBLEMS, SPACE, spread_times, write
from tests.helpers.browser import browser, served

WIDE, NARROW, HEIGHT = 1200, 390, 780
STUDY = {
    "overview": "",
    "why_rejected": "/rejects",
    "variants": "/variants?x=MULTICAST&y=speedup&colour=EXP",
    "leaderboard": "/leaderboard",
    "problems": "/problems",
    "costs": "/costs",
    "beliefs": "/beliefs",
    "trial": "/trials/{best}",
    "rejected_trial": "/trials/{rejected}",
}
"""The pages of a study, by the names of their files."""
OTHERS = {
    "studies": "/",
    "queue": "/queue",
    "sweep": "/sweeps/1",
    "compare": "/compare?a={first}&b={second}",
    "login": "/login",
    "refused": "/nothing",
}


LOOK = [ImageColor.getrgb(each) for each in re.findall(r"#[0-9a-f]{6}\b", static_text("pages.css"))]
"""The colours that the pages are drawn in."""


UNSHOWN = {"login", "refused", "problems", "costs", "compare"}
"""Pages that docs/ does not show."""


class Shown(NamedTuple):
    """What the pages show."""

    path: Path
    first: str
    second: str


@contextmanager
def store_in(folder: Path, trials: int) -> Iterator[Shown]:
    """A store with made-up studies. This process holds two of the sweeps in its queue, as a worker would."""
    path = folder / "studies.db"
    with Store.open(str(path)) as store:
        first = write(store, trials)
        second = write(store, trials // 2, seed=1, name="NVIDIA L4 (made up)")
        begun = write(store, 44, finals=False, problems=PROBLEMS[:1])
        running = write(store, trials // 3, seed=2, finals=False, name="NVIDIA H200 (made up)")
        for name in (begun, running, second, first):
            spread_times(path, name)
        whole = queue.request_for(load_space(SPACE, problems=PROBLEMS), trials=trials, minutes=600.0, name="nightly")
        files = [load_space(SPACE, problems=[each]) for each in PROBLEMS]
        several = [queue.request_for(file, trials=60, name="by problem") for file in files]
        claims = []
        for requests, study, spent_s in (([whole], running, 1200.0), (several, begun, 1500.0)):
            number = queue.submit(store, *requests)[0][0].id
            claims.append(sweeps.claim(store, number, f"sweep {number}"))
            sweeps.work(store, number, spent_s, study)
            sweeps.note(store, number, "search", f"study {study}", {})
        queue.submit(store, queue.request_for(load_space(SPACE), trials=60, minutes=30.0), priority=5)
        with store.lease(running):
            yield Shown(path, first, second)


def shoot(page: Any, url: str, out: Path, name: str, whole: bool = False) -> None:
    """One screenshot in 256 colours: those of the pages' look, which tell marks apart, and its most frequent ones."""
    page.goto(url)
    if "/variants" in url:
        page.wait_for_selector("#scatter-live[data-ready]")
    if url.endswith("/beliefs"):
        page.wait_for_selector("text=What matters", timeout=120_000)
    page.wait_for_timeout(200)
    taken = Image.open(io.BytesIO(page.screenshot(full_page=whole))).convert("RGB")
    palette = Image.new("P", (1, 1))
    counted = sorted(taken.getcolors(taken.width * taken.height) or (), reverse=True)
    colours = dict.fromkeys([*LOOK, *(cast(tuple[int, int, int], colour) for _, colour in counted)])
    palette.putpalette([part for colour in list(colours)[:256] for part in colour])
    taken.quantize(palette=palette, dither=Image.Dither.NONE).save(out / f"{name}.png", optimize=True)


def pages(page: Any, url: str, shown: Shown) -> dict[str, str]:
    """The address of every page."""
    best = page.request.get(f"{url}/api/v1/studies/{shown.first}/best").json()["variant"]["trial"]
    lines = page.request.get(f"{url}/api/v1/studies/{shown.first}/trials?limit=200").json()["trials"]
    rejected = next(each["number"] for each in lines if each["verdict"] == "incorrect")
    of_study = {
        name: f"{url}/studies/{shown.first}{tab.format(best=best, rejected=rejected)}" for name, tab in STUDY.items()
    }
    return of_study | {name: url + path.format(first=shown.first, second=shown.second) for name, path in OTHERS.items()}


def kept(chromium: Any, url: str, shown: Shown, out: Path) -> None:
    """What docs/ keeps: every page, and the overview in the dark and on a narrow screen."""
    page = chromium.new_context(viewport={"width": WIDE, "height": HEIGHT}, color_scheme="light").new_page()
    addresses = pages(page, url, shown)
    for name in addresses.keys() - UNSHOWN:
        shoot(page, addresses[name], out, name)
    page.emulate_media(color_scheme="dark")
    shoot(page, addresses["overview"], out, "overview_dark")
    page.emulate_media(color_scheme="light")
    page.set_viewport_size({"width": NARROW, "height": HEIGHT})
    shoot(page, addresses["overview"], out, "overview_narrow")


def every_look(chromium: Any, url: str, shown: Shown, out: Path) -> None:
    """Every page as a whole, in the light, in the dark and narrow: to be looked through."""
    for look, width, scheme in (("light", WIDE, "light"), ("dark", WIDE, "dark"), ("narrow", NARROW, "light")):
        page = chromium.new_context(viewport={"width": width, "height": HEIGHT}, color_scheme=scheme).new_page()
        for name, address in pages(page, url, shown).items():
            shoot(page, address, out, f"{name}_{look}", whole=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.service.screenshots", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/service"))
    parser.add_argument("--trials", type=int, default=1500)
    parser.add_argument("--every-look", action="store_true")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="autotuner-screenshots-") as folder,
        browser() as chromium,
        store_in(Path(folder), options.trials) as shown,
    ):
        token = Path(folder) / "token"
        token.write_text(secrets.token_urlsafe(24))
        with served(shown.path, "--token-file", str(token)) as server:
            (every_look if options.every_look else kept)(chromium, server.url, shown, options.out)
    size = sum(file.stat().st_size for file in options.out.glob("*.png"))
    print(f"{len(list(options.out.glob('*.png')))} screenshots in {options.out}, {size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
