"""Data frames of pandas and polars, both ways, through Arrow: columns of lists, structs, strings and times."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from serrate.table.block import Block
from serrate.table.convert.awkward import refuse_empty_features
from serrate.table.convert.from_arrow import from_arrow, read_rows
from serrate.table.convert.to_arrow import in_milliseconds, to_arrow


def from_pandas(frame: Any, *, levels: Mapping[str, str] | None = None, nulls: str = "error") -> Block:
    """Return the rows of a DataFrame with numbers, strings, times, lists, arrays or dicts; see `from_arrow`.

    NaN in columns of floats, and in lists, stays NaN. NaN or NA among strings, lists and other objects is a missing
    entry. An index that has a name becomes a column.

    >>> import pandas as pd
    >>> block = from_pandas(pd.DataFrame({"age": [41, 63], "time": [[3, 9], []]}))
    >>> block.tensor("time").tolist()
    [[3, 9], []]
    """
    import pandas as pd
    import pyarrow as pa

    if not isinstance(frame, pd.DataFrame):
        raise TypeError(f"from_pandas takes a DataFrame, got {type(frame).__name__}")
    named = [name for name in frame.index.names if name is not None]
    if named:
        frame = frame.reset_index(level=named)
    for name in frame.columns:
        if not isinstance(name, str):
            raise TypeError(f"the name of a column must be a string, got {name!r:.60}; rename it")
    arrays = [_series(frame.iloc[:, place]) for place in range(frame.shape[1])]
    return read_rows(pa.table(arrays, names=list(frame.columns)), levels=levels, nulls=nulls)


def _series(series: Any) -> Any:
    """Return a column as an Arrow array."""
    import pyarrow as pa

    if series.dtype == object:
        series = series.where(series.notna(), None)
    try:
        return pa.array(series, from_pandas=False)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise TypeError(f"column {series.name!r:.60} of the DataFrame cannot be converted to Arrow: {error}") from error


def to_pandas(block: Block, *, flat: bool = False) -> Any:
    """Return the rows as a DataFrame with Arrow's dtypes, which lose nothing; see `to_arrow`.

    >>> import serrate as sr
    >>> t = sr.Table({"age": [41, 63], "time": [[3, 9], []]})
    >>> to_pandas(t.block(), flat=True)["time"].iloc[0]
    [3, 9]
    """
    import pandas as pd

    return to_arrow(block, flat=flat).to_pandas(types_mapper=pd.ArrowDtype)


def from_polars(frame: Any, *, levels: Mapping[str, str] | None = None, nulls: str = "error") -> Block:
    """Return the rows of a polars DataFrame; lists of structs become levels, arrays features; see `from_arrow`.

    >>> import polars as pl
    >>> block = from_polars(pl.DataFrame({"visits": [[{"time": 3}, {"time": 9}], []]}))
    >>> block.schema.levels, block.tensor("time").tolist()
    (('rows', 'visits'), [[3, 9], []])
    """
    import polars as pl

    if isinstance(frame, pl.LazyFrame):
        frame = frame.collect()
    if not isinstance(frame, pl.DataFrame):
        raise TypeError(f"from_polars takes a DataFrame or LazyFrame, got {type(frame).__name__}")
    return from_arrow(frame, levels=levels, nulls=nulls)


def to_polars(block: Block, *, flat: bool = False) -> Any:
    """Return the rows as a polars DataFrame, strings as categoricals, seconds as milliseconds; see `to_arrow`.

    >>> import serrate as sr
    >>> t = sr.Table({"age": [41, 63], "time": [[3, 9], []]}, schema={"time": "visits"})
    >>> to_polars(t.block()).to_dicts()
    [{'age': 41, 'visits': [{'time': 3}, {'time': 9}]}, {'age': 63, 'visits': []}]
    """
    import polars as pl

    refuse_empty_features(block.schema, "polars")
    return pl.from_arrow(to_arrow(in_milliseconds(block), flat=flat))  # polars itself does not report an overflow.
