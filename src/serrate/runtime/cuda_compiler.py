"""Compiling CUDA kernels with NVRTC, and launching them on torch's current stream with torch's memory."""

from __future__ import annotations

import ctypes
import os
import site
import sys
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import torch

from serrate.errors import CompileError
from serrate.runtime.cache import cache_directory, digest, keep, read_cached
from serrate.runtime.compiler import show
from serrate.runtime.signature import Signature

_functions: dict[str, Callable[..., None]] = {}


def compile(source: str, signature: Signature, launch: str) -> Callable[..., None]:
    """A kernel of the source as a function that takes a CUDA tensor for each of its buffers, then its sizes.

    `launch` says in words how its blocks and threads follow from its sizes, which the source does not say.

    It is compiled for the current device now, and for other architectures when called there; what was compiled is kept
    in memory and on disk.

    A kernel stays loaded as long as the process: launches may still wait in a stream, and graphs that captured one
    launch it again, of which nothing is known here.
    """
    key = f"{launch}\n{source}"
    if key not in _functions:
        _functions[key] = _function(source, signature)
    return _functions[key]


def _function(text: str, signature: Signature) -> Callable[..., None]:
    try:
        from cuda.core import launch
    except ImportError as error:
        raise ImportError("CUDA kernels need cuda.core: pip install 'serrate[cuda]'") from error

    name, tensors = signature.symbol, len(signature.buffers)
    check, shape = signature.checked("cuda"), signature.grid
    narrow = signature.index == "int32"
    _loaded(text, name, _architecture(torch.cuda.current_device()))

    def call(*values: Any) -> None:
        made: list[Any] = check(values)
        given = made[tensors:]
        blocks_and_threads = shape(*given)
        if 0 in blocks_and_threads:
            return
        if narrow:
            made[tensors:] = map(ctypes.c_int32, given)  # a Python int is passed as 64 bits
        device = _device(signature, values[:tensors])
        with torch.cuda.device(device):
            stream = _stream(torch.cuda.current_stream(device).cuda_stream)
            launch(stream, _config(blocks_and_threads), _loaded(text, name, _architecture(device)), *made)

    call.__name__ = call.__qualname__ = signature.name
    return call


def _device(signature: Signature, tensors: tuple[torch.Tensor, ...]) -> int:
    """The one device of the tensors."""
    device = tensors[0].device.index if tensors else torch.cuda.current_device()
    for (name, _), tensor in zip(signature.buffers, tensors, strict=True):
        if tensor.device.index != device:
            first = signature.buffers[0][0]
            raise TypeError(f"{signature.name}: {name} is on {tensor.device}, {first} on cuda:{device}")
    return int(device)


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


@cache
def _loaded(text: str, name: str, architecture: str) -> Any:
    """The compiled kernel, from disk if it was compiled before."""
    from cuda.core import Device, ObjectCode

    Device(torch.cuda.current_device()).set_current()
    show(text)
    file = f"{digest(text, architecture, _nvrtc_version(), *_include_paths(text))}.cubin"
    cubin = read_cached(cache_directory() / file)
    if cubin is None:
        cubin = _compiled(text, name, architecture)
        keep(file, cubin)
    return ObjectCode.from_cubin(cubin).get_kernel(name)


def _compiled(text: str, name: str, architecture: str) -> bytes:
    from cuda.core import Program, ProgramOptions

    paths = list(_include_paths(text))
    options = ProgramOptions(name=name, arch=architecture, std="c++17", include_path=paths or None)
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
