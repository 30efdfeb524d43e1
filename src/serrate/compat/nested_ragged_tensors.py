"""This module offers the class of nested_ragged_tensors, with its names, arguments and results, on `sr.Table`.

A program that uses nested_ragged_tensors needs only another import line.

>>> from serrate.compat.nested_ragged_tensors import JointNestedRaggedTensorDict
>>> J = JointNestedRaggedTensorDict({"T": [[1, 2, 3], [4, 5]], "id": [[[1, 2], [], [3]], [[4], [5]]]})
>>> J[:-1].to_dense()["T"]
array([[1, 2, 3]], dtype=uint8)
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
import torch

from serrate.errors import RaggednessError
from serrate.table.block import Block
from serrate.table.build import default_level
from serrate.table.convert.nrt import BOUNDS, RESERVED, block_of, from_nrt, tensors_of, to_nrt
from serrate.table.reshaping import renamed
from serrate.table.schema import Schema, depth_of
from serrate.table.table import Table

__all__ = ["JointNestedRaggedTensorDict"]

Array = np.ndarray[Any, Any]


class JointNestedRaggedTensorDict:
    """Columns that share their nesting, as numpy arrays.

    `raw_tensors` are nested lists, `processed_tensors` are the arrays that `tensors` returns, and `tensors_fp` is a
    file, which is mapped into memory. Without `schema` integers have the smallest dtype that holds them, unsigned if
    none is negative, and floats are float32. `keys` are the columns to read from a file.

    >>> J = JointNestedRaggedTensorDict({"A": [[1, 2, 3], [4, 5]], "B": [1, 2]})
    >>> J.tensors
    {'dim1/bounds': array([3, 5]), 'dim1/A': array([1, 2, 3, 4, 5], dtype=uint8), 'dim0/B': array([1, 2], dtype=uint8)}
    >>> J[[1, 0]].to_dense()["A"]
    array([[4, 5, 0],
           [1, 2, 3]], dtype=uint8)
    """

    __hash__ = None  # type: ignore[assignment]

    def __init__(
        self,
        raw_tensors: Mapping[str, Any] | None = None,
        processed_tensors: Mapping[str, Array] | None = None,
        tensors_fp: str | os.PathLike[str] | None = None,
        schema: Mapping[str, Any] | None = None,
        keys: Iterable[str] | None = None,
    ) -> None:
        given = {"raw_tensors": raw_tensors, "processed_tensors": processed_tensors, "tensors_fp": tensors_fp}
        if sum(each is not None for each in given.values()) != 1:
            words = " ".join(f"{name}={each!r:.60}" for name, each in given.items())
            raise ValueError(
                f"Exactly one of `raw_tensors`, `processed_tensors`, `tensors_fp` must be given! Got {words}"
            )
        if keys is not None and tensors_fp is None:
            raise ValueError("`keys` may only be specified alongside `tensors_fp`.")
        self._path = None if tensors_fp is None else os.fspath(tensors_fp)
        self._keys = None if keys is None else _checked(keys)
        if raw_tensors is not None:
            block = block_of(_from_lists(raw_tensors, schema or {}), "raw_tensors")
        elif processed_tensors is not None:
            block = block_of({key: _tensor(array) for key, array in processed_tensors.items()}, "processed_tensors")
        else:
            assert self._path is not None
            if not os.path.isfile(self._path):
                raise FileNotFoundError(f"Tensors filepath must exist, got {self._path}")
            block = from_nrt(self._path, self._keys)
        self._table = Table._from_block(block)

    @classmethod
    def _of(cls, table: Table) -> JointNestedRaggedTensorDict:
        """Make an object of the columns of a table; its levels are renamed by their depth below the outermost."""
        made = object.__new__(cls)
        made._path = made._keys = None
        block = table.block()
        top = min((depth_of(level) for level in table.levels), default=0)
        names = {level: default_level(depth_of(level) - top) for level in table.levels}
        made._table = (
            table if all(old == new for old, new in names.items()) else Table._from_block(renamed(block, names))
        )
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the path of a file, which is opened again, or else the table."""
        kind = type(self)
        return (kind._of, (self._table,)) if self._path is None else (kind, (None, None, self._path, None, self._keys))

    @classmethod
    def load(cls, fp: str | os.PathLike[str]) -> JointNestedRaggedTensorDict:
        """Open the columns of a file."""
        return cls(tensors_fp=fp)

    @property
    def table(self) -> Table:
        """The columns as an `sr.Table`, over the same memory."""
        return self._table

    # ---------------------------------------------------------------------------------------------------- reading

    @property
    def tensors(self) -> dict[str, Array]:
        """The arrays by name: "dim1/bounds" says where the lists of depth 1 end, and "dim1/T" are the entries of T.

        A column of a single entry is at "dim-1"; `J[0]` has such columns if `J` has columns with one entry per row.
        """
        block, schema = self._table.block(), self._table.schema
        single = schema.columns_at(None)
        held = {f"dim-1/{name}": block.values[name].reshape(1).numpy() for name in single}
        if schema.levels:
            held |= tensors_of(block.select(tuple(name for name in schema if name not in single)))
        return {key: held[key] for key in dict.fromkeys(key for name in schema for key in self._needed(name))}

    def _needed(self, name: str) -> list[str]:
        """Return the names of the arrays of a column."""
        depth = self._get_dim(name)
        return [*(f"dim{d}/{BOUNDS}" for d in range(1, depth + 1)), f"dim{depth}/{name}"]

    @property
    def schema(self) -> dict[str, np.dtype[Any]]:
        """The dtype of each column."""
        return {name: _numpy_dtype(column.dtype) for name, column in self._table.schema.items()}

    def keys(self) -> set[str]:
        """Return the names of the columns."""
        return set(self._table.keys())

    def keys_at_dim(self, dim: int) -> set[str]:
        """Return the names of the columns whose entries lie inside `dim` lists."""
        return {name for name in self._table.schema if self._get_dim(name) == dim}

    def _get_dim(self, name: str) -> int:
        level = self._table.schema[name].level
        return -1 if level is None else depth_of(level)

    @property
    def max_n_dims(self) -> int:
        """The number of axes of the deepest column."""
        return len(self._table.levels)

    @property
    def min_n_dims(self) -> int:
        """The number of axes of the shallowest column, but at most 2 if there are lists."""
        lists = [1] if self.max_n_dims > 1 else []
        return 1 + min([*lists, *(self._get_dim(name) for name in self._table.schema)])

    def __len__(self) -> int:
        return len(self._table)

    def __repr__(self) -> str:
        held = f"processed_tensors={self.tensors}" if self._path is None else f"tensors_fp={self._path}"
        return f"JointNestedRaggedTensorDict({held}, schema={self.schema})"

    def equals(self, other: object, equal_nan: bool = False) -> bool:
        """Return whether both have the same arrays; with `equal_nan`, NaN equals NaN."""
        if not isinstance(other, JointNestedRaggedTensorDict):
            return False
        mine, others = self.tensors, other.tensors
        return mine.keys() == others.keys() and all(_same(mine[key], others[key], equal_nan) for key in mine)

    def __eq__(self, other: object) -> bool:
        return self.equals(other)

    # -------------------------------------------------------------------------------------- selection and joining

    def __getitem__(self, idx: Any) -> JointNestedRaggedTensorDict:
        """Select rows, and entries of deeper levels, by integers, slices, lists, masks and tuples as in numpy.

        An integer drops its axis.

        >>> J = JointNestedRaggedTensorDict({"S": [7, 8], "T": [[1, 2, 3], [4, 5]]})
        >>> J[0, 1:].to_dense()
        {'T': array([2, 3], dtype=uint8)}
        """
        if isinstance(idx, str):
            raise TypeError(f"<class 'str'> not supported for {type(self).__name__} slicing")
        return type(self)._of(self._table[idx])

    def squeeze(self, dim: int) -> JointNestedRaggedTensorDict:
        """Return the only row without the axis of rows; `dim` must be 0."""
        _require_first(dim)
        return type(self)._of(self._table.squeeze())

    def unsqueeze(self, dim: int) -> JointNestedRaggedTensorDict:
        """Return everything as one row; `dim` must be 0."""
        _require_first(dim)
        return type(self)._of(self._table.unsqueeze("level0"))

    def flatten(self, dim: int = -1) -> JointNestedRaggedTensorDict:
        """Join the innermost lists of each list around them.

        A column one level above has its value at the first entry of each joined list, and 0 at the other entries.

        >>> J = JointNestedRaggedTensorDict({"T": [[1, 2], [3]], "id": [[[5, 6], []], [[7]]]})
        >>> J.flatten().to_dense()["T"]
        array([[1, 0],
               [3, 0]], dtype=uint8)
        """
        last = self.max_n_dims - 1
        if (dim if dim >= 0 else self.max_n_dims + dim) != last:
            raise ValueError(f"Only supports dim = -1 or {last} for now; got {dim}")
        return type(self)._of(self._table.flatten_level())

    @classmethod
    def vstack(cls, tensor_dicts: Sequence[JointNestedRaggedTensorDict]) -> JointNestedRaggedTensorDict:
        """Return one row for each of `tensor_dicts`."""
        return cls.concatenate([each.unsqueeze(0) for each in tensor_dicts])

    @classmethod
    def concatenate(cls, tensors: Sequence[JointNestedRaggedTensorDict]) -> JointNestedRaggedTensorDict:
        """Return the rows of all, one after the other; integers of several dtypes get one dtype that holds them all."""
        if not tensors:
            raise ValueError("Can't concatenate an empty list!")
        tables = [each._table for each in tensors]
        try:
            return cls._of(Table.concat(_of_one_dtype(tables)))
        except (KeyError, TypeError, RaggednessError) as error:
            raise ValueError(f"Keys, dims or schema inconsistent! {error.args[0]}") from error

    # -------------------------------------------------------------------------------------------------- conversion

    def to_dense(self, padding_side: str = "right") -> dict[str, Array]:
        """Return padded arrays by name, and a mask, such as "dim1/mask", for each depth with columns.

        A mask is false at padding.
        """
        if padding_side not in ("left", "right"):
            raise ValueError(f"padding_side must be 'left' or 'right'; got '{padding_side}'")
        names = [name for name in self._table.schema if self._get_dim(name) >= 0]
        if not names:
            return {}
        dense = self._table.select(names).to_dense(side=padding_side)
        made = {name: dense[name].numpy() for name in names}
        for depth, level in enumerate(self._table.levels):
            if depth and self.keys_at_dim(depth):
                made[f"dim{depth}/mask"] = dense.masks[level].numpy()
        return made

    def save(self, fp: str | os.PathLike[str]) -> None:
        """Write a file that both this class and that of nested_ragged_tensors read."""
        to_nrt(self._table.block(), fp)


# --------------------------------------------------------------------------------------------------- checks and casts


def _require_first(dim: int) -> None:
    if dim != 0:
        raise ValueError(f"Only supports dim = 0 for now; got {dim}")


def _checked(keys: Iterable[str]) -> list[str]:
    """Check the names of columns to read, and return them as a list."""
    if isinstance(keys, (str, bytes)):
        raise TypeError("`keys` must be an iterable of strings, not a bare str/bytes.")
    names = list(keys)
    if not names:
        raise ValueError("`keys` must be non-empty.")
    wrong = sorted({type(name).__name__ for name in names if not isinstance(name, str)})
    if wrong:
        raise TypeError(f"`keys` must contain only strings; got elements of type {wrong}.")
    reserved = sorted(set(names) & set(RESERVED))
    if reserved:
        raise ValueError(
            f"`keys` may not contain reserved meta-names {reserved}; these name internal tensors, not columns."
        )
    return names


def _tensor(array: Any) -> torch.Tensor:
    """Return an array as a tensor; it is copied unless it is contiguous and writeable."""
    held = np.ascontiguousarray(array)
    return torch.from_numpy(held if held.flags.writeable else held.copy())


def _same(one: Array, other: Array, equal_nan: bool) -> bool:
    return bool(np.array_equal(one, other, equal_nan=equal_nan))


def _numpy_dtype(dtype: torch.dtype) -> np.dtype[Any]:
    return torch.empty(0, dtype=dtype).numpy().dtype


def _of_one_dtype(tables: list[Table]) -> list[Table]:
    """Return the tables with one dtype for integer columns of one name.

    A dtype that was inferred from one part may be too narrow for another part.
    """
    changed: dict[str, torch.dtype] = {}
    for name in tables[0].schema:
        dtypes = {_numpy_dtype(table.schema[name].dtype) for table in tables if name in table.schema}
        if len(dtypes) > 1 and all(dtype.kind in "iu" for dtype in dtypes):
            wide = np.result_type(*dtypes)
            if wide.kind in "iu":
                changed[name] = torch.from_numpy(np.empty(0, wide)).dtype
    return [Table._from_block(_cast(table.block(), changed)) for table in tables] if changed else tables


def _cast(block: Block, dtypes: Mapping[str, torch.dtype]) -> Block:
    columns = {
        name: replace(block.schema[name], dtype=dtype, stored=dtype)
        for name, dtype in dtypes.items()
        if name in block.schema
    }
    values = {name: values.to(dtypes[name]) if name in columns else values for name, values in block.values.items()}
    return replace(block, schema=Schema(block.schema.levels, {**block.schema, **columns}), values=values)


# ------------------------------------------------------------------------------------------------------- nested lists


def _from_lists(raw: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """Return the arrays of nested lists; all columns must have the same bounds."""
    reserved = sorted(set(RESERVED) & set(raw))
    if reserved:
        raise ValueError(f"Reserved meta-names {reserved} cannot be used as user tensor names.")
    made: dict[str, torch.Tensor] = {}
    for name, given in raw.items():
        bounds, entries = _flat(given, name)
        dtype = schema[name] if name in schema else _least(entries, name)
        for depth, ends in enumerate(bounds, 1):
            have = made.setdefault(f"dim{depth}/{BOUNDS}", ends)
            if not torch.equal(have, ends):
                raise RaggednessError(f"Inconsistent bounds tensors! {have.tolist()!s:.80} vs. {ends.tolist()!s:.80}")
        made[f"dim{len(bounds)}/{name}"] = _tensor(np.array(entries, dtype))
    return made


def _flat(given: Any, name: str) -> tuple[list[torch.Tensor], Any]:
    """Return where the lists of each depth end, and the entries of the innermost lists."""
    level, bounds = given, []
    while kinds := {*map(type, level)} & {list, tuple, np.ndarray}:
        if kinds != {*map(type, level)}:
            raise ValueError(f"Failed to parse {name} as a nested list of numbers!")
        bounds.append(torch.from_numpy(np.cumsum(np.fromiter(map(len, level), np.int64, len(level)))))
        level = list(chain.from_iterable(level))
    return bounds, level


def _least(entries: Any, name: str) -> Any:
    """Return the smallest dtype of nested_ragged_tensors that holds all entries."""
    held = np.asarray(entries)
    if held.size == 0:
        raise ValueError(f"Cannot infer dtype from empty values of {name}; provide an explicit `schema=`.")
    if held.dtype.kind == "O" and all(isinstance(each, (int, float, np.number)) for each in entries):
        if not any(isinstance(each, (float, np.floating)) for each in entries):
            raise ValueError(f"No valid type available for {min(entries)} - {max(entries)}!")
        held = np.array([float(each) if abs(each) < 1e300 else np.inf for each in entries])
    if held.dtype.kind == "b":
        return np.bool_
    if held.dtype.kind == "f":
        known = held[~np.isnan(held)]
        if known.size and np.abs(known).max() > float(np.finfo(np.float32).max):
            raise ValueError(f"Cannot store range [{known.min()}, {known.max()}] as np.float32.")
        return np.float32
    if held.dtype.kind not in "iu":
        raise ValueError("Vals must all be ints, floats, or bools")
    low, high = int(held.min()), int(held.max())
    names = ("uint8", "uint16", "uint32", "uint64") if low >= 0 else ("int8", "int16", "int32", "int64")
    return next(np.dtype(each) for each in names if np.iinfo(each).min <= low and high <= np.iinfo(each).max)
