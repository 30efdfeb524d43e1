"""This module has the class KeyedJaggedTensor: one jagged tensor for each key, under TorchRec's names."""

from __future__ import annotations

from typing import Any

import torch

from serrate.compat.torchrec import checks, joining, persist
from serrate.compat.torchrec.description import Description, Inverse
from serrate.compat.torchrec.jagged import JaggedTensor
from serrate.compat.torchrec.strides import Strides, read
from serrate.errors import RaggednessError
from serrate.tensor.tensor import Tensor


class KeyedJaggedTensor(Description):
    """A row of values for each key and each example of a batch, packed key by key.

    >>> import torch
    >>> from serrate.compat.torchrec import KeyedJaggedTensor
    >>> kjt = KeyedJaggedTensor(["user", "item"], torch.arange(5), lengths=torch.tensor([2, 0, 1, 2]))
    >>> kjt["item"].tensor.tolist()
    [[2], [3, 4]]
    >>> kjt.tensor.shape
    (2, 2, Ragged([2, 0, 1, 2], parents=(0, 1)))
    >>> kjt[[1]].tensor.tolist()
    [[[]], [[3, 4]]]
    """

    def __init__(
        self,
        keys: list[str],
        values: torch.Tensor,
        weights: torch.Tensor | None = None,
        lengths: torch.Tensor | None = None,
        offsets: torch.Tensor | None = None,
        stride: int | None = None,
        stride_per_key_per_rank: torch.Tensor | list[list[int]] | None = None,
        stride_per_key: list[int] | None = None,
        length_per_key: list[int] | None = None,
        lengths_offset_per_key: list[int] | None = None,
        offset_per_key: list[int] | None = None,
        index_per_key: dict[str, int] | None = None,
        jt_dict: dict[str, JaggedTensor] | None = None,
        inverse_indices: Inverse | None = None,
    ) -> None:
        """Cut the values by lengths or offsets, key by key.

        Lengths may have the shape `[keys, stride]`. The arguments from `stride_per_key` to `index_per_key`, which are
        caches in TorchRec, must be right if the host can check them; `jt_dict` is not read.
        """
        keys = checks.distinct(keys, "KeyedJaggedTensor")
        if isinstance(lengths, torch.Tensor) and lengths.ndim == 2 and lengths.shape[0] == len(keys):
            lengths = lengths.reshape(-1)
        rows = checks.cut(values, lengths, offsets, "KeyedJaggedTensor")
        inverse = joining.read_inverse(inverse_indices, keys)
        batch = None if inverse is None else inverse[1].shape[1]
        strides = read(keys, rows.num_components, stride, stride_per_key, stride_per_key_per_rank, batch)
        joining.check_inverse(inverse, keys, strides)
        self._set(keys, strides.arrange(values, rows), checks.weights_for(values, weights), strides, inverse)
        checks.agree("stride_per_key", stride_per_key, strides.per_key)
        checks.agree("lengths_offset_per_key", lengths_offset_per_key, strides.offsets)
        if index_per_key is not None:
            checks.agree("index_per_key", index_per_key, self.index_per_key())
        if rows.is_host_born and length_per_key is not None:
            checks.agree("length_per_key", length_per_key, self.length_per_key())
        if rows.is_host_born and offset_per_key is not None:
            checks.agree("offset_per_key", offset_per_key, self.offset_per_key())

    def _set(
        self, keys: list[str], tensor: Tensor, weights: torch.Tensor | None, strides: Strides, inverse: Inverse | None
    ) -> None:
        self._keys, self._tensor, self._weights, self._strides = keys, tensor, weights, strides
        self._inverse, self._memo = inverse, {}

    @classmethod
    def _of(
        cls, keys: list[str], tensor: Tensor, weights: torch.Tensor | None, strides: Strides, inverse: Any = None
    ) -> KeyedJaggedTensor:
        self = object.__new__(cls)
        self._set(keys, tensor, weights, strides, inverse)
        return self

    # --------------------------------------------------------------------------------------------- construction

    @staticmethod
    def from_lengths_sync(
        keys: list[str],
        values: torch.Tensor,
        lengths: torch.Tensor,
        weights: torch.Tensor | None = None,
        stride: int | None = None,
        stride_per_key_per_rank: list[list[int]] | None = None,
        inverse_indices: Inverse | None = None,
    ) -> KeyedJaggedTensor:
        """Cut the values by lengths, and let the host read the lengths."""
        return KeyedJaggedTensor(
            keys,
            values,
            weights,
            lengths=lengths,
            stride=stride,
            stride_per_key_per_rank=stride_per_key_per_rank,
            inverse_indices=inverse_indices,
        ).sync()

    @staticmethod
    def from_offsets_sync(
        keys: list[str],
        values: torch.Tensor,
        offsets: torch.Tensor,
        weights: torch.Tensor | None = None,
        stride: int | None = None,
        stride_per_key_per_rank: list[list[int]] | None = None,
        inverse_indices: Inverse | None = None,
    ) -> KeyedJaggedTensor:
        """Cut the values by offsets, and let the host read the offsets."""
        return KeyedJaggedTensor(
            keys,
            values,
            weights,
            offsets=offsets,
            stride=stride,
            stride_per_key_per_rank=stride_per_key_per_rank,
            inverse_indices=inverse_indices,
        ).sync()

    @staticmethod
    def from_jt_dict(jt_dict: dict[str, JaggedTensor]) -> KeyedJaggedTensor:
        """Return a KeyedJaggedTensor with one key for each entry; the keys may have different numbers of rows.

        >>> jt = JaggedTensor.from_dense([torch.tensor([1, 2]), torch.tensor([3])])
        >>> KeyedJaggedTensor.from_jt_dict({"a": jt, "b": jt}).stride_per_key()
        [2, 2]
        """
        return joining.from_jt_dict(KeyedJaggedTensor, jt_dict)

    @staticmethod
    def from_torchrec(kjt: Any) -> KeyedJaggedTensor:
        """Convert TorchRec's KeyedJaggedTensor, and check it."""
        return KeyedJaggedTensor(
            kjt.keys(),
            kjt.values(),
            kjt.weights_or_none(),
            lengths=kjt.lengths(),
            stride=kjt.stride(),
            stride_per_key_per_rank=kjt.stride_per_key_per_rank() if kjt.variable_stride_per_key() else None,
            inverse_indices=kjt.inverse_indices_or_none(),
        )

    @staticmethod
    def concat(kjt_list: list[KeyedJaggedTensor]) -> KeyedJaggedTensor:
        """Join the keys of several tensors over the same batch."""
        return joining.concat_keys(KeyedJaggedTensor, kjt_list)

    @staticmethod
    def concat_batches(kjt_list: list[KeyedJaggedTensor]) -> KeyedJaggedTensor:
        """Join the examples of several tensors, one batch after another.

        All tensors must have the same keys; the result has them in the order of the first tensor.

        >>> kjt = KeyedJaggedTensor(["a"], torch.arange(3), lengths=torch.tensor([2, 1]))
        >>> KeyedJaggedTensor.concat_batches([kjt, kjt])["a"].tensor.tolist()
        [[0, 1], [2], [0, 1], [2]]
        """
        return joining.concat_batches(KeyedJaggedTensor, kjt_list)

    @staticmethod
    def empty(
        is_weighted: bool = False,
        device: torch.device | None = None,
        values_dtype: torch.dtype | None = None,
        weights_dtype: torch.dtype | None = None,
        lengths_dtype: torch.dtype = torch.int32,
    ) -> KeyedJaggedTensor:
        """Return a KeyedJaggedTensor without keys and rows."""
        flat = JaggedTensor.empty(is_weighted, device, values_dtype, weights_dtype, lengths_dtype)
        strides = Strides(0, 0)
        return KeyedJaggedTensor._of(
            [], strides.arrange(flat.values(), flat._partition), flat.weights_or_none(), strides
        )

    @staticmethod
    def empty_like(kjt: KeyedJaggedTensor, device: torch.device | None = None) -> KeyedJaggedTensor:
        """Return a KeyedJaggedTensor without keys that has the dtypes and the stride of `kjt`.

        If a device is given, the result lies there and has the keys and rows of `kjt`, with undefined values.
        """
        if device is None:
            flat = JaggedTensor.empty_like(joining.flat(kjt))
            strides = kjt._strides.pick([])
            strides = strides if strides.ranks is None else Strides(0, 0, ())
            return KeyedJaggedTensor._of(
                [], strides.arrange(flat.values(), flat._partition), flat.weights_or_none(), strides
            )
        moved = kjt.to(device)
        weights = None if moved._weights is None else torch.empty_like(moved._weights)
        tensor = moved._tensor._with(torch.empty_like(moved.values()))
        return KeyedJaggedTensor._of(moved._keys, tensor, weights, moved._strides, moved._inverse)

    # ------------------------------------------------------------------------------------------------- selection

    def __getitem__(self, key: Any) -> Any:
        """Return the jagged tensor of a key, or the examples that a list, a tensor or a slice selects."""
        if isinstance(key, str):
            index = checks.position(key, self._keys)
            if "to_dict" in self._memo and not self._has_gradients:
                return self._memo["to_dict"][key]
            return joining.one_key(self.sync(), index)
        return self.select_batch(key)

    def to_dict(self, compute_offsets: bool = True) -> dict[str, JaggedTensor]:
        """Return the jagged tensor of each key as a view.

        The views are made once, unless values or weights require a gradient. `compute_offsets` has no effect: the
        views always have offsets.
        """
        if self._has_gradients:
            return joining.every_key(self.sync())
        return dict(self._once("to_dict", lambda: joining.every_key(self.sync())))

    def select_batch(self, indices: Any) -> KeyedJaggedTensor:
        """Return the examples of the batch that a list, a tensor, a boolean mask or a slice selects.

        >>> kjt = KeyedJaggedTensor(["a", "b"], torch.arange(5), lengths=torch.tensor([2, 0, 1, 2]))
        >>> kjt.select_batch([1, 0]).values()
        tensor([0, 1, 3, 4, 2])
        """
        return joining.select_batch(self.sync(), indices)

    def permute(self, indices: list[int], indices_tensor: torch.Tensor | None = None) -> KeyedJaggedTensor:
        """Return the keys at `indices`, in that order; each may occur once. `indices_tensor` has no effect."""
        return joining.select_keys(self.sync(), [checks.as_int(i, "an index of a key") for i in indices])

    def split(self, segments: list[int]) -> list[KeyedJaggedTensor]:
        """Return consecutive runs of keys as views; `segments` are the numbers of their keys."""
        return joining.split(self.sync(), [checks.as_int(s, "a segment") for s in segments])

    def flatten_lengths(self) -> KeyedJaggedTensor:
        """Return the object as it is: its lengths are always a vector."""
        return self

    def __repr__(self) -> str:
        shown = {key: jt if self._weights is not None else jt.tensor for key, jt in self.to_dict().items()}
        return persist.text("KeyedJaggedTensor", shown)

    # --------------------------------------------------------------------------------------------------- memory

    def to(
        self, device: torch.device, non_blocking: bool = False, dtype: torch.dtype | None = None
    ) -> KeyedJaggedTensor:
        """Return the KeyedJaggedTensor on `device`; `dtype` is the dtype of its weights."""
        weights = self._weights
        if weights is not None:
            weights = weights.to(device, dtype or weights.dtype, non_blocking=non_blocking)
        return self._moved(self._tensor.to(device, non_blocking=non_blocking), weights, device, non_blocking)

    def _moved(self, tensor: Tensor, weights: Any, device: Any, non_blocking: bool) -> KeyedJaggedTensor:
        inverse = self._inverse
        if inverse is not None:
            inverse = (inverse[0], inverse[1].to(device, non_blocking=non_blocking))
        return KeyedJaggedTensor._of(self._keys, tensor, weights, self._strides, inverse)

    def pin_memory(self) -> KeyedJaggedTensor:
        """Return the KeyedJaggedTensor in page-locked memory."""
        weights = None if self._weights is None else self._weights.pin_memory()
        inverse = None if self._inverse is None else (self._inverse[0], self._inverse[1].pin_memory())
        return KeyedJaggedTensor._of(self._keys, self._tensor.pin_memory(), weights, self._strides, inverse)

    def copy_(self, kjt: KeyedJaggedTensor, non_blocking: bool = False) -> KeyedJaggedTensor:
        """Overwrite values and weights with those of `kjt`, and take over its rows.

        `kjt` must have the same keys and as many values.
        """
        if self._keys != kjt._keys:
            raise KeyError(f"copy_ needs the same keys, {self._keys}, got {kjt._keys}")
        if (self._inverse is None) != (kjt._inverse is None):
            raise ValueError("copy_ needs inverse indices on both sides or on neither")
        self._tensor, self._weights = persist.overwrite(
            self._tensor, self._weights, kjt._tensor, kjt._weights, non_blocking
        )
        self._strides, self._memo = kjt._strides, {}
        if kjt._inverse is not None:
            self._inverse = (kjt._inverse[0], kjt._inverse[1].to(self.device(), non_blocking=non_blocking, copy=True))
        return self

    def to_torchrec(self) -> Any:
        """Return TorchRec's own KeyedJaggedTensor; values and weights are not copied."""
        from torchrec.sparse.jagged_tensor import KeyedJaggedTensor as TheirKeyedJaggedTensor

        ranks = self.stride_per_key_per_rank()
        if len({len(rank) for rank in ranks}) > 1:
            raise RaggednessError(f"TorchRec needs the same number of ranks for each key, got {ranks}")
        return TheirKeyedJaggedTensor(
            self.keys(),
            self.values(),
            self._weights,
            lengths=self.lengths(),
            offsets=self.offsets(),
            stride=self.stride(),
            stride_per_key_per_rank=ranks if self.variable_stride_per_key() else None,
            inverse_indices=self._inverse,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        ranks = None if self._strides.ranks is None else self.stride_per_key_per_rank()
        state = (self._keys, joining.flat(self).tensor, self._weights, self.stride(), ranks, self._inverse)
        return persist.rebuild, ("KeyedJaggedTensor", *state)


def _rebuild(keys: Any, flat: Any, weights: Any, stride: Any, ranks: Any, inverse: Any) -> KeyedJaggedTensor:
    jt = JaggedTensor.from_tensor(flat, weights)
    strides = read(checks.distinct(keys, "KeyedJaggedTensor"), len(jt.tensor), stride, None, ranks, None)
    inverse = joining.read_inverse(inverse, keys)
    joining.check_inverse(inverse, keys, strides)
    return KeyedJaggedTensor._of(
        keys, strides.arrange(jt.values(), jt._partition), jt.weights_or_none(), strides, inverse
    )


def _leaves(kjt: KeyedJaggedTensor) -> tuple[list[Any], list[str], Any]:
    inverse = (None, None) if kjt._inverse is None else kjt._inverse
    found = {"values": kjt._tensor.values, "weights": kjt._weights, "inverse": inverse[1]}
    there = {name: leaf for name, leaf in found.items() if leaf is not None}
    rest = (tuple(kjt._keys), kjt._tensor.structure, kjt._tensor.order, kjt._strides, tuple(inverse[0] or ()))
    return list(there.values()), list(there), rest


def _join(leaves: dict[str, Any], context: Any) -> KeyedJaggedTensor:
    keys, structure, order, strides, named = context
    inverse = (list(named), leaves["inverse"]) if "inverse" in leaves else None
    tensor = persist.unchecked(leaves["values"], structure, order)
    return KeyedJaggedTensor._of(list(keys), tensor, leaves.get("weights"), strides, inverse)


persist.register(KeyedJaggedTensor, _leaves, _join, _rebuild)
