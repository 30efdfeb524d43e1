"""Operations: what the operations of a fusion, which stand in files of their own, have in common."""

from __future__ import annotations

from serrate.fusion.domain import TensorDomain
from serrate.fusion.view import Operation, TensorView


class Operations:
    """Some operations of a fusion. `Fusion` has all of them, and the tensors that they make."""

    inputs: list[TensorView]
    outputs: list[TensorView]
    tensors: list[TensorView]
    _names: set[str]

    def _add(
        self, domain: TensorDomain, dtype: str, operation: Operation | None, name: str | None = None
    ) -> TensorView:
        """A new tensor of the fusion."""
        raise NotImplementedError

    def _check_own(self, *tensors: TensorView) -> None:
        for tensor in tensors:
            if tensor.fusion is not self:
                raise ValueError(f"{tensor} is a tensor of another fusion")

    def named(self, name: str) -> TensorView:
        """The tensor of this name."""
        for tensor in self.tensors:
            if tensor.name == name:
                return tensor
        raise KeyError(f"no tensor is named {name!r}; there are {', '.join(t.name for t in self.tensors)}")
