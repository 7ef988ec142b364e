"""A Parquet file or folder -> parts of whole series, by Ray Data.

Files are read as one process reads them (``data/files.py``): one type per column over all files, folder names as text.
The rows of a series may lie in any number of files; Ray Data's hash shuffle brings them together.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from tsattn.data.files import is_parquet, parquet_pieces, read_piece
from tsattn.data.ondisk import OnDisk
from tsattn.data.schema import Schema
from tsattn.data.table import check_columns
from tsattn.errors import ConfigError, DataError

PART_BYTES = 64 << 20  # of a part of the table, uncompressed: what a worker holds at once, some times over
_PARTS_PER_WORKER = 4  # at least, so that a worker that is slow or dies does not hold up a half of the work
_READS_PER_WORKER = 16  # at most


@dataclass(frozen=True)
class Source:
    """What there is to read."""

    pieces: list[bytes]  # pickled fragments of the files
    schema: pa.Schema
    id: str
    rows: int
    size: int  # bytes

    def parts(self, ray: Any, workers: int) -> Any:
        """A Ray dataset whose blocks hold whole series, all shuffled before anything else begins.

        Only then may the workers take their CPUs: the shuffle needs them first.
        """
        wanted = max(_PARTS_PER_WORKER * workers, -(-self.size // PART_BYTES))
        reads = min(len(self.pieces), _READS_PER_WORKER * workers)
        items = ray.data.from_items([{"piece": piece} for piece in self.pieces], override_num_blocks=reads)
        rows = items.map_batches(_read, fn_kwargs={"schema": self.schema}, batch_size=None, batch_format="pyarrow")
        return rows.repartition(min(wanted, self.rows), keys=[self.id]).materialize()


def open_source(data: Any, schema: Schema) -> Source:
    """The columns of ``schema`` in the Parquet file or folder ``data``.

    Raises ConfigError for anything else than a path of Parquet, DataError for what ``read_columns`` refuses, too.
    """
    data = data.path if isinstance(data, OnDisk) else data  # parts are held in memory
    if not isinstance(data, (str, Path)) or (os.path.exists(data) and not is_parquet(Path(data))):
        raise ConfigError(
            f"engine='ray' reads a Parquet file or a folder of Parquet files that all machines see; found "
            f"{data if isinstance(data, (str, Path)) else type(data).__name__}. Write the table there first, for "
            f"example with to_parquet, or leave engine= out."
        )
    if schema.roles.id is None:
        raise ConfigError("engine='ray' shares series out, but this model is of one series without an id column.")
    columns = list(schema.roles.columns())
    check_columns(data, columns)
    pieces, found = parquet_pieces(Path(data), columns)
    groups = [piece.row_groups[0] for piece in pieces]
    rows = sum(group.num_rows for group in groups)
    if not rows:
        raise DataError(f"The table has no rows ({data}). Pass a table with at least one row.")
    size = sum(group.total_byte_size for group in groups)
    return Source([pickle.dumps(piece) for piece in pieces], found, schema.roles.id, rows, size)


def _read(batch: pa.Table, schema: pa.Schema) -> Iterator[pa.Table]:
    """The rows of some pieces."""
    for piece in batch["piece"].to_pylist():
        yield read_piece(pickle.loads(piece), schema)
