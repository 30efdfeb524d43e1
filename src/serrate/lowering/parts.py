"""Parts: what instructions call that is no operation of a record: parts of tensors, writes, and functions of torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from serrate.lowering.factories import factory
from serrate.lowering.keys import OF_TORCH
from serrate.ops.answers import SPELLED
from serrate.ops.grouping import Grouped
from serrate.ops.record import TABLE
from serrate.program.program import replaced
from serrate.tensor import abstract, broadcast, combine
from serrate.tensor.tensor import Tensor, as_tensor


def values(x: Tensor) -> torch.Tensor:
    """The packed values."""
    return x.values


def with_values(x: Tensor, elements: Any) -> Tensor:
    """The tensor with other values."""
    return x._with(elements.values if isinstance(elements, Tensor) else elements)


def clone(x: Tensor) -> Tensor:
    """A copy of the elements."""
    return x.clone()


def offsets(x: Tensor, level: int) -> torch.Tensor:
    """The offsets of one ragged level."""
    return x.partitions[level].offsets_on(x.device)


def lengths(x: Tensor, level: int) -> torch.Tensor:
    """The lengths of one ragged level."""
    return torch.diff(x.partitions[level].offsets_on(x.device))


def cu_seqlens(x: Tensor) -> torch.Tensor:
    """int32 offsets of the rows along the first axis."""
    return combine.row_offsets(x).offsets_on(x.device).to(torch.int32)


def number(size: int) -> torch.Tensor:
    """A size as a tensor of one element."""
    return torch.tensor(size, dtype=torch.int64, device="cpu")


def rank(x: Any) -> torch.Tensor:
    """How many axes a tensor has, as a tensor of one element."""
    return torch.tensor(x.ndim, dtype=torch.int64)


def size(x: Any) -> torch.Tensor:
    """How many elements a tensor has, as a tensor of one element."""
    return torch.tensor(x.numel(), dtype=torch.int64)


def shape(x: Any) -> torch.Tensor:
    """The sizes of the axes of a dense tensor, as a tensor."""
    return torch.tensor(tuple(x.shape), dtype=torch.int64)


def from_ranked(x: Any, of: str) -> Tensor:
    """A tensor of the memory of another one, which is a "tensor" or a "memref" to the caller."""
    return as_tensor(x)


def divisor(given: Any) -> torch.Tensor:
    """A number of one element that is divided by."""
    values: torch.Tensor = given.values if isinstance(given, Tensor) else given
    if abstract.current() is None and not values:
        raise ZeroDivisionError("division by zero")
    return values.clone()


def ungroup(grouped: Any, y: Any) -> Any:
    """The rows of y where those of a grouped tensor came from."""
    return grouped.ungroup(y)


PARTS: dict[str, Callable[..., Any]] = {
    function.__name__: function for function in (values, offsets, lengths, cu_seqlens, ungroup)
}


@factory
def as_function(name: str) -> Callable[..., Any]:
    """An operation that writes, as a function that gives what is written and leaves its operand as it is."""
    implementation = TABLE[name].implementations[-1].function

    def function(x: Any, *arguments: Any, **named: Any) -> Any:
        copy = as_tensor(x).clone()
        implementation(copy, *arguments, **named)
        return copy

    function.__name__ = name
    return function


@factory
def of_torch(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of torch on dense tensors, of Serrate's class or torch's."""

    def call(*arguments: Any, **named: Any) -> Any:
        given, options = replaced((arguments, named), lambda part: part.values if isinstance(part, Tensor) else part)
        return function(*given, **options)

    call.__name__ = getattr(function, "__name__", str(function))
    return call


@factory
def of_elements(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """A function of torch of elements, whose results have the types of those of an operation."""
    implementation, run = TABLE[name].implementations[-1].function, of_torch(function)

    def call(*arguments: Any) -> Any:
        return run(*arguments) if abstract.current() is None else implementation(*arguments)

    call.__name__ = getattr(function, "__name__", name)
    return call


@factory
def without_writing(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of torch that writes to its first operand, as one that gives what is written."""

    def call(x: Any, *arguments: Any, **named: Any) -> Any:
        copy = (x.values if isinstance(x, Tensor) else x).clone()
        of_torch(function)(copy, *arguments, **named)
        return copy

    call.__name__ = getattr(function, "__name__", str(function))
    return call


@factory
def with_statistics(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of torch that updates running statistics, as one that gives the updated ones behind its result."""

    def call(*, running_mean: Any, running_var: Any, **named: Any) -> Any:
        copies = [(x.values if isinstance(x, Tensor) else x).clone() for x in (running_mean, running_var)]
        made = of_torch(function)(**named, running_mean=copies[0], running_var=copies[1])
        return made, *copies

    call.__name__ = getattr(function, "__name__", str(function))
    return call


def laid_out_like(gradient: Tensor, x: Tensor) -> Tensor:
    """A gradient with the elements of x in the places where x has them."""
    given, like = as_tensor(gradient), as_tensor(x)
    values = broadcast.align(given, like)
    return like._with(values.expand(like.values.shape).to(like.dtype).contiguous())


@factory
def with_record(function: Callable[..., Any], asked: tuple[bool, ...]) -> Callable[..., Any]:
    """A function that gives what `function` gives, and a record of how torch's autograd goes back from there.

    `asked` says of each tensor of inexact numbers, in the order in which they first occur, whether its gradient counts.

    The record is a tensor without elements, so that it is saved as all that a way back needs, and freed with it.
    """

    def call(*arguments: Any, **named: Any) -> tuple[Any, torch.Tensor]:
        tape, record = _Tape(function, asked, arguments, named), torch.empty(0, dtype=torch.uint8, device="cpu")
        record.tape = tape  # type: ignore[attr-defined]
        return tape.given(), record

    call.__name__ = getattr(function, "__name__", str(function))
    return call


@factory
def by_torch(function: Callable[..., Any], asked: tuple[bool, ...]) -> Callable[..., Any]:
    """A function that gives the gradients of the tensors that are `asked` for. torch's autograd goes back along the
    record of the call. The function runs again where there is none, as under hooks that put other tensors in the places
    of those that are saved."""

    def call(gradients: Any, arguments: Any, named: Any, record: Any = None) -> tuple[Any, ...]:
        carrier = record.values if isinstance(record, Tensor) else record
        tape: _Tape | None = getattr(carrier, "tape", None)
        name = f"torch.{getattr(function, '__name__', '')}"
        if tape is None and name in OF_TORCH:
            raise RuntimeError(
                f"the way back of {name} cannot draw its random numbers again, and hooks on saved tensors have left "
                f"out the record of the call; use sr.dropout and sr.random"
            )
        return (_Tape(function, asked, arguments, named) if tape is None else tape).back(gradients)

    call.__name__ = f"vjp of {getattr(function, '__name__', function)}"
    return call


class _Tape:
    """A call of a function that torch's autograd has looked at."""

    def __init__(self, function: Callable[..., Any], asked: tuple[bool, ...], arguments: Any, named: Any) -> None:
        self.asked, self.met = asked, 0
        self.others: dict[int, tuple[Any, Any]] = {}
        """The tensors whose gradients do not count, and the same without a history."""
        self.leaves: dict[int, tuple[Any, torch.Tensor, Any]] = {}
        """The tensors of inexact numbers, the values that gradients are asked for, and the same around these."""
        with torch.enable_grad():
            given, options = replaced((arguments, named), self._leaf)
            op = SPELLED.get(function)  # a method of torch's tensors takes no others, and what answers for it does
            self.result = (function if op is None else op.spellings[function])(*given, **options)

    def _leaf(self, part: Any) -> Any:
        if not isinstance(part, (Tensor, torch.Tensor)) or not (part.is_floating_point() or part.is_complex()):
            return part
        if id(part) in self.others:
            return self.others[id(part)][1]
        if id(part) not in self.leaves:
            self.met += 1
            if not self.asked[self.met - 1]:
                self.others[id(part)] = part, _without_history(part)
                return self.others[id(part)][1]
            values = (part.values if isinstance(part, Tensor) else part).detach().requires_grad_()
            self.leaves[id(part)] = part, values, _around(part, values) if isinstance(part, Tensor) else values
        return self.leaves[id(part)][2]

    def given(self) -> Any:
        """What the function gave, without a history."""
        return replaced(self.result, lambda part: part.detach() if isinstance(part, (Tensor, torch.Tensor)) else part)

    def tensors(self) -> Iterator[torch.Tensor]:
        """The packed values of the leaves, and of what the function gave."""
        for _, values, _ in self.leaves.values():
            yield values
        pairs: list[tuple[torch.Tensor, torch.Tensor]] = []
        _pair(self.result, self.result, pairs)
        for values, _ in pairs:
            yield values

    def back(self, gradients: Any) -> tuple[Any, ...]:
        """The gradients of the leaves. It may be asked for again, as long as somebody keeps the tape."""
        pairs: list[tuple[torch.Tensor, torch.Tensor]] = []
        _pair(self.result, gradients, pairs)
        packed = [values for _, values, _ in self.leaves.values()]
        found = torch.autograd.grad(
            [one for one, _ in pairs], packed, [other for _, other in pairs], allow_unused=True, retain_graph=True
        ) if pairs else [None] * len(packed)  # fmt: skip
        made = []
        for (part, values, _), each in zip(self.leaves.values(), found, strict=True):
            # torch says that a gradient is 0 by a tensor without memory, too.
            gradient = torch.zeros_like(values) if each is None or each._is_zerotensor() else each
            made.append(part._with(gradient) if isinstance(part, Tensor) else gradient)
        return tuple(made)


def _around(part: Tensor, values: torch.Tensor) -> Tensor:
    """A tensor around other values, of the same class: one of groups still knows where its rows came from."""
    if isinstance(part, Grouped):
        return Grouped(values, part.structure, part.order, part.team, route=part.route)
    return part._with(values)


def _without_history(part: Any) -> Any:
    """The tensor itself, or one around the same elements without a history, of the same class."""
    if not part.requires_grad:
        return part
    return _around(part, part.values.detach()) if isinstance(part, Tensor) else part.detach()


def _pair(result: Any, gradients: Any, pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
    """Note down the results that have gradients, with these."""
    if gradients is None or not isinstance(result, (Tensor, torch.Tensor, tuple, list)):
        return
    if isinstance(result, (tuple, list)):
        for one, other in zip(result, gradients, strict=True):
            _pair(one, other, pairs)
        return
    one, other = (each.values if isinstance(each, Tensor) else each for each in (result, gradients))
    if one.requires_grad:
        pairs.append((one, other.reshape(one.shape)))
