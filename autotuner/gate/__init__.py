"""The correctness hard gate: a variant that fails any check never gets a latency anywhere (docs/method/gate.md).

The door is `gate.run` (the report on an artifact) and `gate.checks_of` (the checks of an op, in order). A `check.Check`
is one object; it works through a `launching.Launching`, which a device lends a `bench.Bench`. `references` judges the
op's baselines by the same rules, `sanitizer` and `recheck` are the levels after the first five. Modules that define
checks do not import torch: who reads a report wants the words alone.
"""
