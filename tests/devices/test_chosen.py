"""Which of several devices are chosen, and what a driver says of them."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from autotuner.devices.cuda import ask_driver
from autotuner.devices.cuda.facts import of_one_model
from autotuner.devices.cuda.probe import CudaFacts
from autotuner.values.errors import InputError
from tests.helpers.files import text
from tests.helpers.refusing import refused


def facts(name: str, number: int = 0) -> CudaFacts:
    return CudaFacts(name=name, uuid=f"GPU-{number}", sm=90, multiprocessors=132, l2_bytes=50 << 20, driver="13.0")


SAME = tuple(facts("NVIDIA H200", number) for number in range(4))
MIXED = (facts("NVIDIA H200", 0), facts("NVIDIA A100", 1), facts("NVIDIA H200", 2))


@pytest.mark.parametrize(
    ("wanted", "found", "numbers"),
    [
        (None, SAME, [0]),
        (None, MIXED, [0]),
        ("all", SAME, [0, 1, 2, 3]),
        ("all", SAME[:1], [0]),
        ("cuda:2", SAME, [2]),
        ("cuda:3,cuda:1", SAME, [3, 1]),
        ("cuda:0, cuda:2", MIXED, [0, 2]),
        ("cuda:1", MIXED, [1]),
    ],
)
def test_devices_are_chosen_in_the_order_in_which_they_are_named(
    wanted: str | None, found: tuple[CudaFacts, ...], numbers: list[int]
) -> None:
    assert list(of_one_model(wanted, found).items()) == [(number, found[number]) for number in numbers]


@pytest.mark.parametrize(
    ("wanted", "found", "why"),
    [
        ("cuda:4", SAME, "--devices cuda:4: there is no cuda:4 here, but cuda:0 to cuda:3"),
        ("cuda:0,cuda:1", SAME[:1], "there is no cuda:1 here, but cuda:0 only"),
        ("cuda:1,cuda:2,cuda:1", SAME, "cuda:1 is there twice; name each once"),
        ("0,1", SAME, "--devices 0,1: write all, or numbers such as cuda:0,cuda:1"),
        ("", SAME, "write all, or numbers such as cuda:0,cuda:1"),
        ("cuda:0,", SAME, "write all, or numbers such as cuda:0,cuda:1"),
        ("cuda:-1", SAME, "write all, or numbers such as cuda:0,cuda:1"),
        (
            "all",
            MIXED,
            "--devices all: never two GPU models in one study: cuda:0 is an NVIDIA H200, cuda:1 an NVIDIA A100; "
            "name those of one model",
        ),
        ("cuda:1,cuda:2", MIXED, "cuda:1 is an NVIDIA A100, cuda:2 an NVIDIA H200"),
    ],
)
def test_what_cannot_be_chosen_is_said_with_the_remedy(wanted: str, found: tuple[CudaFacts, ...], why: str) -> None:
    with refused(InputError, re.escape(why)):
        of_one_model(wanted, found)


# A driver that is made up: a part of a GPU (MIG), and one that shows no device ----------------------------------------


def probed(folder: Path, init: int) -> object:
    """What a process finds that has this driver."""
    (folder / "driver.cpp").write_text(text("driver_of_a_part.cpp"))
    command = ["g++", "-shared", "-fPIC", f"-DINIT={init}", "driver.cpp", "-o", "libcuda.so.1"]
    subprocess.run(command, cwd=folder, check=True)
    around = {**os.environ, "LD_LIBRARY_PATH": str(folder)}
    done = subprocess.run([sys.executable, ask_driver.__file__], env=around, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_a_part_of_a_gpu_is_named_as_the_driver_takes_it(tmp_path: Path) -> None:
    found = probed(tmp_path, 0)
    assert isinstance(found, list)
    assert found[0]["uuid"] == "MIG-02020202-0202-0202-0202-020202020202"  # CUDA_VISIBLE_DEVICES of its judge
    assert (found[0]["sm"], found[0]["multiprocessors"], found[0]["driver"]) == (90, 16, "13.0")


@pytest.mark.parametrize("error", [100, 803])
def test_a_driver_without_a_device_says_why(tmp_path: Path, error: int) -> None:
    assert probed(tmp_path, error) == f"the CUDA driver shows no device (error {error})"
