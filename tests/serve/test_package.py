"""A package in a process that has torch and no autotuner: who serves a call, and why; and what it refuses."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from autotuner.tuning.workbench import find_space_file
from tests.helpers.command_line import autotuner
from tests.helpers.tables import between, built, packed, problem, served, table

PRELUDE = """
import importlib.util, shutil, sys, threading
import torch
from pathlib import Path
from torch.nn.functional import scaled_dot_product_attention as sdpa

class NoAutotuner:
    def find_spec(self, name, *_):
        assert name.partition(".")[0] != "autotuner", name

sys.meta_path.insert(0, NoAutotuner())

def package(folder, name="autotuner_demo"):
    spec = importlib.util.spec_from_file_location(name, Path(folder) / "__init__.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    assert "autotuner" not in sys.modules
    return module

def qkv(length, heads=2, **options):
    return tuple(torch.randn(1, heads, length, 64, **options) for _ in range(3))


def close(found, expected):
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
"""

WARM = find_space_file("sdpa_cpu").read_text().replace('backend = "cpu"', 'backend = "cpu"\ncache = "warm"')
"""With a cold cache a race of so short a kernel takes several times as long, and nothing here is about that."""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two variants: 32 and what lies between 32 and 64, and 64 itself. Length 16 is torch's."""
    short, long = built(problem(32)), built(problem(64), block=32)
    entries = [(problem(32), short.digest), (problem(64), long.digest), (problem(16), None)]
    of = table([served(short), served(long, 1)], entries, [between(short, problem(32), problem(64))])
    target = tmp_path_factory.mktemp("package") / "demo"
    said = packed(of, target)
    assert said == f"pip install {target}, then: from autotuner_demo import attention"
    return target


def folder_of(project: Path) -> Path:
    (folder,) = (project / "build").iterdir()
    return folder


def passes(folder: Path, body: str) -> str:
    """Runs a program that has the package's folder in FOLDER; autotuner cannot be imported there. What it printed."""
    threads = f"torch.set_num_threads({torch.get_num_threads()})"  # as in the table
    script = f"{PRELUDE}\n{threads}\nFOLDER = {str(folder)!r}\n{body}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_its_variants_serve_what_the_table_says_and_torch_the_rest(project: Path) -> None:
    """By the code that `autotuner.load` runs too: tests/serve/test_load.py has every reason."""
    passes(
        folder_of(project),
        """
demo = package(FOLDER)
ours = demo.attention
for length, variant, why in [
    (32, "BLOCK_N=16", "its own best"), (50, "BLOCK_N=16", "between tuned problems, timed on 1 others"),
    (64, "BLOCK_N=32", "its own best"), (16, None, "its own best"), (100, None, "was not tuned"),
]:
    inputs = qkv(length)
    close(ours(*inputs), sdpa(*inputs))
    said = ours.explain(*inputs)
    assert said.served == (variant is not None) and why in said.why, said
    assert variant is None or variant in said.variant
assert ours.served == 0.6 and sum(ours.counters.values()) == 5
ours.reset_counters()
assert not ours.counters and ours.served == 0.0

given, lengths = qkv(32), torch.tensor([20], dtype=torch.int32)
close(ours(*given, key_lengths=lengths), sdpa(*given, (torch.arange(32) < 20).expand(32, 32)))
try:
    demo.load(strict=True)(*given, key_lengths=lengths)
except demo.NotServed as error:
    assert str(error).startswith("no variant serves this call: no variant was tuned with lengths of keys"), error
else:
    raise AssertionError

inputs = qkv(32, requires_grad=True)
demo.load(gradients="torch")(*inputs).sum().backward()
assert inputs[0].grad is not None
""",
    )


@pytest.mark.slow
def test_what_cannot_be_loaded_is_refused_in_one_line(project: Path, tmp_path: Path) -> None:
    """A damaged file, whatever it is; a torch without its ABI; a second copy."""
    said = passes(
        folder_of(project),
        f"""
real = torch.__version__
for name, version in [("_autotuner_demo.so", real), ("serving.py", real), ("metadata.json", real),
                      (None, "2.9.1"), (None, "3.0.0+cpu"), (None, real)]:
    copy = Path(shutil.copytree(FOLDER, Path({str(tmp_path)!r}) / f"{{name}}-{{version}}"))
    if name:
        content = bytearray((copy / name).read_bytes())
        content[len(content) // 2] ^= 1
        (copy / name).write_bytes(content)
    if version == real and not name:
        torch.__version__ = real
        package(FOLDER)
    torch.__version__ = version
    try:
        package(copy, "copy_of_" + str(name or version).partition(".")[0].lstrip("_"))
    except ImportError as error:
        print(str(error).partition(": damaged: ")[2] or error)
    else:
        raise AssertionError(name)
""",
    )
    lines = said.splitlines()
    for line, name in zip(lines, ("_autotuner_demo.so", "serving.py", "metadata.json"), strict=False):
        assert line == f"{name} is not the file that was exported; export it again"
    for line, version in zip(lines[3:], ("2.9.1", "3.0.0+cpu"), strict=False):
        assert line == (
            f"autotuner_demo needs the stable ABI of torch 2, from 2.10 on, not torch {version}: install another"
        )
    assert len(lines) == 6
    assert lines[5].endswith("is another copy of autotuner_demo loaded?")


@pytest.mark.slow
def test_what_kernels_loads_is_one_node_to_torchs_compiler_and_in_an_exported_program(project: Path) -> None:
    """kernels gives its module a name of its own, which nothing that is traced may import."""
    pytest.importorskip("kernels")
    passes(
        folder_of(project),
        f"""
import kernels
module = kernels.get_local_kernel(Path({str(project)!r}), backend="cpu")

class Model(torch.nn.Module):
    def forward(self, q, k, v):
        return module.attention(q, k, v)

length = torch.export.Dim("length", min=2, max=64)
with torch.no_grad():
    compiled = torch.compile(Model(), fullgraph=True, backend="aot_eager")
    program = torch.export.export(Model(), qkv(32), dynamic_shapes=({{2: length}},) * 3)
    for each in (qkv(32), qkv(40)):
        close(compiled(*each), sdpa(*each))
        close(program.module()(*each), sdpa(*each))
assert [str(node.target) for node in program.graph.nodes if node.op == "call_function"] == [
    "autotuner_demo.served.default"
]
assert module.attention.served == 1.0 and sum(module.attention.counters.values()) == 4, module.attention.counters
""",
    )


@pytest.mark.sampled(1, of="whole sweeps")
@pytest.mark.slow
@pytest.mark.timed
def test_what_was_tuned_is_exported_installed_and_called(tmp_path: Path) -> None:
    """By the commands of a user, to a process that has torch and no autotuner; without finals it serves an estimate.
    SDPA gets a mask for what the variant skips here, so that it is faster by far on any machine: a table leaves to
    torch what is not. kernels validates the digests of metadata.json against the folder with code of its own."""
    environment = {"AUTOTUNER_STORE": str(tmp_path / "studies.db")}
    (tmp_path / "warm.toml").write_text(WARM)
    briefly = ["--threads", "1", "--trials", "1", "--minutes", "3", "--patience", "0.1"]
    tune = ["tune", "warm.toml", "--problem", "(2,2,17x64,64) float32 causal lengths", *briefly, "--no-finals"]
    done = autotuner(tmp_path, *tune, **environment)
    assert done.returncode == 0, done.stderr
    done = autotuner(tmp_path, "export", "--format", "package", "--out", "demo", "--estimates", **environment)
    assert done.returncode == 0, done.stderr
    project, place = tmp_path / "demo", tmp_path / "place"
    assert json.loads((folder_of(project) / "metadata.json").read_text())["autotuner"]["estimates"]
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--no-index", "--target"]
    subprocess.run([*pip, str(place), str(project)], check=True)
    body = """
torch.set_num_threads(1)
inputs = [torch.randn(2, 2, queries, 64) for queries in (17, 64, 64)]
lengths = torch.tensor([9, 64], dtype=torch.int32)
seen = (torch.arange(64) < lengths.view(-1, 1, 1, 1)) & torch.ones(17, 64, dtype=torch.bool).tril()
close(ours(*inputs, key_lengths=lengths, is_causal=True), sdpa(*inputs, seen))
assert ours.served == 1.0 and not ours.explain(*inputs).served, ours.counters
ours.reset_counters()
"""
    passes(place, f"sys.path.insert(0, {str(place)!r})\nfrom autotuner_demo import attention as ours\n{body}")
    pytest.importorskip("kernels")
    passes(
        folder_of(project),
        f"""
import kernels
from kernels._rust import Digest, DigestAlgorithm, Metadata
ours = kernels.get_local_kernel(Path({str(project)!r}), backend="cpu").attention
{body}
digest = Metadata.read_from_file(Path(FOLDER) / "metadata.json").digest
digest.validate(Digest.hash_variant(DigestAlgorithm.SHA256, FOLDER))
""",
    )
