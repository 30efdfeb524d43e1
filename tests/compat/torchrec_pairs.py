"""Random jagged and keyed jagged tensors, ours and TorchRec's made from the same numbers, and their comparison."""

from __future__ import annotations

from typing import Any

import torch
from torchrec.sparse import jagged_tensor as real

from serrate.compat import torchrec as ours

KEYS = ["user", "item", "tag"]


def random_jagged(
    rows: int, *, weighted: bool, dtype: torch.dtype = torch.int64, features: tuple[int, ...] = (), seed: int = 0
) -> tuple[Any, Any]:
    """The same JaggedTensor twice, ours first."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(0, 4, (rows,), generator=generator).to(dtype)
    values = torch.randn(int(lengths.sum()), *features, generator=generator)
    weights = torch.rand(int(lengths.sum()), generator=generator) if weighted else None
    return ours.JaggedTensor(values, weights, lengths), real.JaggedTensor(values, weights, lengths)


def random_keyed(
    batch: int,
    *,
    keys: list[str] = KEYS,
    weighted: bool = False,
    dtype: torch.dtype = torch.int64,
    values_dtype: torch.dtype = torch.int64,
    strides: list[list[int]] | None = None,
    inverse: Any = None,
    seed: int = 0,
) -> tuple[Any, Any]:
    """The same KeyedJaggedTensor twice, ours first; ids below 10."""
    generator = torch.Generator().manual_seed(seed)
    rows = batch * len(keys) if strides is None else sum(map(sum, strides))
    lengths = torch.randint(0, 4, (rows,), generator=generator).to(dtype)
    values = torch.randint(0, 10, (int(lengths.sum()),), generator=generator).to(values_dtype)
    weights = torch.rand(len(values), generator=generator) if weighted else None
    options = {"lengths": lengths, "stride_per_key_per_rank": strides, "inverse_indices": inverse}
    return tuple(kind.KeyedJaggedTensor(keys, values, weights, **options) for kind in (ours, real))


def same(one: Any, other: Any) -> None:
    """Numbers, dtypes and lists that both libraries give must be equal."""
    if isinstance(other, torch.Tensor):
        torch.testing.assert_close(one, other, rtol=0, atol=0)
    elif isinstance(other, (list, tuple)):
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            same(a, b)
    elif isinstance(other, dict):
        assert list(one) == list(other)
        same(list(one.values()), list(other.values()))
    elif isinstance(other, real.JaggedTensor):
        same_jagged(one, other)
    elif isinstance(other, real.KeyedJaggedTensor):
        same_keyed(one, other)
    else:
        assert one == other


def same_jagged(one: Any, other: Any) -> None:
    assert type(one) is ours.JaggedTensor
    for name in ("values", "weights_or_none", "lengths", "offsets", "device", "to_dense", "to_dense_weights"):
        same(getattr(one, name)(), getattr(other, name)())


LISTS = (
    "keys",
    "stride",
    "stride_per_key",
    "stride_per_key_per_rank",
    "variable_stride_per_key",
    "length_per_key",
    "offset_per_key",
    "lengths_offset_per_key",
    "index_per_key",
    "device",
)


def same_keyed(one: Any, other: Any) -> None:
    assert type(one) is ours.KeyedJaggedTensor
    for name in ("values", "weights_or_none", "lengths", *LISTS):
        same(getattr(one, name)(), getattr(other, name)())
    if other.keys():
        same(one.offsets(), other.offsets())
    same(one.to_dict(), other.to_dict())
