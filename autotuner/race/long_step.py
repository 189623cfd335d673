"""A step of many parts, such as samples, and how it is announced."""

from __future__ import annotations

import time

from autotuner.values.outcome import Say

EVERY_S = 2.0
"""Seconds between two announcements at least. Whoever hears one wakes up, on the CPUs that are timed perhaps; a race of
short samples is over before."""


class LongStep:
    """Announced when it begins and again as it goes on, between two parts. So its deadline, which runs from the last
    announcement, is one for a part, and not for all that a slow variant needs."""

    def __init__(self, say: Say, name: str) -> None:
        self._say, self._name = say, name
        self._announce()

    def _announce(self) -> None:
        self._say(self._name)
        self._due = time.monotonic() + EVERY_S

    def go_on(self) -> None:
        """Before a part."""
        if time.monotonic() >= self._due:
            self._announce()
