"""Leaves of Arrow arrays: numbers, times, strings and fixed-size lists of numbers become the entries of a column."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.utils.dlpack import from_dlpack

from serrate.table.columns import NestedColumn
from serrate.table.convert.fields import Path

Where = Callable[[int], str]
"""A function that returns the name of an entry for error messages."""

_NUMBERS = {
    "bool": torch.bool,
    "halffloat": torch.float16,
    "float": torch.float32,
    "double": torch.float64,
    **{f"{sign}int{bits}": getattr(torch, f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)},
}


def read_leaf(array: Any, path: Path, where: Where) -> NestedColumn:
    """Return the entries of an array that has no fields, and no lists except fixed-size lists."""
    import pyarrow as pa

    kind = array.type
    if is_text(kind) or (pa.types.is_dictionary(kind) and is_text(kind.value_type)):
        return _strings(array)
    if isinstance(kind, pa.FixedShapeTensorType):
        return _tensors(array, path, where)
    if pa.types.is_fixed_size_list(kind):
        return _features(array, path, where)
    if pa.types.is_null(kind) and len(array) == 0:  # Nothing says what empty lists would hold.
        return NestedColumn((), torch.zeros(0, dtype=torch.float64))
    dtype, unit = _meaning(kind, path)
    valid = _valid(array)
    return NestedColumn((), _numbers(array, dtype, valid), valid, None, unit)


def is_text(kind: Any) -> bool:
    """Return whether a type is one of Arrow's string types."""
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _meaning(kind: Any, path: Path) -> tuple[torch.dtype, str | None]:
    """Return the dtype and the unit for a type of numbers or times."""
    import pyarrow as pa

    if str(kind) in _NUMBERS:
        return _NUMBERS[str(kind)], None
    if pa.types.is_timestamp(kind) and kind.tz in (None, "UTC"):
        return torch.int64, f"datetime64[{kind.unit}]"
    if pa.types.is_duration(kind):
        return torch.int64, f"timedelta64[{kind.unit}]"
    if pa.types.is_date(kind):
        return torch.int64, "datetime64[D]" if pa.types.is_date32(kind) else "datetime64[ms]"
    advice = "columns hold numbers, bools, strings, timestamps, dates, durations, and fixed-size lists of numbers"
    if pa.types.is_timestamp(kind):
        advice = f"columns count time in UTC: cast it to pyarrow.timestamp({kind.unit!r}, 'UTC')"
    elif pa.types.is_decimal(kind):
        advice = "columns cannot hold decimals: cast it to pyarrow.float64() or to integers"
    elif pa.types.is_null(kind):
        advice = "this type does not say what its entries are: cast it to another type"
    raise TypeError(f"field {'.'.join(path)!r} is of Arrow's type {kind}; {advice}")


def _valid(array: Any) -> torch.Tensor | None:
    """Return which entries are present; None if all are."""
    if not array.null_count:
        return None
    return torch.from_numpy(array.is_valid().to_numpy(zero_copy_only=False))


def _numbers(array: Any, dtype: torch.dtype, valid: torch.Tensor | None) -> torch.Tensor:
    """Return the values, over the same memory if all entries are present and lie as in a tensor.

    Missing entries become 0.
    """
    import pyarrow as pa

    if len(array) == 0:
        return torch.zeros(0, dtype=dtype)
    if pa.types.is_boolean(array.type):
        held = torch.from_numpy(array.cast(pa.uint8()).fill_null(0).to_numpy().copy())
        return held.view(torch.bool)
    if array.type.bit_width != dtype.itemsize * 8:  # These are days, in 32 bits.
        array = array.view(pa.int32()).cast(pa.int64())
    elif pa.types.is_temporal(array.type):
        array = array.view(pa.int64())
    if valid is None:
        return from_dlpack(array)
    data = np.frombuffer(array.buffers()[1], array.type.to_pandas_dtype(), len(array), array.offset * dtype.itemsize)
    return torch.from_numpy(_zeroed(data, valid))


def _zeroed(data: Any, valid: torch.Tensor) -> Any:
    """Return a copy with 0 for each missing entry."""
    made = data.copy()
    made[~valid.numpy()] = 0
    return made


# -------------------------------------------------------------------------------------------------------- features


def _tensors(array: Any, path: Path, where: Where) -> NestedColumn:
    """Read an array of Arrow's fixed-shape tensors; their shape becomes that of the features."""
    kind = array.type
    if kind.permutation is not None and list(kind.permutation) != sorted(kind.permutation):
        raise TypeError(f"field {'.'.join(path)!r} is of Arrow's type {kind}; only tensors in row-major order are read")
    made = _features(array.storage, path, where)
    values = made.values.reshape(made.values.shape[0], *kind.shape)
    return NestedColumn((), values, made.valid, None, made.unit)


def _features(array: Any, path: Path, where: Where) -> NestedColumn:
    """Read fixed-size lists, also nested ones, as axes of each entry. Only whole entries may be missing."""
    import pyarrow as pa

    count, valid, features = len(array), _valid(array), []
    # For each list at the current depth: whether it belongs to an entry that is present.
    there = None if valid is None else valid.numpy()
    while pa.types.is_fixed_size_list(array.type):
        size = array.type.list_size
        features.append(size)
        array = array.values.slice(array.offset * size, len(array) * size)
        if there is not None:
            there = np.repeat(there, size)
        _check_whole(array, there, where, int(np.prod(features)))
    if is_text(array.type) or pa.types.is_nested(array.type) or pa.types.is_dictionary(array.type):
        raise TypeError(
            f"field {'.'.join(path)!r} has fixed-size lists of {array.type}; only numbers and times are read"
        )
    dtype, unit = _meaning(array.type, path)
    values = _numbers(array, dtype, _valid(array)).reshape(count, *features)
    if valid is not None:
        values = torch.from_numpy(_zeroed(values.numpy(), valid))
    return NestedColumn((), values, valid, None, unit)


def _check_whole(array: Any, there: Any, where: Where, size: int) -> None:
    """Raise an error if only a part of an entry is missing."""
    if not array.null_count:
        return
    missing = array.is_null().to_numpy(zero_copy_only=False)
    if there is not None:
        missing &= there
    if missing.any():
        place = where(int(missing.argmax()) // size)
        raise ValueError(f"{place}: part of a fixed-size list is missing; only whole entries may be missing")


# --------------------------------------------------------------------------------------------------------- strings


def _strings(array: Any) -> NestedColumn:
    """Return strings as codes. The vocabulary is that of a dictionary, or the strings in the order of occurrence."""
    import pyarrow as pa

    if pa.types.is_dictionary(array.type) and not _is_vocabulary(array.dictionary):
        array = array.dictionary_decode()
    if not pa.types.is_dictionary(array.type):
        array = array.dictionary_encode()
    valid, words = _valid(array), tuple(array.dictionary.to_pylist())
    codes = array.indices
    if codes.type != pa.int32():
        codes = codes.cast(pa.int32())
    places = _numbers(codes, torch.int32, valid)
    _check_places(places if valid is None else places[valid], len(words))
    return NestedColumn((), places, valid, words)


def _check_places(places: torch.Tensor, count: int) -> None:
    if places.numel() and (int(places.min()) < 0 or int(places.max()) >= count):
        raise ValueError(
            f"an Arrow dictionary of {count} strings has indices from {int(places.min())} to {int(places.max())}"
        )


def _is_vocabulary(words: Any) -> bool:
    return not words.null_count and len(words.unique()) == len(words)
