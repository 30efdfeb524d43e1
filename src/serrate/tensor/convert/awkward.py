"""This module converts from and to Awkward Array: list levels are ragged axes, and regular levels are uniform axes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from serrate.tensor.convert.chain import cells_of, from_levels, to_levels
from serrate.tensor.partition import Partition
from serrate.tensor.tracing import untraced

if TYPE_CHECKING:
    from serrate.tensor.tensor import Tensor


@untraced
def from_awkward(array: Any) -> Tensor:
    """Return an Awkward array of numbers as a Tensor; records, strings, unions and missing values are errors.

    >>> import awkward as ak, serrate as sr
    >>> sr.from_awkward(ak.Array([[1, 2], [], [3]])).shape
    (3, Ragged([2, 0, 1]))
    """
    import awkward as ak

    if not isinstance(array, ak.Array):
        raise TypeError(f"from_awkward takes an ak.Array, got {type(array).__name__}")
    layout = ak.to_packed(array).layout
    outermost = len(layout)
    levels: list[int | Partition] = []
    while True:
        kind = type(layout).__name__
        text = layout.parameter("__array__") in ("string", "bytestring", "char", "byte")
        if kind == "ListOffsetArray" and not text:
            levels.append(Partition.from_offsets(np.asarray(layout.offsets), len(layout.content)))
            layout = layout.content
        elif kind == "RegularArray" and not text:
            levels.append(int(layout.size))
            layout = layout.content
        elif kind == "NumpyArray" and not text:
            break
        elif kind == "EmptyArray":
            return from_levels(outermost, levels, torch.zeros(0))
        else:
            what = "strings" if text else kind
            raise TypeError(
                f"an Awkward array of type {array.type} holds {what}; only lists of numbers become a Tensor"
            )
    data = np.asarray(layout.data)
    if data.dtype.kind not in "biufc":
        raise TypeError(f"an Awkward array of {data.dtype} has no torch dtype")
    leaf = torch.from_numpy(data if data.flags.writeable else data.copy())
    return from_levels(outermost, levels, leaf)


def to_awkward(x: Tensor) -> Any:
    """Return the tensor as an Awkward array.

    It shares the memory of the tensor if this lies on the CPU and stores its axes in the order of its shape.
    """
    import awkward as ak

    outermost, levels, leaf = to_levels(x) if x.is_ragged else (0, [], x.values)
    cells = cells_of(outermost, levels)
    if leaf.ndim == 0:
        raise TypeError("an Awkward array needs at least one axis, got a 0-d tensor")
    array = _numpy(leaf)
    layout: Any = ak.contents.NumpyArray(array.reshape(-1))
    for depth in reversed(range(1, leaf.ndim)):
        layout = ak.contents.RegularArray(layout, leaf.shape[depth], zeros_length=math.prod(leaf.shape[:depth]))
    for depth in reversed(range(len(levels))):
        level = levels[depth]
        if isinstance(level, Partition):
            layout = ak.contents.ListOffsetArray(ak.index.Index(_numpy(level.host_offsets("to_awkward()"))), layout)
        else:
            layout = ak.contents.RegularArray(layout, level, zeros_length=cells[depth])
    return ak.Array(layout)


def _numpy(values: torch.Tensor) -> Any:
    if values.dtype == torch.bfloat16:
        raise TypeError("Awkward has no bfloat16; convert with .to(torch.float32) first")
    return values.detach().cpu().contiguous().numpy()
