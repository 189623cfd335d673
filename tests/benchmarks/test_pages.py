"""What drawn pages say of kept results."""

from __future__ import annotations

from benchmarks import people_pages
from benchmarks.pages import kept_sweeps, loaded
from benchmarks.throughput import throughput_pages


def test_the_share_of_the_store_is_drawn_beside_every_kept_sweep_and_marked_where_it_misses() -> None:
    assert {"throughput_cuda_second.json", "throughput_cpu.json"} <= set(kept_sweeps())
    run = {"ms_a_trial": {"together": 6.0}, "judged": 5000, "cpus": 16, "command": "x", "when": "2026-11-22T08"}
    run["environment"] = {"optuna": "5", "python": "3.12"}
    slow, quick = throughput_pages.store(run, {"slow": {"a_minute": 299}, "quick": {"a_minute": 301}}).split("\n")[2:4]
    assert "2.99 % | yes" in slow
    assert "3.01 % | **no**" in quick


def test_kernel_tuner_is_not_beaten_by_a_ratio_that_leaves_our_calibration_out() -> None:
    runs = loaded("throughput_kernel_tuner_first", "throughput_kernel_tuner")
    for line in throughput_pages.kernel_tuner(runs).split("\n")[2:4]:
        assert "| yes | 0." in line
        assert line.endswith("x | **no** |")
    said = people_pages.kernel_tuner(runs)
    assert "compile stage took 25 of 30 s and 32 of 38 s" in said
    assert "autotuner stopped 92 of 96 and 94 of 96 races early" in said
