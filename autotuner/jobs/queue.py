"""Asking for sweeps, and asking something of them: what every caller uses, commands and pages alike."""

from pydantic import ValidationError

from autotuner.jobs.outlook import found_in
from autotuner.jobs.schedule import daily
from autotuner.search.samplers import SAMPLERS
from autotuner.spaces.space import SpaceFile
from autotuner.store import Store, sweeps
from autotuner.store.records import SweepRecord
from autotuner.values.errors import InputError, StoreError
from autotuner.values.sweep import MOST, State, SweepChange, SweepRequest, Wish
from autotuner.values.validation import explanation

TOP = 1_000_000
"""The priority of a sweep that somebody waits for in a terminal."""


def request_for(
    file: SpaceFile,
    share: int = 1,
    minutes: float | None = None,
    sampler: str | None = None,
    every: str | None = None,
    regress: bool = False,
    **wanted: object,
) -> SweepRequest:
    """What a worker has to know to sweep a space as it is now; `wanted` are more fields of `SweepRequest`. `share`: of
    how many sweeps it is one that share the minutes. `every`: the time of day at which it comes again and again, with
    `regress` a race against the best of the night before.

    Raises InputError where there is no such sampler, or the finals leave no time to search, or `regress` no night.
    """
    SAMPLERS.chosen(sampler or "evolution")
    wanted |= {"minutes": None if minutes is None else minutes / share, "sampler": sampler}
    name = f"{file.name}.toml" if file.name.isdecimal() else file.name
    given = {"name": name, "backend": file.backend, **{key: one for key, one in wanted.items() if one is not None}}
    of_file = {"space_document": file.model_dump_json(), "problems": tuple(map(str, file.problems))}
    try:
        found = SweepRequest.model_validate({**of_file, **given})
    except ValidationError as error:
        raise InputError(explanation(error, SweepRequest)) from None
    _require_time(found)
    if every is None and regress:
        raise InputError("a race against the night before is for a sweep that comes every day: say when")
    return found if every is None else found.model_copy(update={"every": daily(every, found.trials, regress)})


def _require_time(request: SweepRequest) -> None:
    if request.minutes is not None and request.finals_s >= 60 * request.minutes:
        given = f"{request.finals_s / 60:g} of {request.minutes:g} minutes"
        raise InputError(f"finals of {given} leave no time to search: give the finals less, or more minutes")


def submit(
    store: Store, *requests: SweepRequest, priority: int = 0, key: str | None = None, foreground: bool = False
) -> tuple[tuple[SweepRecord, ...], bool]:
    """Puts a sweep into the queue, or several that are a group, under the name that they have in common, and says
    whether they are new: under a key that was used for the same before, the sweeps of then are the answer.

    Raises StoreError where the key stands for sweeps that ask for something else, and InputError where the key or the
    name reads as a number.
    """
    for what, word in (("key", key), ("name", requests[0].name)):
        if word is not None and word.isdecimal():
            raise InputError(f"the {what} {word!r} would be taken for the number of a sweep: put a letter into it")
    return sweeps.add(store, requests, priority, key, foreground)


def resolve(store: Store, wanted: str | int | None) -> SweepRecord:
    """The sweep meant: by its number, its key or its name (the last one of that name), or the last one asked for.

    Raises StoreError where there is none.
    """
    if isinstance(wanted, str) and wanted.isdecimal():
        if len(wanted) > len(str(MOST)):  # not even Python reads a number of any length
            raise sweeps.no_such(store, wanted)
        wanted = int(wanted)
    if isinstance(wanted, int):
        return sweeps.one(store, wanted)
    found = sweeps.latest(store, wanted)
    if found is None and wanted is None:
        raise StoreError(f"{store.label} has no sweeps yet: `autotuner submit` asks for one")
    if found is None:
        raise StoreError(f"no sweep has the name or the key {wanted!r}: `autotuner sweep list --all` lists them")
    return found


def resolve_all(store: Store, wanted: str | None) -> tuple[SweepRecord, ...]:
    """As `resolve`; whoever does not say a number means the whole group, where the sweep is of one."""
    found = resolve(store, wanted)
    if found.group is None or (wanted is not None and wanted.isdecimal()):
        return (found,)
    return sweeps.group(store, found.group)


def pause(store: Store, number: int) -> SweepRecord:
    """Has a sweep paused: at once, or as soon as its worker hears of it. What is in flight is judged after `resume`.
    Raises StoreError where it is over."""
    return sweeps.wish(store, number, Wish.PAUSE)


def cancel(store: Store, number: int) -> SweepRecord:
    """Ends a sweep: at once, or as soon as its worker hears of it. Its study keeps what was judged. Raises StoreError
    where it is over."""
    return sweeps.wish(store, number, Wish.CANCEL)


def resume(store: Store, number: int) -> SweepRecord:
    """Puts a paused sweep back into the queue. Raises StoreError where it is not paused."""
    return sweeps.queue_again(store, number, "resumed")


def retry(store: Store, number: int, wanted: SweepChange | None = None) -> SweepRecord:
    """Puts a sweep that has failed, was cancelled or is done back into the queue, with the budget it has left, or that
    it is given. Where none is left its detail says so. Raises StoreError where it is not over, and InputError."""
    found, wanted = sweeps.one(store, number), wanted or SweepChange()
    request, judged = found.request.changed(wanted), found_in(store, found.study).judged
    _require_time(request)
    none_left = ""
    if judged >= request.trials:
        none_left = f"{judged} of {request.trials} trial{'s' * (request.trials > 1)} are judged"
    elif request.minutes is not None and found.spent_s >= 60 * request.minutes:
        none_left = f"its {request.minutes:g} minutes are spent"
    if none_left:
        none_left = f"no budget is left, {none_left}: `autotuner sweep set {number} --trials N --minutes M` gives more"
    return sweeps.queue_again(store, number, "retried", wanted, none_left)


def change(store: Store, number: int, wanted: SweepChange) -> SweepRecord:
    """Gives a sweep that is not over another budget or priority; a worker that has it goes on with that. Raises
    StoreError where it is over, and InputError where nothing is wanted, or finals leave no time."""
    if not wanted.model_dump(exclude_none=True):
        raise InputError("say what is to change: trials, minutes or priority")
    _require_time(sweeps.one(store, number).request.changed(wanted))
    return sweeps.change(store, number, wanted)


def settle_abandoned(store: Store) -> None:
    """Ends what belonged to a command in a terminal that was killed: nobody else goes on with it."""
    for each in sweeps.every(store, [State.RUNNING, State.QUEUED]):
        if each.foreground and each.holder is None and each.started_at is not None:
            detail = "its command was killed; the same command goes on, or `autotuner sweep retry`"
            sweeps.settle(store, each.id, State.FAILED, detail)
