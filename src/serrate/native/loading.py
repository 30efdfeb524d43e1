"""This module loads what the C++ sources of this folder export, as Python functions of integers and addresses."""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from struct import Struct
from typing import Any

import torch
from torch._C import _are_functorch_transforms_active as _are_transforms_active
from torch._C import _current_graph_task_id, _len_torch_dispatch_stack
from torch._C._dynamo import guards
from torch.autograd import forward_ad
from torch.compiler import is_compiling
from torch.nn import Parameter

from serrate.errors import CompileError
from serrate.native import building
from serrate.tensor import host

Routines = Mapping[str, Callable[..., int]]


def allocate_by_name(shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Return new memory by torch.empty_strided, which takes twice as long as the private call of torch below."""
    return torch.empty_strided(shape, strides, dtype=dtype, device="cpu")


Allocate = Callable[[tuple[int, ...], tuple[int, ...], torch.dtype], torch.Tensor]
allocate: Allocate = getattr(guards, "_empty_strided_cpu", allocate_by_name)
"""This function returns new CPU memory of a shape, strides and a dtype, as torch's compiled programs allocate it."""


def load(name: str, functions: Iterable[str]) -> Routines | None:
    """Return the named functions that a source exports, see common.h; None if there is no library with them."""
    path = library_with(name)
    if path is None:
        return None
    library = ctypes.CDLL(str(path))
    return {function: _exported(library[f"serrate_{function}"]) for function in functions}


def library_with(name: str) -> Path | None:
    """Return the library that has the functions of a source: the one that was built with the package.

    If the source has changed since, or if there was no compiler when the package was installed, the source is compiled
    now and kept (`serrate.runtime.compiler`). Where that fails, a single warning says so, and the result is None.
    """
    digest = building.digest_of(name)
    path, digests = _built()
    if digests.get(name) == digest:
        return path
    from serrate.runtime.compiler import compile

    try:
        return compile(f'// {digest}\n#include "{name}"\n', flags=building.options()).path
    except (CompileError, OSError) as error:
        _warn_once(error.output if isinstance(error, CompileError) else str(error))
        return None


@cache
def _built() -> tuple[Path, Mapping[str, str]]:
    """Return the library that was built with the package for this processor, and the digests of its sources."""
    path = building.library_of(building.level())
    try:
        return path, building.built_from(ctypes.CDLL(str(path)))
    except OSError:  # There is none, or it was built for another system.
        return path, {}


_reasons: list[str] = []
_SHOWN = 600  # letters of what a compiler says


def _warn_once(reason: str) -> None:
    if not _reasons:
        warnings.warn(
            "Serrate runs without its native code, on torch alone and more slowly: no library was built from its "
            f"sources as they are, and they cannot be compiled now: {reason.strip()[:_SHOWN]}",
            RuntimeWarning,
            stacklevel=2,
        )
    _reasons.append(reason)


def _exported(routine: Any) -> Callable[..., int]:
    """Return a Python function that passes its arguments as one array of 64-bit words.

    Called with a null pointer, the C++ function returns the number of its arguments.
    """
    routine.restype = ctypes.c_int64
    pack = Struct(f"{routine(None)}q").pack

    def call(*arguments: int) -> int:
        return routine(pack(*arguments))  # type: ignore[no-any-return]

    return call


def empty(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Return new memory on the CPU for a contiguous tensor; large memory is what earlier results left, if it can be."""
    strides: tuple[int, ...] = ()
    step = 1
    for size in reversed(shape):
        strides = (step, *strides)
        step *= size or 1
    shape = tuple(shape)
    if step >= _LARGE:
        from serrate.native import allocation

        made = allocation.take(shape, strides, dtype, step * dtype.itemsize)
        if made is not None:
            return made
    return allocate(shape, strides, dtype)


_LARGE = 2**17
"""The number of elements from which on a result may be one that `serrate.native.allocation` has memory for."""


def plain(values: torch.Tensor) -> torch.Tensor:
    """Return `values` as a contiguous tensor whose memory holds the numbers themselves, not conjugated or negated."""
    if values.is_complex() or values.is_neg():
        values = values.resolve_conj().resolve_neg()
    return values.contiguous()


def size_of(tensor: torch.Tensor) -> int:
    """Return the number of bytes of a tensor; `nbytes` raises an error while torch.compile traces a dynamic size."""
    return tensor.numel() * tensor.element_size()


def threads_for(work: int) -> int:
    """Return how many threads to use for `work` bytes or multiplications: as torch does, one for little work.

    Where torch uses several threads and compiled code one, or the other way round, results cross from the cache of one
    core to that of another, which takes longer than the work.
    """
    return torch.get_num_threads() if work >= 2**18 else 1


def transforming() -> bool:
    """Return whether tensors may have more than their memory holds: tangents, or the axis that vmap maps over."""
    return forward_ad._current_level >= 0 or _are_transforms_active()


def reads(*tensors: torch.Tensor) -> bool:
    """Return whether compiled code may read all of these: memory of the CPU holds all there is to know about them.

    It does not where a tangent, a transform or a trace stands for more, nor in a fake tensor, which is a subclass.
    """
    if transforming() or is_compiling() or _len_torch_dispatch_stack():
        return False
    backward = _current_graph_task_id() != -1
    for tensor in tensors:
        kind = type(tensor)
        if (kind is not torch.Tensor and kind is not Parameter) or not tensor.is_cpu:
            return False
        if backward and host.is_batch(tensor):
            return False
    return True


def are_vectors(*given: Any) -> bool:
    """Return whether all are contiguous vectors in the memory of the CPU; a fake tensor, a subclass, has no memory."""
    if transforming():
        return False
    for each in given:  # noqa: SIM110  all() takes longer than everything else in some calls
        if not (type(each) is torch.Tensor and each.is_cpu and each.stride() == (1,)):
            return False
    return True
