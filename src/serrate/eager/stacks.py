"""A tensor as a stack of vectors or matrices: its last axes uniform, all axes before them dense or ragged.

torch works on `values` [*stack, *own], where a ragged stack is one packed axis and the features before the matrix, and
each result is put back around the same ragged axes. Nothing is padded, and no row sees another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch

from serrate.eager.precision import ACCUMULATE, widened
from serrate.errors import AxisError
from serrate.tensor import abstract, host
from serrate.tensor.structure import Ragged, Structure
from serrate.tensor.tensor import Tensor, as_tensor

LinAlgError: type[RuntimeError] = torch.linalg.LinAlgError  # type: ignore[attr-defined]


def floating(name: str, x: Any) -> Tensor:
    """`x` as a Tensor, or a TypeError unless its elements are floating-point numbers, real or complex."""
    tensor = as_tensor(x)
    if not (tensor.is_floating_point() or tensor.is_complex()):
        raise TypeError(
            f"{name} needs floating-point elements, got {tensor.dtype}; the array API defines it for no others, "
            f"convert with x.to(torch.float64)"
        )
    return tensor


def numeric(name: str, x: Any) -> Tensor:
    """`x` as a Tensor, or a TypeError if its elements are bools."""
    tensor = as_tensor(x)
    if tensor.dtype == torch.bool:
        raise TypeError(f"{name} needs numbers, got {tensor.dtype}")
    return tensor


def dimensions(name: str, x: Tensor, axes: Iterable[int]) -> list[int]:
    """The dimensions of x's values that these axes are; an AxisError if one is ragged, or ragged ones depend on it."""
    packed = len(x.structure.axes)
    found: list[int] = []
    for axis in axes:
        c = x.order[axis]
        if c < packed:
            ragged = isinstance(x.structure.axes[c], Ragged)
            what = "is ragged" if ragged else "has ragged axes that depend on it"
            raise AxisError(
                f"{name} needs uniform axes, and axis {axis} of shape {x.shape} {what}; the array API has no meaning "
                f"for that. to_dense() pads, x[i] takes one row; matmul, vecdot, tensordot and einsum take ragged axes"
            )
        found.append(c - packed + 1 if x.is_ragged else c)
    return found


@dataclass(frozen=True)
class Stack:
    """A tensor whose last `own` axes are vectors or matrices."""

    x: Tensor
    own: int
    values: torch.Tensor
    """[*stack, *own]. Half types are float32, and an undefined row is the identity, which is not singular."""

    @property
    def depth(self) -> int:
        """How many dimensions of the values the stack has."""
        return self.values.ndim - self.own

    def result(self, values: torch.Tensor) -> Tensor:
        """The Tensor of values [*stack, *new axes], whose new axes stand last; half types become what they were."""
        if self.x.dtype in ACCUMULATE and values.is_floating_point():
            values = values.to(self.x.dtype)
        values = values.resolve_conj()  # torch puts off conjugation; numpy and DLPack do not take such tensors.
        if not self.x.is_ragged:
            return Tensor(values, team=self.x.team)
        gone = self.x.order[self.x.ndim - self.own :]
        outer = [c - sum(c > g for g in gone) for c in self.x.order[: self.x.ndim - self.own]]
        new = range(len(outer), len(outer) + values.ndim - self.depth)
        return Tensor(values, self.x.structure, (*outer, *new), self.x.team)

    def results(self, made: Any, kind: Callable[..., Any] = tuple) -> Any:
        """`result` of a tensor, or of each of several, which make a `kind`."""
        if isinstance(made, torch.Tensor):
            return self.result(made)
        parts = [self.result(part) for part in made]
        return kind(parts) if kind is tuple else kind(*parts)

    def require_smaller(self, name: str) -> None:
        """A TypeError where a result has the smaller size of the matrices, and no type says which one that is."""
        sizes = self.values.shape[self.depth :]
        unknown = [size for size in sizes if not abstract.is_known(size)]
        if unknown and sizes[0] != sizes[1]:
            raise TypeError(
                f"{name} needs square matrices, or matrices whose sizes the type of its operand says; it does not say "
                f"{' and '.join(map(str, unknown))} of shape {self.x.shape}"
            )

    def require(self, name: str, info: torch.Tensor, lacks: str) -> None:
        """A LinAlgError if LAPACK's `info` is not 0 for a matrix; from a later call where only the device knows."""
        if host.stands_in(info):
            api = "linalg.inv" if name == "matrix_power" else f"linalg.{name}"
            torch._linalg_check_errors(info, api, is_matrix=info.ndim == 0)
            return

        def error(position: int) -> Exception:
            which = "the matrix" if info.ndim == 0 else f"matrix {position} of the stack, as it is packed,"
            return LinAlgError(f"{name}: {which} is {lacks}; the tensor has shape {self.x.shape}")

        host.defer(host.first_fault(info.flatten() != 0), error)


def stack(name: str, x: Any, own: int = 2, *, square: bool = False, as_is: bool = False) -> Stack:
    """`x` as a stack of its last `own` axes, with `as_is` as a view; or an error that says why it is none."""
    tensor = as_tensor(x)
    if tensor.ndim < own:
        many = "two axes" if own == 2 else "one axis"
        raise AxisError(f"{name} needs at least {many}, got shape {tensor.shape}")
    dims = dimensions(name, tensor, range(tensor.ndim - own, tensor.ndim))
    sizes = [tensor.values.shape[dim] for dim in dims]
    if square and abstract.differ(sizes[-2], sizes[-1]):
        raise ValueError(f"{name} needs square matrices on the last two axes, got shape {tensor.shape}")
    values = tensor.values.movedim(dims, list(range(-own, 0)))
    return Stack(tensor, own, values if as_is else filled(widened(values), tensor.structure))


def filled(values: torch.Tensor, structure: Structure) -> torch.Tensor:
    """Packed matrices with the identity in place of undefined ones, and packed vectors with 0."""
    if structure.is_exact:
        return values
    eye = torch.eye(*values.shape[-2:], dtype=values.dtype, device=values.device) if values.ndim > 2 else 0
    return torch.where(structure.defined_rows(values), values, eye)


def last(x: Any, axes: Any) -> Tensor:
    """`x` with the named axes at the end, in that order; for functions of torch in which callers choose axes."""
    tensor = as_tensor(x)
    chosen = [tensor._axis(a) for a in axes]
    if len(set(chosen)) < len(chosen):
        raise ValueError(f"an axis is named twice in {tuple(axes)}")
    return tensor.permute_dims([*(a for a in range(tensor.ndim) if a not in chosen), *chosen])


def answer(name: str, function: Callable[..., Any], kind: Callable[..., Any] = tuple) -> Callable[..., Any]:
    """torch's own function of a stack of matrices, with all its options; several results make a `kind`."""

    def handler(A: Any = None, *rest: Any, **options: Any) -> Any:
        if options.pop("out", None) is not None:
            raise TypeError(f"{name}(out=…) is not defined for sr.Tensor")
        given = stack(name, options.pop("input", A))
        given.require_smaller(name)
        return given.results(function(given.values, *rest, **options), kind)

    return handler
