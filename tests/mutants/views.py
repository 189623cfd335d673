"""Mutants of attention that are judged alike on each device, by table: over views (strides, groups, lengths, corners,
log-sum-exps, and parts that are merged), and in Triton."""

import tomllib
from typing import Any, NamedTuple

from autotuner.forge.family import Family
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.values.conditions import Conditions
from autotuner.values.variant import Variant
from tests.helpers.judging import briefly
from tests.mutants.expectations import MUTANTS, SEEDS, Backend

FAMILIES = {"views": "views", "triton": "of_triton"}
"""The kernel family of each table."""
DOCUMENTS: dict[str, dict[str, Any]] = {
    table: tomllib.loads((MUTANTS / f"{table}.toml").read_text()) for table in FAMILIES
}


class View(NamedTuple):
    """One mutant, and the codes of first failure that are acceptable."""

    name: str
    what: str
    codes: tuple[str, ...]
    words: str = "causal"
    """Of the mask, in its problem."""
    table: str = "views"
    own: str | None = None
    """A problem of its own, where the table's does not show it."""

    def __str__(self) -> str:
        return self.name

    def variant(self, backend: Backend) -> Variant:
        """The variant to judge."""
        ((impl, implementation),) = family(self.table).document.devices[backend].items()
        others = {name: values[0] for name, values in implementation.parameters.items() if name != "MUTANT"}
        parameters = {"MUTANT": self.name, **others}
        return Variant(family=FAMILIES[self.table], backend=backend, impl=impl, parameters=parameters)


def mutants(table: str) -> tuple[View, ...]:
    """Those of a table."""
    return tuple(
        View(
            *(each["name"], each["what"], tuple(each["codes"]), each.get("words", "causal")),
            *(table, each.get("problem")),
        )
        for each in DOCUMENTS[table]["mutant"]
    )


VIEWS = mutants("views")


def problem(table: str, backend: Backend) -> str:
    """On which those of a table are judged."""
    return str(DOCUMENTS[table][{"cpu": "problem", "cuda": "cuda_problem"}[backend]])


def family(table: str = "views") -> Family:
    """That of all of them."""
    return Family.load(MUTANTS / FAMILIES[table])


def conditions(view: View, backend: Backend) -> Conditions:
    """Conditions under which one is judged."""
    text = view.own or problem(view.table, backend).replace("causal", view.words)
    on = SdpaProblem.parse(text)
    takes = "efficient" if backend == "cuda" and on.key_lengths else "flash"  # the problem
    return briefly(on, SEEDS, "math" if on.softcapped else takes)
