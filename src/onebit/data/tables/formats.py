"""Files of every kind as batches of columns.

Each reader yields ``Batch`` records: some columns of some lines, and where each line stands; those of
wide text and wide JSON lines yield ``Cells``. Which columns are wanted is settled by a callback, as soon
as their names and the first fields are known.
"""

from __future__ import annotations

from collections.abc import Generator

import pyarrow as pa

from onebit.data.tables.cells import Cells
from onebit.data.tables.problems import Problems, TableError
from onebit.data.tables.sources import Batch, Choose, Source
from onebit.data.tables.text import read_csv, read_json_lines
from onebit.data.tables.typed import read_arrow, read_mtx, read_npz, read_parquet

_TYPED = {"parquet": read_parquet, "arrow": read_arrow, "npz": read_npz, "mtx": read_mtx}


def batches(
    source: Source,
    choose: Choose,
    problems: Problems,
    *,
    header: bool = True,
    delimiter: str | None = None,
) -> Generator[Batch | Cells, None, None]:
    """Read a source batch by batch; ``choose`` names the wanted columns by their places.

    Close what is returned before the source, also after an error: its parser may still read.
    """
    try:
        if source.format in ("csv", "tsv"):
            delimiter = delimiter or ("\t" if source.format == "tsv" else None)
            yield from read_csv(source, choose, problems, header, delimiter)
        elif source.format == "jsonl":
            yield from read_json_lines(source, choose, problems)
        else:
            yield from _TYPED[source.format](source, choose)
    except UnicodeDecodeError:
        raise TableError(f"{source.name} holds text that is not UTF-8") from None
    except (pa.ArrowException, OSError) as error:
        what = str(error).split("\n")[0]
        raise TableError(f"{source.name} cannot be read as {source.format}: {what}") from None
