"""The first compilation is announced, and only that."""

import os
import subprocess
import sys

from onebit.engine.cpu.compilation import MESSAGE

SCRIPT = """
import numba
from onebit.engine.cpu.compilation import announced
import onebit.data.observations  # compiled ahead: from its cache

def double(x):
    return 2 * x

with announced():
    numba.njit(double)(1)           # somebody else's function
    double.__module__ = "onebit.test"
    numba.njit(double)(1)
    numba.njit(double)(1.0)         # said before
with announced():
    numba.njit(double)("a")
"""


def test_one_line_says_that_kernels_are_compiled():
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, env=os.environ
    )
    assert done.stderr == MESSAGE
    assert done.stdout == ""
