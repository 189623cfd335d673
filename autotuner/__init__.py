"""autotuner finds the fastest correct variant of a kernel for one device and one set of shapes, and proves it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autotuner.values.versions import version_of

if TYPE_CHECKING:
    from autotuner.api import Study, StudyStore, gate, open_store, tune, tune_like

__version__ = version_of("autotuner")
__all__ = ["Study", "StudyStore", "gate", "open_store", "tune", "tune_like"]


def __getattr__(name: str) -> object:
    """The Python interface is imported when it is asked for: a job's process imports this package too."""
    if name in __all__:
        from autotuner import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
