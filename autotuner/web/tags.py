"""What a page shows as a word: another one as soon as the page would say something else.

Some of it moves with the clock alone. It counts as far as a page says it, times to the minute: a page is not drawn anew
at every look.
"""

import hashlib
from datetime import datetime

from autotuner.jobs.outlook import Outlook
from autotuner.store.records import DeviceRecord
from autotuner.views.words import about


def of(*shown: object) -> str:
    """The word for values that say in their repr what they are."""
    return hashlib.sha256(repr(shown).encode()).hexdigest()[:16]


def of_sweep(found: Outlook) -> str:
    """That of a sweep as it is now."""
    sweep = found.sweep
    return of(
        (sweep.id, sweep.state, sweep.wish, sweep.detail, about(sweep.spent_s)),
        None if sweep.holder is None else (sweep.holder.host, sweep.holder.pid),
        (found.judged, found.best_speedup, found.best_confirmed, found.place, found.waits),
        None if found.left_s is None else about(found.left_s),
    )


def of_device(device: DeviceRecord) -> str:
    """That of a device, and of who serves it."""
    held = device.holder
    return of(
        (device.name, device.model, device.health, device.reason, device.remedy),
        _minute(device.seen_at) if held is None else (held.host, held.pid, held.doing, _minute(held.seen)),
    )


def _minute(moment: datetime | None) -> datetime | None:
    return None if moment is None else moment.replace(second=0, microsecond=0)
