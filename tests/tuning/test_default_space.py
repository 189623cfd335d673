"""One line names no space: the op that writes the problem has one for this machine, or the reason is said."""

import pytest

from autotuner.devices import DEVICES
from autotuner.tuning.workbench import default_space
from autotuner.values.errors import InputError


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
    with pytest.raises(InputError, match="the op sdpa_fp8 cannot be tuned here: for cuda: no driver"):
        default_space(["(1,32:8,8192,128) float8_e4m3fn bfloat16"])
