"""Attention as an op: what a problem says, where its tensors lie, and that reference and baselines agree."""

import importlib
import shutil
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest
import torch
from torch import Tensor

from autotuner.devices import DEVICES
from autotuner.devices.cpu.toolchain import CpuToolchain
from autotuner.forge.family import Family
from autotuner.gate.cases import Case, Matrix
from autotuner.gate.references import names
from autotuner.gate.tolerance import compute_truth, judge
from autotuner.ops import ahead, op_of
from autotuner.ops.sdpa import tensors
from autotuner.ops.sdpa.flex import module
from autotuner.ops.sdpa.masks import visible
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.ops.sdpa.tensors import inputs, reference, sensitive_heads, sensitive_rows
from autotuner.ops.tensors import distinct, gaps_of, lying_in, moved, normal, plain_product, span
from autotuner.run.cage import CageParts
from autotuner.run.jobs import RaceJob
from autotuner.values import config
from autotuner.values.outcome import Heat
from tests.helpers.judging import briefly, cpu_judge, result


def parsed(text: str) -> SdpaProblem:
    return SdpaProblem.parse(text)


MASKS = ["full", "causal", "causal bottom_right", "causal window=3", "full window=2,1", "full window=1,4 bottom_right"]


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("lengths", [(5, 9), (9, 5), (1, 9), (9, 1), (7, 7)])
def test_flops_are_those_of_visible_scores(mask: str, lengths: tuple[int, int]) -> None:
    problem = parsed(f"(2,3,{lengths[0]}x{lengths[1]},64) float32 {mask}")
    seen = visible(problem, None, torch.device("cpu"))
    count = lengths[0] * lengths[1] if seen is None else int(seen[0].sum())
    assert problem.flops == 4 * 2 * 3 * count * 64


def test_what_no_row_sees_in_its_window_need_not_be_read() -> None:
    one, few = (parsed(f"(1,1,{rows}x900,64) float32 causal window=100 bottom_right") for rows in (1, 20))
    assert one.bytes == 4 * 64 * (2 * 1 + 2 * 101)
    assert few.bytes == 4 * 64 * (2 * 20 + 2 * 120)


@pytest.mark.parametrize(
    ("words", "sides"),
    [("causal window=7", (7, 0)), ("full window=7", (7, 7)), ("window=7,2", (7, 2)), ("causal, window=7, lse", (7, 0))],
)
def test_a_window_is_read_and_written(words: str, sides: tuple[int, int]) -> None:
    problem = parsed(f"(1,2,64,64) float32 {words}")
    assert (problem.window_left, problem.window_right) == sides
    assert parsed(str(problem)) == problem
    assert problem.scalars[1:] == (*sides, 0)


def test_a_cap_is_read_and_written() -> None:
    problem = parsed("(1,2,64,64) float32 causal softcap=12.5")
    assert problem.scalars[1:] == (0, 0, 12.5)
    assert parsed(str(problem)) == problem
    assert "SOFTCAP" not in problem.facts()


@pytest.mark.parametrize("words", ["sinks", "sinks=float32", "causal window=7 softcap=3 sinks lengths bshd lse"])
def test_sinks_are_read_and_written(words: str) -> None:
    problem = parsed(f"(1,2,64,64) bfloat16 {words}")
    assert problem.sinks == ("float32" if "=float32" in words else "own")
    assert parsed(str(problem)) == problem
    assert problem.bytes - problem.model_copy(update={"sinks": "none"}).bytes == (8 if problem.sinks != "own" else 4)


@pytest.mark.parametrize("mask", ["causal", "causal window=20 lengths"])
def test_a_sink_is_a_key_of_zeros_whose_value_is_0(mask: str) -> None:
    """One more key for all rows of a head, in front: its score is the sink."""
    problem = parsed(f"(3,5,31x47,64) float32 {mask} sinks lse")
    tensors = op_of(problem).tensors()
    given = tensors.inputs(problem, "randn", 1)
    found, lse = tensors.reference(problem, given)
    plain = problem.model_copy(update={"sinks": "none"})
    o, without = tensors.reference(plain, given[:-1])
    sinks = given[-1].double().view(-1, 1)
    torch.testing.assert_close(lse, torch.logaddexp(without, sinks))
    torch.testing.assert_close(found, o * torch.exp(without - lse).nan_to_num(0)[..., None])
    for name in ("flash", "math"):
        baseline = tensors.BASELINES[name]
        o, of_rows = baseline.settled(problem, given, baseline.answer(problem, given))
        torch.testing.assert_close(o.double(), found, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(of_rows.double(), lse, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", ["alibi", "heads", "full"])
def test_a_bias_is_read_and_written(kind: str) -> None:
    problem = parsed(f"(2,4,64x48,64) bfloat16 causal sinks bias={kind} lengths bshd")
    assert parsed(str(problem)) == problem
    count = {"alibi": 4 * 4, "heads": 2 * 4 * 64 * 48, "full": 2 * 2 * 4 * 64 * 48}[kind]
    assert problem.bytes - problem.model_copy(update={"bias": "none"}).bytes == count


@pytest.mark.parametrize(
    ("text", "distribution"),
    [
        ("(3,4:2,31x47,64) float32 causal bottom_right lengths bias=alibi lse", "randn"),
        ("(2,4:2,31x47,64) float32 full bias=full", "hiding"),
        ("(2,4,31x47,64) float32 causal sinks bias=heads lse", "hiding"),
    ],
)
def test_torch_adds_the_same_bias(text: str, distribution: str) -> None:
    problem = parsed(text)
    tensors = op_of(problem).tensors()
    given = tensors.inputs(problem, distribution, 1)
    for name in ("flash", "math"):
        baseline = tensors.BASELINES[name]
        answer = baseline.settled(problem, given, baseline.answer(problem, given))
        for found, expected in zip(answer, tensors.reference(problem, given), strict=True):
            torch.testing.assert_close(found.double(), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("distribution", ["enormous", "negative", "outlier_key", "outlier_row"])
@pytest.mark.parametrize(
    "mask", ["full lengths", "causal lengths", "causal bottom_right", "causal bottom_right lengths"]
)
def test_of_large_scores_each_row_sees_the_one_that_decides(mask: str, distribution: str) -> None:
    """Others tie: which of them is larger is what a kernel's roundings say, and right ones would be rejected."""
    problem = parsed(f"(2,2,{'90x60' if 'bottom' in mask else '60x90'},64) float16 {mask}")
    for seed in range(10):
        q, k, _, *rest = op_of(problem).tensors().inputs(problem, distribution, seed)
        seen = visible(problem, rest[0] if rest else None, q.device)
        assert seen is not None
        scores = (problem.scale * q.double() @ k.double().transpose(-1, -2)).masked_fill(~seen, -torch.inf)
        largest, other = scores.topk(2).values.unbind(-1)
        assert ((largest - other > 5) | other.isinf()).all()


def prescaled(problem: SdpaProblem, q: Tensor, k: Tensor, v: Tensor, *rest: Tensor) -> tuple[Tensor, Tensor]:
    """What a plain loop gives that scales Q first, as many kernels do, with its sums in float32."""
    scores = plain_product(q.float() * float(problem.scale), k.float().transpose(-1, -2))
    scores = scores.masked_fill(~cast(Tensor, visible(problem, rest[0], q.device)), -torch.inf)
    lse = scores.logsumexp(-1)
    return (torch.exp(scores - lse.unsqueeze(-1)) @ v.float()).to(q.dtype), lse


@pytest.mark.parametrize("text", ["(2,4,128,96) bfloat16 full lengths lse", "(2,4,128,128) float16 causal lengths lse"])
def test_a_loop_that_scales_q_first_is_right(text: str) -> None:
    """Where all terms of a score are alike it is off to one side: by how much is luck of the scale and the size."""
    wanted = {"one_hot", "enormous", "negative", "outlier_key", "outlier_row"}
    matrix = Matrix(parsed(text))
    cases = [case for case in (*matrix.quick(), *matrix.full((64, 64))) if case.distribution in wanted]
    assert len({case.distribution for case in cases}) == len(wanted)
    for case in cases:
        truth = compute_truth(case, 1)
        outputs = prescaled(cast(SdpaProblem, case.problem), *truth.inputs)
        for found, due in zip(outputs, truth.outputs, strict=True):
            errors = judge(found, due)
            assert errors.failed_rule is None, (case.name, errors)


def test_rows_are_sensitive_in_which_a_bias_brings_a_large_score_down_to_others() -> None:
    """A score of 64, of equal terms, and one of 4.5: with the bias 4 and 3.5. The first one is off by all its terms."""
    problem = parsed("(2,3,200,256) float32 causal bias=alibi")
    given = inputs(problem, "one_hot", 0)
    rows = sensitive_rows(problem, given, reference(problem, given)[0])
    assert [1, 0, 195] in rows.tolist()
    ragged = parsed("(3,2,20x40,64) float32 full lengths bias=alibi")
    given = inputs(ragged, "ragged", 0)
    assert len({tuple(row) for row in sensitive_rows(ragged, given, reference(ragged, given)[0]).tolist()}) == 32


def test_rows_are_sensitive_in_which_a_cap_leaves_a_sum_of_large_terms_as_it_is() -> None:
    """Others are at the cap, where nothing moves them."""
    problem = parsed("(1,1,500x1,64) float32 full softcap=15 sinks")
    given = inputs(problem, "huge", 0)
    scores = problem.scale * (given[0].double() @ given[1].double().transpose(-1, -2)).flatten()
    first = sensitive_rows(problem, given, reference(problem, given)[0])[:10, 2]
    assert (scores[first].abs() < problem.softcap).all()


def test_the_log_sum_exp_of_a_single_row_has_its_tolerance_by_no_luck() -> None:
    """Weights are rounded to 16 bits before they are summed, as many kernels have them: all of that may cancel."""
    problem = parsed("(1,1,1x15,64) bfloat16 full lse")
    case = Case.model_validate({"name": "one", "problem": problem, "distribution": "randn"})
    assert min(compute_truth(case, seed).outputs[1].max_abs_tol for seed in range(100)) > 2**-10


def test_sums_are_reordered_in_heads_with_large_log_sum_exps_and_in_those_that_move(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those of one head are 894 at most, and move most for that; those of another 5391: they are off most."""
    problem = parsed("(2,2,130x203,192) float32 causal sinks bias=alibi bottom_right lengths lse")
    found = op_of(problem).tensors()
    given = found.inputs(problem, "outlier_row", 860059)
    exact = found.reference(problem, given)[1]
    monkeypatch.setattr(tensors, "TERMS", 1)
    assert len(sensitive_heads(problem, given, exact)) == 2


def test_a_small_case_has_a_small_window() -> None:
    problem = parsed("(1,2,4096,64) float32 causal window=1024")
    assert problem.cased((1, 2, 90, 60)).window_left == 20
    assert problem.cased((1, 2, 16, 8192)).window_left == 1024


def test_tensors_keep_their_places() -> None:
    whole = torch.arange(60.0).view(3, 4, 5)
    view = whole[:, 1:3, :4]
    assert span(view) == 2 * 20 + 5 + 4
    gaps = gaps_of(view)
    assert gaps is not None
    assert int((~gaps).sum()) == view.numel()
    assert gaps_of(whole) is None
    shared = view[:1].expand(3, -1, -1)
    assert distinct(shared).shape == (1, 2, 4)
    copy = lying_in(torch.zeros(span(view)), view)
    assert copy.stride() == view.stride()
    assert [each.stride() for each in moved((view, shared), "cpu")] == [view.stride(), shared.stride()]


def test_many_numbers_do_not_depend_on_the_cpus_that_draw_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotuner.ops.tensors.DRAWN_AT_ONCE", 1000)
    found = []
    for cpus in ({0}, {0, 1, 2}):
        monkeypatch.setattr("os.sched_getaffinity", lambda _, cpus=cpus: cpus)
        found.append(normal((7, 5, 999), torch.Generator().manual_seed(3)))
    assert torch.equal(*found)
    assert len(distinct(found[0]).unique()) > 30_000
    assert abs(float(found[0].mean())) < 0.03
    assert abs(float(found[0].std()) - 1) < 0.03


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_flex_attention_is_compiled_for_more_problems_than_torch_compiles_by_itself() -> None:
    importlib.import_module("autotuner.ops.compiler")
    for length in range(16, 16 * 10, 16):
        problem, q = parsed(f"(1,2,{length},64) float32 causal window=8"), torch.zeros(1, 2, length, 64)
        compiled = torch.compile(module(problem, "cpu"), fullgraph=True, dynamic=False, backend="eager")
        assert compiled(q, q, q).shape == q.shape


def test_flex_attention_is_for_windows_alone() -> None:
    assert "flex" in names(parsed("(1,4:2,256,64) float32 causal window=64"), "cpu")
    assert "flex" not in names(parsed("(1,4:2,256,64) float32 causal"), "cpu")


@pytest.mark.slow
@pytest.mark.timed
@pytest.mark.sampled(1, of="compiled baselines")
def test_flex_attention_is_compiled_and_runs_where_variants_are_judged(toolchain: CpuToolchain) -> None:
    problem = parsed("(1,4:2,256,64) float32 causal window=64")
    tensors = op_of(problem).tensors()
    given = tensors.inputs(problem, "randn", 3)
    (found,) = tensors.BASELINES["flex"].answer(problem, given)
    torch.testing.assert_close(found.double(), tensors.reference(problem, given)[0], atol=1e-5, rtol=1e-5)
    family, conditions = (
        Family.load(config.kernels_dir() / "sdpa"),
        briefly(problem).model_copy(update={"baselines": ("flex",)}),
    )
    with cpu_judge(toolchain, family, cage=CageParts.of(DEVICES["cpu"].cage)) as executor:
        timed = result(executor, RaceJob(artifacts=(), conditions=conditions, blocks=1))
    assert isinstance(timed, Heat), timed


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("(1,8,512,64) float16", False),
        ("(1,8,512,64) float16 causal window=64", True),
        ("(1,8,512,64) float16 softcap=50", True),
        ("(1,8,512,64) float16 causal window=64 lengths", False),
    ],
)
def test_torchs_compiler_is_there_before_processes_are_forked_where_it_makes_a_baseline(text: str, made: bool) -> None:
    problem = parsed(text)
    op = op_of(problem)
    assert op.tensors().BASELINES["flex"].takes(problem) is made
    assert bool(ahead.imports("cuda", [problem])) is made
    assert not ahead.imports("cpu", [problem])  # a library that is made ahead of time needs no compiler


@pytest.mark.slow
def test_threads_end_wherever_torch_is_installed(tmp_path: Path) -> None:
    """Where a library of OpenMP lies is read from what is mapped: a folder's name may have spaces."""
    (tmp_path / "my work").mkdir()
    library = next((Path(torch.__file__).parent / "lib").glob("libgomp*"))
    copied = shutil.copy(library, tmp_path / "my work" / library.name)
    code = f"import ctypes; ctypes.CDLL({str(copied)!r}); from autotuner.ops.tensors import end_threads; end_threads()"
    subprocess.run([sys.executable, "-c", code], check=True)
