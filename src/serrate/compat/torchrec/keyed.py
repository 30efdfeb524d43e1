"""This module has the class KeyedTensor: dense tensors side by side, each with a key, under TorchRec's names."""

from __future__ import annotations

import itertools
from typing import Any

import torch

from serrate.compat.torchrec import checks, persist


class KeyedTensor:
    """A dense tensor in which the tensors of the keys lie one after another along the axis `key_dim`.

    >>> import torch
    >>> from serrate.compat.torchrec import KeyedTensor
    >>> kt = KeyedTensor.from_tensor_list(["a", "b"], [torch.ones(2, 1), torch.zeros(2, 2)])
    >>> kt.values()
    tensor([[1., 0., 0.],
            [1., 0., 0.]])
    >>> kt["b"].shape
    torch.Size([2, 2])
    """

    def __init__(
        self,
        keys: list[str],
        length_per_key: list[int],
        values: torch.Tensor,
        key_dim: int = 1,
        offset_per_key: list[int] | None = None,
        index_per_key: dict[str, int] | None = None,
    ) -> None:
        """Cut `values` along `key_dim` into pieces of these lengths; offsets and indices, if given, must agree."""
        if not isinstance(values, torch.Tensor):
            raise TypeError(f"values of a KeyedTensor must be a torch.Tensor, got {type(values).__name__}")
        self._keys = checks.distinct(keys, "KeyedTensor")
        self._lengths = [checks.as_int(length, "a length of length_per_key") for length in length_per_key]
        self._values = values
        self._key_dim = key_dim = checks.as_int(key_dim, "key_dim")
        if not -values.ndim <= key_dim < values.ndim:
            raise ValueError(f"key_dim must be an axis of values of shape {list(values.shape)}, got {key_dim}")
        if len(self._lengths) != len(self._keys) or min(self._lengths, default=0) < 0:
            raise ValueError(
                f"length_per_key must have a size for each of the {len(self._keys)} keys, got {length_per_key}"
            )
        if self._keys and sum(self._lengths) != values.shape[key_dim]:
            raise ValueError(
                f"length_per_key must sum to the size of axis {key_dim}, {values.shape[key_dim]}, got {length_per_key}"
            )
        checks.agree("offset_per_key", offset_per_key, self.offset_per_key())
        checks.agree("index_per_key", index_per_key, {key: i for i, key in enumerate(self._keys)})

    @staticmethod
    def from_tensor_list(
        keys: list[str], tensors: list[torch.Tensor], key_dim: int = 1, cat_dim: int = 1
    ) -> KeyedTensor:
        """Return a KeyedTensor of tensors that are joined along `cat_dim`, each with its key."""
        if not tensors:
            raise ValueError("from_tensor_list needs at least one tensor")
        lengths = [tensor.shape[key_dim] for tensor in tensors]
        return KeyedTensor(keys, lengths, torch.cat(tensors, cat_dim), key_dim)

    @classmethod
    def from_torchrec(cls, kt: Any) -> KeyedTensor:
        """Convert TorchRec's KeyedTensor, and check it."""
        return cls(kt.keys(), kt.length_per_key(), kt.values(), kt.key_dim())

    def to_torchrec(self) -> Any:
        """Return TorchRec's own KeyedTensor; nothing is copied."""
        from torchrec.sparse.jagged_tensor import KeyedTensor as TheirKeyedTensor

        return TheirKeyedTensor(self.keys(), self.length_per_key(), self._values, self._key_dim)

    # -------------------------------------------------------------------------------------------------- reading

    def keys(self) -> list[str]:
        """Return the keys, in order."""
        return list(self._keys)

    def values(self) -> torch.Tensor:
        """Return the tensors of all keys as one dense tensor."""
        return self._values

    def key_dim(self) -> int:
        """Return the axis along which the keys lie one after another."""
        return self._key_dim

    def length_per_key(self) -> list[int]:
        """Return the size of each key along `key_dim`."""
        return list(self._lengths)

    def offset_per_key(self) -> list[int]:
        """Return where each key starts along `key_dim`, and where the last key ends."""
        return [0, *itertools.accumulate(self._lengths)]

    def device(self) -> torch.device:
        """Return the device of the values."""
        return self._values.device

    def size_in_bytes(self) -> int:
        """Return the number of bytes of the values."""
        return self._values.nbytes

    def __getitem__(self, key: str) -> torch.Tensor:
        index = checks.position(key, self._keys)
        return self._values.narrow(self._key_dim, sum(self._lengths[:index]), self._lengths[index])

    def to_dict(self) -> dict[str, torch.Tensor]:
        """Return the tensor of each key as a view."""
        if not self._keys:
            return {}
        return dict(zip(self._keys, torch.split(self._values, self._lengths, self._key_dim), strict=True))

    def __repr__(self) -> str:
        return persist.text("KeyedTensor", self.to_dict())

    # ----------------------------------------------------------------------------------------------- regrouping

    @staticmethod
    def regroup(keyed_tensors: list[KeyedTensor], groups: list[list[str]]) -> list[torch.Tensor]:
        """Return for each group the tensors of its keys, joined along `key_dim`; a key may be in several groups.

        >>> kt = KeyedTensor(["a", "b", "c"], [1, 1, 1], torch.tensor([[1, 2, 3]]))
        >>> KeyedTensor.regroup([kt], [["c", "a"], ["b"]])
        [tensor([[3, 1]]), tensor([[2]])]
        """
        if not keyed_tensors:
            raise ValueError("regroup needs at least one KeyedTensor")
        dims = {kt._key_dim % kt._values.ndim for kt in keyed_tensors}
        if len(dims) != 1:
            raise ValueError(f"regroup needs one key_dim, got {sorted(dims)}")
        (dim,) = dims
        found: dict[str, list[torch.Tensor]] = {}
        for kt in keyed_tensors:
            for key, piece in kt.to_dict().items():
                found.setdefault(key, []).append(piece)
        nothing = keyed_tensors[0]._values.narrow(dim, 0, 0)
        return [torch.cat([_only(found, key) for key in group], dim) if group else nothing for group in groups]

    @staticmethod
    def regroup_as_dict(
        keyed_tensors: list[KeyedTensor], groups: list[list[str]], keys: list[str]
    ) -> dict[str, torch.Tensor]:
        """Return the results of `regroup` as a dictionary, with one key for each group."""
        if len(groups) != len(keys):
            raise ValueError(f"there must be a key for each of the {len(groups)} groups, got {keys}")
        return dict(
            zip(checks.distinct(keys, "regrouped tensor"), KeyedTensor.regroup(keyed_tensors, groups), strict=True)
        )

    # --------------------------------------------------------------------------------------------------- memory

    def _with(self, values: Any) -> KeyedTensor:
        made = object.__new__(KeyedTensor)
        made._keys, made._lengths, made._values, made._key_dim = self._keys, self._lengths, values, self._key_dim
        return made

    def to(self, device: torch.device, non_blocking: bool = False) -> KeyedTensor:
        """Return the KeyedTensor on `device`."""
        return self._with(self._values.to(device, non_blocking=non_blocking))

    def record_stream(self, stream: Any) -> None:
        """Tell the allocator that `stream` uses the values."""
        self._values.record_stream(stream)

    def __reduce__(self) -> tuple[Any, ...]:
        return persist.rebuild, ("KeyedTensor", self._keys, self._lengths, self._values, self._key_dim)


def _only(found: dict[str, list[torch.Tensor]], key: str) -> torch.Tensor:
    pieces = found.get(key, [])
    if not pieces:
        raise KeyError(f"there is no key {key!r}; the keys are {list(found)}")
    if len(pieces) > 1:
        raise ValueError(f"key {key!r} is in {len(pieces)} of the KeyedTensors, so it is not clear which one is meant")
    return pieces[0]


def _leaves(kt: KeyedTensor) -> tuple[list[Any], list[str], Any]:
    return [kt._values], ["values"], (tuple(kt._keys), tuple(kt._lengths), kt._key_dim)


def _join(leaves: dict[str, Any], context: Any) -> KeyedTensor:
    made = object.__new__(KeyedTensor)
    keys, lengths, made._key_dim = context
    made._keys, made._lengths, made._values = list(keys), list(lengths), leaves["values"]
    return made


persist.register(KeyedTensor, _leaves, _join, KeyedTensor)
