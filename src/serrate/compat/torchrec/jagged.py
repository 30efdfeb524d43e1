"""This module has the class JaggedTensor: rows of different lengths, with weights, under TorchRec's names."""

from __future__ import annotations

from typing import Any

import torch

from serrate.compat.torchrec import checks, persist
from serrate.compat.torchrec.packed import Packed
from serrate.errors import RaggednessError
from serrate.tensor.combine import exact
from serrate.tensor.construct import from_offsets, from_rows
from serrate.tensor.partition import Partition
from serrate.tensor.structure import Ragged, Structure
from serrate.tensor.tensor import Tensor, as_tensor
from serrate.tensor.unpad import from_dense


class JaggedTensor(Packed):
    """Packed values that are cut into rows, and optionally a weight for each value.

    >>> import torch
    >>> from serrate.compat.torchrec import JaggedTensor
    >>> jt = JaggedTensor(torch.tensor([1., 2., 3.]), lengths=torch.tensor([2, 0, 1]))
    >>> jt.offsets()
    tensor([0, 2, 2, 3])
    >>> jt.tensor.sum(1).tolist()
    [3.0, 0.0, 3.0]
    """

    def __init__(
        self,
        values: torch.Tensor,
        weights: torch.Tensor | None = None,
        lengths: torch.Tensor | None = None,
        offsets: torch.Tensor | None = None,
    ) -> None:
        """Cut the values by lengths or offsets; if both are given, they must agree.

        The dtype of the lengths, int32 or int64, is kept.
        """
        partition = checks.cut(values, lengths, offsets, "JaggedTensor")
        self._tensor = Tensor(values, Structure((partition.num_components, Ragged(partition))))
        self._weights = checks.weights_for(values, weights)
        self._memo = {}

    # --------------------------------------------------------------------------------------------- construction

    @classmethod
    def _of(cls, tensor: Tensor, weights: torch.Tensor | None = None) -> JaggedTensor:
        self = object.__new__(cls)
        self._tensor, self._weights, self._memo = tensor, weights, {}
        return self

    @classmethod
    def _rows(cls, values: torch.Tensor, partition: Partition, weights: torch.Tensor | None) -> JaggedTensor:
        return cls._of(Tensor(values, Structure((partition.num_components, Ragged(partition)))), weights)

    @classmethod
    def from_tensor(cls, tensor: Tensor, weights: Any = None) -> JaggedTensor:
        """Return a JaggedTensor of a Tensor `[rows, ragged, …]`.

        `weights` may be a Tensor of the same raggedness, or a torch.Tensor with one weight for each value.

        >>> import serrate as sr
        >>> JaggedTensor.from_tensor(sr.ragged([[1, 2], [3]])).lengths()
        tensor([2, 1])
        """
        tensor = as_tensor(tensor)
        if len(tensor.structure.axes) != 2 or tensor.order != tuple(range(tensor.ndim)):
            raise RaggednessError(f"a JaggedTensor must be [rows, ragged, …], got shape {tensor.shape}")
        if isinstance(weights, Tensor):
            if not weights.structure.same_as(tensor.structure):
                raise RaggednessError(f"values and weights differ in raggedness: {tensor.shape} and {weights.shape}")
            weights = exact(weights).values
        tensor = exact(tensor)
        return cls._of(tensor, checks.weights_for(tensor.values, weights))

    @classmethod
    def from_torchrec(cls, jt: Any) -> JaggedTensor:
        """Convert TorchRec's JaggedTensor, and check it."""
        return cls(jt.values(), weights=jt.weights_or_none(), lengths=jt.lengths())

    @staticmethod
    def empty(
        is_weighted: bool = False,
        device: torch.device | None = None,
        values_dtype: torch.dtype | None = None,
        weights_dtype: torch.dtype | None = None,
        lengths_dtype: torch.dtype = torch.int32,
    ) -> JaggedTensor:
        """Return a JaggedTensor without rows."""
        weights = torch.empty(0, dtype=weights_dtype, device=device) if is_weighted else None
        values = torch.empty(0, dtype=values_dtype, device=device)
        return JaggedTensor(values, weights, lengths=torch.empty(0, dtype=lengths_dtype, device=device))

    @staticmethod
    def empty_like(jt: JaggedTensor, device: torch.device | None = None) -> JaggedTensor:
        """Return a JaggedTensor without rows that has the dtypes of `jt`.

        If a device is given, the result lies there and has the rows of `jt`, with undefined values.
        """
        if device is None:
            weights = jt.weights_or_none()
            return JaggedTensor.empty(
                weights is not None,
                jt.device(),
                jt.values().dtype,
                None if weights is None else weights.dtype,
                jt.lengths().dtype,
            )
        moved = jt.to(device)
        weights = moved.weights_or_none()
        tensor = moved.tensor._with(torch.empty_like(moved.values()))
        return JaggedTensor._of(tensor, None if weights is None else torch.empty_like(weights))

    @staticmethod
    def from_dense(values: list[torch.Tensor], weights: list[torch.Tensor] | None = None) -> JaggedTensor:
        """Return a JaggedTensor with one row for each tensor of the list; its lengths are int32.

        >>> JaggedTensor.from_dense([torch.tensor([1.0]), torch.tensor([]), torch.tensor([7.0, 8.0])]).lengths()
        tensor([1, 0, 2], dtype=torch.int32)
        """
        rows = from_rows(values)
        lengths = rows.partitions[0].lengths.to(torch.int32)
        tensor = from_offsets(rows.values, Partition.from_lengths(lengths))
        if weights is None:
            return JaggedTensor._of(tensor)
        given = from_rows(weights)
        if not given.structure.same_as(rows.structure):
            raise RaggednessError(f"values and weights differ in raggedness: {rows.shape} and {given.shape}")
        return JaggedTensor._of(tensor, given.values)

    @staticmethod
    def from_dense_lengths(
        values: torch.Tensor, lengths: torch.Tensor, weights: torch.Tensor | None = None
    ) -> JaggedTensor:
        """Return the first `lengths[i]` entries of each row i of the padded values `[rows, longest, …]`.

        >>> JaggedTensor.from_dense_lengths(torch.tensor([[1, 2], [3, 0]]), torch.tensor([2, 1])).values()
        tensor([1, 2, 3])
        """
        tensor = exact(from_dense(values, lengths=lengths))
        if weights is not None and weights.shape[:2] != values.shape[:2]:
            raise RaggednessError(
                f"weights must have the rows and columns of the values, {list(values.shape[:2])}, got shape "
                f"{list(weights.shape)}"
            )
        (partition,) = tensor.partitions
        if partition.is_host_born and partition.max_length > values.shape[1]:
            raise RaggednessError(f"lengths must not exceed the {values.shape[1]} columns, got {lengths}")
        kept = None if weights is None else exact(from_dense(weights, lengths=lengths)).values
        return JaggedTensor._of(tensor, kept)

    def __repr__(self) -> str:
        return persist.text("JaggedTensor", {"values": self.tensor, "weights": self.weight_tensor})

    # ----------------------------------------------------------------------------------------------- conversion

    def to_dense(self) -> list[torch.Tensor]:
        """Return the rows, each as a view of the values."""
        return [row.torch() for row in self._tensor.rows()]

    def to_dense_weights(self) -> list[torch.Tensor] | None:
        """Return the weights of each row, or None if there are no weights."""
        weights = self.weight_tensor
        return None if weights is None else [row.torch() for row in weights.rows()]

    def to_padded_dense(self, desired_length: int | None = None, padding_value: float = 0.0) -> torch.Tensor:
        """Return the rows, padded to the longest row, or padded and cut to `desired_length`.

        >>> jt = JaggedTensor(torch.tensor([1., 2., 3.]), lengths=torch.tensor([2, 1]))
        >>> jt.to_padded_dense(padding_value=-1.0)
        tensor([[ 1.,  2.],
                [ 3., -1.]])
        """
        return self._tensor.to_dense(padding_value, desired_length).torch()

    def to_padded_dense_weights(
        self, desired_length: int | None = None, padding_value: float = 0.0
    ) -> torch.Tensor | None:
        """Return the weights, padded like the values in `to_padded_dense`, or None if there are no weights."""
        weights = self.weight_tensor
        return None if weights is None else weights.to_dense(padding_value, desired_length).torch()

    def to_torchrec(self) -> Any:
        """Return TorchRec's own JaggedTensor; values and weights are not copied."""
        from torchrec.sparse.jagged_tensor import JaggedTensor as TheirJaggedTensor

        return TheirJaggedTensor(self.values(), self._weights, self.lengths(), self.offsets())

    # --------------------------------------------------------------------------------------------------- memory

    def to(self, device: torch.device, non_blocking: bool = False) -> JaggedTensor:
        """Return the JaggedTensor on `device`."""
        weights = None if self._weights is None else self._weights.to(device, non_blocking=non_blocking)
        return JaggedTensor._of(self._tensor.to(device, non_blocking=non_blocking), weights)

    def copy_(self, jt: JaggedTensor, non_blocking: bool = False) -> JaggedTensor:
        """Overwrite values and weights with those of `jt`, which must have as many values, and take over its rows."""
        self._tensor, self._weights = persist.overwrite(
            self._tensor, self._weights, jt._tensor, jt._weights, non_blocking
        )
        self._memo = {}
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return persist.rebuild, ("JaggedTensor", self._tensor, self._weights)


def _leaves(jt: JaggedTensor) -> tuple[list[Any], list[str], Any]:
    weights = [] if jt._weights is None else [("weights", jt._weights)]
    names, leaves = zip(("values", jt._tensor.values), *weights, strict=True)
    return list(leaves), list(names), (jt._tensor.structure, jt._tensor.order)


def _join(leaves: dict[str, Any], context: Any) -> JaggedTensor:
    return JaggedTensor._of(persist.unchecked(leaves["values"], *context), leaves.get("weights"))


persist.register(JaggedTensor, _leaves, _join, lambda tensor, weights: JaggedTensor.from_tensor(tensor, weights))
