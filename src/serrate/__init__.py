"""Serrate: ragged tensors for Python, packed from the file to the kernel.

>>> import serrate as sr
>>> x = sr.ragged([[1., 2.], [], [3., 4., 5.]])
>>> x.lengths
(tensor([2, 0, 3]),)
"""

import importlib as _importlib
from math import e, inf, nan, pi
from typing import Any as _Any

from torch import (
    bool,
    complex64,
    complex128,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)

from serrate import errors, fft, linalg, memory, testing
from serrate.compiler import explain, jit
from serrate.inspection import __array_api_version__, __array_namespace_info__, newaxis
from serrate.ops import random
from serrate.ops.dtypes import can_cast, finfo, iinfo, isdtype, result_type
from serrate.ops.grouping import Grouped
from serrate.ops.hooks import register_full_backward_hook, register_full_backward_pre_hook
from serrate.ops.operators import attach, public
from serrate.tensor.broadcast import broadcast_shapes
from serrate.tensor.collate import collate
from serrate.tensor.construct import (
    asarray,
    from_dlpack,
    from_rows,
    ragged,
)
from serrate.tensor.convert.arrow import from_arrow
from serrate.tensor.convert.awkward import from_awkward
from serrate.tensor.convert.fbgemm import from_jagged, to_jagged
from serrate.tensor.convert.nested import from_nested
from serrate.tensor.convert.packed_sequence import from_packed_sequence
from serrate.tensor.convert.torchrec import from_jt, from_kjt, to_jt, to_kjt
from serrate.tensor.partition import Partition
from serrate.tensor.regions import device_region
from serrate.tensor.structure import Ragged
from serrate.tensor.tensor import Tensor
from serrate.tensor.trees import register

register(Tensor)
attach()
globals().update(public())  # the operations, from their table

__version__ = "0.1.0"

_OF_TABLES = {"Table": "Table", "TableWriter": "TableWriter", "open": "open_table"}
"""The public names of `serrate.table`, and what they are called there."""


def __getattr__(name: str) -> _Any:
    """Load tables when one of their names is first used: programs without tables start sooner."""
    if name == "table" or name in _OF_TABLES:
        table = _importlib.import_module("serrate.table")
        globals().update({public: getattr(table, own) for public, own in _OF_TABLES.items()})
        return globals()[name]
    raise AttributeError(f"module 'serrate' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


__all__ = [
    *public(),
    "Grouped",
    "Partition",
    "Ragged",
    "Table",
    "TableWriter",
    "Tensor",
    "__array_api_version__",
    "__array_namespace_info__",
    "asarray",
    "bool",
    "broadcast_shapes",
    "can_cast",
    "collate",
    "complex128",
    "complex64",
    "device_region",
    "e",
    "errors",
    "explain",
    "fft",
    "finfo",
    "float32",
    "float64",
    "from_arrow",
    "from_awkward",
    "from_dlpack",
    "from_jagged",
    "from_jt",
    "from_kjt",
    "from_nested",
    "from_packed_sequence",
    "from_rows",
    "iinfo",
    "inf",
    "int16",
    "int32",
    "int64",
    "int8",
    "isdtype",
    "jit",
    "linalg",
    "memory",
    "nan",
    "newaxis",
    "open",
    "pi",
    "ragged",
    "random",
    "register_full_backward_hook",
    "register_full_backward_pre_hook",
    "result_type",
    "testing",
    "to_jagged",
    "to_jt",
    "to_kjt",
    "uint16",
    "uint32",
    "uint64",
    "uint8",
]
