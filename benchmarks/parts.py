"""A part of a page that another program writes, between two marks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from onebit.data.files import written_whole


def _marks(name: str) -> tuple[str, str]:
    return f"<!-- {name} -->", f"<!-- /{name} -->"


def kept_part(page: Path, name: str) -> list[str]:
    """Return the part as it stands in a page, to keep it when the rest is written anew."""
    begin, end = _marks(name)
    text = page.read_text(encoding="utf-8") if page.is_file() else ""
    if begin not in text:
        return []
    return [begin + text.split(begin)[1].split(end)[0] + end]


def write_part(page: Path, name: str, paragraphs: Sequence[str]) -> None:
    """Write the part into the page, in place of an earlier one or at its end."""
    begin, end = _marks(name)
    text = page.read_text(encoding="utf-8") if page.is_file() else ""
    before, _, rest = text.partition(begin)
    after = rest.partition(end)[2]
    whole = "\n\n".join([begin, *paragraphs, end])
    parts = [part.strip("\n") for part in (before, whole, after) if part.strip("\n")]
    with written_whole(page) as temporary:
        temporary.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
