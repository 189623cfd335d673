"""What a CUDA driver says that this machine has not: a part of a GPU (MIG), and a driver that shows no device."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

DRIVER = """
#include <string.h>
extern "C" {
int cuInit(unsigned) { return INIT; }
int cuDeviceGetCount(int *count) { return *count = 1, 0; }
int cuDeviceGet(int *device, int number) { return *device = number, 0; }
int cuDeviceGetAttribute(int *value, int number, int) { return *value = number == 75 ? 9 : number == 16 ? 16 : 0, 0; }
int cuDeviceGetName(char *name, int, int) { return strcpy(name, "NVIDIA H100 80GB HBM3 MIG 1g.10gb"), 0; }
int cuDriverGetVersion(int *version) { return *version = 13000, 0; }
int cuDeviceGetUuid(char *id, int) { return memset(id, 1, 16), 0; }
int cuDeviceGetUuid_v2(char *id, int) { return memset(id, 2, 16), 0; }
}
"""


def probed(folder: Path, init: int) -> object:
    """What a process finds that has this driver."""
    (folder / "driver.cpp").write_text(DRIVER)
    command = ["g++", "-shared", "-fPIC", f"-DINIT={init}", "driver.cpp", "-o", "libcuda.so.1"]
    subprocess.run(command, cwd=folder, check=True)
    code = "from autotuner.devices.cuda import probe; probe.tell()"
    around = {**os.environ, "LD_LIBRARY_PATH": str(folder)}
    done = subprocess.run([sys.executable, "-c", code], env=around, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_a_part_of_a_gpu_is_named_as_the_driver_takes_it(tmp_path: Path) -> None:
    found = probed(tmp_path, 0)
    assert isinstance(found, list)
    assert found[0]["uuid"] == "MIG-02020202-0202-0202-0202-020202020202"  # CUDA_VISIBLE_DEVICES of its judge
    assert (found[0]["sm"], found[0]["multiprocessors"], found[0]["driver"]) == (90, 16, "13.0")


@pytest.mark.parametrize("error", [100, 803])
def test_a_driver_without_a_device_says_why(tmp_path: Path, error: int) -> None:
    assert probed(tmp_path, error) == f"the CUDA driver shows no device (error {error})"
