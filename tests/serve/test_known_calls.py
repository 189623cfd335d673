"""A package's folder, loaded by autotuner.load."""

import ctypes
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

import autotuner
from autotuner.forge.build_inputs import abi_dir
from autotuner.values.errors import InputError
from tests.helpers.calls import close, qkv
from tests.helpers.files import text
from tests.helpers.refusing import refused
from tests.helpers.tables import between, built, one, packed, problem, served, table


def test_a_package_is_loaded_from_its_folder_and_a_damaged_one_refused(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    packed(of := one(problem(32)), folder)
    ours = autotuner.load(folder)
    inputs = qkv()
    close(ours(*inputs), scaled_dot_product_attention(*inputs))
    assert ours.explain(*inputs).variant == str(of.variants[0].variant)
    assert ours.served == 1.0
    ours.reset_counters()
    (metadata,) = folder.glob("build/*/metadata.json")
    said = metadata.read_bytes()
    metadata.write_bytes(said + b" ")
    with pytest.raises(InputError, match="exported again since this process has loaded it; restart Python"):
        autotuner.load(folder)
    metadata.write_bytes(said)
    (library,) = folder.glob("build/*/*.so")
    library.rename(library.with_suffix(".gone"))  # another file at its place: the loaded one is in use
    library.write_bytes(b"damaged")
    other = library.parent.rename(library.parent.with_name("torch-moved"))
    with refused(InputError, r"damaged: _autotuner_folder.so is not the file"):
        autotuner.load(other)
    with pytest.raises(InputError, match="no package; write one with"):
        autotuner.load(tmp_path)


def test_calls_alike_are_served_without_being_looked_up(tmp_path: Path) -> None:
    packed(one(problem(32), [problem(16)]), tmp_path / "alike")
    ours: Any = autotuner.load(tmp_path / "alike")
    other = autotuner.load(tmp_path / "alike")

    given = qkv(16)
    for length, causal in ((16, True), (16, True), (32, False), (32, False), (16, False), (16, False)):
        ours(*qkv(length), is_causal=causal)
    before = ours._library.asked()
    for length, causal in ((16, False), (16, True), (32, False), (16, False)):
        ours(*qkv(length), is_causal=causal)
    assert ours._library.asked() == before
    traced = torch.fx.experimental.proxy_tensor.make_fx(lambda q: ours(q, *given[1:]))(given[0])
    assert any("autotuner_alike" in str(node.target) for node in traced.graph.nodes)
    with pytest.raises(RuntimeError, match="gradient"):
        ours(given[0].clone().requires_grad_(), *given[1:])
    assert dict(other.counters) == dict(ours.counters) != {}
    ours.reset_counters()
    assert dict(other.counters) == {}


def test_calls_alike_are_launched_without_the_library_and_what_is_unlike_is_not(tmp_path: Path) -> None:
    packed(one(problem(32)), tmp_path / "launched")
    ours: Any = autotuner.load(tmp_path / "launched")

    def right(*given: Any) -> torch.Tensor:
        found: torch.Tensor = ours(*given)
        close(found, scaled_dot_product_attention(*given))
        return found

    for _ in range(2):
        right(*qkv())
    asked = ours._library.asked()
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda _: right(*qkv()), range(30)))
    assert ours._library.asked() == asked
    assert ours.served == 1.0
    assert sum(ours.counters.values()) == 32
    aside = torch.randn(1 + 2 * 32 * 64)[1:].view(1, 2, 32, 64)
    right(aside, *qkv()[1:])
    q, k, v = (torch.randn(1, 32, 2, 64).transpose(1, 2) for _ in range(3))
    right(q, k, v)
    assert ours._library.asked().total() == asked.total() + 2
    with pytest.raises(RuntimeError, match="gradient"):
        ours(qkv()[0].requires_grad_(), *qkv()[1:])
    with torch.no_grad():
        right(qkv()[0].requires_grad_(), *qkv()[1:])
    with torch.inference_mode():
        assert all(right(*qkv()).is_inference() for _ in range(4))
    assert sum(ours.counters.values()) == 39


def test_lengths_that_no_variant_serves_are_torchs_without_being_asked_for(tmp_path: Path) -> None:
    made, low, high = built(problem(32)), problem(40), problem(56)
    packed(table([served(made)], [(problem(32), made.digest)], [between(made, low, high)]), tmp_path / "lengths")
    ours: Any = autotuner.load(tmp_path / "lengths")

    def asked_for(rows: int, length: int) -> int:
        before = ours._library.asked().total()
        given = (qkv(rows)[0], *qkv(length)[1:])
        close(ours(*given), scaled_dot_product_attention(*given))
        return int(ours._library.asked().total() - before)

    for rows in (32, 40):
        assert [asked_for(rows, length) for length in (8, 8, 8)] == [1, 1, 0]
    others = [*range(9, 32), *range(33, 60)]
    assert {asked_for(32, length) for length in others} == {0} == {asked_for(40, length) for length in (39, 57, 80)}
    assert [asked_for(rows, rows) for rows in (32, 40)] == [1, 1] == [asked_for(40, length) for length in (41, 56)]
    assert ours.counters[str(made.variant)] == 2


LAUNCHES = """
#include "python_launch.h"
static int tried(const void *, void *const *addresses) { return *(const float *)addresses[0]; }
extern "C" PyObject *launcher(PyObject *of) { return at_python_launcher<tried>("", 1, 2, "N=1", of); }
"""


class Slow(torch.Tensor):
    """Without DLPack's exchange in C."""

    __dlpack_c_exchange_api__ = None


def test_a_launch_says_what_became_of_it(tmp_path: Path) -> None:
    (tmp_path / "one.cpp").write_text(LAUNCHES)
    library = tmp_path / "one.so"
    include = f"-I{abi_dir()}"
    subprocess.run(["g++", "-shared", "-fPIC", include, str(tmp_path / "one.cpp"), "-o", str(library)], check=True)
    made = ctypes.PyDLL(str(library)).launcher
    made.restype, made.argtypes = ctypes.py_object, [ctypes.py_object]
    status = torch.tensor([5.0, 0.0, 1.0, 1007.0])
    for launch in (made(torch.Tensor), made(Slow), made(object)):
        assert (launch(status[1:], status), launch(status[2:], status)) == (True, False)
        with pytest.raises(RuntimeError, match="the variant N=1 ended with the device's error 7"):
            launch(status[3:], status)
        unknown = status.view(torch.int32).view(torch.bits8)
        assert launch(unknown[4:], status)
        assert launch(status[1:], status)
        with pytest.raises(AttributeError):
            launch("text", status)
        with pytest.raises(ValueError, match="found 1 tensors, expected 2"):
            launch(status)


@pytest.mark.slow
def test_its_library_is_loaded_where_there_is_no_python(tmp_path: Path) -> None:
    packed(one(problem(32)), tmp_path / "alone")
    (library,) = (tmp_path / "alone").rglob("*.so")
    (tmp_path / "main.c").write_text(text("without_python.c"))
    subprocess.run(["gcc", str(tmp_path / "main.c"), "-ldl", "-o", str(tmp_path / "main")], check=True)
    environment = {**os.environ, "LD_LIBRARY_PATH": str(Path(torch.__file__).parent / "lib")}
    done = subprocess.run([tmp_path / "main", str(library)], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
