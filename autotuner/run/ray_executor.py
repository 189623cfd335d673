"""Jobs on the nodes of a Ray cluster: the sibling of LocalExecutor. It is here alone that a node's end is seen to.

A lane is an actor, which Ray starts again where there is room for it (`max_restarts=-1`). No call is tried again by Ray
(`max_task_retries=0`): this executor knows which job was running, and counts that one's tries. What waited for the same
actor is sent again without counting.

The driver keeps every build in its own cache. A node's end loses none, and a node is sent what it lacks.
"""

from __future__ import annotations

import time
import uuid
from collections import OrderedDict, deque
from collections.abc import Sequence
from typing import Any, NamedTuple

import ray
from ray.exceptions import RayActorError, RayError, RayTaskError

from autotuner.devices import shown_by
from autotuner.forge.cache import Content, content_of, found, install
from autotuner.run import ray_lane
from autotuner.run.jobs import AnyJob, BuildJob, Built, JudgeJob, Result, not_done
from autotuner.run.line import MakeLine
from autotuner.run.ray_lane import OpenLane, artifacts_of
from autotuner.values.errors import AutotunerError, InfrastructureError
from autotuner.values.outcome import Outcome

IN_HAND = 2
"""Jobs that an actor has at a time: one that it does, and its next."""
TRIES = 3
"""Times that a job is begun whose nodes are lost."""
AWAY_S = 60.0
"""Seconds that an actor may be away until its jobs go to others."""
GONE_S = 600.0
"""Seconds without any actor after which a run ends."""
KEPT = 64
"""Builds that nodes can fetch at a time."""
LOOK_S = 0.5
"""Seconds between two looks at what does not show by a finished call."""


class SubmittedJob(NamedTuple):
    """A job as it was submitted, and how often its node was lost while it was done."""

    number: int
    job: AnyJob
    losses: int = 0


class LaneOfActor:
    """An actor as the driver sees it."""

    def __init__(self, actor: Any) -> None:
        self.actor = actor
        self.waiting: deque[SubmittedJob] = deque()
        self.sent: dict[Any, SubmittedJob] = {}
        """By the reference of the answer, in their order."""
        self.knock: Any = None
        """The reference of an answer that shows that the actor is there; None while nobody doubts it."""
        self.away_since = 0.0

    @property
    def is_there(self) -> bool:
        """Whether it can be sent jobs."""
        return self.knock is None

    def lost(self) -> list[SubmittedJob]:
        """Takes back what was sent, the one that was running first."""
        back, self.sent = list(self.sent.values()), {}
        if self.knock is None:
            self.away_since = time.monotonic()
        self.knock = self.actor.call.remote(_nothing)
        return back


def _nothing() -> None:
    """Asked of an actor to see whether it is there."""


class RayExecutor:
    """A lane for each actor; builds in tasks on all nodes with a CPU to spare."""

    def __init__(
        self, actors: Sequence[Any], open_lane: OpenLane, make_line: MakeLine, builders: int, away_s: float
    ) -> None:
        """`actors`: handles of `DeviceActor`, kept by the caller. `builders`: variants that are built at a time."""
        self._lanes = [LaneOfActor(actor) for actor in actors]
        self.builders, self.lanes = builders, len(actors)
        self.width = builders + 2 * self.lanes
        self._away_s = away_s
        self._session = uuid.uuid4().hex
        self._open_lane, self._make_line = ray.put(open_lane), ray.put(make_line)
        # a task is done again by this executor, which counts; "" hides every device from a builder
        hidden = {"env_vars": dict.fromkeys(shown_by(), "")}
        remote = ray.remote(num_cpus=1, max_retries=0, num_returns=2, runtime_env=hidden)
        self._build = remote(ray_lane.build)
        self._builds: dict[Any, tuple[SubmittedJob, Any]] = {}
        """By the reference of the answer: the job, and the reference of the files."""
        self._contents: OrderedDict[str, Any] = OrderedDict()
        self._done: deque[tuple[int, Result]] = deque()
        self._next = 0

    def submit(self, job: AnyJob, lane: int = 0) -> int:
        if not 0 <= lane < self.lanes:
            raise ValueError(f"no lane {lane}")
        given = SubmittedJob(self._next, job)
        self._next += 1
        self._put(given, self._lanes[lane])
        return given.number

    def wait(self, timeout: float | None = None) -> tuple[int, Result] | None:
        until = time.monotonic() + timeout if timeout is not None else float("inf")
        while not self._done:
            if not self._builds and not any(lane.sent or lane.waiting for lane in self._lanes):
                return None
            left = max(0.0, min(LOOK_S, until - time.monotonic()))
            self._collect(left)
            self._see_to_the_absent()
            if not self._done and time.monotonic() >= until:
                return None
        return self._done.popleft()

    def close(self) -> None:
        for ref in self._builds:
            ray.cancel(ref, force=True)
        for lane in self._lanes:
            if lane.sent:  # Ray starts it anew
                ray.kill(lane.actor, no_restart=False)
            elif lane.is_there:
                lane.actor.shut.remote()
            lane.sent, lane.waiting = {}, deque()
        self._builds, self._contents = {}, OrderedDict()
        self._done.clear()

    # To the nodes -----------------------------------------------------------------------------------------------

    def _put(self, given: SubmittedJob, lane: LaneOfActor) -> None:
        """Sends a build, or queues what is for a device."""
        if isinstance(given.job, BuildJob):
            answer, files = self._build.remote(self._session, self._make_line, given.job)
            self._builds[answer] = given, files
        else:
            lane.waiting.append(given)
            self._send(lane)

    def _send(self, lane: LaneOfActor) -> None:
        while lane.is_there and lane.waiting and len(lane.sent) < IN_HAND:
            given = lane.waiting.popleft()
            contents = {each.digest: self._content(each) for each in artifacts_of(given.job)}
            ref = lane.actor.do.remote(self._session, self._open_lane, given.job, contents)
            lane.sent[ref] = given

    def _content(self, artifact: Any) -> Any:
        """A reference to the files of a build, which a node fetches if it lacks them."""
        if artifact.digest not in self._contents:
            self._contents[artifact.digest] = ray.put(content_of(artifact))
        self._contents.move_to_end(artifact.digest)
        while len(self._contents) > KEPT:
            self._contents.popitem(last=False)
        return self._contents[artifact.digest]

    # From the nodes ---------------------------------------------------------------------------------------------

    def _collect(self, seconds: float) -> None:
        """Takes in what has ended by then."""
        refs = [*self._builds, *(ref for lane in self._lanes for ref in lane.sent)]
        refs += [lane.knock for lane in self._lanes if lane.knock is not None]
        if not refs:
            return
        ready, _ = ray.wait(refs, num_returns=1, timeout=seconds)
        for ref in ready:
            if ref in self._builds:
                self._take_build(ref)
            for lane in self._lanes:
                if ref == lane.knock:
                    self._take_knock(lane)
                elif ref in lane.sent:
                    self._take(lane, ref)

    def _take_build(self, ref: Any) -> None:
        given, files = self._builds.pop(ref)
        try:
            made = _result(given.job, ref)
            if isinstance(made, Built) and made.artifact.path:
                made = made.model_copy(update={"artifact": self._kept(made, files)})
        except RayError as error:
            self._again(given, self._lanes[0], error)
        else:
            self._done.append((given.number, made))

    def _kept(self, made: Built, files: Any) -> Any:
        """The build as it lies in the driver's cache, into which its files are fetched if they are not there."""
        here = found(made.artifact)
        if here is None:
            content: Content = ray.get(files)
            here = install(content)
        return here.model_copy(update={"build_seconds": made.artifact.build_seconds})

    def _take(self, lane: LaneOfActor, ref: Any) -> None:
        given = lane.sent[ref]
        try:
            self._done.append((given.number, _as_here(given.job, _result(given.job, ref))))
        except RayError as error:  # the actor was lost, or cannot be reached
            running, *others = lane.lost()
            lane.waiting.extendleft(reversed(others))
            self._again(running, lane, error)
        finally:
            if lane.sent.pop(ref, None) is not None:
                self._send(lane)

    def _again(self, given: SubmittedJob, lane: LaneOfActor, why: Exception) -> None:
        """A job whose node was lost is done again, but not for ever."""
        once_more = given._replace(losses=given.losses + 1)
        if once_more.losses >= TRIES:
            text = f"its node was lost, {TRIES} times: {_first_line(why)}"
            self._done.append((given.number, not_done(given.job, text)))
        elif isinstance(given.job, BuildJob):
            self._put(once_more, lane)
        else:
            lane.waiting.appendleft(once_more)

    # Actors that are away ---------------------------------------------------------------------------------------

    def _take_knock(self, lane: LaneOfActor) -> None:
        knock, lane.knock = lane.knock, None
        try:
            ray.get(knock)
        except RayActorError as error:
            if error.actor_init_failed:
                raise InfrastructureError(f"an actor of the cluster cannot be started: {_first_line(error)}") from None
            lane.knock = lane.actor.call.remote(_nothing)
        else:
            self._send(lane)

    def _see_to_the_absent(self) -> None:
        """Gives the jobs of an actor that stays away to one that is there. Raises InfrastructureError where none is."""
        now, there = time.monotonic(), [lane for lane in self._lanes if lane.is_there]
        away = [lane for lane in self._lanes if not lane.is_there and now - lane.away_since > self._away_s]
        for lane in away if there else ():
            while lane.waiting:
                other = min(there, key=lambda each: len(each.waiting) + len(each.sent))
                other.waiting.append(lane.waiting.popleft())
                self._send(other)
        if not there and all(now - lane.away_since > GONE_S for lane in self._lanes):
            raise InfrastructureError("every node with a device has left the cluster, and none has come back")


def _result(job: AnyJob, ref: Any) -> Result:
    """What a job's call gave, or that it failed. Raises what was raised there on purpose, and RayError where its node
    was lost."""
    try:
        result: Result = ray.get(ref)
        return result
    except RayTaskError as error:
        if isinstance(error.cause, AutotunerError):
            raise error.cause from None
        return not_done(job, _first_line(error))


def _as_here(job: AnyJob, result: Result) -> Result:
    """A result with its build as the driver has it."""
    if isinstance(job, JudgeJob) and isinstance(result, Outcome) and result.artifact is not None:
        return result.model_copy(update={"artifact": job.built.artifact})
    return result


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in reversed(str(error).splitlines()) if line.strip()), type(error).__name__)
