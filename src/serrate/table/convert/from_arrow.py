"""From Arrow: lists of structs share their offsets. Memory is shared if Arrow stores it as a block does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.utils.dlpack import from_dlpack

from serrate.table.block import Block
from serrate.table.columns import NestedColumn
from serrate.table.convert.arrow_leaves import is_text, read_leaf
from serrate.table.convert.fields import FieldLists, Leaf, Path, assemble_block, column_names, describe_place
from serrate.table.schema import ROWS
from serrate.tensor.offsets import offsets_from_lengths
from serrate.tensor.partition import Partition

LEVELS = b"serrate.levels"
"""The key under which the metadata of a flat Arrow table have the levels of its columns."""


def from_arrow(data: Any, *, levels: Mapping[str, str] | None = None, nulls: str = "error") -> Block:
    """Return the rows of an Arrow table, record batch, reader, array of structs, or object with an Arrow stream.

    `levels` gives the level of a field that is a list, if it is not to be the default (see `fields`). A missing list is
    an error that names the first one; with `nulls="empty"` missing lists become empty lists.

    >>> import pyarrow as pa
    >>> visits = [[{"time": 3, "codes": [7, 7]}, {"time": 9, "codes": []}], []]
    >>> block = from_arrow(pa.table({"age": [41, 63], "visits": visits}))
    >>> block.schema.levels
    ('rows', 'visits', 'visits.codes')
    >>> block.tensor("codes").tolist()
    [[[7, 7], []], []]
    """
    return read_rows(_whole(data), levels=levels, nulls=nulls)


def read_array(array: Any, name: str) -> NestedColumn:
    """Read one Arrow array of lists, without structs, as a column."""
    import pyarrow as pa

    if not isinstance(array, (pa.Array, pa.ChunkedArray)):
        raise TypeError(f"column {name!r} must be an Arrow array, got {type(array).__name__}")
    walk = _Walk("error")
    walk.visit(_combined(array), (name,), None)
    if len(walk.leaves) != 1 or walk.leaves[0].path != (name,):
        raise TypeError(f"column {name!r} is an Arrow array of {array.type}; Table.from_arrow takes arrays of structs")
    leaf = walk.leaves[0]
    return NestedColumn(
        tuple(each.offsets for each in walk.lists),
        leaf.entries.values,
        leaf.entries.valid,
        leaf.entries.vocabulary,
        leaf.entries.unit,
    )


def read_rows(
    rows: Any,
    *,
    levels: Mapping[str, str] | None = None,
    nulls: str = "error",
    names: Mapping[Path, str] | None = None,
    first: int = 0,
) -> Block:
    """Return the block of an Arrow table, record batch or array; see `fields.assemble_block`.

    `first` is the number of its first row in error messages.
    """
    import pyarrow as pa

    if nulls not in ("error", "empty"):
        raise ValueError(f'nulls must be "error" or "empty", got {nulls!r:.40}')
    walk = _Walk(nulls, first)
    count = len(rows)
    if isinstance(rows, (pa.Table, pa.RecordBatch)):
        count = rows.num_rows
        _check_distinct(rows.schema.names, ())
        for name, column in zip(rows.schema.names, rows.columns, strict=True):
            walk.visit(_combined(column), (name,), None)
        if levels is None:
            levels = _remembered(rows.schema, walk.lists)
    else:
        walk.visit(_combined(rows), (), None)
    return assemble_block(count, walk.lists, walk.leaves, levels=levels, names=names)


def names_in(schema: Any) -> dict[Path, str]:
    """Return the names of the columns that the fields of an Arrow schema become."""
    return column_names([path for path, _ in leaves_in(schema)])


def leaves_in(schema: Any) -> list[tuple[Path, Any]]:
    """Return the fields of an Arrow schema that become columns, and their types without the lists around them."""
    return [leaf for field in schema for leaf in _leaves(field.type, (field.name,))]


def list_paths(schema: Any) -> list[Path]:
    """Return the fields of an Arrow schema that are lists."""
    return [path for field in schema for path in _list_paths(field.type, (field.name,))]


def _whole(data: Any) -> Any:
    """Return what was given as an Arrow table, record batch or array."""
    import pyarrow as pa

    if isinstance(data, (pa.Table, pa.RecordBatch, pa.Array, pa.ChunkedArray)):
        return data
    if isinstance(data, pa.RecordBatchReader):
        return data.read_all()
    if isinstance(data, Mapping) or hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
        return pa.table(data)
    raise TypeError(
        f"from_arrow takes an Arrow table, record batch, reader or array of structs, or an object with an Arrow "
        f"stream, got {type(data).__name__}"
    )


def _combined(array: Any) -> Any:
    """Return one array for several chunks, without a copy if there is only one."""
    import pyarrow as pa

    if not isinstance(array, pa.ChunkedArray):
        return array
    if array.num_chunks == 1:
        return array.chunk(0)
    made = array.unify_dictionaries().combine_chunks()
    return made.chunk(0) if isinstance(made, pa.ChunkedArray) else made  # An extension array may stay chunked.


def _check_distinct(names: list[str], path: Path) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        place = f" of {'.'.join(path)!r}" if path else ""
        raise ValueError(f"fields{place} named {twice} occur more than once; rename all but one")


def _remembered(schema: Any, lists: list[FieldLists]) -> dict[str, str] | None:
    """Return the levels that `to_arrow(flat=True)` has noted, if they still fit the columns."""
    import json

    written = (schema.metadata or {}).get(LEVELS)
    if written is None:
        return None
    try:
        levels = json.loads(written)
    except ValueError:
        return None
    if not isinstance(levels, dict):
        return None
    depths = {each.path[0]: each.depth for each in lists if len(each.path) == 1 and not each.records}
    return {
        name: level
        for name, level in levels.items()
        if isinstance(level, str) and depths.get(name) == 1 + level.count(".") and _is_level(level)
    }


def _is_level(name: str) -> bool:
    words = name.split(".")
    return all(words) and ROWS not in words


# ----------------------------------------------------------------------------------------------------------- walking


class _Walk:
    """The lists and leaves of an array, outer ones first."""

    def __init__(self, nulls: str, first: int = 0) -> None:
        self.nulls, self.first = nulls, first
        self.lists: list[FieldLists] = []
        self.leaves: list[Leaf] = []

    def visit(self, array: Any, path: Path, outer: FieldLists | None) -> None:
        """Read the entries of a field."""
        import pyarrow as pa

        array = _plain(array)
        kind = array.type
        if _is_lists(kind):
            offsets, entries = self._cut(array, path, outer)
            Partition.from_offsets(offsets, len(entries), copy=False, name=f"offsets of field {'.'.join(path)!r}")
            made = FieldLists(path, offsets, len(entries), outer, pa.types.is_struct(_within_lists(kind)))
            self.lists.append(made)
            self.visit(entries, path, made)
        elif pa.types.is_struct(kind):
            fields = [kind.field(i).name for i in range(kind.num_fields)]
            _check_distinct(fields, path)
            for name, field in zip(fields, array.flatten(), strict=True):  # The fields of a missing struct are missing.
                self.visit(field, (*path, name), outer)
        else:
            self.leaves.append(
                Leaf(path, outer, read_leaf(array, path, lambda place: describe_place(path, outer, place, self.first)))
            )

    def _cut(self, array: Any, path: Path, outer: FieldLists | None) -> tuple[torch.Tensor, Any]:
        """Return the offsets of lists, beginning with 0, and their entries."""
        import pyarrow.compute as pc

        if array.null_count and self.nulls == "error":
            place = describe_place(path, outer, array.is_null().index(True).as_py(), self.first)
            raise ValueError(f'{place}: the list is missing; nulls="empty" takes missing lists as empty')
        if array.null_count or _is_views(array.type):
            lengths = pc.list_value_length(array).fill_null(0).to_numpy()
            return offsets_from_lengths(torch.from_numpy(lengths.astype("int64")), None), array.flatten()
        if len(array) == 0:
            return torch.zeros(1, dtype=torch.int32), array.values.slice(0, 0)
        offsets = from_dlpack(array.offsets)
        first, last = int(offsets[0]), int(offsets[-1])
        return offsets - first if first else offsets, array.values.slice(first, last - first)


def _plain(array: Any) -> Any:
    """Return the array without encodings that do not change its meaning."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_run_end_encoded(array.type):
        array = pc.run_end_decode(array)
    if pa.types.is_dictionary(array.type) and not is_text(array.type.value_type):
        array = array.dictionary_decode()
    return array.cast(_plain_type(array.type)) if pa.types.is_map(array.type) else array


def _plain_type(kind: Any) -> Any:
    """Return the type of the array that `_plain` returns."""
    import pyarrow as pa

    if pa.types.is_run_end_encoded(kind):
        kind = kind.value_type
    if pa.types.is_dictionary(kind) and not is_text(kind.value_type):
        kind = kind.value_type
    if pa.types.is_map(kind):
        kind = pa.list_(pa.struct([kind.key_field.with_name("key"), kind.item_field.with_name("value")]))
    return kind


def _is_lists(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind)) or _is_views(kind)


def _is_views(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind))


def _within_lists(kind: Any) -> Any:
    """Return the type of the entries within all nested lists."""
    while _is_lists(kind := _plain_type(kind)):
        kind = kind.value_type
    return kind


def _leaves(kind: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    """Yield the paths of the leaves of a type, in the order in which `visit` finds them, and their types."""
    import pyarrow as pa

    kind = _within_lists(kind)
    if not pa.types.is_struct(kind):
        yield path, kind
        return
    for i in range(kind.num_fields):
        yield from _leaves(kind.field(i).type, (*path, kind.field(i).name))


def _list_paths(kind: Any, path: Path) -> Iterator[Path]:
    import pyarrow as pa

    if _is_lists(_plain_type(kind)):
        yield path
    kind = _within_lists(kind)
    if pa.types.is_struct(kind):
        for i in range(kind.num_fields):
            yield from _list_paths(kind.field(i).type, (*path, kind.field(i).name))
