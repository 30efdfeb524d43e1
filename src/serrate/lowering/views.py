"""Views: which calls give tensors that share their memory with an operand, and how a write through one reaches it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from serrate.lowering.factories import factory
from serrate.ops.record import TABLE
from serrate.program.program import Instruction
from serrate.program.types import RaggedAxis
from serrate.tensor.tensor import as_tensor

_VIEWS = ("permute_dims", "expand_dims", "squeeze", "Tensor.flat", "moveaxis", "matrix_transpose")


_PERHAPS = frozenset(
    [
        "reshape",
        "broadcast_to",
        "broadcast_arrays",
        "unstack",
        "split",
        "chunk",
        "Tensor.rows",
        "Tensor.combine",
        "Tensor.to",
        "Tensor.contiguous",
        "Tensor.detach",
        "linalg.diagonal",
        "view_as_nested",
        "astype",
    ]
) | {
    f"torch.{name}"
    for name in [
        "t",
        "transpose",
        "swapaxes",
        "swapdims",
        "movedim",
        "moveaxis",
        "narrow",
        "select",
        "diagonal",
        "view_as",
        "view",
        "unfold",
        "chunk",
        "split",
        "tensor_split",
        "unsafe_chunk",
        "unsafe_split",
        "split_with_sizes",
        "unbind",
        "hsplit",
        "vsplit",
        "dsplit",
        "squeeze",
        "unsqueeze",
        "expand",
        "expand_as",
        "reshape",
        "reshape_as",
        "flatten",
        "ravel",
        "unflatten",
        "contiguous",
        "detach",
        "real",
        "imag",
        "adjoint",
        "permute",
        "as_strided",
        "to",
        "type",
        "float",
        "double",
        "half",
        "bfloat16",
        "int",
        "long",
        "bool",
        "type_as",
        "view_as_real",
        "view_as_complex",
        "atleast_1d",
        "atleast_2d",
        "atleast_3d",
        "broadcast_to",
        "broadcast_tensors",
        "as_tensor",
        "asarray",
        "positive",
        "conj",
        "resolve_conj",
        "resolve_neg",
        "__getitem__",
    ]
}
"""Other calls for which eager code may give views. What is written to these, or to what they show, is not followed."""


def may_be_view(made: Instruction) -> bool:
    """Whether eager code may give a view for a call that is not followed as one."""
    return made.op in _PERHAPS and not is_view(made)


def is_view(made: Instruction) -> bool:
    """Whether eager code gives a view for a call."""
    if made.op in _VIEWS:
        return True
    if made.op != "Tensor.getitem":
        return False
    x, key = made.arguments
    parts = [part for part in (key if isinstance(key, tuple) else (key,)) if part is not None]
    if Ellipsis in parts:
        place = parts.index(Ellipsis)
        parts[place : place + 1] = [slice(None)] * (len(x.type.order) - len(parts) + 1)
    for axis, part in zip(x.type.shape, parts, strict=False):
        if isinstance(part, bool) or not isinstance(part, (int, slice)):
            return False
        if isinstance(axis, RaggedAxis) and part != slice(None):
            return False
        if isinstance(part, slice) and part.step not in (None, 1) and not _is_feature(x, axis):
            return False
    return True


def _is_feature(x: Any, axis: Any) -> bool:
    return axis in x.type.features and axis not in x.type.axes


def writer(made: Instruction) -> Callable[..., Any]:
    """A function of the base, the new elements of the view, and the other arguments of the call that made the view: the
    base with these elements in the places that the view shows."""
    return written_through(made.op)


@factory
def written_through(name: str) -> Callable[..., Any]:
    """The same for the operation of a name."""
    implementation = TABLE[name].implementations[-1].function

    def write(base: Any, elements: Any, *arguments: Any, **named: Any) -> Any:
        copy = as_tensor(base).clone()
        implementation(copy, *arguments, **named).copy_(elements)
        return copy

    write.__name__ = f"written through {name}"
    return write
