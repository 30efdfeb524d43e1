"""Compiling CUDA kernels with NVRTC, and launching them on torch's current stream with torch's memory."""

from __future__ import annotations

import ctypes
import os
import site
import sys
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from pathlib import Path
from threading import Lock
from typing import Any

import torch

from serrate.errors import CompileError
from serrate.runtime.cache import cache_directory, digest, keep, read_cached
from serrate.runtime.compiler import show
from serrate.runtime.signature import Compiled, Signature

_sources: dict[str, Any] = {}  # compiled ones, by their digests
_locks: dict[str, Lock] = {}  # by the same keys


def compile(source: str, signature: Signature) -> Compiled:
    """A kernel of the source as a function that takes a CUDA tensor for each of its buffers, then its sizes.

    The source is compiled for the current device now, and for other architectures when the kernel is called there; what
    was compiled is kept in memory and on disk. Several kernels of one source are compiled together.

    A kernel stays loaded as long as the process: launches may still wait in a stream, and graphs that captured one
    launch it again, of which nothing is known here.
    """
    try:
        import cuda.core  # noqa: F401
    except ImportError as error:
        raise ImportError("CUDA kernels need cuda.core: pip install 'serrate[cuda]'") from error
    _loaded(source, _architecture(torch.cuda.current_device()))
    return Compiled(signature, "cuda", cache(lambda device: _launcher(source, signature, device)))


def _launcher(text: str, signature: Signature, device: torch.device) -> Callable[..., None]:
    """A function of addresses and sizes that launches the kernel on torch's current stream of a device."""
    from cuda.core import launch

    tensors, shape, narrow = len(signature.buffers), signature.grid, signature.index == "int32"
    number = torch.cuda.current_device() if device.index is None else device.index
    kernel = _loaded(text, _architecture(number)).get_kernel(signature.symbol)

    def start(*arguments: int) -> None:
        blocks_and_threads = shape(*arguments[tensors:])
        if 0 in blocks_and_threads:
            return
        given: tuple[Any, ...] = arguments
        if narrow:  # a Python int is passed as 64 bits
            given = (*arguments[:tensors], *map(ctypes.c_int32, arguments[tensors:]))
        stream = _stream(torch._C._cuda_getCurrentRawStream(number))
        launch(stream, _config(blocks_and_threads), kernel, *given)

    def start_elsewhere(*arguments: int) -> None:
        with torch.cuda.device(number):
            start(*arguments)

    def choose(*arguments: int) -> None:
        (start if torch._C._cuda_getDevice() == number else start_elsewhere)(*arguments)

    return choose


@cache
def _architecture(device: int) -> str:
    major, minor = torch.cuda.get_device_capability(device)
    return f"sm_{major}{minor}"


@cache
def _stream(handle: int) -> Any:
    """torch's streams come from a pool and live as long as the process."""
    from cuda.core import Stream

    return Stream.from_handle(handle)


@lru_cache(maxsize=4096)
def _config(blocks_and_threads: tuple[int, ...]) -> Any:
    from cuda.core import LaunchConfig

    return LaunchConfig(grid=blocks_and_threads[:3], block=blocks_and_threads[3:])


def _loaded(text: str, architecture: str) -> Any:
    """The compiled source, from memory, or from disk if it was compiled before."""
    key = digest(text, architecture, _nvrtc_version(), *_include_paths(text))
    found = _sources.get(key)
    if found is None:
        with _locks.setdefault(key, Lock()):
            found = _sources.get(key)
            if found is None:
                found = _sources[key] = _load(f"{key}.cubin", text, architecture)
    return found


def _load(file: str, text: str, architecture: str) -> Any:
    from cuda.core import Device, ObjectCode

    Device(torch.cuda.current_device()).set_current()
    show(text)
    cubin = read_cached(cache_directory() / file)
    if cubin is None:
        cubin = _compiled(text, architecture)
        keep(file, cubin)
    return ObjectCode.from_cubin(cubin)


def _compiled(text: str, architecture: str) -> bytes:
    from cuda.core import Program, ProgramOptions

    paths = list(_include_paths(text))
    options = ProgramOptions(name="kernels", arch=architecture, std="c++17", include_path=paths or None)
    try:
        return bytes(Program(text, "c++", options).compile("cubin").code)
    except Exception as error:  # of cuda.core, whose words contain NVRTC's
        command = " ".join(["nvrtc", f"-arch={architecture}", "-std=c++17", *(f"-I{path}" for path in paths)])
        raise CompileError(command, str(error), text) from error


@cache
def _nvrtc_version() -> str:
    from cuda.bindings import nvrtc

    return str(nvrtc.nvrtcVersion())


def _include_paths(text: str) -> tuple[str, ...]:
    """Where the headers of half precision are, for a source that includes them."""
    if "#include <cuda_" not in text:
        return ()
    found = next((str(path) for path in _header_directories() if (path / "cuda_bf16.h").exists()), None)
    if found is None:
        raise CompileError("nvrtc", "cuda_bf16.h was not found; set CUDA_HOME to a CUDA toolkit", text)
    return (found,)


def _header_directories() -> Iterator[Path]:
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if variable in os.environ:
            yield Path(os.environ[variable], "include")
    for packages in {*site.getsitepackages(), *sys.path}:
        yield from sorted(Path(packages).glob("nvidia/*/include"), reverse=True)
    yield Path("/usr/local/cuda/include")
