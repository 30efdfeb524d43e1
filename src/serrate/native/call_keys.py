"""Keys of calls, by call_keys.cpp: what the arguments of a call are, read in one pass."""

from __future__ import annotations

import ctypes
import sysconfig
from collections.abc import Callable
from typing import Any

import torch

from serrate.native.loading import library_with
from serrate.tensor.structure import DENSE, Structure
from serrate.tensor.tensor import Tensor

KeyOf = Callable[[tuple[Any, ...], dict[str, Any]], tuple[Any, list[Any]] | None]
CONSTANTS = (type(None), bool, str, bytes, torch.dtype, torch.device, type(Ellipsis))
"""Classes whose objects count by their value."""


def key_function(signature_of: Callable[[Structure], tuple[Any, tuple[Any, ...]]]) -> KeyOf | None:
    """Return a function that gives the key of the arguments of a call, and the tensors among them.

    Keys are equal if the arguments have the same kinds, dtypes, devices and feature sizes, share partitions in the same
    way, and are equal constants. Sizes of first axes do not count, but for 1 and those of parameters. The function
    gives None for arguments that it does not know. `signature_of` says what counts of a structure, and its partitions.

    There is no such function where Python had no headers when the library was built, or torch is older than 2.10.
    """
    exchange = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    if exchange is None or sysconfig.get_config_var("Py_GIL_DISABLED"):
        return None
    path = library_with("call_keys.cpp")
    library = None if path is None else ctypes.PyDLL(str(path))
    if library is None or not hasattr(library, "serrate_call_keys"):
        return None
    library.serrate_call_keys.argtypes = [ctypes.py_object] * 7
    library.serrate_call_keys.restype = ctypes.py_object
    made: KeyOf | None = library.serrate_call_keys(
        exchange, torch.Tensor, torch.nn.Parameter, Tensor, DENSE, signature_of, CONSTANTS
    )
    return made
