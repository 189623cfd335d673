"""autotuner finds the fastest correct variant of a kernel for one device and one set of shapes, and proves it."""

from importlib import import_module
from typing import TYPE_CHECKING

from autotuner.values.versions import version_of

if TYPE_CHECKING:
    from autotuner.api import Study, StudyStore, judge, open_store, tune, tune_like
    from autotuner.ops.derived import op
    from autotuner.serve.hook import use
    from autotuner.serve.load import load
    from autotuner.serve.record import function, record

__version__ = version_of("kernel-autotuner")
__all__ = ["Study", "StudyStore", "function", "judge", "load", "op", "open_store", "record", "tune", "tune_like", "use"]

_RECORD = "autotuner.serve.record"
_SERVE = {"load": "autotuner.serve.load", "record": _RECORD, "function": _RECORD, "use": "autotuner.serve.hook"}


def __getattr__(name: str) -> object:
    """The Python interface is imported when it is asked for: a job's process imports this package too."""
    if name in __all__:
        return getattr(import_module({"op": "autotuner.ops.derived", **_SERVE}.get(name, "autotuner.api")), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
