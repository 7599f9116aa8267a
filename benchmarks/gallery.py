"""Run the code of the pages that show by example, and draw their figures again.

    make gallery

``docs/gallery`` holds them.
"""

from __future__ import annotations

import os
import tempfile
import warnings
from pathlib import Path
from typing import Any

import matplotlib as mpl
from sklearn.exceptions import ConvergenceWarning

from benchmarks.pages import EXAMPLES, blocks

DOCS = Path(__file__).parents[1] / "docs"


def run(text: str, name: str) -> dict[str, Any]:
    """Run all blocks of Python of a page, one after the other; return what they have named."""
    mpl.use("Agg")
    found = blocks(text)
    assert found, name
    names: dict[str, Any] = {"__name__": "page"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for block in found:
            exec(compile(block, name, "exec"), names)
    return names


def main() -> None:
    """Draw all figures."""
    from matplotlib import pyplot as plt

    for page in EXAMPLES:
        text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
        home = Path.cwd()
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            try:
                run(text, f"{page}.md")
            finally:
                os.chdir(home)
            (DOCS / "gallery" / f"{page}.png").write_bytes(Path(folder, f"{page}.png").read_bytes())
        plt.close("all")
        print(f"{page}: docs/gallery/{page}.png")


if __name__ == "__main__":
    main()
