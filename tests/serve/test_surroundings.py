"""What torch has going on around a call: autocast, transforms, tracers, classes of tensors, copies of a model. What an
export is loaded as answers as torch's function does."""

import copy
import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from torch.testing._internal.two_tensor import TwoTensor

import autotuner
from tests.helpers.calls import close, loaded, qkv
from tests.helpers.tables import one, problem, write

Attention = Callable[..., Tensor]
pytestmark = [
    pytest.mark.filterwarnings("ignore:.torch.jit"),  # torch itself, where it transforms
    pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning"),  # an op without a rule for vmap
    pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning"),
]


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Length 32 is a variant's. What is loaded of it is a package's function."""
    return write(one(problem(32)), tmp_path_factory.mktemp("surroundings") / "best.json")


@pytest.fixture
def ours(export: Path) -> Any:
    return loaded(export)


@pytest.mark.parametrize("length", [32, 20])
@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_autocast_has_its_element_type_whoever_serves(ours: Any, length: int, compiled: bool) -> None:
    inputs = qkv(length)
    call = torch.compile(ours, backend="aot_eager", fullgraph=True) if compiled else ours
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        found, expected = call(*inputs), scaled_dot_product_attention(*inputs)
    close(found, expected, 2e-2)
    assert found.dtype == torch.bfloat16
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        assert not ours.explain(*inputs).served
    with torch.no_grad():
        assert ours(*inputs).dtype == torch.float32


def test_a_tangent_is_refused_or_torchs(ours: Any, export: Path) -> None:
    inputs, tangents = qkv(), qkv()
    with pytest.raises(RuntimeError, match="needs a gradient"):
        torch.func.jvp(ours, inputs, tangents)
    torchs = autotuner.load(export, gradients="torch")
    with sdpa_kernel(SDPBackend.MATH):
        found, expected = (torch.func.jvp(each, inputs, tangents) for each in (torchs, scaled_dot_product_attention))
    close(found[1], expected[1])
    with forward_ad.dual_level(), torch.no_grad():
        dual = forward_ad.make_dual(inputs[0], tangents[0])
        with pytest.raises(RuntimeError, match="needs a gradient"):
            ours(dual, *inputs[1:])
        close(ours(*inputs), scaled_dot_product_attention(*inputs))


def test_tracers_see_a_call(ours: Any) -> None:
    inputs, others = qkv(), qkv()
    expected = scaled_dot_product_attention(*others)
    with torch.no_grad():
        close(torch.jit.trace(lambda q, k, v: ours(q, k, v) * 1, inputs, check_trace=False)(*others), expected)
        close(make_fx(lambda q, k, v: ours(q, k, v))(*inputs)(*others), expected)
        close(make_fx(lambda q, k, v: ours(q, k, v), tracing_mode="symbolic")(*inputs)(*others), expected)
        batched = tuple(torch.stack([one, other]) for one, other in zip(inputs, others, strict=True))
        close(torch.vmap(ours)(*batched)[1], expected)


class Own(Tensor):
    """Answers for torch's attention itself."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is scaled_dot_product_attention:
            return torch.full((1,), 7.0)
        return super().__torch_function__(func, types, args, kwargs or {})  # type: ignore[no-untyped-call]


def test_a_class_that_answers_itself_is_asked(ours: Any) -> None:
    inputs = qkv()
    with torch.no_grad():
        ours(*inputs)
        assert ours(inputs[0].as_subclass(Own), *inputs[1:]).tolist() == [7.0]
        parameters = [torch.nn.Parameter(each) for each in inputs]
        close(ours(*parameters), scaled_dot_product_attention(*inputs))


def test_tensors_that_wrap_others_are_torchs_whoever_is_asked(ours: Any) -> None:
    """As DTensors and quantised tensors do: they leave torch's functions to torch, and have no memory of their own."""
    inputs = qkv()
    wrapped = [TwoTensor(each, each) for each in inputs]
    with torch.no_grad():
        assert ours.explain(*inputs).served
        said = ours.explain(*wrapped)
        for _ in range(3):
            close(ours(*wrapped).a, scaled_dot_product_attention(*inputs))
        graph: Any = torch.compile(ours, backend="aot_eager", fullgraph=True)
        close(graph(*wrapped).a, scaled_dot_product_attention(*inputs))
        with autotuner.record() as calls:
            autotuner.function("sdpa")(*wrapped)
    assert not said.served
    assert not calls.problems
    assert [each.why for each in calls.refused] == [said.why], "nobody tunes for what no variant will serve"
    assert dict(ours.counters) == {said.why: 3}


@pytest.mark.slow
@pytest.mark.sampled(0)  # torch 2.13 tries every placement of every step of its function before it computes: 16 s
def test_an_op_gives_torch_what_is_sharded(ours: Any) -> None:
    import torch.distributed as dist  # what a process that collects tests would wait 3 s for
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Shard

    inputs = qkv()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        mesh = init_device_mesh("cpu", (1,))
        sharded = [DTensor.from_local(each, mesh, [Shard(1)]) for each in inputs]
        with torch.no_grad():
            why = ours.explain(*sharded).why
            for call in (ours, ours.op):
                close(call(*sharded).to_local(), scaled_dot_product_attention(*inputs))
            assert dict(ours.counters) == {why: 2}
            with pytest.raises(RuntimeError, match="no variant serves this call"):
                ours.op(*sharded, strict=True)
            close(ours.op(*inputs), scaled_dot_product_attention(*inputs))
    finally:
        dist.destroy_process_group()


class Holder(torch.nn.Module):
    def __init__(self, attention: Attention) -> None:
        super().__init__()
        self.attention = attention

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.attention(*inputs)


def test_a_model_that_holds_it_is_copied_and_saved(ours: Any) -> None:
    inputs, model = qkv(), Holder(ours)
    saved = io.BytesIO()
    torch.save(model, saved)
    saved.seek(0)
    for each in (copy.copy(model), copy.deepcopy(model), torch.load(saved, weights_only=False)):
        with torch.no_grad():
            close(each(*inputs), scaled_dot_product_attention(*inputs))
    strict = pickle.loads(pickle.dumps(ours))
    assert (strict.strict, strict.gradients, strict.copies) == (False, "refuse", False)


@pytest.mark.parametrize(
    "inputs",
    [
        (torch.randn(64), torch.randn(64), torch.randn(64)),
        tuple(torch.ones(1, 2, 32, 64, dtype=torch.int32) for _ in range(3)),
        (torch.randn(1, 2, 32, 64), torch.randn(1, 2, 32, 32), torch.randn(1, 2, 32, 64)),
    ],
)
def test_what_torch_refuses_is_refused_in_its_words(ours: Any, inputs: tuple[Tensor, ...]) -> None:
    q, k, v = inputs
    with torch.no_grad(), pytest.raises(RuntimeError) as expected:
        scaled_dot_product_attention(q, k, v)
    with torch.no_grad(), pytest.raises(RuntimeError) as found:
        ours(*inputs)
    assert str(found.value).partition("\n")[0] == str(expected.value).partition("\n")[0]
