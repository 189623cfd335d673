"""The queue in the store: one suite for SQLite and PostgreSQL."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Self

import pytest

from autotuner.jobs import queue
from autotuner.jobs.outlook import outlook, outlooks
from autotuner.jobs.schedule import ask_again, go_on
from autotuner.store import Store, device_health, lease, sweeps
from autotuner.store.records import SweepRecord
from autotuner.store.tables import LeaseRow
from autotuner.values.errors import InputError, LeaseHeldError, LeaseLostError, StoreError
from autotuner.values.sweep import Found, State, SweepChange, Wish
from tests.helpers import simulated
from tests.helpers.processes import child, said
from tests.helpers.recorded import CALIBRATION, measured, study_record
from tests.helpers.stores import transaction


def ask(store: Store, name: str = "one", priority: int = 0, key: str | None = None) -> int:
    """The number of a new sweep."""
    request = queue.request_for(simulated.space().file, name=name, trials=10)
    return queue.submit(store, request, priority=priority, key=key)[0][0].id


def working(place: str, code: str) -> subprocess.Popen[str]:
    """A process that has the store open."""
    opens = f"from autotuner.store import Store, sweeps, lease\nstore = Store.open({place!r})\n"
    return child(opens + textwrap.dedent(code))


CLAIM = """
    found = sweeps.claim(store, {number}, "a child")
    print("claimed" if found is not None else "refused", flush=True)
    sys.stdin.readline()
"""


def claimed(place: str, number: int, then: str = "") -> subprocess.Popen[str]:
    """Such a process, which has claimed the sweep; what it does once it is told to go on."""
    other = working(place, CLAIM.format(number=number) + then)
    assert said(other) == "claimed"
    return other


def test_a_key_makes_one_sweep_however_often_it_is_used(opened: Store) -> None:
    first = ask(opened, key="nightly")
    assert ask(opened, key="nightly") == first
    assert ask(opened) != first
    with pytest.raises(StoreError, match="the key 'nightly' stands for sweep 1"):
        ask(opened, "another", key="nightly")


def test_of_many_that_use_one_key_at_once_one_makes_the_sweep(place: str, opened: Store) -> None:
    request = queue.request_for(simulated.space().file, name="nightly")
    barrier = threading.Barrier(4)

    def asks(key: str) -> tuple[int, bool]:
        with Store.open(place) as mine:
            barrier.wait()
            (asked,), is_new = queue.submit(mine, request, key=key)
            return asked.id, is_new

    with ThreadPoolExecutor(4) as pool:
        for key in "abcde":
            found = list(pool.map(asks, [key] * 4))
            assert len({number for number, _ in found}) == 1
            assert sum(is_new for _, is_new in found) == 1
    assert len(sweeps.every(opened)) == 5


def test_larger_priority_goes_first_and_then_the_older(opened: Store) -> None:
    low, high, later = ask(opened, "low"), ask(opened, "high", 5), ask(opened, "later", 5)
    assert [each.id for each in sweeps.due(opened)] == [high, later, low]
    assert [(each.sweep.id, each.place) for each in outlooks(opened)] == [(high, 1), (later, 2), (low, 3)]
    assert "no worker serves a device of kind cpu" in str(outlook(opened, low).waits)
    with device_health.serving(opened, {"h/cpu": ()}, "h", "cpu", "a CPU", "worker"):
        assert outlook(opened, low).waits == "behind 2 others"


def test_of_many_that_claim_at_once_one_gets_each(place: str, opened: Store) -> None:
    numbers = [ask(opened) for _ in range(6)]
    barrier = threading.Barrier(4)

    def claims() -> list[int]:
        with Store.open(place) as mine:
            barrier.wait()
            return [number for number in numbers if sweeps.claim(mine, number, "me") is not None]

    with ThreadPoolExecutor(4) as pool:
        found = [pool.submit(claims) for _ in range(4)]
        assert sorted(number for each in found for number in each.result()) == numbers


def test_pause_resume_cancel_and_retry_of_what_nobody_works_on(opened: Store) -> None:
    number = ask(opened)
    assert queue.pause(opened, number).state == State.PAUSED
    assert sweeps.due(opened) == ()
    assert queue.resume(opened, number).state == State.QUEUED
    with pytest.raises(StoreError, match="pause it first"):
        queue.resume(opened, number)
    assert queue.cancel(opened, number).finished_at is not None
    with pytest.raises(StoreError, match="nothing to pause"):
        queue.pause(opened, number)
    assert queue.retry(opened, number, SweepChange(minutes=9)).state == State.QUEUED
    assert queue.change(opened, number, SweepChange(priority=2)).priority == 2
    kinds = [event.kind for event in sweeps.events(opened, number)]
    assert kinds == ["submitted", "pause_asked", "resumed", "cancel_asked", "changed", "retried", "changed"]
    sweeps.claim(opened, number, "me").lease.close()
    sweeps.settle(opened, number, State.DONE, spent_s=540.0)
    assert queue.retry(opened, number).detail.startswith("no budget is left, its 9 minutes are spent")
    queue.cancel(opened, number)
    assert queue.retry(opened, number, SweepChange(minutes=10)).detail == ""


def test_a_sweep_that_comes_every_day_asks_for_the_next(opened: Store) -> None:
    request = queue.request_for(simulated.space().file, name="nightly", trials=10, every="02:00")
    ahead = queue.submit(opened, request)[0][0].id
    assert (sweeps.due(opened), "then every day" in str(outlook(opened, ahead).waits)) == ((), True)
    queue.cancel(opened, ahead)
    assert ask_again(opened, sweeps.one(opened, ahead)) is None
    late = request.every.model_copy(update={"due": request.every.due - timedelta(days=4)})
    number = queue.submit(opened, request.model_copy(update={"every": late}))[0][0].id
    sweeps.claim(opened, number, "me").lease.close()
    ended = sweeps.settle(opened, number, State.DONE, found=Found(judged=12))
    again = ask_again(opened, ended)
    assert (again.request.trials, again.not_before) == (22, request.every.due)
    assert sweeps.events(opened, again.id, last=1)[0].text.startswith("3 missed since")
    assert ask_again(opened, ended) is None, "it is there already"
    queue.cancel(opened, again.id)
    group = queue.submit(opened, *[request.model_copy(update={"every": late, "name": "both"})] * 2)[0]
    for each, first_is_over in zip(group, (False, True), strict=True):
        sweeps.claim(opened, each.id, "me").lease.close()
        ended = sweeps.settle(opened, each.id, State.DONE, found=Found(judged=5))
        if first_is_over:  # as a worker that was killed before it could
            go_on(opened)
            go_on(opened)
        else:
            assert ask_again(opened, ended) is None, "the group is not over"
    both = [each for each in sweeps.every(opened, [State.QUEUED]) if each.name == "both"]
    assert [(each.group, each.request.trials) for each in both] == [(both[0].id, 15)] * 2
    with pytest.raises(InputError, match="say when"):
        queue.request_for(simulated.space().file, regress=True)
    with pytest.raises(InputError, match="expected a time of day"):
        queue.request_for(simulated.space().file, every="25:00")


def test_who_works_on_a_sweep_hears_what_is_wished(opened: Store) -> None:
    number = ask(opened)
    claim = sweeps.claim(opened, number, "me")
    assert sweeps.work(opened, number, 1.0, "s").wish is None
    assert queue.pause(opened, number).state == State.RUNNING
    assert sweeps.work(opened, number, 2.0, "s").wish == Wish.PAUSE
    assert queue.resume(opened, number).wish is None
    queue.cancel(opened, number)
    # handed back before it heard: what was wished counts
    assert sweeps.settle(opened, number, State.QUEUED).state == State.CANCELLED
    claim.lease.close()


@pytest.mark.parametrize(
    ("ask_for", "state"), [(queue.resume, State.QUEUED), (queue.cancel, State.CANCELLED), (queue.pause, State.PAUSED)]
)
def test_what_is_wished_while_a_worker_pauses_is_not_lost(
    opened: Store, ask_for: Callable[[Store, int], SweepRecord], state: State
) -> None:
    """It has heard of the pause, and has not said yet that it has paused."""
    number = queue.submit(opened, queue.request_for(simulated.space().file), foreground=True)[0][0].id
    claim = sweeps.claim(opened, number, "me")
    queue.pause(opened, number)
    assert sweeps.work(opened, number, 1.0, None).wish == Wish.PAUSE
    ask_for(opened, number)
    assert sweeps.settle(opened, number, State.PAUSED, "by a user").state == state
    claim.lease.close()
    queue.settle_abandoned(opened)
    assert sweeps.one(opened, number).state == state
    assert [each.id for each in sweeps.due(opened)] == ([number] if state == State.QUEUED else [])


def test_a_cancellation_is_not_withdrawn_by_resume(opened: Store) -> None:
    number = ask(opened)
    claim = sweeps.claim(opened, number, "me")
    queue.cancel(opened, number)
    with pytest.raises(StoreError, match="it is to be cancelled; retry it then"):
        queue.resume(opened, number)
    assert sweeps.work(opened, number, 1.0, None).wish == Wish.CANCEL
    claim.lease.close()


@pytest.mark.slow
def test_what_a_killed_worker_leaves_is_taken_over(place: str, opened: Store) -> None:
    number = ask(opened)
    other = claimed(place, number)
    assert sweeps.due(opened) == ()
    assert sweeps.claim(opened, number, "me") is None
    assert sweeps.one(opened, number).holder is not None
    other.send_signal(signal.SIGKILL)
    other.communicate()
    assert [each.id for each in sweeps.due(opened)] == [number]
    queue_again = sweeps.claim(opened, number, "me")
    assert queue_again is not None
    assert "taken over" in sweeps.events(opened, number, last=1)[0].text


@pytest.mark.slow
def test_what_was_wished_of_a_killed_worker_holds(place: str, opened: Store) -> None:
    number = ask(opened)
    other = claimed(place, number)
    queue.pause(opened, number)
    other.send_signal(signal.SIGKILL)
    other.communicate()
    assert sweeps.claim(opened, number, "me") is None
    assert sweeps.one(opened, number).state == State.PAUSED


def make_old(store: Store, name: str) -> None:
    with transaction(store, writes=True) as session:
        row = session.get_one(LeaseRow, name)
        row.heartbeat_at = datetime.now(UTC) - 2 * lease.STALE


@pytest.mark.slow
def test_a_stopped_worker_is_followed_and_writes_nothing_once_it_goes_on(place: str, opened: Store) -> None:
    """SIGSTOP for longer than the lease: two writers would judge a trial twice."""
    number = ask(opened)
    goes_on = """
    try:
        sweeps.work(store, 1, 99.0, None)
    except Exception as error:
        print(type(error).__name__, flush=True)
    """
    other = claimed(place, number, goes_on)
    make_old(opened, lease.of("sweep", number))
    assert sweeps.claim(opened, number, "me") is None, "a process that runs is not dead"
    os.kill(other.pid, signal.SIGSTOP)
    os.waitpid(other.pid, os.WUNTRACED)
    assert sweeps.claim(opened, number, "me") is not None
    os.kill(other.pid, signal.SIGCONT)
    out, _ = other.communicate("go on\n")
    assert out.strip() == "LeaseLostError"
    assert sweeps.one(opened, number).spent_s == 0.0


def test_a_driver_whose_study_was_taken_over_records_nothing(place: str, opened: Store) -> None:
    opened.ensure_study(study_record())
    with Store.open(place) as other, opened.lease("scalar-abc"):
        session = opened.start_session("scalar-abc", CALIBRATION, {})
        opened.record("scalar-abc", session, 0, measured(16, 80.0))
        with transaction(other, writes=True) as changing:
            row = changing.get_one(LeaseRow, lease.of("study", "scalar-abc"))
            row.host, row.heartbeat_at = "elsewhere", row.heartbeat_at - 2 * lease.STALE
        with other.lease("scalar-abc"):
            with pytest.raises(LeaseLostError, match="taken over by process"):
                opened.record("scalar-abc", session, 1, measured(32, 70.0))
            other.record("scalar-abc", session, 1, measured(32, 75.0))
        assert len(dict(other.outcomes("scalar-abc"))) == 2


class Clock(type):
    """What the room of the store takes for a time stays one."""

    def __instancecheck__(cls, other: object) -> bool:
        return isinstance(other, datetime)


class Ahead(datetime, metaclass=Clock):
    """A clock that is wrong by a day."""

    BY = timedelta(days=1)

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Self:
        return super().now(tz) + cls.BY


class Behind(Ahead):
    """The other way."""

    BY = timedelta(days=-1)


def set_clocks(monkeypatch: pytest.MonkeyPatch, clock: type[Ahead]) -> None:
    """Shifts the clock of this process for all that the room of the store asks."""
    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() + clock.BY.total_seconds())
    rooms = [module for name, module in sys.modules.items() if name.startswith("autotuner.store.")]
    for module in rooms:
        if getattr(module, "datetime", None) is datetime:
            monkeypatch.setattr(module, "datetime", clock)


def test_a_lease_keeps_the_time_of_the_database(opened: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host whose clock is wrong takes nobody for dead."""
    number = ask(opened)
    with transaction(opened) as session:
        before = opened.database.now(session)
    for clock in (Ahead, Behind):
        set_clocks(monkeypatch, clock)
        claim = sweeps.claim(opened, number, "me")
        claim.lease.beat()
        with transaction(opened, writes=True) as session:
            row = session.get_one(LeaseRow, lease.of("sweep", number))
            assert before <= row.started_at <= row.heartbeat_at <= opened.database.now(session)
            row.host = "elsewhere"  # from there only the time says whether it lives
        assert sweeps.claim(opened, number, "another") is None
        assert sweeps.one(opened, number).holder is not None
        make_old(opened, lease.of("sweep", number))
        assert sweeps.one(opened, number).holder is None
        claim.lease.close()
        monkeypatch.undo()


def test_a_device_has_one_worker_and_may_be_in_quarantine(place: str, opened: Store) -> None:
    where = ({"h/a": (), "h/b": ()}, "h", "cpu", "a model", "worker 1")
    with device_health.serving(opened, *where), Store.open(place) as other:
        again = device_health.serving(other, {"h/b": ()}, *where[1:])
        with pytest.raises(LeaseHeldError, match=r"h/b in .* is being driven by process"), again:
            pass
        first, _ = device_health.every(other)
        assert (first.name, first.health) == ("h/a", "healthy")
        assert first.holder is not None
        device_health.quarantine(opened, ["h/a"], "it answers no more", "look at it", None)
    found = device_health.quarantined(opened, ["h/b", "h/a"])
    assert (found.reason, found.holder) == ("it answers no more", None)
    with pytest.raises(StoreError, match="no device 'h/c'; there are h/a, h/b"):
        device_health.clear(opened, ["h/c"])
    assert device_health.clear(opened, ["h/a", "h/b"]) == ("h/a",)
    assert [event.kind for event in sweeps.events(opened)] == ["quarantined", "cleared"]


@pytest.mark.slow
def test_a_foreground_sweep_whose_command_was_killed_is_over(place: str, opened: Store) -> None:
    request = queue.request_for(simulated.space().file)
    number = queue.submit(opened, request, foreground=True)[0][0].id
    other = claimed(place, number)
    queue.settle_abandoned(opened)
    assert sweeps.one(opened, number).state == State.RUNNING
    other.kill()
    other.communicate()
    queue.settle_abandoned(opened)
    assert sweeps.one(opened, number).state == State.FAILED
    assert queue.retry(opened, number).foreground is False


def test_a_sweep_is_found_by_number_key_and_name(opened: Store) -> None:
    with pytest.raises(StoreError, match="no sweeps yet"):
        queue.resolve(opened, None)
    first, second, third = ask(opened, "a", key="k"), ask(opened, "a"), ask(opened, "b")
    assert queue.resolve(opened, str(first)).id == first
    assert queue.resolve(opened, "k").id == first
    assert queue.resolve(opened, "a").id == second
    assert queue.resolve(opened, None).id == third
    for wanted in ("9", "c", str(2**31), str(2**63), "9" * 5000, 2**63):
        with pytest.raises(StoreError, match="sweep list --all"):
            queue.resolve(opened, wanted)


def test_neither_a_key_nor_a_name_reads_as_a_number(opened: Store) -> None:
    """`cancel 12` would end another sweep than the one asked for under the key 12."""
    with pytest.raises(InputError, match="the key '20261123' would be taken for the number of a sweep"):
        ask(opened, key="20261123")
    with pytest.raises(InputError, match="the name '12' would be taken for the number of a sweep"):
        ask(opened, name="12")
    assert sweeps.every(opened) == ()
    named = simulated.space().file.model_copy(update={"path": "12.toml"})
    found = queue.submit(opened, queue.request_for(named))[0][0]
    assert queue.resolve(opened, "12.toml").id == found.id
