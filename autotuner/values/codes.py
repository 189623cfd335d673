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
RECHECK = "G7.recheck"
MEMORY = "G8.memory"
RACE = "G8.race"
FULL = "measure.full"
