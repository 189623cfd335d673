"""A worker: serves the devices of this machine that it was given, one sweep at a time, until it is told to end.

What it works on is its own by a lease. When it dies, the next worker goes on where it was; when it is told to end, it
hands the sweep back. It never gives up a measurement: while the store is locked or gone it keeps what it has.
"""

from __future__ import annotations

import socket
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, suppress
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from autotuner.devices import DEVICES, Wishes, device_names
from autotuner.devices.kind import DeviceKind
from autotuner.forge import cache
from autotuner.jobs.outlook import ALL, fits
from autotuner.jobs.queue import settle_abandoned
from autotuner.jobs.schedule import go_on
from autotuner.jobs.signals import Stopping, StopSignal, tell_manager
from autotuner.jobs.sweep_run import Interrupted, Listener, SweepRun
from autotuner.ops import op_of
from autotuner.run.executor import Beat, Executor, ask, sound_calibration
from autotuner.run.jobs import BuildJob, Built, CalibrationJob, JudgeJob
from autotuner.spaces.space import SpaceFile
from autotuner.store import Store, device_health, sweeps
from autotuner.store.lease import Lease
from autotuner.store.patience import Patience
from autotuner.store.records import SweepRecord
from autotuner.store.sweeps import WISHED, Claim
from autotuner.tuning import on_nodes
from autotuner.tuning.finals import standings
from autotuner.tuning.workbench import Workbench, find_space_file, load_space
from autotuner.values import errors
from autotuner.values.outcome import Outcome
from autotuner.values.sweep import State
from autotuner.values.variant import Variant
from autotuner.values.verdict import Verdict

if TYPE_CHECKING:
    from autotuner.run.ray_cluster import RayCluster

POLL_S = 2.0
"""Seconds between two looks for a sweep."""
BEAT_S = 10.0
"""Seconds between two renewals of the leases."""
ATTEMPTS = 3
"""Runs of a sweep in a row that end by a fault of the machinery, on devices that judge known-good variants."""
AGAIN_S = 30.0
"""Seconds after which a sweep that could not be worked on is tried again."""
FULL_S = 60.0
"""Seconds after which it is tried again where a disk was full."""
HURRY_S = 2.0
"""Seconds that a worker which has to go waits for a locked store."""
PRUNE_EVERY_S = 600.0
"""Seconds between two looks at the size of the cache."""
LATE = "the end of its time"
CACHE_BYTES = 20 << 30
"""What the cache may take unless the user says otherwise."""


class ServedDevices(NamedTuple):
    """The devices of one kind that a worker serves."""

    kind: DeviceKind
    wish: str | None
    """In the user's words, such as cuda:0,cuda:1; None: the kind's own choice."""
    model: str
    """What the devices are, for a person."""
    names: tuple[str, ...]
    """Under which the store knows them: host and the device's own name."""
    words: tuple[tuple[str, ...], ...] = ()
    """What `--devices` calls each of them in this process; nothing where there is no choice."""
    cluster: RayCluster | None = None
    """Whose nodes they are; None: this machine's."""

    def fits(self, each: SweepRecord) -> bool:
        """Whether a sweep can be done on them, and belongs to no command."""
        return not each.foreground and fits(each.request, self.kind.name, list(chain(*self.words)))

    def bench(self, file: SpaceFile) -> Workbench:
        """A space on them. Raises InputError where it cannot be."""
        return Workbench(file, devices=self.wish, cluster=self.cluster)


def served(devices: str | None) -> ServedDevices:
    """The devices of this machine in the user's words: a kind, or what the kind's `--devices` understands. None: what
    `autotuner tune` would take. Raises InputError with what there is."""
    kinds = by_preference()
    wanted = (devices or "").partition(":")[0].partition(",")[0]
    named = [kind for kind in kinds if kind.name == wanted]
    usable = [kind for kind in kinds if kind.missing() is None]
    if devices is not None and not named and wanted != "all":
        raise errors.InputError(f"--devices {devices}: no such kind of device; there are {', '.join(DEVICES)}")
    kind = named[0] if named else (usable[0] if usable else kinds[0])
    why = kind.missing()
    if why is not None:
        raise errors.InputError(f"no device of kind {kind.name} can be served here: {why}")
    wish = None if devices in (None, kind.name) else devices
    if wish is not None and "devices" not in kind.choices:
        raise errors.InputError(
            f"--devices {devices}: there is one device of kind {kind.name}; say --devices {kind.name}"
        )
    chosen = kind.choose(Wishes(devices=wish))
    names = device_names(kind.name, chosen)
    every = (ALL,) if _is_all(kind, wish, names) else ()
    return ServedDevices(kind, wish, chosen.device.name, names, tuple((word, *every) for word in chosen.words))


def _is_all(kind: DeviceKind, wish: str | None, names: Sequence[str]) -> bool:
    """Whether these are all devices of that kind that this process sees."""
    if "devices" not in kind.choices or wish == ALL:
        return wish == ALL
    try:
        return set(device_names(kind.name, kind.choose(Wishes(devices=ALL)))) <= set(names)
    except errors.InputError:  # of several models, which nobody can choose
        return False


def by_preference() -> list[DeviceKind]:
    """All kinds of devices, the one to take first where nothing is said."""
    return sorted(DEVICES.values(), key=lambda kind: -kind.preference)


def served_by(cluster: RayCluster, kind: DeviceKind) -> ServedDevices:
    """All devices of that kind in a cluster."""
    names = on_nodes.names(cluster, kind.name)
    return ServedDevices(kind, None, f"{cluster.lanes} nodes' {kind.name}", names, cluster=cluster)


def open_patiently(url: str, say: Callable[[str], None], stop: StopSignal, until: datetime | None) -> Store:
    """The store that a worker is to serve: where it cannot be reached, it is waited for until a signal or the moment
    `until` comes, which raises Stopping. A service may be started together with its database."""

    def pulse() -> None:
        tell_manager("EXTEND_TIMEOUT_USEC=60000000")  # it is not ready yet, and no manager is to take it for stuck
        stop.check()
        if _is_late(until):
            raise Stopping(LATE)

    patience = Patience()
    patience.seconds, patience.say, patience.pulse = float("inf"), say, pulse
    with stop.in_hand():
        return Store.open(url, patience=patience)


def _is_late(until: datetime | None) -> bool:
    return until is not None and datetime.now(until.tzinfo) >= until


class Worker:
    """Serves devices from one store."""

    def __init__(
        self,
        store: Store,
        serves: ServedDevices,
        say: Callable[[str], None] = lambda _: None,
        cache_bytes: int | None = CACHE_BYTES,
        stop: StopSignal | None = None,
    ) -> None:
        """`say` hears lines for a person. `cache_bytes`: what the cache may take, pruned by use; None: anything."""
        self._store, self._serves, self._say, self._cache_bytes = store, serves, say, cache_bytes
        self._stop = stop or StopSignal()
        self._stop.now = self._hurry
        self._leases: list[Lease] = []
        self._until: datetime | None = None
        self._beaten = self._pruned = -float("inf")
        self._sick = ""
        self.name = f"worker {Lease.process()}"

    def run(self, until: datetime | None = None, idle_exit: bool = False) -> str:
        """Works until the moment `until`, a signal, or with `idle_exit` until nothing is left that it could do; why it
        has ended.

        Where another worker serves a device it stands by until that one is gone. Raises LeaseHeldError there with
        `idle_exit`, and LeaseLostError where one has taken a device over.
        """
        patience, serves = self._store.database.patience, self._serves
        self._until = until
        patience.seconds = float("inf")
        patience.say, patience.pulse = self._say, lambda: tell_manager("WATCHDOG=1")  # it lives while it waits
        try:
            with ExitStack() as stack:
                self._leases = self._wait_for_devices(stack, idle_exit)
                self._say(f"serves {', '.join(serves.names)} ({serves.model})")
                tell_manager("READY=1")
                with self._stop.in_hand():
                    go_on(self._store)
                    return self._loop(idle_exit)
        except Stopping as stopping:
            return f"stopped by {stopping}"
        finally:
            tell_manager("STOPPING=1")

    def _wait_for_devices(self, stack: ExitStack, idle_exit: bool) -> list[Lease]:
        """The leases of its devices, which the stack holds."""
        serves, said = self._serves, ""
        words = {name: serves.words[place] if serves.words else () for place, name in enumerate(serves.names)}
        where = words, socket.gethostname(), serves.kind.name, serves.model
        while True:
            try:
                return stack.enter_context(device_health.serving(self._store, *where, self.name))
            except errors.LeaseHeldError as error:
                if idle_exit:
                    raise
                if not said:
                    said = f"stands by: {str(error).partition(': wait for it')[0]}"
                    self._say(said)
                    tell_manager("READY=1")
            self._beat()
            if _is_late(self._until):
                raise Stopping(LATE)
            time.sleep(POLL_S)

    def _hurry(self) -> None:
        """Has to be gone within ten seconds: no long waits for the store any more."""
        self._store.database.patience.seconds = 0.0
        self._store.database.wait_s = HURRY_S

    def _loop(self, idle_exit: bool) -> str:
        while True:
            self._beat()
            self._prune()
            claim = self._next()
            if claim is not None:
                self._work_on(claim)
            elif _is_late(self._until):
                return "its time is over"
            elif idle_exit:
                return "nothing is left to do"
            else:
                time.sleep(POLL_S)

    def _beat(self) -> None:
        """Says that it lives. Raises Stopping when it has to go."""
        self._stop.check()
        now = time.monotonic()
        if now - self._beaten >= BEAT_S:
            for lease in self._leases:
                lease.beat()
            self._beaten = now
            tell_manager("WATCHDOG=1")

    def _beat_at_work(self) -> None:
        self._beat()
        self._prune()
        if _is_late(self._until):
            raise Stopping(LATE)

    def _prune(self) -> None:
        """Keeps the cache within its budget. What was used within the last hour stays."""
        now = time.monotonic()
        if self._cache_bytes is None or now - self._pruned < PRUNE_EVERY_S:
            return
        self._pruned = now
        done = cache.prune(self._cache_bytes)
        if done.removed:
            text = f"removed {done.removed} entries of the cache, {done.bytes / 2**20:.0f} MiB"
            self._say(text)
            sweeps.note(self._store, None, "pruned", text, {"bytes": done.bytes, "removed": done.removed})

    # Which sweep ------------------------------------------------------------------------------------------------

    def _next(self) -> Claim | None:
        """The sweep that is due and that these devices can do; None while there is none, or they are in quarantine."""
        settle_abandoned(self._store)
        if _is_late(self._until) or self._is_sick():
            return None
        for each in sweeps.due(self._store):
            if self._serves.fits(each):
                claim = sweeps.claim(self._store, each.id, self.name)
                if claim is not None:
                    return claim
        return None

    def _is_sick(self) -> bool:
        sick = device_health.quarantined(self._store, self._serves.names)
        said = "" if sick is None else f"{sick.name} is in quarantine: {sick.reason}; {sick.remedy}"
        if said and said != self._sick:
            self._say(said)
        self._sick = said
        return bool(said)

    # Work -------------------------------------------------------------------------------------------------------

    def _work_on(self, claim: Claim) -> None:
        """Works on a sweep until it ends, in whatever way, and says so in the store."""
        sweep = claim.sweep
        self._say(f"sweep {sweep.id} ({sweep.name}): begins")
        for lease in self._leases:
            lease.beat(f"sweep {sweep.id}")
        serves = self._serves
        says = Listener(begins=lambda _, study: self._say(f"sweep {sweep.id}: study {study}"))
        run = SweepRun(self._store, claim, says, self._beat_at_work, serves.wish, cluster=serves.cluster)
        try:
            with self._stop.in_hand():
                run.go()
            self._settle(run, State.DONE)
        except Interrupted as interrupted:
            self._settle(run, WISHED[interrupted.wish], "by a user")
        except Stopping as stopping:
            self._settle(run, State.QUEUED, f"handed back: {stopping}", kind="handed_back")
            if not _is_late(self._until) or self._stop.why is not None:
                raise
        except errors.LeaseLostError as error:
            self._say(f"sweep {sweep.id}: {error}")
            for lease in self._leases:  # raises where it is not only the sweep that another worker has taken over
                lease.beat()
        except (errors.LeaseHeldError, errors.DeviceBusyError, errors.DiskFullError) as error:
            self._put_off(claim, run, error)
        except errors.StoreError:
            raise
        except errors.InputError as error:
            self._refused(claim, run, error)
        except (errors.OracleError, errors.InfrastructureError) as error:
            self._doubt(claim, run, error)
        except Exception as error:  # a fault of ours: one sweep must not take the worker along
            self._say(traceback.format_exc())
            self._settle(run, State.FAILED, f"{type(error).__name__}: {error}")
        finally:
            claim.lease.close()
        for lease in self._leases:
            lease.beat(self.name)

    def _settle(self, run: SweepRun, state: State, detail: str = "", **more: Any) -> None:
        settled = run.end(state, detail, **more)
        self._say(f"sweep {settled.id}: {settled.state}" + (f": {settled.detail}" if settled.detail else ""))

    def _put_off(self, claim: Claim, run: SweepRun, error: errors.InputError) -> None:
        """What the sweep needs is taken, or full: that says nothing of the sweep, nor of the device."""
        is_full = isinstance(error, errors.DiskFullError)
        if is_full:
            self._pruned = -float("inf")
        waits, attempts = FULL_S if is_full else AGAIN_S, claim.sweep.attempts
        self._settle(run, State.QUEUED, str(error), attempts=attempts, wait_s=waits)

    def _refused(self, claim: Claim, run: SweepRun, error: errors.InputError) -> None:
        """The sweep cannot be done as it was asked for; or the device that it needs has gone."""
        try:
            if self._serves.cluster is None:  # a cluster's are seen to by the executor
                self._serves.kind.choose(Wishes(devices=self._serves.wish))
        except errors.InputError as gone:
            self._quarantine(claim, run, f"it has gone: {gone}")
            return
        self._settle(run, State.FAILED, str(error))

    def _doubt(self, claim: Claim, run: SweepRun, error: Exception) -> None:
        """The machinery has failed: is it the device, or this sweep?"""
        sweep = claim.sweep
        self._say(f"sweep {sweep.id}: {error}; probing the device")
        file = SpaceFile.stored(sweep.request.space_document)
        try:
            study = sweeps.one(self._store, sweep.id).study
            sick = probe(self._store, file, study, self._serves.bench, self._beat)
        except (errors.DeviceBusyError, errors.DiskFullError) as unknown:
            self._put_off(claim, run, unknown)
            return
        except errors.InputError as refused:
            sick = str(refused)
        sweeps.note(self._store, sweep.id, "probe", f"probe after {error}: {sick or 'the device is well'}")
        if sick is not None:
            self._quarantine(claim, run, f"{error}; a probe of known-good variants found: {sick}")
        elif isinstance(error, errors.OracleError) or sweep.attempts + 1 >= ATTEMPTS:
            self._settle(run, State.FAILED, str(error), attempts=sweep.attempts + 1)
        else:
            waits = AGAIN_S * (sweep.attempts + 1)
            self._settle(run, State.QUEUED, str(error), attempts=sweep.attempts + 1, wait_s=waits)

    def _quarantine(self, claim: Claim, run: SweepRun, reason: str) -> None:
        names = self._serves.names
        reason = " ".join(reason.split())
        device_health.quarantine(self._store, names, reason, f"{REMEDY} {' '.join(names)}`", claim.sweep.id)
        self._settle(run, State.QUEUED, f"{', '.join(names)} is in quarantine: {reason}", kind="handed_back")


# Is it the device, or the sweep? A probe of known-good variants decides. ----------------------------------------------

REMEDY = "look at the machine's log and at the device, then `autotuner devices clear"
Bench = Callable[[SpaceFile], Workbench]
"""A space on the devices in doubt."""


def probe(store: Store, file: SpaceFile, study: str | None, bench: Bench, beat: Beat) -> str | None:
    """Why the device is sick, in words; None where it judges a variant that is known to be good.

    Known to be good are the best variant of the sweep's study, and the default variant of the shipped space for the
    op on such a device. The device is well if either is judged: a space of one's own may be what is at fault.

    Raises DeviceBusyError where another autotuner times the device, and DiskFullError: nobody can tell then.
    """
    tried = []
    for here, variant in _known_good(store, file, study, bench):
        try:
            with here.held(0.0, lambda _: None), closing(here.executor()) as executor:
                why = _asked(executor, here, variant, beat)
        except (errors.DeviceBusyError, errors.DiskFullError):
            raise
        except errors.AutotunerError as error:
            why = str(error)
        if why is None:
            return None
        tried.append(why)
    return tried[0] if tried else "nothing that is known to be good can be judged there"


def _known_good(store: Store, file: SpaceFile, study: str | None, bench: Bench) -> list[tuple[Workbench, Variant]]:
    found = []
    if study is not None:
        here = bench(file)
        with suppress(errors.StoreError):  # killed before it was made
            best = standings.best(store, study)
            if best is not None and here.space.index_of(best.outcome.variant.point) is not None:
                found.append((here, best.outcome.variant))
    plain, shipped = file, op_of(file.problems[0]).default_spaces.get(file.backend)
    with suppress(errors.AutotunerError):  # it is not there
        if shipped is not None and Path(find_space_file(shipped)).is_file():
            plain = load_space(shipped)
    here = bench(plain)
    return [*found, (here, here.variant(here.space.default_index))]


def _asked(executor: Executor, here: Workbench, variant: Variant, beat: Beat) -> str | None:
    """Why the variant is not judged there; None where it is, and passes."""
    found = sound_calibration(ask(executor, CalibrationJob(conditions=here.conditions), beat))
    conditions = here.conditions.model_copy(update=found.pinned)
    built = ask(executor, BuildJob(variant=variant, conditions=conditions), beat)
    if isinstance(built, Built):
        built = ask(executor, JudgeJob(built=built, conditions=conditions, soak="never", fresh=True), beat)
    if isinstance(built, Outcome) and (built.verdict.has_latency or built.verdict == Verdict.DISTURBED):
        return None
    fault = getattr(built, "fault", None)
    return f"a variant known to be good was not judged: {fault.detail if fault is not None else built}"
