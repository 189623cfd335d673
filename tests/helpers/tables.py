"""Tables of variants that are built, for tests of what serves them."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import autotuner
from autotuner.devices import DEVICES
from autotuner.devices.cpu.toolchain import CpuToolchain
from autotuner.forge.build import build
from autotuner.forge.family import Family
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.serve.c_source import write_c_folder
from autotuner.serve.folder import Source
from autotuner.serve.package import write_folder
from autotuner.tuning.workbench import Workbench, load_space, load_spaces
from autotuner.values.outcome import Artifact
from autotuner.values.problem import Problem
from autotuner.values.table import DispatchTable, Proven, Range, Ratio, TableEntry, TableVariant, Validated
from autotuner.values.variant import Value, Variant, digest_of
from tests.helpers.judging import artifact_of, default_of

ROOT = Path(__file__).parent.parent.parent
FOLDER = ROOT / "examples" / "own_kernel"
RATIO = Ratio(low=1.9, mid=2.0, high=2.1, processes=3)
GATE = Proven(passed=("G1.status",), unavailable=(), cases=1, worst_ratio=0.5)


def problem(length: int, causal: bool = False, heads: int = 2) -> SdpaProblem:
    return SdpaProblem(batch=1, heads=heads, seq_q=length, seq_k=length, head_dim=64, dtype="float32", causal=causal)


def built(like: SdpaProblem, block: int = 16) -> Artifact:
    """A variant of the family of examples/own_kernel, which is right on any length."""
    variant = Variant(
        family="rows", backend="cpu", impl="plain", parameters={"BLOCK_N": block, "EXP": "libm", "ROWS": 4}
    )
    return artifact_of(build(Family.load(FOLDER / "rows"), variant, like, CpuToolchain.discover()))


def one(like: SdpaProblem, torchs: Sequence[Problem] = ()) -> DispatchTable:
    """Such a variant serves that problem, and torch these."""
    made = built(like)
    return table([served(made)], [(like, made.digest), *((each, None) for each in torchs)])


def packed(of: DispatchTable, folder: Path) -> str:
    """Writes the package of variants of that family; what is said of it."""
    return write_folder(of, Source(CpuToolchain.discover(), FOLDER), folder)


def in_c(of: DispatchTable, folder: Path) -> None:
    """The same as C."""
    write_c_folder(of, Source(CpuToolchain.discover(), FOLDER), folder)


def shipped(like: SdpaProblem) -> Artifact:
    """The default variant of the CPU's space for a problem."""
    here = Workbench(load_space("sdpa_cpu").model_copy(update={"problems": (like,)}))
    return default_of(here)


def served(artifact: Artifact, trial: int = 0) -> TableVariant:
    return TableVariant(
        study="rows-abc",
        trial=trial,
        variant=artifact.variant,
        artifact=artifact.digest,
        program=artifact.program_hash,
        library_sha256=artifact.library_sha256,
        architecture=artifact.architecture,
        compiler=artifact.compiler,
        sources={},
        fixed={},
        proven=GATE,
    )


def table(
    variants: Sequence[TableVariant],
    entries: Sequence[tuple[Problem, str | None]],
    ranges: Sequence[Range] = (),
    device: str = "cpu",
    facts: Mapping[str, Value | bool] | None = None,
) -> DispatchTable:
    """Where what is here is what was proven, or a device of those facts."""
    kind = DEVICES[device]
    here = facts or kind.facts_in_torch()
    assert here is not None
    return DispatchTable(
        op=entries[0][0].op,
        device=device,
        proven_on={name: here[name] for name in kind.proven_by},
        environment={},
        allowed_loss=0.03,
        estimates=False,
        variants=tuple(variants),
        entries=tuple(
            TableEntry(problem=of, use=use, why="its own best", speedup=RATIO if use else None, baseline="flash")
            for of, use in entries
        ),
        ranges=tuple(ranges),
    )


def between(artifact: Artifact, low: SdpaProblem, high: SdpaProblem) -> Range:
    middle = low.model_copy(update={"seq_q": 50, "seq_k": 50})
    return Range(
        use=artifact.digest,
        like=low,
        low=low.shape,
        high=high.shape,
        together=("seq_q", "seq_k"),
        proven=GATE,
        validated=(Validated(problem=middle, baseline="flash", speedup=RATIO),),
    )


def write(of: DispatchTable, path: Path) -> Path:
    document = of.model_dump(mode="json")
    whole = {"schema_version": 3, "table_digest": digest_of(document), "table": document}
    text = json.dumps({**whole, "digest": digest_of(whole)})
    path.write_text(text)
    return path


def answer(of: DispatchTable, problem: SdpaProblem) -> tuple[str | None, str]:
    """What serves a problem, None: the baseline, and why: what was tuned first, then the first range that holds it."""
    for entry in of.entries:
        if entry.problem == problem:
            return entry.use, entry.why
    for each in of.ranges:
        sizes = zip(each.low, problem.shape, each.high, strict=True)
        alike = len({getattr(problem, name) for name in each.together}) <= 1
        within = alike and all(low <= size <= high for low, size, high in sizes)
        if within and problem.sized(each.like.shape) == each.like:
            return each.use, f"between tuned problems, timed on {len(each.validated)} others"
    for tried in of.left_out:
        if tried.problem == problem:
            return None, tried.why
    return None, "it was not tuned, and no variant is proven and timed around it"


def of_defaults(problems: Iterable[Problem], path: Path) -> Any:
    """Every problem served by the default variant of its space."""
    variants: list[TableVariant] = []
    entries: list[tuple[SdpaProblem, str | None]] = []
    for file in load_spaces("sdpa_cpu", 1, [str(each) for each in problems]):
        here = Workbench(file)
        artifact = default_of(here)
        variants.append(served(artifact, len(variants)))
        entries += [(each, artifact.digest) for each in file.problems if isinstance(each, SdpaProblem)]
    return autotuner.load(write(table(variants, entries), path))
