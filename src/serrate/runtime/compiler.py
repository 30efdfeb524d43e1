"""Compiling C++ sources into functions that take torch tensors, through a cache on disk."""

from __future__ import annotations

import ctypes
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import Any

from serrate.runtime.cache import cache_directory, digest, keep, read_cached
from serrate.runtime.signature import Compiled, Signature
from serrate.runtime.toolchain import FLAGS, compiler, count_disk_hit, native_flags, processor, run_compiler, version

_INDEX_TYPES = {"int32": ctypes.c_int32, "int64": ctypes.c_int64}
_SHORTAGES = "_ZN2sr9shortagesE"  # sr::shortages, which only a library that asks for memory has
_libraries: dict[str, Library] = {}
_locks: dict[str, Lock] = {}  # by the same keys: one source is compiled once, and different ones at the same time


class Library:
    """A compiled source, loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._library = ctypes.CDLL(str(path))

    def function(self, signature: Signature) -> Compiled:
        """A function of the source: it takes a CPU tensor for each of its buffers, then its sizes.

        Where it asks for memory that there is not it raises MemoryError, and what it writes to is then undefined; so
        do calls of such functions that other threads make meanwhile.
        """
        function = self._library[signature.symbol]
        function.restype = None
        function.argtypes = [ctypes.c_void_p] * len(signature.buffers) + [
            _INDEX_TYPES[signature.index]
        ] * signature.sizes
        shortages = self._shortages()

        def launch_with_scratch(*arguments: int) -> None:
            before = shortages.value
            function(*arguments)
            if shortages.value != before:
                raise MemoryError(f"{signature.name}: no memory for values that are kept between loops")

        launch = function if shortages is None else launch_with_scratch
        return Compiled(signature, "cpu", lambda device: launch)

    def _shortages(self) -> Any:
        """How often memory was short, as it is in memory; None for a library that never asks for any."""
        try:
            return ctypes.c_int64.in_dll(self._library, _SHORTAGES)
        except ValueError:
            return None


def compile(source: str, *, flags: Sequence[str] = ()) -> Library:
    """The compiled source, from memory or from disk if it was compiled before.

    The cache is in `$SERRATE_CACHE_DIR`, else in `~/.cache/serrate`; the compiler is `$SERRATE_CXX`, else the first of
    g++, c++ and clang++. `SERRATE_DEBUG=source` prints what is compiled.

    Threads that ask for the same source wait for one run of the compiler; those that ask for others do not.

    A library stays loaded as long as the process: threads of OpenMP, and the destructors of their memory, refer to its
    code after calls have returned, so that it can never be told when to unload it.
    """
    command = (*compiler(), *FLAGS, *native_flags(), "-shared", *flags)
    key = digest(source, version(compiler()), processor(), *command)
    found = _libraries.get(key)
    if found is None:
        with _locks.setdefault(key, Lock()):
            found = _libraries.get(key)
            if found is None:
                show(source)
                found = _libraries[key] = _load(f"{key}.so", source, command)
    return found


def _load(name: str, source: str, command: Sequence[str]) -> Library:
    path = cache_directory() / name
    if read_cached(path) is not None:
        try:
            found = Library(path)
        except OSError:
            pass  # of another system; rebuilt
        else:
            count_disk_hit()
            return found
    with tempfile.TemporaryDirectory(prefix="serrate-") as folder:
        code, library = Path(folder, "kernel.cpp"), Path(folder, "kernel.so")
        code.write_text(source, encoding="utf-8")
        run_compiler([*command, str(code), "-o", str(library)], source)
        content = library.read_bytes()
    return Library(keep(name, content))


def show(source: str) -> None:
    """Print the source if `SERRATE_DEBUG` asks for it."""
    if "source" in os.environ.get("SERRATE_DEBUG", ""):
        print(source, file=sys.stderr)
