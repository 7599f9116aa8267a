"""The look along the directions of the whole as a Triton kernel: see ``engine.sampling.whole``."""

import triton
import triton.language as tl

from onebit.engine.gpu.kernels import _chunk_bounds
from onebit.engine.gpu.sampling_kernels import _LOGISTIC, _gathered


@triton.jit
def along_walk(
    answers, weight, copies, start, chunk_row, row_chunk, other, own, settings, out, chunks,
    first_chunk, first_answer, sparse,
    CODE: tl.constexpr, WEIGHTED: tl.constexpr, COPIED: tl.constexpr, CHUNK: tl.constexpr,
    BLOCK: tl.constexpr, RANK: tl.constexpr, WIDTH: tl.constexpr, STRIDE: tl.constexpr,
    PROGRAMS: tl.constexpr, OUT: tl.constexpr,
):  # fmt: skip
    """Add up value, slope and curvature of the log-likelihood along the directions of the whole.

    The curvature is that of one chunk in ``sparse``, whose answers are counted.

    ``settings`` holds the temperature, the level, the centres of the effects of both sides and the scales
    of all directions but the level. A program takes every ``PROGRAMS``-th chunk. The last of ``WIDTH``
    places is none of the directions: in what is written its line is the slope.
    """
    at, lane = tl.arange(0, WIDTH), tl.arange(0, BLOCK)
    inside = at < RANK + 2
    place = tl.where(at == RANK, RANK + 1, tl.where(at == RANK + 1, RANK, at))
    temperature = tl.load(settings).to(tl.float32)
    own_centre, other_centre = tl.load(settings + 2).to(tl.float32), tl.load(settings + 3).to(tl.float32)
    stretch = tl.load(settings + 4 + at, mask=inside, other=0.0).to(tl.float32)
    moved = other_centre * tl.sum(tl.where(at == RANK + 1, stretch, 0.0), axis=0)
    level = tl.load(settings + 1).to(tl.float32) - moved
    value = tl.zeros((BLOCK,), tl.float64)
    slope = tl.zeros((WIDTH,), tl.float64)
    curvature = tl.zeros((WIDTH, WIDTH), tl.float64)
    counted = tl.zeros((1,), tl.float64)
    for chunk in range(first_chunk + tl.program_id(0), first_chunk + chunks, PROGRAMS):
        row, begin, count = _chunk_bounds(start, chunk_row, row_chunk, chunk, CHUNK)
        begin -= first_answer
        line = tl.load(own + row * STRIDE + place, mask=inside, other=0.0)
        line = (line - tl.where(at == RANK, own_centre, 0.0)) * stretch
        bent = tl.zeros((WIDTH, WIDTH), tl.float32)
        pulled = tl.zeros((BLOCK, WIDTH), tl.float32)
        bends = chunk % sparse == 0
        # Lines are asked for one block ahead, and their codes one block before that.
        answer = tl.load(answers + begin + lane, mask=lane < count, other=0)
        next_tile = _gathered(answer, other, lane < count, at, inside, STRIDE)
        coming = tl.load(answers + begin + lane + BLOCK, mask=lane + BLOCK < count, other=0)
        for step in range(0, count, BLOCK):
            k = step + lane
            there = k < count
            y = tl.where(answer < 0, -1.0, 1.0)
            tile = next_tile * line[None, :]
            answer, later = coming, k + BLOCK
            next_tile = _gathered(answer, other, later < count, at, inside, STRIDE)
            coming = tl.load(answers + begin + later + BLOCK, mask=later + BLOCK < count, other=0)
            score = level + tl.sum(tile, axis=1)
            tile = tl.where(at[None, :] == RANK + 1, tile - moved, tile)
            tile = tl.where(at[None, :] == RANK + 2, 1.0, tile)
            margin = y * score
            u = tl.where(there, 1.0, 0.0)
            if CODE == _LOGISTIC:
                if COPIED:
                    u = tl.load(copies + begin + k, mask=there, other=0).to(tl.float32)
                decay = tl.exp(-tl.abs(margin))
                inverse = 1.0 / (1.0 + decay)
                lost = 0.5 * (tl.abs(margin) - margin) + tl.log(1.0 + decay)
                wrong = tl.where(margin > 0.0, decay, 1.0) * inverse
                bend = decay * inverse * inverse
            else:
                u *= temperature
                if WEIGHTED:
                    u *= tl.load(weight + begin + k, mask=there, other=0.0)
                left = 1.0 - margin
                lost = tl.maximum(left, 0.0)
                wrong = tl.where(left > 0.0, 1.0, 0.0)
                bend = tl.where(tl.abs(left) < 0.5, 1.0, 0.0)
            value -= (u * lost).to(tl.float64)
            pulled += tile * (u * y * wrong)[:, None]
            if bends:
                weighed = tl.trans(tile * (u * bend)[:, None])
                bent += tl.dot(weighed, tile, input_precision="tf32x3", out_dtype=tl.float32)
        slope += tl.sum(pulled, axis=0).to(tl.float64)
        if bends:
            curvature += bent.to(tl.float64)
            counted += count
    line = out + tl.program_id(0).to(tl.int64) * OUT
    tl.store(line, tl.load(line) + tl.sum(value, axis=0))
    cells = line + 1 + at[:, None] * WIDTH + at[None, :]
    tl.store(cells, tl.load(cells) + tl.where(at[:, None] == WIDTH - 1, slope[None, :], curvature))
    last = line + 1 + WIDTH * WIDTH + tl.arange(0, 1)
    tl.store(last, tl.load(last) + counted)
