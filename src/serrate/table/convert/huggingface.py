"""Datasets of Hugging Face, both ways, through their Arrow tables; class labels become strings."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Any

import torch

from serrate.table.block import Block
from serrate.table.convert.fields import Path
from serrate.table.convert.from_arrow import names_in, read_rows
from serrate.table.convert.parquet import write_blocks
from serrate.table.convert.to_arrow import to_arrow
from serrate.table.joining import join_schemas

if TYPE_CHECKING:
    from serrate.table.table import Table


def from_datasets(dataset: Any, *, levels: Mapping[str, str] | None = None, nulls: str = "error") -> Table:
    """Return the rows of a `datasets.Dataset`, or of a streamed one, as a table in memory; see `from_arrow`.

    A ClassLabel field becomes strings; the label -1 is a missing entry. Arrays of a fixed shape become features.

    >>> import datasets
    >>> dataset = datasets.Dataset.from_dict({"id": [7, 9], "word": [["a", "b"], []]})
    >>> from_datasets(dataset).tolist()
    {'id': [7, 9], 'word': [['a', 'b'], []]}
    """
    from serrate.table.table import Table

    blocks = list(dataset_blocks(dataset, levels=levels, nulls=nulls, rows=None))
    if not blocks:
        raise ValueError("a streamed dataset without rows does not tell which columns it has")
    return Table._of(reduce(join_schemas, (block.schema for block in blocks)), blocks)


def dataset_blocks(
    dataset: Any, *, levels: Mapping[str, str] | None = None, nulls: str = "error", rows: int | None = 10_000
) -> Iterator[Block]:
    """Yield the rows of a dataset, `rows` at a time; with `rows=None` all at once, unless the dataset is streamed."""
    import datasets

    if isinstance(dataset, (dict, datasets.DatasetDict, datasets.IterableDatasetDict)):
        raise TypeError(f"from_datasets takes one split of a dataset, got several: {list(dataset)}")
    if not isinstance(dataset, (datasets.Dataset, datasets.IterableDataset)):
        raise TypeError(f"from_datasets takes a datasets.Dataset, got {type(dataset).__name__}")
    formatted = dataset.with_format("arrow")
    if isinstance(dataset, datasets.Dataset) and (rows is None or not len(dataset)):
        batches = iter([formatted[:]])
    else:
        batches = formatted.iter(rows or 10_000)
    first = 0
    for batch in batches:
        block = _block(batch, dataset.features, levels, nulls, first)
        first += block.rows
        yield block


def dataset_to_folder(
    dataset: Any,
    path: str | os.PathLike[str],
    *,
    levels: Mapping[str, str] | None = None,
    nulls: str = "error",
    rows: int = 10_000,
    **options: Any,
) -> None:
    """Convert a dataset to a folder that `sr.open` opens, `rows` rows at a time.

    The other options are those of `sr.TableWriter`.
    """
    write_blocks(dataset_blocks(dataset, levels=levels, nulls=nulls, rows=rows), path, **options)


def to_datasets(block: Block, *, flat: bool = False) -> Any:
    """Return the rows as a `datasets.Dataset`; see `to_arrow`.

    >>> import serrate as sr
    >>> t = sr.Table({"id": [7, 9], "word": [["a", "b"], []]})
    >>> to_datasets(t.block(), flat=True)[0]
    {'id': 7, 'word': ['a', 'b']}
    """
    import datasets

    return datasets.Dataset(to_arrow(block, flat=flat, plain=True))


# --------------------------------------------------------------------------------------------------------- features


def _block(batch: Any, features: Any, levels: Mapping[str, str] | None, nulls: str, first: int) -> Block:
    """Return the rows of an Arrow table, with what the features of the dataset say about them."""
    import datasets

    arrays: Any = (datasets.Array2D, datasets.Array3D, datasets.Array4D, datasets.Array5D)
    for place, name in enumerate(batch.column_names):
        feature: Any = (features or {}).get(name)
        if isinstance(feature, arrays):
            batch = batch.set_column(place, name, _fixed(batch.column(place), feature.shape))
    names = names_in(batch.schema)
    block = read_rows(batch, levels=levels, nulls=nulls, names=names, first=first)
    for path, labels in _labels(features or {}, ()):
        block = _labelled(block, names[path], tuple(labels))
    return block


def _fixed(column: Any, shape: tuple[int | None, ...]) -> Any:
    """Return arrays of one shape as fixed-size lists. A first axis without a fixed size stays a list."""
    import pyarrow as pa

    storage = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(storage, pa.ChunkedArray):
        storage = pa.concat_arrays(storage.chunks) if storage.num_chunks else pa.array([], storage.type)
    array = storage.storage
    kind = array.type
    while pa.types.is_list(kind):
        kind = kind.value_type
    for size in reversed(shape):
        kind = pa.list_(kind) if size is None else pa.list_(kind, size)
    return array.cast(kind)


def _labels(feature: Any, path: Path) -> Iterator[tuple[Path, list[str]]]:
    """Yield the fields that are class labels, and the names of the labels."""
    import datasets

    if isinstance(feature, datasets.ClassLabel):
        yield path, feature.names
    elif isinstance(feature, dict):
        for name, inner in feature.items():
            yield from _labels(inner, (*path, name))
    elif isinstance(feature, (datasets.List, datasets.LargeList)):
        yield from _labels(feature.feature, path)


def _labelled(block: Block, name: str, words: tuple[str, ...]) -> Block:
    """Return the block with a column of labels as strings; the label -1 becomes a missing entry."""
    labels, column = block.values[name], block.schema[name]
    valid = block.valid.get(name, torch.ones(labels.shape[0], dtype=torch.bool)) & (labels >= 0)
    if labels.numel() and int(labels.max()) >= len(words):
        raise ValueError(f"column {name!r} has label {int(labels.max())}, but only {len(words)} names")
    missing = not bool(valid.all())
    changed = replace(column, dtype=torch.int64, stored=torch.int32, text=True, nullable=missing)
    return replace(
        block,
        schema=block.schema.with_columns({name: changed}),
        values={**block.values, name: (labels * valid).to(torch.int32)},
        valid={
            **{other: mask for other, mask in block.valid.items() if other != name},
            **({name: valid} if missing else {}),
        },
        vocabularies={**block.vocabularies, name: words},
    )
