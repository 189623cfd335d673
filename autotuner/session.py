"""Everything a command needs to work on one space on this machine: device, valid points, terms, executor."""

from __future__ import annotations

import secrets
from contextlib import closing
from functools import partial
from math import exp
from pathlib import Path
from statistics import fmean

from autotuner import config
from autotuner.backends.settings import CpuSettings, make_cpu_backend
from autotuner.build import Toolchain, built_from
from autotuner.errors import InfrastructureError, InputError, SpaceError
from autotuner.evaluate import RaceJob
from autotuner.executors import Executor
from autotuner.executors.local import LocalExecutor
from autotuner.fingerprint import cpu_device, cpu_facts, usable_cpus, version_of
from autotuner.kernel import Kernel
from autotuner.model import Model
from autotuner.outcome import Device, Fault, Interval, Measurement
from autotuner.search import Driver, Listener
from autotuner.space import Space, SpaceFile
from autotuner.store import Store, queries
from autotuner.terms import Terms
from autotuner.variant import Variant, digest_of

DEFAULT_SPACE = "sdpa_cpu"
TIE = 0.005
"""Ratios within this of 1 are a tie."""


def find_space_file(name: str) -> Path:
    """A space file by path, or by name among those that are shipped. Raises SpaceError with the names there are."""
    path = Path(name)
    if path.suffix == ".toml" or path.exists():
        return path
    shipped = config.spaces_dir() / f"{name}.toml"
    if shipped.is_file():
        return shipped
    known = ", ".join(sorted(file.stem for file in config.spaces_dir().glob("*.toml")))
    raise SpaceError(f"no space {name!r}: give a .toml file or one of {known}")


def load_space(name: str, threads: int | None = None) -> SpaceFile:
    """The space file of that name or path; `threads` replaces what it allows. Raises SpaceError."""
    file = SpaceFile.load(find_space_file(name))
    if file.backend != "cpu":
        raise SpaceError(f"{file.path}: backend: there is no backend {file.backend!r} in this version, expected 'cpu'")
    return file if threads is None else file.model_copy(update={"threads": threads})


def threads_allowed(file: SpaceFile) -> int:
    """How many threads the variants and the baseline may use. Raises SpaceError when the machine has fewer CPUs."""
    cpus = usable_cpus()
    if file.threads == "all":
        return cpus
    if file.threads > cpus:
        raise SpaceError(f"{file.path}: threads: {file.threads} asked for, this machine has {cpus} CPUs for us")
    return file.threads


class Session:
    """One space on this machine."""

    def __init__(self, file: SpaceFile) -> None:
        """Finds the kernel family and the compiler and enumerates the space.

        Raises SpaceError, KernelError or ToolchainError.
        """
        threads = threads_allowed(file)
        self.device: Device = cpu_device(threads)
        self.space = Space.enumerate(file, cpu_facts(threads))
        self.kernel = Kernel.find(file.family, near=Path(file.path).resolve().parent)
        self.toolchain = Toolchain.discover()
        self._admit_every_implementation()
        self.built_from = digest_of([built_from(self.kernel, file.backend, self.toolchain), version_of("torch")])
        self.terms = Terms(problems=file.problems, cache=file.cache, threads=threads, seeds=_fresh_seeds())

    def _admit_every_implementation(self) -> None:
        """Refuses a space whose parameters are not those that its sources read, before anything is built."""
        column = self.space.parameters.index("IMPL")
        for value in sorted(set(self.space.rows[:, column].tolist())):
            index = int((self.space.rows[:, column] == value).argmax())
            self.kernel.admit(self.variant(index), self.space.file.problems[0])

    def variant(self, index: int) -> Variant:
        """The variant at a point of the space."""
        return Variant.of(self.space.file.family, self.space.file.backend, self.space.point(index))

    def driver(
        self,
        store: Store,
        executor: Executor,
        sampler: str = "evolution",
        seed: int = 0,
        listen: Listener = lambda _: None,
    ) -> Driver:
        """The driver of this space's study."""
        return Driver(
            store, self.space, self.device, self.terms, executor, sampler, seed, listen, built_from=self.built_from
        )

    def executor(self) -> LocalExecutor:
        """Processes on this machine that judge variants for this space."""
        cache_bytes = int(self.device.facts["L3_BYTES"] or self.device.facts["L2_BYTES"] or 32 << 20)
        settings = CpuSettings(toolchain=self.toolchain, kernel=self.kernel, cache_bytes=cache_bytes)
        return LocalExecutor(partial(make_cpu_backend, settings), preload=("autotuner.backends.cpu",))


def _fresh_seeds() -> tuple[int, int, int, int]:
    """Secret seeds for a new study; an old one keeps its own."""
    a, b, c, d = (secrets.randbits(48) for _ in range(4))
    return (a, b, c, d)


class Race(Model):
    """The best variant of a study timed again in a fresh process: against its baseline or against itself."""

    study: str
    variant: Variant
    against: str
    ratio: Interval
    """t_variant / t_opponent."""
    blocks: int

    @property
    def winner(self) -> str | None:
        """The side that is faster beyond the tie band of +-0.5 %, by the whole 95 % interval; None for a tie."""
        if self.ratio.high < 1 - TIE:
            return "the variant"
        return self.against if self.ratio.low > 1 + TIE else None


def race_best(store: Store, wanted: str | None, itself: bool, blocks: int = 60) -> Race:
    """Times the best variant of a study again, in `blocks` blocks: against a second load of the same library (the A/A
    test), or against its baseline, which frees the search estimate of its bias towards lucky measurements.

    Raises StoreError, and InputError when nothing was measured yet or the variant cannot be built any more.
    """
    name = queries.resolve_study(store, wanted)
    found = queries.best(store, name)
    if found is None:
        raise InputError(f"{name} has no variant measured to the end yet; run `autotuner tune` first")
    session = Session(SpaceFile.model_validate_json(queries.study(store, name).space_document))
    update = {"baselines": found.record.session.calibration.baselines, "min_blocks": blocks, "max_blocks": blocks}
    variant, artifact = found.outcome.variant, found.outcome.artifact
    assert artifact is not None  # what was measured was built
    job = RaceJob(
        artifact=artifact.digest,
        variant=variant,
        rival=variant if itself else None,
        terms=session.terms.model_copy(update=update),
    )
    with closing(session.executor()) as executor:
        executor.submit(job)
        done = executor.wait()
    measured = done[1] if done else None
    if isinstance(measured, Fault):
        raise InputError(f"trial {found.entry.number} of {name} cannot be timed again: {measured.detail}")
    if not isinstance(measured, Measurement):
        raise InfrastructureError(f"the race gave no result: {measured}")
    low, mid, high = (
        exp(fmean(getattr(t.log_ratio, end) for t in measured.timings)) for end in ("low", "median", "high")
    )
    against = "its second load" if itself else f"SDPA {', '.join(sorted(set(job.terms.baselines)))}"
    ratio = Interval(low=low, median=mid, high=high)
    return Race(study=name, variant=variant, against=against, ratio=ratio, blocks=len(measured.timings[0].variant_us))
