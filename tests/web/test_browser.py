"""The pages in a browser: both looks, a sweep asked for and watched to its end, many tabs, the keyboard."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.browser import Served, browser, served
from tests.helpers.command_line import SPACE, autotuner, lay_out
from tests.helpers.processes import wait_for
from tests.web.conftest import TOKEN

pytestmark = pytest.mark.slow
AXE = Path(__file__).parent / "axe.min.js"
TABS = (
    *("", "/rejects", "/variants", "/leaderboard", "/problems", "/costs", "/beliefs"),
    "/trials/3",
)
SERIOUS = ("serious", "critical")


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser() as found:
        yield found


@contextmanager
def asked(store: Path, folder: Path, *options: str) -> Iterator[Served]:
    """A server of a copy of the store, who has the token asks it for sweeps of the space tiny."""
    token = folder / "token"
    token.write_text(TOKEN)
    lay_out(folder)
    (folder / "tiny.toml").write_text(SPACE)
    copied = Path(shutil.copy(store, folder / "studies.db"))
    with served(copied, "--token-file", str(token), "--spaces", str(folder), *options) as found:
        yield found


@pytest.fixture(scope="module")
def server(queued: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """That of a store with a study, a sweep of it, number 1, and a sweep set, number 2. It has no worker."""
    with asked(queued, tmp_path_factory.mktemp("browser")) as found:
        yield found


@pytest.fixture(scope="module")
def saved(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study's pages as one file, as a user makes it."""
    folder = tmp_path_factory.mktemp("saved")
    assert autotuner(folder, "export", "--format", "html", "--store", str(made), "--out", "study.html").returncode == 0
    return folder / "study.html"


class Watched:
    """A page, and everything that it complained of."""

    def __init__(self, context: Any) -> None:
        self.page = context.new_page()
        self.complaints: list[str] = []
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", self._hear)
        self.page.on("requestfailed", self._miss)

    def _hear(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def _miss(self, request: Any) -> None:
        # A page that is left while it asks what is new ends that request itself: no fault of the page.
        if request.failure != "net::ERR_ABORTED":
            self.complaints.append(f"failed: {request.url}: {request.failure}")

    def findings(self, address: str) -> list[tuple[str, str]]:
        """What axe-core (https://github.com/dequelabs/axe-core) calls serious or critical about a page."""
        self.page.goto(address)
        if address.endswith("/variants"):
            self.page.wait_for_selector("#scatter-live[data-ready]")
        # Through the debugger: the pages' own policy lets no foreign script in.
        result = self.page.evaluate(f"{AXE.read_text()}; axe.run(document, {{resultTypes: ['violations']}})")
        bad = [each for each in result["violations"] if each["impact"] in SERIOUS]
        return [(each["id"], each["nodes"][0]["html"][:160]) for each in bad]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("look", ["light", "dark"])
def test_every_page_has_no_error_and_no_serious_finding(chromium: Any, server: Served, study: str, look: str) -> None:
    context = chromium.new_context(color_scheme=look, viewport={"width": 1280, "height": 900}, bypass_csp=False)
    watched = Watched(context)
    others = ["/", f"/compare?a={study}&b={study}", "/api", "/login"]
    paths = [*others, *(f"/studies/{study}{tab}" for tab in TABS)]
    found = {path: watched.findings(server.url + path) for path in paths}
    context.close()
    assert {path: bad for path, bad in found.items() if bad} == {}
    assert watched.complaints == []


@pytest.mark.sampled(1)
@pytest.mark.parametrize("look", ["light", "dark"])
def test_the_pages_of_sweeps_and_what_is_not_there_have_no_serious_finding(
    chromium: Any, server: Served, look: str
) -> None:
    context = chromium.new_context(color_scheme=look)
    watched = Watched(context)
    found = {path: watched.findings(server.url + path) for path in ("/queue", "/sweeps/1", "/sweeps/2")}
    assert watched.complaints == []
    missing = {path: watched.findings(server.url + path) for path in ("/nothing", "/sweeps/99", "/studies/none")}
    context.close()
    assert {path: bad for path, bad in (found | missing).items() if bad} == {}
    # The browser itself says that there is nothing, and nothing else is said.
    assert len(watched.complaints) == len(missing)
    assert all("404" in each for each in watched.complaints)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("look", ["light", "dark"])
def test_a_saved_page_opens_from_its_file(chromium: Any, saved: Path, look: str) -> None:
    context = chromium.new_context(color_scheme=look, viewport={"width": 360, "height": 740})
    watched, asked = Watched(context), list[str]()
    watched.page.on("request", lambda request: asked.append(request.url))
    found = watched.findings(saved.as_uri())
    width = watched.page.evaluate("document.documentElement.scrollWidth")
    watched.page.click("nav a[href='#at-beliefs']")
    watched.page.locator("button.copy").last.click()
    watched.page.wait_for_function("document.getElementById('status').textContent")
    assert watched.page.get_by_role("heading", name="What matters").is_visible()
    context.close()
    assert (found, watched.complaints, asked, width) == ([], [], [saved.as_uri()], 360)


OFF_SCREEN = """() => [...document.querySelectorAll("svg.figure circle, svg.figure path.dot")].filter((dot) => {
const at = dot.getBoundingClientRect(); return at.width > 0 && (at.left < 0 || at.right > innerWidth + 1) }).length"""


def test_every_width_shows_everything_without_moving_the_page_sideways(
    chromium: Any, server: Served, study: str
) -> None:
    context = chromium.new_context(color_scheme="dark", viewport={"width": 375, "height": 740})
    page = context.new_page()
    wide, hidden = {}, {}
    others = ("/", "/queue", f"/compare?a={study}&b={study}", "/api", "/login", "/sweeps/1", "/sweeps/2", "/nothing")
    for path in (*others, *(f"/studies/{study}{tab}" for tab in TABS)):
        page.set_viewport_size({"width": 375, "height": 740})
        page.goto(server.url + path)
        for width in (375, 768, 1280):
            page.set_viewport_size({"width": width, "height": 740})
            if (found := page.evaluate("document.documentElement.scrollWidth")) > width:
                wide[path, width] = found
            if (off := page.evaluate(OFF_SCREEN)) and path.endswith(("/leaderboard", "/queue")):
                hidden[path, width] = off
    context.close()
    assert (wide, hidden) == ({}, {})


def test_a_study_is_opened_and_its_pages_walked_by_keyboard_alone(chromium: Any, server: Served, study: str) -> None:
    context = chromium.new_context()
    page = context.new_page()
    page.goto(server.url)
    for wanted in (f"/studies/{study}", f"/studies/{study}/leaderboard"):
        for _ in range(60):
            page.keyboard.press("Tab")
            focus = page.evaluate(
                "() => { const at = document.activeElement; const box = at.getBoundingClientRect();"
                " return [new URL(at.href || location).pathname, getComputedStyle(at).outlineStyle,"
                " box.width > 0] }"
            )
            assert focus[2], "what has the focus is seen"
            if focus[0] == wanted and page.evaluate("document.activeElement.tagName") == "A":
                break
        assert (focus[0], focus[1] != "none") == (wanted, True)
        page.keyboard.press("Enter")
        page.wait_for_url(server.url + wanted)
    context.close()


def test_without_a_script_figures_and_tables_are_there(chromium: Any, server: Served, study: str) -> None:
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()

    def shown(tab: str) -> bool:
        page.goto(f"{server.url}/studies/{study}{tab}")
        return bool(page.locator("svg.figure, main table").first.is_visible())

    for tab in TABS[:7]:
        wait_for(partial(shown, tab))  # beliefs are found in a process of their own: the page says to load it again
    context.close()


def test_the_scatter_follows_pointer_keyboard_and_filters(chromium: Any, server: Served, study: str) -> None:
    context = chromium.new_context(viewport={"width": 1200, "height": 900})
    watched = Watched(context)
    page = watched.page
    page.goto(f"{server.url}/studies/{study}/variants")
    page.wait_for_selector("#scatter-live[data-ready]")
    assert "80 of 80 variants" in page.inner_text("#scatter-note")
    assert page.locator("#scatter-table tbody tr").first.is_visible()
    page.click("#filters summary")
    page.locator("#filters input").first.check()
    # The page's policy lets no string be a function.
    page.locator("#scatter-note").filter(has_not_text="80 of 80").wait_for()
    assert "p." in page.url
    some = page.inner_text("#scatter-note")
    page.reload()  # the address leads to the same drawing
    page.locator("#scatter-note").filter(has_text=some).wait_for()
    page.click("#clear")
    page.locator("#scatter-note").filter(has_text="80 of 80").wait_for()
    page.focus("#canvas")
    page.keyboard.press("Home")
    first = page.inner_text("#point")
    page.keyboard.press("ArrowRight")
    assert re.match(r"Trial \d+", page.inner_text("#point"))
    assert page.inner_text("#point") != first
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"/trials/\d+$"))
    assert watched.complaints == []
    context.close()


def test_many_tabs_at_once_all_follow(chromium: Any, server: Served) -> None:
    """A browser opens six connections to a server: pages that held one each would starve the seventh."""
    context = chromium.new_context()
    pages = [context.new_page() for _ in range(9)]
    for page in pages:
        page.goto(f"{server.url}/queue")
    for page in pages:
        with page.expect_response(lambda answer: "since=" in answer.url, timeout=20_000) as answer:
            page.bring_to_front()
        assert answer.value.status in (200, 204)
    context.close()


@pytest.mark.sampled(1, of="whole sweeps")
@pytest.mark.timed
def test_a_sweep_is_asked_for_and_watched_to_its_end(chromium: Any, made: Path, tmp_path: Path) -> None:
    with asked(made, tmp_path, "--workers", "1") as server:
        watch_a_sweep(chromium, server)


def watch_a_sweep(chromium: Any, server: Served) -> None:
    context = chromium.new_context()
    watched = Watched(context)
    page = watched.page
    page.goto(f"{server.url}/login")
    page.fill("input[name=token]", TOKEN)
    page.click("main button")
    page.goto(f"{server.url}/queue")
    page.click("#ask summary")
    page.select_option("select[name=space]", "tiny")
    page.fill("input[name=trials]", "2")
    page.fill("input[name=minutes]", "2")
    page.fill("input[name=patience]", "0")
    page.uncheck("input[name=finals]")
    page.click("button.primary")
    page.wait_for_url(re.compile(r"/sweeps/\d+$"))
    # Nobody loads the page again: it follows by itself.
    page.wait_for_selector("#state[data-state=running]", timeout=60_000)
    page.wait_for_selector("#state[data-state=done]", timeout=240_000)
    assert "2 of 2 variants judged" in page.inner_text("#state")
    page.click("text=Study >> a")
    page.wait_for_selector(".cards")
    assert watched.complaints == []
    context.close()


def test_a_killed_server_leaves_its_worker_at_work(made: Path, tmp_path: Path) -> None:
    """What happens to the pages does not happen to a sweep."""
    store = Path(shutil.copy(made, tmp_path / "studies.db"))
    with served(store, "--workers", "1") as found:
        worker = children_of(found.pid)
        found.kill()
        try:
            assert worker
            assert all(Path(f"/proc/{pid}/stat").exists() for pid in worker)
            again = subprocess.run(
                [sys.executable, "-m", "autotuner", "devices", "--store", str(store), "--json"],
                capture_output=True,
                text=True,
                check=True,
            )
            assert again.stderr == ""
        finally:
            for pid in worker:
                subprocess.run(["kill", pid], check=False)


def children_of(process: int) -> list[str]:
    """The workers that a server has started."""
    return subprocess.run(["pgrep", "-P", str(process)], capture_output=True, text=True, check=True).stdout.split()
