"""The case matrix of the gate: shapes and input distributions, each chosen for the mistakes it shows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from autotuner.build.family import Claims
from autotuner.ops.sdpa.problem import Distribution, Problem
from autotuner.values.model import Model
from autotuner.values.outcome import Artifact


class Case(Model):
    """One input to judge a variant on; dtype, head_dim and causal are the artifact's."""

    name: str
    problem: Problem
    distribution: Distribution = "randn"


Shape = tuple[int, int, int, int]
"""(batch, heads, seq_q, seq_k)."""

QUICK: tuple[tuple[str, Shape, Distribution], ...] = (
    ("Q1 ", (2, 2, 200, 200), "big_v"),
    ("Q2 ", (2, 3, 200, 200), "one_hot"),
    ("Q3 ", (2, 3, 509, 509), "randn"),
    ("Q4 ", (2, 3, 113, 203), "randn"),
)
FULL: tuple[tuple[Shape, Distribution], ...] = (
    ((1, 8, 512, 512), "randn"),
    ((2, 3, 203, 113), "randn"),
    ((2, 2, 1, 130), "randn"),
    ((2, 2, 65, 1), "randn"),
    ((1, 1, 1, 1), "randn"),
    ((2, 3, 257, 257), "large"),
    ((2, 2, 257, 257), "huge"),
    ((2, 2, 200, 200), "tiny_v"),
    ((2, 2, 200, 200), "zero_q"),
    ((2, 2, 200, 200), "uniform01"),
    ((2, 2, 200, 200), "const_v"),
)
LONG_CAUSAL: Shape = (1, 1, 2049, 2049)


class Neighbours(NamedTuple):
    """What runs between two launches that are compared: it leaves its traces in memory."""

    foreign: Problem
    """For torch's kernels."""
    own: Problem | None
    """For the variant itself; None when it serves one pair of lengths alone."""


class Matrix:
    """The cases for artifacts compiled for one dtype, head_dim and mask, at lengths that the artifact serves.

    With `lengths`, (seq_q, seq_k), it serves no others: every case then has these. What `claims` say it does not serve
    is replaced by the nearest lengths that it does.
    """

    def __init__(self, like: Problem, lengths: tuple[int, int] | None = None, claims: Claims | None = None) -> None:
        self._like, self._lengths, self._claims = like, lengths, claims or Claims()

    def _problem(self, shape: Shape) -> Problem:
        batch, heads, seq_q, seq_k = shape
        return self._like.model_copy(update={"batch": batch, "heads": heads, "seq_q": seq_q, "seq_k": seq_k})

    def case(self, shape: Shape, distribution: Distribution = "randn", label: str = "") -> Case:
        """A case of this shape, or of the nearest lengths that the artifact serves."""
        found = self._problem((*shape[:2], *(self._lengths or shape[2:])))
        served = self._claims.nearest(found) or self._problem((*shape[:2], self._like.seq_q, self._like.seq_k))
        lengths = f"{served.batch}x{served.heads}x{served.seq_q}x{served.seq_k}"
        return Case(name=f"{label}{lengths} {distribution}", problem=served, distribution=distribution)

    def neighbours(self, shape: Shape) -> Neighbours:
        """What runs between launches, of this shape; for the variant of the nearest lengths that it serves."""
        problem = self._problem(shape)
        return Neighbours(problem, None if self._lengths is not None else self._claims.nearest(problem))

    def quick(self) -> tuple[Case, ...]:
        """G2: four cases that show nearly every mistake the whole matrix shows."""
        return self._wanted(self.case(shape, distribution, label) for label, shape, distribution in QUICK)

    def full(self, tiles: tuple[int, int]) -> tuple[Case, ...]:
        """G5: the rest of the matrix, with lengths around the variant's own tiles (block_m, block_n)."""
        cases = [self.case(shape, distribution) for shape, distribution in FULL]
        if self._like.causal:
            cases.append(self.case(LONG_CAUSAL))
        cases += [self.case((1, 2, length, length), label="tile ") for length in tile_lengths(tiles)]
        cases += [self.case(own.shape, own.distribution, label="own ") for own in self._claims.policy.cases]
        return self._wanted(cases)

    def _wanted(self, cases: Iterable[Case]) -> tuple[Case, ...]:
        """Each case once, without the distributions that the family's policy leaves out."""
        kept = (case for case in cases if case.distribution not in self._claims.policy.omitted)
        return tuple({(case.problem, case.distribution): case for case in kept}.values())

    @property
    def bounded(self) -> bool:
        """True when the artifact must refuse some lengths."""
        return bool(self.outside())

    def outside(self) -> tuple[Problem, ...]:
        """Problems beside those that the artifact serves, four at most: it must refuse them."""
        if self._lengths is not None:
            seq_q, seq_k = self._lengths
            near = ((seq_q + 1, seq_k), (seq_q, seq_k + 1), (seq_q - 1, seq_k))
            return tuple(self._problem((1, 2, *lengths)) for lengths in near if min(lengths) > 0)
        shapes = [shape for _, shape, _ in QUICK] + [shape for shape, _ in FULL]
        refused = (problem for shape in shapes if not self._claims.serve(problem := self._problem(shape)))
        return tuple(dict.fromkeys(refused))[:4]


def served(problems: Iterable[Problem], claims: Claims) -> tuple[Problem, ...]:
    """Each problem, or the one of the nearest lengths that the variant serves."""
    found = (claims.nearest(problem) for problem in problems)
    return tuple(dict.fromkeys(problem for problem in found if problem is not None))


def tile_lengths(tiles: tuple[int, int]) -> tuple[int, ...]:
    """Lengths at which a tail appears, just fits, or is just absent, at most 520."""
    block_m, block_n = tiles
    lengths = {block_m - 1, block_m, block_m + 1, block_n - 1, block_n, block_n + 1, 2 * block_n + block_n // 2 + 1}
    return tuple(sorted(length for length in lengths if 1 <= length <= 520))


def tiles_of(artifact: Artifact) -> tuple[int, int]:
    """The artifact's own tile (block_m, block_n): as it is launched, else its parameters of that name, else 64."""
    parameters = artifact.variant.parameters
    block_m = artifact.resources.get("rows", parameters.get("BLOCK_M", 64))
    return (int(block_m), int(parameters.get("BLOCK_N", 64)))
