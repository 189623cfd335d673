"""A device, its session and what is on it, as the driver sees it."""

from __future__ import annotations

from bisect import insort
from statistics import median

from autotuner.values.outcome import Measurement
from autotuner.values.terms import Terms


class Lane:
    """A device, its session and what is on it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.terms: Terms
        self.session = 0
        self.on_device: dict[int, str] = {}
        """The program of each judging job, by the job's number."""
        self.calm_us: list[list[float]] = []
        """What the baseline took on each problem, at calibration and in every race since; sorted, as a median is taken
        of it for every variant."""
        self.since_aa = 0
        self.racing: int | None = None
        """The number of the A/A race under way."""

    def note_calm(self, measurement: Measurement | None) -> None:
        """Takes in what the baseline took beside a variant."""
        timings = measurement.timings if measurement is not None else ()
        for problem, timing in zip(self.calm_us, timings, strict=False):
            insort(problem, median(timing.baseline_us))

    def terms_with(self, tie: float) -> Terms:
        """With the tie band and the thermometer as they are by now.

        The baseline beside variants is not what it is alone: they heat the device, or lower its clocks. So the median
        over the session is what a race is compared with.
        """
        calm_us = tuple(median(problem) for problem in self.calm_us)
        return self.terms.model_copy(update={"tie": tie, "baseline_us": calm_us})
