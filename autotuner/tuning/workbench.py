"""Everything a command needs to work on one space on this machine: device, valid points, terms, executor.

What searches, and what speaks to the store, is imported where a search begins: most commands need neither, and it takes
longer than all else they import.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from autotuner.build.build import build
from autotuner.build.build_inputs import built_from
from autotuner.build.family import Kernel
from autotuner.devices.backend import Backend
from autotuner.devices.cuda.architecture import architecture
from autotuner.devices.cuda.probe import CudaFacts, probe
from autotuner.devices.facts import chosen_devices, cpu_device, cuda_device, usable_cpus, version_of
from autotuner.devices.settings import CpuSettings, CudaSettings, make_cpu_backend, make_cuda_backend
from autotuner.devices.toolchain import AnyToolchain, CudaToolchain, Toolchain, has_cublas
from autotuner.run.executor import Executor
from autotuner.run.local import LocalExecutor
from autotuner.spaces.space import Space, SpaceFile
from autotuner.values import config
from autotuner.values.errors import InputError, SpaceError
from autotuner.values.outcome import Artifact, Device
from autotuner.values.terms import Terms
from autotuner.values.variant import Variant, digest_of
from autotuner.values.verdict import Fault

if TYPE_CHECKING:
    from autotuner.store import Store
    from autotuner.tuning.driver import Driver, Listener
    from autotuner.tuning.plan import Start

PROGRAM = ("autotuner.cli.app", "autotuner.tuning.workbench", "autotuner.tuning.driver")
"""What of this is imported here the zygote imports as well: each process begins by importing the main program, whatever
it is, and that is what takes long in it."""

JOBS_PER_PROCESS = 250
"""Variants judged by one device process, which keeps references and baselines, before a fresh one takes over."""

LEARNS = "evolution"
"""The sampler that learns from other studies."""


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


def device_for(file: SpaceFile, arch: str | None = None, devices: Sequence[CudaFacts] = ()) -> Device:
    """The device that a space is for: this machine's CPU, the chosen GPUs, which are of one model, or this machine's
    first; or, with `arch`, a GPU architecture that is not here.

    Raises SpaceError or InputError when there is none.
    """
    if arch is not None and file.backend != "cuda":
        raise SpaceError(f"{file.path}: --arch: only a CUDA space is compiled for an architecture; leave it out")
    if devices:
        _refuse_devices_of_a_cpu(file)
    return device_of(file.backend, arch, threads_allowed(file) if file.backend == "cpu" else None, devices)


def _refuse_devices_of_a_cpu(file: SpaceFile) -> None:
    if file.backend != "cuda":
        raise SpaceError(f"{file.path}: --devices: only a CUDA space is tuned on GPUs; leave it out")


def device_of(
    backend: str, arch: str | None = None, threads: int | None = None, devices: Sequence[CudaFacts] = ()
) -> Device:
    """The chosen GPUs or the first one here, or an architecture that is not here; or this machine's CPU, of which
    variants may use `threads` threads, all if None. Raises InputError when there is no GPU."""
    if backend == "cpu":
        return cpu_device(threads or usable_cpus())
    device = cuda_device(arch, devices[0] if devices else None)
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

    def __init__(self, file: SpaceFile, arch: str | None = None, devices: str | None = None) -> None:
        """Finds the device, the kernel family and the compiler and enumerates the space. With `arch`, such as sm_89,
        a CUDA space is built for that architecture, whatever device is here. `devices` names the GPUs to judge on, as
        `chosen_devices` takes them.

        Raises SpaceError, KernelError, ToolchainError, or InputError when there is no such device.
        """
        if devices is not None:
            _refuse_devices_of_a_cpu(file)
        self._devices = chosen_devices(devices) if devices is not None else ()
        self.device = device_for(file, arch, self._devices)
        self.space = Space.enumerate(file, self.device.facts)
        self.kernel = Kernel.find(file.family, near=Path(file.path).resolve().parent)
        self.toolchain = toolchain_for(self.device)
        self._admit_every_implementation()
        self.built_from = digest_of([built_from(self.kernel, file.backend, self.toolchain), version_of("torch")])
        threads = int(self.device.facts.get("THREADS_ALLOWED", 1))
        self.terms = Terms(
            problems=file.problems, cache=file.cache, objective=file.objective, threads=threads, seeds=fresh_seeds()
        )

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

    @property
    def default_digest(self) -> str:
        """Digest of the variant at the space's default point."""
        return self.variant(self.space.default_index).digest

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
        start: Start | None = None,
    ) -> Driver:
        """The driver of this space's study. A new study has what it starts from, of `start.first` the points that are
        valid here."""
        from autotuner.tuning.driver import Driver
        from autotuner.tuning.plan import Plan, Start

        given = start or Start()
        valid = given._replace(first=[point for point in given.first if self.space.index_of(point) is not None])
        environments = [{**self.device.environment, "device": each.uuid} for each in self._devices]
        where = (self.space, self.device, self.terms)
        plan = Plan(*where, sampler, seed, self.built_from, start=valid, environments=environments)
        return Driver(store, executor, plan, listen)

    def start(self, store: Store, sampler: str, like: str | None = None, cold: bool = False) -> Start:
        """What a new study of this space starts from, nothing where it has begun: the known points of the nearest
        related study, for a sampler that learns from them, or else those of the study `like`.

        Raises StoreError when there is no such study, and InputError when it has nothing to give.
        """
        from autotuner.tuning.plan import Start
        from autotuner.tuning.study_identity import study_record
        from autotuner.tuning.transfer import start

        if like is not None and cold:
            raise InputError("--from starts from a study and --cold from none; leave one of them out")
        if cold or (like is None and sampler != LEARNS):
            return Start()
        record = study_record(self.space, self.device, self.terms, built_from=self.built_from)
        return start(store, record, self.space, like)

    def make_backend(self) -> Callable[[], Backend]:
        """What makes the backend, in whichever process will use it."""
        return backend_factory(self.device, self.toolchain, self.kernel)

    def executor(self) -> LocalExecutor:
        """Processes on this machine that judge variants for this space."""
        return executor_for(self.device, self.make_backend(), self._devices)


def backend_factory(device: Device, toolchain: AnyToolchain, kernel: Kernel) -> Callable[[], Backend]:
    """What makes the backend of a device, in whichever process will use it."""
    if isinstance(toolchain, CudaToolchain):
        return partial(make_cuda_backend, CudaSettings(toolchain=toolchain, kernel=kernel))
    cache_bytes = int(device.facts["L3_BYTES"] or device.facts["L2_BYTES"] or 32 << 20)
    return partial(make_cpu_backend, CpuSettings(toolchain=toolchain, kernel=kernel, cache_bytes=cache_bytes))


def builders_beside(device: Device, lanes: int) -> int:
    """How many builders run beside `lanes` device lanes; none on the CPU, where building and judging take turns."""
    return 0 if device.backend == "cpu" else max(1, usable_cpus() - lanes)


def executor_for(device: Device, make: Callable[[], Backend], devices: Sequence[CudaFacts] = ()) -> LocalExecutor:
    """Processes on this machine: a lane for each GPU, for the first that is seen if none was chosen.

    Beside GPUs builds run on all CPUs but one for each lane, which launches and times. On the CPU they have all, in
    turns with the judging, however few threads a variant may have.
    """
    program = tuple(name for name in PROGRAM if name in sys.modules)
    if device.backend == "cpu":
        return LocalExecutor(make, preload=("autotuner.devices.cpu.device", *program), builders=usable_cpus())
    lanes = tuple(each.uuid for each in devices) or (None,)
    return LocalExecutor(
        make,
        preload=("autotuner.devices.cuda.device", *program),
        builders=builders_beside(device, len(lanes)),
        overlap=True,
        jobs_per_process=JOBS_PER_PROCESS,
        devices=lanes,
    )


def require_same_device(then: Device, now: Device) -> None:
    """Raises InputError when a study's numbers come from another model of device than the one here."""
    if (then.backend, then.name) != (now.backend, now.name):
        raise InputError(f"the study is of {then.name}, this is {now.name}: run its finals on a device of that model")


def fresh_seeds() -> tuple[int, int, int, int]:
    """Secret seeds for a new study; an old one keeps its own."""
    a, b, c, d = (secrets.randbits(48) for _ in range(4))
    return (a, b, c, d)
