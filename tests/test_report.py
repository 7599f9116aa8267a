"""The report: what it shows, and what it must never run."""

import json
import re
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser

import numpy as np
import pytest
from typer.testing import CliRunner

from onebit import LogisticCompleter, NuclearNormCompleter, cli, simulate
from onebit.certificates.scores import calibration_bands
from onebit.certificates.statements import at_most
from onebit.data.school import school
from onebit.report import figures, render_report, write_report
from onebit.report.layout import factors_of, places, principal
from onebit.report.page import script_json
from onebit.report.words import share

SECTIONS = [
    "claim",
    "data",
    "fit",
    "certificates",
    "calibration",
    "map-section",
    "effects",
    "surprises",
    "settings",
]
HOSTILE = '</script><script>alert("x")</script><img src=x onerror=alert(1)>&amp;"\'`${1}$x^2$'


class Page(HTMLParser):
    """The elements of a page, with their attributes, and its visible text."""

    VOID = ("meta", "input", "br", "img", "link", "path", "use", "line", "rect")

    def __init__(self, text):
        super().__init__()
        self.elements, self.text, self.scripts, self._open = [], [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self._open, f"</{tag}> without a beginning"
        assert self._open.pop() == tag

    def handle_data(self, data):
        (self.scripts if self._open and self._open[-1] == "script" else self.text).append(data)

    def ids(self):
        return [attributes["id"] for _, attributes in self.elements if "id" in attributes]


@pytest.fixture(scope="module")
def model():
    drawn = school(50, 25, 1200, seed=3)
    frame = drawn.frame()
    fitted = LogisticCompleter(4, random_state=0)
    fitted.fit(frame[["student", "exercise"]], frame["solved"] == "yes", certify=0.2)
    fitted.record_ = fitted.describe({"file": "school.csv", "seconds": 1.5, "command": "onebit fit <x>"})
    return fitted


@pytest.fixture(scope="module")
def page(model):
    return render_report(model)


def test_every_section_is_there_once_and_well_formed(page):
    parsed = Page(page)
    assert not parsed._open
    ids = parsed.ids()
    assert len(ids) == len(set(ids))
    for section in SECTIONS:
        assert section in ids
    assert sum(tag == "svg" and "role" in attributes for tag, attributes in parsed.elements) == 8


def test_nothing_is_fetched_from_elsewhere(page):
    for tag, attributes in Page(page).elements:
        for name in ("src", "href", "xlink:href", "action", "data"):
            assert attributes.get(name, "#").startswith("#"), (tag, attributes)
    assert "url(http" not in page
    assert "@import" not in page
    assert "default-src 'none'" in page


def test_the_numbers_are_the_models(model, page):
    text = " ".join(Page(page).text)
    assert at_most(model.certify(0.05).bound).replace("%", " %") in text
    for certificate in model.certify_selective(0.05).certificates:
        assert at_most(certificate.bound).replace("%", " %") in text
    assert model.record_.fingerprint in text
    assert "onebit fit <x>" in text
    for row in model.record_.surprises.rows[:5]:
        assert model.rows_.labels[row] in text
    assert model.row_effects_.idxmax() in text
    assert "LogisticCompleter(random_state=0, rank=4)" in text


def test_the_plots_take_the_pages_colours(model):
    held_out = model.held_out_
    for svg in (
        figures.answer_counts(model.record_.row_counts, "rows"),
        figures.calibration(calibration_bands(held_out, 0.05), "0.95", "yes"),
        figures.risk_coverage(model, 0.05),
        figures.objective(model.objective_path_, model.n_iter_),
    ):
        ElementTree.fromstring(svg)
        assert "var(--ink)" in svg
        assert not re.search(r"(fill|stroke): ?#000000", svg)
        assert "var(--blue)" in svg


def test_axes_have_the_words_of_the_answers(model):
    svg = figures.calibration(calibration_bands(model.held_out_, 0.05), "0.95", "J$a$, ganz und gar")
    assert "probability of J$a$, ganz und…, %" in svg
    assert "how often it is J$a$, ganz und…, %" in svg


def test_ids_are_text_and_never_run(tmp_path):
    world = simulate.world("B1", rank=2, shape=(20, 15), density=0.7, seed=1)
    pairs = [(f"{HOSTILE}{row}", f"{HOSTILE}{column}") for row, column in world.pairs]
    model = LogisticCompleter(2, random_state=0).fit(pairs, world.answers, certify=0.2)
    model.rows_.labels.name = HOSTILE
    model.record_ = model.describe({"file": HOSTILE, "command": HOSTILE})
    text = render_report(model, title=HOSTILE)
    parsed = Page(text)
    assert sum(tag == "script" for tag, _ in parsed.elements) == 2
    assert not any(tag == "img" or "onerror" in attributes for tag, attributes in parsed.elements)
    points = json.loads(parsed.scripts[0])
    assert points["sides"][0]["ids"][0].startswith(HOSTILE)
    assert "</script" not in "".join(parsed.scripts)


def test_json_in_a_script_cannot_end_it():
    value = {"</script>": ["<!--", "&", "\u2028", "é"]}
    text = script_json(value)
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text) == value


def test_a_model_that_kept_nothing_still_has_a_report(tmp_path):
    world = simulate.world("B1", rank=1, shape=(15, 12), density=0.8, seed=0)
    for plain in (
        LogisticCompleter(2).fit(world.pairs, world.answers),
        LogisticCompleter(0).fit(world.pairs, world.answers),
        LogisticCompleter(2, effects=False).fit(world.pairs, world.answers),
        NuclearNormCompleter(1).fit(world.pairs, world.answers),
    ):
        text = render_report(plain)
        assert "nothing was held out" in text
        Page(text)


def test_what_is_not_installed_is_named_before_the_work(monkeypatch, tmp_path):
    monkeypatch.setattr("onebit.report.page.find_spec", lambda name: None if name == "jinja2" else name)
    (tmp_path / "t.csv").write_text("user,item,liked\n" + "".join(f"{k},x,{k % 2}\n" for k in range(40)))
    arguments = ["fit", tmp_path / "t.csv", "-o", tmp_path / "m.onebit", "--report", tmp_path / "r.html"]
    result = CliRunner().invoke(cli.app, [str(argument) for argument in arguments])
    assert result.exit_code == 1
    assert "a report needs jinja2: pip install 'onebit[report]'" in result.stderr
    assert not (tmp_path / "m.onebit").exists()


def test_a_report_is_written_whole(model, tmp_path, monkeypatch):
    path = tmp_path / "r.html"
    size = write_report(model, path)
    assert path.stat().st_size == size
    with pytest.raises(FileNotFoundError, match="does not exist"):
        write_report(model, tmp_path / "no" / "r.html")


def test_the_map_keeps_the_products_of_the_factors(model):
    left, right = factors_of(model)
    values, rows, columns = principal(left, right)
    np.testing.assert_allclose(rows @ columns.T, left @ right.T, atol=1e-10)
    assert (np.diff(values) <= 1e-12).all()
    np.testing.assert_allclose(values, model.posterior_.singular_values, atol=1e-10)
    np.testing.assert_allclose((rows**2).mean(axis=0), (columns**2).mean(axis=0), atol=1e-9)


def test_the_map_has_as_many_axes_as_the_model_has_factors_and_at_most_two(model):
    flat = LogisticCompleter(0).fit(model.kept_answers().everything, certify=0)
    assert [side.shape[1] for side in places(flat)] == [0, 0]
    world = simulate.world("B1", rank=2, shape=(60, 50), density=0.6, seed=0)
    full = LogisticCompleter(4, random_state=0).fit(world.pairs, world.answers)
    assert full.rank_ == 2
    assert [side.shape for side in places(full)] == [(60, 2), (50, 2)]


def test_a_sampled_models_report_has_the_share_of_every_column():
    world = simulate.world("B3", rank=1, shape=(40, 70), density=0.5, seed=0)
    settings = {"inference": "sampling", "n_samples": 40, "n_burn_in": 20, "random_state": 0}
    model = LogisticCompleter(1, **settings).fit(world.pairs, world.answers, certify=0)
    found = model.column_summary().sort_values("share", ascending=False)
    page = render_report(model)
    body = page[page.index('id="shares"') :]
    body = body[: body.index("</section>")]
    assert body.count("<tr><td>") == 70
    assert "All 70" in body  # more than a screenful is folded
    first = found.iloc[0]
    assert body.index(f'title="{found.index[0]}"') < body.index(f'title="{found.index[1]}"')
    assert share(first["share"]) in body
    assert share(first["share_high"]) in body
    assert "if the model holds and blanks come about like the answers" in body
    variational = LogisticCompleter(1).fit(world.pairs, world.answers, certify=0)
    assert "<code>onebit columns</code> writes the share" in render_report(variational)
