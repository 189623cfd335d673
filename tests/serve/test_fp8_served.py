"""Attention from FP8 recorded, loaded and written as C by the same code: its tensors are of other types than its
answer."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import autotuner
from autotuner.devices.cpu.toolchain import CpuToolchain
from autotuner.ops import OPS
from autotuner.ops.sdpa_fp8 import WANTED, SdpaFp8Problem
from autotuner.ops.sdpa_fp8.quantising import quantised_inputs
from autotuner.serve.c_source import write_c_folder
from autotuner.serve.folder import Source
from autotuner.tuning.workbench import Workbench, load_space
from autotuner.values.table import DispatchTable
from tests.helpers.calls import loaded
from tests.helpers.files import text
from tests.helpers.in_c import printed
from tests.helpers.judging import KERNELS, default_of
from tests.helpers.tables import served, table, write

PROBLEMS = tuple(
    SdpaFp8Problem.parse(f"(2,4:2,24x40,64) fp8 bfloat16 causal{more}")
    for more in ("", " bottom_right lengths", " bshd", " cache", " bshd cache")
)


@pytest.fixture(scope="module")
def tuned() -> DispatchTable:
    file = load_space(str(KERNELS / "eighths.toml"))
    made = [default_of(Workbench(file.model_copy(update={"problems": (each,)}))) for each in PROBLEMS]
    entries = [(each, variant.digest) for each, variant in zip(PROBLEMS, made, strict=True)]
    return table([served(each) for each in made], entries)


@pytest.fixture(scope="module")
def ours(tuned: DispatchTable, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return loaded(write(tuned, tmp_path_factory.mktemp("served") / "best.json"))


def quantised_heads() -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
    query, *key_value = (torch.randn(2, heads, length, 64) for heads, length in ((4, 24), (2, 40), (2, 40)))
    return quantised_inputs(query, *key_value)


@pytest.mark.slow
def test_a_call_is_served_and_is_what_the_tensors_stand_for(ours: Any) -> None:
    qkv, descales = quantised_heads()
    lengths = torch.tensor([31, 40], dtype=torch.int32)
    strided = tuple(x.transpose(1, 2).contiguous().transpose(1, 2) for x in qkv)
    torchs = autotuner.function("sdpa_fp8")
    of_first_head = descales["v_descale"][:, :1].expand(2, 2)
    cache, strided_cache = ((torch.randn(2, 4, 24, 64).bfloat16(), *each[1:]) for each in (qkv, strided))
    for given, more in (
        *((qkv, {}), (strided, {}), (qkv, {"key_lengths": lengths, "corner": "bottom_right"})),
        *((cache, {}), (strided_cache, {}), (qkv, {"q_descale": torch.tensor(0.01), "v_descale": of_first_head})),
    ):
        for _ in range(4):
            found = ours(*given, is_causal=True, **{**descales, **more})
            wanted = torchs(*given, is_causal=True, **{**descales, **more})
            assert found.dtype == torch.bfloat16
            assert found.stride() == wanted.stride() or not given[0].is_contiguous()
            torch.testing.assert_close(found, wanted, atol=0.02, rtol=0.02)
    assert ours.served == 1.0
    assert sum(ours.counters.values()) == 24
    assert ours._library.asked().total() == 12  # the others were known; what is written out anew is not
    torch.library.opcheck(ours.op, qkv, {**descales, "is_causal": True}, test_utils="test_faketensor")
    compiled = torch.compile(lambda *x: ours(*x, is_causal=True, **descales), backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(*qkv), ours(*qkv, is_causal=True, **descales))


@pytest.mark.slow
def test_torch_serves_the_rest_and_it_says_why(ours: Any) -> None:
    qkv, descales = quantised_heads()
    halves = {name: each.half() for name, each in descales.items()}
    calls: list[tuple[tuple[Tensor, ...], dict[str, Any], str]] = [
        (qkv, descales, "it was not tuned"),
        (qkv, {}, "q_descale, k_descale and v_descale must be"),
        (qkv, {**halves, "is_causal": True}, "q_descale, k_descale and v_descale must be"),
        (tuple(x.float() for x in qkv), {**descales, "is_causal": True}, "or K and V beside Q in bfloat16"),
        (qkv, {**descales, "scale": 0.5}, "scale is not supported"),
    ]
    ours.reset_counters()
    for given, options, why in calls:
        for _ in range(3):
            assert ours(*given, **options).dtype == torch.bfloat16
        assert why in ours.explain(*given, **options).why
    assert ours.served == 0.0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"scale": "a"}, "scale must be a number, not str"),
        ({"is_causal": "no"}, "is_causal must be True or False, not str"),
        ({"v_descale": 0.5}, "v_descale must be a tensor, not float"),
        ({"v_descale": torch.ones(3)}, r"v_descale is \(3,\), expected what expands to \(2, 2\)"),
        ({"key_lengths": torch.tensor([3])}, r"key_lengths is \(1,\), expected \(2,\): one a sequence"),
    ],
)
def test_what_no_call_can_say_is_refused_in_one_line(ours: Any, more: dict[str, Any], said: str) -> None:
    qkv, descales = quantised_heads()
    for each in (ours, autotuner.function("sdpa_fp8")):
        with pytest.raises((TypeError, ValueError), match=f"^{said}"):
            each(*qkv, **{**descales, **more})


def test_it_is_recorded() -> None:
    qkv, descales = quantised_heads()
    with torch.no_grad(), autotuner.record() as calls:
        autotuner.function("attention_fp8")(*qkv, is_causal=True, **descales)
        autotuner.function("sdpa_fp8")(*qkv, is_causal=True)
        autotuner.function("sdpa_fp8")(qkv[0].bfloat16(), *qkv[1:], is_causal=True, **descales)
        with pytest.raises(NotImplementedError):  # what torch's own function calls, a GPU alone has
            OPS["sdpa_fp8"].signature.WITHIN(*qkv, *descales.values(), 0.0, True, False, scale=None)
    wanted = {str(PROBLEMS[0]): 2, str(PROBLEMS[3]): 1}
    assert {str(problem): count for problem, count in calls.problems.items()} == wanted
    assert [each.why for each in calls.refused] == [f"q_descale is None; {WANTED}"]


@pytest.mark.slow
def test_a_program_without_python_and_torch_says_whether_queries_are_fp8(tuned: DispatchTable, tmp_path: Path) -> None:
    """The table has caches beside others."""
    write_c_folder(tuned, Source(CpuToolchain.discover(), KERNELS), tmp_path / "demo")
    *served, refused = printed(tmp_path, text("fp8.c")).splitlines()
    assert served == ["served, 1.0"] * 2
    assert "or K and V beside Q in bfloat16" in refused
