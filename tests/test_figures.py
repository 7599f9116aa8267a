"""No page shows figures of an engine that is gone without saying so."""

import re

import pytest

from benchmarks import figures
from onebit import __version__


@pytest.mark.parametrize("name", figures.PAGES)
def test_a_page_is_of_the_present_engine_or_says_that_it_is_not(name):
    text = (figures.DOCS / f"{name}.md").read_text(encoding="utf-8")
    head = text[: text.index("<!-- /figures -->")]
    if figures.recorded(text) == figures.OLD:
        assert "These figures are of an earlier version" in head
    else:
        assert figures.recorded(text) == figures.fingerprint(figures.PAGES[name]), (
            f"what docs/{name}.md speaks of has changed: redo it (make figures), or have it say that it "
            "is old (python -m benchmarks.figures --mark)"
        )
        assert f"onebit {__version__} (commit " in head


def test_every_page_that_a_benchmark_makes_is_watched():
    made = [
        path.stem
        for path in figures.DOCS.glob("*.md")
        if re.search(
            r"[Mm]ade by `(make bench|python -m bench)|redone by `onebit study", path.read_text()
        )
    ]
    assert made
    assert set(made) <= set(figures.PAGES)


def test_every_page_has_a_target_that_makes_it():
    makefile = (figures.ROOT / "Makefile").read_text()
    for page in figures.PAGES.values():
        for target in page.targets:
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
        for pattern in page.rests_on:
            assert list(figures.ROOT.glob(pattern)), pattern


def test_a_fingerprint_changes_with_the_code_and_not_with_its_words(tmp_path):
    page = figures.Page(("nothing",), ("*.py",))
    source = tmp_path / "engine.py"
    source.write_text('"""One."""\n\n\ndef f(x):\n    return x + 1\n')
    before = figures.fingerprint(page, tmp_path)
    source.write_text(
        '"""Two,\n\nlonger."""\n\ndef f(x):  # why\n    """Say it."""\n    return x  +  1\n'
    )
    assert figures.fingerprint(page, tmp_path) == before
    source.write_text("def f(x):\n    return x + 2\n")
    assert figures.fingerprint(page, tmp_path) != before


def test_marks_and_stamps_are_put_below_the_title_once(tmp_path, monkeypatch):
    page = tmp_path / "growth.md"
    page.write_text("# Growth\n\nMade by hand.\n")
    figures.mark("growth", tmp_path)
    figures.stamp("growth", tmp_path)
    figures.mark("growth", tmp_path)
    text = page.read_text()
    assert text.startswith("# Growth\n\n<!-- figures: old -->\n**These figures")
    assert text.endswith("<!-- /figures -->\n\nMade by hand.\n")
    assert text.count("<!-- figures") == 1
    figures.stamp("growth", tmp_path)
    assert figures.recorded(page.read_text()) == figures.fingerprint(figures.PAGES["growth"])


def test_old_pages_are_made_again_each_target_once(monkeypatch):
    run, stamped = [], []

    class Done:
        def __init__(self, returncode):
            self.returncode = returncode

    def pretended(command, **_):
        run.append(command[1])
        return Done(1 if command[1] == "bench-growth" else 0)

    monkeypatch.setattr(figures.subprocess, "run", pretended)
    monkeypatch.setattr(figures, "stamp", stamped.append)
    assert figures.redo(["coverage", "growth", "coverage-asked"], "data") == ["growth"]
    assert run == ["bench-certificates", "bench-growth"]
    assert stamped == ["coverage", "coverage-asked"]
