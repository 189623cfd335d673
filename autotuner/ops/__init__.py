"""Ops: what can be computed. OPS[name] is all that the other rooms know of one.

An op is a folder with a record OP (op.py says what is in it), or another package's entry point of the group
`autotuner.ops`. No other room names an op or one of its sizes. Only an op's `tensors` imports torch, and only when it
is asked for something.
"""

from __future__ import annotations

import sys

from autotuner.ops.op import Op
from autotuner.values.plugs import Plugs
from autotuner.values.problem import Problem

__all__ = ["DEFAULT_OP", "OPS", "Op", "op_of"]

DEFAULT_OP = "sdpa"
"""The op of a problem in a file that names none."""

OPS: Plugs[Op] = Plugs(__name__, "op", folders=sys.modules[__name__])


def op_of(problem: Problem) -> Op:
    """The op of a problem."""
    return OPS[problem.op]


Problem.find = staticmethod(lambda name: OPS[name].problem)
