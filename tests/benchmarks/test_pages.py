"""What drawn pages say of kept results."""

from __future__ import annotations

from benchmarks.pages import kept_sweeps
from benchmarks.throughput import throughput_pages


def test_the_share_of_the_store_is_drawn_beside_every_kept_sweep_and_marked_where_it_misses() -> None:
    assert {"throughput_cuda_second.json", "throughput_cpu.json"} <= set(kept_sweeps())
    run = {"ms_a_trial": {"together": 6.0}, "judged": 5000, "cpus": 16, "command": "x", "when": "2026-11-22T08"}
    run["environment"] = {"optuna": "5", "python": "3.12"}
    slow, quick = throughput_pages.store(run, {"slow": {"a_minute": 299}, "quick": {"a_minute": 301}}).split("\n")[2:4]
    assert "2.99 % | yes" in slow
    assert "3.01 % | **no**" in quick
