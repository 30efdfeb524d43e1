"""This module converts from and to Apache Arrow, without a copy if possible.

The types list and large_list become ragged axes, and fixed_size_list becomes a uniform axis.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from serrate.tensor.convert.chain import cells_of, from_levels, to_levels
from serrate.tensor.partition import Partition
from serrate.tensor.tracing import untraced

if TYPE_CHECKING:
    from serrate.tensor.tensor import Tensor


@untraced
def from_arrow(array: Any) -> Tensor:
    """Return a pyarrow list array as a Tensor over the same memory, which must not be written to.

    Booleans are copied, since Arrow stores them as bits.

    >>> import pyarrow as pa, serrate as sr
    >>> sr.from_arrow(pa.array([[1, 2], [], [3]])).tolist()
    [[1, 2], [], [3]]
    """
    import pyarrow as pa

    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if not isinstance(array, pa.Array):
        raise TypeError(f"from_arrow takes a pyarrow Array or ChunkedArray, got {type(array).__name__}")
    whole = array
    outermost = len(array)
    levels: list[int | Partition] = []
    while True:
        if array.null_count:
            position = array.is_null().index(True).as_py()
            raise TypeError(
                f"an Arrow array of type {whole.type} has a null at level {len(levels)}, "
                f"position {position}; fill it first"
            )
        kind = array.type
        if pa.types.is_list(kind) or pa.types.is_large_list(kind):
            offsets = array.offsets.to_numpy()
            inner = array.flatten()
            levels.append(_partition(offsets, len(inner)))
            array = inner
        elif pa.types.is_fixed_size_list(kind):
            levels.append(kind.list_size)
            array = array.flatten()
        else:
            return from_levels(outermost, levels, _leaf(array, whole.type))


def _partition(offsets: Any, total: int) -> Partition:
    first = int(offsets[0]) if len(offsets) else 0
    if len(offsets) == 0:
        offsets = np.zeros(1, np.int32)
    if first:
        return Partition.from_offsets(torch.from_numpy(offsets - first), total, copy=False)
    return Partition.from_offsets(offsets, total)


def _leaf(array: Any, whole: Any) -> torch.Tensor:
    import pyarrow as pa

    if pa.types.is_boolean(array.type):
        return torch.from_numpy(array.to_numpy(zero_copy_only=False).copy())
    if pa.types.is_null(array.type) and len(array) == 0:
        return torch.zeros(0)
    if not (pa.types.is_integer(array.type) or pa.types.is_floating(array.type)):
        raise TypeError(f"an Arrow array of type {whole} holds {array.type}; only lists of numbers become a Tensor")
    if len(array) == 0:
        return torch.from_numpy(array.to_numpy().copy())
    return torch.utils.dlpack.from_dlpack(array)


def to_arrow(x: Tensor) -> Any:
    """Return the tensor as an Arrow array.

    It shares the memory of the tensor if this lies on the CPU and stores its axes in the order of its shape.
    """
    import pyarrow as pa

    if x.ndim == 0:
        raise TypeError("an Arrow array needs at least one axis, got a 0-d tensor")
    outermost, levels, leaf = to_levels(x) if x.is_ragged else (x.values.shape[0], [], x.values)
    array = pa.array(_numpy(leaf).reshape(-1))
    counts = [int(n) for n in leaf.shape]
    for depth in reversed(range(1, leaf.ndim)):
        rows = int(np.prod(counts[:depth], dtype=np.int64))
        array = _fixed(array, counts[depth], rows)
    cells = cells_of(outermost, levels)
    for depth in reversed(range(len(levels))):
        level = levels[depth]
        if isinstance(level, int):
            array = _fixed(array, level, cells[depth])
            continue
        offsets = level.host_offsets("to_arrow()")
        make = pa.ListArray if offsets.dtype == torch.int32 else pa.LargeListArray
        array = make.from_arrays(pa.array(offsets.numpy()), array)
    return array


def _fixed(array: Any, size: int, rows: int) -> Any:
    import pyarrow as pa

    return pa.Array.from_buffers(pa.list_(array.type, size), rows, [None], children=[array])


def _numpy(values: torch.Tensor) -> Any:
    if values.dtype == torch.bfloat16 or values.is_complex():
        raise TypeError(f"Arrow has no {values.dtype}; convert the tensor first")
    return values.detach().cpu().contiguous().numpy()
