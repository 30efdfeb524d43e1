"""C++ sources of this folder as functions of integers and addresses."""

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
    """Memory by torch.empty_strided, in twice the time of the private call that `allocate` is where torch has it."""
    return torch.empty_strided(shape, strides, dtype=dtype, device="cpu")


Allocate = Callable[[tuple[int, ...], tuple[int, ...], torch.dtype], torch.Tensor]
allocate: Allocate = getattr(guards, "_empty_strided_cpu", allocate_by_name)
"""Memory on the CPU of a shape, strides and a dtype: how torch's compiled programs ask for it."""


def load(
    name: str, functions: Iterable[str], flags: Sequence[str] = (), headers: Sequence[str] = ()
) -> Routines | None:
    """Some functions that a source exports, see common.h, by name; None where it cannot be compiled."""
    from serrate.runtime.compiler import compile

    folder = Path(__file__).parent
    source = "\n".join(folder.joinpath(part).read_text(encoding="utf-8") for part in ("common.h", *headers, name))
    try:
        library = ctypes.CDLL(str(compile(source, flags=flags).path))
    except (CompileError, OSError):
        return None
    return {function: _exported(library[f"serrate_{function}"]) for function in functions}


def _exported(routine: Any) -> Callable[..., int]:
    """A function whose arguments go as one record of 64-bit words; asked with none it says how many it takes."""
    routine.restype = ctypes.c_int64
    pack = Struct(f"{routine(None)}q").pack

    def call(*arguments: int) -> int:
        return routine(pack(*arguments))  # type: ignore[no-any-return]

    return call


def empty(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Memory on the CPU for a contiguous tensor."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return allocate(tuple(shape), tuple(strides[::-1]), dtype)


def plain(values: torch.Tensor) -> torch.Tensor:
    """`values` as their memory holds them: contiguous, no conjugate or negative view."""
    if values.is_complex() or values.is_neg():
        values = values.resolve_conj().resolve_neg()
    return values.contiguous()


def size_of(tensor: torch.Tensor) -> int:
    """How many bytes it takes; `nbytes` is an error while torch.compile traces a tensor of any size."""
    return tensor.numel() * tensor.element_size()


def threads_for(work: int) -> int:
    """How many threads so much work, in bytes or multiplications, is worth: those of a busy machine start late."""
    return torch.get_num_threads() if work >= 2**23 else 1


def transforming() -> bool:
    """Whether torch may see more in a tensor than its memory holds: a tangent, or the lines of vmap."""
    return forward_ad._current_level >= 0 or _are_transforms_active()


def are_vectors(*given: Any) -> bool:
    """Whether they are vectors on the CPU whose numbers lie next to each other; fake ones of a subclass have none."""
    if transforming():
        return False
    for each in given:  # noqa: SIM110  all() would take longer than the rest of some calls
        if not (type(each) is torch.Tensor and each.is_cpu and each.stride() == (1,)):
            return False
    return True
