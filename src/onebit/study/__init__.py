"""The paper's experiments (its Section 6) redone, with our figures beside the printed ones.

``onebit study --output FOLDER`` on the command line, or ``run(Plan(...), FOLDER)`` from Python.
"""

from onebit.study.page import write_page
from onebit.study.plan import Plan
from onebit.study.runner import run

__all__ = ["Plan", "run", "write_page"]
