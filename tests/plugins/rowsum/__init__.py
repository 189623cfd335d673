"""A tiny op of another package: y = the sum of each row of x, (rows, columns)."""

import autotuner

OP = autotuner.op(
    "rowsum",
    inputs={"x": "rows x columns"},
    output="rows",
    formula=lambda x: x.sum(-1),
    distributions={"huge": lambda x: 1e4 * x},
)
