"""What the report says and draws for tables of all kinds: in the reader's words, and only what is so."""

import base64
import hashlib
import html
import json
import re
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest

from onebit import GibbsCompleter, HingeCompleter, LogisticCompleter, NuclearNormCompleter, simulate
from onebit.data.school import school
from onebit.model.diagnostics import Mixing, sampling_words
from onebit.model.priors import InverseGamma
from onebit.report import figures, render_report
from onebit.report.layout import factors_of, principal
from onebit.report.page import _python
from onebit.report.words import cut, descent_words, number, objective_words, share, whole

FAMILY = "\U0001f469\u200d\U0001f469\u200d\U0001f467"  # three emoji and two joiners, one sign


class Visible(HTMLParser):
    """The text that a reader sees, but for code and for names; elements; titles."""

    def __init__(self, text):
        super().__init__()
        self.words, self.elements, self._hidden, self._open = [], [], 0, []
        self.feed(text)
        self.close()

    @staticmethod
    def _hides(tag, attributes):
        return tag in ("style", "script", "pre", "code") or attributes.get("class") == "name"

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.elements.append((tag, attributes))
        if tag in ("meta", "input"):
            return
        hides = self._hides(tag, attributes)
        self._open.append(hides)
        self._hidden += hides

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        self._hidden -= self._open.pop()

    def handle_data(self, data):
        if not self._hidden:
            self.words.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())


def fitted(rank, pairs, answers, **settings):
    model = LogisticCompleter(rank, random_state=0, **settings).fit(pairs, answers, certify=0.2)
    model.record_ = model.describe({"file": "t.csv"})
    return model


def worlds_model(rank, shape=(40, 30), density=0.7, named=True, allowed=None, **settings):
    world = simulate.world("B1", rank=max(rank, 1), shape=shape, density=density, seed=0)
    pairs = pd.DataFrame(world.pairs, columns=["voter", "motion"] if named else None)
    return fitted(rank if allowed is None else allowed, pairs, world.answers, **settings)


@pytest.fixture(scope="module")
def pupils():
    frame = school(50, 25, 1200, seed=3).frame()
    return fitted(4, frame[["student", "exercise"]], frame["solved"] == "yes")


@pytest.fixture(scope="module")
def pupils_page(pupils):
    return render_report(pupils)


@pytest.fixture(scope="module")
def ruled():
    model = worlds_model(1)
    assert model.rank_ == 1
    return render_report(model)


@pytest.fixture(scope="module")
def sampled():
    frame = school(40, 20, 700, seed=1).frame()
    return fitted(
        2, frame[["student", "exercise"]], frame["solved"] == "yes", inference="sampling", n_samples=60
    )


def test_the_policy_allows_the_pages_own_style_and_script_by_hash_and_nothing_else(pupils_page):
    found = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', pupils_page)
    rules = dict(
        rule.strip().split(" ", 1) for rule in html.unescape(found[1]).split(";") if rule.strip()
    )

    def hashes(tag):
        texts = re.findall(rf"<{tag}>(.*?)</{tag}>", pupils_page, flags=re.DOTALL)
        assert len(texts) == 1
        digests = [hashlib.sha256(text.encode()).digest() for text in texts]
        return " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)

    assert rules == {
        "default-src": "'none'",
        "style-src": hashes("style"),
        "script-src": hashes("script"),
        "base-uri": "'none'",
        "form-action": "'none'",
    }


def test_no_element_carries_a_style_or_a_handler_that_the_policy_would_refuse(pupils_page):
    seen = Visible(pupils_page)
    for tag, attributes in seen.elements:
        assert "style" not in attributes, (tag, attributes)
        assert not any(name.startswith("on") for name in attributes), (tag, attributes)
    assert [tag for tag, _ in seen.elements].count("style") == 1


def test_the_call_that_makes_a_model_makes_it(small_world):
    settings = {"prior": InverseGamma(3.0, 2.0), "sparse": "rows", "random_state": 4}
    model = LogisticCompleter(2, **settings).fit(small_world.pairs, small_world.answers)
    again = eval(_python(model), {"LogisticCompleter": LogisticCompleter, "InverseGamma": InverseGamma})
    assert again.get_params() == model.get_params()


def test_a_hostile_name_stays_text_everywhere():
    hostile = "</script></style></title><img src=x onerror=alert(1)>"
    world = simulate.world("B3", rank=1, shape=(20, 15), density=0.8, seed=1)
    pairs = pd.DataFrame([(f"{hostile}{r}", f"{hostile}{c}") for r, c in world.pairs])
    pairs.columns = [hostile, hostile + "2"]
    model = fitted(2, pairs, world.answers)
    seen = Visible(render_report(model, title=hostile))
    assert not any(tag == "img" for tag, _ in seen.elements)
    assert "<img src=x onerror" in seen.text
    titles = [attributes["title"] for _, attributes in seen.elements if "title" in attributes]
    assert any(title.startswith(hostile) for title in titles)


def test_shares_of_the_factors_are_shares(pupils):
    values = principal(*factors_of(pupils))[0]
    shares = figures.factor_shares(values)
    assert shares.min() >= 0
    assert shares.sum() == pytest.approx(1)
    left, right = factors_of(pupils)
    np.testing.assert_allclose((values**2).sum(), ((left @ right.T) ** 2).mean())
    strong = worlds_model(1, allowed=3)
    assert principal(*factors_of(strong))[0].max() > 1  # what was once called a share
    axis = re.search(r'<svg[^>]*aria-label="shares of the factors.*?</svg>', render_report(strong), re.S)
    ticks = [float(text) for text in re.findall(r">(\d+)</text>", axis[0])]
    assert max(ticks) <= 100
    assert figures.factor_shares(np.zeros(3)).tolist() == [0, 0, 0]


def test_a_full_table_is_told_in_a_sentence_and_not_in_histograms_of_one_bar():
    table = worlds_model(2, shape=(24, 30), density=1.0)
    page = render_report(table)
    text = Visible(page).text
    assert "Every voter has 30 answers." in text
    assert "Every motion has 24 answers." in text
    assert "100 % answered: no blanks" in text
    assert 'aria-label="histogram of the answers' not in page


def test_too_few_answers_for_a_share_are_told_in_a_sentence():
    pairs = [(row, row + shift) for row in range(40) for shift in range(2)]
    page = render_report(fitted(0, pairs, [k % 2 for k in range(80)]))
    assert "No row has 5 answers, too few for a share." in Visible(page).text


def test_the_readers_names_of_both_sides_are_used(pupils_page):
    text = Visible(pupils_page).text
    for words in ("Answers of each student", "Share of yes of each exercise", "student and exercise lie"):
        assert words in text
    for ours in ("one of the rows", "one of the columns", "ready to say", "readiness", "A row"):
        assert ours not in pupils_page


def test_sides_without_names_are_called_row_and_column():
    text = Visible(render_report(worlds_model(2, named=False))).text
    assert "Answers of each row" in text
    assert "Answers of each column" in text


def test_a_picture_of_the_fit_never_stands_beside_nothing(ruled, pupils_page):
    for page in (ruled, pupils_page, render_report(worlds_model(1, allowed=0))):
        fit = page[page.index('id="fit"') : page.index('id="certificates"')]
        pictures, cells = fit.count("<figure>"), fit.count('class="cells"')
        assert (pictures >= 2 and cells == 1) or (pictures == 1 and 'class="two beside"' in fit)


def test_one_factor_is_a_ruler(ruled):
    assert "One factor places everything on a ruler" in Visible(ruled).text
    points = json.loads(re.search(r'id="points">(.*?)</script>', ruled)[1])
    assert [len(side["at"]) for side in points["sides"]] == [1, 1]


def test_no_factor_is_a_sentence_and_no_map():
    page = render_report(worlds_model(1, allowed=0))
    seen = Visible(page)
    assert "There is none to draw: the model uses no factor." in seen.text
    assert not any(tag == "script" for tag, _ in seen.elements)
    assert 'id="map"' not in page


def test_numbers_have_minus_signs_and_not_hyphens(pupils_page, ruled):
    for page in (pupils_page, ruled):
        text = Visible(page).text
        assert not re.search(r"(?<![\w.])[-](?=[\d.])|\de-\d", text), text
        assert "\u2212" in text
        assert ">-" not in re.sub(r"<(pre|code)>.*?</\1>", "", page, flags=re.DOTALL)


def test_an_asterisk_is_never_left_to_be_guessed(pupils_page):
    assert "*" not in Visible(pupils_page).text


def test_numbers_are_written_for_readers():
    assert number(-1.5) == "\u22121.5"
    assert number(0.00001) == "10⁻⁵"
    assert number(-3e-12) == "\u22123 \xd7 10⁻¹²"
    assert share(0.99999) == "99.999 %"
    assert share(1.0) == "100 %"
    assert share(0.00002) == "0.002 %"
    assert share(0.0) == "0 %"


@pytest.mark.parametrize(
    ("text", "longest", "left"),
    [
        ("abcdef", 6, "abcdef"),
        ("abcdefg", 6, "abcde…"),
        ("ab" + FAMILY + "cd", 5, "ab…"),
        ("abce\u0301fgh", 5, "abc…"),
        ("a\U0001f1eb\U0001f1f7\U0001f1e9\U0001f1eaz", 5, "a\U0001f1eb\U0001f1f7…"),
        ("a\U0001f44b\U0001f3fdxyz", 3, "a…"),
        ("\U0001f600" * 9, 4, "\U0001f600" * 3 + "…"),
    ],
)
def test_a_name_is_cut_between_whole_signs(text, longest, left):
    assert cut(text, longest) == left


def test_ids_of_any_characters_survive():
    world = simulate.world("B3", rank=2, shape=(20, 15), density=0.8, seed=1)
    odd = ["\U0001f600" * 140, FAMILY * 30, "e\u0301" * 100]
    rows = [odd[row] if row < len(odd) else f"row {row}" for row in range(20)]
    model = fitted(2, [(rows[row], column) for row, column in world.pairs], world.answers)
    page = render_report(model, title="half \ud83d and \ud83d\ude00")
    page.encode("utf-8")
    assert "\ufffd and \U0001f600" in page
    seen = Visible(page)
    titles = [attributes["title"] for _, attributes in seen.elements if "title" in attributes]
    assert set(odd) & set(titles)
    assert whole("half \ud83d") == "half \ufffd"
    assert whole("\ud83d\ude00 in two") == "\U0001f600 in two"


def test_long_names_are_shown_in_part_with_the_whole_in_a_title():
    world = simulate.world("B3", rank=2, shape=(20, 15), density=0.8, seed=1)
    name = "a very long name " * 20
    pairs = [(f"{name}{row}", f"{name}{column}") for row, column in world.pairs]
    page = render_report(fitted(2, pairs, world.answers))
    spans = re.findall(r'<span class="name" title="([^"]*)">([^<]*)</span>', page)
    assert len(spans) > 20
    for title, shown in spans:
        assert title.startswith(name)
        assert len(shown) <= 120
        assert shown.endswith("…")


def test_a_variational_model_says_that_it_is_one_and_what_its_spread_is(pupils, pupils_page):
    text = Visible(pupils_page).text
    for sentence in sampling_words(pupils):
        assert sentence in text
    assert "Not sampled: the posterior is a variational approximation." in text
    assert "uncertainties are approximate and too small" in text
    assert f"The variational descent converged after {pupils.n_iter_} rounds" in text
    assert "settled" not in text


def test_a_descent_that_was_stopped_is_not_called_converged():
    stopped = worlds_model(2, max_iter=2)
    assert "was stopped after 2 rounds, before it converged (max_iter" in descent_words(stopped)


def test_an_objective_is_called_a_bound_where_it_is_one():
    world = simulate.world("B1", rank=1, shape=(15, 12), density=0.8, seed=0)
    words = {
        kind: objective_words(kind(1, random_state=0).fit(world.pairs, world.answers))
        for kind in (HingeCompleter, GibbsCompleter)
    }
    assert "an upper bound on the mean loss" in words[HingeCompleter]
    assert "bound" not in words[GibbsCompleter]
    assert "are wrong" in words[GibbsCompleter]


def test_a_model_without_a_posterior_claims_none():
    world = simulate.world("B1", rank=1, shape=(15, 12), density=0.8, seed=0)
    model = NuclearNormCompleter(1).fit(world.pairs, world.answers)
    words = " ".join(sampling_words(model))
    assert "has no posterior" in words
    assert "variational" not in words + descent_words(model)


def test_a_sampled_model_says_how_well_its_chains_have_mixed(sampled):
    text = Visible(render_report(sampled)).text
    mixing = Mixing.of(sampled.diagnostics_)
    for sentence in sampling_words(sampled):
        assert sentence in text
    assert f"averages over {sampled.draws_.count} draws" in text
    assert f"of {sampled.n_chains} chains of {sampled.n_sweeps_} sweeps each" in text
    assert f"worst R-hat {mixing.rhat:.2f}, smallest effective sample size {int(mixing.ess)}" in text
    assert "The variational descent converged" in text
    assert "The chains started there." in text
    assert "too small" not in text
