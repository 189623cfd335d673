"""A dispatch table in words: who serves which problem."""

from __future__ import annotations

from autotuner.values.table import Table


def table_words(table: Table) -> str:
    """One line for each problem."""
    trials = {each.artifact: f"trial {each.trial} of {each.study}" for each in table.variants}
    count = len(table.variants)
    lines = [f"The table serves {len(table.entries)} problems with {count} variant{'' if count == 1 else 's'}:"]
    for entry in table.entries:
        if entry.use is None or entry.speedup is None:
            lines.append(f"  {entry.problem}: the baseline {entry.baseline}, {entry.why}")
        else:
            lines.append(f"  {entry.problem}: {trials[entry.use]}, {entry.speedup.mean:.3f}x, {entry.why}")
    return "\n".join(lines)
