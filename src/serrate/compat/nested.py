"""This module offers the functions of torch.nested with their signatures; they return `sr.Tensor`.

A program that uses torch.nested needs only another import line.

>>> import torch
>>> from serrate.compat import nested
>>> nested.nested_tensor([torch.ones(2, 4), torch.ones(3, 4)], layout=torch.jagged).shape
(2, Ragged([2, 3]), 4)
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from serrate.errors import AxisError, DeviceMismatchError, OffsetsDeviceError, RaggednessError
from serrate.tensor import host
from serrate.tensor.convert.nested import from_nested
from serrate.tensor.layout import check_rows
from serrate.tensor.partition import Partition
from serrate.tensor.structure import Axis, Ragged
from serrate.tensor.tensor import Tensor, as_tensor
from serrate.tensor.unpad import from_dense

_INTEGERS = (torch.int32, torch.int64, torch.int16, torch.int8, torch.uint8)

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
    """Return a new tensor without history, made of a list of tensors or of anything that `torch.as_tensor` takes.

    Each axis in which the entries differ is ragged; if they differ in none, the first axis after the batch is ragged.
    The jagged layout allows one ragged axis, as in torch; other layouts allow any number.

    >>> import torch
    >>> nested_tensor([torch.ones(2, 5), torch.ones(3, 4)]).shape
    (2, Ragged([2, 3]), Ragged([5, 4]))
    """
    with torch.no_grad():
        made = _from_list([_entry(entry) for entry in _rows_given(tensor_list)], dtype, device, layout)
    made = made.pin_memory() if pin_memory else made
    return made.requires_grad_() if requires_grad else made


def as_nested_tensor(
    ts: Any, dtype: torch.dtype | None = None, device: Any = None, layout: torch.layout | None = None
) -> Tensor:
    """Return a tensor of a list of tensors or of a dense `[batch, length, …]` tensor; gradients flow back to these.

    A ragged tensor of this library is returned with its values, and a nested tensor of torch is converted.

    >>> import torch
    >>> as_nested_tensor(torch.ones(2, 3)).shape
    (2, Ragged([3, 3]))
    """
    _require_layout(layout)
    ts = _ours(ts)
    if isinstance(ts, Tensor) and ts.is_ragged:
        return ts.to(dtype=dtype or ts.dtype, device=device or ts.device)
    if isinstance(ts, (torch.Tensor, Tensor)):
        full = as_tensor(ts).torch()
        if full.ndim < 2:
            raise AxisError(f"a dense tensor must be [batch, length, …], got shape {list(full.shape)}")
        full = full.to(dtype=dtype or full.dtype, device=device or full.device)
        return _rows_of(full.flatten(0, 1), Partition.uniform(full.shape[0], full.shape[1]), 1)
    if not isinstance(ts, (list, tuple)):
        raise TypeError(f"as_nested_tensor takes a tensor or a list of tensors, got {type(ts).__name__}")
    wrong = next((entry for entry in ts if not isinstance(entry, (torch.Tensor, Tensor))), None)
    if wrong is not None:
        raise TypeError(
            f"as_nested_tensor takes a tensor or a list of tensors, but an entry is a {type(wrong).__name__}"
        )
    return _from_list([_entry(entry) for entry in ts], dtype, device, layout)


def nested_tensor_from_jagged(
    values: torch.Tensor,
    offsets: torch.Tensor | None = None,
    lengths: torch.Tensor | None = None,
    jagged_dim: int | None = None,
    min_seqlen: int | None = None,
    max_seqlen: int | None = None,
) -> Tensor:
    """Return packed values, cut by offsets or by lengths; `jagged_dim` is the ragged axis of the result.

    If both are given, rows start at the offsets and have these lengths; the values between rows are left out, and the
    others are copied. No row may be shorter than `min_seqlen` or longer than `max_seqlen`.

    >>> import torch
    >>> nested_tensor_from_jagged(torch.arange(6), torch.tensor([0, 2, 3, 6]), torch.tensor([1, 1, 2])).tolist()
    [[0], [2], [3, 4]]
    """
    if offsets is None and lengths is None:
        raise ValueError("nested_tensor_from_jagged needs offsets or lengths, got neither")
    if not isinstance(values, torch.Tensor) or values.is_nested:
        raise TypeError(f"values must be a dense torch.Tensor, got {values!r:.60}")
    axis = 1 if jagged_dim is None else _as_int(jagged_dim, "jagged_dim")
    if not 1 <= axis <= values.ndim:
        raise AxisError(f"jagged_dim must be 1 … {values.ndim} for values of shape {list(values.shape)}, got {axis}")
    shortest = None if min_seqlen is None else _as_int(min_seqlen, "min_seqlen")
    longest = None if max_seqlen is None else _as_int(max_seqlen, "max_seqlen")
    offsets = None if offsets is None else _numbers(offsets, values, "offsets")
    lengths = None if lengths is None else _numbers(lengths, values, "lengths")
    packed = values.movedim(axis - 1, 0)
    if offsets is None:
        partition = Partition.from_lengths(lengths, packed.shape[0])
    elif lengths is None:
        partition = Partition.from_offsets(offsets, packed.shape[0], max_length_bound=longest)
    else:
        packed, partition = _with_holes(packed, offsets, lengths)
    _check_lengths(partition, shortest, longest)
    return _rows_of(packed, partition, axis)


def narrow(tensor: torch.Tensor, dim: int, start: Any, length: Any, layout: torch.layout = torch.strided) -> Tensor:
    """Return `length` entries from `start` on, along `dim`, of each row of a dense `[batch, …]` tensor.

    If `dim` is 1, `start` and `length` may be tensors of one number for each row. The entries are copied.

    >>> import torch
    >>> narrow(torch.arange(6).view(2, 3), 1, torch.tensor([0, 2]), torch.tensor([2, 1]), layout=torch.jagged).tolist()
    [[0, 1], [5]]
    """
    full = _dense(tensor, "narrow")
    _require_layout(layout)
    if full.ndim < 2 or not -full.ndim <= dim < full.ndim:
        raise AxisError(f"narrow takes an axis of a dense [batch, length, …] tensor, got {dim} of {list(full.shape)}")
    by_row = isinstance(start, torch.Tensor) or isinstance(length, torch.Tensor)
    if dim % full.ndim != 1:
        if by_row:
            raise AxisError(f"a start or length for each row needs dim=1, got dim={dim}")
        return as_nested_tensor(full.narrow(dim, start, length))
    size = full.shape[1]
    starts, lengths = _within(_per_row(start, full, "start"), _per_row(length, full, "length"), size)
    partition = Partition.from_lengths(lengths)
    first = torch.arange(full.shape[0], device=full.device) * size + starts
    return _rows_of(_take(full.flatten(0, 1), first, partition), partition, 1)


def masked_select(tensor: torch.Tensor, mask: torch.Tensor) -> Tensor:
    """Return the entries of a dense tensor where the mask is true, each in its row: the last axis becomes ragged.

    >>> import torch
    >>> masked_select(torch.arange(4).view(2, 2), torch.tensor([[True, False], [True, True]])).tolist()
    [[0], [2, 3]]
    """
    full = _dense(tensor, "masked_select")
    kept = _dense(mask, "masked_select").expand(full.shape)
    if full.ndim == 0:
        raise AxisError("masked_select takes a tensor of at least one axis, got a 0-d tensor")
    return from_dense(full[None], mask=kept[None]) if full.ndim == 1 else from_dense(full, mask=kept)


def to_padded_tensor(
    input: Any, padding: float, output_size: Sequence[int] | None = None, out: torch.Tensor | None = None
) -> torch.Tensor:
    """Return a dense torch tensor: ragged axes are padded to their longest row, or all axes to `output_size`.

    >>> import torch
    >>> to_padded_tensor(nested_tensor([torch.ones(1), torch.ones(2)]), 0.0)
    tensor([[1., 0.],
            [1., 1.]])
    """
    x = as_tensor(_ours(input))
    if output_size is None:
        made = x.to_dense(padding).torch()
    else:
        made = _padded_to(x, padding, [_as_int(size, "a size of output_size") for size in output_size])
    if out is None:
        return made
    return out.resize_(made.shape).copy_(made)


# ---------------------------------------------------------------------------------------------------------- helpers


def _ours(given: Any) -> Any:
    """Convert a nested tensor of torch; return anything else as it is."""
    return from_nested(given) if isinstance(given, torch.Tensor) and given.is_nested else given


def _dense(given: Any, name: str) -> torch.Tensor:
    given = _ours(given)
    if isinstance(given, Tensor) and given.is_ragged:
        raise TypeError(f"{name} takes a dense tensor, got a ragged one of shape {given.shape}")
    return as_tensor(given).torch()


def _rows_given(given: Any) -> Any:
    """Return the rows of a ragged or nested tensor; return anything else as it is."""
    given = _ours(given)
    return given.rows() if isinstance(given, Tensor) and given.is_ragged else given


def _entry(given: Any) -> torch.Tensor:
    given = _ours(given)
    if isinstance(given, Tensor) and given.is_ragged:
        raise TypeError(f"entries of a nested tensor must be dense, got a ragged one of shape {given.shape}")
    return given.torch() if isinstance(given, Tensor) else torch.as_tensor(given)


def _as_int(given: Any, name: str) -> int:
    if isinstance(given, bool) or not hasattr(given, "__index__"):
        raise TypeError(f"{name} must be an integer, got {given!r:.60}")
    return operator.index(given)


def _numbers(given: Any, values: torch.Tensor, name: str) -> torch.Tensor:
    """Return offsets or lengths, which must be a vector of integers on the device of the values."""
    if not isinstance(given, torch.Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(given).__name__}")
    if given.device != values.device:
        raise OffsetsDeviceError(f"{name} lie on {given.device}, but values lie on {values.device}")
    if given.dtype not in _INTEGERS:
        raise TypeError(f"{name} must be integers, got {given.dtype}")
    if given.ndim != 1:
        raise RaggednessError(f"{name} must be a vector, got shape {list(given.shape)}")
    return given


def _require_layout(layout: Any) -> None:
    if layout not in (None, torch.strided, torch.jagged):
        raise ValueError(f"layout must be torch.jagged or torch.strided, got {layout}")


def _from_list(entries: list[torch.Tensor], dtype: Any, device: Any, layout: Any) -> Tensor:
    """Pack entries that have the same number of axes; the axes in which they differ are ragged on the batch axis."""
    _require_layout(layout)
    _require_alike(entries)
    first = entries[0]
    sizes = [[entry.shape[d] for entry in entries] for d in range(first.ndim)]
    differ = [d for d, of_entries in enumerate(sizes) if len(set(of_entries)) > 1] or [0]
    if layout is torch.jagged and len(differ) > 1:
        raise RaggednessError(
            f"the jagged layout has one ragged axis, but entries differ in axes {differ}; for several, give no layout"
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
                f"{list(first.shape)} and entry {i} has shape {list(entry.shape)}"
            )
        if entry.dtype != first.dtype:
            raise TypeError(
                f"entries must share one dtype, but entry 0 has {first.dtype} and entry {i} has {entry.dtype}"
            )
        if entry.device != first.device:
            raise DeviceMismatchError(
                f"entries must share one device, but entry 0 lies on {first.device} and entry {i} "
                f"lies on {entry.device}"
            )


def _rows_of(packed: torch.Tensor, partition: Partition, axis: int) -> Tensor:
    """Return packed values `[N, …]` as a tensor `[batch, …]` whose ragged axis is `axis`."""
    order = (0, *range(2, axis + 1), 1, *range(axis + 1, packed.ndim + 1))
    return Tensor(packed, check_rows(packed, (partition.num_components, Ragged(partition))), order)


def _with_holes(packed: torch.Tensor, offsets: torch.Tensor, lengths: torch.Tensor) -> tuple[torch.Tensor, Partition]:
    """Pack rows that start at `offsets` and have `lengths` entries, without the entries between them."""
    if lengths.shape != (offsets.numel() - 1,):
        raise RaggednessError(
            f"there must be one length fewer than offsets, got {list(lengths.shape)} and {list(offsets.shape)}"
        )
    room = torch.diff(offsets)

    def error(i: int) -> RaggednessError:
        return RaggednessError(
            f"row {i} has {int(lengths[i])} entries, but the next row starts {int(room[i])} entries after its start"
        )

    starts, lengths = _within(offsets[:-1].to(torch.int64), lengths.to(torch.int64), packed.shape[0])
    host.defer(host.first_fault(lengths > room), error)
    partition = Partition.from_lengths(lengths)
    return _take(packed, starts, partition), partition


def _take(packed: torch.Tensor, starts: torch.Tensor, partition: Partition) -> torch.Tensor:
    """Return the values of rows that begin at `starts`, one row after another."""
    return packed.index_select(0, partition.spread(starts) + partition.positions_on(packed.device))


def _within(starts: torch.Tensor, lengths: torch.Tensor, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the starts and lengths of rows, clamped to `size` entries.

    The first row that does not lie in these entries is an error; for data on a device a later call raises it.
    """

    def error(i: int) -> RaggednessError:
        return RaggednessError(
            f"rows must lie within {size} entries, but row {i} starts at {int(starts[i])} and has {int(lengths[i])}"
        )

    host.defer(host.first_fault((starts < 0) | (lengths < 0) | (lengths > size) | (starts > size - lengths)), error)
    inside = starts.clamp(0, size)
    return inside, torch.minimum(lengths.clamp(min=0), size - inside)


def _check_lengths(partition: Partition, shortest: int | None, longest: int | None) -> None:
    """Raise an error for the first row that is too short or too long; for data on a device a later call raises it."""
    if shortest is None and longest is None:
        return
    lengths = partition.lengths
    least, most = shortest or 0, partition.num_values if longest is None else longest

    def error(i: int) -> RaggednessError:
        return RaggednessError(
            f"rows must have min_seqlen={shortest} to max_seqlen={longest} entries, but row {i} has {int(lengths[i])}"
        )

    host.defer(host.first_fault((lengths < least) | (lengths > most)), error)


def _per_row(given: Any, full: torch.Tensor, name: str) -> torch.Tensor:
    """Return one int64 number for each row."""
    made = torch.as_tensor(given, device=full.device)
    if made.is_floating_point() or made.dtype == torch.bool:
        raise TypeError(f"{name} must be integers, got {made.dtype}")
    if made.ndim > 1 or made.numel() not in (1, full.shape[0]):
        raise RaggednessError(
            f"{name} must be one number, or one for each of the {full.shape[0]} rows, got shape {list(made.shape)}"
        )
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
