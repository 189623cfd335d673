"""What makes a study the one it is: its name, and what the store keeps of it from the start."""

from __future__ import annotations

from pathlib import Path

from autotuner.spaces.space import Space
from autotuner.store import StudyRecord
from autotuner.values.conditions import StudyProtocol
from autotuner.values.outcome import Device, study_name


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
