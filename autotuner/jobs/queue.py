"""Asking for sweeps, and asking something of them: what every caller uses, commands and pages alike."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from autotuner.search.samplers import SAMPLERS
from autotuner.spaces.space import SpaceFile
from autotuner.store import Store, sweeps
from autotuner.store.sweep_records import SweepRecord
from autotuner.values.errors import InputError, StoreError
from autotuner.values.sweep import MOST, Member, State, SweepRequest, Wish

TOP = 1_000_000
"""The priority of a sweep that somebody waits for in a terminal."""


class Submitted(NamedTuple):
    """A sweep that was asked for."""

    sweep: SweepRecord
    is_new: bool
    """False where the key had been used for it before."""


def request_for(files: Sequence[SpaceFile], *, weights: Sequence[float] = (), **wanted: object) -> SweepRequest:
    """What a worker has to know to sweep these spaces as they are now; `wanted` are fields of `SweepRequest`.

    Raises InputError where that cannot be: spaces of several kinds of device, an unknown sampler, a wrong weight.
    """
    backends = sorted({file.backend for file in files})
    if len(backends) != 1:
        raise InputError(f"a sweep is for one kind of device, and these spaces are for {' and '.join(backends)}")
    if weights and len(weights) != len(files):
        raise InputError(f"{len(weights)} weights for {len(files)} problems: give one to each, or none")
    if not all(0 < weight < math.inf for weight in weights):
        found = ", ".join(f"{weight:g}" for weight in weights)
        raise InputError(f"weights {found}: every weight is a number larger than 0; leave out what is worth none")
    SAMPLERS.chosen(str(wanted.get("sampler") or "evolution"))
    members = [
        Member(space_document=file.model_dump_json(), weight=weight)
        for file, weight in zip(files, weights or [1.0] * len(files), strict=True)
    ]
    problems = tuple(str(problem) for file in files for problem in file.problems)
    given = {name: value for name, value in wanted.items() if value is not None}
    name = files[0].name
    defaults = {
        "name": f"{name}.toml" if name.isdecimal() else name,
        "backend": backends[0],
        "members": members,
        "problems": problems,
    }
    return SweepRequest.model_validate({**defaults, **given})


def submit(
    store: Store, request: SweepRequest, priority: int = 0, key: str | None = None, foreground: bool = False
) -> Submitted:
    """Puts a sweep into the queue; under a key that was used for the same before, the sweep of then is the answer.

    Raises StoreError where the key stands for a sweep that asks for something else, and InputError where the key or the
    name reads as a number.
    """
    for what, word in (("key", key), ("name", request.name)):
        if word is not None and word.isdecimal():
            raise InputError(f"the {what} {word!r} would be taken for the number of a sweep: put a letter into it")
    return Submitted(*sweeps.add(store, request, priority, key, foreground))


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
    if wanted is None:
        found = max((each.id for each in sweeps.every(store)), default=None)
        if found is None:
            raise StoreError(f"{store.label} has no sweeps yet: `autotuner submit` asks for one")
        return sweeps.one(store, found)
    of_key = sweeps.by_key(store, wanted)
    if of_key is not None:
        return of_key
    named = sweeps.numbers_named(store, wanted)
    if not named:
        raise StoreError(f"no sweep has the name or the key {wanted!r}: `autotuner sweep list --all` lists them")
    return sweeps.one(store, named[-1])


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


def retry(store: Store, number: int) -> SweepRecord:
    """Puts a sweep that has failed, was cancelled or is done back into the queue, with the budget it has left. Raises
    StoreError where it is not over."""
    return sweeps.queue_again(store, number, "retried")


def settle_abandoned(store: Store) -> None:
    """Ends what belonged to a command in a terminal that was killed: nobody else goes on with it."""
    for each in sweeps.every(store, [State.RUNNING, State.QUEUED]):
        if each.foreground and each.holder is None and each.started_at is not None:
            detail = "its command was killed; the same command goes on, or `autotuner sweep retry`"
            sweeps.settle(store, each.id, State.FAILED, detail)
