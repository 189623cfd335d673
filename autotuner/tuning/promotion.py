"""Which variant the others race against."""

from __future__ import annotations

from autotuner.forge.cache import is_there
from autotuner.values.outcome import Outcome


def takes_over(outcome: Outcome, incumbent: Outcome | None) -> bool:
    """Whether a measured variant becomes the incumbent. It must have been promoted and be there still.

    One that raced against an earlier incumbent must also be faster than the present one by the whole intervals of
    their objectives.
    """
    new, artifact = outcome.measurement, outcome.artifact
    if new is None or artifact is None or not new.promoted or not is_there(artifact):
        return False
    if incumbent is None or incumbent.measurement is None or incumbent.artifact is None:
        return True
    surely_faster = new.log_ratio.high < incumbent.measurement.log_ratio.low
    return new.incumbent == incumbent.artifact.digest or surely_faster
