"""The benchmark of what people ask about, in a tiny setting, so that it cannot break unseen."""

from benchmarks.certificates import __main__ as certificates
from benchmarks.certificates import asked


def test_the_page_of_what_people_ask_judges_every_kind(tmp_path, monkeypatch):
    for family, count in (("asked", 8), ("selected", 4)):
        one_world, _, batch = certificates.ASKED[family]
        monkeypatch.setitem(certificates.ASKED, family, (one_world, count, batch))
    output = tmp_path / "page.md"
    certificates.main(["--asked", "--jobs", "1", "--keep", str(tmp_path), "--output", str(output)])
    text = output.read_text()
    true, broken = text.split("## Broken on purpose")
    for name in (
        asked.GROUP, asked.LISTS, asked.WHOLE_LISTS, asked.LOG_LOSS, asked.BRIER, asked.GAIN,
        asked.CALIBRATION, asked.SHEET, asked.SHIFTED, asked.GIVEN, asked.ONE_POINT,
    ):  # fmt: skip
        assert f"| {name} |" in true
    for name in (
        asked.EACH_GROUP, asked.PICKED, asked.OBSERVED_LOSS, asked.OBSERVED_GAIN, asked.UNSHIFTED,
        asked.TOO_LITTLE,
    ):  # fmt: skip
        assert f"| {name} |" in broken
    assert "**caught**" not in true
