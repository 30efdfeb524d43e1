"""C++ sources of this folder as functions, one for each signature that is asked for."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from serrate.errors import CompileError

POINTER, SIZE, SMALL = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32
Routines = Mapping[str, Callable[..., int]]


def load(name: str, signatures: Mapping[str, Sequence[type]], flags: Sequence[str] = ()) -> Routines | None:
    """The functions `serrate_…` of a source, which all give an int64 or nothing; None where it cannot be compiled."""
    from serrate.runtime.compiler import compile

    source = Path(__file__).with_name(name).read_text(encoding="utf-8")
    try:
        library = ctypes.CDLL(str(compile(source, flags=flags).path))
    except (CompileError, OSError):
        return None
    made: dict[str, Callable[..., int]] = {}
    for function, arguments in signatures.items():
        routine = library[f"serrate_{function}"]
        routine.restype, routine.argtypes = SIZE, list(arguments)
        made[function] = routine
    return made


def plain(values: torch.Tensor) -> torch.Tensor:
    """`values` as their memory holds them: contiguous, no conjugate or negative view."""
    if values.is_complex() or values.is_neg():
        values = values.resolve_conj().resolve_neg()
    return values.contiguous()


def threads_for(work: int) -> int:
    """How many threads so much work, in bytes or multiplications, is worth: those of a busy machine start late."""
    return torch.get_num_threads() if work >= 2**23 else 1


def is_vector(given: Any) -> bool:
    """Whether it is a contiguous vector on the CPU."""
    return isinstance(given, torch.Tensor) and given.ndim == 1 and given.is_cpu and given.is_contiguous()
