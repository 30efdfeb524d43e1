"""Making ragged tensors: from rows, offsets, lengths, row ids, padded tensors, and views of packed data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from serrate.errors import AxisError, DeviceMismatchError, RaggednessError
from serrate.tensor import dense as padded
from serrate.tensor.layout import check_rows
from serrate.tensor.lists import read_nested
from serrate.tensor.partition import Partition
from serrate.tensor.structure import DENSE, Axis, Ragged, Structure
from serrate.tensor.tensor import Tensor


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
               [3., 4., 5.]], shape=(3, Ragged([2, 0, 3])), dtype=torch.float32)
    >>> sr.ragged([[[1, 2], [3, 4]], []], ragged_rank=1).shape
    (2, Ragged([2, 0]), 2)
    >>> sr.ragged([[1, 2, 3, 4, 5, 6, 7, 8], [1, 2, 3, 4], []], feature_size="gcd").values.shape
    torch.Size([3, 4])
    """
    values, partitions = read_nested(nested, ragged_rank, feature_size, dtype)
    axes: list[Axis] = [partitions[0].num_components]
    axes += [Ragged(p, range(i + 1)) for i, p in enumerate(partitions)]
    return Tensor(values if device is None else values.to(device), Structure(axes))


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
        return torch.as_tensor(np.asarray(row) if isinstance(row, np.ndarray) else row)
    except (TypeError, ValueError) as error:
        raise TypeError(f"row {i} must be a tensor, an array or a list of numbers, got {row!r:.80}") from error


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
    levels = list(offsets) if _is_levels(offsets) else [offsets]
    if not levels:
        raise RaggednessError("offsets must hold at least one level")
    partitions: list[Partition] = []
    wanted: int | None = packed.shape[0]
    for depth in reversed(range(len(levels))):
        partitions.insert(
            0, _level_partition(levels[depth], wanted, f"offsets of level {depth}", packed, validate, copy)
        )
        wanted = partitions[0].num_components
    axes: list[Axis] = [partitions[0].num_components]
    axes += [Ragged(p, range(i + 1)) for i, p in enumerate(partitions)]
    return Tensor(packed, Structure(axes).check())


def _level_partition(
    given: Any, wanted: int | None, name: str, values: torch.Tensor, validate: bool, copy: bool
) -> Partition:
    if isinstance(given, Partition):
        if not given.is_host_born and given.home != values.device:
            raise DeviceMismatchError(f"{name} lie on {given.home}, values on {values.device}")
        if wanted is not None and given.num_values != wanted:
            raise RaggednessError(f"{name} must cut {wanted} values, but cut {given.num_values}")
        return given
    if isinstance(given, torch.Tensor) and given.device != values.device:
        raise DeviceMismatchError(
            f"{name} lie on {given.device}, values on {values.device}; "
            f"move one of them, or pass a Partition made on the host"
        )
    return Partition.from_offsets(given, wanted, validate=validate, copy=copy, name=name)


def _is_levels(offsets: Any) -> bool:
    """Whether `offsets` is a list of levels and not itself a list of numbers."""
    if not isinstance(offsets, (list, tuple)):
        return False
    return not offsets or isinstance(offsets[0], (torch.Tensor, Partition, np.ndarray, list, tuple))


def from_lengths(values: Any, lengths: Any, *, validate: bool = True) -> Tensor:
    """Packed `values` cut into rows of these lengths (or a list of lengths per level, outermost first).

    >>> import torch, serrate as sr
    >>> sr.from_lengths(torch.arange(5), [2, 0, 3]).tolist()
    [[0, 1], [], [2, 3, 4]]
    """
    packed = _packed(values)
    levels = list(lengths) if _is_levels(lengths) and len(lengths) else [lengths]
    partitions: list[Partition] = []
    wanted: int = packed.shape[0]
    for depth in reversed(range(len(levels))):
        given = levels[depth]
        if isinstance(given, torch.Tensor) and given.device != packed.device:
            raise DeviceMismatchError(f"lengths of level {depth} lie on {given.device}, values on {packed.device}")
        partitions.insert(0, Partition.from_lengths(given, wanted, validate=validate, name=f"lengths of level {depth}"))
        wanted = partitions[0].num_components
    return from_offsets(packed, partitions)


def from_row_ids(values: Any, row_ids: Any, num_rows: int) -> Tensor:
    """Packed `values` where value i belongs to row `row_ids[i]`; the ids must never decrease.

    >>> import torch, serrate as sr
    >>> sr.from_row_ids(torch.arange(4), [0, 0, 2, 2], 3).tolist()
    [[0, 1], [], [2, 3]]
    """
    packed = _packed(values)
    if isinstance(row_ids, torch.Tensor) and row_ids.device != packed.device:
        raise DeviceMismatchError(f"row_ids lie on {row_ids.device}, values on {packed.device}")
    partition = Partition.from_row_ids(row_ids, num_rows)
    if partition.num_values != packed.shape[0]:
        raise RaggednessError(f"row_ids must have one entry per value, {packed.shape[0]}, got {partition.num_values}")
    return _one_level(packed, partition)


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
    structure = Structure((p.num_components, Ragged(p), Ragged(q))).check()
    check_rows(packed, structure)
    return Tensor(packed, structure)


def from_dense(
    dense: Any,
    *,
    lengths: Any = None,
    offsets: Any = None,
    mask: Any = None,
    like: Tensor | None = None,
    padding_value: Any = 0,
) -> Tensor:
    """A padded tensor packed: exactly one of `lengths`, `offsets`, `mask`, `like` says which entries are real.

    Rows longer than the padded extent read `padding_value` beyond it. A mask keeps its True entries in order; a tuple
    of masks cuts one level each, outermost first.

    >>> import torch, serrate as sr
    >>> d = torch.tensor([[1, 2, 0], [3, 0, 0]])
    >>> sr.from_dense(d, lengths=[2, 1]).tolist()
    [[1, 2], [3]]
    >>> sr.from_dense(d, mask=d != 2).tolist()
    [[1, 0], [3, 0, 0]]
    """
    given = [
        name
        for name, g in (("lengths", lengths), ("offsets", offsets), ("mask", mask), ("like", like))
        if g is not None
    ]
    if len(given) != 1:
        raise TypeError(
            f"from_dense needs exactly one of lengths, offsets, mask, like; got {' and '.join(given) or 'none'}"
        )
    full = dense.torch() if isinstance(dense, Tensor) else torch.as_tensor(dense)
    if like is not None:
        order = tuple(c for c in like.order if c < len(like.structure.axes))
        if order != like.order and full.ndim != like.ndim:
            raise RaggednessError(f"dense must have the {like.ndim} axes of like, got shape {list(full.shape)}")
        order = like.order if full.ndim == like.ndim else order
        return Tensor(padded.gather_from(full, like.structure, order, padding_value), like.structure, order)
    if mask is not None:
        return _from_masks(full, mask)
    levels = lengths if offsets is None else offsets
    levels = list(levels) if _is_levels(levels) and len(levels) else [levels]
    make = Partition.from_lengths if offsets is None else Partition.from_offsets
    what = "lengths" if offsets is None else "offsets"
    partitions = [
        level if isinstance(level, Partition) else make(level, name=f"{what} of level {i}")
        for i, level in enumerate(levels)
    ]
    axes: list[Axis] = [partitions[0].num_components]
    axes += [Ragged(p, range(i + 1)) for i, p in enumerate(partitions)]
    structure = Structure(axes).check()
    if full.ndim < len(axes):
        raise RaggednessError(
            f"dense must have at least {len(axes)} axes for {len(partitions)} levels, got {list(full.shape)}"
        )
    return Tensor(padded.gather_from(full, structure, tuple(range(full.ndim)), padding_value), structure)


def _from_masks(full: torch.Tensor, mask: Any) -> Tensor:
    masks = [
        m.torch() if isinstance(m, Tensor) else torch.as_tensor(m)
        for m in (mask if isinstance(mask, tuple) else (mask,))
    ]
    x = Tensor(full)
    for m in masks:
        if m.dtype != torch.bool:
            raise TypeError(f"mask must be boolean, got {m.dtype}")
        if m.ndim < 2 or tuple(m.shape) != tuple(full.shape[: m.ndim]):
            raise RaggednessError(f"mask must have the outer axes of dense, {list(full.shape)}, got {list(m.shape)}")
    structure: Structure = DENSE
    for m in masks:
        rows = m if structure is DENSE else padded.gather_from(m, structure, tuple(range(len(structure.axes))), False)
        depth = m.ndim - 1
        cells = rows.reshape(-1, rows.shape[-1])
        partition = Partition.from_lengths(cells.sum(1), name="mask")
        outer = structure.axes if structure is not DENSE else ()
        axes: list[Axis] = [*outer, *full.shape[len(outer) : depth], Ragged(partition, range(depth))]
        source = full if structure is DENSE else x.values
        flat = source.reshape(-1, *source.shape[rows.ndim :])
        kept = flat.index_select(0, rows.reshape(-1).nonzero().flatten())
        structure = Structure(axes).check()
        x = Tensor(kept, structure)
    return x


def view_as_nested(data: Any, offsets: Any, ragged_dim: int = 0, *, validate: bool = True, copy: bool = True) -> Tensor:
    """A view of `data` in which axis `ragged_dim` is cut: component axis at `ragged_dim`, ragged axis right behind it.

    1-D offsets cut alike for every outer index. Offsets `[outer…, K+1]` give each outer index a cut of its own.

    >>> import torch, serrate as sr
    >>> x = sr.view_as_nested(torch.zeros(325, 512), [0, 127, 127, 325])
    >>> x.shape
    (3, Ragged([127, 0, 198]), 512)
    >>> x.flat().values.shape
    torch.Size([325, 512])
    """
    source = data.torch() if isinstance(data, Tensor) else data
    if not isinstance(source, torch.Tensor):
        raise TypeError(f"data must be a tensor, got {type(data).__name__}")
    if not -source.ndim <= ragged_dim < source.ndim:
        raise AxisError(f"ragged_dim {ragged_dim} is out of range for data of shape {list(source.shape)}")
    k = ragged_dim % source.ndim
    size = source.shape[k]
    if not isinstance(offsets, (torch.Tensor, Partition)):
        offsets = torch.as_tensor(np.asarray(offsets)) if len(np.shape(offsets)) > 1 else offsets
    if not isinstance(offsets, torch.Tensor) or offsets.ndim <= 1:
        partition = _level_partition(offsets, size, "offsets of level 0", source, validate, copy)
        values = source.movedim(k, 0)
        structure = Structure((partition.num_components, Ragged(partition)))
        return Tensor(values, structure, (*range(2, k + 2), 0, 1, *range(k + 2, source.ndim + 1)))
    return _own_cut_each(source, offsets, k, validate)


def _own_cut_each(source: torch.Tensor, offsets: torch.Tensor, k: int, validate: bool) -> Tensor:
    """[outer…, N, …] with offsets [outer…, K+1]: shape [outer…, K, ragged, …], ragged on all axes before it."""
    outer, size = source.shape[:k], source.shape[k]
    if offsets.device != source.device:
        raise DeviceMismatchError(f"offsets lie on {offsets.device}, data on {source.device}")
    if offsets.shape[:-1] != outer or offsets.shape[-1] == 0:
        raise RaggednessError(
            f"offsets must be 1-D or [{', '.join(map(str, outer))}, K+1] for data of shape {list(source.shape)}, "
            f"got {list(offsets.shape)}"
        )
    components = offsets.shape[-1] - 1
    flat = offsets.reshape(-1, components + 1)
    if validate and offsets.device.type == "cpu":
        for i in _bad_cuts(flat, size):
            Partition.from_offsets(flat[i], size, name=f"offsets of outer index {i}")
    lengths = torch.diff(flat, dim=1).reshape(-1)
    partition = Partition.from_lengths(lengths, flat.shape[0] * size, validate=validate, name="lengths between offsets")
    partition.declare_groups(components, size)
    try:
        values = source.view(flat.shape[0] * size, *source.shape[k + 1 :]) if k else source
    except RuntimeError:
        raise ValueError(
            f"axes 0 … {k} of data, shape {list(source.shape)}, strides {source.stride()}, are not one contiguous run, "
            f"so no view with a cut for each outer index exists; pass data.contiguous()"
        ) from None
    return Tensor(values, Structure((*outer, components, Ragged(partition, range(k + 1)))))


def _bad_cuts(flat: torch.Tensor, size: int) -> list[int]:
    """The first outer index whose offsets are no cut of `size` values, if any."""
    bad = (flat[:, 0] != 0) | (flat[:, -1] != size) | (torch.diff(flat, dim=1) < 0).any(1)
    return bad.nonzero().flatten()[:1].tolist()


def asarray(obj: Any, /, *, dtype: torch.dtype | None = None, device: Any = None, copy: bool | None = None) -> Tensor:
    """A Tensor from a number, a (rectangular) nested list, a numpy array or a torch tensor; a Tensor stays one.

    >>> import serrate as sr
    >>> sr.asarray([[1, 2], [3, 4]]).shape
    (2, 2)
    """
    if isinstance(obj, Tensor):
        made = obj.to(dtype=dtype or obj.dtype, device=device or obj.device)
        return made.clone() if copy and made is obj else made
    values = torch.asarray(obj, dtype=dtype, device=device, copy=copy)
    return Tensor(values)


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """A dense Tensor over the memory of any object that speaks DLPack.

    >>> import numpy as np, serrate as sr
    >>> sr.from_dlpack(np.arange(3.0)).shape
    (3,)
    """
    values = torch.utils.dlpack.from_dlpack(x.values if isinstance(x, Tensor) else x)
    values = values if device is None else values.to(device)
    return Tensor(values.clone() if copy else values)


def _packed(values: Any) -> torch.Tensor:
    """`values` as a torch tensor with a packed first axis."""
    if isinstance(values, Tensor):
        values = values.torch()
    if not isinstance(values, torch.Tensor):
        values = torch.as_tensor(values)
    if values.ndim == 0:
        raise RaggednessError("values must have at least one axis, the packed one; got a 0-d tensor")
    return values  # type: ignore[no-any-return]


def _one_level(values: torch.Tensor, partition: Partition) -> Tensor:
    return Tensor(values, Structure((partition.num_components, Ragged(partition))))
