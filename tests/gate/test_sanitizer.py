"""G8: right variants pass under sanitizers, planted faults are found, and a missing tool is no pass."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from autotuner.devices.cpu.sanitizer import CpuSanitizer
from autotuner.devices.cpu.toolchain import CpuToolchain
from autotuner.devices.cuda.sanitizer import CudaSanitizer
from autotuner.devices.cuda.toolchain import CudaToolchain
from autotuner.forge.build import build
from autotuner.forge.family import Family
from autotuner.forge.toolchain import Toolchain
from autotuner.gate import sanitizer
from autotuner.gate.sanitizer import SanitizerTool, sanitized, small_cases
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.tuning.workbench import Workbench, load_space
from autotuner.values import config
from autotuner.values.gate_report import CheckResult
from autotuner.values.outcome import Artifact
from autotuner.values.problem import Problem
from autotuner.values.variant import Value, Variant
from autotuner.values.verdict import Fault, Verdict
from tests.helpers import recorded
from tests.helpers.files import text
from tests.helpers.judging import KERNELS, artifact_of, runs, wrapper
from tests.helpers.points import first_of
from tests.helpers.processes import gone

MUTANTS = Path(__file__).parent.parent / "mutants"


def tiled(block_m: int, block_n: int, **fixed: int) -> Artifact:
    """An artifact with these tiles, compiled for the fixed lengths."""
    parameters = {"BLOCK_M": block_m, "BLOCK_N": block_n}
    built = recorded.artifact(block_m)
    variant = built.variant.model_copy(update={"parameters": parameters})
    macros = {**built.macros, **{name: str(value) for name, value in fixed.items()}}
    return built.model_copy(update={"variant": variant, "macros": macros})


LIKE = SdpaProblem(batch=1, heads=1, seq_q=8, seq_k=8, head_dim=64, dtype="float32")
CASES = small_cases(LIKE, tiled(32, 64))
CODES = ["G8.memory", "G8.race"]
A_RACE = pytest.mark.sampled(1, of="races under a sanitizer")
OF_MEMORY, UNDEFINED = pytest.mark.sampled(1, "of memory"), pytest.mark.sampled(1, "undefined")

Found = tuple[tuple[CheckResult, ...], Fault | None]


def sanitize(
    folder: Path,
    toolchain: Toolchain,
    parameters: dict[str, Value],
    like: Problem = LIKE,
    cases: Sequence[Problem] = CASES,
    deadline_s: float = 100,
) -> Found:
    """G8 on a variant of the family's only implementation on the toolchain's backend, or of the first."""
    kernel = Family.load(folder)
    backend = "cuda" if isinstance(toolchain, CudaToolchain) else "cpu"
    impl = next(iter(kernel.table(backend)))
    variant = Variant(family=kernel.document.family, backend=backend, impl=impl, parameters=parameters)
    artifact = artifact_of(build(kernel, variant, like, toolchain))
    return sanitized(tool_of(kernel, toolchain), artifact, cases, lambda _: None, deadline_s=deadline_s)


def tool_of(family: Family, toolchain: Toolchain) -> SanitizerTool:
    return CudaSanitizer() if isinstance(toolchain, CudaToolchain) else CpuSanitizer(family, toolchain)


def faulty(toolchain: Toolchain, fault: str, deadline_s: float = 100) -> Found:
    return sanitize(KERNELS / "sanitized", toolchain, {"FAULT": fault}, deadline_s=deadline_s)


def require_pass(found: Found) -> None:
    checks, fault = found
    assert fault is None
    assert [(check.code, check.status, check.note) for check in checks] == [(code, "pass", None) for code in CODES]


def require_shipped(workbench: Workbench, variant: Variant, like: Problem, toolchain: Toolchain) -> None:
    """It passes on cases around its own tile."""
    artifact = artifact_of(build(workbench.family, variant, like, toolchain))
    cases = small_cases(like, artifact)
    require_pass(sanitized(tool_of(workbench.family, toolchain), artifact, cases, lambda _: None))


def fault_of(found: Found) -> Fault:
    checks, fault = found
    assert fault is not None
    assert checks[-1].code == fault.code
    assert [check.status for check in checks] == ["pass"] * (len(checks) - 1) + ["fail"]
    return fault


# The CPU --------------------------------------------------------------------------------------------------------------


def test_the_cases_are_small_and_one_is_above_the_tile() -> None:
    assert len(CASES) == 3
    assert max(case.flops for case in CASES) < 1e7
    assert any(case.shape[2] > 32 and case.shape[3] > 64 for case in CASES)
    assert all(case.shape[2] % 2 and case.shape[3] % 2 for case in CASES)
    fixed = small_cases(LIKE, tiled(32, 64, SEQ_Q=40, SEQ_K=48))
    assert {case.shape[2:4] for case in fixed} == {(40, 48)}
    assert len(fixed) == 2


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("impl", ["simd", "scalar"])
def test_a_shipped_cpu_kernel_passes(impl: str, toolchain: Toolchain) -> None:
    workbench = Workbench(load_space("sdpa_cpu"))
    variant = workbench.variant(first_of(workbench.space, impl))
    threaded = variant.model_copy(update={"parameters": {**variant.parameters, "THREADS": 2, "SYNC_POLICY": 4}})
    require_shipped(workbench, threaded, LIKE, toolchain)


@pytest.mark.slow
def test_what_the_faulty_kernels_are_made_from_passes(toolchain: Toolchain) -> None:
    require_pass(faulty(toolchain, "none"))


@pytest.mark.parametrize(
    ("mutant", "access", "size"),
    [
        ("reads_past_v", "READ", 2 * 17 * 64 * 4),
        pytest.param("writes_past_o", "WRITE", 2 * 33 * 64 * 4, marks=[pytest.mark.slow, OF_MEMORY]),
    ],
)
def test_an_access_outside_a_tensor_is_found(mutant: str, access: str, size: int, toolchain: Toolchain) -> None:
    fault = fault_of(sanitize(MUTANTS / "systemic", toolchain, {"MUTANT": mutant}))
    assert (fault.code, fault.verdict) == ("G8.memory", Verdict.CORRUPTING)
    assert f"heap-buffer-overflow; {access} of size 4" in fault.detail
    assert "systemic.cpp:" in fault.detail
    assert f"{size}-byte region" in fault.detail
    assert fault.case == str(CASES[0])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "words"),
    [
        pytest.param("reads_past_k", "heap-buffer-overflow; READ of size 4", marks=OF_MEMORY),
        pytest.param("heap_overflow", "volatile char", marks=OF_MEMORY),
        pytest.param("use_after_free", "heap-use-after-free; READ of size 4", marks=OF_MEMORY),
        pytest.param("stack_overflow", "index 5 out of bounds", marks=UNDEFINED),
        pytest.param("signed_overflow", "signed integer overflow", marks=UNDEFINED),
    ],
)
def test_a_fault_of_memory_that_no_output_shows_is_found(name: str, words: str, toolchain: Toolchain) -> None:
    """Rows past the end of K that are read and dropped, and what is done to memory of the variant's own."""
    fault = fault_of(faulty(toolchain, name))
    assert (fault.code, fault.verdict) == ("G8.memory", Verdict.CORRUPTING)
    assert words in fault.detail
    assert "faulty.cpp:" in fault.detail
    assert "\n" not in fault.detail


@pytest.mark.slow
@A_RACE
@pytest.mark.parametrize("name", ["same_row", "unlocked_counter"])
def test_a_race_that_no_output_shows_is_found(name: str, toolchain: Toolchain) -> None:
    fault = fault_of(faulty(toolchain, name))
    assert (fault.code, fault.verdict) == ("G8.race", Verdict.NONDETERMINISTIC)
    assert fault.detail.startswith("data race; ")
    assert "faulty.cpp:" in fault.detail  # the other access may be named by what was inlined around it


@pytest.mark.slow
@A_RACE
@pytest.mark.parametrize("body", ["", 'set -- -D_FORTIFY_SOURCE=2 "$@"'])
def test_a_race_over_copied_memory_is_found(body: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also by a compiler that checks the sizes of copies, as those of some distributions do."""
    monkeypatch.setenv("CXX", str(wrapper(tmp_path, body, monkeypatch)))
    fault = fault_of(sanitize(MUTANTS / "systemic", CpuToolchain.discover(), {"MUTANT": "thread_not_awaited"}))
    assert (fault.code, fault.verdict) == ("G8.race", Verdict.NONDETERMINISTIC)


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("name", "verdict", "words"),
    [
        ("ends", Verdict.CRASHED, "ended with status 0 before all cases"),
        ("aborts", Verdict.CRASHED, "signal 6"),
        ("refuses", Verdict.LAUNCH_FAILED, "status 1 (outside the variant's domain)"),
    ],
)
def test_an_end_without_a_finding_is_no_pass(name: str, verdict: Verdict, words: str, toolchain: Toolchain) -> None:
    fault = fault_of(faulty(toolchain, name))
    assert (fault.code, fault.verdict) == ("G8.memory", verdict)
    assert words in fault.detail
    assert fault.case == str(CASES[1 if name == "refuses" else 0])


@pytest.mark.timed
@pytest.mark.slow
def test_a_variant_that_hangs_is_killed_at_the_deadline(cache: Path, toolchain: Toolchain) -> None:
    before = set((cache / "building").glob("*"))
    fault = fault_of(faulty(toolchain, "hangs", deadline_s=2))
    assert (fault.code, fault.verdict) == ("G8.memory", Verdict.HUNG)
    assert gone(cache / "building")
    assert set((cache / "building").glob("*")) <= before


@pytest.mark.slow
def test_a_fence_is_not_taken_for_a_race(toolchain: Toolchain) -> None:
    checks, fault = faulty(toolchain, "fence")
    assert fault is None
    assert [check.status for check in checks] == ["pass", "unavailable"]
    assert "atomic_thread_fence" in str(checks[1].note)


# Tools that are missing or do not work --------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("body", "note"),
    [
        ('case "$*" in *-fsanitize=thread*) echo "g++: error: cannot find -ltsan" >&2; exit 1;; esac', "-ltsan"),
        (
            'case "$*" in *-fsanitize=thread*) while [ $# -gt 1 ]; do shift; done\n'
            'printf "#!/bin/sh\\necho FATAL: ThreadSanitizer: unexpected memory mapping; exit 66" > "$1"\n'
            'chmod +x "$1"; exit 0;; esac',
            "unexpected memory mapping",
        ),
    ],
)
def test_a_sanitizer_that_cannot_be_had_is_unavailable(
    body: str, note: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", str(wrapper(tmp_path, body, monkeypatch)))
    checks, fault = faulty(CpuToolchain.discover(), "same_row")
    assert fault is None
    assert [(check.code, check.status) for check in checks] == list(zip(CODES, ["pass", "unavailable"], strict=True))
    assert note in str(checks[1].note)
    assert any("-fsanitize=thread" in run for run in runs(tmp_path))


def test_sources_that_have_changed_are_not_taken_for_the_artifacts(tmp_path: Path, toolchain: Toolchain) -> None:
    folder = Path(shutil.copytree(KERNELS / "sanitized", tmp_path / "sanitized"))
    kernel = Family.load(folder)
    variant = Variant(family="sanitized", backend="cpu", impl="faulty", parameters={"FAULT": "none"})
    artifact = artifact_of(build(kernel, variant, LIKE, toolchain))
    source = folder / "faulty.cpp"
    source.write_text(source.read_text() + "\n")
    checks, fault = sanitized(tool_of(kernel, toolchain), artifact, CASES, lambda _: None)
    assert fault is None
    assert [check.status for check in checks] == ["unavailable"] * 2
    assert "have changed" in str(checks[0].note)


HALF = LIKE.model_copy(update={"dtype": "float16"})
HALF_CASES = small_cases(HALF, tiled(64, 32))


def on_cuda(toolchain: CudaToolchain, mutant: str, deadline_s: float = 100) -> Found:
    parameters: dict[str, Value] = {"MUTANT": mutant, "BLOCK_N": 32}
    return sanitize(MUTANTS / "systemic", toolchain, parameters, HALF, HALF_CASES, deadline_s)


def require_unavailable(found: Found, words: str) -> None:
    checks, fault = found
    assert fault is None
    assert [(check.code, check.status) for check in checks] == [(code, "unavailable") for code in CODES]
    assert all(words in str(check.note) for check in checks), checks


def tool(folder: Path, body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts a compute-sanitizer that does `body` before any other."""
    path = folder / "compute-sanitizer"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    monkeypatch.setattr(config, "compute_sanitizer", lambda: str(path))


def says(*lines: str) -> str:
    """Writes what the process writes to its progress, the tool's last argument."""
    return f'for last; do :; done; printf "%s\\n" {" ".join(lines)} > "$last"'


ALL_DONE = says("ready", "done", "done", "done")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ('echo "========= COMPUTE-SANITIZER"; echo "========= Error: Device not supported"; exit 1', "not supported"),
        (ALL_DONE, "it printed nothing"),
        (f'{ALL_DONE}; echo "========= Error: Internal Sanitizer Error"; exit 0', "Internal Sanitizer Error"),
    ],
)
def test_a_compute_sanitizer_without_a_summary_is_unavailable(
    body: str, words: str, tmp_path: Path, nvcc: CudaToolchain, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool(tmp_path, body, monkeypatch)
    require_unavailable(on_cuda(nvcc, "none"), words)


def test_a_summary_without_errors_is_a_pass_only_after_every_case(
    tmp_path: Path, nvcc: CudaToolchain, monkeypatch: pytest.MonkeyPatch
) -> None:
    summary = 'echo "========= ERROR SUMMARY: 0 errors"'
    tool(tmp_path, f"{ALL_DONE}; {summary}", monkeypatch)
    require_pass(on_cuda(nvcc, "none"))
    tool(tmp_path, f"{says('ready', 'done', 'done')}; {summary}", monkeypatch)
    fault = fault_of(on_cuda(nvcc, "none"))
    assert (fault.code, fault.verdict, fault.case) == ("G8.memory", Verdict.CRASHED, str(HALF_CASES[2]))


@pytest.mark.timed
def test_a_kernel_that_hangs_is_killed_at_the_deadline(
    tmp_path: Path, nvcc: CudaToolchain, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool(tmp_path, f"{says('ready')}; sleep 1000", monkeypatch)
    fault = fault_of(on_cuda(nvcc, "none", deadline_s=1))
    assert (fault.code, fault.verdict) == ("G8.memory", Verdict.HUNG)
    assert gone(tmp_path)


@pytest.mark.skipif(torch.cuda.is_available(), reason="for a machine without a device")
def test_without_a_device_it_is_unavailable(
    tmp_path: Path, nvcc: CudaToolchain, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool(tmp_path, 'while [ "$1" != -m ]; do last=$1; shift; done; exec "$last" "$@"', monkeypatch)
    require_unavailable(on_cuda(nvcc, "none"), "libcuda.so.1")


# Reports --------------------------------------------------------------------------------------------------------------


def test_a_report_of_compute_sanitizer_is_one_line() -> None:
    found = str(sanitizer.finding(text("memcheck.txt")))
    assert found.startswith("Invalid __global__ write of size 2 bytes, at variant_kernel+0x1a0, by thread (31,0,0)")
    assert "1 bytes after the nearest allocation" in found
    assert "Frame" not in found


def test_a_warning_of_racecheck_is_no_finding() -> None:
    race = text("racecheck.txt")
    assert sanitizer.finding(race.format("Warning", 0, "s", 1)) is None
    found = str(sanitizer.finding(race.format("Error", 1, "", 0)))
    assert found == (
        "Error: Race reported between Write access at variant_kernel+0xb0, "
        "and Read access at variant_kernel+0x390 [508 hazards]"
    )


# CUDA -----------------------------------------------------------------------------------------------------------------

gpu = pytest.mark.gpu


@pytest.mark.parametrize(
    ("mutant", "code", "words"),
    [
        pytest.param("writes_past_o", "G8.memory", "Invalid __global__ write", marks=gpu),
        pytest.param("reads_past_k_and_drops_it", "G8.memory", "Invalid __global__ read", marks=gpu),
        pytest.param("missing_barrier", "G8.race", "Race reported between", marks=gpu),
    ],
)
def test_a_planted_fault_on_cuda_is_found(mutant: str, code: str, words: str, device: CudaToolchain) -> None:
    fault = fault_of(on_cuda(device, mutant))
    assert fault.code == code
    assert words in fault.detail


@pytest.mark.parametrize("mutant", [pytest.param("none", marks=gpu)])
def test_a_right_kernel_on_cuda_passes(mutant: str, device: CudaToolchain) -> None:
    require_pass(on_cuda(device, mutant))


@pytest.mark.parametrize("impl", [pytest.param(impl, marks=gpu) for impl in ("scalar", "wmma", "mma", "cublas")])
def test_the_shipped_cuda_kernels_pass(impl: str, device: CudaToolchain) -> None:
    workbench = Workbench(load_space("sdpa_cuda"))
    variant = workbench.variant(first_of(workbench.space, impl))
    require_shipped(workbench, variant, workbench.conditions.compiled_for, device)
