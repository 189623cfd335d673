"""What a run of the driver is to do: the study, and what a new study starts from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from autotuner.spaces.space import Space
from autotuner.store import StudyRecord
from autotuner.values.conditions import Conditions, StudyProtocol
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
    who_disturbs: Callable[[], str] = str
    """Who disturbs the devices now, in words; "" where nobody can be seen."""

    @property
    def record(self) -> StudyRecord:
        """The study as the store keeps it from its start."""
        return study_record(self.space, self.device, self.conditions, self.sampler, self.seed, self.built_from)


def study_record(
    space: Space,
    device: Device,
    protocol: StudyProtocol,
    sampler: str = "evolution",
    seed: int = 0,
    built_from: str = "",
) -> StudyRecord:
    """The study of a space on a device. `built_from` stands for sources, compiler and reference: a study with others is
    another study. The sampler and its seed are noted but are no part of its name.
    """
    problems = [problem.model_dump(mode="json") for problem in protocol.problems]
    file = space.file.model_copy(update={"path": str(Path(space.file.path).resolve())})
    return StudyRecord(
        name=study_name(space.name, [space.digest, problems, device.name, protocol.cache, built_from]),
        space_name=space.name,
        space_digest=space.digest,
        space_document=file.model_dump_json(),
        problems=protocol.problems,
        device=device,
        cache=protocol.cache,
        sampler=sampler,
        seed=seed,
    )
