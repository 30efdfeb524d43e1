"""The C++ compiler of the system: how it is found and run. Nothing here needs torch, so that setup.py can use it."""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from serrate.errors import CompileError

# No -ffast-math: NaN, infinities and signed zeros survive. The two of its parts that are here concern only errno and
# floating-point exceptions, and without the second selects do not vectorize.
FLAGS = ("-O3", "-std=c++17", "-fopenmp", "-fno-math-errno", "-fno-trapping-math", "-fwrapv", "-fPIC")
"""What every source is compiled with; which instructions of the processor may be used is said beside them."""


def run(command: Sequence[str], source: str) -> subprocess.CompletedProcess[str]:
    """Run a command on a source and return what it wrote; a command that cannot be run is a CompileError."""
    try:
        return subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    except OSError as error:
        raise CompileError(shlex.join(command), str(error), source) from error


_counts = [0, 0]  # how often a compiler ran, and how many libraries were found on disk


def counts() -> tuple[int, int]:
    """How often this process ran a compiler, and how many compiled sources it found on disk."""
    return _counts[0], _counts[1]


def count_disk_hit() -> None:
    """Note that a compiled source was found on disk."""
    _counts[1] += 1


def run_compiler(command: Sequence[str], source: str) -> None:
    """Run a compiler on a source; if it fails, what it wrote is in the CompileError."""
    _counts[0] += 1
    done = run(command, source)
    if done.returncode != 0:
        raise CompileError(shlex.join(command), done.stderr + done.stdout, source)


@cache
def _compiler_named(chosen: str, path: str | None) -> tuple[str, ...]:
    try:
        named = [chosen] if shutil.which(chosen, path=path) else shlex.split(chosen)
    except ValueError as error:
        raise CompileError(chosen, f"SERRATE_CXX is not a command: {error}", "") from error
    candidates = [named] if named else [["g++"], ["c++"], ["clang++"]]
    for name, *options in candidates:
        found = shutil.which(name, path=path)
        if found:
            return (found, *options)
    looked = ", ".join(name for name, *_ in candidates)
    raise CompileError(
        looked, f"found none of these on PATH: {looked}. Install g++ or set SERRATE_CXX to a compiler.", ""
    )


def compiler() -> tuple[str, ...]:
    """The C++ compiler, and the options that `$SERRATE_CXX` gives it."""
    return _compiler_named(os.environ.get("SERRATE_CXX", ""), os.environ.get("PATH"))


@cache
def version(command: tuple[str, ...]) -> str:
    """What a compiler says of itself."""
    done = run([*command, "--version"], "")
    return done.stdout + done.stderr


@cache
def processor() -> str:
    """What -march=native depends on."""
    wanted = ("flags", "features", "model name", "cpu family", "model", "cpu part", "cpu implementer")
    lines = _processor_lines()
    if not lines:
        return f"{platform.machine()} {platform.processor()}"
    return "\n".join(sorted({line for line in lines if line.split(":")[0].strip().lower() in wanted}))


@cache
def features() -> frozenset[str]:
    """The instructions that processor and system offer, by the names that Linux gives them; none where it does not."""
    named = (line.partition(":")[2] for line in _processor_lines() if line.split(":")[0].strip().lower() == "flags")
    return frozenset(next(named, "").split())


@cache
def native_flags() -> tuple[str, ...]:
    """What makes a compiler use all instructions of this processor. Of the widest registers compilers use only a half
    unless they are told to: older processors ran slower where these were in use."""
    return ("-march=native", *(["-mprefer-vector-width=512"] if "avx512f" in features() else []))


@cache
def _processor_lines() -> list[str]:
    try:
        return Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return []
