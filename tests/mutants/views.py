"""Mutants of attention over views: strides, groups, lengths, corners, log-sum-exps, and parts that are merged."""

import tomllib
from typing import NamedTuple

from autotuner.forge.family import Family
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.values.conditions import Conditions
from autotuner.values.outcome import Outcome
from autotuner.values.variant import Variant
from tests.mutants.expectations import MUTANTS, SEEDS, Backend, said

DOCUMENT = tomllib.loads((MUTANTS / "views.toml").read_text())
PROBLEMS: dict[Backend, str] = {"cpu": DOCUMENT["problem"], "cuda": DOCUMENT["cuda_problem"]}


class View(NamedTuple):
    """One mutant, and the codes of first failure that are acceptable."""

    name: str
    what: str
    codes: tuple[str, ...]
    words: str = "causal"
    """Of the mask, in its problem."""

    def __str__(self) -> str:
        return self.name

    def variant(self, backend: Backend) -> Variant:
        """The variant to judge."""
        return Variant(family="views", backend=backend, impl="mutant", parameters={"MUTANT": self.name})

    def met_by(self, outcome: Outcome) -> bool:
        """The first failure is one that is expected, or there is none where none is; without a pass no latency."""
        return bool(said(outcome) & {*self.codes}) and (outcome.measurement is not None) == (outcome.fault is None)


VIEWS = tuple(
    View(each["name"], each["what"], tuple(each["codes"]), each.get("words", "causal")) for each in DOCUMENT["mutant"]
)


def family() -> Family:
    """That of all of them."""
    return Family.load(MUTANTS / "views")


def conditions(view: View, backend: Backend) -> Conditions:
    """Conditions under which one is judged."""
    problems = (SdpaProblem.parse(PROBLEMS[backend].replace("causal", view.words)),)
    takes_lengths = "math" if problems[0].softcapped else {"cpu": "flash", "cuda": "efficient"}[backend]
    return Conditions(
        problems=problems, cache="warm", seeds=SEEDS, baselines=(takes_lengths,), min_blocks=2, max_blocks=2
    )
