"""This module keeps the memory of large CPU results that are gone for the next ones, by allocation.cpp.

docs/memory.md says what it is good for, and what is different about such tensors.
"""

from __future__ import annotations

import ctypes
import os
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch.utils.dlpack import from_dlpack

from serrate.native.loading import Routines, load

SMALLEST = 2**22
"""The number of bytes from which on results come from here; smaller ones are kept by malloc itself."""
_SHARE = 16
"""The part of all memory, one in so many, that idle blocks may have unless somebody chooses a limit."""
_SECONDS = 1.0
"""How often to look whether the system is short of memory."""
_SHORT = 16
"""The system is short of memory if less than one part in so many of it is available."""

_KINDS = {
    torch.int8: (0, 8), torch.int16: (0, 16), torch.int32: (0, 32), torch.int64: (0, 64), torch.uint8: (1, 8),
    torch.float16: (2, 16), torch.float32: (2, 32), torch.float64: (2, 64), torch.bfloat16: (4, 16),
    torch.complex64: (5, 64), torch.complex128: (5, 128), torch.bool: (6, 8),
}  # fmt: skip
"""DLPack's code and the number of bits of each dtype."""


@dataclass(frozen=True)
class MemoryStats:
    """What the allocator has and did."""

    limit: int
    """The number of bytes that idle blocks may have together; 0 if the allocator is switched off."""
    idle: int
    """The number of bytes of blocks that nobody uses."""
    in_use: int
    """The number of bytes of blocks that tensors use."""
    mapped: int
    """How often a block came from the system."""
    reused: int
    """How often an idle block was used again."""


@cache
def _library() -> Routines | None:
    """Return the functions of the source, with the limit that the environment asks for; None if there is no library."""
    functions = [f"memory_{name}" for name in ("take", "drop", "set_limit", "shrink", "report")]
    library = load("allocation.cpp", functions)
    if library is not None:
        library["memory_set_limit"](_limit_by_default())
    return library


def _limit_by_default() -> int:
    chosen = os.environ.get("SERRATE_ALLOCATOR", "")
    if chosen:
        if not chosen.isdecimal():
            raise ValueError(f"SERRATE_ALLOCATOR must be a number of megabytes, or 0 to switch off, got {chosen!r}")
        return int(chosen) * 2**20
    return _memory()[1] // _SHARE


_looked = 0.0


def take(shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype, size: int) -> torch.Tensor | None:
    """Return new CPU memory of `size` bytes with any content; None if it has to come from elsewhere."""
    kind = _KINDS.get(dtype)
    library = None if kind is None or size < SMALLEST or 0 in shape else _library()
    if library is None or kind is None:
        return None
    _look(library)
    places = array("q", shape + strides)
    address = library["memory_take"](size, kind[0] | kind[1] << 8, len(shape), places.buffer_info()[0])
    if not address:
        return None
    capsule = _capsule(address, b"dltensor", None)
    try:
        return from_dlpack(capsule)
    except BaseException:
        library["memory_drop"](address)
        raise


_capsule: Callable[..., Any] = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi)
)


def stats() -> MemoryStats:
    """Return what the allocator has and did.

    >>> import serrate as sr
    >>> sr.memory.stats().idle <= sr.memory.stats().limit
    True
    """
    found = array("q", [0] * 5)
    library = _library()
    if library is not None:
        library["memory_report"](found.buffer_info()[0])
    return MemoryStats(*found)


def set_limit(size: int) -> None:
    """Let idle blocks have up to `size` bytes together, from now on; 0 switches the allocator off.

    >>> import serrate as sr
    >>> before = sr.memory.stats().limit
    >>> sr.memory.set_limit(0)  # results come from torch's own allocator
    >>> sr.memory.set_limit(before)
    """
    if not isinstance(size, int) or not 0 <= size < 2**63:
        raise ValueError(f"the limit must be a number of bytes, 0 or more, got {size!r}")
    library = _library()
    if library is not None:
        library["memory_set_limit"](size)


def trim() -> int:
    """Give all idle blocks back to the system, and return how many bytes they had.

    >>> import serrate as sr
    >>> trimmed = sr.memory.trim()
    >>> sr.memory.stats().idle
    0
    """
    library = _library()
    return 0 if library is None else library["memory_shrink"](0)


def _look(library: Routines) -> None:
    """Give idle blocks back if the system is short of memory; most calls do not look."""
    global _looked
    now = time.monotonic()
    if now - _looked < _SECONDS:
        return
    _looked = now
    available, total = _memory()
    if available < total // _SHORT:
        library["memory_shrink"](0)


def _memory() -> tuple[int, int]:
    """Return how many bytes of memory are available, and how many there are: to the system, or to its control group."""
    available = total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for line in _read(Path("/proc/meminfo")).splitlines():
        if line.startswith("MemAvailable:"):
            available = int(line.split()[1]) * 1024
    for line in _read(Path("/proc/self/cgroup")).splitlines():
        number, _, path = line.split(":", 2)
        if number != "0":
            continue
        group = Path("/sys/fs/cgroup", path.lstrip("/"))
        most, used = _read(group / "memory.max").strip(), _read(group / "memory.current").strip()
        if most.isdecimal() and used.isdecimal():
            cached = [line for line in _read(group / "memory.stat").splitlines() if line.startswith("inactive_file ")]
            free = int(most) - int(used) + sum(int(line.split()[1]) for line in cached)  # Files make room for others.
            total, available = min(total, int(most)), min(available, free)
    return available, total


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
