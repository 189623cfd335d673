"""My shape from the command line: the op's form for a problem, in `tune`, `space show` and in what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.spaces.problem_files import parsed_problem
from autotuner.tuning.workbench import load_space
from autotuner.values.errors import InputError, SpaceError
from tests.helpers.command_line import SPACE, lay_out

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


def test_problems_come_from_a_file_too(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(SPACE[SPACE.index("[[problems]]") : SPACE.index("[parameters]")])
    file = load_space("sdpa_cpu", problems=["(1,2,33,64) float32"], problems_file=tmp_path / "mine.toml")
    assert [str(problem) for problem in file.problems] == ["(1,2,33,64) float32 full", "(1,2,64,64) float32 full"]
    (tmp_path / "none.toml").write_text("")
    with pytest.raises(SpaceError, match=r"problems: missing; expected tables \[\[problems\]\]"):
        load_space("sdpa_cpu", problems_file=tmp_path / "none.toml")


@pytest.mark.parametrize(("said", "kept"), [("[3, 1]", "mean"), ('"max"', "max"), ('"mean"', "mean")])
@pytest.mark.parametrize("lengths", [(33,), (33, 65), (33, 65, 129)])
def test_weights_of_a_files_own_problems_weigh_no_others(
    tmp_path: Path, said: str, kept: str, lengths: tuple[int, ...]
) -> None:
    lay_out(tmp_path)
    own = SPACE[SPACE.index("[[problems]]") : SPACE.index("[parameters]")]
    text = SPACE.replace(own, f"{own}{own.replace('64', '96', 1)}".strip() + "\n\n", 1)
    (tmp_path / "weighed.toml").write_text(f"objective = {said}\n{text}")
    (tmp_path / "like.toml").write_text('title = "like"\nlike = "weighed"\n')
    for name in ("weighed.toml", "like.toml"):
        own_problems = load_space(str(tmp_path / name))
        assert own_problems.objective == ((3.0, 1.0) if said == "[3, 1]" else kept)
        other = load_space(str(tmp_path / name), problems=[f"(1,2,{length},64) float32" for length in lengths])
        assert other.objective == kept
