"""torch.nested's functions, with its signatures, giving `sr.Tensor`: change the import line.

>>> import torch
>>> from serrate.compat import nested
>>> nested.nested_tensor([torch.ones(2, 4), torch.ones(3, 4)], layout=torch.jagged).shape
(2, Ragged([2, 3]), 4)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from serrate.errors import AxisError, DeviceMismatchError, OffsetsDeviceError, RaggednessError
from serrate.tensor import host
from serrate.tensor.layout import check_rows
from serrate.tensor.partition import Partition
from serrate.tensor.structure import Axis, Ragged
from serrate.tensor.tensor import Tensor, as_tensor
from serrate.tensor.unpad import from_dense

__all__ = [
    "as_nested_tensor",
    "masked_select",
    "narrow",
    "nested_tensor",
    "nested_tensor_from_jagged",
    "to_padded_tensor",
]


def nested_tensor(
    tensor_list: Sequence[Any],
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """A new tensor without history from a list of tensors or of what `torch.as_tensor` takes.

    Each axis in which the entries differ is ragged, and the first behind the batch if none do; the jagged layout, as in
    torch, takes one such axis, any other as many as there are.

    >>> import torch
    >>> nested_tensor([torch.ones(2, 5), torch.ones(3, 4)]).shape
    (2, Ragged([2, 3]), Ragged([5, 4]))
    """
    with torch.no_grad():
        made = _from_list([torch.as_tensor(entry) for entry in tensor_list], dtype, device, layout)
    made = made.pin_memory() if pin_memory else made
    return made.requires_grad_() if requires_grad else made


def as_nested_tensor(
    ts: Any, dtype: torch.dtype | None = None, device: Any = None, layout: torch.layout | None = None
) -> Tensor:
    """A tensor that keeps the history of what it is made from: a list of tensors, or a dense `[batch, length, …]` one.

    >>> import torch
    >>> as_nested_tensor(torch.ones(2, 3)).shape
    (2, Ragged([3, 3]))
    """
    if isinstance(ts, Tensor) and ts.is_ragged:
        return ts.to(dtype=dtype or ts.dtype, device=device or ts.device)
    if isinstance(ts, (torch.Tensor, Tensor)):
        _require_layout(layout)
        full = as_tensor(ts).torch()
        if full.ndim < 2:
            raise AxisError(f"a dense tensor must be [batch, length, …], got shape {list(full.shape)}")
        full = full.to(dtype=dtype or full.dtype, device=device or full.device)
        return _rows_of(full.flatten(0, 1), Partition.uniform(full.shape[0], full.shape[1]), 1)
    if not isinstance(ts, (list, tuple)) or not all(isinstance(t, torch.Tensor) for t in ts):
        raise TypeError(f"as_nested_tensor takes a tensor or a list of tensors, got {type(ts).__name__}")
    return _from_list(list(ts), dtype, device, layout)


def nested_tensor_from_jagged(
    values: torch.Tensor,
    offsets: torch.Tensor | None = None,
    lengths: torch.Tensor | None = None,
    jagged_dim: int | None = None,
    min_seqlen: int | None = None,
    max_seqlen: int | None = None,
) -> Tensor:
    """Packed values cut by offsets or lengths; `jagged_dim` is the axis of the result that is ragged.

    With both, rows start at the offsets and have these lengths: what lies between is left out (a copy).
    `min_seqlen` and `max_seqlen` must be true where the host can see.

    >>> import torch
    >>> nested_tensor_from_jagged(torch.arange(6), torch.tensor([0, 2, 3, 6]), torch.tensor([1, 1, 2])).tolist()
    [[0], [2], [3, 4]]
    """
    if offsets is None and lengths is None:
        raise ValueError("nested_tensor_from_jagged needs offsets or lengths, got neither")
    axis = 1 if jagged_dim is None else jagged_dim
    if not 1 <= axis <= values.ndim:
        raise AxisError(f"jagged_dim must be 1 … {values.ndim} for values of shape {list(values.shape)}, got {axis}")
    for name, given in (("offsets", offsets), ("lengths", lengths)):
        if given is not None and given.device != values.device:
            raise OffsetsDeviceError(f"{name} lie on {given.device}, values on {values.device}")
    packed = values.movedim(axis - 1, 0)
    if offsets is None:
        partition = Partition.from_lengths(lengths, packed.shape[0])
    elif lengths is None:
        partition = Partition.from_offsets(offsets, packed.shape[0], max_length_bound=max_seqlen)
    else:
        packed, partition = _with_holes(packed, offsets, lengths)
    _check_lengths(partition, min_seqlen, max_seqlen)
    return _rows_of(packed, partition, axis)


def narrow(tensor: torch.Tensor, dim: int, start: Any, length: Any, layout: torch.layout = torch.strided) -> Tensor:
    """Of each row of a dense `[batch, …]` tensor `length` entries from `start` on, along `dim`.

    Along axis 1 both may be tensors, one number per row; a copy.

    >>> import torch
    >>> narrow(torch.arange(6).view(2, 3), 1, torch.tensor([0, 2]), torch.tensor([2, 1]), layout=torch.jagged).tolist()
    [[0, 1], [5]]
    """
    full = as_tensor(tensor).torch()
    _require_layout(layout)
    if full.ndim < 2 or not -full.ndim <= dim < full.ndim:
        raise AxisError(f"narrow takes an axis of a dense [batch, length, …] tensor, got {dim} of {list(full.shape)}")
    by_row = isinstance(start, torch.Tensor) or isinstance(length, torch.Tensor)
    if dim % full.ndim != 1:
        if by_row:
            raise AxisError(f"a start or length for each row goes with dim=1, got dim={dim}")
        return as_nested_tensor(full.narrow(dim, start, length))
    size = full.shape[1]
    starts, lengths = _within(_per_row(start, full, "start"), _per_row(length, full, "length"), size)
    partition = Partition.from_lengths(lengths)
    first = torch.arange(full.shape[0], device=full.device) * size + starts
    return _rows_of(_take(full.flatten(0, 1), first, partition), partition, 1)


def masked_select(tensor: torch.Tensor, mask: torch.Tensor) -> Tensor:
    """The entries of a dense tensor where the mask holds, in the rows they stood in: the last axis becomes ragged.

    >>> import torch
    >>> masked_select(torch.arange(4).view(2, 2), torch.tensor([[True, False], [True, True]])).tolist()
    [[0], [2, 3]]
    """
    full = as_tensor(tensor).torch()
    kept = as_tensor(mask).torch().expand(full.shape)
    if full.ndim == 0:
        raise AxisError("masked_select takes a tensor of at least one axis, got a 0-d tensor")
    return from_dense(full[None], mask=kept[None]) if full.ndim == 1 else from_dense(full, mask=kept)


def to_padded_tensor(
    input: Any, padding: float, output_size: Sequence[int] | None = None, out: torch.Tensor | None = None
) -> torch.Tensor:
    """A dense torch tensor: ragged axes padded to their longest row, all axes to `output_size` if given.

    >>> import torch
    >>> to_padded_tensor(nested_tensor([torch.ones(1), torch.ones(2)]), 0.0)
    tensor([[1., 0.],
            [1., 1.]])
    """
    x = as_tensor(input)
    if output_size is None:
        made = x.to_dense(padding).torch()
    else:
        made = _padded_to(x, padding, [int(size) for size in output_size])
    if out is None:
        return made
    return out.resize_(made.shape).copy_(made)


# ---------------------------------------------------------------------------------------------------------- inside


def _require_layout(layout: Any) -> None:
    if layout not in (None, torch.strided, torch.jagged):
        raise ValueError(f"layout must be torch.jagged or torch.strided, got {layout}")


def _from_list(entries: list[torch.Tensor], dtype: Any, device: Any, layout: Any) -> Tensor:
    """Entries of one number of axes, packed; the axes in which they differ are ragged, all on the batch."""
    _require_layout(layout)
    _require_alike(entries)
    first = entries[0]
    sizes = [[entry.shape[d] for entry in entries] for d in range(first.ndim)]
    differ = [d for d, of_entries in enumerate(sizes) if len(set(of_entries)) > 1] or [0]
    if layout is torch.jagged and len(differ) > 1:
        raise RaggednessError(
            f"the jagged layout has one ragged axis, but entries differ in axes {differ}; leave layout out for several"
        )
    axes: list[Axis] = [len(entries), *[Ragged(Partition.from_lengths(sizes[d])) for d in differ]]
    uniform = [d for d in range(first.ndim) if d not in differ]
    rows = [entry.permute(*differ, *uniform).flatten(0, len(differ) - 1) for entry in entries]
    values = torch.cat(rows).to(dtype=dtype or first.dtype, device=device or first.device)
    canonical = [*differ, *uniform]
    order = (0, *[canonical.index(d) + 1 for d in range(first.ndim)])
    return Tensor(values, check_rows(values, axes), order)


def _require_alike(entries: list[torch.Tensor]) -> None:
    if not entries:
        raise ValueError("a nested tensor needs at least one entry to know dtype and axes")
    first = entries[0]
    for i, entry in enumerate(entries):
        if entry.ndim == 0 or entry.ndim != first.ndim:
            raise RaggednessError(
                f"entries must have the same number of axes, at least one, but entry 0 has shape "
                f"{list(first.shape)} and entry {i} {list(entry.shape)}"
            )
        if entry.dtype != first.dtype:
            raise TypeError(f"entries must share one dtype, but entry 0 has {first.dtype} and entry {i} {entry.dtype}")
        if entry.device != first.device:
            raise DeviceMismatchError(
                f"entries must share one device, but entry 0 lies on {first.device} and entry {i} on {entry.device}"
            )


def _rows_of(packed: torch.Tensor, partition: Partition, axis: int) -> Tensor:
    """Packed values `[N, …]` as `[batch, …]` with the ragged axis at `axis`."""
    order = (0, *range(2, axis + 1), 1, *range(axis + 1, packed.ndim + 1))
    return Tensor(packed, check_rows(packed, (partition.num_components, Ragged(partition))), order)


def _with_holes(packed: torch.Tensor, offsets: torch.Tensor, lengths: torch.Tensor) -> tuple[torch.Tensor, Partition]:
    """Rows that start at offsets and have lengths of their own, packed without what lies between them."""
    if offsets.ndim != 1 or lengths.shape != (offsets.numel() - 1,):
        raise RaggednessError(
            f"there must be one length less than offsets, got {list(lengths.shape)} and {list(offsets.shape)}"
        )
    starts, lengths = _within(offsets[:-1].to(torch.int64), lengths, packed.shape[0])
    partition = Partition.from_lengths(lengths)
    return _take(packed, starts, partition), partition


def _take(packed: torch.Tensor, starts: torch.Tensor, partition: Partition) -> torch.Tensor:
    """The values of rows that start anywhere, one row after another."""
    return packed.index_select(0, partition.spread(starts) + partition.positions_on(packed.device))


def _within(starts: torch.Tensor, lengths: torch.Tensor, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows that must lie in `size` entries: an error for the first that does not, for device data by a later call."""

    def error(i: int) -> RaggednessError:
        return RaggednessError(
            f"rows must lie within {size} entries, but row {i} starts at {int(starts[i])} and has {int(lengths[i])}"
        )

    host.defer(host.first_fault((starts < 0) | (lengths < 0) | (starts + lengths > size)), error)
    inside = starts.clamp(0, size)
    return inside, torch.minimum(lengths.clamp(min=0), size - inside)


def _check_lengths(partition: Partition, shortest: int | None, longest: int | None) -> None:
    if not partition.is_host_born or not partition.num_components:
        return
    lengths = partition.lengths
    if longest is not None and partition.max_length > longest:
        raise RaggednessError(f"max_seqlen is {longest}, but the longest row has {partition.max_length} entries")
    if shortest is not None and int(lengths.min()) < shortest:
        raise RaggednessError(f"min_seqlen is {shortest}, but the shortest row has {int(lengths.min())} entries")


def _per_row(given: Any, full: torch.Tensor, name: str) -> torch.Tensor:
    """A number for each row."""
    made = torch.as_tensor(given, device=full.device)
    if made.is_floating_point() or made.dtype == torch.bool:
        raise TypeError(f"{name} must be integers, got {made.dtype}")
    if made.ndim > 1 or made.numel() not in (1, full.shape[0]):
        raise RaggednessError(f"{name} must be a number or {full.shape[0]} of them, got shape {list(made.shape)}")
    return made.to(torch.int64).expand(full.shape[0])


def _padded_to(x: Tensor, padding: float, sizes: list[int]) -> torch.Tensor:
    if len(sizes) != x.ndim:
        raise ValueError(f"output_size must have a size for each of the {x.ndim} axes of {x.shape}, got {sizes}")
    ragged = [axis for axis, size in enumerate(x.shape) if isinstance(size, Ragged)]
    least = [size.partition.max_length if isinstance(size, Ragged) else size for size in x.shape]
    if any(there > size for there, size in zip(least, sizes, strict=True)):
        raise ValueError(f"output_size must not be smaller than the padded shape {least}, got {sizes}")
    full = x.to_dense(padding, [sizes[axis] for axis in ragged], ragged).torch()
    more = [size - there for there, size in zip(full.shape, sizes, strict=True)]
    return F.pad(full, [n for size in reversed(more) for n in (0, size)], value=padding) if any(more) else full
