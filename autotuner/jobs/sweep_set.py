"""A sweep over several spaces: one budget of trials, given to whichever still promises most (`shares`).

A member starts from what studies before this sweep have measured, as any study does; not from its siblings.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from autotuner.jobs.shares import TURN, Share, first_trials, next_member
from autotuner.store import Store, queries
from autotuner.values.errors import StoreError

if TYPE_CHECKING:
    from autotuner.jobs.sweep_run import SweepRun


def search_set(run: SweepRun, store: Store) -> list[str]:
    """Searches all members of a sweep until its budget is spent, then holds the finals of each; their studies."""
    return _SetSearch(run, store).go()


class _SetSearch:
    def __init__(self, run: SweepRun, store: Store) -> None:
        self._run, self._store = run, store
        self._here = [run.workbench(member) for member in range(run.members)]
        self._names = [here.study_name for here in self._here]
        self._shares = [Share(run.weight(member)) for member in range(run.members)]

    def go(self) -> list[str]:
        for share, name in zip(self._shares, self._names, strict=True):
            share.judged = _judged(self._store, name)
        while self._run.has_time() and (left := self._left()) > 0:
            member = next_member(self._shares, self._run.trials)
            if member is None:
                break
            self._turn(member, left)
        for here, name, share in zip(self._here, self._names, self._shares, strict=True):
            if share.judged:
                with self._run.held(here), closing(here.executor()) as executor:
                    self._run.confirm(here, executor, name)
        return self._names

    def _left(self) -> int:
        return self._run.trials - sum(share.judged for share in self._shares)

    def _turn(self, member: int, left: int) -> None:
        """Some trials for a member; more as long as it promises most, without starting its processes anew."""
        here, share, first = self._here[member], self._shares[member], first_trials(self._run.trials, len(self._here))
        with self._run.held(here), closing(here.executor()) as executor:
            while True:
                wanted = max(first - share.judged, TURN)
                before = share.judged
                self._run.search(here, executor, before + min(wanted, left), share.promised)
                share.judged = _judged(self._store, self._names[member])
                share.is_exhausted = share.judged == before
                left = self._left()
                if left <= 0 or not self._run.has_time() or next_member(self._shares, self._run.trials) != member:
                    return


def _judged(store: Store, study: str) -> int:
    try:
        return queries.judged_and_best(store, study)[0]
    except StoreError:  # not begun
        return 0
