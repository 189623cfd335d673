"""G0.conduct: what the code of a variant may not do, found before its library is loaded."""

import shutil
import signal
import time
import tomllib
from pathlib import Path

import pytest
import torch

from autotuner.devices.cpu.toolchain import CpuToolchain
from autotuner.devices.cuda import cubin
from autotuner.devices.cuda.toolchain import CudaToolchain
from autotuner.forge.build import build
from autotuner.forge.family import Effect, Family
from autotuner.forge.loaded_variant import LoadedVariant
from autotuner.gate import checks
from autotuner.gate.checks import broken_effect
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.values.conditions import Conditions
from autotuner.values.variant import Variant
from autotuner.values.verdict import Fault, Verdict
from tests.helpers.files import text
from tests.helpers.judging import KERNELS, PROBLEM, artifact_of, cpu_judge, judged, launched, tiny
from tests.mutants.expectations import MUTANTS

ATTACKS = {each["code"]: each for each in tomllib.loads(text("misconduct.toml"))["attacks"]}
HOSTS = tomllib.loads((MUTANTS / "hosts" / "hosts.toml").read_text())


def planted(folder: Path, attack: str, told: str = "") -> Family:
    """The family tiny, whose variant asks the attack whether it is to be wrong."""
    shutil.copytree(KERNELS / "tiny", folder / "tiny")
    source = folder / "tiny" / "plain.cpp"
    asks = source.read_text().replace("  return AT_OK;", "  return wrong() ? AT_NO_THREADS : AT_OK;")
    assert "wrong()" in asks
    source.write_text(asks.replace('#include "outer.h"', f'#include "outer.h"\n{attack}'))
    document = folder / "tiny" / "kernel.toml"
    document.write_text(document.read_text().replace("[cpu.plain]", f"[cpu.plain]\n{told}"))
    return Family.load(folder / "tiny")


def found(family: Family, toolchain: CpuToolchain, threads: bool = False) -> str | None:
    made = build(family, tiny(), PROBLEM, toolchain)
    if isinstance(made, Fault):
        return made.detail
    state = family.claims(made.variant, PROBLEM).state is not None
    return toolchain.misconduct(Path(made.path).parent, threads, state)


def launch(family: Family, toolchain: CpuToolchain, times: int = 1) -> None:
    """What asks whether it is to be wrong is not."""
    variant = LoadedVariant(artifact_of(build(family, tiny(), PROBLEM, toolchain)))
    lengths = (PROBLEM.seq_q, PROBLEM.seq_k, PROBLEM.seq_k, PROBLEM.seq_q)
    *inputs, output = (torch.ones(PROBLEM.batch, PROBLEM.heads, each, PROBLEM.head_dim) for each in lengths)
    for _ in range(times):
        launched(variant, PROBLEM, tuple(inputs), (output,))


@pytest.mark.slow
@pytest.mark.parametrize("attack", ATTACKS)
def test_what_a_variant_may_not_do_is_found(tmp_path: Path, toolchain: CpuToolchain, attack: str) -> None:
    said = found(planted(tmp_path, attack), toolchain, ATTACKS[attack].get("threads", False))
    assert ATTACKS[attack]["said"] in (said or "")


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("impl", HOSTS)
def test_what_a_variant_on_cuda_may_not_do_is_found(nvcc: CudaToolchain, impl: str) -> None:
    if "on the device" in HOSTS[impl]["said"] and cubin.find_cuobjdump(nvcc.nvcc) is None:
        pytest.skip("there is no cuobjdump")
    variant = Variant(family="hosts", backend="cuda", impl=impl, parameters={"MUTANT": "none", "BLOCK_N": 32})
    made = build(Family.load(MUTANTS / "hosts"), variant, SdpaProblem.parse("(1,2,64,64) float16"), nvcc)
    said = made.detail if isinstance(made, Fault) else nvcc.misconduct(Path(made.path).parent, False, False)
    assert HOSTS[impl]["said"] in (said or "")


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("harmless", "told", "threads"),
    [
        ("#include <math.h>\nstatic int wrong() { return (int)(expf(1.0f) + tanh(2.0)) == 0; }", "", False),
        ("#include <vector>\nstatic int wrong() { std::vector<int> v; v.push_back(1); return v[0] - 1; }", "", False),
        ('static const int t[2] = {0}; static int wrong() { return t[__builtin_cpu_is("intel")]; }', "", False),
        ("static int n; static int wrong() { return ++n < 0; }", 'state = "it counts its launches"', False),
        ("#include <pthread.h>\nstatic int wrong() { pthread_mutex_t m{}; return pthread_mutex_lock(&m); }", "", True),
        ("static int wrong() { volatile __int128 n = 7; volatile _Float16 h = 7; return n / 3 > h * n; }", "", False),
    ],
)
def test_what_variants_need_is_no_misconduct(
    tmp_path: Path, toolchain: CpuToolchain, harmless: str, told: str, threads: bool
) -> None:
    assert found(planted(tmp_path, harmless, told), toolchain, threads) is None


def test_no_header_of_a_family_is_in_what_the_build_adds(tmp_path: Path, toolchain: CpuToolchain) -> None:
    family = planted(tmp_path, "static int wrong() { return 0; }")
    for name in ("pthread.h", "cpuid.h", "tensors.h"):
        (family.folder / name).write_text("#error")
    assert found(family, toolchain) is None


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("read", "write"),
    [
        ("kmovw %%k7, %0", "kmovw %0, %%k7"),
        ("vmovd %%xmm31, %0", "vmovd %0, %%xmm31"),
        (
            "stmxcsr -64(%%rsp); mov -64(%%rsp), %0; and $4, %0",
            "xorps %%xmm0, %%xmm0; cvtsi2ss %0, %%xmm1; divss %%xmm0, %%xmm1",
        ),
        ("fnstsw %w0; and $4, %0", "fld1; fldz; fdivrp; fstp %%st(0)"),
    ],
)
def test_no_launch_finds_in_a_register_what_another_has_left(
    tmp_path: Path, toolchain: CpuToolchain, read: str, write: str
) -> None:
    if "avx512dq" not in Path("/proc/cpuinfo").read_text():
        pytest.skip("there are such registers with AVX-512 only")
    lines = f'unsigned n = 0; asm volatile("{read}" : "+a"(n)); asm volatile("{write}" : : "r"(7));'
    family = planted(tmp_path, f"static unsigned wrong() {{ {lines} return n; }}")
    launch(family, toolchain, times=3)


def test_what_a_variant_defines_is_its_own(tmp_path: Path, toolchain: CpuToolchain) -> None:
    """Not what the process has under that name: this is a constant here, and can be written to in the library of C++,
    which has one of that name too and for the whole process."""
    name = "_ZGVNSt11__timepunctIcE2idE"
    unique = f'".pushsection .rodata; .globl {name}; .type {name}, @gnu_unique_object; .size {name}, 8; {name}: .quad 7'
    own = f'asm({unique}; .popsection"); extern "C" __attribute__((visibility("default"))) const volatile long {name};'
    family = planted(tmp_path, f"{own} static bool wrong() {{ return {name} != 7; }}")
    assert found(family, toolchain) is None
    launch(family, toolchain)


def test_the_gate_refuses_it_before_it_is_loaded(tmp_path: Path, toolchain: CpuToolchain) -> None:
    attack = "__attribute__((constructor)) static void early() { __builtin_trap(); } static int wrong() { return 0; }"
    family = planted(tmp_path, attack)
    conditions = Conditions(problems=(PROBLEM,), threads=1, seeds=(1, 2, 3, 4))
    with cpu_judge(toolchain, family) as executor:
        result = judged(executor, tiny(), conditions)
    assert (result.verdict, result.fault.code) == (Verdict.BUILD_FAILED, "G0.conduct")
    assert "it runs code when it is loaded" in result.fault.detail


# Claims of a kernel.toml about the machine code -----------------------------------------------------------------------


CODE = "a" * 60 + "b"


def test_a_search_that_never_ends_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "SEARCH_S", 0.2)
    before = signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)[1]
    started = time.process_time()
    for effect in (Effect(contains="(a+)+$", reason="slow"), Effect(lacks="(a+)+$", reason="slow")):
        said = broken_effect([effect], CODE)
        assert "the search for /(a+)+$/ did not end within 0.2 s" in (said or "")
    assert time.process_time() - started < 20
    assert (signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)[1]) == before


def test_a_search_that_ends_says_what_it_finds() -> None:
    assert broken_effect([Effect(contains="a+b", reason="there")], CODE) is None
    assert broken_effect([Effect(contains="c", reason="not there")], CODE) == "the machine code lacks /c/: not there"
    assert broken_effect([Effect(lacks="b", reason="there")], CODE) == "the machine code contains /b/: there"
