"""Bounds on how often predictions are wrong, and what each of them says.

The statements themselves can be imported from here; the bounds as plain functions are in ``bounds``.
"""

from __future__ import annotations

from onebit.certificates.statements import (
    LIKE_THE_ANSWERED,
    Certificate,
    GroupCertificate,
    Kept,
    KeptAnswer,
    SelectiveCertificate,
    above,
    at_most,
    confidence,
)

__all__ = [
    "LIKE_THE_ANSWERED",
    "Certificate",
    "GroupCertificate",
    "Kept",
    "KeptAnswer",
    "SelectiveCertificate",
    "above",
    "at_most",
    "confidence",
]
