"""Which variant the others race against."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

from autotuner.values.outcome import Artifact, Measurement, Outcome


def takes_over(outcome: Outcome, incumbent: Outcome | None) -> bool:
    """Whether a measured variant becomes the incumbent. It must have been promoted and be there still.

    One that raced against an earlier incumbent must also be faster than the present one by their whole intervals.
    """
    new, artifact = outcome.measurement, outcome.artifact
    if new is None or artifact is None or not new.promoted or not _is_there(artifact):
        return False
    if incumbent is None or incumbent.measurement is None or incumbent.artifact is None:
        return True
    return new.incumbent == incumbent.artifact.digest or _high(new) < _low(incumbent.measurement)


def _is_there(artifact: Artifact) -> bool:
    """Whether its library is still there; artifacts of the fake device have none."""
    return not artifact.path or Path(artifact.path).exists()


def _low(measurement: Measurement) -> float:
    return fmean(timing.log_ratio.low for timing in measurement.timings)


def _high(measurement: Measurement) -> float:
    return fmean(timing.log_ratio.high for timing in measurement.timings)
