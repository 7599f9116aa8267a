"""Hostile files predict finite numbers or are refused; `make bench-fuzz` tries more of them."""

import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="bounds the memory as Linux does")


def test_a_hostile_file_predicts_finite_numbers_or_is_refused_in_one_line(capfd):
    from benchmarks import fuzz

    found = fuzz.run(300)
    failed = {key: count for key, count in found.items() if key[1] not in (fuzz.LOADED, fuzz.REFUSED)}
    assert not failed, capfd.readouterr().err
    assert sum(found.values()) == 300
    assert {came for _, came in found} == {fuzz.LOADED, fuzz.REFUSED}
