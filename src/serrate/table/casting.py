"""Casting: the values of a column in another dtype, or an error that names the first value which does not fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from serrate.table.entries import entry_at
from serrate.table.schema import dtype_name, is_integer


def cast(values: torch.Tensor, dtype: torch.dtype, name: str, levels: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return values [entries, *features] in another dtype; `levels` are the offsets of the lists around the entries.

    Floats may be rounded to narrower floats. A number that is not whole raises a ValueError if the dtype is an integer
    type, and a number outside of the range of the dtype raises an OverflowError: no number becomes a different one.

    >>> cast(torch.tensor([1.5, 1e39], dtype=torch.float64), torch.float32, "dose", ())
    Traceback (most recent call last):
        ...
    OverflowError: column 'dose': entry [1], 1e+39, does not fit torch.float32
    """
    dtype_name(dtype)
    if values.is_complex() and not dtype.is_complex:
        raise TypeError(f"column {name!r} holds complex numbers, which {dtype} cannot hold")
    held = as_numpy(values)
    if dtype == torch.bool:
        _refuse((held != 0) & (held != 1), held, name, levels, f"is neither 0 nor 1, which {dtype} needs", ValueError)
        return torch.from_numpy(held != 0)
    if is_integer(dtype):
        if held.dtype.kind == "f":
            whole = np.isfinite(held) & (np.trunc(held) == held)
            _refuse(~whole, held, name, levels, f"is not a whole number, which {dtype} needs", ValueError)
        _refuse(_outside(held, dtype), held, name, levels, f"does not fit {dtype}", OverflowError)
        return torch.from_numpy(held.astype(dtype_name(dtype)))
    made = values.to(dtype)
    there = as_numpy(made)
    if np.isinf(there).any():
        lost = np.isinf(there.real) & np.isfinite(held.real) | np.isinf(there.imag) & np.isfinite(held.imag)
        _refuse(lost, held, name, levels, f"does not fit {dtype}", OverflowError)
    return made


def as_numpy(values: torch.Tensor) -> Any:
    """Return values as a numpy array; bfloat16, which numpy does not have, becomes float32."""
    return (values.to(torch.float32) if values.dtype == torch.bfloat16 else values).numpy()


def _outside(held: Any, dtype: torch.dtype) -> Any:
    """Return which of some whole numbers an integer dtype does not hold."""
    info = torch.iinfo(dtype)
    if held.dtype.kind == "f":  # These bounds are powers of 2, which floats hold exactly.
        wide = held.astype(np.float64)
        return (wide < float(info.min)) | (wide >= float(info.max + 1))
    if held.dtype.kind == "b":
        return np.zeros(held.shape, bool)
    own = np.iinfo(held.dtype)
    below = held < info.min if own.min < info.min else np.zeros(held.shape, bool)
    return below | (held > info.max) if own.max > info.max else below


def _refuse(
    wrong: Any, held: Any, name: str, levels: Sequence[torch.Tensor], fault: str, kind: type[Exception]
) -> None:
    """Raise an error that names the first wrong entry, if there is one."""
    if not wrong.any():
        return
    entry, *inner = (int(each[0]) for each in np.nonzero(wrong))
    place = entry_at(levels, entry) + "".join(f"[{each}]" for each in inner)
    raise kind(f"column {name!r}: entry {place}, {held[(entry, *inner)].item()!r:.60}, {fault}")
