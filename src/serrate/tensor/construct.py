"""Making ragged tensors: from rows, offsets, lengths, row ids, padded tensors, and views of packed data."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from serrate.errors import DeviceMismatchError, OffsetsDeviceError, RaggednessError
from serrate.tensor import abstract, promotion, regions
from serrate.tensor.layout import check_rows
from serrate.tensor.lists import read_nested
from serrate.tensor.partition import Partition
from serrate.tensor.structure import Axis, Ragged, Structure
from serrate.tensor.tensor import Tensor
from serrate.tensor.tracing import untraced


@untraced
def ragged(
    nested: Any,
    ragged_rank: int | None = None,
    *,
    feature_size: int | str | None = None,
    dtype: torch.dtype | None = None,
    device: Any = None,
) -> Tensor:
    """A ragged tensor from nested lists: every inner list level is ragged, or the first `ragged_rank` of them.

    `feature_size` cuts the innermost level into dense rows of that many numbers ("gcd": the greatest that fits all).

    >>> import serrate as sr
    >>> sr.ragged([[1., 2.], [], [3., 4., 5.]])
    sr.Tensor([[1., 2.],
               [],
               [3., 4., 5.]], shape=(3, Ragged([2, 0, 3])), dtype=torch.float32, device='cpu')
    >>> sr.ragged([[[1, 2], [3, 4]], []], ragged_rank=1).shape
    (2, Ragged([2, 0]), 2)
    >>> sr.ragged([[1, 2, 3, 4, 5, 6, 7, 8], [1, 2, 3, 4], []], feature_size="gcd").values.shape
    torch.Size([3, 4])
    """
    place = regions.default() if device is None else device
    if place is not None and isinstance(nested, (list, tuple)) and _holds_tensors(nested):
        place = device  # tensors stay where they are
    values, partitions = read_nested(nested, ragged_rank, feature_size, dtype)
    axes: list[Axis] = [partitions[0].num_components]
    axes += [Ragged(p, range(i + 1)) for i, p in enumerate(partitions)]
    return Tensor(values if place is None else values.to(place), Structure(axes))


@untraced
def from_rows(rows: Sequence[Any]) -> Tensor:
    """A batch of rows: tensors or arrays `[L_i, …]` that differ in their first size; Tensors nest one level deeper.

    >>> import torch, serrate as sr
    >>> sr.from_rows([torch.ones(2, 4), torch.ones(0, 4), torch.ones(3, 4)]).shape
    (3, Ragged([2, 0, 3]), 4)
    """
    if not isinstance(rows, Sequence):
        rows = list(rows)
    if not rows:
        raise ValueError("from_rows needs at least one row to know dtype and features; use from_lengths for none")
    if any(isinstance(row, Tensor) and row.is_ragged for row in rows):
        from serrate.tensor.join import nest

        return nest([row if isinstance(row, Tensor) else Tensor(_dense_row(row, i)) for i, row in enumerate(rows)])
    tensors = [_dense_row(row, i) for i, row in enumerate(rows)]
    first = tensors[0]
    for i, row in enumerate(tensors):
        if row.ndim == 0:
            raise RaggednessError(f"row {i} must have at least one axis, got a 0-d tensor")
        if row.shape[1:] != first.shape[1:]:
            raise RaggednessError(
                f"rows may differ in their first size only, but row 0 has shape {list(first.shape)} "
                f"and row {i} {list(row.shape)}"
            )
        if row.dtype != first.dtype:
            raise TypeError(f"rows must share one dtype, but row 0 has {first.dtype} and row {i} {row.dtype}")
        if row.device != first.device:
            raise DeviceMismatchError(
                f"rows must share one device, but row 0 lies on {first.device} and row {i} on {row.device}"
            )
    partition = Partition.from_lengths([row.shape[0] for row in tensors])
    return _one_level(torch.cat(tensors), partition)


def _dense_row(row: Any, i: int) -> torch.Tensor:
    if isinstance(row, Tensor):
        return row.values
    if isinstance(row, torch.Tensor):
        return row
    try:
        return torch.as_tensor(row)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"row {i} must be a tensor, an array or a list of numbers, got {row!r:.80}") from error


@untraced
def from_offsets(values: Any, offsets: Any, *, validate: bool = True, copy: bool = True) -> Tensor:
    """Packed `values` cut by offsets: one vector of K+1 entries, a Partition, or a list of them, outermost first.

    Each level must fit the next: `offsets[i][-1] == len(offsets[i + 1]) - 1`, and the last level ends where values end.

    >>> import torch, serrate as sr
    >>> x = sr.from_offsets(torch.arange(10), [0, 3, 8, 10])
    >>> x.tolist()
    [[0, 1, 2], [3, 4, 5, 6, 7], [8, 9]]
    >>> sr.from_offsets(torch.arange(3), [[0, 2, 2], [0, 1, 3]]).tolist()
    [[[0], [1, 2]], []]
    """
    packed = _packed(values)
    levels = list(offsets) if is_levels(offsets) else [offsets]
    if not levels:
        raise RaggednessError("offsets must hold at least one level")
    partitions: list[Partition] = []
    wanted, cuts = packed.shape[0], "values"
    for depth in reversed(range(len(levels))):
        name = f"offsets of level {depth}"
        partitions.insert(0, level_partition(levels[depth], wanted, name, packed, validate, copy, cuts))
        wanted, cuts = partitions[0].num_components, f"rows of level {depth}"
    axes: list[Axis] = [partitions[0].num_components]
    axes += [Ragged(p, range(i + 1)) for i, p in enumerate(partitions)]
    return Tensor(packed, Structure(axes).check())


def level_partition(
    given: Any, wanted: int, name: str, values: torch.Tensor, validate: bool, copy: bool, cuts: str = "values"
) -> Partition:
    """One level of offsets, which must cut `wanted` cells and lie with `values`, as a partition."""
    given = as_torch(given)
    if isinstance(given, Partition):
        if not given.is_host_born and given.home != values.device:
            raise OffsetsDeviceError(f"{name} lie on {given.home}, values on {values.device}")
        if given.num_values != wanted:
            raise RaggednessError(f"{name} must cut {wanted} {cuts}, but cut {given.num_values}")
        return given
    if isinstance(given, torch.Tensor) and given.device != values.device:
        raise OffsetsDeviceError(
            f"{name} lie on {given.device}, values on {values.device}; "
            f"move one of them, or pass a Partition made on the host"
        )
    return Partition.from_offsets(given, wanted, validate=validate, copy=copy, name=name, cuts=cuts)


def is_levels(offsets: Any) -> bool:
    """Whether `offsets` is a list of levels and not itself a list of numbers."""
    if not isinstance(offsets, (list, tuple)):
        return False
    return not offsets or isinstance(offsets[0], (torch.Tensor, Tensor, Partition, np.ndarray, list, tuple))


def as_torch(given: Any) -> Any:
    """A dense Tensor as a torch tensor; anything else as it is."""
    return given.torch() if isinstance(given, Tensor) else given


@untraced
def from_lengths(values: Any, lengths: Any, *, validate: bool = True) -> Tensor:
    """Packed `values` cut into rows of these lengths (or a list of lengths per level, outermost first).

    >>> import torch, serrate as sr
    >>> sr.from_lengths(torch.arange(5), [2, 0, 3]).tolist()
    [[0, 1], [], [2, 3, 4]]
    """
    packed = _packed(values)
    levels = list(lengths) if is_levels(lengths) and len(lengths) else [lengths]
    partitions: list[Partition] = []
    wanted: int = packed.shape[0]
    for depth in reversed(range(len(levels))):
        given = as_torch(levels[depth])
        if isinstance(given, torch.Tensor) and given.device != packed.device:
            raise OffsetsDeviceError(f"lengths of level {depth} lie on {given.device}, values on {packed.device}")
        partitions.insert(0, Partition.from_lengths(given, wanted, validate=validate, name=f"lengths of level {depth}"))
        wanted = partitions[0].num_components
    return from_offsets(packed, partitions)


@untraced
def from_row_ids(values: Any, row_ids: Any, num_rows: int) -> Tensor:
    """Packed `values` where value i belongs to row `row_ids[i]`; the ids must never decrease.

    >>> import torch, serrate as sr
    >>> sr.from_row_ids(torch.arange(4), [0, 0, 2, 2], 3).tolist()
    [[0, 1], [], [2, 3]]
    """
    packed, row_ids = _packed(values), as_torch(row_ids)
    if isinstance(row_ids, torch.Tensor) and row_ids.device != packed.device:
        raise OffsetsDeviceError(f"row_ids lie on {row_ids.device}, values on {packed.device}")
    partition = Partition.from_row_ids(row_ids, num_rows)
    if abstract.differ(partition.num_values, packed.shape[0]):
        raise RaggednessError(f"row_ids must have one entry per value, {packed.shape[0]}, got {partition.num_values}")
    return _one_level(packed, partition)


@untraced
def from_product(values: Any, p: Partition, q: Partition) -> Tensor:
    """Packed blocks, component c a `len_p[c] × len_q[c]` one: shape `[K, p, q, …]`, both ragged on the first axis.

    >>> import torch, serrate as sr
    >>> p, q = sr.Partition.from_lengths([2, 1]), sr.Partition.from_lengths([3, 0])
    >>> sr.from_product(torch.arange(6), p, q).tolist()
    [[[0, 1, 2], [3, 4, 5]], [[]]]
    """
    packed = _packed(values)
    for name, given in (("p", p), ("q", q)):
        if not isinstance(given, Partition):
            raise TypeError(f"{name} must be a Partition, got {type(given).__name__}")
    if p.num_components != q.num_components:
        raise RaggednessError(f"p and q must have as many components, got {p.num_components} and {q.num_components}")
    return Tensor(packed, check_rows(packed, (p.num_components, Ragged(p), Ragged(q))))


@untraced
def asarray(obj: Any, /, *, dtype: torch.dtype | None = None, device: Any = None, copy: bool | None = None) -> Tensor:
    """A Tensor from a number, a (rectangular) nested list, a buffer, an array or a torch tensor; a Tensor stays one.

    Memory is shared where it can be, unless `copy=True`; `copy=False` is a ValueError where it cannot. Without `device`
    the memory of arrays and buffers stays where it is, and other data go where `sr.zeros` would make a tensor.

    >>> import serrate as sr
    >>> sr.asarray([[1, 2], [3, 4]]).shape
    (2, 2)
    """
    given = _shared(obj, copy)
    if given is not None:
        if dtype not in (None, torch.bool):
            promotion.require_whole(given.dtype, dtype)
        made = given.to(dtype=dtype or given.dtype, device=device or given.device)
        if copy is False and made.values is not given.values:
            raise ValueError(
                f"{given.dtype} on {given.device} cannot become {made.dtype} on {made.device} without a copy"
            )
        return made.clone() if copy and made.values is given.values else made
    if copy is False:
        raise ValueError(f"{type(obj).__name__} cannot become a tensor without a copy")
    if obj is None:
        raise TypeError("asarray takes numbers, nested lists, buffers, arrays and tensors, got None")
    if isinstance(obj, (list, tuple)) and _holds_tensors(obj):
        return asarray(_stacked(obj), dtype=dtype, device=device)
    place = regions.default() if device is None else device
    try:
        return Tensor(torch.asarray(obj, dtype=dtype, device=place))
    except TypeError:
        if dtype not in promotion.WIDE:  # torch turns floats into integers of the other types.
            raise
        return Tensor(torch.asarray(obj, device=place).to(dtype))
    except ValueError as error:
        if "expected sequence" not in str(error):
            raise
        raise RaggednessError(
            f"asarray takes rectangular data; sr.ragged takes rows of different length ({error})"
        ) from None


def _holds_tensors(nested: Any) -> bool:
    return next(_tensors_in(nested), None) is not None


def _tensors_in(nested: Any) -> Iterator[Tensor | torch.Tensor]:
    for entry in nested:
        if isinstance(entry, (Tensor, torch.Tensor)):
            yield entry
        elif isinstance(entry, (list, tuple)):
            yield from _tensors_in(entry)


def _stacked(obj: Any) -> Tensor:
    """A Tensor of nested lists that hold Tensors and numbers, which lie where the first Tensor does."""
    place = next(_tensors_in(obj)).device
    parts = [asarray(entry, device=None if _holds_tensors([entry]) else place).torch() for entry in obj]
    shapes = {tuple(part.shape) for part in parts}
    if len(shapes) > 1:
        raise RaggednessError(f"asarray takes rectangular data; sr.stack takes ragged tensors; got shapes {shapes}")
    dtype = functools.reduce(promotion.promote, [part.dtype for part in parts])
    return Tensor(torch.stack([part.to(dtype) for part in parts]))


def _shared(obj: Any, copy: bool | None) -> Tensor | None:
    """A Tensor over the memory of `obj`, as far as that can be; None for numbers and lists, which have none."""
    if isinstance(obj, Tensor):
        return obj
    if isinstance(obj, torch.Tensor):
        return Tensor(obj)
    if isinstance(obj, (bool, int, float, complex, list, tuple, range, np.generic)):
        return None
    if not isinstance(obj, np.ndarray):
        if hasattr(obj, "__dlpack__"):
            return from_dlpack(obj)
        try:
            obj = np.asarray(memoryview(obj))
        except TypeError:
            return None
    if not obj.flags.writeable or min(obj.strides, default=0) < 0 or not obj.dtype.isnative:
        if copy is False:
            raise ValueError("an array that is read-only, reversed or of foreign byte order needs a copy")
        obj = obj.astype(obj.dtype.newbyteorder("="), order="C", copy=True)
    return Tensor(torch.from_numpy(obj))


@untraced
def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """A dense Tensor over the memory of any object that speaks DLPack; `copy=False` is a BufferError if it cannot be.

    >>> import numpy as np, serrate as sr
    >>> sr.from_dlpack(np.arange(3.0)).shape
    (3,)
    """
    reversed_copy = None if isinstance(x, (Tensor, torch.Tensor)) else _unreversed(x)
    if reversed_copy is not None and copy is False:
        raise BufferError("an array with a negative stride needs a copy")
    given = torch.utils.dlpack.from_dlpack(x) if reversed_copy is None else reversed_copy
    values = given if device is None else given.to(device)
    if copy is False and values is not given:
        raise BufferError(f"a tensor on {given.device} cannot be on {values.device} without a copy")
    return Tensor(values.clone() if copy and values is given and reversed_copy is None else values)


def _unreversed(x: Any) -> torch.Tensor | None:
    """A copy of a host array with a negative stride, since torch would end the process; None for any other array."""
    if int(x.__dlpack_device__()[0]) != 1:
        return None
    try:
        found = np.from_dlpack(x)
    except (BufferError, TypeError, RuntimeError, ValueError):  # numpy lacks this dtype.
        return None
    return torch.from_numpy(found.copy()) if min(found.strides, default=0) < 0 else None


def _packed(values: Any) -> torch.Tensor:
    """`values` as a torch tensor with a packed first axis."""
    values = as_torch(values)
    if not isinstance(values, torch.Tensor):
        try:
            values = torch.as_tensor(values)
        except (TypeError, ValueError, RuntimeError):
            raise TypeError(f"values must be a tensor or an array of numbers, got {values!r:.80}") from None
    if values.ndim == 0:
        raise RaggednessError("values must have at least one axis, the packed one; got a 0-d tensor")
    return values  # type: ignore[no-any-return]


def _one_level(values: torch.Tensor, partition: Partition) -> Tensor:
    return Tensor(values, Structure((partition.num_components, Ragged(partition))))
