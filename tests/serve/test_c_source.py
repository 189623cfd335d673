"""The C format in a program of its own, without Python and torch."""

import json
import subprocess
from pathlib import Path

import pytest

from autotuner.devices.cpu.toolchain import CpuToolchain
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.serve.c_source import write_c_folder
from autotuner.serve.folder import Source
from tests.helpers.tables import FOLDER, between, built, problem, served, shipped, table

LENGTHS = "(1,2,32,64) float32 full lengths"
PROGRAM = r"""
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "autotuner_demo.h"

enum { HEADS = 2, LENGTH = 64, WIDTH = 64, ROOM = HEADS * LENGTH * WIDTH };

static void textbook(const autotuner_demo_call *c, const float *q, const float *k, const float *v, double *o) {
  const int n = (int)c->seq_q, keys = c->key_lengths ? *c->key_lengths : n;
  for (int h = 0; h < HEADS; h++)
    for (int i = 0; i < n; i++) {
      double sum = 0, score[LENGTH], row[WIDTH] = {0};
      for (int j = 0; j < keys; j++) {
        score[j] = 0;
        for (int d = 0; d < WIDTH; d++) score[j] += (double)q[(h * n + i) * WIDTH + d] * k[(h * n + j) * WIDTH + d];
        sum += score[j] = exp(score[j] / sqrt(WIDTH));
      }
      for (int j = 0; j < keys; j++)
        for (int d = 0; d < WIDTH; d++) row[d] += score[j] / sum * v[(h * n + j) * WIDTH + d];
      for (int d = 0; d < WIDTH; d++) o[(h * n + i) * WIDTH + d] = row[d];
    }
}

int main(void) {
  static float tensors[4][ROOM] __attribute__((aligned(64)));
  static double expected[ROOM];
  for (int t = 0; t < 3; t++)
    for (int i = 0; i < ROOM; i++) tensors[t][i] = (float)rand() / (float)RAND_MAX - 0.5f;
  autotuner_demo_call call = {.query = tensors[0], .key = tensors[1], .value = tensors[2], .out = tensors[3],
                              .batch = 1, .heads = HEADS, .heads_kv = HEADS, .head_dim = WIDTH,
                              .dtype = autotuner_demo_FLOAT32};
  const int lengths[] = {32, 50, 64, 32};
  const int32_t keys = 20;
  for (int i = 0; i < 4; i++) {
    call.key_lengths = i == 3 ? &keys : NULL;
    call.seq_q = call.seq_k = lengths[i];
    call.workspace_bytes = autotuner_demo_workspace(&call);
    if (posix_memalign(&call.workspace, 64, call.workspace_bytes + 64)) return 1;
    const int status = autotuner_demo(&call);
    if (status) return printf("%d: %s\n", lengths[i], autotuner_demo_why(status)), 1;
    textbook(&call, tensors[0], tensors[1], tensors[2], expected);
    double worst = 0;
    for (int j = 0; j < HEADS * lengths[i] * WIDTH; j++) worst = fmax(worst, fabs(expected[j] - tensors[3][j]));
    if (!(worst < 1e-5)) return printf("%d: off by %g\n", lengths[i], worst), 1;
    free(call.workspace);
  }
  call.key_lengths = NULL, call.seq_q = call.seq_k = 20;
  puts(autotuner_demo_why(autotuner_demo(&call)));
  call.seq_q = call.seq_k = 32, call.is_causal = 1;
  puts(autotuner_demo_why(autotuner_demo(&call)));
  call.is_causal = 0, call.query = tensors[0] + 1;
  puts(autotuner_demo_why(autotuner_demo(&call)));
  call.query = tensors[0], call.query_stride[0] = 1, call.query_stride[1] = WIDTH + 1, call.query_stride[2] = WIDTH;
  puts(autotuner_demo_why(autotuner_demo(&call)));
  call.query_stride[0] = call.query_stride[1] = call.query_stride[2] = 0, call.seq_q = call.seq_k = 16;
  puts(autotuner_demo_why(autotuner_demo(&call)));
  call.seq_q = call.seq_k = 32;
  const int64_t needed = autotuner_demo_workspace(&call);
  char *const space = aligned_alloc(64, (size_t)(needed / 64 + 2) * 64);
  const struct { void *at; int64_t bytes; } given[] = {
      {NULL, needed}, {space, needed - 1}, {space + 32, needed}, {space, needed}};
  for (int i = 0; i < 4; i++) {
    call.workspace = given[i].at, call.workspace_bytes = given[i].bytes;
    puts(autotuner_demo_why(autotuner_demo(&call)));
  }
  free(space);
  const int statuses[] = {1999, 3, -999, -1001, -2000};
  for (int i = 0; i < 5; i++) puts(autotuner_demo_why(statuses[i]));
  return 0;
}
"""
TWO = r"""
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "full/autotuner_full.h"
#include "causal/autotuner_causal.h"

enum { HEADS = 2, LENGTH = 32, WIDTH = 64, ROOM = HEADS * LENGTH * WIDTH };

/* With Q and K of zeros a row of O is the mean of the rows of V that it sees. */
static int is_mean(const float *o, const float *v, int causal) {
  for (int row = 0; row < HEADS * LENGTH; row++) {
    const int first = row / LENGTH * LENGTH, seen = causal ? row - first + 1 : LENGTH;
    double sum = 0;
    for (int j = 0; j < seen; j++) sum += v[(first + j) * WIDTH];
    if (!(fabs(sum / seen - o[row * WIDTH]) < 1e-5)) return 0;
  }
  return 1;
}

int main(void) {
  static float q[ROOM] __attribute__((aligned(64))), v[ROOM] __attribute__((aligned(64)));
  static float o[ROOM] __attribute__((aligned(64))), space[1 << 20] __attribute__((aligned(64)));
  for (int i = 0; i < ROOM; i++) v[i] = (float)(i / WIDTH * i % 17);
  autotuner_full_call full = {.query = q, .key = q, .value = v, .out = o, .batch = 1, .heads = HEADS, .heads_kv = HEADS,
                              .seq_q = LENGTH, .seq_k = LENGTH, .head_dim = WIDTH, .workspace = space,
                              .workspace_bytes = sizeof space};
  if (autotuner_full(&full) || !is_mean(o, v, 0)) return puts("full"), 1;
  autotuner_causal_call causal;
  memcpy(&causal, &full, sizeof causal);
  causal.is_causal = 1;
  if (autotuner_causal(&causal) || !is_mean(o, v, 1)) return puts("causal"), 1;
  return 0;
}
"""
OUTPUTS = r"""
#include <stdio.h>
#include "autotuner_demo.h"

int main(void) {
  enum { ROOM = 2 * 2 * 32 * 64 };
  static float q[ROOM] __attribute__((aligned(64))), o[3 * ROOM] __attribute__((aligned(64)));
  static float space[1 << 20] __attribute__((aligned(64)));
  const int64_t outputs[][3] = {{4096, 64, 128}, {8192, 4096, 128}, {0, 64, 128},
                                {4096, 0, 128},  {4096, 64, 64},    {1024, 64, 128}};
  autotuner_demo_call call = {.query = q, .key = q, .value = q, .out = o, .batch = 2, .heads = 2, .heads_kv = 2,
                              .seq_q = 32, .seq_k = 32, .head_dim = 64,
                              .query_stride = {4096, 64, 128}, .key_stride = {4096, 64, 128},
                              .value_stride = {4096, 64, 128}, .workspace = space, .workspace_bytes = sizeof space};
  for (unsigned i = 0; i < sizeof outputs / sizeof *outputs; i++) {
    for (int j = 0; j < 3; j++) call.out_stride[j] = outputs[i][j];
    puts(autotuner_demo_why(autotuner_demo(&call)));
  }
  return 0;
}
"""
STRICT = ("-Wall", "-Wextra", "-Werror")


def run(folder: Path, *command: str) -> str:
    """What a command prints that must succeed."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def printed(folder: Path) -> str:
    """What the program main.c in the folder prints, linked with the export `demo` beside it."""
    run(folder, "gcc", "-std=gnu11", *STRICT, "-O1", "-Idemo", "-c", "main.c")
    run(folder, "g++", "-std=c++17", *STRICT, "-O2", "-c", "demo/autotuner_demo.cpp")
    objects = ["main.o", "autotuner_demo.o", "demo/autotuner_demo_variants.o"]
    run(folder, "g++", *objects, "-pthread", "-ldl", "-o", "it")
    return run(folder, "./it")


@pytest.mark.slow
def test_a_program_is_linked_with_two_exports_as_objects_and_as_archives(tmp_path: Path) -> None:
    objects, archives = [], []
    for name in ("full", "causal"):
        like = problem(32, causal=name == "causal")
        made = built(like)
        of = table([served(made)], [(like, made.digest)])
        write_c_folder(of, Source(CpuToolchain.discover(), FOLDER), tmp_path / name)
        run(tmp_path, "g++", "-std=c++17", "-c", f"{name}/autotuner_{name}.cpp")
        parts = [f"autotuner_{name}.o", f"{name}/autotuner_{name}_variants.o"]
        run(tmp_path, "ar", "rcs", f"lib{name}.a", *parts)
        objects += parts
        archives.append(f"lib{name}.a")
    (tmp_path / "main.c").write_text(TWO)
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
    write_c_folder(of, Source(CpuToolchain.discover(), FOLDER), folder)
    (tmp_path / "main.c").write_text(PROGRAM)
    tuned, causal, unaligned, strides, baseline, *rest = printed(tmp_path).splitlines()
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
    like = SdpaProblem.parse("(2,2,32,64) float32 full bshd")
    made = built(like)
    of = table([served(made)], [(like, made.digest)])
    write_c_folder(of, Source(CpuToolchain.discover(), FOLDER), tmp_path / "demo")
    (tmp_path / "main.c").write_text(OUTPUTS)
    refused = [line.startswith("rows must be dense") for line in printed(tmp_path).splitlines()]
    assert refused == [False, False, True, True, True, True]
