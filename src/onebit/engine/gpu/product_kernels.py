"""Products of the answers with vectors as Triton kernels: of their residuals, and of their pattern.

Chunks are walked as in ``engine.gpu.kernels``; ``gather_sums`` adds up the lines of each row.
"""

import triton
import triton.language as tl

from onebit.engine.gpu.kernels import _CODE_BITS, _chunk_bounds, _row_lines


@triton.jit
def residual_walk(
    answers, weight, start, chunk_row, row_chunk, vectors, own_odds, partial, first_chunk, first_answer,
    mean_weight, largest_weight,
    WEIGHTED: tl.constexpr, CHUNK: tl.constexpr, BLOCK: tl.constexpr, WIDTH: tl.constexpr,
    STRIDE: tl.constexpr,
):  # fmt: skip
    """Sum the products of one chunk's residuals with ``vectors``, whose last column holds the odds."""
    chunk = first_chunk + tl.program_id(0)
    row, begin, count = _chunk_bounds(start, chunk_row, row_chunk, chunk, CHUNK)
    begin -= first_answer
    at = tl.arange(0, WIDTH)
    inside = at < STRIDE
    odds = tl.load(own_odds + row)
    total = tl.zeros((BLOCK, WIDTH), tl.float32)
    for block in range(0, count, BLOCK):
        k = block + tl.arange(0, BLOCK)
        there = k < count
        answer = tl.load(answers + begin + k, mask=there, other=0)
        lines = vectors + (answer & _CODE_BITS).to(tl.int64) * STRIDE
        tile = tl.load(lines[:, None] + at[None, :], mask=there[:, None] & inside[None, :], other=0.0)
        both = odds * tl.load(lines + STRIDE - 1, mask=there, other=0.0)
        residual = tl.where(answer < 0, -2.0, 0.0) + 2.0 / (both + 1.0)
        if WEIGHTED:
            u = tl.load(weight + begin + k, mask=there, other=0.0)
            residual *= tl.minimum(u / mean_weight, largest_weight)
        total += residual[:, None] * tile
    out = partial + tl.program_id(0).to(tl.int64) * STRIDE
    tl.store(out + at, tl.sum(total, axis=0), mask=inside)


@triton.jit
def presence_walk(
    answers, start, chunk_row, row_chunk, vectors, partial, first_chunk, first_answer,
    CHUNK: tl.constexpr, BLOCK: tl.constexpr, WIDTH: tl.constexpr, STRIDE: tl.constexpr,
):  # fmt: skip
    """Sum the lines of ``vectors`` that the entries of one chunk name, each entry once.

    Rows list their columns in order, so that further answers of an entry follow the first.
    """
    chunk = first_chunk + tl.program_id(0)
    row, begin, count = _chunk_bounds(start, chunk_row, row_chunk, chunk, CHUNK)
    begin -= first_answer
    row_begin = tl.load(start + row) - first_answer
    at = tl.arange(0, WIDTH)
    inside = at < STRIDE
    total = tl.zeros((BLOCK, WIDTH), tl.float32)
    for block in range(0, count, BLOCK):
        k = block + tl.arange(0, BLOCK)
        there = k < count
        code = tl.load(answers + begin + k, mask=there, other=0) & _CODE_BITS
        follows = there & (begin + k > row_begin)
        before = tl.load(answers + begin + k - 1, mask=follows, other=0) & _CODE_BITS
        there = there & ((before != code) | (begin + k == row_begin))
        lines = vectors + code.to(tl.int64) * STRIDE
        total += tl.load(lines[:, None] + at[None, :], mask=there[:, None] & inside[None, :], other=0.0)
    out = partial + tl.program_id(0).to(tl.int64) * STRIDE
    tl.store(out + at, tl.sum(total, axis=0), mask=inside)


@triton.jit
def gather_sums(
    partial, row_chunk, scale, out, first_row, first_chunk,
    WIDTH: tl.constexpr, STRIDE: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """Add up the lines of each row and multiply them by its scale."""
    row = tl.program_id(0).to(tl.int64) + first_row
    at = tl.arange(0, WIDTH)
    inside = at < STRIDE
    first, last, step = _row_lines(row_chunk, row, first_chunk, GROUP)
    total = tl.zeros((WIDTH,), tl.float64)
    for k in range(first, last, step):
        total += tl.load(partial + k * STRIDE + at, mask=inside, other=0.0).to(tl.float64)
    tl.store(out + row * STRIDE + at, total * tl.load(scale + row).to(tl.float64), mask=inside)
