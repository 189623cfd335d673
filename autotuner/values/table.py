"""The dispatch table: which variant serves which problem, and where the baseline does because it is as fast.

It is part of an export and is all that a program needs that calls tuned variants. It says of each variant what was
proven, and of each problem what was confirmed. It matches by facts of the device and fields of the problem; it has no
marketing names, and no index that means something else after an update.
"""

from typing import Literal, Self

from pydantic import ConfigDict, Field, model_validator

from autotuner.values.model import Model
from autotuner.values.problem import Problem, Shape
from autotuner.values.ratio import Speedup
from autotuner.values.validation import refuse, show
from autotuner.values.variant import Value, Variant

LARGEST_BYTES = 64 << 20
"""Of an export that is read, at most."""


class Ratio(Speedup):
    """t_baseline / t_variant in fresh processes; an end is null where these were too few to bound it."""

    processes: int


class Proven(Model):
    """What the gate found of a variant, in figures."""

    passed: tuple[str, ...] = Field(description="codes of the checks that passed, in order")
    unavailable: tuple[str, ...] = Field(description="codes of the checks that could not run; absence is no pass")
    cases: int = Field(description="outputs compared with the float64 reference")
    worst_ratio: float | None = Field(description="largest error over all cases, in units of its tolerance")
    looser: tuple[str, ...] = Field(default=(), description="where kernel.toml loosens the gate, with the reason")
    could_miss: float | None = Field(
        default=None,
        description="the least rate of wrong launches that the longest soak shows with probability 95 %; null: no soak",
    )
    memory: str | None = Field(default=None, description="whether a memory sanitizer was run, or why not")


class TableVariant(Model):
    """A variant that serves problems."""

    study: str
    trial: int
    variant: Variant
    artifact: str = Field(
        pattern="^[0-9a-f]{64}$",
        description="digest of the build: variant, compile-time part, compiler, flags, sources",
    )
    program: str = Field(description="program hash: a build that has another one is another program")
    library_sha256: str = Field(description="of the built library: one that has another one is not what was judged")
    architecture: str
    compiler: str
    sources: dict[str, str] = Field(description="SHA-256 of each source and header, by folder/name")
    fixed: dict[str, int] = Field(description="lengths that it is compiled for, by macro; empty: it serves any")
    proven: Proven


class TableEntry(Model):
    """What serves a problem that was tuned."""

    problem: Problem
    use: str | None = Field(description="artifact of the variant; null: the baseline")
    why: str
    speedup: Ratio | None = Field(default=None, description="of the variant in use; null where the baseline is used")
    loss: float = Field(default=0.0, description="how much slower than the problem's own best, relative")
    baseline: str = Field(description="the baseline that it was compared with, the fastest that took the problem")


class Validated(Model):
    """A problem that was not tuned, on which the variant of a range was judged and timed, in fresh processes."""

    problem: Problem
    baseline: str = Field(description="the baseline that it was compared with, the fastest that took the problem")
    speedup: Ratio


class LeftOut(Model):
    """A problem that was tried for a variant, and that no range with it reaches."""

    problem: Problem
    use: str = Field(description="artifact of the variant")
    why: str


class Range(Model):
    """Problems between those that were tuned, served by a variant that is proven for any length. It was judged and
    timed on some of them, and was faster than the baseline on each, as on each problem of the range that was tuned."""

    use: str = Field(description="artifact of the variant")
    like: Problem = Field(description="what is compiled in, and all other fields but the sizes, is as here")
    low: Shape = Field(description="the least of each size")
    high: Shape = Field(description="the largest of each size")
    together: tuple[str, ...] = Field(default=(), description="sizes that are one number in each of its problems")
    proven: Proven = Field(description="what the gate found on these lengths")
    validated: tuple[Validated, ...] = Field(min_length=1)


COUNTS = ("THREADS_ALLOWED", "SM", "MULTIPROCESSORS")
"""Facts of devices that a package asks torch for again."""


class DispatchTable(Model):
    """The dispatch table of an export."""

    op: str
    device: str = Field(description="kind of device")
    proven_on: dict[str, Value | bool] = Field(description="facts of the device; where they differ, nothing is served")
    environment: dict[str, str] = Field(description="versions and settings of the session that confirmed it")
    allowed_loss: float = Field(description="relative, that a variant may cost a problem for the table to be smaller")
    estimates: bool = Field(description="whether variants are in it that no finals confirmed")
    variants: tuple[TableVariant, ...]
    entries: tuple[TableEntry, ...] = Field(min_length=1)
    ranges: tuple[Range, ...] = ()
    left_out: tuple[LeftOut, ...] = Field(default=(), description="lengths that were tried and are in no range")

    @model_validator(mode="after")
    def _names_what_it_has(self) -> Self:
        known = {each.artifact for each in self.variants}
        named = [(f"entries[{index}]", each.use) for index, each in enumerate(self.entries)]
        named += [(f"ranges[{index}]", each.use) for index, each in enumerate(self.ranges)]
        for name, use in named:
            if use is not None and use not in known:
                raise refuse(f"found {use[:16]}, expected one of the variants", f"{name}.use")
        for name in COUNTS:
            if isinstance(value := self.proven_on.get(name), str):
                raise refuse(f"found {show(value)}, expected a whole number", f"proven_on.{name}")
        return self


class TableFile(Model):
    """The part of an export that is needed to serve calls; the rest of the document is its proof."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    schema_version: Literal[3]
    table_digest: str = Field(description="SHA-256 of the table's canonical JSON")
    table: DispatchTable
    digest: str = Field(description="SHA-256 of the canonical JSON of all other fields")
