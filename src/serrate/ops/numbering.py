"""Elements by number: what moves elements in any way, moves their numbers alike, and so finds the way back.

`numbered(x)` has a number for each element. Moved as x is, it says of each place which element came there; `collect`
then adds up, for each element, what stands at the places it came to, and `distribute` reads each element there again.
The derivatives of gathers, slices, padding and the like are written with these three.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from serrate.eager.arguments import integers
from serrate.eager.precision import widened
from serrate.errors import RaggednessError
from serrate.ops.record import ALL, NUMERIC, Error, Kind, operation, ops, record
from serrate.tensor import bits
from serrate.tensor.broadcast import align
from serrate.tensor.tensor import Tensor, as_tensor


@operation
def _numbered(x: Any, /) -> Tensor:
    tensor = as_tensor(x)
    return tensor._with(torch.arange(tensor.values.numel(), device=tensor.device).view(tensor.values.shape))


@operation
def _collect(x: Any, numbers: Any, like: Any, /) -> Tensor:
    at, model, tensor = integers(numbers, "numbers"), as_tensor(like), as_tensor(x)
    if tensor.dtype == torch.bool:
        raise TypeError(f"collect needs numbers, got {tensor.dtype}")
    count = model.values.numel()
    given = widened(align(tensor, at).expand(at.values.shape)).reshape(-1)
    cells = torch.where(_is_number(at), at.values, count).reshape(-1).to(torch.int64)
    made = given.new_zeros(count + 1).index_add(0, cells, given)[:count]
    return model._with(made.view(model.values.shape).to(tensor.dtype))


@operation
def _distribute(x: Any, numbers: Any, like: Any, /) -> Tensor:
    at, model, tensor = integers(numbers, "numbers"), as_tensor(like), as_tensor(x)
    given = align(tensor, model).expand(model.values.shape).reshape(-1)
    zero = given.new_zeros(())
    if given.numel() == 0:
        return at._with(zero.expand(at.values.shape))
    found = _is_number(at)
    cells = torch.where(found, at.values, 0).reshape(-1).to(torch.int64)
    return at._with(bits.where(found, bits.take(given, cells).view(at.values.shape), zero))


def _is_number(at: Tensor) -> torch.Tensor:
    """Where there is a number, and not -1 or what is undefined."""
    found = at.values >= 0
    return found if at.structure.is_exact else found & at.structure.defined_rows(at.values)


def _record(
    name: str,
    eager: Callable[..., Tensor],
    summary: str,
    call: str,
    gives: str,
    samples: tuple[str, ...],
    errors: tuple[Error, ...],
    kinds: tuple[Kind, ...],
    **fields: Any,
) -> None:
    record("numbering", name, eager, None, torch=(), summary=summary, example=(f"sr.{name}({call}).tolist()", gives),
           samples=samples, errors=errors, kinds=kinds, primitive="movement", **fields)  # fmt: skip


_NO_INTEGERS: Error = ("x, x, x", TypeError, "numbers must be integers")
_OTHER_ROWS: Error = (
    "x, sr.numbered(sr.from_lengths(torch.ones(6, 2), [1, 2, 3])), x",
    RaggednessError,
    "different raggedness",
)
_OTHER_MODEL: Error = (
    "x, sr.numbered(x), sr.from_lengths(torch.ones(6, 2), [1, 2, 3])",
    RaggednessError,
    "different raggedness",
)

# fmt: off
_record("numbered", _numbered, "For each element of x its number, in the order in which they are stored; int64.",
        "sr.ragged([[7., 8.], [], [9.]])", "[[0, 1], [], [2]]", ("x",),
        (("None", TypeError, "expected an sr.Tensor"),), ALL, flat="the result does not depend on elements")
_record("collect", _collect,
        "For each element of `like` the sum of the elements of x whose number is its own; those of -1 are left out.",
        "torch.tensor([1., 2., 4.]), torch.tensor([0, 2, 2]), sr.ragged([[7., 8.], [9.]])", "[[1.0, 0.0], [6.0]]",
        ("x, sr.numbered(x), x", "x, sr.numbered(x) // 2 - 1, x"), (_NO_INTEGERS, _OTHER_ROWS), NUMERIC,
        vjp=lambda g, out, x, numbers, like: (ops.distribute(g, numbers, like), None, None))
_record("distribute", _distribute,
        "The element of x, seen as `like` is, at each number, in the shape of the numbers; 0 for a number of -1.",
        "sr.ragged([[7., 8.], [9.]]), torch.tensor([2, -1]), sr.ragged([[0., 0.], [0.]])", "[9.0, 0.0]",
        ("x, sr.numbered(x), x", "x, sr.numbered(x) // 2 - 1, x"), (_NO_INTEGERS, _OTHER_MODEL), ALL,
        vjp=lambda g, out, x, numbers, like: (ops.collect(g, numbers, like), None, None))
# fmt: on
