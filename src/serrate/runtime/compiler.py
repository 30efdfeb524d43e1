"""Compiling C++ source into functions that take torch tensors, through a cache on disk."""

from __future__ import annotations

import ctypes
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

from serrate.errors import CompileError
from serrate.runtime.cache import cache_directory, digest, keep, read_cached
from serrate.runtime.signature import Signature

# No -ffast-math: NaN, infinities and signed zeros survive. The two of its parts that are here concern only errno and
# floating-point exceptions, and without the second selects do not vectorize.
FLAGS = (
    "-O3", "-march=native", "-std=c++17", "-fopenmp", "-fno-math-errno", "-fno-trapping-math", "-fwrapv",
    "-shared", "-fPIC",
)  # fmt: skip

_INDEX_TYPES = {"int32": ctypes.c_int32, "int64": ctypes.c_int64}
_SHORTAGES = "_ZN2sr9shortagesE"  # sr::shortages, which only a library that asks for memory has
_libraries: dict[str, Library] = {}
_lock = Lock()


class Library:
    """A compiled source, loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._library = ctypes.CDLL(str(path))

    def function(self, signature: Signature) -> Callable[..., None]:
        """A function of the source: it takes a CPU tensor for each of its buffers, then its sizes.

        Where it asks for memory that there is not it raises MemoryError, and what it writes to is then undefined; so
        do calls of such functions that other threads make meanwhile.
        """
        function = self._library[signature.symbol]
        function.restype = None
        function.argtypes = [ctypes.c_void_p] * len(signature.buffers) + [
            _INDEX_TYPES[signature.index]
        ] * signature.sizes
        check = signature.checked("cpu")
        shortages = self._shortages()

        def call(*values: Any) -> None:
            function(*check(values))

        def call_with_scratch(*values: Any) -> None:
            before = shortages.value
            function(*check(values))
            if shortages.value != before:
                raise MemoryError(f"{signature.name}: no memory for values that are kept between loops")

        chosen = call if shortages is None else call_with_scratch
        chosen.__name__ = chosen.__qualname__ = signature.name
        return chosen

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

    A library stays loaded as long as the process: threads of OpenMP, and the destructors of their memory, refer to its
    code after calls have returned, so that it can never be told when to unload it.
    """
    command = (*compiler(), *FLAGS, *flags)
    key = digest(source, version(compiler()), processor(), *command)
    with _lock:
        if key not in _libraries:
            show(source)
            _libraries[key] = _load(f"{key}.so", source, command)
        return _libraries[key]


def _load(name: str, source: str, command: Sequence[str]) -> Library:
    path = cache_directory() / name
    if read_cached(path) is not None:
        try:
            return Library(path)
        except OSError:
            pass  # of another system; rebuilt
    with tempfile.TemporaryDirectory(prefix="serrate-") as folder:
        code, library = Path(folder, "kernel.cpp"), Path(folder, "kernel.so")
        code.write_text(source, encoding="utf-8")
        whole = [*command, str(code), "-o", str(library)]
        done = _run(whole, source)
        if done.returncode != 0:
            raise CompileError(shlex.join(whole), done.stderr + done.stdout, source)
        content = library.read_bytes()
    return Library(keep(name, content))


def _run(command: Sequence[str], source: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    except OSError as error:
        raise CompileError(shlex.join(command), str(error), source) from error


@cache
def _compiler_named(chosen: str) -> tuple[str, ...]:
    try:
        named = [chosen] if shutil.which(chosen) else shlex.split(chosen)
    except ValueError as error:
        raise CompileError(chosen, f"SERRATE_CXX is not a command: {error}", "") from error
    candidates = [named] if named else [["g++"], ["c++"], ["clang++"]]
    for name, *options in candidates:
        found = shutil.which(name)
        if found:
            return (found, *options)
    looked = ", ".join(name for name, *_ in candidates)
    raise CompileError(
        looked, f"found none of these on PATH: {looked}. Install g++ or set SERRATE_CXX to a compiler.", ""
    )


def compiler() -> tuple[str, ...]:
    """The C++ compiler, and the options that `$SERRATE_CXX` gives it."""
    return _compiler_named(os.environ.get("SERRATE_CXX", ""))


@cache
def version(command: tuple[str, ...]) -> str:
    """What a compiler says of itself."""
    done = _run([*command, "--version"], "")
    return done.stdout + done.stderr


@cache
def processor() -> str:
    """What -march=native depends on."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    wanted = ("flags", "features", "model name", "cpu family", "model", "cpu part", "cpu implementer")
    return "\n".join(sorted({line for line in lines if line.split(":")[0].strip().lower() in wanted}))


def show(source: str) -> None:
    """Print the source if `SERRATE_DEBUG` asks for it."""
    if "source" in os.environ.get("SERRATE_DEBUG", ""):
        print(source, file=sys.stderr)
