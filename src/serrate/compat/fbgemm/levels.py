"""This module reads and checks the offsets that FBGEMM's functions take, and makes partitions and tensors of them.

Unlike elsewhere in Serrate, the last level may end before the values do. The values past its end belong to no
component: functions that return padded tensors leave them out, and functions that return packed values keep a place
for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from serrate.errors import OffsetsDeviceError, RaggednessError
from serrate.native import padded as library
from serrate.tensor import host
from serrate.tensor.offsets import as_count, as_index_vector, check_offsets
from serrate.tensor.partition import Partition
from serrate.tensor.structure import Axis, Ragged, Structure
from serrate.tensor.tensor import Tensor

Levels = tuple[Partition, ...]


def levels_of(offsets: Any, values: torch.Tensor, rows: int | None, name: str = "offsets") -> Levels:
    """Return a list of offsets, outermost level first, as partitions of `rows` rows.

    If `rows` is None, the last offset is the number of rows. Offsets must lie on the device of `values`. Offsets on the
    CPU are checked now; if offsets on a device are wrong, a later call raises the error.
    """
    if not isinstance(offsets, (list, tuple)) or not offsets:
        what = "an empty list" if isinstance(offsets, (list, tuple)) else f"a {type(offsets).__name__}"
        raise TypeError(f"{name} must be a list of offsets, one for each jagged dimension, got {what}")
    made = [level_of(offsets[-1], values, rows, f"{name}[{len(offsets) - 1}]")]
    for number in reversed(range(len(offsets) - 1)):
        inner = made[0].num_components
        made.insert(0, _level(offsets[number], values, inner, f"{name}[{number}]", f"rows of {name}[{number + 1}]"))
    return tuple(made)


def only(offsets: Any) -> Any:
    """Return the only entry of a list of one entry, unchecked; None for any other list."""
    return offsets[0] if isinstance(offsets, (list, tuple)) and len(offsets) == 1 else None


def level_of(offsets: Any, values: torch.Tensor, rows: int | None, name: str) -> Partition:
    """Return one level that cuts `rows` rows; the last rows may belong to no component."""
    return _level(offsets, values, rows, name, None)


def _level(given: Any, values: torch.Tensor, rows: int | None, name: str, cuts: str | None) -> Partition:
    """Check offsets and return their partition; if `cuts` names what they cut, they must cut all `rows` of it."""
    if not isinstance(given, torch.Tensor):
        raise TypeError(f"{name} must be a tensor of offsets, got a {type(given).__name__}")
    offsets = as_index_vector(given, name)
    if not offsets.numel():
        raise RaggednessError(f"{name} must have one entry more than there are rows, so at least 1; got none")
    if offsets.device != values.device:
        raise OffsetsDeviceError(f"{name} lie on {offsets.device}, but values lie on {values.device}")
    if offsets.device.type != "cpu":
        return _device_level(offsets, rows, name, cuts)
    total = library.total(offsets)
    if total is None:
        check_offsets(offsets, None, name, "rows")  # raises an error if the offsets are wrong
        total = int(offsets[-1])
    if rows is not None and (total > rows or (cuts is not None and total != rows)):
        raise RaggednessError(
            f"{name} must end with {'at most ' if cuts is None else ''}{rows}, the number of {cuts or 'rows'}, "
            f"but position {offsets.numel() - 1} holds {total}"
        )
    return Partition._of(offsets, total)


def _device_level(offsets: torch.Tensor, rows: int | None, name: str, cuts: str | None) -> Partition:
    if cuts is not None or rows is None:
        return Partition.from_offsets(offsets, rows, copy=False, name=name, cuts=cuts or "rows")
    safe = offsets.clamp(0, rows).cummax(0).values
    bad = offsets != safe
    bad[0] |= offsets[0] != 0

    def error(i: int) -> RaggednessError:
        return RaggednessError(
            f"{name} must start with 0, never decrease and end with at most {rows}, the number of rows, but position "
            f"{i} holds {int(offsets[i])}"
        )

    host.raise_deferred()
    host.defer(host.first_fault(bad), error)
    return Partition._of(safe, rows, device_born=True, exact=False)


def structure_of(*levels: Partition) -> Structure:
    """Return the structure whose ragged axes these levels cut."""
    axes: list[Axis] = [levels[0].num_components, *(Ragged(p, range(i + 1)) for i, p in enumerate(levels))]
    return Structure(axes)


def tensor_of(values: torch.Tensor, *levels: Partition) -> Tensor:
    """Return the rows of `values` that belong to a component as a tensor, cut by the levels."""
    rows = levels[-1].num_values
    return Tensor(values if values.shape[0] == rows else values[:rows], structure_of(*levels))


def packed(values: Any, name: str, axes: int | None = None) -> torch.Tensor:
    """Return `values` if it is a tensor with a packed first axis, and with `axes` axes if a number is given."""
    if not isinstance(values, torch.Tensor):
        raise TypeError(f"{name} must be a tensor, got a {type(values).__name__}")
    if values.ndim == 0:
        raise ValueError(f"{name} must have at least one axis, the packed one; got a 0-d tensor")
    if axes is not None and values.ndim != axes:
        raise ValueError(f"{name} must have {axes} axes, got shape {list(values.shape)}")
    return values


def sizes_of(given: Any, levels: Levels, name: str) -> list[int]:
    """Return the padded size of each level as a list of integers."""
    if not isinstance(given, Sequence) or isinstance(given, str) or len(given) != len(levels):
        raise ValueError(f"{name} must have one entry for each jagged dimension, {len(levels)}, got {given!r:.80}")
    return [as_count(size, name) for size in given]
