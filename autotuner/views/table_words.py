"""A dispatch table in words: who serves which problem."""

from autotuner.values.table import DispatchTable


def table_words(table: DispatchTable) -> str:
    """One line for each problem."""
    trials = {each.artifact: f"trial {each.trial} of {each.study}" for each in table.variants}
    count = len(table.variants)
    problems = "a problem" if len(table.entries) == 1 else f"{len(table.entries)} problems"
    served = f"serves {problems} with {count} variant{'' if count == 1 else 's'}"
    lines = [f"The table {served if count else f'leaves {problems} to the baseline'}:"]
    for entry in table.entries:
        if entry.use is None or entry.speedup is None:
            lines.append(f"  {entry.problem}: the baseline {entry.baseline}, {entry.why}")
        else:
            lines.append(f"  {entry.problem}: {trials[entry.use]}, {entry.speedup.mid:.3f}x, {entry.why}")
    return "\n".join([*lines, *_ranges(table)])


def ranges_words(table: DispatchTable) -> str:
    """What it serves between the tuned problems, and what was tried and is not served."""
    lines = _ranges(table) or ["  no length but the tuned ones"]
    left_out = [f"  not {each.problem}: {each.why}" for each in table.left_out]
    return "\n".join(["An export of this study serves beside the tuned problems:", *lines, *left_out])


def _ranges(table: DispatchTable) -> list[str]:
    trials = {each.artifact: f"trial {each.trial} of {each.study}" for each in table.variants}
    found: list[str] = []
    for each in table.ranges:
        low, high = (each.like.sized(shape) for shape in (each.low, each.high))
        worst = min(one.speedup.mid for one in each.validated)
        timed = f"{worst:.3f}x at least on {len(each.validated)} lengths that were not tuned"
        found.append(f"  {low} to {high}: {trials[each.use]}, {timed}")
    return found
