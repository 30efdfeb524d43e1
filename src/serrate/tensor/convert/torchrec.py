"""This module converts from and to TorchRec's KeyedJaggedTensor and JaggedTensor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from serrate.errors import RaggednessError
from serrate.tensor.combine import exact
from serrate.tensor.construct import from_lengths
from serrate.tensor.partition import Partition
from serrate.tensor.tensor import Tensor, as_tensor
from serrate.tensor.tracing import untraced


@untraced
def from_kjt(kjt: Any) -> tuple[dict[str, Tensor], dict[str, Tensor] | None]:
    """Return the features of a KeyedJaggedTensor as views by key, and their weights, or None if it has no weights.

    The values and weights of a key share their partition.

    >>> import torch, serrate as sr
    >>> from torchrec.sparse.jagged_tensor import KeyedJaggedTensor
    >>> kjt = KeyedJaggedTensor(["user", "item"], torch.arange(5), lengths=torch.tensor([2, 0, 1, 2]))
    >>> features, weights = sr.from_kjt(kjt)
    >>> features["item"].tolist(), weights
    ([[2], [3, 4]], None)
    """
    _require_methods(kjt, "KeyedJaggedTensor", "keys", "values", "lengths", "stride_per_key")
    keys, values, weights, lengths = kjt.keys(), kjt.values(), kjt.weights_or_none(), kjt.lengths()
    strides = kjt.stride_per_key()
    if len(keys) != len(strides):
        raise RaggednessError(
            f"a KeyedJaggedTensor must have one stride per key, got {len(strides)} for {len(keys)} keys"
        )
    partition = Partition.from_lengths(lengths, values.shape[0], name="lengths of the KeyedJaggedTensor")
    features: dict[str, Tensor] = {}
    key_weights: dict[str, Tensor] = {}
    row = 0
    for key, stride in zip(keys, strides, strict=True):
        if row + stride > partition.num_components:
            raise RaggednessError(
                f"key {key!r} needs lengths {row} … {row + stride}, but there are {partition.num_components}"
            )
        start, stop = partition.span(row, row + stride)
        whole = from_lengths(values[start:stop], partition.slice(row, row + stride).lengths_on(values.device))
        features[key] = whole
        if weights is not None:
            key_weights[key] = Tensor(weights[start:stop], whole.structure)
        row += stride
    return features, key_weights if weights is not None else None


@untraced
def to_kjt(features: Mapping[str, Tensor], weights: Mapping[str, Tensor] | None = None) -> Any:
    """Return a KeyedJaggedTensor of tensors `[B, ragged]`, one for each key.

    `weights` must have the same keys and the same raggedness.

    >>> import serrate as sr
    >>> sr.to_kjt({"user": sr.ragged([[1, 2], []]), "item": sr.ragged([[3], [4, 5]])}).values()
    tensor([1, 2, 3, 4, 5])
    """
    from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

    if not features:
        return KeyedJaggedTensor.empty()
    features = {key: _one_level(x, f"feature {key!r}") for key, x in features.items()}
    if weights is not None:
        weights = {key: _one_level(x, f"weight {key!r}") for key, x in weights.items()}
        _require_matching(features, weights)
    batch = {key: len(x) for key, x in features.items()}
    strides = None if len(set(batch.values())) == 1 else [[size] for size in batch.values()]
    return KeyedJaggedTensor(
        keys=list(features),
        values=torch.cat([x.values for x in features.values()]),
        lengths=torch.cat([x.lengths[0] for x in features.values()]),
        weights=None if weights is None else torch.cat([weights[key].values for key in features]),
        **({} if strides is None else {"stride_per_key_per_rank": strides}),
    )


@untraced
def from_jt(jt: Any) -> tuple[Tensor, Tensor | None]:
    """Return a JaggedTensor of TorchRec as a Tensor, and its weights, or None if it has no weights.

    >>> import torch, serrate as sr
    >>> from torchrec.sparse.jagged_tensor import JaggedTensor
    >>> x, weights = sr.from_jt(JaggedTensor(torch.arange(3), lengths=torch.tensor([1, 2])))
    >>> x.tolist(), weights
    ([[0], [1, 2]], None)
    """
    _require_methods(jt, "JaggedTensor", "values", "lengths", "weights_or_none")
    weights = jt.weights_or_none()
    x = from_lengths(jt.values(), jt.lengths())
    return x, None if weights is None else Tensor(weights, x.structure)


@untraced
def to_jt(x: Tensor, weights: Tensor | None = None) -> Any:
    """Return a tensor `[B, ragged, …]` as a JaggedTensor of TorchRec.

    >>> import serrate as sr
    >>> sr.to_jt(sr.ragged([[1, 2], [3]])).lengths()
    tensor([2, 1])
    """
    from torchrec.sparse.jagged_tensor import JaggedTensor

    x = _one_level(x, "the tensor")
    if weights is not None:
        weights = _one_level(weights, "weights")
        _require_matching({"x": x}, {"x": weights})
    return JaggedTensor(
        x.values, lengths=x.lengths[0], offsets=x.offsets[0], weights=None if weights is None else weights.values
    )


def _require_methods(given: Any, kind: str, *methods: str) -> None:
    if not all(hasattr(given, method) for method in methods):
        raise TypeError(f"expected a TorchRec {kind}, got {type(given).__name__}")


def _one_level(x: Any, name: str) -> Tensor:
    x = as_tensor(x)
    if len(x.structure.axes) != 2 or x.order != tuple(range(x.ndim)):
        raise RaggednessError(f"{name} must be [B, ragged, …] for TorchRec, got shape {x.shape}")
    return exact(x)


def _require_matching(features: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> None:
    if set(features) != set(weights):
        raise KeyError(f"weights must have the keys of the features, {sorted(features)}, got {sorted(weights)}")
    for key, x in features.items():
        if not x.structure.same_as(weights[key].structure):
            raise RaggednessError(
                f"feature {key!r} and its weights differ in raggedness: {x.shape} and {weights[key].shape}"
            )
