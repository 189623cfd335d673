"""Latency of a variant as a ratio to the interleaved baseline (docs/timing.md)."""
