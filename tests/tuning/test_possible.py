"""What a problem is tuned with here, and problems that are too large for a machine: told before anything is built."""

import pytest

from autotuner.devices import DEVICES
from autotuner.run.local import Deadlines
from autotuner.spaces.problem_files import parsed_problem
from autotuner.tuning import possible
from autotuner.tuning.workbench import Workbench, default_space, load_space
from autotuner.values.errors import InputError, SpaceError
from tests.helpers.refusing import refused

CPU = DEVICES["cpu"]


def test_what_would_take_days_is_refused_in_a_line() -> None:
    with refused(SpaceError, r"262144.* 17\.6 TFLOP: a reference of it takes about 4\.9 hours"):
        Workbench(load_space("sdpa_cpu", problems=["(1,1,262144,64) float32"]))


def test_what_takes_minutes_is_told_and_hangs_no_more_for_that() -> None:
    here = Workbench(load_space("sdpa_cpu", problems=["(1,1,65536,64) float32"]))
    assert "a reference takes about 18 minutes" in here.remarks[0]
    usual, longer = Deadlines(), possible.deadlines(here.conditions.problems, CPU)
    flops, slow = here.conditions.problems[0].flops, 1e9
    assert min(longer.check, longer.measure, longer.start) > flops / slow
    assert longer.build == usual.build
    assert possible.deadlines([parsed_problem("(1,8,512,64) float32")], CPU).check < usual.check + 3


def test_what_needs_more_memory_than_may_be_used_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(possible, "usable_memory", lambda: 4 << 30)
    with pytest.raises(SpaceError, match=r"64 GiB of memory, and 4\.0 GiB may be used here; choose smaller sizes"):
        Workbench(load_space("sdpa_cpu", problems=["(64,64,1024,64) float32"]))
    Workbench(load_space("sdpa_cpu", problems=["(1,8,512,64) float32"]))
    monkeypatch.setattr(possible, "usable_memory", lambda: 300 << 20)  # torch itself does not fit
    with pytest.raises(SpaceError, match=r"1 GiB of memory, and 0\.3 GiB may be used"):
        Workbench(load_space("sdpa_cpu", problems=["(1,8,512,64) float32"]))


# The space of a problem -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "space"),
    [
        ("(1,8,512,64) float16", "sdpa"),
        ("(1,8,512,128) bfloat16", "sdpa"),  # which attention from FP8 could be read from as well
        ("(4096,4096) bfloat16", "rmsnorm"),
        ("(1,8,512,64) float64", "sdpa"),  # nobody writes it; the usual op says why
    ],
)
@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_the_space_is_that_of_the_op_that_writes_the_problem(
    text: str, space: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for each in DEVICES.values():
        monkeypatch.setattr(type(each), "missing", lambda self: None if self.name == kind else "it is not here")
    assert default_space([text]) == f"{space}_{kind}"


def test_an_op_without_a_space_for_this_machine_is_refused_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    for each in DEVICES.values():
        monkeypatch.setattr(type(each), "missing", lambda self: None if self.name == "cpu" else "no driver")
    for words in ("", " sinks"):  # which it refuses, but knows
        with pytest.raises(InputError, match="the op sdpa_fp8 cannot be tuned here: it is served on cuda: no driver"):
            default_space([f"(1,32:8,8192,128) float8_e4m3fn bfloat16{words}"])
