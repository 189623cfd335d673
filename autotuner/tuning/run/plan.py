"""What a run of the driver is to do: the study, and what a new study starts from."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from autotuner.spaces.space import Space
from autotuner.store import StudyRecord
from autotuner.values.conditions import Conditions
from autotuner.values.known_points import KnownPoints
from autotuner.values.outcome import Device, study_name
from autotuner.values.variant import Value

Point = Mapping[str, Value]
"""IMPL and the parameters of a point of a space."""


class Start(NamedTuple):
    """What a new study starts from."""

    first: Sequence[Point] = ()
    """Valid points that are judged before others, in their order."""
    known_points: KnownPoints | None = None
    """What another study has measured; the sampler may learn from it."""
    hints: Mapping[int, float] = MappingProxyType({})
    """Places of points that were the fastest of their implementation at similar problems, the most similar first, with
    ln(t_variant / t_baseline) there."""


class Plan(NamedTuple):
    """A study, how its points are chosen, and what its numbers depend on."""

    space: Space
    device: Device
    conditions: Conditions
    sampler: str = "evolution"
    seed: int = 0
    """Of the sampler."""
    built_from: str = ""
    """Stands for sources, compiler and reference: a study with others is another study."""
    start: Start = Start()
    environments: Sequence[Mapping[str, str]] = ()
    """What the numbers of each device lane depend on; of lanes beyond these it is the device's own environment."""
    builds_ahead: bool = False
    """Whether builds run beside what is timed: then those of the first points begin with the calibration."""
    who_disturbs: Callable[[], str] = str
    """Who disturbs the devices now, in words; "" where nobody can be seen."""

    @property
    def record(self) -> StudyRecord:
        """The study as the store keeps it from its start. Its name does not depend on the sampler and its seed."""
        problems = [problem.model_dump(mode="json") for problem in self.conditions.problems]
        file = self.space.file.model_copy(update={"path": str(Path(self.space.file.path).resolve())})
        told = [self.space.digest, problems, self.device.name, self.conditions.cache, self.built_from]
        return StudyRecord.taken_from(
            self.conditions,
            name=study_name(self.space.name, told),
            space_name=self.space.name,
            space_digest=self.space.digest,
            space_document=file.model_dump_json(),
            device=self.device,
            sampler=self.sampler,
            seed=self.seed,
        )
