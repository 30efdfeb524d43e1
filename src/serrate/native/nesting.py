"""This module turns nested Python lists of numbers into packed values and offsets, by nesting.cpp."""

from __future__ import annotations

import ctypes
import sysconfig
from functools import cache
from typing import Any

import numpy as np
import torch

from serrate.native.loading import library_with

_KINDS: dict[type, tuple[int, torch.dtype]] = {int: (0, torch.int64), float: (1, torch.float64), bool: (2, torch.bool)}
"""For each type of entries the number of its kind in nesting.cpp, and the dtype of the values."""


@cache
def _library() -> Any:
    """Return the library with the functions of the source; None if there is none.

    They are missing if there were no headers of Python when it was built. A Python without the interpreter lock has
    other objects than the headers that the library was built with.
    """
    path = None if sysconfig.get_config_var("Py_GIL_DISABLED") else library_with("nesting.cpp")
    library = None if path is None else ctypes.PyDLL(str(path))
    if library is None or not hasattr(library, "serrate_count"):
        return None
    library.serrate_count.argtypes = [ctypes.py_object, ctypes.c_int64, ctypes.c_void_p]
    library.serrate_fill.argtypes = [ctypes.py_object, ctypes.c_int64, ctypes.c_int64, *[ctypes.c_void_p] * 4]
    for function in (library.serrate_count, library.serrate_fill):
        function.restype = ctypes.c_int64
    return library


def read(given: Any, depth: int, entry: type) -> tuple[tuple[torch.Tensor, ...], torch.Tensor] | None:
    """Return the offsets of each of `depth` levels of lists, and the numbers inside.

    All numbers must have the type `entry`, or be ints if `entry` is float; otherwise the result is None.
    """
    library = _library() if entry in _KINDS else None
    if library is None:
        return None
    kind, dtype = _KINDS[entry]
    counts = np.zeros(depth + 1, np.int64)
    if not library.serrate_count(given, depth, counts.ctypes.data):
        return None
    offsets = tuple(torch.empty(int(count) + 1, dtype=torch.int64, device="cpu") for count in counts[:-1])
    values = torch.empty(int(counts[-1]), dtype=dtype, device="cpu")
    places = np.array([each.data_ptr() for each in offsets], np.uint64)
    written = np.zeros(depth + 1, np.int64)
    whole = library.serrate_fill(
        given, depth, kind, places.ctypes.data, counts.ctypes.data, written.ctypes.data, values.data_ptr()
    )
    return (offsets, values) if whole else None
