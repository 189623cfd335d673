"""The CPU of the machine as a kind of device: C++ variants, built by the machine's compiler."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from autotuner.devices.cpu import machine
from autotuner.devices.cpu.counters import count
from autotuner.devices.cpu.toolchain import CpuToolchain
from autotuner.devices.environment import builders, environment, own_processes, usable_cpus
from autotuner.devices.kind import Cage, Chosen, DeviceKind, Finding, Packaging, Wishes
from autotuner.forge.build import require_compilers
from autotuner.forge.toolchain import Toolchain, ask
from autotuner.values.errors import InputError
from autotuner.values.outcome import Device
from autotuner.values.problem import ITEM_BYTES
from autotuner.values.variant import Value
from autotuner.values.versions import processor

if TYPE_CHECKING:
    from autotuner.devices.process import DeviceProcess

COPIED = {"machine.py": Path(machine.__file__)}
"""Python that the packages of every kind of device have a copy of: what it says of the processor stands in each."""
UNKNOWN_CACHE_BYTES = 32 << 20
"""The last-level cache where the system does not say its size."""
COMPILES = ("float16", "bfloat16") if platform.machine() == "x86_64" else tuple(ITEM_BYTES)
"""oneDNN writes code for products of 16-bit types; elsewhere than on x86 nobody has looked for which ones it does."""
WATCHED_S = 0.5
"""Seconds over which it is watched who uses CPU time."""
LEAST = 0.05
"""Of a CPU: who uses less is not named."""
SIBLINGS = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
NAMED = 4
"""Processes at most that are named."""


def choose(wishes: Wishes) -> Chosen:
    """This machine's CPU. Raises InputError when it has fewer CPUs than threads are asked for."""
    cpus = usable_cpus()
    threads = wishes.threads or cpus
    if threads > cpus:
        raise InputError(f"threads: {threads} asked for, this machine has {cpus} CPUs for us")
    device = Device(backend="cpu", name=_cpu_name(), facts=machine.cpu_facts(threads), environment=environment())
    return Chosen(device)


def _cpu_name() -> str:
    """The processor's name with what tells models of one name apart: family, model, stepping."""
    fields = processor()
    if not fields:
        return platform.processor() or platform.machine()
    name = " ".join(fields.get("model name", platform.machine()).split())
    numbers = [fields[key] for key in ("cpu family", "model", "stepping") if key in fields]
    return f"{name} ({'.'.join(numbers)})" if numbers else name


def who_disturbs() -> str:
    """The processes that use most CPU time and may run on our cores, what the host of a virtual machine takes, and
    the load, in a line; "" when nobody uses any that can be seen."""
    before, total, started = _seconds(), psutil.cpu_times(), time.monotonic()
    time.sleep(WATCHED_S)
    seconds, after, now = time.monotonic() - started, _seconds(), psutil.cpu_times()
    mine = own_processes()
    used = {each: (after[each] - before.get(each, 0.0)) / seconds for each in after}
    others = sorted((each for each in used if each[0] not in mine), key=lambda each: -used[each])
    cpus = _cpus_of_our_cores()
    here = (each for each in others if used[each] > LEAST and not _works_elsewhere(each[0], cpus))
    seen = [(each, used[each]) for each in islice(here, NAMED)]
    named = [f"{_name(pid)} (pid {pid}) {share:.0%}" for (pid, _), share in seen]
    said = [f"in use by {', '.join(named)} of a CPU"] if named else []
    whole = sum(getattr(now, kind) - getattr(total, kind) for kind in ("user", "nice", "system")) / seconds
    unseen = whole - sum(used.values())
    if unseen > max(2 * LEAST, sum(used.values())):  # another container's; short-lived ones are never seen
        said.append(f"{unseen:.1f} CPUs are used by processes that cannot be seen from here")
    stolen = (now.steal - total.steal) / seconds
    if stolen > LEAST:
        said.append(f"the host of this virtual machine takes {stolen:.1f} of its CPUs away")
    return f"{'; '.join(said)}; load {os.getloadavg()[0]:.1f} on {usable_cpus()} CPUs" if said else ""


def _cpus_of_our_cores() -> set[int]:
    """Those on which this process may run, and the others of their cores; none where the system does not say."""
    found = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    for cpu in tuple(found):
        with suppress(OSError):
            for part in Path(SIBLINGS.format(cpu)).read_text().split(","):
                first, _, last = part.partition("-")
                found.update(range(int(first), int(last or first) + 1))
    return found


def _works_elsewhere(pid: int, cpus: set[int]) -> bool:
    """Whether that process may run on none of these: it was given others, as a cluster's jobs are."""
    try:
        return bool(cpus) and cpus.isdisjoint(os.sched_getaffinity(pid))
    except OSError:
        return False


def _seconds() -> dict[tuple[int, float], float]:
    """The CPU time of every process that can be seen, all its threads together, by number and birth: names change, as a
    kernel's thread has that of its work."""
    found = (each.info for each in psutil.process_iter(["pid", "create_time", "cpu_times"]))
    return {(of["pid"], of["create_time"]): sum(of["cpu_times"][:2]) for of in found if of["cpu_times"] is not None}


def _name(pid: int) -> str:
    try:
        return str(psutil.Process(pid).name())
    except psutil.Error:
        return "one that has ended"


def findings() -> Iterator[Finding]:
    """What a bug report needs of the processor, its compiler, which is tried, and the compiler's sanitizers."""
    yield Finding("processor", f"{_cpu_name()}; {machine.cpu_facts(usable_cpus())['CPU_VECTOR_BYTES']} bytes a vector")
    try:
        toolchain = CpuToolchain.discover()
        require_compilers(toolchain)
    except InputError as error:
        yield Finding.refused("C++ compiler", error)
        return
    yield Finding("C++ compiler", f"{toolchain.compiler}: {toolchain.version}, for {toolchain.architecture}; it works")
    names = ("libasan.so", "libubsan.so", "libtsan.so")
    lacks = [
        each for each in names if not Path(ask(toolchain.compiler, f"-print-file-name={each}").strip()).is_absolute()
    ]
    remedy = "install those of this compiler (apt-get install gcc); without them G8 is left out"
    said = f"without {', '.join(lacks)}" if lacks else "address, undefined and thread"
    yield Finding("sanitizers", said, remedy if lacks else "", blocks=False)


def _open(toolchain: Toolchain, device: Device) -> DeviceProcess:
    from autotuner.devices.cpu.device import CpuProcess

    assert isinstance(toolchain, CpuToolchain)
    cache_bytes = int(device.facts["L3_BYTES"] or device.facts["L2_BYTES"] or UNKNOWN_CACHE_BYTES)
    return CpuProcess(toolchain, cache_bytes)


def _facts_in_torch() -> Mapping[str, Value | bool]:
    import torch

    return machine.cpu_facts(torch.get_num_threads())


DEVICE = DeviceKind(
    name="cpu",
    preference=0,
    choices=frozenset({"threads"}),
    missing=lambda: None,
    choose=choose,
    toolchain=lambda device: CpuToolchain.discover(),
    module=f"{__name__}.device",
    open=_open,
    findings=findings,
    counted=count,
    who_disturbs=lambda chosen: who_disturbs(),
    reference_flops=1e9,
    copies=16,
    proven_by=("CPU_VECTOR_BYTES", "CPU_FMA", "CPU_BF16_DOT", "L2_BYTES", "L3_BYTES", "THREADS_ALLOWED"),
    facts_in_torch=_facts_in_torch,
    packaging=Packaging(lambda toolchain: "cpu", lambda facts: {"type": "cpu"}, False, machine.instructions, COPIED),
    cage=Cage(references=True, compiles=COMPILES),
    builders=lambda lanes: builders(),  # however few threads a variant may have: builds and judging take turns
)
