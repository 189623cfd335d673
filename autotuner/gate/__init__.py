"""The correctness hard gate: a variant that fails any check never gets a latency anywhere (docs/gate.md)."""
