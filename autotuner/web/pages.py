"""The pages: those of studies, drawn from a snapshot, and those of the queue with the forms that change it. One is
drawn again only when something has changed."""

import hashlib
import secrets
from collections.abc import Callable
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Depends, Form, HTTPException, Path, Query, Request
from pydantic import ValidationError
from starlette.responses import HTMLResponse, RedirectResponse, Response

from autotuner.store import sweeps
from autotuner.values.errors import InputError
from autotuner.values.sweep import State, SweepChange
from autotuner.values.variant import digest_of
from autotuner.views.drawings import scatter, sections
from autotuner.views.drawings.links import LINKS
from autotuner.views.drawings.sections import SECTIONS, TABS, Lead, Panel
from autotuner.views.drawings.trial import trial_page
from autotuner.views.figure_tables import comparison, comparison_table
from autotuner.views.snapshot import Snapshot
from autotuner.views.studies_table import studies_table
from autotuner.views.sweep_tables import MOODS, devices_table, events_table, state_words, sweeps_table
from autotuner.web import whole_page
from autotuner.web.access import COOKIE
from autotuner.web.api import MOST, Number
from autotuner.web.reader import tag_of
from autotuner.web.server import VERBS, Server, server_of
from autotuner.web.templates import render
from autotuner.web.wire import NewSweep

router = APIRouter(include_in_schema=False)
FINDING = (
    "What the study has shown is being found, in a process that gives way to everything else. This page shows it when"
    " it is there; without scripts, load it again."
)

Carried = Annotated[str, Form(max_length=100)]


def with_form(request: Request, form: Carried) -> Server:
    """The server of a form, of the reader's own page. Raises HTTPException 403."""
    server = server_of(request)
    server.access.require_form(request, form)
    return server


Changed = Annotated[Server, Depends(with_form)]


def page(request: Request, template: str, tag: str, values: Callable[[], dict[str, Any]]) -> Response:
    """A page of a state that `tag` names. 204 to one that shows this state already, 304 to a browser that has it."""
    form = server_of(request).access.form_of(request)
    if request.query_params.get("since") == tag:
        return Response(status_code=204)
    query = "&".join(f"{name}={value}" for name, value in request.query_params.multi_items() if name != "since")
    key = template, request.url.path, query, tag, form or ""
    etag = f'"{hashlib.sha256(repr(key).encode()).hexdigest()[:20]}"'
    headers = {"ETag": etag, "Cache-Control": "no-cache", "Vary": "Cookie"}
    if request.headers.get("if-none-match") == etag:
        return Response(status_code=304, headers=headers)

    def draw() -> str:
        here = f"{request.url.path}?{query}" if query else request.url.path
        return render(template, **_common(request), **{"tag": tag, "here": here, **values()})

    return HTMLResponse(server_of(request).drawn.once(key, draw), headers=headers)


def study_page(
    request: Request, study: str, template: str, tab: str, values: Callable[[Snapshot], dict[str, Any]]
) -> Response:
    """A page of a study."""
    snapshot = server_of(request).study(study)
    running = snapshot.running
    tag = f"{snapshot.revision.tag}-{'r' if running else 'i'}"
    return page(
        request,
        template,
        tag,
        lambda: {"study": snapshot, "tab": tab, "running": running, "live": running, **values(snapshot)},
    )


@router.get("/")
def studies(request: Request) -> Response:
    """Every study of the store."""
    server = server_of(request)
    found = server.reader.studies()
    values = {"table": studies_table(found, LINKS), "live": any(each.running for each in found), "store": server.label}
    return page(request, "studies.html", tag_of(*found), lambda: values)


@router.get("/studies/{study}")
def overview(request: Request, study: str) -> Response:
    """The answers, why variants were rejected, the best so far, and the first of the leaderboard."""
    store, copies = server_of(request).label, sorted(server_of(request).copies)
    return study_page(
        request,
        study,
        "overview.html",
        "",
        lambda snapshot: {
            "cards": sections.cards(snapshot, store),
            "copies": copies,
            "parts": sections.overview(snapshot, LINKS),
        },
    )


@router.post("/studies/{study}/{verb}")
def change(
    server: Changed,
    study: str,
    verb: str,
    name: Annotated[str, Form(max_length=200)] = "",
    note: Annotated[str, Form(max_length=2000)] = "",
    to: Annotated[str, Form(max_length=300)] = "",
) -> Response:
    """Renames a study and notes something of it, copies or deletes it."""
    server.study(study)
    if verb not in ("change", "copy", "delete"):
        raise HTTPException(404, "a study knows change, copy and delete")
    if verb == "copy":
        server.copy_study(study, to)
        return RedirectResponse(f"/studies/{quote(study, safe='')}", 303)
    if verb == "change":
        now = server.change_study(study, note.replace("\r\n", "\n"), name or None)
        return RedirectResponse(f"/studies/{quote(now, safe='')}", 303)
    if name != study:
        raise InputError(f"{study} is not deleted: its name was not typed")
    server.delete_study(study)
    return RedirectResponse("/", 303)


@router.get("/studies/{study}/variants")
def variants(request: Request, study: str) -> Response:
    """Every variant, drawn by a script, and the fastest."""

    def values(snapshot: Snapshot) -> dict[str, Any]:
        levels = {name: tuple(map(str, values)) for name, values in scatter.parameters(snapshot).items()}
        shown = {"parameters": levels, "quantities": scatter.QUANTITIES}
        return {**shown, "fastest": scatter.fastest(snapshot, LINKS), "live": False}

    return study_page(request, study, "variants.html", "variants", values)


@router.get("/studies/{study}/variants.json")
def variants_data(request: Request, study: str) -> Response:
    """What the page's canvas draws."""
    snapshot = server_of(request).study(study)
    etag = f'"{snapshot.revision.tag}"'
    headers = {"ETag": etag, "Cache-Control": "no-cache"}
    if request.headers.get("if-none-match") == etag:
        return Response(status_code=304, headers=headers)
    return Response(scatter.data(snapshot), media_type="application/json", headers=headers)


@router.get("/studies/{study}/beliefs")
def believed(request: Request, study: str) -> Response:
    """What the study has shown of its space. Until that is found the page says so, and asks again."""
    server = server_of(request)
    snapshot = server.study(study)
    asked = server.beliefs.ask(snapshot.name, snapshot.revision.tag)
    found, refused = server.beliefs.last(snapshot.name), None
    if asked.done() and not asked.cancelled() and asked.exception() is not None:
        refused = str(asked.exception()) if isinstance(asked.exception(), InputError) else "the beliefs were not found"
    tag = f"{snapshot.revision.tag}-{asked.done()}-{0 if found is None else found.judged}"

    def values() -> dict[str, Any]:
        live = not asked.done() or snapshot.running
        said = {"study": snapshot, "tab": "beliefs", "running": snapshot.running, "live": live}
        if refused is not None:
            return {**said, "parts": (Lead(refused),)}
        newer = "" if asked.done() else "Newer ones are being learned."
        return {**said, "parts": (Lead(FINDING),) if found is None else sections.believed(found, newer)}

    return page(request, "section.html", tag, values)


@router.get("/studies/{study}/trials/{number}")
def trial(request: Request, study: str, number: Number) -> Response:
    """One variant."""
    server = server_of(request)
    server.require_trial(server.study(study), number)
    return study_page(
        request, study, "trial.html", "trial", lambda of: {"trial": trial_page(of, number, server.label), "live": False}
    )


@router.get("/studies/{study}/saved.html")
async def saved(request: Request, study: str) -> Response:
    """The study's pages as one file."""
    _, text = await server_of(request).saved_page(study)
    headers = {"Content-Disposition": 'attachment; filename="study.html"', "Content-Security-Policy": whole_page.POLICY}
    return HTMLResponse(text, headers=headers)


@router.get("/studies/{study}/{tab}")
def section(request: Request, study: str, tab: str) -> Response:
    """A page of a study that shows some parts."""
    cause = request.query_params.get("cause")
    found = next((each for each in SECTIONS if each.key == tab), None)
    if found is None:
        raise HTTPException(404, f"a study has no page {tab!r}")

    return study_page(
        request, study, "section.html", tab, lambda snapshot: {"parts": found.parts(snapshot, LINKS, cause)}
    )


@router.get("/compare")
def compared(
    request: Request,
    a: Annotated[str | None, Query(max_length=300)] = None,
    b: Annotated[str | None, Query(max_length=300)] = None,
) -> Response:
    """Two studies side by side."""
    server = server_of(request)
    names = [each.name for each in server.reader.studies()]
    sides = [server.study(each) for each in (a, b) if each]

    def values() -> dict[str, Any]:
        parts: list[Panel] = []
        if len(sides) == 2:
            one, other = sides
            found = comparison(one.store, one.name, other.name)
            parts.append(Panel("Both", studies_table([each.summary for each in sides], LINKS)))
            parts.append(Panel("B over A", comparison_table((one.name, other.name), found).in_full))
        return {"names": names, "a": a, "b": b, "parts": parts, "live": False}

    return page(request, "compare.html", f"{len(names)}-{'-'.join(each.revision.tag for each in sides)}", values)


@router.get("/api")
def api(request: Request) -> Response:
    """The API's description, for people."""
    document = request.app.openapi()
    calls = [
        (method.upper(), path, call.get("description") or call.get("summary", ""))
        for path, methods in document["paths"].items()
        for method, call in methods.items()
    ]
    return page(request, "api.html", "api", lambda: {"calls": sorted(calls, key=lambda call: call[1]), "live": False})


@router.get("/login")
def login(request: Request) -> Response:
    """Where a reader shows the token."""
    return page(request, "login.html", "login", lambda: {"failed": False, "live": False})


@router.post("/login")
def log_in(request: Request, token: Annotated[str, Form(max_length=1000)]) -> Response:
    """Remembers a reader who has shown the token."""
    cookie = server_of(request).access.log_in(token)
    if cookie is None:
        refused = page(request, "login.html", "failed", lambda: {"failed": True, "live": False})
        refused.status_code = 403
        return refused
    answered = RedirectResponse("/", 303)
    answered.set_cookie(COOKIE, cookie, httponly=True, samesite="strict", path="/")
    return answered


@router.post("/logout")
def log_out(request: Request, server: Changed) -> Response:
    """Forgets a reader."""
    server.access.log_out(request)
    answered = RedirectResponse("/", 303)
    answered.delete_cookie(COOKIE, path="/")
    return answered


def _common(request: Request) -> dict[str, Any]:
    server = server_of(request)
    form, settings = server.access.form_of(request), server.settings
    tabs = (("", "Overview"), *TABS)
    return {"links": LINKS, "tabs": tabs, "form": form, "writes": settings.writes, "private": settings.private}


def refused(request: Request, error: HTTPException) -> Response:
    """A refusal as a page. It is none of those that the head of every page leads to."""
    why = {"status": error.status_code, "detail": str(error.detail), "tag": "", "here": "", "live": False}
    return HTMLResponse(render("refused.html", **_common(request), **why), error.status_code, dict(error.headers or {}))


# The queue: sweeps and devices, one sweep as it goes, and the forms that change them ----------------------------------


LAST = 200
"""Events of a sweep that a page shows."""
KEY = "key-of-this-form"
"""Stands for a form's key in the page as it is drawn, once for all who read it."""
SweepNumber = Annotated[int, Path(ge=1, le=MOST)]


@router.get("/queue")
def queue(request: Request) -> Response:
    """Sweeps and devices."""
    return _queue(request, None)


def _queue(request: Request, refused: str | None) -> Response:
    server = server_of(request)
    look, form = server.queue.look(), server.access.form_of(request)
    spaces = () if form is None else server.queue.spaces()
    devices = devices_table(look.devices)
    values = {
        "open": sweeps_table([each for each in look.sweeps if not each.sweep.state.is_over]),
        "over": sweeps_table([each for each in look.sweeps if each.sweep.state.is_over]),
        "devices": devices,
        "sick": [each.name for each in look.devices if each.health != "healthy"],
        "spaces": spaces,
        "worker": None if any(each.holder for each in look.devices) else sections.command("worker", store=server.label),
        "refused": refused,
        "key": KEY,
        "live": refused is None,
    }
    shown = page(request, "queue.html", tag_of(sweeps_table(look.sweeps), devices, spaces, refused), lambda: values)
    if form is None or shown.status_code == 204:
        return shown
    # With a key of its own. No browser keeps it: it would ask for the next sweep under the same key.
    body = bytes(shown.body).replace(KEY.encode(), secrets.token_hex(16).encode(), 1)
    return HTMLResponse(body, headers={"Cache-Control": "no-store", "Vary": "Cookie"})


@router.post("/queue")
def submit(
    request: Request,
    server: Changed,
    space: Annotated[str, Form(max_length=300)],
    key: Annotated[str, Form(max_length=100, pattern=r"^[0-9a-f]+$")],
    problems: Annotated[str, Form(max_length=5000)] = "",
    trials: Annotated[int, Form(ge=1, le=MOST)] = 60,
    minutes: Annotated[str, Form(max_length=20)] = "",
    patience: Annotated[float, Form(ge=0, le=1e6)] = 10.0,
    quiet_within: Annotated[float, Form(ge=0, le=1e6)] = 0.0,
    finals: Annotated[str, Form(max_length=10)] = "",
) -> Response:
    """Asks for a sweep. The form carries a key of its own: sent twice, it is one sweep. Sent again with other values,
    as after going back to it, it is another one."""
    try:
        asked = NewSweep(
            space=space,
            problems=tuple(line.strip() for line in problems.splitlines() if line.strip()),
            trials=trials,
            minutes=float(minutes) if minutes.strip() else None,
            patience_minutes=patience,
            quiet_within_minutes=quiet_within,
            finals=bool(finals),
        )
        made, _ = server.submit(asked, f"{key}-{digest_of(asked.model_dump())[:16]}")
    except ValidationError as error:
        return _refused(request, str(error.errors()[0]["msg"]))
    except (ValueError, InputError) as error:
        return _refused(request, str(error))
    return RedirectResponse(f"/sweeps/{made.id}", 303)


def _refused(request: Request, why: str) -> Response:
    refused = _queue(request, why)
    refused.status_code = 400
    return refused


@router.get("/sweeps/{number}")
def sweep(request: Request, number: SweepNumber) -> Response:
    """One sweep as it goes."""
    server = server_of(request)
    found = server.sweep(number)
    events = sweeps.events(server.reader.store, number, last=LAST)
    names = server.reader.names()
    study, first, state = found.sweep.study, found.sweep.group, found.sweep.state
    group = () if first is None else tuple(server.sweep(each.id) for each in sweeps.group(server.reader.store, first))
    snapshot = server.reader.study(study) if study in names else None
    if snapshot is not None and found.sweep.state.is_over:
        today = snapshot.summary  # what has gone on since is not what the sweep found
        if (today.judged, today.best_speedup) != (found.judged, found.best_speedup):
            snapshot = None
    drawn = None if snapshot is None else (snapshot.revision, snapshot.running)
    tag = tag_of(sweeps_table([found, *group]), events[-1:], drawn)

    def values() -> dict[str, Any]:
        return {
            "found": found,
            "facts": sweeps_table([found]).in_full,
            "state": state_words(found),
            "mood": MOODS.get(found.sweep.state, ""),
            "group": sweeps_table(group, whole=True) if group else None,
            "watch": sections.command("sweep", "watch", str(number), store=server.label),
            "events": events_table(tuple(reversed(events))),
            "study": snapshot,
            "cards": () if snapshot is None else sections.cards(snapshot, server.label),
            "history": () if snapshot is None else sections.history(snapshot, LINKS),
            "verbs": () if state.is_over else ("resume" if state == State.PAUSED else "pause", "cancel"),
            "budget": "retry" if state.is_over else "set",
            "live": not found.sweep.state.is_over,
        }

    return page(request, "sweep.html", tag, values)


@router.post("/sweeps/{number}/{verb}")
def change_sweep(
    server: Changed,
    number: SweepNumber,
    verb: str,
    trials: Annotated[int | None, Form(ge=1, le=MOST)] = None,
    minutes: Annotated[float | None, Form(gt=0, le=1e6)] = None,
    priority: Annotated[int | None, Form(ge=-1000, le=1000)] = None,
) -> Response:
    """Pauses, resumes, cancels, retries or changes a sweep."""
    server.sweep(number)
    if verb not in VERBS:
        raise HTTPException(404, f"a sweep knows {', '.join(VERBS)}")
    server.change(number, verb, SweepChange(trials=trials, minutes=minutes, priority=priority))
    return RedirectResponse(f"/sweeps/{number}", 303)


@router.post("/devices/clear")
def clear(server: Changed, name: Annotated[str, Form(max_length=300)]) -> Response:
    """Ends the quarantine of a device."""
    server.clear((name,))
    return RedirectResponse("/queue#devices", 303)
