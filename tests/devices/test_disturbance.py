"""What is known of a machine: who uses a device, which clocks make a block void, its ceilings, a container's limits."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from autotuner.devices import cpu
from autotuner.devices.cpu.device import ceilings
from autotuner.devices.cpu.toolchain import CpuToolchain
from autotuner.devices.cuda.nvml import held_down
from autotuner.devices.environment import cpu_quota, memory_limit
from autotuner.race.plausible import MARGIN

BUSY = "import time; end = time.monotonic() + 60\nwhile time.monotonic() < end: pass"


def disturbed_by(command: str) -> tuple[int, str]:
    """A process under that command whose parent is gone, and what is said beside it."""
    line = f"{command} '{sys.executable}' -c '{BUSY}' >/dev/null 2>&1 & echo $!"
    foreign = int(subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=True).stdout)
    try:
        time.sleep(0.5)
        return foreign, cpu.who_disturbs()
    finally:
        os.kill(foreign, 9)


@pytest.mark.timed
def test_who_uses_the_cpus_is_named_and_we_ourselves_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "NAMED", 10_000)  # others may use more
    with subprocess.Popen([sys.executable, "-c", BUSY]) as ours:
        foreign, said = disturbed_by("")
        ours.kill()
    assert f"(pid {foreign})" in said
    assert f"(pid {ours.pid})" not in said
    assert "load" in said


@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_who_was_given_other_cores_disturbs_nobody(monkeypatch: pytest.MonkeyPatch, is_elsewhere: bool) -> None:
    monkeypatch.setattr(cpu, "NAMED", 10_000)
    first, *others = sorted(os.sched_getaffinity(0))
    if not others:
        pytest.skip("one CPU")
    given = {others[-1] if is_elsewhere else first}
    monkeypatch.setattr(cpu, "_cpus_of_our_cores", lambda: {first})
    foreign, said = disturbed_by(f"taskset -c {min(given)}")
    assert (f"(pid {foreign})" in said) is not is_elsewhere


# Clocks and throttle reasons ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mhz", "reasons"), [(1980, 0), (1500, 0), (1486, 0), (1980, 0x1), (1900, 0x4)])
def test_a_usual_clock_counts(mhz: int, reasons: int) -> None:
    """Idle (0x1) and the power cap (0x4) are no faults: the cap is what the device does under load."""
    assert held_down(mhz, reasons, 1980) is None


@pytest.mark.parametrize(
    ("reasons", "said"), [(0x8, "hardware slowdown"), (0x20, "thermal"), (0x44, "thermal"), (0x80, "brake")]
)
def test_a_slowdown_voids_the_block(reasons: int, said: str) -> None:
    assert said in (held_down(1980, reasons, 1980) or "")


def test_a_clock_below_three_quarters_of_the_default_voids_the_block() -> None:
    assert "1484 MHz" in (held_down(1484, 0, 1980) or "")


# What the CPU can do at most ------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.sampled(0, of="judged with --all alone")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_no_product_is_faster_than_the_ceiling(toolchain: CpuToolchain, dtype: str) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        found = ceilings(dtype, 1, toolchain)
        assert torch.get_num_threads() == 1
        best = max(product(256), product(384), product(768))
    finally:
        torch.set_num_threads(threads)
    assert best < MARGIN * found.flops
    assert 1e8 < found.bytes < 1e13


def product(size: int) -> float:
    """Operations a second of the best of some products in float32."""
    a, b = torch.randn(size, size), torch.randn(size, size)
    best = 0.0
    for _ in range(20):
        started = time.perf_counter()
        torch.mm(a, b)
        best = max(best, 2 * size**3 / (time.perf_counter() - started))
    return best


# Control groups -------------------------------------------------------------------------------------------------------


V2, V1 = "0::/", "4:memory:/\n1:cpu,cpuacct:/"


@pytest.mark.parametrize(
    ("groups", "files", "cpus", "memory"),
    [
        (V2, {}, None, None),
        (V2, {"cpu.max": "max 100000", "memory.max": "max"}, None, None),
        (V2, {"cpu.max": "150000 100000", "memory.max": "1048576"}, 1.5, 1 << 20),
        # the group that this process is in has no limit of its own, the one around it has
        ("0::/pod/main", {"pod/cpu.max": "50000 100000", "pod/main/cpu.max": "max 100000"}, 0.5, None),
        # the path is one outside the container: the root of what is seen is the group itself
        ("0::/kubepods/pod7", {"cpu.max": "200000 100000"}, 2.0, None),
        (V1, {"cpu,cpuacct/cpu.cfs_quota_us": "-1", "cpu,cpuacct/cpu.cfs_period_us": "100000"}, None, None),
        (V1, {"cpu,cpuacct/cpu.cfs_quota_us": "250000", "cpu,cpuacct/cpu.cfs_period_us": "100000"}, 2.5, None),
        (V1, {"memory/memory.limit_in_bytes": "1048576"}, None, 1 << 20),
        ("0::/\n1:cpu:/", {"cpu/cpu.cfs_quota_us": "100000", "cpu/cpu.cfs_period_us": "200000"}, 0.5, None),
        (V2, {"cpu.max": "0 0", "memory.max": "much"}, None, None),
    ],
)
def test_limits_of_containers(
    tmp_path: Path, groups: str, files: dict[str, str], cpus: float | None, memory: int | None
) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(f"{groups}\n")
    for name, text in files.items():
        path = tmp_path / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    assert cpu_quota(tmp_path) == cpus
    assert memory_limit(tmp_path) == memory


def test_a_system_without_control_groups_limits_nothing(tmp_path: Path) -> None:
    assert cpu_quota(tmp_path) is None
    assert memory_limit(tmp_path) is None
