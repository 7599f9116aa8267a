"""The benchmark of what people ask about, in a tiny setting, so that it cannot break unseen."""

import numpy as np

from benchmarks.certificates import __main__ as certificates
from benchmarks.certificates import arriving, asked, real


def test_the_page_of_what_people_ask_judges_every_kind(tmp_path, monkeypatch):
    monkeypatch.setattr(arriving, "FRESH", 100)
    for family, count in (("asked", 8), ("selected", 4), ("arriving", 2), ("own", 2)):
        one_world, _, batch = certificates.ASKED[family]
        monkeypatch.setitem(certificates.ASKED, family, (one_world, count, batch))
    output = tmp_path / "page.md"
    certificates.main(["--asked", "--jobs", "1", "--keep", str(tmp_path), "--output", str(output)])
    text = output.read_text()
    true, broken = text.split("## Broken on purpose")
    for name in (
        asked.GROUP, asked.LISTS, asked.WHOLE_LISTS, asked.LOG_LOSS, asked.BRIER, asked.GAIN,
        asked.CALIBRATION, asked.SHEET, asked.SHIFTED, asked.GIVEN, asked.ONE_POINT,
        arriving.NEW_ROWS, arriving.ONE_NUMBER, arriving.LATER, arriving.SURVEY,
    ):  # fmt: skip
        assert f"| {name} |" in true
    for name in (
        asked.EACH_GROUP, asked.PICKED, asked.OBSERVED_LOSS, asked.OBSERVED_GAIN, asked.UNSHIFTED,
        asked.TOO_LITTLE, arriving.POOLED, arriving.OBSERVED_ROWS, arriving.LATER_RANDOM,
        arriving.SURVEY_RANDOM,
    ):  # fmt: skip
        assert f"| {name} |" in broken
    assert "**caught**" not in true


def test_real_ratings_are_cut_by_time_and_by_people(tmp_path):
    rng = np.random.default_rng(0)
    (tmp_path / "ml-100k").mkdir()
    lines = [
        f"{user}\t{film}\t{1 + (user + film + rng.integers(0, 3)) % 5}\t{rng.integers(1e9)}"
        for user in range(60)
        for film in range(30)
    ]
    (tmp_path / "ml-100k" / "u.data").write_text("\n".join(lines))
    found = real.one_seed(tmp_path, 0)
    assert {real.RANDOM, real.OWN, real.PEOPLE.format(10)} <= set(found["line"])
    assert found["observed"].between(0, 1).all()
    assert "MovieLens" in "".join(real.section(found))
