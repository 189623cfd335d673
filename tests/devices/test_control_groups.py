"""What a container's limits leave of a machine is read from its control groups."""

from pathlib import Path

import pytest

from autotuner.devices.environment import cpu_quota, memory_limit

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
