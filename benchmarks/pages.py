"""The code that pages of documentation show."""

from __future__ import annotations

import re

# Pages that show by example: each is a program that ends in a figure of its own name, in docs/gallery.
EXAMPLES = (
    "recommend",
    "score-a-test",
    "evaluate-a-model",
    "survey",
    "cold-start",
    "harder-blanks",
    "large-tables",
)


def blocks(text: str, kind: str = "python") -> list[str]:
    r"""Return the fenced blocks of one kind of a page.

    >>> blocks("```sh\nls\n```\n\n```python\nprint(1)\n```\n")
    ['print(1)\n']
    """
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)
    return [content for name, content in fenced if name == kind]
