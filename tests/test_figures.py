"""No page shows figures of an engine that is gone without saying so."""

import re

import pytest

from benchmarks import figures


@pytest.mark.parametrize("name", figures.PAGES)
def test_a_page_is_of_the_present_engine_or_says_that_it_is_not(name):
    text = (figures.DOCS / f"{name}.md").read_text(encoding="utf-8")
    found = figures.recorded(text)
    assert found is not None, f"docs/{name}.md has been made again: python -m benchmarks.figures --stamp"
    head = text[: text.index("<!-- /figures -->")]
    if found == figures.OLD:
        assert "These figures are of an earlier version" in head
    else:
        assert found == figures.fingerprint(figures.PAGES[name]), (
            f"what docs/{name}.md speaks of has changed: redo it (make figures), or have it say that it "
            "is old (python -m benchmarks.figures --mark)"
        )
        assert re.search(r"onebit [\d.]+ \(commit \w", head)


def test_every_page_that_a_benchmark_makes_is_watched():
    makefile = (figures.ROOT / "Makefile").read_text(encoding="utf-8")
    made = set(re.findall(r"--output docs/([\w-]+)\.md", makefile)) | {"study", "sampling", "gallery"}
    assert made == set(figures.PAGES)


def test_every_page_has_a_target_that_makes_it():
    makefile = (figures.ROOT / "Makefile").read_text(encoding="utf-8")
    for page in figures.PAGES.values():
        for target in page.targets:
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
        for pattern in page.rests_on:
            assert list(figures.ROOT.glob(pattern)), pattern


def test_the_fingerprint_of_an_example_changes_with_its_program_and_not_with_its_prose(tmp_path):
    page = figures.Page(("nothing",), ("*.md",))
    example = tmp_path / "page.md"
    found = []
    for text in (
        "One.\n\n```python\nf(1)\n```\n",
        "Two.\n\n```python\nf(1)  # why\n```\n",
        "One.\n\n```python\nf(2)\n```\n",
    ):
        example.write_text(text)
        found.append(figures.fingerprint(page, tmp_path))
    assert found[0] == found[1] != found[2]


def test_a_fingerprint_changes_with_the_code_and_not_with_its_words(tmp_path):
    page = figures.Page(("nothing",), ("*.py",))
    source = tmp_path / "engine.py"
    source.write_text('"""One."""\n\n\ndef f(x):\n    x += 1\n    return x + 1\n')
    before = figures.fingerprint(page, tmp_path)
    source.write_text(
        '"""Two,\n\nlonger."""\ndef f(x):  # why\n    """Say."""\n    x += 1\n\n    return x + 1\n'
    )
    assert figures.fingerprint(page, tmp_path) == before
    for other in (
        "def f(x):\n    x += 1\n    return x + 2\n",
        "def f(x):\n    x += 1\nreturn_x = 1\n",
        'def f(x): "say"; return 1',
    ):
        source.write_text(other)
        assert figures.fingerprint(page, tmp_path) != before
    source.rename(tmp_path / "other.py")
    assert figures.fingerprint(page, tmp_path) != before


def test_what_follows_a_docstring_on_its_line_counts():
    one, two = (figures.essence(f'def f(): "say"; return {k}') for k in (1, 2))
    assert one != two


def test_marks_and_stamps_are_put_below_the_title_once(tmp_path):
    page = tmp_path / "growth.md"
    page.write_text("# Growth\n\nMade by hand.\n")
    figures.mark("growth", tmp_path)
    figures.stamp("growth", tmp_path)
    figures.mark("growth", tmp_path)
    text = page.read_text()
    assert text.startswith("# Growth\n\n<!-- figures: old -->\n**These figures")
    assert text.endswith("<!-- /figures -->\n\nMade by hand.\n")
    assert text.count("<!-- figures") == 1
    assert "growth" in figures.older(tmp_path, ["growth"])
    figures.stamp("growth", tmp_path, "abc1234")
    assert figures.recorded(page.read_text()) == figures.fingerprint(figures.PAGES["growth"])
    assert "(commit abc1234; what they rest on has changed its form alone since)" in page.read_text()
    assert figures.older(tmp_path, ["growth"]) == []


def test_old_pages_are_made_again_each_target_once(monkeypatch):
    run, stamped = [], []

    class Done:
        def __init__(self, returncode):
            self.returncode = returncode

    def pretended(command, **_):
        run.append(command[1:])
        return Done(1 if command[1] == "bench-growth" else 0)

    monkeypatch.setattr(figures.subprocess, "run", pretended)
    monkeypatch.setattr(figures, "stamp", stamped.append)
    assert figures.redo(["coverage", "growth", "coverage-asked"], "there") == ["growth"]
    assert run == [["bench-certificates", "DATA=there"], ["bench-growth", "DATA=there"]]
    assert stamped == ["coverage", "coverage-asked"]


def test_the_command_line_lists_marks_stamps_and_refuses_to_lose_a_part(tmp_path, monkeypatch, capsys):
    done = []
    monkeypatch.setattr(figures, "older", lambda: ["growth", "known"])
    monkeypatch.setattr(figures, "mark", lambda name: done.append(f"mark {name}"))
    monkeypatch.setattr(figures, "stamp", lambda name, **how: done.append(f"stamp {name} {how}"))
    monkeypatch.setattr(figures, "redo", lambda names, data: done.append(f"redo {names}") or [])
    figures.main(["--list"])
    assert capsys.readouterr().out == "older than what they speak of: growth, known\n"
    figures.main(["--mark", "--only", "known"])
    figures.main(["--stamp", "study", "--of", "abc", "--since", "new words"])
    with pytest.raises(SystemExit, match="holds no ml-100k"):
        figures.main(["--data", str(tmp_path)])
    (tmp_path / "ml-100k").mkdir()
    figures.main(["--data", str(tmp_path)])
    stamped = "stamp study {'made_at': 'abc', 'since': 'new words'}"
    assert done == ["mark known", stamped, "redo ['growth', 'known']"]
