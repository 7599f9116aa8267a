"""Triton kernels for predictions: scores of pairs, and the highest scores of every row."""

import triton
import triton.language as tl


@triton.jit
def score_pairs(
    rows, columns, row_mean, row_covariance, column_mean, column_covariance, first, second, factor,
    out_mean, out_variance, n,
    WITH_VARIANCE: tl.constexpr, FULL: tl.constexpr, RANK: tl.constexpr, ROW_FREE: tl.constexpr,
    COLUMN_FREE: tl.constexpr, SIZE: tl.constexpr, WIDTH: tl.constexpr, D: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Write the mean, and the variance, of the scores of pairs of codes.

    The variance is ``f' V_i f + g' V_j g + tr(V_i V_j)``, where ``f`` and ``g`` are what row and column
    face; ``first``, ``second`` and ``factor`` describe the packed triangle's places.
    """
    k = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    there = k < n
    i = tl.load(rows + k, mask=there, other=0).to(tl.int64)
    j = tl.load(columns + k, mask=there, other=0).to(tl.int64)
    a = tl.arange(0, D)
    in_rank = there[:, None] & (a < RANK)[None, :]
    left = tl.load(row_mean + i[:, None] * ROW_FREE + a[None, :], mask=in_rank, other=0.0)
    right = tl.load(column_mean + j[:, None] * COLUMN_FREE + a[None, :], mask=in_rank, other=0.0)
    mean = tl.sum(left * right, axis=1)
    if ROW_FREE > RANK:
        mean += tl.load(row_mean + i * ROW_FREE + RANK, mask=there, other=0.0)
    if COLUMN_FREE > RANK:
        mean += tl.load(column_mean + j * COLUMN_FREE + RANK, mask=there, other=0.0)
    tl.store(out_mean + k, mean, mask=there)
    if WITH_VARIANCE:
        t = tl.arange(0, WIDTH)
        if FULL:
            row_line = ROW_FREE * (ROW_FREE + 1) // 2
            column_line = COLUMN_FREE * (COLUMN_FREE + 1) // 2
            both_size = RANK * (RANK + 1) // 2
        else:
            row_line, column_line, both_size = ROW_FREE, COLUMN_FREE, RANK
        in_row = there[:, None] & (t < row_line)[None, :]
        in_column = there[:, None] & (t < column_line)[None, :]
        v = tl.load(row_covariance + i[:, None] * row_line + t[None, :], mask=in_row, other=0.0)
        w = tl.load(column_covariance + j[:, None] * column_line + t[None, :], mask=in_column, other=0.0)
        p = tl.load(first + t, mask=t < SIZE, other=0)[None, :]
        q = tl.load(second + t, mask=t < SIZE, other=0)[None, :]
        lines = j[:, None] * COLUMN_FREE
        f = tl.load(column_mean + lines + p, mask=in_row & (p < RANK), other=1.0)
        f *= tl.load(column_mean + lines + q, mask=in_row & (q < RANK), other=1.0)
        lines = i[:, None] * ROW_FREE
        g = tl.load(row_mean + lines + p, mask=in_column & (p < RANK), other=1.0)
        g *= tl.load(row_mean + lines + q, mask=in_column & (q < RANK), other=1.0)
        cross = tl.where((t < both_size)[None, :], v * w, 0.0)
        times = tl.load(factor + t, mask=t < SIZE, other=0.0)[None, :]
        variance = tl.sum(times * (v * f + w * g + cross), axis=1)
        tl.store(out_variance + k, variance, mask=there)


@triton.jit
def _key(score, place):
    """Return an integer that sorts by score, highest last, and among equal ones by place, lowest last."""
    bits = score.to(tl.int32, bitcast=True)
    ordered = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits).to(tl.int64)
    return (ordered << 32) | (0x7FFFFFFF - place).to(tl.int64)


@triton.jit
def _unseen(scores, seen, lines, columns, inside, WORDS: tl.constexpr):
    """Put minus infinity where a bit of ``seen`` is set."""
    word = tl.load(seen + lines * WORDS + columns // 32, mask=inside, other=0)
    return tl.where(((word >> (columns % 32)) & 1) != 0, -float("inf"), scores)


@triton.jit
def mark_seen(seen, start, index, rows, n_known, WORDS: tl.constexpr, BLOCK: tl.constexpr):
    """Set the bits of the columns that each of ``rows`` has answered."""
    line = tl.program_id(0).to(tl.int64)
    row = tl.load(rows + line).to(tl.int64)
    known = row < n_known
    begin = tl.load(start + row, mask=known, other=0)
    end = tl.load(start + row + 1, mask=known, other=0)
    for at in range(begin, end, BLOCK):
        k = at + tl.arange(0, BLOCK)
        there = k < end
        column = tl.load(index + k, mask=there, other=0)
        bit = tl.full((BLOCK,), 1, tl.int32) << (column % 32)
        tl.atomic_or(seen + line * WORDS + column // 32, bit, mask=there)


@triton.jit
def tile_best(
    row_factors, column_factors, offset, seen, best, n_rows, n_columns, tiles,
    SEEN: tl.constexpr, WORDS: tl.constexpr, K: tl.constexpr, ROWS: tl.constexpr,
    COLUMNS: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """Write the key of the highest score of some rows in each of ``TILES`` tiles of columns.

    ``row_factors`` has one line a row, ``column_factors`` one line a factor.
    """
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    a = tl.arange(0, K)
    in_rows = r < n_rows
    left = tl.load(row_factors + r[:, None] * K + a[None, :], mask=in_rows[:, None], other=0.0)
    for tile in range(tl.program_id(1) * TILES, tl.minimum(tl.program_id(1) * TILES + TILES, tiles)):
        c = tile * COLUMNS + tl.arange(0, COLUMNS)
        in_columns = c < n_columns
        places = a[:, None].to(tl.int64) * n_columns + c[None, :]
        right = tl.load(column_factors + places, mask=in_columns[None, :], other=0.0)
        scores = tl.dot(left, right, input_precision="ieee")
        scores += tl.load(offset + c, mask=in_columns, other=-float("inf"))[None, :]
        if SEEN:
            inside = in_rows[:, None] & in_columns[None, :]
            scores = _unseen(scores, seen, r[:, None].to(tl.int64), c[None, :], inside, WORDS)
        place = tile + tl.zeros((ROWS,), tl.int32)
        tl.store(best + r.to(tl.int64) * tiles + tile, _key(tl.max(scores, axis=1), place), mask=in_rows)


@triton.jit
def candidate_keys(
    row_factors, column_factors, offset, seen, chosen, keys, n_columns,
    SEEN: tl.constexpr, WORDS: tl.constexpr, K: tl.constexpr, COLUMNS: tl.constexpr,
    WANTED: tl.constexpr,
):  # fmt: skip
    """Write the keys of all scores of a row in its chosen tiles."""
    line = tl.program_id(0).to(tl.int64)
    for t in range(WANTED):
        c = tl.load(chosen + line * WANTED + t).to(tl.int32) * COLUMNS + tl.arange(0, COLUMNS)
        inside = c < n_columns
        scores = tl.load(offset + c, mask=inside, other=-float("inf"))
        for a in range(K):
            own = tl.load(row_factors + line * K + a)
            places = tl.full((COLUMNS,), 0, tl.int64) + a
            places = places * n_columns + c
            scores += own * tl.load(column_factors + places, mask=inside, other=0.0)
        if SEEN:
            scores = _unseen(scores, seen, line, c, inside, WORDS)
        tl.store(keys + line * (WANTED * COLUMNS) + t * COLUMNS + tl.arange(0, COLUMNS), _key(scores, c))
