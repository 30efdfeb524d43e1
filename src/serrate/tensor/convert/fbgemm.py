"""This module converts from and to the jagged tensors of FBGEMM, which are (values, [offsets], [max lengths])."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from serrate.errors import RaggednessError
from serrate.tensor.combine import exact
from serrate.tensor.construct import from_offsets
from serrate.tensor.tensor import Tensor
from serrate.tensor.tracing import untraced


@untraced
def from_jagged(values: torch.Tensor, offsets: Sequence[Any], max_lengths: Sequence[int] | None = None) -> Tensor:
    """Return (values, [offsets], [max lengths]) of FBGEMM as a Tensor.

    Max lengths that are less than the longest row would cut values off, so they are an error.

    >>> import torch, serrate as sr
    >>> sr.from_jagged(torch.arange(6.).view(3, 2), [torch.tensor([0, 2, 3])], [2]).shape
    (2, Ragged([2, 1]), 2)
    """
    x = from_offsets(values, [offsets] if isinstance(offsets, torch.Tensor) else list(offsets))
    if max_lengths is not None:
        if len(max_lengths) != len(x.partitions):
            raise RaggednessError(
                f"max_lengths must have one entry per level, {len(x.partitions)}, got {list(max_lengths)}"
            )
        for level, (given, p) in enumerate(zip(max_lengths, x.partitions, strict=True)):
            if p.is_host_born and p.max_length > given:
                raise RaggednessError(
                    f"level {level} has a row of {p.max_length} entries, more than its max length {given}; "
                    f"cut it with x.to_dense(max_lengths=…) or x[:, :{given}]"
                )
    return x


@untraced
def to_jagged(x: Tensor) -> tuple[torch.Tensor, list[torch.Tensor], list[int]]:
    """Return (values, [offsets], [max lengths]) as FBGEMM's operators take them: 2-D values, and outer levels first.

    >>> import serrate as sr
    >>> values, offsets, max_lengths = sr.to_jagged(sr.ragged([[1., 2.], [], [3.]]))
    >>> values.shape, offsets, max_lengths
    (torch.Size([3, 1]), [tensor([0, 2, 2, 3])], [2])
    """
    if not x.is_ragged or not x.structure.is_chain or x.order != tuple(range(x.ndim)):
        raise RaggednessError(f"FBGEMM holds [B, ragged, …, features] with nested levels only, got shape {x.shape}")
    if len(x.partitions) != len(x.structure.axes) - 1:
        raise RaggednessError(f"FBGEMM has no uniform axes between ragged ones, got shape {x.shape}")
    x = exact(x)
    values = (
        x.values
        if x.values.ndim == 2
        else x.values.reshape(x.values.shape[0], x.values[:1].numel() if x.values.ndim > 1 else 1)
    )
    return values, list(x.offsets), list(x.max_lengths)
