"""My shape from the command line: the op's form for a problem, in `tune`, `space show` and in what is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.spaces.problem_files import parsed_problem
from autotuner.values.errors import InputError

SIZES = st.integers(1, 300)


@st.composite
def problems(draw: st.DrawFn) -> SdpaProblem:
    """Any problem."""
    heads_kv, causal = draw(SIZES), draw(st.booleans())
    return SdpaProblem(
        batch=draw(SIZES),
        heads=heads_kv * draw(st.integers(1, 8)),
        heads_kv=heads_kv,
        seq_q=draw(SIZES),
        seq_k=draw(SIZES),
        head_dim=draw(SIZES),
        dtype=draw(st.sampled_from(["float32", "bfloat16", "float16"])),
        causal=causal,
        corner=draw(st.sampled_from(["top_left", "bottom_right"])) if causal else "top_left",
        key_lengths=draw(st.booleans()),
        layout=draw(st.sampled_from(["bhsd", "bshd", "packed qkv"])),
        lse=draw(st.booleans()),
    )


@given(problems())
def test_what_is_printed_can_be_typed(problem: SdpaProblem) -> None:
    assert SdpaProblem.parse(str(problem)) == problem


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("(2,6,197,64)", "the dtype is missing; expected one of float32"),
        ("2,6,197,64 float32", "expected (batch,heads[:heads_kv],length[xkeys],head_dim) dtype [full|causal"),
        ("(2,6,197,64) flaot32", "did you mean float32?"),
        (
            "(2,6,197,64) float32 attn_mask=m",
            "attn_mask is not supported: the masks are full, causal (bottom_right: the last query sees all keys)",
        ),
        ("(2,32:5,197,64) float32", "heads is 32, expected a multiple of heads_kv, 5"),
        ("(2,6,197,64) float32 bottom_right", "corner is bottom_right, but the mask is not causal"),
        ("(2,6,197,64) float32 bsdh", "did you mean bshd?"),
        ("(0,6,197,64) float32", "batch: found 0, expected a number greater than 0"),
    ],
)
def test_what_is_refused_says_why(typed: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        parsed_problem(typed)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
