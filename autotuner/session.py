"""Everything a command needs to work on one space on this machine: device, valid points, terms, executor."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from math import exp
from pathlib import Path
from statistics import fmean

from autotuner import config
from autotuner.architecture import architecture
from autotuner.backends import Backend
from autotuner.backends.settings import CpuSettings, CudaSettings, make_cpu_backend, make_cuda_backend
from autotuner.build import build
from autotuner.cuda_probe import CudaFacts, probe
from autotuner.errors import InfrastructureError, InputError, SpaceError
from autotuner.evaluate import RaceJob
from autotuner.executors import Executor
from autotuner.executors.local import LocalExecutor
from autotuner.fingerprint import cpu_device, cuda_device, usable_cpus, version_of
from autotuner.kernel import Kernel
from autotuner.model import Model
from autotuner.outcome import Artifact, Device, Interval, Measurement
from autotuner.recipe import built_from
from autotuner.search import Driver, Listener, Point
from autotuner.space import Space, SpaceFile
from autotuner.store import Store, queries
from autotuner.terms import Terms
from autotuner.toolchain import AnyToolchain, CudaToolchain, Toolchain, has_cublas
from autotuner.variant import Variant, digest_of
from autotuner.verdict import Fault

JOBS_PER_PROCESS = 50
"""So many variants are judged by one device process, which keeps references and baselines, before a fresh one."""

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


def default_space() -> str:
    """The space to tune on this machine: the GPU's where torch, driver and compiler can use one, else the CPU's."""
    usable = not version_of("torch").endswith("+cpu") and config.nvcc() is not None
    return "sdpa_cuda" if usable and isinstance(probe(), CudaFacts) else "sdpa_cpu"


def load_space(name: str, threads: int | None = None) -> SpaceFile:
    """The space file of that name or path; `threads` replaces what it allows. Raises SpaceError."""
    file = SpaceFile.load(find_space_file(name))
    if threads is not None and file.backend != "cpu":
        raise SpaceError(f"{file.path}: --threads: only a CPU space has threads; leave it out")
    return file if threads is None else file.model_copy(update={"threads": threads})


def device_for(file: SpaceFile, arch: str | None = None) -> Device:
    """The device that a space is for: this machine's CPU or GPU, or, with `arch`, a GPU architecture that is not here.

    Raises SpaceError or InputError when there is none.
    """
    if arch is not None and file.backend != "cuda":
        raise SpaceError(f"{file.path}: --arch: only a CUDA space is compiled for an architecture; leave it out")
    return device_of(file.backend, arch, threads_allowed(file) if file.backend == "cpu" else None)


def device_of(backend: str, arch: str | None = None, threads: int | None = None) -> Device:
    """The GPU here, or an architecture that is not here; or this machine's CPU, of which variants may use so many
    threads, all if not said. Raises InputError when there is no GPU."""
    if backend == "cpu":
        return cpu_device(threads or usable_cpus())
    device = cuda_device(arch)
    return device.model_copy(update={"facts": {**device.facts, "CUBLAS": has_cublas()}})


def toolchain_for(device: Device) -> AnyToolchain:
    """The compiler for a device. Raises ToolchainError with the remedy."""
    if device.backend == "cpu":
        return Toolchain.discover()
    return CudaToolchain.discover(architecture(f"sm_{device.facts['SM']}"))


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

    def __init__(self, file: SpaceFile, arch: str | None = None) -> None:
        """Finds the device, the kernel family and the compiler and enumerates the space. With `arch`, such as sm_89,
        a CUDA space is built for that architecture, whatever device is here.

        Raises SpaceError, KernelError, ToolchainError, or InputError when there is no device.
        """
        self.device = device_for(file, arch)
        self.space = Space.enumerate(file, self.device.facts)
        self.kernel = Kernel.find(file.family, near=Path(file.path).resolve().parent)
        self.toolchain = toolchain_for(self.device)
        self._admit_every_implementation()
        self.built_from = digest_of([built_from(self.kernel, file.backend, self.toolchain), version_of("torch")])
        threads = int(self.device.facts.get("THREADS_ALLOWED", 1))
        self.terms = Terms(problems=file.problems, cache=file.cache, threads=threads, seeds=fresh_seeds())

    def _admit_every_implementation(self) -> None:
        """Refuses a space whose parameters are not those that its sources read, before anything is built."""
        column = self.space.parameters.index("IMPL")
        for value in sorted(set(self.space.rows[:, column].tolist())):
            index = int((self.space.rows[:, column] == value).argmax())
            self.kernel.admit(self.variant(index), self.space.file.problems[0])
            self._refuse_fixed_lengths(self.variant(index).impl)

    def _refuse_fixed_lengths(self, impl: str) -> None:
        """A variant that is compiled for one pair of lengths cannot serve problems of several."""
        parameter = self.kernel.implementation(self.space.file.backend, impl).fixed_lengths
        several = len({(problem.seq_q, problem.seq_k) for problem in self.space.file.problems}) > 1
        if parameter and several and 1 in self.space.file.parameters[parameter].values:
            where = f"{self.space.file.path}: parameters.{parameter}"
            raise SpaceError(f"{where}: 1 compiles the lengths in, but the problems have several; leave it out")

    def variant(self, index: int) -> Variant:
        """The variant at a point of the space."""
        return Variant.of(self.space.file.family, self.space.file.backend, self.space.point(index))

    def build_all(self, points: Sequence[int]) -> list[Artifact | Fault]:
        """The variants at these points, built side by side on all CPUs."""

        def one(point: int) -> Artifact | Fault:
            return build(self.kernel, self.variant(point), self.terms.compiled_for, self.toolchain)

        with ThreadPoolExecutor(usable_cpus()) as pool:
            return list(pool.map(one, points))

    def driver(
        self,
        store: Store,
        executor: Executor,
        sampler: str = "evolution",
        seed: int = 0,
        listen: Listener = lambda _: None,
        first: Sequence[Point] = (),
    ) -> Driver:
        """The driver of this space's study; a new one judges the points `first` that are valid here before others."""
        return Driver(
            store,
            self.space,
            self.device,
            self.terms,
            executor,
            sampler,
            seed,
            listen,
            built_from=self.built_from,
            first=[point for point in first if self.space.index_of(point) is not None],
        )

    def make_backend(self) -> Callable[[], Backend]:
        """What makes the backend, in whichever process will use it."""
        return backend_factory(self.device, self.toolchain, self.kernel)

    def executor(self) -> LocalExecutor:
        """Processes on this machine that judge variants for this space."""
        return executor_for(self.device, self.make_backend())


def backend_factory(device: Device, toolchain: AnyToolchain, kernel: Kernel) -> Callable[[], Backend]:
    """What makes the backend of a device, in whichever process will use it."""
    if isinstance(toolchain, CudaToolchain):
        return partial(make_cuda_backend, CudaSettings(toolchain=toolchain, kernel=kernel))
    cache_bytes = int(device.facts["L3_BYTES"] or device.facts["L2_BYTES"] or 32 << 20)
    return partial(make_cpu_backend, CpuSettings(toolchain=toolchain, kernel=kernel, cache_bytes=cache_bytes))


def executor_for(device: Device, make: Callable[[], Backend]) -> LocalExecutor:
    """Processes on this machine. Beside a GPU builds run on all CPUs but one, which launches and times."""
    if device.backend == "cpu":
        return LocalExecutor(make, preload=("autotuner.backends.cpu",))
    return LocalExecutor(
        make,
        preload=("autotuner.backends.cuda",),
        builders=max(1, usable_cpus() - 1),
        overlap=True,
        jobs_per_process=JOBS_PER_PROCESS,
    )


def fresh_seeds() -> tuple[int, int, int, int]:
    """Secret seeds for a new study; an old one keeps its own."""
    a, b, c, d = (secrets.randbits(48) for _ in range(4))
    return (a, b, c, d)


def best_points(store: Store, wanted: str, count: int = 8) -> list[Point]:
    """The best points of a study, the best first. Raises StoreError when there is no such study."""
    entries = queries.leaderboard(store, queries.resolve_study(store, wanted), count)
    return [entry.variant.point for entry in entries]


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
