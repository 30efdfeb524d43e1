"""This module turns nested Python lists of numbers into packed values and offsets, by nesting.cpp."""

from __future__ import annotations

import ctypes
import sysconfig
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from serrate.errors import CompileError

_KINDS: dict[type, tuple[int, torch.dtype]] = {int: (0, torch.int64), float: (1, torch.float64), bool: (2, torch.bool)}
"""For each type of entries the number of its kind in nesting.cpp, and the dtype of the values."""


@cache
def _library() -> Any:
    """Return the compiled source; None if it does not compile, for example without Python's headers."""
    from serrate.runtime.compiler import compile

    source = Path(__file__).with_name("nesting.cpp").read_text(encoding="utf-8")
    try:
        library = ctypes.PyDLL(str(compile(source, flags=(f"-I{sysconfig.get_paths()['include']}",)).path))
    except (CompileError, OSError):
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
