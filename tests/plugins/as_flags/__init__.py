"""An export format of another package: the parameters as flags of a compiler."""

from autotuner.serve.best import Format
from autotuner.store import StudyRecord
from autotuner.tuning.finals.standings import Best
from autotuner.values.table import DispatchTable


def flags(best: Best, study: StudyRecord, table: DispatchTable | None) -> str:
    """A line of flags under a line that says where they are from."""
    point = best.entry.variant.point
    return f"# {study.name}, trial {best.entry.number}\n" + " ".join(f"-D{name}={point[name]}" for name in point) + "\n"


FORMAT = Format("best.flags", flags)
