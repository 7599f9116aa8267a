"""Small positive definite systems, several at once.

The systems of a round are independent and small, so that a single one has no loop long enough for vector
instructions. Here the last axis of every array runs over ``LANES`` systems, and each step of the textbook
algorithm is done for all of them.
"""

from __future__ import annotations

import math

from onebit.data.kernels import kernel
from onebit.engine.cpu.vectors import LANES, subtract_products


@kernel(nogil=True, error_model="numpy")
def solve_lanes(lower, right, root, inverse, product, log_determinant):
    """Solve and invert: precisions in ``lower`` become covariances, ``right`` becomes the means.

    Parameters
    ----------
    lower : array of shape (n * n * LANES,)
        Lower triangles, line by line, overwritten by those of the inverses.
    right : array of shape (n * LANES,)
        Right-hand sides, overwritten by the solutions.
    root, inverse : arrays like ``lower``
        Room: the triangular roots and their inverses.
    product : array of shape (LANES,)
        Room.
    log_determinant : array of shape (LANES,)
        Receives the log determinants of the inverses.
    """
    size = right.shape[0] // LANES
    line = size * LANES
    for lane in range(LANES):
        product[lane] = 1.0
        log_determinant[lane] = 0.0
    for a in range(size):
        corner = a * (line + LANES)
        for b in range(a + 1):
            entry = a * line + b * LANES
            for lane in range(LANES):
                root[entry + lane] = lower[entry + lane]
            subtract_products(root, entry, root, a * line, LANES, root, b * line, LANES, b)
            if b < a:  # the diagonal of `inverse` holds one over that of `root`
                for lane in range(LANES):
                    root[entry + lane] *= inverse[b * (line + LANES) + lane]
        for lane in range(LANES):
            # Positive but for rounding: the prior's precision is on the diagonal.
            root[corner + lane] = math.sqrt(max(root[corner + lane], 1e-300))
            inverse[corner + lane] = 1.0 / root[corner + lane]
            product[lane] *= inverse[corner + lane]
        if a % 8 == 7 or a == size - 1:  # a logarithm costs as much as many products
            for lane in range(LANES):
                log_determinant[lane] += 2.0 * math.log(product[lane])
                product[lane] = 1.0
        for b in range(a):
            entry = a * line + b * LANES
            for lane in range(LANES):
                inverse[entry + lane] = 0.0
            subtract_products(
                inverse, entry, root, entry, LANES, inverse, b * (line + LANES), line, a - b
            )
            for lane in range(LANES):
                inverse[entry + lane] *= inverse[corner + lane]
    # Each of the two products with the inverse root turns the sign, so that every sum is a difference.
    for a in range(size - 1, -1, -1):
        for lane in range(LANES):
            right[a * LANES + lane] *= -inverse[a * (line + LANES) + lane]
        subtract_products(right, a * LANES, inverse, a * line, LANES, right, 0, LANES, a)
    for a in range(size):
        corner = a * (line + LANES)
        for lane in range(LANES):
            right[a * LANES + lane] *= -inverse[corner + lane]
        subtract_products(
            right, a * LANES, inverse, corner + line, line, right, (a + 1) * LANES, LANES, size - a - 1
        )
    for a in range(size):
        corner = a * (line + LANES)
        for b in range(a + 1):
            entry = a * line + b * LANES
            for lane in range(LANES):
                lower[entry + lane] = 0.0
            subtract_products(lower, entry, inverse, corner, line, inverse, entry, line, size - a)
            for lane in range(LANES):
                lower[entry + lane] *= -1.0
