"""What drawn pages say of kept results."""

from __future__ import annotations

from benchmarks import people_pages
from benchmarks.pages import loaded


def test_kernel_tuner_is_not_beaten_by_a_ratio_that_leaves_our_calibration_out() -> None:
    said = people_pages.kernel_tuner(loaded("throughput_kernel_tuner_first", "throughput_kernel_tuner"))
    assert [line.split("| ")[-1] for line in said.split("\n")[2:4]] == [
        *("0.80 times as fast |", "0.98 times as fast |"),
    ]
    assert "compile stage took 25 of 30 s and 32 of 38 s" in said
    assert "autotuner stopped 92 of 96 and 94 of 96 races early" in said
