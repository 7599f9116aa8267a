"""Scores of pairs of codes: from a Gaussian posterior, and over draws."""

from __future__ import annotations

import math

import numpy as np

from onebit.data.kernels import kernel

# What may be reordered: enough to vectorise the dot products; infinities and NaN keep their meaning.
_FAST = {"reassoc", "contract", "arcp", "nsz"}


@kernel(nogil=True, error_model="numpy", fastmath=_FAST)
def score_moments(
    begin, end, rows, row_mean, row_covariance, row_effect, columns, column_mean, column_covariance,
    column_effect, rank, full, out_mean, out_variance,
):  # fmt: skip
    """Write the exact mean and variance of the scores of pairs ``begin:end``.

    An empty ``out_variance`` asks for the means alone.
    """
    for k in range(begin, end):
        i, j = np.uint32(rows[k]), np.uint32(columns[k])
        mean = 0.0
        for a in range(rank):
            mean += row_mean[i, a] * column_mean[j, a]
        mean += row_mean[i, rank] if row_effect else 0.0
        mean += column_mean[j, rank] if column_effect else 0.0
        out_mean[k] = mean
        if out_variance.shape[0] == 0:
            continue
        # f' V_i f + g' V_j g + tr(V_i V_j), where f and g are what row and column face.
        variance = 0.0
        if not full:
            for a in range(rank):
                f, g = column_mean[j, a], row_mean[i, a]
                v, w = row_covariance[i, a], column_covariance[j, a]
                variance += v * (f * f + w) + w * g * g
            variance += row_covariance[i, rank] if row_effect else 0.0
            variance += column_covariance[j, rank] if column_effect else 0.0
            out_variance[k] = variance
            continue
        t = 0
        for a in range(rank):
            f, g = column_mean[j, a], row_mean[i, a]
            cross = 0.0
            for b in range(a):
                v, w = row_covariance[i, t + b], column_covariance[j, t + b]
                cross += v * (f * column_mean[j, b] + w) + w * g * row_mean[i, b]
            v, w = row_covariance[i, t + a], column_covariance[j, t + a]
            variance += 2.0 * cross + v * (f * f + w) + w * g * g
            t += a + 1
        if row_effect:
            cross = 0.0
            for b in range(rank):
                cross += row_covariance[i, t + b] * column_mean[j, b]
            variance += 2.0 * cross + row_covariance[i, t + rank]
        if column_effect:
            cross = 0.0
            for b in range(rank):
                cross += column_covariance[j, t + b] * row_mean[i, b]
            variance += 2.0 * cross + column_covariance[j, t + rank]
        out_variance[k] = variance


@kernel(nogil=True, error_model="numpy", fastmath=_FAST)
def average_scores(
    begin, end, rows, row_draws, row_effect, columns, column_draws, column_effect, rank, out_mean,
    out_variance, out_probability,
):  # fmt: skip
    """Write mean and variance of the scores of pairs ``begin:end`` over draws, and the mean sigmoid.

    Draws have the shape (rows, draws, coordinates). Empty arrays ask for nothing.
    """
    draws = row_draws.shape[1]
    scores = np.empty(draws)
    for k in range(begin, end):
        i, j = np.uint32(rows[k]), np.uint32(columns[k])
        total = 0.0
        for d in range(draws):
            score = np.float32(0.0)
            for a in range(rank):
                score += row_draws[i, d, a] * column_draws[j, d, a]
            if row_effect:
                score += row_draws[i, d, rank]
            if column_effect:
                score += column_draws[j, d, rank]
            scores[d] = score
            total += scores[d]
        mean = total / draws
        out_mean[k] = mean
        if out_variance.shape[0] > 0:
            square = 0.0
            for d in range(draws):
                square += (scores[d] - mean) * (scores[d] - mean)
            out_variance[k] = square / max(draws - 1, 1)
        if out_probability.shape[0] > 0:
            chance = 0.0
            for d in range(draws):
                chance += 1.0 / (1.0 + math.exp(-scores[d]))
            out_probability[k] = chance / draws
