"""Memory map: files are mapped privately, so that writing never changes them, and no file handle stays open.

A process can map only a limited number of files. The owner of an old mapping is asked to give it up when others are
mapped; a mapping that is still in use then stays until it is not used any more.
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
    """An object that uses mapped memory."""

    def let_go(self) -> None:
        """Stop using the memory; it may be mapped again later."""


def _limit() -> int:
    """Return how many mappings the system allows a process; 65,530 if it does not tell."""
    try:
        with open("/proc/sys/vm/max_map_count") as stream:
            return int(stream.read())
    except (OSError, ValueError):
        return 65_530


MOST_MAPPED = _limit() // 2
"""How many mappings are used for files. Libraries, threads and other memory need mappings as well."""
_mapped: set[int] = set()
"""The addresses of mapped files. Single calls on this set and on `_owners` are atomic, so they need no lock."""
_owners: OrderedDict[int, weakref.ref[Owner]] = OrderedDict()
"""The owner of each of these addresses, the oldest first, except for owners that were asked to give it up."""

# Without this flag a writable private mapping counts against the memory that the system is willing to promise, and
# files are larger than that. The mmap module of Python 3.11 has no name for the flag.
_NORESERVE = {"linux": 0x4000, "darwin": 0x40}.get(sys.platform, 0)
_FAILED = ctypes.c_void_p(-1).value


@cache
def libc() -> Any:
    """Return the C library, which maps and unmaps. Python's mmap keeps a file handle open, and handles are few."""
    found = ctypes.CDLL(None, use_errno=True)
    found.mmap.restype = ctypes.c_void_p
    found.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    found.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    found.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return found


def map_file(handle: int, size: int, owner: Owner) -> Memory | None:
    """Map the first `size` bytes of an open file; they are unmapped when nothing refers to them any more.

    Return None if the process has mapped as many files as it may, and all of them are in use.
    """
    if not size:
        return (ctypes.c_ubyte * 0)()
    if not _make_room(MOST_MAPPED):
        return None
    access, kind = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | _NORESERVE
    address = libc().mmap(None, size, access, kind, handle, 0)
    if address == _FAILED and ctypes.get_errno() == errno.ENOMEM:  # Other code of this process has many mappings.
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
    """Ask owners of mappings, the oldest first, to give them up until fewer than `most` are left.

    Return whether that worked.
    """
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
    _owners.pop(address, None)  # This must happen before another file can be mapped there.
    _mapped.discard(address)
    libc().munmap(address, size)


def at_random(memory: Memory) -> Memory:
    """Make access to a page read only that page, and not megabytes around it; return the memory."""
    libc().madvise(ctypes.addressof(memory), len(memory), mmap.MADV_RANDOM)
    return memory


class Lazy(Mapping[str, T]):
    """Values by name; each is made when it is first used."""

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
