"""Threads of our own, and those of the linear algebra library beside them."""

from threading import Thread

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from onebit import LogisticCompleter
from onebit.engine.cpu.threads import Threads, Turn, threads


def blas():
    """Return the numbers of threads of the linear algebra libraries."""
    return {part["num_threads"] for part in threadpool_info() if part["user_api"] == "blas"}


@pytest.fixture(autouse=True)
def two():
    """Let the libraries have two threads."""
    if not blas():
        pytest.skip("threadpoolctl knows no linear algebra library here")
    with threadpool_limits(2, user_api="blas"):
        yield
        assert blas() == {2}


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_linear_algebra_has_one_thread_while_ours_work(n_jobs):
    with threads(n_jobs):
        assert blas() == {1}
        with threads(1):
            assert blas() == {1}
        assert blas() == {1}


def test_fits_that_overlap_leave_the_libraries_as_they_were():
    first, second = threads(1), threads(2)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert blas() == {1}  # the second goes on
    second.__exit__(None, None, None)
    assert blas() == {2}


def test_a_fit_that_is_stopped_leaves_the_libraries_as_they_were(small_world):
    seen = []

    def stop(_):
        seen.append(blas())
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        LogisticCompleter().fit(small_world.pairs, small_world.answers, callback=stop)
    assert seen == [{1}]


def taken_by_another(turn):
    """Say whether another thread gets the turn within a moment."""
    got = []

    def take():
        if turn._lock.acquire(timeout=0.2):
            got.append(True)
            turn._lock.release()

    other = Thread(target=take)
    other.start()
    other.join()
    return bool(got)


@pytest.mark.parametrize(("work", "left"), [(10, False), (5_000, True)])
def test_a_turn_is_left_while_a_long_range_runs_and_is_free_in_the_end(work, left):
    turn, seen = Turn(), []
    pool = Threads(1, None).in_turns(turn)
    with turn:
        pool.ranges(lambda first, last: seen.append(taken_by_another(turn)), np.array([0, work]))
        assert not taken_by_another(turn)
    assert seen == [left]
    assert taken_by_another(turn)


def test_a_turn_is_free_after_an_error():
    turn = Turn()

    def fail(first, last):
        raise ValueError("no such row")

    with pytest.raises(ValueError, match="no such row"), turn:
        Threads(1, None).in_turns(turn).ranges(fail, np.array([0, 50_000]))
    assert taken_by_another(turn)
