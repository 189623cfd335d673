"""What tuning promises, for a person."""

import math
from collections.abc import Sequence

from autotuner.tuning.foresight import Foresight
from autotuner.values.ratio import quoted
from autotuner.views.words import about, micros, percent, ratio


def lines(found: Sequence[Foresight], baseline: str, attention_of: float | None, search_s: float) -> list[str]:
    """What tuning the problems promises: of each problem, of a model of whose time they are the share `attention_of`,
    and how long a search takes."""
    said = [line for each in found for line in _of_problem(each, baseline)]
    low, high = _whole(found, least=True), _whole(found, least=False)
    unknown = "" if all(each.near for each in found) else ", with 1 for what nothing near is known of"
    if len(found) > 1:
        said.append(f"All together: {_span(low, high)} of {baseline}'s speed{unknown}.")
    if attention_of is not None:
        model = [1 / (1 - attention_of + attention_of / each) for each in (low, high)]
        most = f", and at most {ratio(1 / (1 - attention_of))} were they free" if attention_of < 1 else ""
        could = f"it could become {_span(*model)} as fast{unknown}{most}"
        said.append(f"They are {percent(attention_of)} of the model's time as it was recorded: {could}.")
    said.append(f"A search takes about {about(search_s)}, finals included; --minutes ends it earlier.")
    return said


def _of_problem(found: Foresight, baseline: str) -> list[str]:
    slower = {impl: f", {micros(us)} us at least" for impl, us in found.bounds_us.items() if us > found.bound_us}
    serving = ", ".join(f"{impl} ({points:,} points{slower.get(impl, '')})" for impl, points in found.serves.items())
    said = [str(found.problem), f"  can serve it: {serving}"]
    said += [f"  cannot: {impl}: {why}" for impl, why in found.left_out.items()]
    bound = f"nothing on this device takes less than {micros(found.bound_us)} us for it"
    if found.us is None:
        said.append(f"  {baseline} was not timed, it takes too long: {bound}")
    else:
        times = found.us / found.bound_us
        said.append(f"  {baseline} takes {micros(found.us)} us here, {times:.1f} times its bound: {bound}")
    said += [
        f"  near it: {each.problem}: {each.impl} {quoted(each.speedup, each.confirmed)} ({each.where}; distance"
        f" {each.distance:.3g})"
        for each in found.near
    ]
    return [*said, f"  to hope for: {_hope(found, baseline)}"]


def _hope(found: Foresight, baseline: str) -> str:
    if found.near:
        least = f"; where it is 1, {baseline} stays" if found.low == 1 and found.high > 1 else ""
        stays = f": {baseline} may well stay the fastest" if found.high == 1 else ""
        return f"{_span(found.low, found.high)}, by what is known of near problems{least}{stays}"
    return "nothing near it is known" + ("" if found.high == math.inf else f"; by the bound {found.high:.1f}x at most")


def _span(low: float, high: float) -> str:
    return f"{low:.2f}x" if f"{low:.2f}" == f"{high:.2f}" else f"{low:.2f}x to {high:.2f}x"


def _whole(found: Sequence[Foresight], least: bool) -> float:
    """Of all problems together, each by its share of the time. What nothing near is known of stays as it is."""
    gains = [(each.low if least else each.high) if each.near else 1.0 for each in found]
    total = math.fsum(each.weight for each in found)
    return total / math.fsum(each.weight / gain for each, gain in zip(found, gains, strict=True))


def busy_line(who: str) -> str:
    """Whether this machine is too busy to time anything now."""
    if not who:
        return "The machine is quiet: nobody is seen who would disturb timing."
    return f"The machine is busy: {who}. Intervals will be wide; --quiet-within waits for a quiet machine."
