"""Compiling C++ source into functions that take torch tensors, through a cache on disk."""

from __future__ import annotations

import atexit
import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

import torch

from serrate.errors import CompileError
from serrate.fusion.scalar import Scalar
from serrate.kernel.ir import Kernel
from serrate.kernel.source import identifier

# No -ffast-math: NaN, infinities and signed zeros survive. The two of its parts that are here concern only errno and
# floating-point exceptions, and without the second selects do not vectorize.
FLAGS = (
    "-O3", "-march=native", "-std=c++17", "-fopenmp", "-fno-math-errno", "-fno-trapping-math", "-fwrapv",
    "-shared", "-fPIC",
)  # fmt: skip

_INDEX_TYPES = {"int32": ctypes.c_int32, "int64": ctypes.c_int64}
_DIGEST_BYTES = 32
_libraries: dict[str, Library] = {}
_lock = Lock()


class Library:
    """A compiled source, loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._library = ctypes.CDLL(str(path))

    def function(self, kernel: Kernel) -> Callable[..., None]:
        """The function of a kernel of the source: it takes a CPU tensor for each of its buffers, then its sizes."""
        function = self._library[identifier(kernel.name)]
        function.restype = None
        function.argtypes = [ctypes.c_void_p] * len(kernel.buffers) + [_INDEX_TYPES[kernel.index]] * len(kernel.sizes)
        check = arguments(kernel, "cpu")

        def call(*values: Any) -> None:
            function(*check(values))

        call.__name__ = call.__qualname__ = kernel.name
        return call


def compile(source: str, *, flags: Sequence[str] = ()) -> Library:
    """The compiled source, from memory or from disk if it was compiled before.

    The cache is in `$SERRATE_CACHE_DIR`, else in `~/.cache/serrate`; the compiler is `$SERRATE_CXX`, else the first of
    g++, c++ and clang++. `SERRATE_DEBUG=source` prints what is compiled.
    """
    command = (*compiler(), *FLAGS, *flags)
    key = digest(source, version(compiler()), processor(), *command)
    with _lock:
        if key not in _libraries:
            show(source)
            _libraries[key] = _load(cache_directory() / f"{key}.so", source, command)
        return _libraries[key]


def _load(path: Path, source: str, command: Sequence[str]) -> Library:
    if read_cached(path) is not None:
        try:
            return Library(path)
        except OSError:
            pass  # of another system; rebuilt
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        code, library = Path(folder, "kernel.cpp"), Path(folder, "kernel.so")
        code.write_text(source)
        whole = [*command, str(code), "-o", str(library)]
        done = subprocess.run(whole, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise CompileError(shlex.join(whole), done.stderr + done.stdout, source)
        write_cached(path, library.read_bytes())
    return Library(path)


@cache
def _compiler_named(chosen: str) -> tuple[str, ...]:
    named = shlex.split(chosen)
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
    done = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False)
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


# The cache on disk


def digest(*parts: str) -> str:
    """A name for something that depends on all of these and on nothing else."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def cache_directory() -> Path:
    """Where compiled kernels are kept: a directory that only this user can write to."""
    chosen = os.environ.get("SERRATE_CACHE_DIR")
    return _private(Path(chosen) if chosen else Path.home() / ".cache" / "serrate")


@cache
def _private(path: Path) -> Path:
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = path.stat()
        if status.st_uid == os.getuid() and not status.st_mode & 0o022 and os.access(path, os.W_OK | os.X_OK):
            return path
        reason = "others can write to it, or it is not yours"
    except OSError as error:
        reason = str(error)
    warnings.warn(f"compiled kernels are not kept: {path} cannot be used ({reason})", stacklevel=2)
    temporary = Path(tempfile.mkdtemp(prefix="serrate-"))
    atexit.register(shutil.rmtree, temporary, ignore_errors=True)
    return temporary


def read_cached(path: Path) -> bytes | None:
    """What `write_cached` wrote, or None if there is nothing, or not all of it."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    content, end = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    return content if hashlib.sha256(content).digest() == end else None


def write_cached(path: Path, content: bytes) -> None:
    """Write a file with its digest at the end (which loaders of libraries ignore), all at once."""
    handle, temporary = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content + hashlib.sha256(content).digest())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


# Arguments


def arguments(kernel: Kernel, device: str) -> Callable[[tuple[Any, ...]], list[int]]:
    """A function that checks a kernel's arguments and gives the addresses of the tensors, then the sizes."""
    count = len(kernel.buffers) + len(kernel.sizes)
    needed = sizes(kernel, [buffer.size for buffer in kernel.buffers])
    tensors = len(kernel.buffers)
    expected = [(buffer.name, getattr(torch, buffer.dtype)) for buffer in kernel.buffers]

    def check(values: tuple[Any, ...]) -> list[int]:
        if len(values) != count:
            raise TypeError(f"{kernel.name} takes {tensors} tensors and {count - tensors} sizes, got {len(values)}")
        given = values[tensors:]
        made: list[int] = []
        for (name, dtype), tensor, least in zip(expected, values, needed(*given), strict=False):
            if not (
                isinstance(tensor, torch.Tensor)
                and tensor.dtype is dtype
                and tensor.device.type == device
                and tensor.is_contiguous()
                and tensor.numel() >= least
            ):
                raise TypeError(f"{kernel.name}: {_complaint(name, dtype, tensor, least, device)}")
            made.append(tensor.data_ptr())
        made.extend(given)
        return made

    return check


def _complaint(name: str, dtype: torch.dtype, tensor: Any, least: int, device: str) -> str:
    wanted = f"{name} must be a contiguous {dtype} tensor on {device} with at least {least} elements"
    if not isinstance(tensor, torch.Tensor):
        return f"{wanted}, got a {type(tensor).__name__}"
    layout = "contiguous" if tensor.is_contiguous() else "not contiguous"
    return f"{wanted}, got {tensor.dtype} on {tensor.device} with {tensor.numel()} elements, {layout}"


def sizes(kernel: Kernel, wanted: Sequence[Scalar]) -> Callable[..., tuple[int, ...]]:
    """A function of the kernel's sizes that gives what some expressions of them are worth."""
    names = {size: f"s{position}" for position, size in enumerate(kernel.sizes)}
    texts = [_python(node, names) for node in wanted]
    made: Callable[..., tuple[int, ...]] = eval(
        f"lambda {', '.join(names.values())}: ({''.join(t + ', ' for t in texts)})"
    )
    return made


_PYTHON = {
    "add": "({} + {})", "sub": "({} - {})", "mul": "({} * {})", "div": "({} // {})", "mod": "({} % {})",
    "min": "min({}, {})", "max": "max({}, {})", "lt": "({} < {})", "le": "({} <= {})", "eq": "({} == {})",
    "ne": "({} != {})", "and": "({} and {})", "or": "({} or {})", "not": "(not {})", "neg": "(-{})",
    "select": "({1} if {0} else {2})", "cast": "{}",
}  # fmt: skip


def _python(node: Scalar, names: dict[Scalar, str]) -> str:
    """An integer expression as Python, which is evaluated faster than by `evaluate`."""
    if node in names:
        return names[node]
    if node.is_const:
        return repr(node.value)
    if node.op not in _PYTHON:
        raise ValueError(
            f"{node} is not known before the kernel runs; sizes are {', '.join(map(str, names)) or 'none'}"
        )
    return _PYTHON[node.op].format(*(_python(argument, names) for argument in node.args))
