"""Files in memory: mapped without a handle that stays open, and private, so that writing never reaches the file.

A process may map only so many files. Who maps one is asked to give it back when others are mapped after it; what is
still in use then stays mapped as long as it is.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import sys
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
Memory = ctypes.Array[ctypes.c_ubyte]


class Owner(Protocol):
    """Who uses mapped memory."""

    def let_go(self) -> None:
        """Use it no longer; it may be mapped again."""


def _limit() -> int:
    """How many mappings the system lets a process have; 65,530 where it does not say so."""
    try:
        with open("/proc/sys/vm/max_map_count") as stream:
            return int(stream.read())
    except (OSError, ValueError):
        return 65_530


MOST_MAPPED = _limit() // 2
"""Of the mappings that a process may have so many are for files; libraries, threads and memory need some too."""
_mapped: set[int] = set()
"""The addresses of mapped files. Single calls on this set and on `_owners` are atomic, so they need no lock."""
_owners: OrderedDict[int, weakref.ref[Owner]] = OrderedDict()
"""For each of these addresses its owner, the oldest first, unless the owner was asked to give it back."""

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


def map_file(handle: int, size: int, owner: Owner) -> Memory | None:
    """The first `size` bytes of an open file; unmapped when nothing refers to them any more.

    None if the process has as many files mapped as it may, and all of them are in use.
    """
    if not size:
        return (ctypes.c_ubyte * 0)()
    if not _make_room(MOST_MAPPED):
        return None
    access, kind = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | _NORESERVE
    address = libc().mmap(None, size, access, kind, handle, 0)
    if address == _FAILED and ctypes.get_errno() == errno.ENOMEM:  # others in this process have mapped much
        _make_room(len(_mapped) // 2)
        address = libc().mmap(None, size, access, kind, handle, 0)
    if address == _FAILED:
        number = ctypes.get_errno()
        if number == errno.ENOMEM:
            return None
        raise OSError(number, f"could not map {size} bytes: {os.strerror(number)}")
    made = (ctypes.c_ubyte * size).from_address(address)
    _mapped.add(address)
    _owners[address] = weakref.ref(owner)
    weakref.finalize(made, _unmap, address, size).atexit = False
    return made


def _make_room(most: int) -> bool:
    """Ask for files back, those that were mapped first, until fewer than `most` are mapped; whether that could be."""
    while len(_mapped) >= max(most, 1):
        try:
            _, found = _owners.popitem(last=False)
        except KeyError:
            return False
        owner = found()
        if owner is not None:
            owner.let_go()
    return True


def _unmap(address: int, size: int) -> None:
    _owners.pop(address, None)  # before another file may be mapped there
    _mapped.discard(address)
    libc().munmap(address, size)


def at_random(memory: Memory) -> Memory:
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
