"""Convolution along a ragged axis: each row on its own, with zeros beyond its ends."""

from __future__ import annotations

from typing import Any

import torch

from serrate.eager.precision import for_products
from serrate.eager.taps import Taps, convolve
from serrate.errors import AxisError
from serrate.ops.record import BY_TORCH, operation, record
from serrate.tensor import abstract
from serrate.tensor.combine import zeroed
from serrate.tensor.layout import assemble
from serrate.tensor.partition import Partition
from serrate.tensor.structure import Ragged, Structure
from serrate.tensor.tensor import Tensor, as_tensor


@operation
def _conv1d(
    x: Any,
    weight: Any,
    bias: Any = None,
    /,
    *,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    tensor, kernel = as_tensor(x), as_tensor(weight).torch()
    offset = None if bias is None else as_tensor(bias).torch()
    if not tensor.is_ragged:
        made = torch.conv1d(tensor.values, kernel, offset, stride, padding, dilation, groups)
        return Tensor(made, team=tensor.team)
    step, apart = _one(stride, "stride"), _one(dilation, "dilation")
    _check(tensor, kernel, offset, groups, step, apart)
    values, kernel = for_products(tensor.values, kernel)
    reach = apart * (kernel.shape[2] - 1)
    before, after = _padding(padding, reach, step)
    old = tensor.structure.partition_of(1)
    new = _lengths(old, before + after - reach, step)
    structure = tensor.structure if new is old else Structure((len(tensor), Ragged(new)), new.num_values)
    taps = Taps(old, new, step, before, apart)
    shaped = kernel.reshape(groups, kernel.shape[0] // groups, *kernel.shape[1:])
    made = convolve(values, shaped, taps)
    made = zeroed(made if offset is None else made + offset.to(made.dtype), structure)
    return assemble(tensor, made, list(enumerate(structure.axes)), tensor.order, [2])


def _check(x: Tensor, kernel: torch.Tensor, bias: torch.Tensor | None, groups: int, step: int, apart: int) -> None:
    if x.ndim != 3 or x.order != (0, 2, 1) or len(x.structure.axes) != 2:
        raise AxisError(
            f"conv1d takes [batch, channels, sequence] with a ragged sequence, got shape {x.shape}; "
            f"x.mT turns [batch, sequence, channels] into it, a view"
        )
    channels = x.values.shape[1]
    fits = kernel.ndim == 3 and not abstract.differ(kernel.shape[1] * groups, channels)
    if not fits or kernel.shape[0] % groups or kernel.shape[2] == 0:
        raise ValueError(
            f"weight must be [out, {channels} / groups, size] with out a multiple of groups {groups}, "
            f"got {list(kernel.shape)}"
        )
    if bias is not None and abstract.unlike(bias.shape, kernel.shape[:1]):
        raise ValueError(f"bias must have an entry per output channel, {kernel.shape[0]}, got shape {list(bias.shape)}")
    dtypes = {x.dtype, kernel.dtype, *([] if bias is None else [bias.dtype])}
    if len(dtypes) > 1 and not torch.is_autocast_enabled(x.device.type):
        raise TypeError(f"conv1d needs operands of one dtype, got {', '.join(sorted(map(str, dtypes)))}")
    if step < 1 or apart < 1:
        raise ValueError(f"stride and dilation must be positive, got {step} and {apart}")


def _one(given: Any, name: str) -> int:
    if isinstance(given, (tuple, list)):
        if len(given) != 1:
            raise ValueError(f"{name} must be one number, got {given}")
        given = given[0]
    return int(given)


def _padding(given: Any, reach: int, step: int) -> tuple[int, int]:
    """Zeros before and after each row."""
    if given == "valid":
        return 0, 0
    if given == "same":
        if step != 1:
            raise ValueError("padding='same' needs stride 1")
        return reach // 2, reach - reach // 2
    if isinstance(given, str):
        raise ValueError(f"padding must be a number, 'same' or 'valid', got {given!r}")
    count = _one(given, "padding")
    if count < 0:
        raise ValueError(f"padding must be 0 or more, got {count}")
    return count, count


def _lengths(old: Partition, extra: int, step: int) -> Partition:
    """How long rows become; one too short for the kernel becomes empty, and an empty one stays so."""
    if step == 1 and extra == 0:
        return old
    lengths = old.lengths.to(torch.int64)
    made = torch.where((lengths > 0) & (lengths + extra > 0), (lengths + extra - 1) // step + 1, 0)
    capacity = (old.num_values + old.num_components * max(extra, 0)) // step + old.num_components
    return old.with_lengths(made, capacity=capacity)


def _answer(
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    return _conv1d(input, weight, bias, stride=stride, padding=padding, dilation=dilation, groups=groups)


record(
    "convolution",
    "conv1d",
    _conv1d,
    _answer,
    summary="Convolution of [batch, channels, sequence] along the sequence, each row on its own.",
    example=(
        "sr.conv1d(sr.ragged([[[1.], [2.]], [[3.]]], ragged_rank=1).mT, torch.ones(1, 1, 3), padding=1).tolist()",
        "[[[3.0, 3.0]], [[3.0]]]",
    ),
    torch=(torch.conv1d,),
    primitive="library",
    vjp=BY_TORCH,
    kinds=("float", "complex", "int"),
    samples=(
        "sr.from_offsets(x.values.flatten()[:, None], [0, 0, x.values.numel()]).mT, torch.ones(3, 1, 2, dtype=x.dtype)",
    ),
    errors=(
        ("x, torch.ones(1, 2, 3)", AxisError, r"x.mT turns \[batch, sequence, channels\] into it"),
        ("x.mT, torch.ones(1, 3, 3)", ValueError, r"weight must be \[out, 2 / groups, size\]"),
        ("x.mT, torch.ones(1, 2, 3), stride=0", ValueError, "must be positive"),
        ("x.mT, torch.ones(1, 2, 3), padding='same', stride=2", ValueError, "needs stride 1"),
    ),
)
