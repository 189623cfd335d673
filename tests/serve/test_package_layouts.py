"""Packages of shipped variants: views, groups of heads, masks, 16-bit elements and a workspace, against torch."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from autotuner.devices.cpu.toolchain import CpuToolchain
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.serve.folder import Source
from autotuner.serve.package import write_folder
from autotuner.values import config
from tests.helpers.tables import served, shipped, table

PROBLEMS = [
    "(2,4,48,64) float32 full",
    "(2,4:2,48,64) float32 causal bshd",
    "(2,4,48,64) bfloat16 causal packed",
    "(2,4,48,64) float32 causal window=7",
    "(2,4:2,48,64) float32 causal softcap=3",
    "(2,4,48,64) float32 causal sinks",
    "(2,4,48,64) float32 causal bias=alibi",
    "(2,4,48,64) float32 full bias=full",
    "(2,4,40x48,64) float32 full bias=heads",
    "(2,4:2,3x80,64) bfloat16 causal bottom_right lengths sinks=float32 bshd",
    "(1,4:2,1x80,64) float32 full bshd",
    "(2,4,48,64) float32 full lengths",
    "(2,4:2,3x80,64) float32 causal bottom_right lengths bshd",
]
SCRIPT = """
import sys
import warnings
import torch
sys.path.insert(0, PLACE)
from inside import load
from torch.nn.functional import scaled_dot_product_attention as sdpa
torch.set_num_threads(THREADS)
ours = load(strict=True)

def heads(batch, length, count):
    return torch.randn(batch, length, count, 64).transpose(1, 2)

def check(q, k, v, tolerance=2e-5, ours=ours, lengths=None, mask=None, **options):
    given = {**options, **({} if lengths is None else {"key_lengths": lengths})}
    expected = sdpa(q, k, v, **options) if mask is None else sdpa(q, k, v, mask, enable_gqa=q.shape[1] != k.shape[1])
    found = ours(q, k, v, **given)
    assert found.stride() == torch.empty_like(q).stride()
    torch.testing.assert_close(found, expected, atol=tolerance, rtol=tolerance)
    torch.library.opcheck(ours.op, (q, k, v) if lengths is None else (q, k, v, lengths), options)

check(*(torch.randn(2, 4, 48, 64) for _ in range(3)))
check(heads(2, 48, 4), heads(2, 48, 2), heads(2, 48, 2), is_causal=True, enable_gqa=True)
packed = torch.randn(2, 48, 12, 64).bfloat16().transpose(1, 2)
check(*packed.split(4, 1), tolerance=2e-2, is_causal=True)
check(heads(1, 1, 4), heads(1, 80, 2), heads(1, 80, 2), enable_gqa=True)

def ints(*lengths, dtype=torch.int32):
    return torch.tensor(lengths, dtype=dtype)

def mask(lengths, rows, keys, causal):
    # From the lengths alone, of each row and key.
    last = lambda length, i: length - rows + i if causal else keys
    return torch.tensor([[[[j < n and j <= last(n, i) for j in range(keys)] for i in range(rows)]] for n in lengths])

dense = [torch.randn(2, 4, 48, 64) for _ in range(3)]
cache = [heads(2, 3, 4), heads(2, 80, 2), heads(2, 80, 2)]
bottom = {"is_causal": True, "corner": "bottom_right", "enable_gqa": True}
check(*dense, lengths=ints(17, 48), mask=mask((17, 48), 48, 48, False))
check(*cache, lengths=ints(5, 80), mask=mask((5, 80), 3, 80, True), **bottom)
assert not ours(*dense, key_lengths=ints(0, 48))[0].any()

window = {"is_causal": True, "window": 7}
near = torch.tensor([[i - 7 <= j <= i for j in range(48)] for i in range(48)])
torch.testing.assert_close(ours(*dense, **window), sdpa(*dense, near), atol=2e-5, rtol=2e-5)
assert torch.equal(ours(*dense, near, **window), ours(*dense, **window))
torch.library.opcheck(ours.op, dense, {"is_causal": True, "window_left": 7.0})
few = [dense[0], *(t[:, :2].contiguous() for t in dense[1:])]
cap = {"is_causal": True, "enable_gqa": True, "softcap": 3.0}
scores = few[0] @ few[1].repeat_interleave(2, 1).mT / 8
weights = (3 * torch.tanh(scores / 3)).masked_fill(~torch.ones(48, 48).tril().bool(), -torch.inf).softmax(-1)
torch.testing.assert_close(ours(*few, **cap), weights @ few[2].repeat_interleave(2, 1), atol=2e-5, rtol=2e-5)
torch.testing.assert_close(load()(*few, **{**cap, "softcap": 4.0}).isfinite().all(), torch.tensor(True))
torch.library.opcheck(ours.op, few, cap)
def drawn(q, k, v, sinks, hidden):
    groups = q.shape[1] // k.shape[1]
    scores = (q.float() @ k.float().repeat_interleave(groups, 1).mT / 8).masked_fill(hidden, -torch.inf)
    whole = torch.cat([scores, sinks.float().view(-1, 1, 1).expand(*scores.shape[:-1], 1)], -1).softmax(-1)
    return whole[..., :-1] @ v.float().repeat_interleave(groups, 1)

sinks, later = torch.randn(4), ~torch.ones(48, 48).tril().bool()
want = drawn(*dense, sinks, later)
torch.testing.assert_close(ours(*dense, is_causal=True, sinks=sinks), want, atol=2e-5, rtol=2e-5)
again = load()  # a call that is known by now, and one that no variant serves
for _ in range(4):
    torch.testing.assert_close(again(*dense, is_causal=True, sinks=sinks + 1), drawn(*dense, sinks + 1, later))
assert again.served
torch.testing.assert_close(again(*dense, sinks=sinks), drawn(*dense, sinks, torch.tensor(False)))
def refused(**more):
    try:
        again.explain(*dense, is_causal=True, **more)
    except ValueError as error:
        return str(error)
assert refused(sinks=sinks[:3]) == "sinks is (3,), expected (4,): one a head"
assert "must be (heads,)" in again.explain(*dense, is_causal=True, sinks=sinks.double()).why
torch.library.opcheck(ours.op, dense, {"is_causal": True, "sinks": sinks})

def biased(q, k, v, bias):
    return ((q @ k.mT / 8) + bias).softmax(-1).nan_to_num(0) @ v

slopes = torch.tensor([0.5, 0.25, 0.125, 2.0])
way = torch.arange(48) - torch.arange(48).view(-1, 1)
sloped = biased(*dense, (slopes.view(-1, 1, 1) * way).masked_fill(later, -torch.inf))
for _ in range(3):
    torch.testing.assert_close(ours(*dense, is_causal=True, alibi_slopes=slopes), sloped, atol=2e-5, rtol=2e-5)
torch.testing.assert_close(load()(*dense, alibi_slopes=slopes), biased(*dense, slopes.view(-1, 1, 1) * way))
assert "alibi_slopes is (2,)" in refused(alibi_slopes=slopes[:2])
numbers = torch.randn(2, 4, 48, 48).masked_fill(torch.rand(2, 4, 48, 48) < 0.2, -torch.inf)
numbers[:, :, 5] = -torch.inf
for _ in range(3):
    for each in (numbers, numbers[:, :1], numbers[:, :1, :1]):  # of all heads, and of all rows
        torch.testing.assert_close(ours(*dense, each), biased(*dense, each), atol=2e-5, rtol=2e-5)
fewer = [dense[0][:, :, :40].contiguous(), *dense[1:]]
for each in (numbers[:1, :, :40], numbers[0, :, :40], numbers[0, 0, :40]):
    torch.testing.assert_close(ours(*fewer, each), biased(*fewer, each), atol=2e-5, rtol=2e-5)
torch.library.opcheck(ours.op, dense, {"bias": numbers})
said = load().explain(*fewer, numbers[:, :, :40])
assert not said.served and "not tuned" in said.why, said
torch.testing.assert_close(load()(*fewer, numbers[:, :, :40]), biased(*fewer, numbers[:, :, :40]))
odd = torch.randn(48, 49)[:, :48]
assert "at multiples of 16 bytes" in load().explain(*dense, odd).why
torch.testing.assert_close(load()(*dense, odd), biased(*dense, odd))
cached, n = [t.bfloat16() for t in cache], ints(5, 80)
late = torch.tensor([[[[j > c - 3 + i for j in range(80)] for i in range(3)]] for c in (5, 80)])
got = ours(*cached, key_lengths=n, sinks=sinks, **bottom)
torch.testing.assert_close(got.float(), drawn(*cached, sinks, late), atol=2e-2, rtol=2e-2)
with torch.no_grad():
    model = torch.compile(lambda *qkv, s: ours(*qkv, is_causal=True, sinks=s), backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(model(*dense, s=sinks), want, atol=2e-5, rtol=2e-5)

near = torch.tensor([[i - 6 <= j <= i + 2 for j in range(48)] for i in range(48)])  # a window that torch serves
torch.testing.assert_close(load()(*dense, window=(6, 2)), sdpa(*dense, near), atol=2e-5, rtol=2e-5)

# A mask beside the lengths is for torch. One that says something else is what counts.
given, other, seen = ints(17, 48), mask((5, 5), 48, 48, False), mask((17, 48), 48, 48, False)
same = ours(*dense, key_lengths=given)
for _ in range(3):
    assert torch.equal(ours(*dense, seen, key_lengths=given), same)
    left = load()
    left.reset_counters()
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        torch.testing.assert_close(left(*dense, other, key_lengths=given), sdpa(*dense, other))
    assert "hides other keys" in str(heard[0].message) and not left.served, left.counters
seen[0, 0, 0, 0] = False  # in place: it has been compared before
with warnings.catch_warnings(record=True) as heard:
    torch.testing.assert_close(load()(*dense, seen, key_lengths=given), sdpa(*dense, seen))
assert heard
torch.library.opcheck(ours.op, (*dense, given, None, None, None, mask((17, 48), 48, 48, False)))
try:
    ours.op(*dense, attn_mask=other)
except ValueError as error:
    assert "attn_mask is not supported by the op" in str(error)
else:
    raise AssertionError("a mask alone was taken")

def aside(why, q, k, v, lengths, seen, **options):
    other = load()
    said = other.explain(q, k, v, key_lengths=lengths, **options)
    assert not said.served and why in said.why, said
    other.reset_counters()
    check(q, k, v, ours=other, lengths=lengths, mask=seen, **options)
    assert not other.served and said.why in other.counters

short = [each[:, :, :40].contiguous() for each in dense]
aside("it was not tuned", *short, ints(17, 40), mask((17, 40), 40, 40, False))
aside("key_lengths must be (batch,) of int32", *dense, ints(17, 48, dtype=torch.int64), mask((17, 48), 48, 48, False))
aside("it was not tuned", *cache, None, mask((80, 80), 3, 80, True), **bottom)
lengths = ints(9, 30)
with torch.no_grad():
    model = torch.compile(lambda *qkv, n: ours(*qkv, key_lengths=n, **bottom), backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(model(*cache, n=lengths), ours(*cache, key_lengths=lengths, **bottom))
    beside = torch.compile(lambda *qkvm, n: load()(*qkvm, key_lengths=n), backend="aot_eager", fullgraph=True)
    fits = mask((17, 48), 40, 40, False)
    torch.testing.assert_close(beside(*short, fits, n=given), sdpa(*short, fits))
    try:
        beside(*short, other[..., :40, :40], n=given)
    except RuntimeError as error:
        assert "attn_mask hides other keys" in str(error), error
    else:
        raise AssertionError("a graph took a mask that says something else")
"""


@pytest.mark.slow
def test_every_layout_that_variants_serve_is_served(tmp_path: Path) -> None:
    variants, entries = [], []
    for place, text in enumerate(PROBLEMS):
        problem = SdpaProblem.parse(text)
        artifact = shipped(problem)
        variants.append(served(artifact, place))
        entries.append((problem, artifact.digest))
    write_folder(table(variants, entries), Source(CpuToolchain.discover(), config.spaces_dir()), tmp_path / "demo")
    (folder,) = (tmp_path / "demo" / "build").iterdir()
    folder.rename(tmp_path / "inside")
    script = SCRIPT.replace("PLACE", repr(str(tmp_path))).replace("THREADS", str(torch.get_num_threads()))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
