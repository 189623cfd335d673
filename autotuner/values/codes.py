"""Codes of the gate that other rooms speak of too. A code does not change: stores and reports hold it."""

from __future__ import annotations

LIMITS = "G0.limits"
UNWRITTEN = "G1.unwritten"
QUICK = "G2.quick"
QUICK_LARGEST = "G2.T1"
REPEAT = "G3.repeat"
SOAK = "G6.soak"
MANY = "G6.many"
WORKSPACE = "G1.workspace"
DEADLINE = "G1.deadline"
RECHECK = "G7.recheck"
REST = "G7.rest"
MEMORY = "G8.memory"
RACE = "G8.race"
INCUMBENT = "measure.incumbent"
FULL = "measure.full"
