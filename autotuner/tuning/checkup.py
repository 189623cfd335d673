"""What a bug report needs of this machine: all that the rooms below find out, and the store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from autotuner.devices import DEVICES, checkup
from autotuner.devices.kind import Finding
from autotuner.run import cage
from autotuner.values.files import NETWORKS, file_system_of


def findings(store: str) -> Iterator[Finding]:
    """Of the machine, the store of that path or URL, and each kind of device with its cage."""
    yield from checkup.findings()
    yield _store(store)
    for kind in sorted(DEVICES.values(), key=lambda kind: kind.preference):
        yield from kind.findings()
    for name, kind in DEVICES.items():
        if kind.missing() is None:
            lacks = ". ".join(cage.missing(kind.cage))
            yield Finding(f"cage of {name}", cage.summary(kind.cage) + (f"; {lacks}" if lacks else ""))


def _store(store: str) -> Finding:
    if "://" in store:
        return Finding("store", f"a {store.partition(':')[0]} database")
    path = Path(store).expanduser().absolute()
    kind = file_system_of(path.parent)
    remedy = "give --store a path on a local disk, or postgresql://..." if kind in NETWORKS else ""
    return Finding("store", f"{path} on {kind or 'an unknown file system'}", remedy)
