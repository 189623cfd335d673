"""What a kernel family changes of the gate, in the table [gate] of its kernel.toml (docs/reference/kernel-toml.md).

Stricter costs nothing. Looser needs a written reason, which is kept in every report and shown with every export.
"""

from typing import Annotated, Self

from pydantic import Field, PositiveInt, StringConstraints, model_validator

from autotuner.values.model import Model

Reason = Annotated[str, StringConstraints(strip_whitespace=True, min_length=10)]
"""Why the gate may look away: a sentence, for whoever relies on the variant."""


class Tolerance(Model):
    """T1 to T3 times a number. `emulation` names one of the op's that they come from beside its own. `strict` adds a
    bound: the error of the op's peer, twice, and an ulp."""

    times: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    emulation: str | None = None
    strict: bool = False
    reason: Reason | None = None

    @model_validator(mode="after")
    def _reasoned(self) -> Self:
        if self.reason is None and (self.times > 1 or self.emulation is not None):
            raise ValueError("a tolerance of more than 1 times the gate's own, or of another emulation, needs a reason")
        return self


class OwnCase(Model):
    """One more case of the matrix, judged with two seeds; the sizes of `shape` are in the op's order."""

    shape: tuple[PositiveInt, ...] = Field(min_length=1)
    distribution: str = "randn"


class Omission(Model):
    """A distribution of inputs that the family is not judged on."""

    distribution: str
    reason: Reason


class GatePolicy(Model):
    """The table [gate] of a kernel.toml."""

    tolerance: Tolerance = Tolerance()
    cases: tuple[OwnCase, ...] = ()
    without: tuple[Omission, ...] = ()
    equals_baseline: Reason | None = Field(default=None, description="why the output may be bitwise a baseline's")

    @property
    def omitted(self) -> frozenset[str]:
        """The distributions that are left out."""
        return frozenset(each.distribution for each in self.without)

    @property
    def looser(self) -> tuple[str, ...]:
        """Where the gate looked away, a sentence each, with its reason."""
        said = [f"not judged on inputs {each.distribution}: {each.reason}" for each in self.without]
        of = self.tolerance
        if of.times > 1 or of.emulation is not None:
            named = f" of {of.emulation}" if of.emulation is not None else ""
            times = f" times {of.times:g}" if of.times != 1 else ""
            said.insert(0, f"tolerances{named}{times}: {of.reason}")
        if self.equals_baseline is not None:
            said.append(f"may give bitwise what a baseline gives: {self.equals_baseline}")
        return tuple(said)
