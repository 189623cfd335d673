"""rmsnorm in Triton: ROWS rows a program, BLOCK columns at a time; the first BLOCK columns are read once."""

import triton
import triton.language as tl


@triton.jit
def rows(X, W, Y, tokens, hidden_size, eps, ROWS: tl.constexpr, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    if EVEN:  # a multiple of 8, and Triton shall know: its loads are of 16 bytes then
        hidden_size = hidden_size // 8 * 8
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    first = tl.arange(0, BLOCK)[None, :]
    here = row < tokens
    X += row * hidden_size
    Y += row * hidden_size
    x = tl.load(X + first, here & (first < hidden_size), 0.0).to(tl.float32)
    squares = x * x
    for start in range(BLOCK, hidden_size, BLOCK):
        columns = start + first
        more = tl.load(X + columns, here & (columns < hidden_size), 0.0).to(tl.float32)
        squares += more * more
    factor = 1.0 / tl.sqrt(tl.sum(squares, 1, keep_dims=True) / hidden_size + eps)
    w = tl.load(W + first, first < hidden_size, 0.0).to(tl.float32)
    tl.store(Y + first, (x * factor * w).to(Y.dtype.element_ty), here & (first < hidden_size))
    for start in range(BLOCK, hidden_size, BLOCK):
        columns = start + first
        x = tl.load(X + columns, here & (columns < hidden_size), 0.0).to(tl.float32)
        w = tl.load(W + columns, columns < hidden_size, 0.0).to(tl.float32)
        tl.store(Y + columns, (x * factor * w).to(Y.dtype.element_ty), here & (columns < hidden_size))
