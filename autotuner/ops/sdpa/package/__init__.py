"""Attention as a package of torch and as C: what the exports of the op are made of.

serving.py, library.py, ../arguments.py, ../attention.py, ../../alike.py, ../../forward.py and ../../surroundings.py are
copied into a package; they import nothing of autotuner.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from autotuner.ops.op import OpPackage
from autotuner.ops.sdpa.torch_call import FUNCTION
from autotuner.values.problem import Problem

HERE = Path(__file__).parent
INIT = """
from . import alike, arguments, forward, library, machine, masked, serving, surroundings

facts, instructions = machine.cpu_facts, machine.instructions
beside = library.Beside(arguments, surroundings, alike, forward, masked.attention, facts, instructions)
load = serving.opened(FOLDER, beside)
attention = load()
NotServed = serving.NotServed
__all__ = ["NotServed", "attention", "load"]
"""
REASONS = (
    "the workspace is missing, too small or not aligned to 64 bytes",
    "the variant refused the call",
    "no variant was tuned with lengths of keys",
    "key_lengths must be (batch,) of int32, dense",
    "a tensor is not aligned to 16 bytes",
    "K and V have fewer heads than Q: say enable_gqa=True",
    "rows must be dense, and the other strides multiples of 16 bytes; call .contiguous() first",
    "the variants take float32, bfloat16 and float16",
    "expected three tensors Q, K and V of (batch, heads, length, head_dim) that fit together",
    "proven with another number of threads",
    "proven on another model of device",
    "the variants are for another kind of device",
    "the tensors differ in device or element type",
    "it was not tuned, and no variant is proven and timed around it",
)


def call(problem: Problem) -> dict[str, Any]:
    """Sizes of Q and of K and V, where they lie, the element type, whether there are lengths of keys, and the
    options of torch's function."""
    facts = problem.facts()
    query, key = (
        [facts[name] for name in names]
        for names in (("BATCH", "HEADS", "SEQ_Q", "HEAD_DIM"), ("BATCH", "HEADS_KV", "SEQ_K", "HEAD_DIM"))
    )
    options = FUNCTION.options(problem)
    return {
        "query": query,
        "key": key,
        "layout": facts["LAYOUT"],
        "dtype": facts["DTYPE"],
        "key_lengths": facts["KEY_LENGTHS"],
        "options": options,
    }


PACKAGE = OpPackage(
    title="Attention",
    name="attention",
    copied={
        "serving.py": HERE / "serving.py",
        "library.py": HERE / "library.py",
        "alike.py": HERE.parent.parent / "alike.py",
        "arguments.py": HERE.parent / "arguments.py",
        "forward.py": HERE.parent.parent / "forward.py",
        "surroundings.py": HERE.parent.parent / "surroundings.py",
        "masked.py": HERE.parent / "attention.py",
    },
    init=INIT,
    source="torch_op.cpp",
    headers=("sdpa_call.h",),
    function=("function.h.in", "function.cpp.in"),
    reasons=REASONS,
    call=call,
)
