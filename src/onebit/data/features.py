"""What users know of rows and columns: tables keyed by id, turned into numbers.

A column of numbers is centred and divided by twice its standard deviation, so that it weighs as much as a
yes or no of even chances (Gelman, 2008). A column of booleans is centred. A column of words or categories
becomes one centred column a level. Where a value is missing, the row counts as average in that column,
and one more column says that it is missing. A row of which nothing is known is average in everything.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from onebit.data import checked
from onebit.data.feature_columns import LARGEST_VALUE, Column, learnt_column, raw_features
from onebit.data.given_features import FeatureError, Given
from onebit.data.storage import Tensors

Array = NDArray[np.float64]

# Of a file.
LARGEST_COUNT = 2**16
# Numbers of a matrix, which may be sparse, are not moved; farther ones would be told wrong.
FARTHEST = 1e6


@dataclass(frozen=True)
class Encoder:
    """How the features of one side become numbers, for members to come as well.

    Attributes
    ----------
    columns : tuple of Column
        Of a table; of a matrix there are none.
    names : tuple of str
        The features.
    centre, scale : ndarray
        Their means, after scaling, and what they are divided by.
    """

    columns: tuple[Column, ...]
    names: tuple[str, ...]
    centre: Array
    scale: Array

    def encoded(self, given: Given, codes: NDArray[np.int32], size: int) -> FeatureMatrix:
        """Return the features of ``size`` members, of which ``given`` has those of ``codes``."""
        self._check(given)
        raw, gaps = raw_features(self.columns, given)
        filled = raw + gaps @ scipy.sparse.diags_array(self.centre * self.scale)
        scaled = filled @ scipy.sparse.diags_array(1.0 / self.scale)
        known = codes >= 0
        place = scipy.sparse.csr_array(
            (np.ones(known.sum()), (codes[known], np.flatnonzero(known))), shape=(size, len(codes))
        )
        there = np.zeros(size, bool)
        there[codes[known]] = True
        return FeatureMatrix(scipy.sparse.csr_array(place @ scaled), there, self)

    def _check(self, given: Given) -> None:
        if given.matrix is not None:
            if self.columns or given.matrix.shape[1] != len(self.names):
                raise FeatureError(
                    f"the {given.side} features are a matrix with {given.matrix.shape[1]} columns; the "
                    f"model was fitted with {len(self.names)} features"
                    + (" from a table with names" if self.columns else "")
                )
            return
        if not self.columns:
            raise FeatureError(f"the model was fitted with a matrix of {given.side} features; give one")
        assert given.frame is not None
        lacking = [column.name for column in self.columns if column.name not in given.frame]
        if lacking:
            raise FeatureError(
                f"the {given.side} features lack the column {lacking[0]!r}, with which the model was "
                "fitted"
            )

    def contrasts(self, maps: Array) -> Array:
        """Turn coefficients of standardised features (a line each) into effects that can be read.

        Of a number: of one standard deviation more. Of a yes or no: of yes against no. Of a level:
        against the average of the levels, as common as they are.
        """
        found = maps.copy()
        place = 0
        for column in self.columns:
            levels = slice(place, place + max(len(column.levels), 1))
            if column.kind == "number":
                found[place] *= 0.5
            elif column.kind == "category":
                found[levels] -= self.centre[levels] @ maps[levels]
            place += len(column.features)
        if not self.columns:
            found[self.scale != 1.0] *= 0.5
        return found

    def state(self, name: str) -> tuple[Tensors, dict[str, Any]]:
        """Return the encoder as arrays, whose names begin with ``name``, and JSON."""
        columns = [
            {"name": c.name, "kind": c.kind, "levels": list(c.levels), "missing": c.missing}
            | ({"origin": c.origin} if c.origin else {})
            for c in self.columns
        ]
        tensors: Tensors = {f"{name}.centre": self.centre, f"{name}.scale": self.scale}
        return tensors, {"columns": columns, "names": [] if columns else list(self.names)}


@dataclass(frozen=True)
class FeatureMatrix:
    """Standardised features of all members of a side, of which no dense matrix is made.

    Attributes
    ----------
    matrix : scipy.sparse array
        Scaled, not centred; empty lines where nothing is known.
    there : ndarray of bool
        The lines of which something is known; the means of the features are taken off these.
    encoder : Encoder
        How the features became numbers.
    """

    matrix: Any
    there: NDArray[np.bool_]
    encoder: Encoder

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of members and of features."""
        return self.matrix.shape

    def of(self, members: NDArray[np.int64]) -> FeatureMatrix:
        """Return the features of some members, whose means are not zero any more."""
        return replace(self, matrix=self.matrix[members], there=self.there[members])

    def centred(self) -> FeatureMatrix:
        """Return the same with an encoder that takes the means of these members off."""
        means = np.asarray(self.matrix[self.there].mean(axis=0)).ravel() if self.there.any() else 0.0
        centre = np.broadcast_to(means, self.encoder.centre.shape).astype(float)
        return replace(self, encoder=replace(self.encoder, centre=centre))

    def for_more(self, size: int) -> FeatureMatrix:
        """Return the same for ``size`` members: of those beyond the present ones nothing is known."""
        new = size - len(self.there)
        nothing = scipy.sparse.csr_array((new, self.shape[1]))
        matrix = scipy.sparse.csr_array(scipy.sparse.vstack([self.matrix, nothing]))
        return replace(self, matrix=matrix, there=np.append(self.there, np.zeros(new, bool)))

    def fingerprint(self) -> str:
        """Return a digest of the values and of whose they are."""
        matrix, centre = self.matrix, self.encoder.centre
        parts = matrix.indptr, matrix.indices, matrix.data, centre, self.there
        return hashlib.sha256(
            b"".join(np.ascontiguousarray(part).tobytes() for part in parts)
        ).hexdigest()

    def times(self, right: Array) -> Array:
        """Return the features times some vectors."""
        return self.matrix @ right - self.there[:, None] * (self.encoder.centre @ right)

    def transposed_times(self, left: Array) -> Array:
        """Return their transpose times some vectors."""
        return self.matrix.T @ left - np.outer(self.encoder.centre, left[self.there].sum(axis=0))


Encoders = tuple[Encoder | None, Encoder | None]


def learnt(given: Given) -> Encoder:
    """Learn how features become numbers, from all members that are given."""
    if given.matrix is not None:
        columns: tuple[Column, ...] = ()
        names = tuple(f"feature {k}" for k in range(given.matrix.shape[1]))
        numeric = np.full(len(names), not np.isin(given.matrix.data, (0.0, 1.0)).all())
    else:
        assert given.frame is not None
        columns = tuple(learnt_column(given, name) for name in given.frame.columns)
        names = tuple(feature for column in columns for feature in column.features)
        numeric = np.array([f == c.name and c.kind == "number" for c in columns for f in c.features])
    if len(names) > LARGEST_COUNT:
        raise FeatureError(f"{len(names):,} {given.side} features; at most {LARGEST_COUNT:,} are taken")
    raw, gaps = raw_features(columns, given)
    count = raw.shape[0] - np.asarray(gaps.sum(axis=0)).ravel()
    mean = np.asarray(raw.sum(axis=0)).ravel() / count
    deviation = np.sqrt(_squares(raw, mean, count) / count)
    # What is counted from far away is as rough as numbers are there.
    origins = np.array([abs(column.origin) for column in columns for _ in column.features] or [0.0])
    rounding = np.maximum(1e-12 * np.hypot(mean, deviation), 4.0 * np.finfo(float).eps * origins)
    constant = deviation <= np.maximum(rounding, 1e-300)
    far = np.abs(mean) > FARTHEST * deviation
    if given.matrix is not None and far.any():
        far &= np.ravel((raw.max(axis=0) - raw.min(axis=0)).todense()) > 0.0
    if given.matrix is not None and far.any():
        place = int(far.argmax())
        raise FeatureError(
            f"the {given.side} feature {names[place]!r} is {mean[place]:g} on average and differs by "
            f"{deviation[place]:g} alone: take a constant off it"
        )
    # Of a column with gaps, that a value is missing may be all that it tells.
    whole = np.array([not column.missing for column in columns for _ in column.features], bool)
    if given.matrix is None and (constant & whole).any():
        place = int((constant & whole).argmax())
        raise FeatureError(
            f"the {given.side} feature {names[place]!r} is the same for everyone; leave it out"
        )
    scale = np.where(numeric & ~constant, 2.0 * deviation, 1.0)
    return Encoder(columns, names, mean / scale, scale)


def _squares(raw: Any, mean: Array, count: Array) -> Array:
    """Return the squares around the mean, summed over each column; what is not stored is zero."""
    stored = scipy.sparse.csr_array(raw)
    around = (stored.data - mean[stored.indices]) ** 2
    width = len(mean)
    others = count - np.bincount(stored.indices, minlength=width)
    return np.bincount(stored.indices, weights=around, minlength=width) + others * mean**2


def matrix_state(told: FeatureMatrix, name: str) -> Tensors:
    """Return standardised features as arrays whose names begin with ``name``."""
    return {
        f"{name}.start": told.matrix.indptr.astype(np.int64),
        f"{name}.index": told.matrix.indices.astype(np.int32),
        f"{name}.values": told.matrix.data,
        f"{name}.there": told.there,
    }


def restored_matrix(tensors: Tensors, name: str, encoder: Encoder, size: int) -> FeatureMatrix:
    """Restore what ``matrix_state`` returned, checked, for ``size`` members."""
    array, width, far = checked.checked_array, len(encoder.names), checked.LARGEST_FACTOR
    start = array(tensors, f"{name}.start", np.int64, (size + 1,), least=0)
    index = array(tensors, f"{name}.index", np.int32, (None,), least=0, most=max(width - 1, 0))
    values = array(tensors, f"{name}.values", np.float64, (len(index),), least=-far, most=far)
    there = array(tensors, f"{name}.there", np.bool_, (size,))
    if (
        start[0] != 0
        or start[-1] != len(index)
        or (np.diff(start) < 0).any()
        or (len(index) and not width)
    ):
        raise checked.FileError(f"{name} is no matrix of features")
    matrix = scipy.sparse.csr_array((values, index, start), shape=(size, width))
    return FeatureMatrix(matrix, there, encoder)


def restored_encoder(tensors: Tensors, name: str, content: Any) -> Encoder:
    """Restore what ``Encoder.state`` returned, checked."""
    columns = []
    listed = checked.listed(content, "columns")
    for place in range(len(listed)):
        part = checked.section(listed, place)
        levels = checked.listed(part, "levels")
        kind = checked.text(part, "kind")
        if kind not in ("number", "boolean", "category"):
            raise checked.FileError(f"a feature of the kind {kind[:40]!r}")
        words = tuple(checked.text(levels, k) for k in range(len(levels)))
        origin = (
            checked.number(part, "origin", least=-LARGEST_VALUE, most=LARGEST_VALUE)
            if "origin" in part
            else 0.0
        )
        missing = checked.flag(part, "missing")
        columns.append(Column(checked.text(part, "name"), kind, words, missing, origin))
    given_names = checked.listed(content, "names")
    names = tuple(feature for column in columns for feature in column.features)
    if not columns:
        names = tuple(checked.text(given_names, k) for k in range(len(given_names)))
    array, shape = checked.checked_array, (len(names),)
    far = checked.LARGEST_FACTOR
    centre = array(tensors, f"{name}.centre", np.float64, shape, least=-far, most=far)
    scale = array(tensors, f"{name}.scale", np.float64, shape, positive=True)
    return Encoder(tuple(columns), names, centre, scale)
