"""The page's Content-Security-Policy: its own style and script run, by their hashes, and nothing else."""

from __future__ import annotations

import base64
import hashlib


def content_hash(text: str) -> str:
    """Return the source expression that allows an inline style or script of just this text."""
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def policy(styles: list[str], scripts: list[str]) -> str:
    """Return a policy that allows these inline styles and scripts alone, and nothing from elsewhere."""
    return "; ".join(
        [
            "default-src 'none'",
            " ".join(["style-src", *map(content_hash, styles)]),
            " ".join(["script-src", *map(content_hash, scripts)]),
            # These two do not fall back on default-src.
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )
