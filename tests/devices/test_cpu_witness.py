"""The witness of a sample on the CPU: other threads, and another clock."""

import threading
import time
from collections.abc import Callable
from hashlib import pbkdf2_hmac
from time import perf_counter_ns

import pytest

from autotuner.devices.cpu.witness import Witness

pytestmark = pytest.mark.timed


def work() -> None:
    """Some milliseconds of computing, without the interpreter's lock."""
    pbkdf2_hmac("sha256", b"word", b"salt", 20_000)


def samples(witness: Witness, sample: Callable[[], None], shown: float = 1.0) -> None:
    """Five samples, of which so much is shown by their own clock."""
    for _ in range(5):
        witness.begin()
        started = perf_counter_ns()
        sample()
        witness.end(round(shown * (perf_counter_ns() - started)))


def test_a_thread_that_works_alone_is_no_crowd_and_two_clocks_agree() -> None:
    witness = Witness(threads=1, leaves_work=False)
    samples(witness, work)
    assert not witness.crowded
    assert not witness.apart


def test_what_a_mark_for_the_driver_takes_on_a_busy_machine_is_none_of_the_samples_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("autotuner.race.third_clock._send", lambda arm, what: time.sleep(0.003))
    witness = Witness(threads=1, leaves_work=False)
    samples(witness, work)
    assert not witness.apart


def test_a_clock_that_runs_slow_is_found() -> None:
    witness = Witness(threads=1, leaves_work=False)
    samples(witness, work, shown=0.5)
    assert witness.apart
    assert witness.clocks.device < 0.6 * witness.clocks.host


@pytest.mark.parametrize("leaves_work", [False, True])
def test_work_that_another_thread_does_is_found_where_nobody_may_leave_it_to_one(leaves_work: bool) -> None:
    def beside() -> None:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()

    witness = Witness(threads=1, leaves_work=leaves_work)
    samples(witness, beside)
    assert witness.crowded is not leaves_work


def test_a_thread_that_works_on_and_on_is_counted_as_it_is_now() -> None:
    """Linux shows the time of a thread on another CPU as it was some milliseconds ago."""
    stop = threading.Event()

    def other() -> None:
        while not stop.is_set():
            pbkdf2_hmac("sha256", b"word", b"salt", 200_000)

    thread = threading.Thread(target=other)
    thread.start()
    witness = Witness(threads=2, leaves_work=False)
    for _ in range(8):
        samples(witness, work)
    stop.set()
    thread.join()
    assert not witness.crowded
