"""Arrays that begin anywhere in a buffer are copied before a task works on them, and nothing else is."""

import numpy as np
import pytest

pytest.importorskip("distributed")

from onebit import Observations
from onebit.engine.cluster.aligned import aligned, on_aligned
from onebit.engine.cpu.apart import Natural
from onebit.engine.rotation import Change


def misplaced(array):
    """Return a copy of an array at an odd address."""
    buffer = np.empty(array.nbytes + 1, np.uint8)
    made = buffer[1:].view(array.dtype).reshape(array.shape)
    made[...] = array
    assert not made.flags.aligned
    return made


def test_a_misplaced_array_is_copied_with_its_values_and_its_lock():
    odd = misplaced(np.arange(6.0).reshape(2, 3))
    odd.setflags(write=False)
    found = aligned(odd)
    assert found.flags.aligned
    assert not found.flags.writeable
    np.testing.assert_array_equal(found, odd)


def test_arrays_are_found_in_lists_in_named_tuples_and_in_frozen_classes():
    change = Change(np.eye(2), misplaced(np.ones(2)))
    natural = Natural(np.ones(2), misplaced(np.arange(3.0)), np.ones(1))
    found = aligned([natural, (change, "a word")])
    assert type(found[0]) is Natural
    assert found[0].precision is natural.precision
    assert found[1][1] == "a word"
    for new, old in ((found[0].linear, natural.linear), (found[1][0].shift, change.shift)):
        assert new.flags.aligned
        assert not old.flags.aligned  # what was given stays as it is
        np.testing.assert_array_equal(new, old)


def test_answers_are_aligned_in_both_views():
    seen = Observations.from_pairs([("ann", "x"), ("bob", "x"), ("ann", "y")], [1, 0, 1])
    for view in (seen.by_row, seen.by_column):
        for name in ("start", "index"):
            vars(view)[name] = misplaced(getattr(view, name))
    found = aligned(seen)
    for view, before in ((found.by_row, seen.by_row), (found.by_column, seen.by_column)):
        for name in ("start", "index"):
            assert getattr(view, name).flags.aligned
            np.testing.assert_array_equal(getattr(view, name), getattr(before, name))


def test_what_is_aligned_is_handed_over_as_it_is():
    seen = Observations.from_pairs([("ann", "x"), ("bob", "x")], [1, 0])
    both = [seen, (np.ones(3), seen.by_column)]
    assert aligned(both) is both


def test_a_task_sees_aligned_arguments():
    assert on_aligned(lambda first, second: first.flags.aligned, misplaced(np.ones(2)), np.ones(2))
