"""This module scans packed rows on the CPU, by row_scans.cpp: running sums, products and extremes, and recurrences.

torch has no call that scans components of different lengths; a scan by its calls takes a pass for each doubling of the
longest one. A function here returns None for other dtypes, and without a compiler.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import torch

from serrate.native.loading import Routines, empty, load, plain, size_of, threads_for

_FLOATS = {torch.float32: "float32", torch.float64: "float64"}
_NUMBERS = {**_FLOATS, torch.int64: "int64"}
_FORMS = {
    **dict.fromkeys(("running_sums", "running_products", "running_largest", "running_least"), _NUMBERS),
    "recurrence": _FLOATS,
}


@cache
def _library() -> Routines | None:
    """Return the compiled source; None if it does not compile."""
    names = [f"{form}_{number}" for form, numbers in _FORMS.items() for number in numbers.values()]
    return load("row_scans.cpp", names)


def is_there() -> bool:
    """Return whether there is compiled code."""
    return _library() is not None


def sums(values: torch.Tensor, offsets: torch.Tensor, reverse: bool) -> torch.Tensor | None:
    """Return [N, …]: the sum of each row of values [N, …] and all before (behind) it in its component.

    Rows of no component are 0.
    """
    if values.is_complex():
        made = _call("running_sums", (torch.view_as_real(values.resolve_conj()),), offsets, int(reverse))
        return None if made is None else torch.view_as_complex(made)
    return _call("running_sums", (values,), offsets, int(reverse))


def products(values: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor | None:
    """Return [N, …]: the product of each row and all before it in its component."""
    return _call("running_products", (values,), offsets, 0)


def recurrence(a: torch.Tensor, b: torch.Tensor, offsets: torch.Tensor, reverse: bool) -> torch.Tensor | None:
    """Return [N, …]: b plus a times the result of the row before (behind); it is b where a component begins (ends)."""
    return _call("recurrence", (a, b), offsets, int(reverse)) if a.dtype is b.dtype else None


def extremes(values: torch.Tensor, offsets: torch.Tensor, largest: bool) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Return the greatest (least) of each row and all before it in its component, and the last position it stands at.

    NaN is the greatest (least) of all. Positions are int64.
    """
    positions = empty(values.shape, torch.int64)
    made = _call("running_largest" if largest else "running_least", (values,), offsets, positions.data_ptr())
    return None if made is None else (made, positions)


def _call(form: str, operands: tuple[torch.Tensor, ...], offsets: torch.Tensor, last: Any) -> torch.Tensor | None:
    """Return the result of a compiled function of operands [N, …]."""
    number, library = _FORMS[form].get(operands[0].dtype), _library()
    if number is None or library is None:
        return None
    given = [plain(operand) for operand in operands]
    if offsets.dtype is not torch.int64 or not offsets.is_contiguous():
        offsets = offsets.to(torch.int64).contiguous()
    rows, *features = given[0].shape
    made = empty(given[0].shape, given[0].dtype)
    failed = library[f"{form}_{number}"](
        *(operand.data_ptr() for operand in given), offsets.data_ptr(), offsets.numel() - 1, rows, math.prod(features),
        made.data_ptr(), last, threads_for(size_of(made)),
    )  # fmt: skip
    return None if failed else made
