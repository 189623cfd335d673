"""Which sweeps a worker takes: one rule for workers and for those who say how long a sweep waits."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from autotuner.devices import DEVICES
from autotuner.store.records import DeviceRecord, Holder
from autotuner.values.sweep import SweepRequest

ALL = "all"
"""What `--devices` calls all devices that a process sees."""


def fits(request: SweepRequest, backend: str, words: Collection[str]) -> bool:
    """Whether a sweep can be done on devices of one kind that `--devices` calls so in their worker."""
    return request.backend == backend and _named(request) <= set(words)


def _named(request: SweepRequest) -> frozenset[str]:
    """The devices that were asked for; none where any will do, or where there is no choice: a worker says so."""
    if request.devices is None or (request.backend in DEVICES and "devices" not in DEVICES[request.backend].choices):
        return frozenset()
    return frozenset(word.strip() for word in request.devices.split(","))


class LivingWorker(NamedTuple):
    """A worker as the store knows it, with the devices that it serves."""

    holder: Holder
    devices: list[DeviceRecord]

    def __str__(self) -> str:
        return f"the worker {self.holder.pid} on {self.holder.host}"

    @property
    def sick(self) -> DeviceRecord | None:
        """One of its devices that is in quarantine: it takes no sweep then."""
        return next((each for each in self.devices if each.health == "quarantined"), None)

    @property
    def backend(self) -> str:
        """The kind of its devices."""
        return self.devices[0].backend

    def fits(self, request: SweepRequest) -> bool:
        """Whether it takes such a sweep."""
        return fits(request, self.backend, [word for each in self.devices for word in each.words])

    def works_on(self, holder: Holder) -> bool:
        """Whether that is this worker."""
        return (holder.host, holder.pid) == (self.holder.host, self.holder.pid)


def living(devices: Sequence[DeviceRecord]) -> list[LivingWorker]:
    """The workers that serve these devices now."""
    found: dict[tuple[str, int], LivingWorker] = {}
    for each in devices:
        if each.holder is not None:
            found.setdefault((each.holder.host, each.holder.pid), LivingWorker(each.holder, [])).devices.append(each)
    return list(found.values())
