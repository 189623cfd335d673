"""The table looked up in C (kernels/abi/dispatch.h) says what it says in Python, on random problems."""

import random
import subprocess
from pathlib import Path

from autotuner.forge.build_inputs import abi_dir
from autotuner.ops import OPS
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.serve.table_source import problem_in_c, table_lines
from autotuner.values.table import LeftOut, Range, Validated
from tests.helpers.tables import GATE, RATIO, answer, built, problem, served, table

PROGRAM = """
#include <stdio.h>
#include "sdpa_call.h"
%s
static const at_table table = AT_TABLE;
static const at_problem asked[] = {%s};
int main(void) {
  for (unsigned i = 0; i < sizeof asked / sizeof *asked; i++) printf("%%d\\n", at_look_up(&table, &asked[i]));
  return 0;
}
"""
FILE = """
#include "sdpa_call.h"
#include "package.h"
int %s(void) { return AT_NOT_TUNED; }
"""
LENGTHS = (31, 32, 33, 48, 64, 65)


def sized(draw: random.Random) -> SdpaProblem:
    """Around the ranges below: some fields, some lengths equal, some not."""
    seq_q = draw.choice(LENGTHS)
    seq_k = seq_q if draw.random() < 0.6 else draw.choice(LENGTHS)
    return SdpaProblem(
        batch=1,
        heads=draw.choice((2, 2, 2, 3)),
        seq_q=seq_q,
        seq_k=seq_k,
        head_dim=64,
        dtype="float32",
        causal=draw.random() < 0.3,
        key_lengths=draw.random() < 0.3,
    )


def test_c_and_python_find_the_same(tmp_path: Path) -> None:
    artifact, draw = built(problem(32)), random.Random(1)

    def ranged(like: SdpaProblem, high: SdpaProblem, together: tuple[str, ...]) -> Range:
        shown = (Validated(problem=high, baseline="flash", speedup=RATIO),)
        shapes = {"low": like.shape, "high": high.shape}
        return Range(use=artifact.digest, like=like, **shapes, together=together, proven=GATE, validated=shown)

    low, high = problem(32), problem(64)
    masked = {"key_lengths": True, "seq_q": 32}
    of = table(
        [served(artifact)],
        [(low, artifact.digest), (problem(48), None), (high, artifact.digest)],
        [
            ranged(low, high, ("seq_q", "seq_k")),
            ranged(low.model_copy(update=masked), high.model_copy(update=masked), ()),
        ],
    ).model_copy(update={"left_out": (LeftOut(problem=problem(65), use=artifact.digest, why="slower"),)})
    asked = [sized(draw) for _ in range(400)]
    lines = "\n".join(["extern const at_identity autotuner_it_variant_0 = {0};", *table_lines(of, "autotuner_it")])
    body = PROGRAM % (lines, ", ".join(map(problem_in_c, asked)))
    (tmp_path / "it.cpp").write_text(body)
    headers = [f"-I{abi_dir()}", f"-I{OPS['sdpa'].abi()}"]
    subprocess.run(["g++", "-std=c++17", *headers, "it.cpp", "-o", "it"], cwd=tmp_path, check=True)
    done = subprocess.run([tmp_path / "it"], capture_output=True, text=True, check=True)
    places = [int(each) for each in done.stdout.split()]
    uses = [*(each.use for each in of.entries), *(each.use for each in of.ranges), *(None for _ in of.left_out)]
    found = [None if place < 0 else uses[place] for place in places]
    assert found == [answer(of, each)[0] for each in asked]
    assert {place for place in places if place >= 0} == set(range(6)), "some place was never asked for"


def test_two_files_of_a_c_program_may_include_the_headers(tmp_path: Path) -> None:
    headers = [f"-I{abi_dir()}", f"-I{OPS['sdpa'].abi()}"]
    for name in ("main", "other"):
        (tmp_path / f"{name}.c").write_text(FILE % name)
    strict = ["-std=c11", "-Wall", "-Wextra", "-Werror"]
    command = ["gcc", *strict, *headers, "main.c", "other.c", "-o", "it"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
