"""A fitted model over HTTP: ``onebit serve``, and ``create_app`` for a server of one's own.

Needs the extra ``serve``: ``pip install "onebit[serve]"``.
"""

from onebit.serve.app import create_app
from onebit.serve.guard import Settings

__all__ = ["Settings", "create_app"]
