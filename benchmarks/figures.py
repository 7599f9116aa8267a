"""Which page of figures rests on what, which pages are older than that, and how to redo them.

    make figures DATA=FOLDER                  # redo every page that is older than what it speaks of
    python -m benchmarks.figures --list       # say which these are
    python -m benchmarks.figures --only study --data FOLDER
    python -m benchmarks.figures --mark       # say it at the head of these pages
    python -m benchmarks.figures --stamp study    # its figures have just been made by other means

The head of a page names the version and the commit that its figures are of, and holds a fingerprint of
what they rest on. A speed rests on the sources of the engine. An accuracy rests on what the engine gives
under a seed, which ``tests/golden.json`` pins: a change of sources that leaves all of that as it was
makes no accuracy older. The pictures of the gallery rest on the programs of their pages too. Comments,
docstrings and blank lines do not count.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import onebit
from benchmarks.pages import EXAMPLES, blocks

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
# What a seed gives, and what is known of rows and columns, which few of those models have.
RESULTS = (
    "tests/golden.json",
    "src/onebit/engine/known.py",
    "src/onebit/model/placing.py",
    "src/onebit/model/regression.py",
)
ENGINE = (
    "src/onebit/data/sorting.py",
    "src/onebit/engine/*.py",
    "src/onebit/engine/cpu/*.py",
    "src/onebit/model/*.py",
)
GPU, CLUSTER = ("src/onebit/engine/gpu/*.py",), ("src/onebit/engine/cluster/*.py",)
# Averages over these are what a sampled model predicts.
KEPT_DRAWS = ("src/onebit/engine/sampling/kept.py",)
SAMPLER = ("src/onebit/engine/sampling/*.py",)
SEARCH = tuple(f"src/onebit/completers/{name}.py" for name in ("search", "trials", "efforts"))
CERTIFICATES = (
    "src/onebit/certificates/*.py",
    "src/onebit/data/holding.py",
    *(f"src/onebit/completers/{name}.py" for name in ("certified", "claiming", "lists", "new_rows")),
    "benchmarks/certificates/*.py",
)
ASKING = tuple(
    f"src/onebit/completers/{name}.py"
    for name in ("error_bars", "interviewing", "interviews", "questions", "row_means")
)
PEOPLE = ("src/onebit/model/population.py", "src/onebit/certificates/row_means.py")
UPDATES = ("src/onebit/completers/updating.py", "src/onebit/completers/updates.py")

OLD = "old"
ITS_FORM = "what they rest on has changed its form alone since"
_HEAD = re.compile(r"<!-- figures: (\w+) -->\n.*?<!-- /figures -->\n\n?", re.DOTALL)


class Page(NamedTuple):
    """What makes a page, and what its figures rest on."""

    targets: tuple[str, ...]
    rests_on: tuple[str, ...]


PAGES = {
    "study": Page(
        ("study",), (*RESULTS, *KEPT_DRAWS, "src/onebit/study/methods.py", "src/onebit/study/plan.py")
    ),
    "sampling": Page(("study-sampling",), (*RESULTS, "src/onebit/study/sampling.py")),
    "accuracy": Page(("bench-accuracy",), (*RESULTS, *KEPT_DRAWS, *SEARCH, "benchmarks/accuracy.py")),
    "benchmarks": Page(("bench-peers", "bench-gpu"), (*RESULTS, *ENGINE, *GPU, "benchmarks/peers/*.py")),
    "growth": Page(("bench-growth",), (*ENGINE, "benchmarks/growth.py", "benchmarks/whole_fits.py")),
    "known": Page(("bench-known",), (*RESULTS, *KEPT_DRAWS, *SEARCH, "benchmarks/known.py")),
    "sampling-peers": Page(("bench-sampling",), (*RESULTS, *SEARCH, *SAMPLER, "benchmarks/sampling.py")),
    "sampling-gpu": Page(("bench-gpu",), (*GPU, *SAMPLER, "benchmarks/gpu/*.py")),
    "asking": Page(("bench-ask",), (*RESULTS, *ASKING, *PEOPLE, "benchmarks/asking/*.py")),
    "updates": Page(("bench-updates",), (*ENGINE, *SAMPLER, *UPDATES, "benchmarks/updates.py")),
    "serving-load": Page(("bench-serve",), ("src/onebit/serve/*.py", "benchmarks/serving.py")),
    "distributed": Page(("bench-dask",), (*ENGINE, *CLUSTER, "benchmarks/distributed.py")),
    "coverage": Page(("bench-certificates",), (*RESULTS, *CERTIFICATES)),
    "coverage-asked": Page(("bench-certificates",), (*RESULTS, *CERTIFICATES)),
    "gallery": Page(("gallery",), (*RESULTS, *SEARCH, *(f"docs/{name}.md" for name in EXAMPLES))),
}


def essence(source: str) -> str:
    r"""Return a Python source without comments, docstrings and blank lines.

    >>> essence("def f():  # double" + chr(10) + "    'Return it.'" + chr(10) * 2 + "    return 2")
    'def f():\n    return 2'
    """
    lines = source.splitlines()
    spans = [
        (token.start, token.end)
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    ]
    holders = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, holders) and ast.get_docstring(node, clean=False) is not None:
            text = node.body[0]
            assert text.end_lineno is not None
            assert text.end_col_offset is not None
            spans.append(((text.lineno, text.col_offset), (text.end_lineno, text.end_col_offset)))
    for (first, begin), (last, end) in sorted(spans, reverse=True):
        lines[first - 1 : last] = [lines[first - 1][:begin] + lines[last - 1].encode()[end:].decode()]
    return "\n".join(line.rstrip() for line in lines if line.strip())


def fingerprint(page: Page, root: Path = ROOT) -> str:
    """Return a fingerprint of what the figures of a page rest on."""
    digest = hashlib.sha256()
    for pattern in page.rests_on:
        for path in sorted(root.glob(pattern)):
            text = path.read_text(encoding="utf-8")
            if path.suffix == ".py":
                text = essence(text)
            elif path.suffix == ".md":  # of a page that shows by example, what it runs
                text = essence("".join(blocks(text)))
            digest.update(path.relative_to(root).as_posix().encode())
            digest.update(text.encode())
    return digest.hexdigest()[:12]


def recorded(text: str) -> str | None:
    """Return the fingerprint at the head of a page; ``OLD`` where the page says that it is old."""
    found = _HEAD.search(text)
    return None if found is None else found[1]


def headed(text: str, mark: str, words: str) -> str:
    """Return a page with this head in place of the one it has, below its title."""
    title, _, rest = _HEAD.sub("", text).partition("\n")
    return f"{title}\n\n<!-- figures: {mark} -->\n{words}\n<!-- /figures -->\n\n{rest.lstrip()}"


def commit(page: Page) -> str:
    """Return the commit that the sources are of, and whether what a page rests on has changed since."""

    def asked(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True).stdout.strip()

    changed = asked("status", "--porcelain", "--", *page.rests_on)
    return (asked("rev-parse", "--short", "HEAD") or "unknown") + (", changed" if changed else "")


def stamp(name: str, docs: Path = DOCS, made_at: str | None = None, since: str = ITS_FORM) -> None:
    """Say at the head of a page that its figures are of the present sources.

    ``made_at`` is an earlier commit; ``since`` says what has changed since then that leaves the figures
    as good as they were.
    """
    path, page = docs / f"{name}.md", PAGES[name]
    when = f"{made_at}; {since}" if made_at else commit(page)
    words = f"Figures of onebit {onebit.__version__} (commit {when}); {_commands(page)}."
    text = headed(path.read_text(encoding="utf-8"), fingerprint(page), words)
    path.write_text(text, encoding="utf-8")


def mark(name: str, docs: Path = DOCS) -> None:
    """Say at the head of a page that its figures are of an earlier version."""
    path, page = docs / f"{name}.md", PAGES[name]
    words = (
        "**These figures are of an earlier version of what they speak of**, and may differ a little from "
        f"today's; {_commands(page)}."
    )
    path.write_text(headed(path.read_text(encoding="utf-8"), OLD, words), encoding="utf-8")


def _commands(page: Page) -> str:
    """Return how a page is made again."""
    targets = " and ".join(f"`make {target}`" for target in page.targets)
    return f"{targets} redo{'es' if len(page.targets) == 1 else ''} them"


def older(docs: Path = DOCS, names: Sequence[str] = tuple(PAGES)) -> list[str]:
    """Return which of these pages have figures that are older than what they rest on."""
    return [
        name
        for name in names
        if recorded((docs / f"{name}.md").read_text(encoding="utf-8")) != fingerprint(PAGES[name])
    ]


def redo(names: Sequence[str], data: str) -> list[str]:
    """Make these pages again, one target after the other; return those that failed."""
    done: dict[str, bool] = {}
    failed = []
    for name in names:
        for target in PAGES[name].targets:
            if target not in done:
                print(f"{name}: make {target}", flush=True)
                done[target] = (
                    subprocess.run(["make", target, f"DATA={data}"], cwd=ROOT, check=False).returncode
                    == 0
                )
        if all(done[target] for target in PAGES[name].targets):
            stamp(name)
        else:
            failed.append(name)
    return failed


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], epilog="Pages: " + ", ".join(PAGES)
    )
    parser.add_argument("--only", action="append", choices=PAGES, metavar="PAGE", help="only this page")
    parser.add_argument("--data", default="data", help="folder with data sets (data)")
    parser.add_argument("--list", action="store_true", help="say which pages are old, and do nothing")
    parser.add_argument("--mark", action="store_true", help="say it at the head of the old pages")
    parser.add_argument(
        "--stamp", action="append", choices=PAGES, metavar="PAGE", help="its figures are of today"
    )
    parser.add_argument("--of", metavar="COMMIT", help="with --stamp: the commit that they were made at")
    parser.add_argument(
        "--since", metavar="TEXT", default=ITS_FORM, help="with --of: what has changed since then"
    )
    options = parser.parse_args(argv)
    for name in options.stamp or []:
        stamp(name, made_at=options.of, since=options.since)
    names = [name for name in older() if not options.only or name in options.only]
    if options.mark:
        for name in names:
            mark(name)
    if options.list or options.mark or options.stamp:
        print("older than what they speak of: " + (", ".join(names) or "none"))
        return
    if not (Path(options.data) / "ml-100k").is_dir():
        sys.exit(
            f"{options.data} holds no ml-100k: pages would lose their part on it; give --data FOLDER"
        )
    failed = redo(options.only or names, options.data)
    if failed:
        sys.exit(f"could not be redone: {', '.join(failed)}")


if __name__ == "__main__":
    main()
