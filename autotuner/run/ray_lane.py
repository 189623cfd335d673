"""What runs on the nodes of a Ray cluster: the actor that has a device, and the task that builds beside it.

No code of a variant runs in a process of Ray's. The actor has an executor of its own node, which forks and cages the
processes that do. A build that the node lacks is fetched by its digest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import ray

from autotuner.forge.cache import Content, content_of, found, install
from autotuner.run.executor import Executor, next_answer
from autotuner.run.jobs import AnyJob, BuildJob, Built, JudgeJob, RaceJob, Result, perform
from autotuner.run.line import Line, MakeLine
from autotuner.values.errors import InfrastructureError
from autotuner.values.outcome import Artifact

OpenLane = Callable[[], AbstractContextManager[Executor]]
"""Makes a node's own executor. Picklable, and called on the node."""
Contents = Mapping[str, Any]
"""References to the files of builds, by digest."""


class DeviceActor:
    """The process of an actor: one device, one job at a time."""

    def __init__(self) -> None:
        self._session = ""
        self._opened = ExitStack()
        self._executor: Executor

    def call(self, function: Callable[[], object]) -> object:
        """What a function says on this node."""
        return function()

    def do(self, session: str, open_lane: OpenLane, job: AnyJob, contents: Contents) -> Result:
        """Does a job. The first one of a session makes the executor, also after this process was started again."""
        if session != self._session:
            self.shut()
            self._executor, self._session = self._opened.enter_context(open_lane()), session
        self._executor.submit(placed(job, contents))
        return next_answer(self._executor)[1]

    def shut(self) -> None:
        """Ends the processes of the last session, and gives its device back."""
        self._session = ""
        self._opened.close()


LINES: dict[str, Line] = {}
"""By session: a process of Ray's builds many variants, and imports torch once."""


def build(session: str, make_line: MakeLine, job: BuildJob) -> tuple[Result, Content | None]:
    """Builds a variant; how that ended, and the files where there are any."""
    if session not in LINES:
        LINES.clear()
        LINES[session] = make_line()
    made = perform(job, LINES[session], lambda _: None)
    return made, content_of(made.artifact) if isinstance(made, Built) and made.artifact.path else None


def artifacts_of(job: AnyJob) -> list[Artifact]:
    """The builds that a job loads, those that are files."""
    if isinstance(job, RaceJob):
        loaded = [*job.artifacts]
    elif isinstance(job, JudgeJob):
        loaded = [job.built.artifact, *([job.incumbent] if job.incumbent is not None else [])]
    else:
        loaded = []
    return [artifact for artifact in loaded if artifact.path]


def placed(job: AnyJob, contents: Contents) -> AnyJob:
    """The job with its builds as they lie on this node. What is missing is fetched."""
    here = {artifact.digest: _here(artifact, contents) for artifact in artifacts_of(job)}

    def at(artifact: Artifact) -> Artifact:
        return here.get(artifact.digest, artifact)

    if isinstance(job, RaceJob):
        return job.model_copy(update={"artifacts": tuple(map(at, job.artifacts))})
    if isinstance(job, JudgeJob):
        built = job.built.model_copy(update={"artifact": at(job.built.artifact)})
        incumbent = None if job.incumbent is None else at(job.incumbent)
        return job.model_copy(update={"built": built, "incumbent": incumbent})
    return job


def _here(artifact: Artifact, contents: Contents) -> Artifact:
    there = found(artifact)
    if there is not None:
        return there
    if artifact.digest not in contents:
        raise InfrastructureError(f"the build {artifact.digest[:12]} is neither on this node nor was it sent")
    content: Content = ray.get(contents[artifact.digest])
    return install(content)
