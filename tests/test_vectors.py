"""The inner loops: intrinsics and plain loops say the same, and a fit runs on either."""

import json
import os
import subprocess
import sys

import numba
import numpy as np
import pytest

from onebit import LogisticCompleter, simulate
from onebit.engine.cpu import intrinsics, plain, tall, vectors
from onebit.engine.cpu.threads import Threads, threads


def both(name, *arguments):
    """Run one loop both ways, each on copies of the arguments; return results and arguments."""
    found = []
    for module in (intrinsics, plain):
        loop = getattr(module, name)

        @numba.njit
        def call(args, loop=loop):
            return loop(*args)

        mine = tuple(a.copy() if isinstance(a, np.ndarray) else a for a in arguments)
        found.append((call(mine), mine))
    return found


def test_the_loops_are_the_intrinsics(rng):
    table = rng.standard_normal((9, 64)).astype(np.float32)
    index = rng.integers(0, 9, 20).astype(np.int32)
    weights = rng.standard_normal(12).astype(np.float32)
    own = rng.standard_normal(40).astype(np.float32)
    (ours, _), (theirs, _) = both("dot16", own, 5, table, 3, 16)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)
    wide, out = rng.standard_normal((9, 224)).astype(np.float32), np.zeros(200, np.float32)
    for width in (16, 80, 112, 192):
        (_, ours), (_, theirs) = both("weighted_sum", weights, 12, wide, index, 4, 16, width, out)
        np.testing.assert_allclose(ours[7], theirs[7], rtol=1e-4, atol=1e-5)
        known = weights @ wide[index[4:16], 16 : 16 + width]
        np.testing.assert_allclose(ours[7][:width], known, rtol=1e-4, atol=1e-5)
        assert not ours[7][width:].any()
    for last in (19, 6, 4):  # beyond the last answer its line stands in
        (_, ours), (_, theirs) = both("four_dots", own[:32], wide, index, 4, last, 48, out, 4)
        np.testing.assert_allclose(ours[6], theirs[6], rtol=1e-4, atol=1e-5)
        lines = index[np.minimum(np.arange(4, 8), last)]
        np.testing.assert_allclose(ours[6][4:8], wide[lines, 48:80] @ own[:32], rtol=1e-4, atol=1e-5)
    (ours, written), (theirs, others) = both("products16", own, 5, table, 3, 16, np.zeros_like(table), 7)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)
    np.testing.assert_allclose(written[5], others[5], rtol=1e-6)
    np.testing.assert_allclose(written[5][7, 16:32], own[5:21] * table[3, 16:32], rtol=1e-6)
    assert not written[5][:7].any()
    tile = np.zeros(64, np.float32)
    (_, ours), (_, theirs) = both("weighted_products16", weights, 12, table, index, 4, 8, 16, tile)
    np.testing.assert_allclose(ours[7], theirs[7], rtol=1e-4, atol=1e-5)
    out, left, right = (rng.standard_normal(200) for _ in range(3))
    (_, ours), (_, theirs) = both("subtract_products", out, 8, left, 16, 8, right, 0, 16, 5)
    np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-12)


# An index that ends where memory ends: what reads beyond it ends the process.
AT_THE_EDGE = """
import ctypes, mmap
import numba, numpy as np
from onebit.engine.cpu.vectors import prefetch_lines

page = mmap.PAGESIZE
room = np.frombuffer(mmap.mmap(-1, 3 * page), np.uint8)
first = -room.ctypes.data % page
assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(room.ctypes.data + first + page), page, 0) == 0
index, table = room[first : first + page].view(np.int32), np.zeros((1, 16), np.float32)

@numba.njit
def ask(table, index, begin, end):
    prefetch_lines(table, index, begin, end)

ask(table, index, len(index) - 4, len(index) + 8)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux to close a page of memory")
def test_lines_are_asked_for_as_far_as_there_are_any():
    done = subprocess.run([sys.executable, "-c", AT_THE_EDGE], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()


def test_intrinsics_are_used_unless_plain_loops_are_asked_for():
    assert vectors.dot16 is intrinsics.dot16


# A fit with nothing compiled before: what it gives, and the modules of all functions that it compiled.
SCRIPT = """
import json
from numba.core import event
from onebit import LogisticCompleter, simulate
from onebit.engine.cpu import plain, vectors
recorder = event.RecordingListener()
event.register("numba:compile", recorder)
world = simulate.world("B1", rank=1, shape=(20, 15), density=0.7, seed=0)
model = LogisticCompleter(2, random_state=0).fit(world.pairs, world.answers)
compiled = {each.data["dispatcher"].py_func.__module__ for _, each in recorder.buffer}
chances = model.predict_proba(world.all_pairs)[:, 1].tolist()
print(json.dumps([vectors.dot16 is plain.dot16, chances, sorted(compiled)]))
"""


def test_a_fit_on_plain_loops_is_the_same_to_rounding_and_compiles_no_text(tmp_path):
    world = simulate.world("B1", rank=1, shape=(20, 15), density=0.7, seed=0)
    model = LogisticCompleter(2, random_state=0).fit(world.pairs, world.answers)
    there = os.environ | {"ONEBIT_PLAIN_LOOPS": "1", "NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=there, capture_output=True, check=True)
    plain_loops, chances, compiled = json.loads(done.stdout)
    assert plain_loops
    np.testing.assert_allclose(model.predict_proba(world.all_pairs)[:, 1], chances, atol=1e-4)
    assert "onebit.engine.cpu.passes" in compiled
    # An assignment to a slice has numba compile its error message, for seconds; kernels use loops.
    assert "numba.cpython.unicode" not in compiled
    # For arrays that a kernel makes, numba compiles functions of its own; kernels are given theirs.
    assert "numba.np.arrayobj" not in compiled


@pytest.mark.parametrize(("rows", "wide", "narrow"), [(1, 1, 1), (6, 5, 3), (4099, 7, 9), (0, 2, 4)])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_products_of_tall_matrices_are_those_of_numpy(rng, rows, wide, narrow, kind):
    left = rng.normal(size=(rows, wide)).astype(kind)
    right = rng.normal(size=(rows, narrow)).astype(np.float32)
    small = rng.normal(size=(wide, narrow))
    alone = Threads(1, None)
    expected = left.astype(float).T @ right.astype(float)
    np.testing.assert_allclose(tall.inner(left, right, alone), expected, rtol=1e-12, atol=1e-11)
    np.testing.assert_allclose(tall.times(left, small, alone), left.astype(float) @ small, atol=1e-12)
    itself = tall.inner(left, left, alone)
    np.testing.assert_allclose(itself, left.astype(float).T @ left.astype(float), rtol=1e-12, atol=1e-11)
    with threads(3) as pool:  # whatever the threads, the same bits
        assert (tall.inner(left, right, pool) == tall.inner(left, right, alone)).all()
        assert (tall.inner(left, left, pool) == itself).all()


@pytest.mark.parametrize("rows", [1, 6, 4096, 4099, 9001])
def test_weighted_products_of_columns_are_numpys_and_need_no_number_of_threads(rows):
    """Of rows that fill no block, and of more than one: none weighs where it should not."""
    rng, alone = np.random.default_rng(rows), Threads(1, None)
    tall_one, weights = rng.standard_normal((rows, 5)), rng.random((3, rows))
    expected = np.einsum("na,kn,nb->kab", tall_one, weights, tall_one)
    found = tall.grams(tall_one, weights, alone)
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-11)
    with threads(3) as pool:
        assert (tall.grams(tall_one, weights, pool) == found).all()
    assert tall.grams(tall_one, weights[:0], alone).shape == (0, 5, 5)


def test_python_itself_runs_the_loops_where_nothing_is_compiled():
    script = """
from onebit import LogisticCompleter, simulate
world = simulate.world("B1", rank=1, shape=(8, 6), density=0.8, seed=0)
print(LogisticCompleter(1, max_iter=2, tol=1e-1).fit(world.pairs, world.answers).n_iter_)
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True,
        env=os.environ | {"NUMBA_DISABLE_JIT": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 1
