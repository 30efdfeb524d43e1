"""Awkward Array, both ways, through Arrow: lists of records become levels, regular axes features, options masks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from serrate.table.block import Block
from serrate.table.convert.from_arrow import read_rows
from serrate.table.convert.to_arrow import to_arrow
from serrate.table.schema import Schema


def from_awkward(array: Any, *, levels: Mapping[str, str] | None = None, nulls: str = "error") -> Block:
    """Return the entries of an Awkward array of records, or of lists of records, as rows; see `from_arrow`.

    Lists of records that are not a field have the level "level1".

    >>> import awkward as ak
    >>> array = ak.Array([[{"time": 1.5, "codes": [7, 7]}, {"time": 2.5, "codes": []}], []])
    >>> block = from_awkward(array)
    >>> block.schema.levels, block.tensor("codes").tolist()
    (('rows', 'level1', 'level1.codes'), [[[7, 7], []], []])
    """
    import awkward as ak
    import pyarrow as pa

    if not isinstance(array, ak.Array):
        raise TypeError(f"from_awkward takes an ak.Array, got {type(array).__name__}")
    try:
        made = ak.to_arrow(array, extensionarray=False, list_to32=False, categorical_as_dictionary=True)
    except pa.ArrowNotImplementedError as error:
        raise TypeError(f"an Awkward array of type {array.type} holds what a column cannot hold: {error}") from error
    return read_rows(made, levels=levels, nulls=nulls)


def to_awkward(block: Block, *, flat: bool = False) -> Any:
    """Return the rows as an Awkward array of records, over the same memory if Arrow shares it; see `to_arrow`.

    >>> import serrate as sr
    >>> t = sr.Table({"age": [41, 63], "time": [[3, 9], []]}, schema={"time": "visits"})
    >>> print(to_awkward(t.block()).type)
    2 * {age: int64, visits: var * {time: int64}}
    """
    import awkward as ak

    refuse_empty_features(block.schema, "Awkward")
    return ak.from_arrow(to_arrow(block, flat=flat))


def refuse_empty_features(schema: Schema, where: str) -> None:
    """Raise a TypeError for features of size 0, if another library cannot read them from Arrow."""
    for name, column in schema.items():
        if 0 in column.features:
            raise TypeError(
                f"column {name!r} has features {column.features}, but {where} cannot read lists of size 0; drop it"
            )
