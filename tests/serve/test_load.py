"""An export in a program: who serves a call, and why; torch's own answer wherever nothing is proven."""

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

import autotuner
from autotuner.values.errors import InputError
from autotuner.values.outcome import Artifact
from autotuner.values.variant import digest_of
from tests.helpers.calls import close, loaded, qkv
from tests.helpers.refusing import refused
from tests.helpers.tables import FOLDER, between, built, problem, served, table, write


@pytest.fixture
def export(tmp_path: Path, artifact: Artifact) -> Path:
    """Length 32 and what lies between 32 and 64 is ours, length 16 torch's."""
    entries = [(problem(32), artifact.digest), (problem(64), artifact.digest), (problem(16), None)]
    found = table([served(artifact)], entries, [between(artifact, problem(32), problem(64))])
    return write(found, tmp_path / "best.json")


def grouped(*outer: int) -> tuple[Tensor, Tensor, Tensor]:
    """Eight heads of Q and two of K and V, with these dimensions before them."""
    q, k, v = (torch.randn(*outer, heads, 32, 64) for heads in (8, 2, 2))
    return q, k, v


@pytest.mark.parametrize("length", [32, 50, 64])
def test_a_variant_serves_what_it_is_proven_for(export: Path, artifact: Artifact, length: int) -> None:
    ours, inputs = loaded(export), qkv(length)
    close(ours(*inputs), scaled_dot_product_attention(*inputs))
    assert ours.explain(*inputs, scale=0.125, enable_gqa=True).variant == str(artifact.variant)  # as it is anyway
    assert dict(ours.counters) == {str(artifact.variant): 1}
    assert ours.served == 1.0


def test_torch_serves_all_where_no_variant_is_faster(tmp_path: Path) -> None:
    """As `tune` says of the file that it writes then."""
    ours, inputs = loaded(write(table([], [(problem(32), None)]), tmp_path / "best.json")), qkv(32)
    close(ours(*inputs), scaled_dot_product_attention(*inputs))
    assert ours.explain(*inputs).variant is None


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (lambda f: f(*qkv(16)), "its own best"),
        (lambda f: f(*qkv(100)), "was not tuned"),
        (lambda f: f(*qkv(32, heads=3)), "was not tuned"),
        (lambda f: f(*qkv(32), is_causal=True), "was not tuned"),
        (lambda f: f(*qkv(32), attn_mask=torch.ones(32, 32).bool()), "attn_mask is not supported"),
        (lambda f: f(*qkv(32), scale=0.3), "scale is not supported"),
        (lambda f: f(*qkv(32), scale=-(64**-0.5)), "scale is not supported"),
        (lambda f: f(*qkv(100), scale=-(64**-0.5)), "scale is not supported"),
        (lambda f: f(*qkv(32, dtype=torch.float64)), "the variants take float32, bfloat16 and float16"),
        (lambda f: f(*(each.transpose(1, 2) for each in qkv(2, heads=32))), "was not tuned"),
        (lambda f: f(*(each[0] for each in qkv(32))), "(batch, heads, length, head_dim)"),
        (lambda f: f(*qkv(32)[:2], qkv(32)[2][..., :32].contiguous()), "V has another head dimension than Q and K"),
        *((lambda f, outer=outer: f(*grouped(*outer), enable_gqa=True), "") for outer in ((), (1,), (1, 1))),
    ],
)
def test_torch_serves_the_rest_and_it_says_why(
    export: Path, call: Callable[[Callable[..., Tensor]], Tensor], why: str
) -> None:
    ours = loaded(export)
    torch.manual_seed(0)
    found = call(ours)
    torch.manual_seed(0)
    close(found, call(scaled_dot_product_attention))
    (said,) = ours.counters
    assert why in said
    assert ours.served == 0.0
    with pytest.raises(RuntimeError, match="no variant serves this call"):
        call(loaded(export, strict=True))


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"softcap": [5.0]}, "softcap must be a number, not list"),
        ({"scale": "a"}, "scale must be a number, not str"),
        ({"is_causal": "no"}, "is_causal must be True or False, not str"),
        ({"window": True}, "window must be a whole number, or two: .*, not True"),
        ({"window": 2.5}, "window must be a whole number, or two: .*, not 2.5"),
        ({"window": (1, 2, 3)}, "window must be a whole number, or two: "),
        ({"attn_mask": [1]}, "attn_mask must be a tensor, not list"),
        ({"sinks": [0.0]}, "sinks must be a tensor, not list"),
        ({"sinks": torch.zeros(3)}, r"sinks is \(3,\), expected \(2,\): one a head"),
        ({"sinks": torch.zeros(0)}, r"sinks is \(0,\), expected \(2,\): one a head"),
        ({"alibi_slopes": torch.zeros(2, device="meta")}, "alibi_slopes is on meta, query is on cpu: move it there"),
        ({"key_lengths": torch.tensor([3, 4])}, r"key_lengths is \(2,\), expected \(1,\): one a sequence"),
        ({"bias": torch.ones(9, 9)}, r"bias is \(9, 9\), expected what expands to"),
        ({"bias": torch.ones(32, 32, dtype=torch.bool)}, "bias has truths, expected numbers to add"),
        ({"cu_seqlens_q": torch.zeros(2)}, "attention takes no cu_seqlens_q: batches are not ragged, but padded"),
        ({"page": 1}, "attention takes no page: there is no such argument"),
    ],
)
def test_what_no_call_can_say_is_refused_in_one_line(export: Path, more: dict[str, Any], said: str) -> None:
    ours = loaded(export)
    op = [ours.op] if "one a" in said else []  # torch's words come first where its schema says it
    for each in (ours, ours.explain, autotuner.function("sdpa"), *op):
        with pytest.raises((TypeError, ValueError), match=f"^{said}"):
            each(*qkv(32), **more)


@pytest.mark.parametrize("length", [32, 100])
def test_a_corner_that_there_is_not_is_refused(export: Path, length: int) -> None:
    ours, attention, inputs = loaded(export), autotuner.function("sdpa"), qkv(length)
    for each in (ours, ours.op, attention, ours.explain):
        for more in ({}, {"key_lengths": torch.tensor([20], dtype=torch.int32)}):
            with pytest.raises(ValueError, match="corner is 'bottom-right', expected top_left or bottom_right"):
                each(*inputs, is_causal=True, corner="bottom-right", **more)
    close(ours(*inputs, corner="bottom-right"), attention(*inputs, corner="bottom-right"))  # no mask, so no corner


def test_another_device_than_the_proven_one_is_torchs(export: Path) -> None:
    ours, threads = loaded(export), torch.get_num_threads()
    try:
        torch.set_num_threads(threads + 1)
        assert f"THREADS_ALLOWED is {threads}" in ours.explain(*qkv(32)).why
    finally:
        torch.set_num_threads(threads)
    assert ours.explain(*qkv(32)).served


def test_gradients_are_refused_or_torchs(export: Path) -> None:
    inputs = qkv(32, requires_grad=True)
    for refuses in (loaded(export), lambda *given: loaded(export).op(*given).sum().backward()):
        with pytest.raises(RuntimeError, match="needs a gradient"):
            refuses(*inputs)
    ours = loaded(export, gradients="torch")
    ours(*inputs).sum().backward()
    assert inputs[0].grad is not None
    with torch.no_grad():
        ours(*inputs)
    assert ours.served == 0.5


def test_strided_tensors_are_copied_on_request(export: Path) -> None:
    ours = loaded(export, copies=True)
    q, k, v = (each.transpose(1, 2) for each in qkv(2, heads=32))
    close(found := ours(q, k, v), scaled_dot_product_attention(q, k, v))
    assert found.stride() == q.stride()
    assert ours.served == 1.0


def test_a_tensor_that_is_not_aligned_is_torchs(export: Path) -> None:
    ours, (q, k, v) = loaded(export), qkv(32)
    odd = torch.empty(q.numel() + 1)[1:].view(q.shape).copy_(q)
    close(ours(odd, k, v), scaled_dot_product_attention(q, k, v))
    assert list(ours.counters) == [ours.explain(odd, k, v).why] == ["a tensor is not aligned to 16 bytes"]


def test_threads_call_it_at_the_same_time(export: Path) -> None:
    ours, inputs = loaded(export), [qkv(64) for _ in range(4)]
    found: list[Tensor | None] = [None] * 4

    def call(place: int) -> None:
        for _ in range(20):
            found[place] = ours(*inputs[place])

    threads = [threading.Thread(target=call, args=(place,)) for place in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for place, each in enumerate(found):
        assert each is not None
        close(each, scaled_dot_product_attention(*inputs[place]))
    assert ours.served == 1.0


@pytest.mark.sampled(1)
@pytest.mark.parametrize("length", [32, 50, 16, 100])
def test_it_is_an_op_of_torch(export: Path, length: int) -> None:
    ours = loaded(export, copies=True)
    for inputs in (qkv(length), tuple(each.transpose(1, 2) for each in qkv(2, heads=length))):
        torch.library.opcheck(ours.op, inputs)
        torch.library.opcheck(ours.op, inputs, {"is_causal": True})


def test_a_compiled_model_holds_it_as_one_node_for_all_lengths(export: Path) -> None:
    ours, graphs = loaded(export), []

    def backend(graph: torch.fx.GraphModule, _: list[Tensor]) -> object:
        graphs.append([node.target for node in graph.graph.nodes if node.op == "call_function"])
        return graph.forward

    @torch.compile(backend=backend, fullgraph=True, dynamic=True)
    def model(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        found: Tensor = ours(q, k, v) + 1
        return found

    with torch.no_grad():
        for length in (32, 50, 100, 64):
            inputs = qkv(length)
            close(model(*inputs), scaled_dot_product_attention(*inputs) + 1)
    assert len(graphs) == 1
    assert any("autotuner" in str(each) for each in graphs[0])
    assert ours.served == 0.75


def test_windows_and_caps_are_compiled_for_all_lengths() -> None:
    attention = autotuner.function("sdpa")

    @torch.compile(backend="eager", fullgraph=True, dynamic=True)
    def model(q: Tensor, k: Tensor, v: Tensor, window: int) -> Tensor:
        found: Tensor = attention(q, k, v, window=(window, window + 1), softcap=5.0)
        return found

    for length, window in ((32, 3), (50, 4), (64, 9)):
        inputs = qkv(length)
        close(model(*inputs, window), attention(*inputs, window=(window, window + 1), softcap=5.0))


class Layer(torch.nn.Module):
    """Attention as a model has it, with views of one projection."""

    def __init__(self, attention: Any) -> None:
        super().__init__()
        self.project, self.attention = torch.nn.Linear(128, 384), attention

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (each.unflatten(-1, (2, 64)).transpose(1, 2) for each in self.project(x).split(128, -1))
        found: Tensor = x + self.attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        return found


@pytest.mark.parametrize("strict", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_an_exported_model_holds_it_as_one_node_for_all_lengths(export: Path, strict: bool) -> None:
    model = torch.nn.Sequential(Layer(loaded(export)), Layer(loaded(export))).eval()
    lengths = torch.export.Dim("length", min=2, max=4096)
    with torch.no_grad():
        found = torch.export.export(model, (torch.randn(1, 20, 128),), dynamic_shapes=({1: lengths},), strict=strict)
        nodes = [str(node.target) for node in found.graph.nodes]
        assert sum("autotuner" in each for each in nodes) == 2
        assert not any("dot_product" in each for each in nodes)
        for length in (33, 7):
            x = torch.randn(1, length, 128)
            close(found.module()(x), model(x))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"table": None, "table_digest": None}, "it has no table, since there were no finals: run `autotuner finals`"),
        ({"table": "another"}, "damaged: its table is not the one of its digest"),
        ({"digest": None}, r"it has no digest, which would show damage; export it again$"),
        ({"confirmed": {"mean": 2.5}}, "damaged: its proof is not the one of its digest"),
    ],
)
def test_what_was_changed_or_lacks_something_is_refused(export: Path, change: dict[str, Any], said: str) -> None:
    document = json.loads(export.read_text())
    if change == {"table": "another"}:
        document["table"]["entries"][0]["why"] = "another"
    else:
        document |= change
    export.write_text(json.dumps({name: each for name, each in document.items() if name != "digest" or each}))
    with pytest.raises(InputError, match=said):
        loaded(export)


@pytest.mark.parametrize("text", ["", "{}", '{"schema_version": 2}', "[1]", '{"schema_version": 3, "table": {}}'])
def test_what_is_no_export_with_a_table_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "best.json"
    path.write_text(text)
    with refused(InputError, "no export with a table"):
        loaded(path)


@pytest.mark.parametrize("entries", [True, False])
def test_a_table_of_an_op_that_is_not_installed_is_refused(export: Path, entries: bool) -> None:
    text = json.dumps(json.loads(export.read_text())["table"] | ({} if entries else {"entries": [], "ranges": []}))
    other = json.loads(text.replace('"op": "sdpa"', '"op": "conv"'))
    export.write_text(json.dumps({"schema_version": 3, "table_digest": digest_of(other), "table": other}))
    said = r"best\.json: no op 'conv'; there are .*sdpa.*; install the package that has it$"
    with pytest.raises(InputError, match=said):
        loaded(export)


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        (("op",), "\0", "no op "),
        (("device",), "tpu", "no device 'tpu'"),
        (("entries",), [], r"table\.entries: "),
        (("proven_on", "THREADS_ALLOWED"), "1); system(", r"proven_on\.THREADS_ALLOWED: found '1\); system\('"),
        (("variants", 0, "artifact"), "../../../../home/me/builds/x", r"table\.variants\[0\]\.artifact: "),
    ],
)
def test_a_table_that_was_edited_with_its_digests_is_refused_in_a_line(
    tmp_path: Path, artifact: Artifact, place: tuple[Any, ...], value: object, said: str
) -> None:
    export = write(table([served(artifact)], [(problem(32), artifact.digest)]), tmp_path / "best.json")
    document = json.loads(export.read_text())
    inner = document["table"]
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    document |= {"table_digest": digest_of(document["table"])}
    document["digest"] = digest_of({name: each for name, each in document.items() if name != "digest"})
    export.write_text(json.dumps(document))
    with refused(InputError, rf"best\.json: .*{said}"):
        autotuner.load(export)


@pytest.mark.slow
def test_its_package_is_made_where_there_is_a_compiler_and_found_where_there_is_none(
    tmp_path: Path, artifact: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOTUNER_CACHE", str(tmp_path / "cache"))
    of = table([served(artifact)], [(problem(32), artifact.digest)]).model_copy(update={"allowed_loss": 0.02})
    export = write(of, tmp_path / "best.json")
    with refused(InputError, r"its package is not in the cache .*/cache: load it with build=True where"):
        autotuner.load(export, build=False)
    with pytest.raises(InputError, match="cannot be made here: no kernel family 'rows'"):
        autotuner.load(export)
    beside = tmp_path / FOLDER.name
    shutil.copytree(FOLDER, beside)
    path = Path(shutil.copy(export, beside))  # the family is found beside the export
    monkeypatch.setenv("CXX", "/nowhere/g++")
    with refused(InputError, r"cannot be made here: .*; load it with the same call where .*copy that cache"):
        autotuner.load(path)
    monkeypatch.delenv("CXX")
    assert autotuner.load(path).explain(*qkv(32)).served
    monkeypatch.setenv("CXX", "/nowhere/g++")
    assert autotuner.load(export, build=False).explain(*qkv(32)).served
    (tmp_path / "cache" / "packages").chmod(0o777)
    with refused(InputError, r"every user may write there, and what lies there is run"):
        autotuner.load(export)


START = """
import sys, torch, autotuner
torch.set_num_threads(int(sys.argv[2]))
ours = autotuner.load(sys.argv[1])
q = torch.randn(1, 2, 32, 64)
ours(q, q, q)
assert ours.served == 1.0
"""


@pytest.mark.slow
def test_processes_that_make_it_at_once_all_get_it(
    tmp_path: Path, export: Path, artifact: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    shutil.copytree(Path(artifact.path).parent, cache / "builds" / artifact.digest[:2] / artifact.digest)
    monkeypatch.setenv("AUTOTUNER_CACHE", str(cache))
    command = [sys.executable, "-c", START, str(export), str(torch.get_num_threads())]
    started = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    for each in started:
        _, said = each.communicate()
        assert each.returncode == 0, said
    (made,) = (cache / "packages").iterdir()
    assert not list((cache / "building").iterdir())
    (made / "serving.py").write_text("damaged")
    # in a process of its own: this one may have loaded the same package from another cache
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_where_the_device_is_another_it_says_what_it_serves_and_why_that_is_not_here(
    tmp_path: Path, artifact: Artifact
) -> None:
    here = table([served(artifact)], [(problem(32), artifact.digest), (problem(16), None)])
    other = here.model_copy(update={"proven_on": {**here.proven_on, "L2_BYTES": 1}})
    with pytest.warns(
        UserWarning, match=r"torch serves all calls here: it serves 1 problem of sdpa on cpu with .*L2_BYTES 1"
    ):
        ours = autotuner.load(write(other, tmp_path / "best.json"))
    assert "proven on a device whose L2_BYTES is 1, here it is" in ours.explain(*qkv(32)).why
    close(ours(*(given := qkv(32))), scaled_dot_product_attention(*given))
    gone = served(artifact).model_copy(update={"artifact": "0" * 64})
    other = table([gone], [(problem(32), gone.artifact)]).model_copy(update={"proven_on": other.proven_on})
    with pytest.raises(InputError, match=r"cannot be served here: it serves 1 problem .*; tune on this machine$"):
        autotuner.load(write(other, tmp_path / "best.json"))


@pytest.mark.parametrize("of", ["program", "library_sha256"])
def test_another_program_than_the_proven_one_is_refused(tmp_path: Path, artifact: Artifact, of: str) -> None:
    other = served(artifact).model_copy(update={of: "0" * 64})
    path = write(table([other], [(problem(32), artifact.digest)]), tmp_path / "best.json")
    with pytest.raises(InputError, match="another program than the one that was proven"):
        autotuner.load(path)


def test_an_object_that_is_not_the_one_of_the_library_is_refused(tmp_path: Path, artifact: Artifact) -> None:
    mine = built(problem(32), block=48)  # which no other test has
    shutil.copy(Path(artifact.path).parent / "unit.o", Path(mine.path).parent)
    path = write(table([served(mine)], [(problem(32), mine.digest)]), tmp_path / "best.json")
    with pytest.raises(InputError, match="another program than the one that was proven"):
        autotuner.load(path)
