"""Files in memory: mapped without a handle that stays open, and private, so that writing never reaches the file."""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")

# A writable private mapping would otherwise count against the memory that the system is willing to promise, and files
# are larger than that. The mmap module of Python 3.11 does not name the flag.
_NORESERVE = {"linux": 0x4000, "darwin": 0x40}.get(sys.platform, 0)
_FAILED = ctypes.c_void_p(-1).value


@cache
def libc() -> Any:
    """The functions that map and unmap. Python's own mmap keeps a file handle open, of which there are few."""
    found = ctypes.CDLL(None, use_errno=True)
    found.mmap.restype = ctypes.c_void_p
    found.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    found.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    found.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return found


def map_file(handle: int, size: int) -> ctypes.Array[ctypes.c_ubyte]:
    """The first `size` bytes of an open file; unmapped when nothing refers to them any more."""
    if not size:
        return (ctypes.c_ubyte * 0)()
    access, kind = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | _NORESERVE
    address = libc().mmap(None, size, access, kind, handle, 0)
    if address == _FAILED:
        number = ctypes.get_errno()
        raise OSError(number, f"could not map {size} bytes: {os.strerror(number)}")
    made = (ctypes.c_ubyte * size).from_address(address)
    weakref.finalize(made, libc().munmap, address, size).atexit = False
    return made


def at_random(memory: ctypes.Array[ctypes.c_ubyte]) -> ctypes.Array[ctypes.c_ubyte]:
    """The same, where touching a page reads this page only, and not also megabytes around it."""
    libc().madvise(ctypes.addressof(memory), len(memory), mmap.MADV_RANDOM)
    return memory


class Lazy(Mapping[str, T]):
    """Values by name, each made when it is first asked for."""

    def __init__(self, names: Iterator[str] | list[str], make: Callable[[str], T]) -> None:
        self._made: dict[str, T | None] = dict.fromkeys(names)
        self._make = make

    def __getitem__(self, name: str) -> T:
        found = self._made[name]
        if found is None:
            found = self._made[name] = self._make(name)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)

    def __contains__(self, name: object) -> bool:
        return name in self._made
