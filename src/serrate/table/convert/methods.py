"""The methods of a table that read and write other formats; each calls the module of its format."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from serrate.table.block import Block
    from serrate.table.convert.parquet import Files
    from serrate.table.table import Table


def _table(block: Block) -> Table:
    from serrate.table.table import Table

    return Table._from_block(block)


class Conversions:
    """Tables from and to other formats. A package is imported when its conversion is used.

    Lists of records become levels; `docs/table_conversion.md` describes the names of levels and columns. `levels` gives
    other names for the levels of some fields, and with `nulls="empty"` missing lists become empty lists. In the other
    direction each level becomes a list of records; with `flat=True` each column becomes a column of nested lists.
    """

    __slots__ = ()

    if TYPE_CHECKING:

        def block(self) -> Block:
            """Return all rows as one block."""

    @classmethod
    def from_arrow(cls, data: Any, *, levels: Mapping[str, str] | None = None, nulls: str = "error") -> Table:
        """Return the rows of an Arrow table, record batch, reader, array of structs, or object with an Arrow stream.

        >>> import pyarrow as pa, serrate as sr
        >>> sr.Table.from_arrow(pa.table({"age": [41, 63], "visits": [[{"time": 3}, {"time": 9}], []]}))
        sr.Table(2 rows, 2 levels)
          rows   2  age int64
          visits 2  time int64
        """
        from serrate.table.convert.from_arrow import from_arrow

        return _table(from_arrow(data, levels=levels, nulls=nulls))

    def to_arrow(self, *, flat: bool = False) -> Any:
        """Return an Arrow table, over the same memory if possible.

        >>> import serrate as sr
        >>> sr.Table({"time": [[3, 9], []]}, schema={"time": "visits"}).to_arrow().to_pylist()
        [{'visits': [{'time': 3}, {'time': 9}]}, {'visits': []}]
        """
        from serrate.table.convert.to_arrow import to_arrow

        return to_arrow(self.block(), flat=flat)

    @classmethod
    def from_parquet(
        cls,
        files: Files,
        columns: Iterable[str] | None = None,
        *,
        levels: Mapping[str, str] | None = None,
        nulls: str = "error",
    ) -> Table:
        """Return columns of Parquet files, or of folders of them, in memory; `parquet_to_folder` is for large files."""
        from serrate.table.convert.parquet import from_parquet

        return from_parquet(files, columns, levels=levels, nulls=nulls)

    def to_parquet(
        self,
        path: str | os.PathLike[str],
        *,
        flat: bool = False,
        rows_per_group: int | None = None,
        compression: str = "zstd",
    ) -> None:
        """Write one Parquet file, a row group at a time; it appears when all of it is written."""
        from serrate.table.convert.parquet import to_parquet

        to_parquet(cast("Table", self), path, flat=flat, rows_per_group=rows_per_group, compression=compression)

    @classmethod
    def from_awkward(cls, array: Any, *, levels: Mapping[str, str] | None = None, nulls: str = "error") -> Table:
        """Return the entries of an Awkward array of records, or of lists of records, as rows."""
        from serrate.table.convert.awkward import from_awkward

        return _table(from_awkward(array, levels=levels, nulls=nulls))

    def to_awkward(self, *, flat: bool = False) -> Any:
        """Return an Awkward array of records."""
        from serrate.table.convert.awkward import to_awkward

        return to_awkward(self.block(), flat=flat)

    @classmethod
    def from_pandas(cls, frame: Any, *, levels: Mapping[str, str] | None = None, nulls: str = "error") -> Table:
        """Return the rows of a pandas DataFrame; an index that has a name becomes a column."""
        from serrate.table.convert.frames import from_pandas

        return _table(from_pandas(frame, levels=levels, nulls=nulls))

    def to_pandas(self, *, flat: bool = False) -> Any:
        """Return a pandas DataFrame with Arrow's dtypes."""
        from serrate.table.convert.frames import to_pandas

        return to_pandas(self.block(), flat=flat)

    @classmethod
    def from_polars(cls, frame: Any, *, levels: Mapping[str, str] | None = None, nulls: str = "error") -> Table:
        """Return the rows of a polars DataFrame or LazyFrame."""
        from serrate.table.convert.frames import from_polars

        return _table(from_polars(frame, levels=levels, nulls=nulls))

    def to_polars(self, *, flat: bool = False) -> Any:
        """Return a polars DataFrame."""
        from serrate.table.convert.frames import to_polars

        return to_polars(self.block(), flat=flat)

    @classmethod
    def from_datasets(cls, dataset: Any, *, levels: Mapping[str, str] | None = None, nulls: str = "error") -> Table:
        """Return the rows of a dataset of Hugging Face, in memory; use `dataset_to_folder` for large ones."""
        from serrate.table.convert.huggingface import from_datasets

        return from_datasets(dataset, levels=levels, nulls=nulls)

    def to_datasets(self, *, flat: bool = False) -> Any:
        """Return a `datasets.Dataset`."""
        from serrate.table.convert.huggingface import to_datasets

        return to_datasets(self.block(), flat=flat)

    @classmethod
    def from_nrt(
        cls,
        path: str | os.PathLike[str],
        columns: Iterable[str] | None = None,
        *,
        levels: Sequence[str] | None = None,
    ) -> Table:
        """Return the rows of a file of nested_ragged_tensors, mapped; `levels` names its lists, outermost first."""
        from serrate.table.convert.nrt import from_nrt

        return _table(from_nrt(path, columns, levels=levels))

    def to_nrt(self, path: str | os.PathLike[str]) -> None:
        """Write a file of nested_ragged_tensors."""
        from serrate.table.convert.nrt import to_nrt

        to_nrt(self.block(), path)
