"""Pickling: how tensors travel between processes and into files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from serrate.errors import RaggednessError
from serrate.tensor.layout import check_rows
from serrate.tensor.partition import Partition
from serrate.tensor.structure import Ragged

if TYPE_CHECKING:
    from serrate.tensor.tensor import Tensor


def reduce(x: Tensor) -> tuple[Any, ...]:
    """What pickle stores: partitions as objects of their own, so tensors pickled together go on sharing them."""
    axes = tuple((a.partition, a.parents) if isinstance(a, Ragged) else a for a in x.structure.axes)
    return rebuild, ("tensor", x.values, axes, x.order)


def rebuild(kind: str, *state: Any) -> Any:
    """Make a pickled Partition or Tensor again, checking it as if a user had handed it in.

    The only function a pickle of ours calls, so `torch.load(weights_only=True)` needs to trust nothing else.
    """
    if kind == "partition":
        return _rebuild_partition(*state)
    if kind == "tensor":
        return _rebuild_tensor(*state)
    if kind == "ragged":
        return Ragged(*state)
    raise RaggednessError(f"a pickled object must be a partition, a ragged axis or a tensor, got {kind!r:.40}")


def _rebuild_partition(offsets: Any, num_values: Any, device_born: Any, exact: Any, uniform_length: Any) -> Partition:
    if not isinstance(offsets, torch.Tensor) or not isinstance(num_values, int):
        raise RaggednessError("a pickled partition must hold an offsets tensor and a number of values")
    on_device = offsets.device.type != "cpu"
    made = Partition.from_offsets(offsets, num_values if exact or on_device else None, copy=False)
    if device_born:
        if not on_device and made.num_values > num_values:
            raise RaggednessError(
                f"a pickled partition cuts {made.num_values} values, more than its capacity {num_values}"
            )
        made = Partition._of(made.offsets, num_values, device_born=True, exact=bool(exact))
    if uniform_length is not None:
        declared = Partition.uniform(made.num_components, int(uniform_length), dtype=made.dtype)
        if not declared.same_as(made):
            raise RaggednessError(f"a pickled partition declares the length {uniform_length}, but its offsets differ")
        made = declared
    return made


def _rebuild_tensor(values: Any, axes: Any, order: Any) -> Tensor:
    from serrate.tensor.tensor import Tensor

    if not isinstance(values, torch.Tensor) or not isinstance(axes, tuple) or not isinstance(order, tuple):
        raise RaggednessError("a pickled tensor must hold values, axes and an order")
    if not axes:
        return Tensor(values)
    structure = check_rows(values, [a if isinstance(a, int) else Ragged(*a) for a in axes], spare=True)
    if sorted(order) != list(range(len(axes) + values.ndim - 1)):
        raise RaggednessError(f"a pickled tensor's order must name each of its axes once, got {order}")
    return Tensor(values, structure, order)


torch.serialization.add_safe_globals([rebuild])  # `torch.load(weights_only=True)` may call these.
