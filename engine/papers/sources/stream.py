"""Lists larger than memory: blocks read from Parquet through DuckDB, and weights learnt from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np

from ...base.arrays import Float64s
from ...base.errors import UsageError
from ...base.packages import arrow
from ...base.progress import CancelToken, Report, silent
from ...store.workspace import in_memory
from .estimators import EPOCHS, RATE, ascend
from .gradient import Block, multilinear

if TYPE_CHECKING:
    import pyarrow as pa

BLOCK = 1 << 16  # lists in memory at a time


def parquet_blocks(
    paths: str | Path | Sequence[str | Path],
    *,
    items: str = "items",
    utilities: str = "utilities",
    block: int = BLOCK,
) -> Iterator[Block]:
    """Blocks ``(items (T,), utilities (T,), lengths (N,))`` of about ``block`` lists, in the files' order.

    A row is one ranked list: column ``items`` a LIST of source numbers, best first, ``utilities`` a LIST of the same
    length. Raises UsageError for files without these columns.
    """
    pa = arrow("reading ranked lists from Parquet")
    chosen: Sequence[str | Path] = [paths] if isinstance(paths, str | Path) else paths
    files = [str(path) for path in chosen]
    columns = ", ".join('"' + name.replace('"', '""') + '"' for name in (items, utilities))
    with in_memory() as con:
        try:
            reader: Any = con.sql(f"SELECT {columns} FROM read_parquet(?)", params=[files]).to_arrow_reader(block)
        except duckdb.Error as error:
            raise UsageError(
                f"cannot read ranked lists: {str(error).splitlines()[0]}",
                f'give Parquet files with the LIST columns "{items}" and "{utilities}"',
            ) from error
        for batch in reader:
            ids, values = batch.column(0), batch.column(1)
            if not (pa.types.is_list(ids.type) and pa.types.is_list(values.type)):
                raise UsageError(
                    f'columns "{items}" and "{utilities}" must hold lists',
                    "write one ranked list per row, as LIST columns",
                )
            lengths = _lengths(ids)
            if not np.array_equal(lengths, _lengths(values)):
                raise UsageError("a row has different numbers of items and utilities", "write one utility per item")
            yield ids.flatten().to_numpy(zero_copy_only=False), values.flatten().to_numpy(zero_copy_only=False), lengths


def _lengths(column: pa.ListArray) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    import pyarrow.compute as pc

    return np.asarray(pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False), np.int64)


def learn_streamed(
    blocks: Callable[[], Iterable[Block]],
    sources: int,
    k: int,
    *,
    rate: float = RATE,
    epochs: int = EPOCHS,
    threads: int | None = None,
    report: Report = silent,
    cancel: CancelToken | None = None,
) -> Float64s:
    """(C,) weights as in `learn.multilinear`, from lists that are read again in every epoch.

    ``blocks()`` yields the blocks once, e.g. ``lambda: parquet_blocks(path)``; one is in memory at a time.
    """

    def gradient(weights: Float64s) -> Float64s:
        def watched() -> Iterator[Block]:
            for block in blocks():
                if cancel is not None:
                    cancel.check()
                yield block

        return multilinear(watched(), weights, k, threads=threads)[1]

    return ascend(gradient, np.arange(sources, dtype=np.int32), sources, rate, epochs, report, cancel)
