"""The C format in a program of its own, without Python and torch."""

import json
from pathlib import Path

import pytest

from autotuner.ops.sdpa.problem import SdpaProblem
from tests.helpers.files import text
from tests.helpers.in_c import STRICT, printed, run
from tests.helpers.tables import between, built, in_c, one, problem, served, shipped, table

LENGTHS = "(1,2,32,64) float32 full lengths"


@pytest.mark.slow
def test_a_program_is_linked_with_two_exports_as_objects_and_as_archives(tmp_path: Path) -> None:
    objects, archives = [], []
    for name in ("full", "causal"):
        in_c(one(problem(32, causal=name == "causal")), tmp_path / name)
        run(tmp_path, "g++", "-std=c++17", "-c", f"{name}/autotuner_{name}.cpp")
        parts = [f"autotuner_{name}.o", f"{name}/autotuner_{name}_variants.o"]
        run(tmp_path, "ar", "rcs", f"lib{name}.a", *parts)
        objects += parts
        archives.append(f"lib{name}.a")
    (tmp_path / "main.c").write_text(text("two_exports.c"))
    run(tmp_path, "gcc", "-std=gnu11", *STRICT, "-c", "main.c")
    for linked in (objects, archives):
        run(tmp_path, "g++", "main.o", *linked, "-pthread", "-ldl", "-o", "it")
        run(tmp_path, "./it")


@pytest.mark.slow
def test_a_program_without_python_and_torch_computes_attention(tmp_path: Path) -> None:
    short, long, with_lengths = built(problem(32)), built(problem(64), block=32), SdpaProblem.parse(LENGTHS)
    masked = shipped(with_lengths)
    entries = [(problem(32), short.digest), (problem(64), long.digest), (problem(16), None)]
    entries.append((with_lengths, masked.digest))
    of = table([served(short), served(long, 1), served(masked, 2)], entries, [between(short, problem(32), problem(64))])
    folder = tmp_path / "demo"
    in_c(of, folder)
    tuned, causal, unaligned, strides, baseline, *rest = printed(tmp_path, text("attention.c")).splitlines()
    assert tuned == causal == "it was not tuned, and no variant is proven and timed around it"
    assert unaligned == "a tensor is not aligned to 16 bytes"
    assert strides.startswith("rows must be dense")
    assert baseline == "its own best", "the entry's own reason"
    assert rest[:4] == ["the workspace is missing, too small or not aligned to 64 bytes"] * 3 + ["served"]
    assert rest[4:] == ["the device's error, from 1000 on"] + ["no such reason"] * 4
    said = json.loads((folder / "export.json").read_text())
    assert [each["trial"] for each in said["table"]["variants"]] == [0, 1, 2]


@pytest.mark.slow
def test_an_output_whose_elements_share_a_place_is_refused(tmp_path: Path) -> None:
    in_c(one(SdpaProblem.parse("(2,2,32,64) float32 full bshd")), tmp_path / "demo")
    refused = [line.startswith("rows must be dense") for line in printed(tmp_path, text("outputs.c")).splitlines()]
    assert refused == [False, False, True, True, True, True]
