"""What a study has shown, in words."""

from __future__ import annotations

from collections.abc import Mapping

from autotuner.values.variant import Value
from autotuner.views.beliefs import StudyBeliefs
from autotuner.views.built_knobs import BuiltKnob
from autotuner.views.rejects import RejectedWhere
from autotuner.views.surrogate_beliefs import Belief, Beliefs, ParameterEffect, Trust

SHOWN = 0.01
"""Smallest share of the variance that is worth a line, 0..1."""
TELLING = 1e-4
"""Smallest expected improvement that is worth a line, of ln(t_variant / t_baseline)."""
PAIRS = 5
"""Pairs of parameters, at most, that are listed."""
WEAK = 0.3
"""Rank correlation below which the beliefs hardly put points in order."""


def lines(study: StudyBeliefs) -> list[str]:
    """The beliefs for a person; a line that begins with blanks belongs to the one above that does not."""
    head = (
        f"{study.study}: {study.judged} of {study.points:,} valid points judged: {study.measured} measured,"
        f" {sum(study.rejected.values())} rejected."
    )
    beliefs = study.beliefs
    if beliefs is None:
        remedy = "go on with `autotuner tune`" if study.left else "the space has no more"
        missing = (
            f"Too few measured trials to say what matters or what is left to find: {study.measured}, and"
            f" {study.enough} are needed; {remedy}."
        )
        return [head, missing, *_dead(study.knobs), *_rejects(study)]
    return [
        head,
        *_matters(beliefs),
        *_values(beliefs),
        *_dead(study.knobs),
        *_rejects(study),
        *_left(study, beliefs),
        _trust(beliefs.trust),
    ]


def _matters(beliefs: Beliefs) -> list[str]:
    found = [
        "What matters: the share of the variance of the believed speed that it explains alone (in the fastest quarter)"
    ]
    matter = [each for each in beliefs.parameters if max(each.share, each.fast_share) >= SHOWN]
    found += [f"  {each.parameter:<24} {_shares(each.share, each.fast_share)}" for each in matter]
    rest = [each.parameter for each in beliefs.parameters if each not in matter]
    if rest:
        found.append(f"  hardly: {', '.join(rest)}")
    pairs = [each for each in beliefs.pairs if max(each.share, each.fast_share) >= SHOWN]
    pairs = sorted(pairs, key=lambda each: -max(each.share, each.fast_share))[:PAIRS]
    if not pairs:
        return [*found, "No two parameters interact noticeably."]
    found.append("What interacts: the share that two explain beyond each alone")
    return found + [f"  {' and '.join(each.parameters):<24} {_shares(each.share, each.fast_share)}" for each in pairs]


def _shares(share: float, fast: float) -> str:
    return f"{share:6.1%} ({fast:.1%})"


def _values(beliefs: Beliefs) -> list[str]:
    matter = [each for each in beliefs.parameters if max(each.share, each.fast_share) >= SHOWN]
    head = "The best value of each, by the mean over all valid points with it (up to: the fastest of these):"
    return [head, *(f"  {_value_line(each)}" for each in matter)] if matter else []


def _value_line(effect: ParameterEffect) -> str:
    first, *others = effect.values
    found = f"{effect.parameter}: {first.value} (up to {first.best:.3f}x)"
    slower = [f"{each.value} {each.slower:.1%} slower (up to {each.best:.3f}x)" for each in others]
    return "; ".join([found, *slower])


def _dead(knobs: tuple[BuiltKnob, ...]) -> list[str]:
    dead = [line for knob in knobs for line in _dead_lines(knob)]
    seen = sum(knob.state != "not seen" for knob in knobs)
    if dead:
        head = f"What did not reach the program, of {seen} parameters that two trials differ in alone:"
    elif not seen:
        head = "Whether a parameter is dead is not known: no two trials differ in one alone."
    else:
        head = f"No parameter is dead: each of the {seen} that two trials differ in alone changed the program."
    unseen: dict[str, list[str]] = {}
    for knob in knobs:
        if knob.state == "not seen":
            unseen.setdefault(knob.impl, []).append(knob.parameter)
    return [head, *dead, *(f"  not seen at IMPL={impl}: {', '.join(names)}" for impl, names in unseen.items())]


def _dead_lines(knob: BuiltKnob) -> list[str]:
    if knob.state == "dead":
        said = f"dead so far, the same program in all {knob.same} pairs"
    elif knob.state == "same values":
        pairs = ", ".join(f"{one} and {other} ({count} pairs)" for one, other, count in knob.alike)
        said = f"the same program wherever both were built: {pairs}"
    else:
        return []
    return [f"  {knob.parameter} at IMPL={knob.impl}: {said}"]


def _rejects(study: StudyBeliefs) -> list[str]:
    if not study.rejected:
        return ["Nothing was rejected."]
    found = [f"  {_region(each)}" for each in study.rejects]
    if study.elsewhere:
        found.append(f"  {'elsewhere' if found else 'here and there'}: {_codes(study.elsewhere)}")
    return ["What is rejected where:", *found]


def _region(region: RejectedWhere) -> str:
    return f"{_point(region.where)}: {region.rejected} of {region.judged} rejected: {_codes(region.codes)}"


def _codes(codes: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {code}" for code, count in codes.items())


def _point(point: Mapping[str, Value]) -> str:
    return " ".join(f"{name}={value}" for name, value in point.items())


def _left(study: StudyBeliefs, beliefs: Beliefs) -> list[str]:
    best = f"Believed to be the fastest of all: {_belief(beliefs.best)}{' (judged)' if beliefs.best.judged else ''}"
    if not beliefs.promising:
        return [best, "Every valid point was judged: nothing is left."]
    of = "" if beliefs.looked_at == study.points else f", of {beliefs.looked_at:,} by lot and the best ones' neighbours"
    head = f"Not judged: {study.left:,} points. The most promising{of}, with the improvement expected of each:"
    points = [f"  {each.gain:.2%}: {_belief(each)}" for each in beliefs.promising if each.gain and each.gain >= TELLING]
    none = f"Not judged: {study.left:,} points. None{of} is expected to improve by {TELLING:.2%}."
    return [best, *([head, *points] if points else [none]), _end(study, beliefs)]


def _end(study: StudyBeliefs, beliefs: Beliefs) -> str:
    gain, tie = f"{beliefs.gain:.2%}", f"{study.tie:.2%}"
    if beliefs.converged:
        return f"Converged: the largest expected improvement, {gain}, is below the tie band of {tie}."
    return f"Not converged: the largest expected improvement, {gain}, is not below the tie band of {tie}."


def _belief(belief: Belief) -> str:
    return f"{belief.speedup:.3f}x ({belief.low:.3f} to {belief.high:.3f}) {_point(belief.point)}"


def _trust(trust: Trust | None) -> str:
    if trust is None:
        return "How far to trust this: unknown, too few of the later trials were measured; go on with `autotuner tune`."
    order = "no order to compare" if trust.rank_correlation is None else f"{trust.rank_correlation:+.2f}"
    weak = trust.rank_correlation is not None and trust.rank_correlation < WEAK
    return (
        f"How far to trust this: learned from the first {trust.learned} trials, the {trust.checked} measured after them"
        f" lay within their 95 % interval in {trust.within:.0%} of the cases; rank correlation {order}"
        f"{': which of them is faster was hardly known' if weak else ''}."
    )
