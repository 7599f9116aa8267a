"""Tables of answers in files: read into ``Observations``, pair by pair, and predictions written.

CSV, TSV, JSON lines, Parquet, Arrow, NPZ and Matrix Market; long (row, column, answer) or wide (one row a
line, blanks for unknown); gzip and zstd. Files are read in batches: what stays in memory is the ids, and
nine bytes an answer.
"""

from __future__ import annotations

from onebit.data.tables.columns import Layout
from onebit.data.tables.problems import TableError
from onebit.data.tables.reading import PairBatch, Reading, read_answers, read_pairs, read_table
from onebit.data.tables.writing import table_writer

__all__ = [
    "Layout",
    "PairBatch",
    "Reading",
    "TableError",
    "read_answers",
    "read_pairs",
    "read_table",
    "table_writer",
]
