"""How a browser takes the report: no errors, nothing refused by its policy, nothing that overflows."""

import base64
import json
import re
import shutil
import subprocess

import pandas as pd
import pytest

from onebit import LogisticCompleter, simulate
from onebit.report import render_report
from onebit.report.policy import content_hash
from onebit.school import school

NAMES = ("chromium", "chromium-browser", "google-chrome")
BROWSER = next((found for name in NAMES if (found := shutil.which(name))), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed to open the report in")
FAMILY = "\U0001f469\u200d\U0001f469\u200d\U0001f467"
WIDTHS = [1200, 390]

# What goes wrong is written into the page, where the dump shows it; a search is typed, too.
WATCH = """
window.problems = [];
window.addEventListener("error", e => problems.push(e.message));
document.addEventListener("securitypolicyviolation", e => problems.push(e.violatedDirective));
window.addEventListener("load", () => {
  const svg = document.querySelector("#map svg"), seen = { problems };
  const labels = [...svg.querySelectorAll("text.label")];
  const boxes = labels.map(label => label.getBoundingClientRect());
  seen.kind = svg.getAttribute("class");
  seen.labels = labels.map(label => label.firstChild.data);
  seen.titles = labels.map(label => label.querySelector("title").textContent);
  seen.colliding = boxes.filter((a, i) => boxes.some((b, j) => j < i && a.left < b.right - 1
    && b.left < a.right - 1 && a.top < b.bottom - 3 && b.top < a.bottom - 3)).length;
  const frame = svg.getBoundingClientRect();
  seen.outside = boxes.filter(b => b.left < frame.left || b.right > frame.right).length;
  const root = document.documentElement;
  seen.overflow = root.scrollWidth - root.clientWidth;
  seen.broad = [...document.querySelectorAll("section")].flatMap(section => {
    const edge = section.getBoundingClientRect().right + 1;
    return [...section.querySelectorAll("p, td, th, h2, h3, .name, figure, label")]
      .filter(part => part.getBoundingClientRect().right > edge).map(part => part.textContent);
  });
  seen.hidden = [...document.querySelectorAll("section")].filter(s => s.offsetHeight < 30).length;
  seen.points = svg.querySelectorAll("circle, path.point").length;
  seen.coloured = getComputedStyle(document.querySelector("figure svg text")).fill;
  const find = document.getElementById("find");
  find.value = "geometry";
  find.dispatchEvent(new Event("input"));
  seen.hits = document.getElementById("hits").textContent;
  seen.found = document.querySelectorAll("#map .found").length;
  const said = document.createElement("p");
  said.id = "said";
  said.textContent = btoa(unescape(encodeURIComponent(JSON.stringify(seen))));
  document.body.append(said);
});
"""


def look(page, width, folder):
    """Open a page in a window so wide; return what the watching script saw."""
    path = folder / "report.html"
    # The page's own policy stays in force; the watching script is allowed beside it, by its hash.
    page = page.replace("script-src ", f"script-src {content_hash(WATCH)} ", 1)
    path.write_text(page.replace("<title>", f"<script>{WATCH}</script><title>", 1), encoding="utf-8")
    command = [
        BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync",
        f"--window-size={width},900", f"--user-data-dir={folder / 'profile'}",
        "--virtual-time-budget=3000", "--dump-dom", path.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    said = re.search(r'<p id="said">(.*?)</p>', done.stdout)
    assert said, done.stdout[-2000:]
    return json.loads(base64.b64decode(said.group(1)))


@pytest.fixture(scope="module")
def pupils():
    frame = school(50, 25, 1200, seed=3).frame()
    model = LogisticCompleter(4, random_state=0)
    return model.fit(frame[["student", "exercise"]], frame["solved"] == "yes", certify=0.2)


@pytest.mark.parametrize("width", WIDTHS)
def test_a_browser_shows_it_without_errors_or_refusals(pupils, tmp_path, width):
    seen = look(render_report(pupils), width, tmp_path)
    geometry = sum("geometry" in name for name in pupils.columns_.labels)
    assert geometry > 0
    expected = {"problems": [], "overflow": 0, "hidden": 0, "points": 75, "broad": []}
    expected |= {"colliding": 0, "outside": 0, "hits": f"{geometry} found", "found": geometry}
    assert {name: seen[name] for name in expected} == expected
    assert seen["coloured"] != "rgb(0, 0, 0)"  # the page's ink


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("shape", [(80, 60), (8, 700)])
def test_one_factor_is_a_ruler_whose_names_do_not_collide(tmp_path, width, shape):
    world = simulate.world("B1", rank=1, shape=shape, density=0.6, seed=0)
    names = [(f"person {row}", f"statement {column}") for row, column in world.pairs]
    model = LogisticCompleter(1, random_state=0).fit(pd.DataFrame(names), world.answers, certify=0.1)
    assert model.rank_ == 1
    seen = look(render_report(model), width, tmp_path)
    assert seen["kind"] == "ruler"
    assert len(seen["labels"]) >= 8
    for name in ("colliding", "outside", "overflow"):
        assert seen[name] == 0, seen["labels"]
    assert seen["problems"] == []


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("rank", [1, 2])
def test_long_names_stay_inside_and_are_cut_between_whole_signs(tmp_path, width, rank):
    world = simulate.world("B1", rank=rank, shape=(24, 20), density=0.8, seed=1)
    rows = [f"{FAMILY * 12}{row}" for row in range(24)]
    columns = [f"one_name_without_any_blank_that_goes_on_and_on_{'and_on_' * 6}{k}" for k in range(20)]
    pairs = [(rows[row], columns[column]) for row, column in world.pairs]
    frame = pd.DataFrame(pairs, columns=["representative_of_the_constituency" * 3, "m" * 80])
    model = LogisticCompleter(rank, random_state=0).fit(frame, world.answers, certify=0.2)
    seen = look(render_report(model), width, tmp_path)
    assert seen["kind"] == ("ruler" if model.rank_ == 1 else "scatter")
    for name in ("overflow", "colliding", "outside"):
        assert seen[name] == 0
    assert seen["broad"] == []
    families = [label for label in seen["labels"] if "\U0001f469" in label]
    assert families
    for label in families:
        assert re.fullmatch(f"({FAMILY})*…?({FAMILY})*\\d*", label)
    assert set(seen["titles"]) <= set(rows) | set(columns)
