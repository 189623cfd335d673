"""The shapes on which attention is judged, chosen for the mistakes they show.

Each is (batch, heads, seq_q, seq_k), where a problem with groups gives Q twice as many heads; or it ends with heads_kv.
"""

from collections.abc import Iterator, Mapping
from typing import cast

from autotuner.ops.op import Cases, OpCase
from autotuner.ops.sdpa.problem import FEW, SdpaProblem
from autotuner.values.problem import Problem, Shape
from autotuner.values.variant import Value

Some = tuple[OpCase, ...]

QUICK = (
    OpCase((2, 2, 200, 200), "big_v", "Q1 "),
    OpCase((2, 3, 200, 200), "one_hot", "Q2 "),
    OpCase((2, 3, 509, 509), "randn", "Q3 "),
    OpCase((2, 3, 113, 203), "randn", "Q4 "),
)
ANY = (
    OpCase((1, 8, 512, 512), "randn"),
    OpCase((2, 3, 203, 113), "randn"),
    OpCase((2, 2, 1, 130), "randn"),
    OpCase((2, 2, 65, 1), "randn"),
    OpCase((1, 1, 1, 1), "randn"),
    OpCase((2, 3, 257, 257), "large"),
    OpCase((2, 2, 257, 257), "huge"),
)
"""Of whatever attention reads."""
FULL = (
    *ANY,
    OpCase((1, 2, 130, 203), "enormous"),
    OpCase((1, 2, 130, 203), "equal_enormous"),
    OpCase((2, 2, 113, 203), "negative"),
    OpCase((2, 2, 130, 203), "outlier_key"),
    OpCase((2, 2, 130, 203), "outlier_row"),
    OpCase((2, 2, 130, 203), "outlier_channel"),
    OpCase((2, 2, 200, 200), "tiny_v"),
    OpCase((2, 2, 200, 200), "zero_q"),
    OpCase((2, 2, 200, 200), "uniform01"),
    OpCase((2, 2, 200, 200), "const_v"),
)
VIEWS = (OpCase((2, 3, 113, 203), "gaps", "Q5 "), OpCase((3, 2, 70, 91), "expanded", "Q6 "))
"""Of variants that serve any strides, and so the next ones."""
MORE_VIEWS = (
    OpCase((3, 2, 70, 91), "one_head"),
    OpCase((3, 2, 70, 91), "one_query"),
    OpCase((2, 3, 70, 91), "gaps_in_v"),
)
GROUPS = (OpCase((2, 8, 113, 203, 2), "one_hot", "Q7 "), OpCase((1, 7, 33, 130, 1), "randn", "Q8 "))
MORE_GROUPS = (
    OpCase((2, 8, 65, 130, 1), "randn"),
    OpCase((1, 3, 70, 91, 3), "randn"),
    OpCase((1, 4, 1, 130, 2), "huge"),
)
"""Of 8 heads, 1 head and 2."""
LENGTHS = (OpCase((5, 2, 70, 203), "ragged", "Q9 "),)
MORE_LENGTHS = (OpCase((7, 2, 1, 515), "ragged"), OpCase((6, 1, 130, 65), "ragged"))
WINDOWS = (OpCase((2, 2, 203, 203), "edges", "Q13 "), OpCase((2, 2, 203, 60), "randn", "Q14 "))
"""In the second the last rows are past all that they might see: the window is a third of the keys at most."""
MORE_WINDOWS = (
    OpCase((1, 2, 300, 515), "edges"),
    OpCase((2, 2, 203, 113), "edges"),
    OpCase((2, 2, 130, 4), "randn"),
    OpCase((1, 2, 257, 257), "huge"),
)
CAPPED = (OpCase((2, 2, 113, 203), "large", "Q15 "),)
MORE_CAPPED = (OpCase((1, 2, 257, 257), "huge"), OpCase((1, 2, 203, 113), "one_hot"))
SINKS = (OpCase((1, 5, 113, 203), "far_sinks", "Q16 "),)
MORE_SINKS = (OpCase((2, 5, 65, 1), "far_sinks"), OpCase((1, 5, 203, 60), "far_sinks"))
ALIBI = (OpCase((1, 4, 203, 113), "large", "Q17 "),)
BIAS = (OpCase((2, 2, 113, 203), "hiding", "Q18 "), OpCase((3, 2, 70, 91), "shared", "Q19 "))
MORE_BIAS = (OpCase((2, 2, 203, 60), "hiding"), OpCase((1, 2, 65, 1), "hiding"), OpCase((1, 3, 33, 515), "shared"))
BLIND = (OpCase((2, 2, 203, 113), "randn", "Q10 "),)
"""The first rows see no key where the last one sees all."""
FEW_QUERIES = (OpCase((2, 2, 1, 1000), "one_hot", "Q11 "), OpCase((1, 2, 5, 2049), "sink", "Q12 "))
MORE_FEW_QUERIES = (
    OpCase((1, 1, 1, 15), "randn"),
    OpCase((3, 2, 2, 333), "large"),
    OpCase((1, 2, 16, 777), "huge"),
    OpCase((1, 2, 3, 4097), "slopes"),
)
LONG_CAUSAL: Shape = (1, 1, 2049, 2049)

LONGEST_TILE_CASE = 520
"""No length around a tile is above this."""

USUAL_TILE = 64


def quick(problem: Problem, own: Some = QUICK, groups: Some = GROUPS, few: Some = FEW_QUERIES) -> Some:
    """The op's own quick cases, and those of what the problem has beside."""
    of = cast(SdpaProblem, problem)
    return (
        *own,
        *(VIEWS if of.layout != "bhsd" else ()),
        *(groups if of.grouped else ()),
        *(LENGTHS if of.key_lengths else ()),
        *(WINDOWS if of.windowed else ()),
        *(CAPPED if of.softcapped else ()),
        *(SINKS if of.sinks != "none" else ()),
        *(ALIBI if of.bias == "alibi" else ()),
        *(BIAS if of.bias in ("heads", "full") else ()),
        *(BLIND if of.corner == "bottom_right" else ()),
        *(few if of.seq_q <= FEW else ()),
    )


def full(problem: Problem, tile: tuple[int, ...], own: Some = FULL, few: Some = MORE_FEW_QUERIES) -> Iterator[OpCase]:
    """The op's own matrix beside the quick cases; a long one where there is a mask; and lengths around the tile."""
    of = cast(SdpaProblem, problem)
    # A cap makes 1 of what roundings leave of huge sums that cancel; beside a sink nothing is left of tiny weights.
    without = {"enormous"} if of.softcapped else set()
    without |= {"negative"} if of.sinks != "none" else set()
    yield from (case for case in own if case.distribution not in without)
    if of.causal or of.windowed:
        yield OpCase(LONG_CAUSAL, "randn")
    yield from MORE_VIEWS if of.layout != "bhsd" else ()
    yield from MORE_GROUPS if of.grouped else ()
    yield from MORE_LENGTHS if of.key_lengths else ()
    yield from MORE_CAPPED if of.softcapped else ()
    yield from MORE_SINKS if of.sinks != "none" else ()
    yield from MORE_BIAS if of.bias in ("heads", "full") else ()
    yield from MORE_WINDOWS if of.windowed else ()
    yield from few if of.seq_q <= FEW else ()
    for length in tile_lengths(tile):
        yield OpCase((1, 2, length, length), "randn", "tile ")
    for keys in {max(2, tile[1] + more) for more in (-1, 0, 1)} if of.windowed else ():
        yield OpCase((1, 2, 3 * keys, 3 * keys), "edges", "tile ")


def tile_lengths(tile: tuple[int, ...]) -> tuple[int, ...]:
    """Lengths at which a tail appears, just fits, or is just absent."""
    block_m, block_n = tile
    lengths = {block_m - 1, block_m, block_m + 1, block_n - 1, block_n, block_n + 1, 2 * block_n + block_n // 2 + 1}
    return tuple(sorted(length for length in lengths if 1 <= length <= LONGEST_TILE_CASE))


def tuned(problem: Problem) -> Shape:
    """The lengths of the problem with few heads: all of one group where there are groups."""
    of = cast(SdpaProblem, problem)
    if of.grouped:
        return (1, of.group, of.seq_q, of.seq_k, 1)
    return (1, min(of.heads, 2), of.seq_q, of.seq_k)


def alike(problem: Problem) -> Problem | None:
    """The same with few heads, where these differ in nothing but what was drawn."""
    of = cast(SdpaProblem, problem)
    differ = of.key_lengths or of.sinks != "none" or of.bias != "none"
    return None if differ else of.cased(tuned(of))


FEW_KEYS = 16
"""What one instruction of a tensor core multiplies with V."""


def few_keys(problem: Problem) -> str | None:
    """Why right outputs may be bitwise a baseline's: nothing but the order of one short sum could set them apart."""
    if cast(SdpaProblem, problem).seq_k > FEW_KEYS:
        return None
    return f"up to {FEW_KEYS} keys are one product and one sum, which right programs make alike"


def sanitized(tile: tuple[int, ...]) -> tuple[Shape, ...]:
    """A tool may slow a kernel down a hundred times: no case is much longer than LONGEST_TILE_CASE."""
    block_m, block_n = (min(block, LONGEST_TILE_CASE) for block in tile)
    return (1, 2, 33, 17), (2, 1, 1, 5), (1, 2, block_m + 1, block_n + 3)


def tile(parameters: Mapping[str, Value], resources: Mapping[str, int]) -> tuple[int, ...]:
    """(query rows, keys): as the variant is launched, else its parameters BLOCK_M and BLOCK_N, else USUAL_TILE."""
    block_m = resources.get("rows", parameters.get("BLOCK_M", USUAL_TILE))
    return (int(block_m), int(parameters.get("BLOCK_N", USUAL_TILE)))


CASES = Cases(
    smoke=(1, 2, 65, 65),
    quick=quick,
    full=full,
    tuned=tuned,
    copied=(2, 3, 509, 509),
    invariant=(2, 3, 113, 203),  # ragged, with more keys than queries
    repeated=(1, 8, 257, 257),
    soak=(1, 4, 129, 129),
    between=(1, 3, 70, 91),
    between_large=(2, 8, 300, 300),
    demanding="huge",
    sanitized=sanitized,
    tile=tile,
    alike=alike,
    beyond=frozenset({"enormous", "equal_enormous", "negative", "outlier_key", "outlier_row", "outlier_channel"}),
)
