"""One HTML file that shows a model: its data, its fit, its certificates, its map.

It needs no network, follows the reader's dark or light scheme, and fits a phone.
"""

from __future__ import annotations

from onebit.report.page import check_installed, render_report, write_report

__all__ = ["check_installed", "render_report", "write_report"]
