"""The pages of the queue: sweeps and devices, one sweep as it goes, and the forms that change them."""

import secrets
from typing import Annotated, Any

from fastapi import APIRouter, Form, HTTPException, Path, Request
from pydantic import ValidationError
from starlette.responses import HTMLResponse, RedirectResponse, Response

from autotuner.jobs.outlook import Outlook
from autotuner.store import sweeps
from autotuner.values.errors import InputError
from autotuner.values.sweep import State
from autotuner.values.variant import digest_of
from autotuner.views.drawings import answer, history
from autotuner.views.drawings.links import LINKS
from autotuner.views.sweep_tables import MOODS, devices_table, events_table, state_words, sweeps_table
from autotuner.web import tags
from autotuner.web.api import MOST
from autotuner.web.pages import page
from autotuner.web.server import VERBS, Server, server_of
from autotuner.web.wire import ChangeRequest, NewSweep

router = APIRouter(include_in_schema=False)
LAST = 200
"""Events of a sweep that a page shows."""
KEY = "key-of-this-form"
"""Stands for a form's key in the page as it is drawn, once for all who read it."""
Number = Annotated[int, Path(ge=1, le=MOST)]
Carried = Annotated[str, Form(max_length=100)]


@router.get("/queue")
def queue(request: Request) -> Response:
    """Sweeps and devices."""
    return _queue(request, None)


def _queue(request: Request, refused: str | None) -> Response:
    server = server_of(request)
    look, form = server.queue.look(), server.access.form_of(request)
    spaces = () if form is None else server.queue.spaces()
    values = {
        "open": sweeps_table([each for each in look.sweeps if not each.sweep.state.is_over]),
        "over": sweeps_table([each for each in look.sweeps if each.sweep.state.is_over]),
        "devices": devices_table(look.devices),
        "sick": [each.name for each in look.devices if each.health != "healthy"],
        "spaces": spaces,
        "worker": None if any(each.holder for each in look.devices) else answer.command("worker", store=server.label),
        "refused": refused,
        "key": KEY,
        "live": refused is None,
    }
    shown = page(request, "queue.html", tags.of(look.tag, spaces, refused), lambda: values)
    if form is None or shown.status_code == 204:
        return shown
    # With a key of its own. No browser keeps it: it would ask for the next sweep under the same key.
    body = bytes(shown.body).replace(KEY.encode(), secrets.token_hex(16).encode(), 1)
    return HTMLResponse(body, headers={"Cache-Control": "no-store", "Vary": "Cookie"})


@router.post("/queue")
def submit(
    request: Request,
    form: Carried,
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
    server = server_of(request)
    server.access.require_form(request, form)
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
def sweep(request: Request, number: Number) -> Response:
    """One sweep as it goes."""
    server = server_of(request)
    found = _found(server, number)
    events = sweeps.events(server.reader.store, number, last=LAST)
    names = server.reader.names()
    study, first, state = found.sweep.study, found.sweep.group, found.sweep.state
    group = () if first is None else tuple(_found(server, each.id) for each in sweeps.group(server.reader.store, first))
    snapshot = server.reader.study(study) if study in names else None
    if snapshot is not None and found.sweep.state.is_over:
        today = snapshot.summary  # what has gone on since is not what the sweep found
        if (today.judged, today.best_speedup) != (found.judged, found.best_speedup):
            snapshot = None
    drawn = None if snapshot is None else (snapshot.revision, snapshot.running)
    tag = tags.of(tags.of_sweep(found), events[-1:], drawn, *map(tags.of_sweep, group))

    def values() -> dict[str, Any]:
        return {
            "found": found,
            "facts": sweeps_table([found]).in_full,
            "state": state_words(found),
            "mood": MOODS.get(found.sweep.state, ""),
            "group": sweeps_table(group, whole=True) if group else None,
            "watch": answer.command("sweep", "watch", str(number), store=server.label),
            "events": events_table(tuple(reversed(events))),
            "study": snapshot,
            "cards": () if snapshot is None else answer.cards(snapshot, server.label),
            "history": () if snapshot is None else history.history(snapshot, LINKS),
            "verbs": () if state.is_over else ("resume" if state == State.PAUSED else "pause", "cancel"),
            "budget": "retry" if state.is_over else "set",
            "live": not found.sweep.state.is_over,
        }

    return page(request, "sweep.html", tag, values)


def _found(server: Server, number: int) -> Outlook:
    found = server.queue.one(number)
    if found is None:
        raise HTTPException(404, f"there is no sweep {number}")
    return found


@router.post("/sweeps/{number}/{verb}")
def change(
    request: Request,
    number: Number,
    verb: str,
    form: Carried,
    trials: Carried = "",
    minutes: Carried = "",
    priority: Carried = "",
) -> Response:
    """Pauses, resumes, cancels, retries or changes a sweep."""
    server = server_of(request)
    server.access.require_form(request, form)
    _found(server, number)
    if verb not in VERBS:
        raise HTTPException(404, f"a sweep knows {', '.join(VERBS)}")
    said = {"trials": trials, "minutes": minutes, "priority": priority}
    try:
        wanted = ChangeRequest.model_validate({name: text for name, text in said.items() if text.strip()})
    except ValidationError as error:
        raise InputError(str(error.errors()[0]["msg"])) from None
    server.change(number, verb, wanted)
    return RedirectResponse(f"/sweeps/{number}", 303)


@router.post("/devices/clear")
def clear(request: Request, form: Carried, name: Annotated[str, Form(max_length=300)]) -> Response:
    """Ends the quarantine of a device."""
    server = server_of(request)
    server.access.require_form(request, form)
    server.clear((name,))
    return RedirectResponse("/queue#devices", 303)
