"""What a kind of device says of itself: a record of small parts. Only what `module` names imports torch."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from autotuner.forge.toolchain import Toolchain
from autotuner.values.errors import InputError
from autotuner.values.outcome import Device
from autotuner.values.variant import Value

if TYPE_CHECKING:
    from autotuner.devices.process import DeviceProcess
    from autotuner.values.profile import Counted, Side


class Finding(NamedTuple):
    """One point of what a bug report needs of a machine."""

    what: str
    said: str
    remedy: str = ""
    """What to do about it; "": nothing is wrong."""
    blocks: bool = True
    """With a remedy: nothing can be tuned before it."""

    @classmethod
    def refused(cls, what: str, error: Exception, blocks: bool = True) -> Finding:
        """From an error whose message ends with the remedy."""
        said, _, remedy = str(error).rpartition("; ")
        return cls(what, said or remedy, remedy if said else "mend that", blocks)


class Wishes(NamedTuple):
    """What a user may ask of a device; None: nothing was said."""

    threads: int | None = None
    """Threads that the variants and the baseline may use; None: all."""
    arch: str | None = None
    """An architecture to compile for, whatever device is here."""
    devices: str | None = None
    """Which of several devices."""


class Chosen(NamedTuple):
    """The devices that a sweep runs on; they are of one model."""

    device: Device
    lanes: tuple[str | None, ...] = (None,)
    """For each device the value of `DeviceKind.shown_by` for its process; None: what the driver sees."""
    locks: tuple[str, ...] = ()
    """By these names one autotuner of this machine has the devices; nothing where they are not here."""
    words: tuple[str, ...] = ()
    """What `--devices` calls each of them here, such as cuda:1; nothing where there is no choice."""

    @property
    def environments(self) -> list[dict[str, str]]:
        """What the numbers of each chosen device depend on."""
        return [{**self.device.environment, "device": lane} for lane in self.lanes if lane is not None]


class Cage(NamedTuple):
    """What a process that runs variants may do, beyond what every one needs, and which walls it has. A kind of device
    switches off the walls that its driver or its libraries do not bear."""

    reads: tuple[str, ...] = ()
    """Patterns of paths that it also reads and executes."""
    writes: tuple[str, ...] = ()
    """Patterns of paths in which it also writes, such as the nodes of a device."""
    files: bool = True
    """It reads only what it needs, and writes into its own folder alone."""
    network: bool = True
    """It has none."""
    memory: bool = True
    """It has no more data than the machine has memory."""
    processes: bool = True
    """It starts none, and no other program, unless it runs a sanitizer."""
    compiles: tuple[str, ...] = ()
    """Element types for which libraries that the baselines call write machine code as they run. With any other one it
    cannot make memory executable that is writable, or was."""
    tools: bool = True
    """A process that runs a sanitizer has the walls on files, network and system calls too."""
    references: bool = False
    """References are kept in the cache: those that it will ask for are drawn up before it enters."""


class Packaging(NamedTuple):
    """What an export that is machine code says of its kind of device."""

    folder: Callable[[Toolchain], str]
    """As Hugging Face's `kernels` calls it in the name of a build, such as cpu or cu130."""
    backend: Callable[[Mapping[str, Value | bool]], dict[str, Any]]
    """From the facts that it is proven by: what its metadata calls it."""
    accelerator: bool
    """Whether code has to be brought to the device before it runs."""
    instructions: Callable[[], list[str]] = list
    """Features of the processor here that the machine code may use."""
    copied: Mapping[str, Path] = MappingProxyType({})
    """Python that an export for it has a copy of, by the name of the copy."""
    needs: Callable[[bytes], str | None] = lambda host: None
    """From the object of a variant's host side, or its source: what would have to be there at run time, in the version
    that was proven, and is in no export; None: nothing."""


def _no_counters(side: Side, report: Path | None) -> Counted:
    raise InputError("devices of this kind have no counters that `profile` knows")


class DeviceKind(NamedTuple):
    """All that the other rooms ask of a kind of device."""

    name: str
    preference: int
    """When none is named, the kind with the largest is tuned for, of those that can be used here."""
    choices: frozenset[str]
    """Which wishes have a meaning: names of the fields of `Wishes`."""
    missing: Callable[[], str | None]
    """Why nothing can be tuned for such a device here, in words; None when it can."""
    choose: Callable[[Wishes], Chosen]
    """Raises InputError with the remedy when there is no such device."""
    toolchain: Callable[[Device], Toolchain]
    """Raises ToolchainError with the remedy."""
    module: str
    """What a process that uses the device imports."""
    open: Callable[[Toolchain, Device], DeviceProcess]
    """Opens the device in the process that calls it. Raises InfrastructureError when the device does not work."""
    builders: Callable[[int], int]
    """How many variants are built at a time beside that many devices."""
    reference_flops: float = 1e12
    """Operations a second at which references of large problems are computed, about."""
    begin: Callable[[], object] = lambda: None
    """Begins what `missing` waits for."""
    make_ready: Callable[[Toolchain], object] = lambda toolchain: None
    """Builds what the harness itself runs on such a device, for the process that will open it."""
    copies: int = 2
    """Bytes of the machine's memory, over those of a problem's tensors, that judging it takes."""
    proven_by: tuple[str, ...] = ()
    """Names of the facts that say that another device is as good: where one differs, what was proven and timed on a
    device of this kind says nothing."""
    facts_in_torch: Callable[[], Mapping[str, Value | bool] | None] = lambda: None
    """Those that `proven_by` names, of the device that torch takes in a user's program; None where it sees none.
    Imports torch."""
    packaging: Packaging | None = None
    """None: variants are exported as json alone."""
    cage: Cage = Cage()
    """What the processes that run variants may do."""
    overlap: bool = False
    """Builds run beside what is judged. Else, as where they share CPUs, building and judging take turns."""
    shown_by: str = ""
    """The variable of the environment that says which such devices a process sees, none where it is empty; "": there
    is no such variable."""
    versions: Callable[[], Mapping[str, str]] = dict
    """Versions, beside torch's own, that the answers of torch's kernels depend on; imports torch."""
    cluster_unit: str = ""
    """What a cluster's scheduler calls one such device; "": a resource that nodes are given by hand, `unit`."""
    jobs_per_process: int = 1
    """Variants that one process judges, which keeps references and baselines, before a fresh one."""
    findings: Callable[[], Iterable[Finding]] = tuple
    """What a bug report needs of such devices here, their compilers and drivers. What stops a sweep is found out again
    where a sweep begins, by `choose`, `toolchain` and the trial of the compilers."""
    counted: Callable[[Side, Path | None], Counted] = _no_counters
    """The hardware counters of one forward, with a file for all that the tool found where one is wanted. Raises
    InputError with the remedy where nothing can be counted."""
    who_disturbs: Callable[[Chosen], str] = lambda chosen: ""
    """Who uses the devices now besides this process and those that it started, and what holds them back, in a line; ""
    where nobody can be seen. It may take a second."""

    @property
    def unit(self) -> str:
        """What the nodes of a cluster offer that have such a device."""
        return self.cluster_unit or f"autotuner_{self.name}"


def device_names(kind: str, chosen: Chosen) -> tuple[str, ...]:
    """Under which names the store knows devices of this machine."""
    return tuple(f"{socket.gethostname()}/{lock}" for lock in chosen.locks or (kind,))
