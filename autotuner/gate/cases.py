"""The case matrix of the gate: shapes and input distributions, each chosen for the mistakes it shows."""

from __future__ import annotations

from autotuner.attention import Distribution
from autotuner.model import Model
from autotuner.outcome import Artifact
from autotuner.problem import Problem


class Case(Model):
    """One input to judge a variant on; dtype, head_dim and causal are the artifact's."""

    name: str
    problem: Problem
    distribution: Distribution = "randn"


class Matrix:
    """The cases for artifacts compiled for one dtype, head_dim and mask.

    With `lengths`, (seq_q, seq_k), the artifact serves no others: every case then has these.
    """

    def __init__(self, like: Problem, lengths: tuple[int, int] | None = None) -> None:
        self._like, self._lengths = like, lengths

    def case(self, shape: tuple[int, int, int, int], distribution: Distribution = "randn", label: str = "") -> Case:
        """A case of shape (batch, heads, seq_q, seq_k), as far as the artifact serves these lengths."""
        batch, heads, *lengths = shape
        seq_q, seq_k = self._lengths or lengths
        fields = {"batch": batch, "heads": heads, "seq_q": seq_q, "seq_k": seq_k}
        problem = self._like.model_copy(update=fields)
        name = f"{label}{batch}x{heads}x{seq_q}x{seq_k} {distribution}"
        return Case(name=name, problem=problem, distribution=distribution)

    def quick(self) -> tuple[Case, ...]:
        """G2: four cases that show nearly every mistake the whole matrix shows."""
        return (
            self.case((2, 2, 200, 200), "big_v", "Q1 "),
            self.case((2, 3, 200, 200), "one_hot", "Q2 "),
            self.case((2, 3, 509, 509), "randn", "Q3 "),
            self.case((2, 3, 113, 203), "randn", "Q4 "),
        )

    def full(self, tiles: tuple[int, int]) -> tuple[Case, ...]:
        """G5: the rest of the matrix, with lengths around the variant's own tiles (block_m, block_n)."""
        causal = self._like.causal
        cases = [
            self.case((1, 8, 512, 512)),
            self.case((2, 3, 203, 113)),
            self.case((2, 2, 1, 130)),
            self.case((2, 2, 65, 1)),
            self.case((1, 1, 1, 1)),
            self.case((2, 3, 257, 257), "large"),
            self.case((2, 2, 257, 257), "huge"),
            self.case((2, 2, 200, 200), "tiny_v"),
            self.case((2, 2, 200, 200), "zero_q"),
            self.case((2, 2, 200, 200), "uniform01"),
            self.case((2, 2, 200, 200), "const_v"),
        ]
        if causal:
            cases.append(self.case((1, 1, 2049, 2049)))
        cases += [self.case((1, 2, length, length), label="tile ") for length in tile_lengths(tiles)]
        return tuple({(case.problem, case.distribution): case for case in cases}.values())


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
