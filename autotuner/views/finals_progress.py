"""What a person sees of finals while they run."""

from __future__ import annotations

import time
from typing import Self

from rich.console import Console

from autotuner.tuning.finals.retrials import Step
from autotuner.tuning.run.quiet import Waited, Waiting
from autotuner.views.two_lines import TwoLines, left, with_bar


class FinalsProgress(TwoLines):
    """Two live lines on a terminal; elsewhere a line a step."""

    def __init__(self, console: Console, seconds: float) -> None:
        """`seconds`: what the finals should take."""
        super().__init__(console)
        self._began = self._since = time.monotonic()
        self._left_s, self._now, self._at = seconds, "starting", self._began

    def __enter__(self) -> Self:
        most = f"{self._left_s / 60:.2g} minutes at most" if self._left_s >= 60 else f"{self._left_s:.0f} s at most"
        self.say(f"finals: the best are timed again, in fresh processes and on fresh inputs; {most}")
        return super().__enter__()

    def hear(self, step: Step | Waiting | Waited) -> None:
        """Shows what the finals do."""
        now = time.monotonic()
        if isinstance(step, Waiting):
            self._now, self._since = f"waiting for {step.detail}", now - step.since_s
            return
        if isinstance(step, Waited):
            return
        self._now, self._since = step.text.partition(";")[0], now
        if step.left_s is not None:
            self._left_s, self._at = step.left_s, now
        if not step.passing:
            how_long = f"; {left(step.left_s)}" if step.left_s is not None and not self.is_live else ""
            self.say(f"finals: {step.text}{how_long}")

    def lines(self, width: int) -> list[str]:
        now = time.monotonic()
        still, gone = max(0.0, self._left_s - (now - self._at)), now - self._began
        share = gone / (gone + still) if gone + still else 0.0
        return [
            f"{self._now}; {now - self._since:.0f} s",
            with_bar("finals", share, f"{gone:.0f} s so far, {left(still)}", width),
        ]
