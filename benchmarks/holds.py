"""What must hold of a result: a program that is given --hold says what does not, and its exit code is 1 then."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence


def add_option(parser: argparse.ArgumentParser) -> None:
    """Adds --hold."""
    parser.add_argument("--hold", action="store_true", help="exit code 1 where something that must hold does not")


def require(unmet: Sequence[str]) -> None:
    """Ends the program where something does not hold."""
    for each in unmet:
        print(f"does not hold: {each}", file=sys.stderr)
    if unmet:
        sys.exit(1)


def measured(found: Iterable[str], what: str, asked: Sequence[str] = ()) -> None:
    """Ends the program where nothing was measured, or not each of those that were asked for by name: that nothing is
    wrong with nothing proves nothing. To be called before a kept result is written over."""
    there = set(found)
    lacking = [f"{what} {each}: there is none to measure" for each in asked if each not in there]
    require(lacking or ([] if there else [f"no {what} was measured"]))


def share_interval(count: int, of: int, level: float = 0.95) -> tuple[float, float]:
    """The exact two-sided confidence interval of a share that was seen `count` times of so many (Clopper and Pearson,
    Biometrika 26, 1934); 0 to 1 where nothing was looked at."""
    from scipy.special import betaincinv

    tail = (1 - level) / 2
    low = float(betaincinv(count, of - count + 1, tail)) if count else 0.0
    return low, float(betaincinv(count + 1, of - count, 1 - tail)) if count < of else 1.0
