"""This module loads the C++ sources of this folder as Python functions of integers and addresses."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from struct import Struct
from typing import Any

import torch
from torch._C import _are_functorch_transforms_active as _are_transforms_active
from torch._C._dynamo import guards
from torch.autograd import forward_ad

from serrate.errors import CompileError

Routines = Mapping[str, Callable[..., int]]


def allocate_by_name(shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Return new memory by torch.empty_strided, which takes twice as long as the private call of torch below."""
    return torch.empty_strided(shape, strides, dtype=dtype, device="cpu")


Allocate = Callable[[tuple[int, ...], tuple[int, ...], torch.dtype], torch.Tensor]
allocate: Allocate = getattr(guards, "_empty_strided_cpu", allocate_by_name)
"""This function returns new CPU memory of a shape, strides and a dtype, as torch's compiled programs allocate it."""


def load(
    name: str, functions: Iterable[str], flags: Sequence[str] = (), headers: Sequence[str] = ()
) -> Routines | None:
    """Return the named functions that a source exports, see common.h; None if it does not compile."""
    from serrate.runtime.compiler import compile

    folder = Path(__file__).parent
    source = "\n".join(folder.joinpath(part).read_text(encoding="utf-8") for part in ("common.h", *headers, name))
    try:
        library = ctypes.CDLL(str(compile(source, flags=flags).path))
    except (CompileError, OSError):
        return None
    return {function: _exported(library[f"serrate_{function}"]) for function in functions}


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
    """Return new memory on the CPU for a contiguous tensor."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return allocate(tuple(shape), tuple(strides[::-1]), dtype)


def plain(values: torch.Tensor) -> torch.Tensor:
    """Return `values` as a contiguous tensor whose memory holds the numbers themselves, not conjugated or negated."""
    if values.is_complex() or values.is_neg():
        values = values.resolve_conj().resolve_neg()
    return values.contiguous()


def size_of(tensor: torch.Tensor) -> int:
    """Return the number of bytes of a tensor; `nbytes` raises an error while torch.compile traces a dynamic size."""
    return tensor.numel() * tensor.element_size()


def threads_for(work: int) -> int:
    """Return how many threads to use for `work` bytes or multiplications.

    Little work gets one thread, since the threads of a busy machine start late.
    """
    return torch.get_num_threads() if work >= 2**23 else 1


def transforming() -> bool:
    """Return whether tensors may have more than their memory holds: tangents, or the axis that vmap maps over."""
    return forward_ad._current_level >= 0 or _are_transforms_active()


def are_vectors(*given: Any) -> bool:
    """Return whether all are contiguous vectors in the memory of the CPU; a fake tensor, a subclass, has no memory."""
    if transforming():
        return False
    for each in given:  # noqa: SIM110  all() takes longer than everything else in some calls
        if not (type(each) is torch.Tensor and each.is_cpu and each.stride() == (1,)):
            return False
    return True
