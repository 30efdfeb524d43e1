"""sr.collate makes a batch of samples: rows of different lengths become one ragged tensor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import default_collate

from serrate.tensor.construct import from_rows
from serrate.tensor.tensor import Tensor
from serrate.tensor.tracing import untraced


@untraced
def collate(samples: Sequence[Any]) -> Any:
    """A batch from samples, for `DataLoader(collate_fn=sr.collate)`.

    Tensors and arrays with at least one axis, and lists of numbers, become ragged along their first axis; numbers and
    0-d tensors a dense tensor. Dicts, tuples and named tuples are batched entry by entry.

    >>> import torch, serrate as sr
    >>> batch = sr.collate([{"ids": torch.tensor([1, 2]), "label": 0}, {"ids": torch.tensor([3]), "label": 1}])
    >>> batch["ids"].tolist(), batch["label"]
    ([[1, 2], [3]], tensor([0, 1]))
    """
    if not samples:
        raise ValueError("collate needs at least one sample")
    first = samples[0]
    odd = next((i for i, sample in enumerate(samples) if _kind(sample) is not _kind(first)), None)
    if odd is not None:
        raise TypeError(f"sample 0 is a {type(first).__name__}, sample {odd} a {type(samples[odd]).__name__}")
    if isinstance(first, Mapping):
        for i, sample in enumerate(samples):
            if sample.keys() != first.keys():
                raise KeyError(f"sample {i} has keys {sorted(sample)}, sample 0 has {sorted(first)}")
        return {key: collate([sample[key] for sample in samples]) for key in first}
    if isinstance(first, tuple):
        for i, sample in enumerate(samples):
            if len(sample) != len(first):
                raise ValueError(f"sample {i} has {len(sample)} entries, sample 0 has {len(first)}")
        columns = [collate(column) for column in zip(*samples, strict=True)]
        return type(first)(*columns) if hasattr(first, "_fields") else tuple(columns)
    if isinstance(first, list):
        return from_rows([torch.as_tensor(sample) if sample else _no_entries(samples) for sample in samples])
    if isinstance(first, (Tensor, torch.Tensor, np.ndarray)) and first.ndim:
        return from_rows(samples)
    return default_collate([sample.torch() if isinstance(sample, Tensor) else sample for sample in samples])


def _kind(sample: Any) -> type:
    """What decides how a sample is batched."""
    kinds = (Mapping, tuple, list, (Tensor, torch.Tensor, np.ndarray), str)
    return next((kind if isinstance(kind, type) else Tensor for kind in kinds if isinstance(sample, kind)), object)


def _no_entries(samples: Sequence[Any]) -> torch.Tensor:
    """An empty row of the dtype of the first sample that has entries."""
    some = next((torch.as_tensor(sample) for sample in samples if len(sample)), torch.zeros(0))
    return some.new_zeros(0, *some.shape[1:])
