"""log K_v(z) against mpmath."""

import mpmath as mp
import numpy as np
import pytest

from onebit.model.bessel import log_bessel_k

ORDERS = [0.0, 0.3, 1.0, 7.5, 29.9, 30.0, 31.5, 200.0, 1e3, 1e5, 5e6]
ARGUMENTS = [1e-150, 1e-12, 1e-3, 0.3, 4.0, 100.0]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("argument", ARGUMENTS)
def test_value_derivative_and_ratio_agree_with_mpmath(order, argument):
    with mp.workdps(40):
        value = mp.log(mp.besselk(order, argument))
        ratio = mp.log(mp.besselk(order + 1, argument)) - value
        step = mp.mpf(10) ** -12
        above = mp.log(mp.besselk(order + step, argument))
        below = mp.log(mp.besselk(abs(order - step), argument))
        slope = (above - below) / (2 * step)
    found = log_bessel_k(order, argument)
    assert float(found.log_value) == pytest.approx(float(value), rel=1e-12, abs=1e-12)
    assert float(found.log_ratio) == pytest.approx(float(ratio), rel=1e-12, abs=1e-11)
    assert float(found.order_derivative) == pytest.approx(float(slope), rel=1e-12, abs=1e-12)


def test_half_integer_order_has_its_closed_form():
    z = np.array([1e-3, 0.1, 2.0, 50.0])
    np.testing.assert_allclose(
        log_bessel_k(0.5, z).log_value, 0.5 * np.log(np.pi / (2 * z)) - z, rtol=1e-13
    )


def test_the_function_is_even_and_its_derivative_odd_in_the_order():
    plus, minus = log_bessel_k([2.2, 400.0], 1.5), log_bessel_k([-2.2, -400.0], 1.5)
    np.testing.assert_array_equal(plus.log_value, minus.log_value)
    np.testing.assert_array_equal(plus.order_derivative, -minus.order_derivative)


def test_the_two_methods_meet_where_one_takes_over_from_the_other():
    below, above = log_bessel_k(30.0 - 1e-9, 3.0), log_bessel_k(30.0, 3.0)
    assert float(below.log_value) == pytest.approx(float(above.log_value), abs=1e-8)
