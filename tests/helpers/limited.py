"""A space and the limits of its kernel family, made up for tests."""

from autotuner.spaces.fields import Rule
from autotuner.spaces.limits import Limits, LimitTable
from tests.helpers.files import text

TEXT = text("tiles.toml")


def rule(expression: str, reason: str = "because") -> Rule:
    return Rule(expression=expression, reason=reason)


LIMITS = Limits(
    family="tiles",
    device="cpu",
    op="sdpa",
    path="tiles/limits.toml",
    parameters={
        "plain": ["BLOCK"],
        "wide": ["BLOCK", "WIDTH"],
        "split": ["BLOCK", "WIDTH", "PARTS"],
        "odd": ["BLOCK", "ODD"],
    },
    tables={
        "": LimitTable(constraints=(rule("BLOCK >= 8"), rule("ODD > 1")), amounts={"TWICE": "2 * BLOCK"}),
        "wide": LimitTable(
            amounts={"ROWS": "BLOCK // WIDTH"},
            constraints=(rule("ROWS >= 2", "two rows at least"), rule("BLOCK != 32")),
            derived={"VECTORS": "ceil_div(SEQ_Q, ROWS)"},
        ),
        "split": LimitTable(
            constraints=(rule('IMPL == "split" and TWICE <= 64'),),
            expected_latency={"STEP": "BLOCK + PARTS", "TIME": "1000 // STEP"},
        ),
        "odd": LimitTable(amounts={"ODDS": "ODD + 1"}, constraints=(rule("BLOCK > 8"), rule("ODDS > 2"))),
    },
)
