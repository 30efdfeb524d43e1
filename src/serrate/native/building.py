"""This module builds the C++ sources of this folder into shared libraries, one for each level of processors.

setup.py calls it when the package is built, before torch is there, so nothing here needs torch. A library has a plain C
interface: it fits every version of torch and Python. It also says which sources it was built from, so that a library is
never used in place of sources that have changed since.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import re
import sysconfig
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from serrate.runtime.toolchain import FLAGS, compiler, features, run_compiler

FOLDER = Path(__file__).parent
BUILT = FOLDER / "built"
"""The folder of the libraries that belong to this package."""

_AVX2 = frozenset({"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"})
_AVX512 = _AVX2 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
_LEVELS: Mapping[str, Mapping[str, frozenset[str]]] = {
    "x86_64": {"x86-64-v4": _AVX512, "x86-64-v3": _AVX2, "x86-64": frozenset()}
}
"""For each kind of machine its levels, best first: compilers' name of a level, and the features that it needs."""


def levels() -> Mapping[str, frozenset[str]]:
    """Return the levels of this kind of machine; where compilers know none, the machine itself is the only one."""
    machine = platform.machine()
    return _LEVELS.get(machine, {machine: frozenset()})


def level() -> str:
    """Return the best level that this processor reaches."""
    return next(name for name, needed in levels().items() if needed <= features())


def library_of(level: str, folder: Path = BUILT) -> Path:
    """Return where the library of a level lies in a folder."""
    return folder / f"serrate-{level}.so"


def sources() -> list[Path]:
    """Return the sources of this folder, the largest first, since they take longest to compile."""
    return sorted(FOLDER.glob("*.cpp"), key=lambda path: (-path.stat().st_size, path.name))


def options() -> tuple[str, ...]:
    """Return the further options of the sources of this folder: where headers are, Python's too, if it has them.

    Vectors never cross the interface, so the changes of their passing that compilers warn of concern nobody.
    """
    return ("-Wno-psabi", f"-I{FOLDER}", f"-I{sysconfig.get_paths()['include']}")


def digest_of(name: str) -> str:
    """Return a digest of a source, of the headers that it includes and of the options that it is compiled with."""
    flags = [*FLAGS, *(option for each in levels() for option in _architecture(each))]
    texts: dict[Path, str] = {}
    waiting = [FOLDER / name]
    while waiting:
        path = waiting.pop()
        if path not in texts:
            texts[path] = path.read_text(encoding="utf-8")
            included = re.findall(r'^#include "(.+)"', texts[path], re.MULTILINE)
            waiting += [Path(os.path.normpath(path.parent / each)) for each in included]
    return hashlib.sha256("\0".join([*flags, *texts.values()]).encode()).hexdigest()


def built_from(library: ctypes.CDLL) -> dict[str, str]:
    """Return for each source of a library the digest that it had when the library was built."""
    function = library.serrate_sources
    function.restype = ctypes.c_char_p
    return dict(line.split(" ") for line in function().decode().splitlines())


def build(folder: Path) -> list[Path]:
    """Build the libraries of all levels into a folder, all sources at once, and return them.

    A library that is there and was built from these very sources is left as it is.
    """
    lines = [f"{path.name} {digest_of(path.name)}" for path in sources()]
    libraries = {each: library_of(each, folder) for each in levels()}
    missing = [each for each, path in libraries.items() if not _is_built_from(path, lines)]
    if missing:
        command = compiler()
        with tempfile.TemporaryDirectory(prefix="serrate-") as temporary, ThreadPoolExecutor(_processors()) as pool:
            about = Path(temporary, "sources.cpp")
            text = "\\n".join(lines)
            about.write_text(f'extern "C" const char* serrate_sources() {{ return "{text}"; }}\n')
            jobs = [
                pool.submit(_compile, command, source, each, Path(temporary, f"{each}-{source.stem}.o"))
                for source in [*sources(), about]
                for each in missing
            ]
            objects = [job.result() for job in jobs]
            for number, each in enumerate(missing):
                _link(command, objects[number :: len(missing)], libraries[each])
    return list(libraries.values())


def _is_built_from(library: Path, lines: list[str]) -> bool:
    return library.exists() and "\n".join(lines).encode() in library.read_bytes()


def _compile(command: tuple[str, ...], source: Path, level: str, output: Path) -> Path:
    """Compile a source for a level; what a library says about itself is asked for on every processor."""
    architecture = _architecture(level) if source.parent == FOLDER else ()
    run_compiler([*command, *FLAGS, *architecture, *options(), "-c", str(source), "-o", str(output)], "")
    return output


def _architecture(level: str) -> tuple[str, ...]:
    """Return the options for a level. Tuned for "generic", some sums take a tenth longer (`benchmarks.levels`).

    Loops begin at a line of memory. Where they do not, some copies take a tenth longer, by the luck of their place.
    """
    if platform.machine() not in _LEVELS:
        return ()
    tuned = ("-mtune=haswell",) if levels()[level] else ()
    return (f"-march={level}", *tuned, "-falign-loops=64")


def _link(command: tuple[str, ...], objects: list[Path], library: Path) -> None:
    """Link objects to a library, which takes its place all at once, since processes may have the old one loaded."""
    library.parent.mkdir(parents=True, exist_ok=True)
    temporary = library.with_suffix(f".{os.getpid()}.new")
    try:
        run_compiler([*command, *FLAGS, "-shared", *map(str, objects), "-o", str(temporary)], "")
        temporary.replace(library)
    finally:
        temporary.unlink(missing_ok=True)


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
