"""Races and blocks on the fake device, whose truth is known."""

import math
from collections.abc import Callable, Sequence

from autotuner.race.arms import Arm
from autotuner.race.blocks import Blocks, LongStep
from autotuner.race.race import Incumbent, measure
from autotuner.values.conditions import Conditions
from autotuner.values.outcome import Artifact, Measurement
from autotuner.values.variant import Variant
from autotuner.values.verdict import Fault
from tests.helpers import simulated
from tests.helpers.fake_line import Deviations, FakeLine, FakeTrack, Truth

PROBLEM = simulated.conditions().problems[0]


Sample = float | tuple[float, float]
"""Seconds of a sample; and what was waited of them."""


class Sampler:
    """An arm whose samples are made up; what they waited stands beside, if they say it."""

    calls = 1
    waited, retaken = 0.0, False

    def __init__(self, sample: Callable[[], Sample]) -> None:
        self._sample = sample

    def __call__(self) -> float:
        found = self._sample()
        seconds, self.waited = found if isinstance(found, tuple) else (found, 0.0)
        return seconds


def track(throttled: Sequence[bool] = ()) -> FakeTrack:
    """A track whose device throttles in the blocks that are named, in order."""
    found = simulated.backend().tracks(simulated.conditions())[0]
    assert isinstance(found, FakeTrack)
    left = list(throttled)
    found.throttled = lambda: "hot" if left and left.pop(0) else None  # type: ignore[method-assign]
    return found


def raced(arms: Sequence[Callable[[], Sample]], count: int, seed: int = 0, on: FakeTrack | None = None) -> Blocks:
    """So many blocks of arms on one problem; the first is the baseline."""
    made: list[list[Arm]] = [[Sampler(arm)] for arm in arms]
    blocks = Blocks([on or track()], made, seed, LongStep(lambda _: None, "racing"))
    for _ in range(count):
        blocks.take()
    return blocks


def race(
    us: float,
    against: float | None = 80,
    deviations: Deviations | None = None,
    ratios: tuple[float, ...] = (),
    **update: object,
) -> Measurement | Fault:
    """A variant's race on a device on which SDPA takes 100 us; the incumbent takes `against`, and `ratios` are known of
    it."""
    backend, artifacts, conditions = fakes([us, against or math.nan], deviations, **update)
    opponent = Incumbent(artifacts[1], ratios) if against is not None else None
    return measure(backend.tracks(conditions), artifacts[0], opponent, conditions, lambda _: None)


def fakes(
    us: Sequence[float], deviations: Deviations | None, **update: object
) -> tuple[FakeLine, list[Artifact], Conditions]:
    """A device, artifacts that take `us` microseconds there, and conditions."""
    deviations = deviations or Deviations(noise=0.003, spikes=0.02)
    backend = FakeLine(lambda variant: Truth(us=us[int(variant.point["N"])]), deviations=deviations, seed=5)
    conditions = simulated.conditions().model_copy(update=update)
    variants = [Variant.of("sdpa", "cpu", {"IMPL": "plain", "N": place}) for place in range(len(us))]
    artifacts = [backend.build(variant, conditions) for variant in variants]
    return backend, [artifact for artifact in artifacts if isinstance(artifact, Artifact)], conditions
