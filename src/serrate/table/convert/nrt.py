"""Files of nested_ragged_tensors (.nrt), both ways: safetensors files with tensors "dim1/bounds", "dim1/<column>", ….

"dim<d>/bounds" has the ends of the lists of depth d. A column of depth d is the tensor "dim<d>/<column>", and a column
of the rows is "dim0/<column>".
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from serrate.table.block import Block
from serrate.table.build import default_level
from serrate.table.schema import ROWS, Column, Schema, depth_of
from serrate.table.storage.folders import is_url, naming, parent_folder
from serrate.table.storage.header import CODES, MOST_UNSEEN, FileSpan, read_spans, unseen
from serrate.table.storage.strict import fail

_KEY = re.compile(r"dim(0|[1-9][0-9]{0,2})/(.*)", re.DOTALL)
_DTYPES = {code: dtype for dtype, code in CODES.items() if dtype not in (torch.complex128, torch.complex64)}
BOUNDS = "bounds"
RESERVED = ("bounds", "mask")
"""Names that nested_ragged_tensors does not allow for columns."""


def from_nrt(
    path: str | os.PathLike[str], columns: Iterable[str] | None = None, *, levels: Sequence[str] | None = None
) -> Block:
    """Return the rows of a file of nested_ragged_tensors, mapped: values are read when they are used.

    `columns` are the columns to read. `levels` names the lists, outermost first, as `["visits", "visits.codes"]`.

    >>> import tempfile, serrate as sr
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     to_nrt(sr.Table({"S": [1, 2], "T": [[3, 4], []]}).block(), f"{folder}/t.nrt")
    ...     from_nrt(f"{folder}/t.nrt").tensor("T").tolist()
    [[3, 4], []]
    """
    where = os.fspath(path)
    size, data = _content(where)
    _, spans = read_spans(lambda start, stop: data[start:stop].tobytes(), size, where)
    wanted = _wanted(spans, columns, where)
    return block_of({key: _tensor(data, spans[key], key, where) for key in wanted}, where, levels)


def to_nrt(block: Block, path: str | os.PathLike[str]) -> None:
    """Write rows as a file of nested_ragged_tensors, in the dtypes that readers get.

    Such a file has at most one level at each depth, and columns of numbers without features and without missing
    entries.
    """
    tensors = tensors_of(block)
    # Wide types come first, so that each tensor begins at a multiple of its item size.
    order = sorted(tensors, key=lambda key: -tensors[key].itemsize)
    described, place = {}, 0
    for key in order:
        made = tensors[key]
        code = CODES[torch.from_numpy(made[:0].copy()).dtype]
        described[key] = {"dtype": code, "shape": [len(made)], "data_offsets": [place, place + made.nbytes]}
        place += made.nbytes
    text = json.dumps(described, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    folder, name = parent_folder(path)
    with naming(name, folder), folder.writing(name) as stream:
        stream.write(len(text).to_bytes(8, "little") + text)
        for key in order:
            stream.write(np.ascontiguousarray(tensors[key]).view(np.uint8).data)


def tensors_of(block: Block) -> dict[str, np.ndarray[Any, Any]]:
    """Return the arrays of nested_ragged_tensors for a block, by name, over the same memory if possible."""
    schema = block.schema
    chain = _chain(schema)
    for name, column in schema.items():
        _check(name, column)
    made: dict[str, np.ndarray[Any, Any]] = {}
    for depth, level in enumerate(chain[1:], 1):
        made[f"dim{depth}/{BOUNDS}"] = block.partition(level).offsets[1:].to(torch.int64).numpy()
    for name, column in schema.items():
        depth = 0 if column.level is None else chain.index(column.level)
        made[f"dim{depth}/{name}"] = block.values[name].to(column.dtype).numpy()
    return made


def _chain(schema: Schema) -> list[str]:
    """Return the levels; raise an error unless the rows are the only root and each level has at most one child."""
    if schema.roots != (ROWS,) or schema.columns_at(None):
        raise ValueError("a .nrt file has rows, but this table is one row of another; use t[3:4] instead of t[3]")
    for level in schema.levels:
        below = schema.children(level)
        if len(below) > 1:
            raise ValueError(
                f"a .nrt file has at most one level below each level, but {level!r} has {', '.join(map(repr, below))}; "
                f"select columns of one of them"
            )
    return list(schema.levels)


def _check(name: str, column: Column) -> None:
    if name in RESERVED:
        raise ValueError(f"a .nrt file cannot have a column called {name!r}; rename it")
    kind = (
        "strings" if column.text else "missing entries" if column.nullable else
        f"entries that count in {column.unit}" if column.unit else f"features {column.features}" if column.features else
        f"dtype {column.dtype}" if column.dtype == torch.bfloat16 or column.dtype.is_complex else None
    )  # fmt: skip
    if kind is not None:
        raise TypeError(f"column {name!r} has {kind}, which a .nrt file cannot hold; drop or convert it")


# --------------------------------------------------------------------------------------------------------- reading


def _content(where: str) -> tuple[int, Any]:
    """Return the number of bytes of a file, and the bytes as an array, which is mapped if the file is local."""
    if is_url(where):
        import fsspec

        with fsspec.open(where, "rb") as stream:
            data = np.frombuffer(bytearray(stream.read()), np.uint8)
        return len(data), data
    size = os.stat(where).st_size
    # The pages are private, so torch may treat them as writable. Nobody writes to them.
    return size, np.memmap(where, np.uint8, "c") if size else np.zeros(0, np.uint8)


def _tensor(data: Any, span: FileSpan, key: str, where: str) -> torch.Tensor:
    if span.code not in _DTYPES:
        fail(where, f"tensor {key!r:.80} has dtype {span.code}, which no column has")
    dtype = _DTYPES[span.code]
    if len(span.shape) != 1:
        fail(where, f"tensor {key!r:.80} must have one axis, got shape {span.shape}")
    if span.start == span.stop:
        return torch.empty(0, dtype=dtype)
    held = torch.from_numpy(data[span.start : span.stop])
    return held.view(dtype) if span.start % dtype.itemsize == 0 else held.clone().view(dtype)


def _wanted(keys: Iterable[str], columns: Iterable[str] | None, where: str) -> list[str]:
    """Return the tensors of some columns, and the bounds that they need."""
    parsed = {key: _parsed(key, where) for key in keys}
    if columns is None:
        return list(parsed)
    names = list(columns)
    missing = [name for name in names if name in RESERVED or not any(name == other for _, other in parsed.values())]
    if missing:
        have = sorted({name for _, name in parsed.values()} - set(RESERVED))
        raise KeyError(f"Requested keys {missing} not found in {where}. Available: {have}")
    deepest = max((depth for depth, name in parsed.values() if name in names), default=1)
    return [key for key, (depth, name) in parsed.items() if name in names or (name == BOUNDS and depth <= deepest)]


def _parsed(key: str, where: str) -> tuple[int, str]:
    found = _KEY.fullmatch(key)
    if found is None:
        fail(where, f'tensors must be called "dim1/…", got {key!r:.80}')
    return int(found[1]), found[2]


def block_of(tensors: Mapping[str, torch.Tensor], where: str, levels: Sequence[str] | None = None) -> Block:
    """Return the block of tensors with names as in a .nrt file; raise a TableFormatError if they do not fit."""
    parsed = {key: _parsed(key, where) for key in tensors}
    depth = max((depth for depth, _ in parsed.values()), default=-1)
    if depth < 0:
        fail(where, "there are no tensors")
    names = _levels(depth, levels)
    bounds = [_bounds(tensors, d, where) for d in range(1, depth + 1)]
    first = next((len(tensors[key]) for key, (d, _) in parsed.items() if d == 0), None)
    counts = [bounds[0].numel() - 1 if bounds else first or 0, *(int(each[-1]) for each in bounds)]
    for d, each in enumerate(bounds):
        if each.numel() - 1 != counts[d]:
            fail(where, f"there are {counts[d]} entries of depth {d}, but dim{d + 1}/{BOUNDS} has {each.numel() - 1}")
    columns, values = {}, {}
    for key, (d, name) in parsed.items():
        if name == BOUNDS:
            continue
        if name in columns:
            fail(where, f"column {name!r:.80} exists at two depths")
        if tensors[key].shape != (counts[d],):
            fail(where, f"{key!r:.80} has shape {tuple(tensors[key].shape)}, but depth {d} has {counts[d]} entries")
        columns[name], values[name] = Column(names[d], tensors[key].dtype), tensors[key]
    schema, sizes = Schema(names, columns), dict(zip(names, counts, strict=True))
    level = unseen(schema, sizes)
    if level is not None:
        fail(where, f"{level!r} has {sizes[level]} entries, but no tensor for them; at most {MOST_UNSEEN} are allowed")
    return Block(schema, sizes, dict(zip(names[1:], bounds, strict=True)), values)


def _levels(depth: int, given: Sequence[str] | None) -> list[str]:
    if given is None:
        return [default_level(d) for d in range(depth + 1)]
    if isinstance(given, str) or [depth_of(level) for level in given] != list(range(1, depth + 1)):
        raise ValueError(
            f'levels must have one name for each depth from 1 to {depth}, such as ["visits", "visits.codes", …], '
            f"got {given!r:.80}"
        )
    return [ROWS, *given]


def _bounds(tensors: Mapping[str, torch.Tensor], depth: int, where: str) -> torch.Tensor:
    """Return the offsets of the lists of a depth."""
    held = tensors.get(f"dim{depth}/{BOUNDS}")
    if held is None:
        fail(where, f"there is no dim{depth}/{BOUNDS}, though there are deeper tensors or columns of that depth")
    if held.ndim != 1 or held.dtype.is_floating_point or held.dtype in (torch.bool, torch.complex64):
        fail(where, f"dim{depth}/{BOUNDS} must be a vector of integers, got {held.dtype} {tuple(held.shape)}")
    offsets = torch.zeros(held.numel() + 1, dtype=torch.int64)
    offsets[1:] = held.to(torch.int64)
    if bool((offsets[1:] < offsets[:-1]).any()):
        place = int((offsets[1:] < offsets[:-1]).to(torch.uint8).argmax())
        fail(where, f"dim{depth}/{BOUNDS} must never decrease, but entry {place} is {int(offsets[place + 1])}")
    return offsets
