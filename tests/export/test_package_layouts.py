"""Packages of shipped variants: views, groups of heads, masks, 16-bit elements and a workspace, against torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from autotuner.export.folder import Source
from autotuner.export.package import write_folder
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.tuning.workbench import Workbench, load_space
from autotuner.values import config
from autotuner.values.outcome import Artifact
from tests.helpers.tables import served, table

PROBLEMS = [
    "(2,4,48,64) float32 full",
    "(2,4:2,48,64) float32 causal bshd",
    "(2,4,48,64) bfloat16 causal packed",
    "(1,4:2,1x80,64) float32 full bshd",
]
SCRIPT = """
import sys
import torch
from torch.nn.functional import scaled_dot_product_attention as sdpa
sys.path.insert(0, PLACE)
from inside import load
torch.set_num_threads(THREADS)
ours = load(strict=True)

def heads(batch, length, count):
    return torch.randn(batch, length, count, 64).transpose(1, 2)

def check(q, k, v, tolerance=2e-5, **options):
    found, expected = ours(q, k, v, **options), sdpa(q, k, v, **options)
    assert found.stride() == torch.empty_like(q).stride()
    torch.testing.assert_close(found, expected, atol=tolerance, rtol=tolerance)
    torch.library.opcheck(ours.op, (q, k, v), options)

check(*(torch.randn(2, 4, 48, 64) for _ in range(3)))
check(heads(2, 48, 4), heads(2, 48, 2), heads(2, 48, 2), is_causal=True, enable_gqa=True)
packed = torch.randn(2, 48, 12, 64).bfloat16().transpose(1, 2)
check(*packed.split(4, 1), tolerance=2e-2, is_causal=True)
check(heads(1, 1, 4), heads(1, 80, 2), heads(1, 80, 2), enable_gqa=True)
"""


@pytest.mark.slow
def test_every_layout_that_variants_serve_is_served(tmp_path: Path) -> None:
    variants, entries = [], []
    for place, text in enumerate(PROBLEMS):
        problem = SdpaProblem.parse(text)
        bench = Workbench(load_space("sdpa_cpu").model_copy(update={"problems": (problem,)}))
        (artifact,) = bench.build_all([bench.space.default_index])
        assert isinstance(artifact, Artifact), artifact
        variants.append(served(artifact, place))
        entries.append((problem, artifact.digest))
    write_folder(table(variants, entries), Source(bench.toolchain, config.spaces_dir()), tmp_path / "demo")
    (folder,) = (tmp_path / "demo" / "build").iterdir()
    folder.rename(tmp_path / "inside")
    script = SCRIPT.replace("PLACE", repr(str(tmp_path))).replace("THREADS", str(torch.get_num_threads()))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
