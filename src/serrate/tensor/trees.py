"""Tensors as trees: how torch's tree functions, and the transforms of torch.func on top of them, see a Tensor.

A Tensor is a node with one leaf, its values; structure, order and what else a class keeps are the node's context. A
tree function may put anything in the place of the leaf; what is no longer the values of such a tensor is not called so:

- torch.vmap that maps over an axis of the values of a ragged tensor is refused, since rows differ in length;
- values with other axes, as vmap stacks results and jacrev the lines of a Jacobian, become `Stacked`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch._C import _functorch
from torch.utils import _pytree as pytree

from serrate.tensor.layout import shape_of
from serrate.tensor.structure import DENSE, Structure

if TYPE_CHECKING:
    from serrate.tensor.tensor import Tensor


class Stacked:
    """What a transform of torch.func made of the values of ragged tensors: values with other axes than theirs.

    It is no tensor, since nobody knows which of the axes are lines and which are packed; `values` is one.

    >>> import torch, serrate as sr
    >>> x = sr.ragged([[1., 2.], [3.]])
    >>> torch.func.jacrev(torch.exp)(x).values.shape
    torch.Size([3, 3])
    """

    __slots__ = ("_context", "_kind", "values")

    def __init__(self, values: torch.Tensor, kind: type[Tensor], context: Any) -> None:
        self.values = values
        self._kind = kind
        self._context = context

    def __repr__(self) -> str:
        structure = self._context[0]
        return f"Stacked(values of shape {list(self.values.shape)}, structure={structure})"

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"Stacked has no {name}: {_NO_TENSOR}")

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise TypeError(f"torch's {getattr(function, '__name__', function)} takes no Stacked: {_NO_TENSOR}")


_NO_TENSOR = (
    "values of a ragged tensor with other axes than its own, as torch.vmap, jacrev, jacfwd and hessian stack them, are "
    "no sr.Tensor; `values` is the torch tensor with all axes"
)


def fits(values: Any, structure: Structure, order: tuple[int, ...]) -> bool:
    """Whether a leaf may stand for the values of a tensor: it has as many axes, or it is no tensor at all.

    A TypeError if torch.vmap maps over one of the axes that values have.
    """
    if structure is DENSE or not isinstance(values, torch.Tensor):
        return True
    axes = len(order) - len(structure.axes) + 1
    if values.ndim == axes:
        return True
    if values.ndim == axes - 1 and _functorch.is_batchedtensor(values):
        whole = _functorch.get_unwrapped(values)
        if whole.ndim == axes:
            raise TypeError(_refusal(whole, structure, order))
    return False


def _refusal(values: torch.Tensor, structure: Structure, order: tuple[int, ...]) -> str:
    return (
        f"torch.vmap cannot map over a ragged tensor of shape {shape_of(values, structure, order)}: its rows differ in "
        "length. Operations on it work on each row already. To map over dense tensors beside it, pass it with "
        "in_dims=None. Gradients for each row are torch.func.jacrev of the losses of all rows"
    )


def _joined(kind: type[Tensor], leaves: Any, context: Any) -> Any:
    """A tensor of the class `kind` again, around what a tree function has put in the place of its values."""
    (values,), structure, order = leaves, context[0], context[1]
    if isinstance(values, (Stacked, *_NAMES)):  # This is the Jacobian of one tensor with respect to another.
        other: Any = values
        return other if structure is DENSE else Stacked(other.values, kind, context)
    if not fits(values, structure, order):
        return Stacked(values, kind, context)
    made = object.__new__(kind)  # This checks nothing.
    made.values = values
    for name, part in zip(_NAMES[kind], context, strict=True):
        setattr(made, name, part)
    if structure is DENSE and isinstance(values, torch.Tensor):
        made.order = tuple(range(values.ndim))
    return made


_NAMES: dict[type[Tensor], tuple[str, ...]] = {}
"""The classes of tensors, and the names of what their contexts hold."""


def register(kind: type[Tensor], *more: str) -> None:
    """Let tree functions see a class of tensors, which has the fields `more` besides those of Tensor."""
    names = _NAMES[kind] = ("structure", "order", "team", *more)

    def flatten(x: Tensor) -> tuple[list[Any], Any]:
        return [x.values], tuple(getattr(x, name) for name in names)

    _register(kind, flatten, lambda leaves, context: _joined(kind, leaves, context))


def _flatten_stacked(x: Stacked) -> tuple[list[Any], Any]:
    return [x.values], (x._kind, x._context)


def _join_stacked(leaves: Any, context: Any) -> Any:
    kind, inner = context
    return _joined(kind, leaves, inner)


def _register(
    kind: type, flatten: Callable[[Any], tuple[list[Any], Any]], unflatten: Callable[[Any, Any], Any]
) -> None:
    def flatten_with_keys(x: Any) -> tuple[list[Any], Any]:
        leaves, context = flatten(x)
        return [(pytree.GetAttrKey("values"), *leaves)], context

    pytree.register_pytree_node(kind, flatten, unflatten, flatten_with_keys_fn=flatten_with_keys)


_register(Stacked, _flatten_stacked, _join_stacked)
