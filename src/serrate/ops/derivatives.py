"""Derivatives of programs over operations, by the rules of records.

A program is run once while a tape at the door notes down its steps. An operation that has a rule of its own, or is a
primitive, is one step; any other is run by its body, so its derivative is composed of those of the steps in it. The way
back goes over the steps in reverse and calls operations again: it is a program itself, and can be differentiated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

from serrate.ops.call import TRACER, call
from serrate.ops.record import BY_TORCH, Op, ops
from serrate.tensor.assignment import shares_memory
from serrate.tensor.tensor import Tensor, as_tensor


class Step(NamedTuple):
    """One call of an operation, and what it gave."""

    op: Op
    arguments: tuple[Any, ...]
    named: dict[str, Any]
    result: Any


def pullback(function: Callable[..., Any], *operands: Any) -> tuple[Any, Callable[[Any], tuple[Any, ...]]]:
    """What a program over operations gives for tensors, and the function from its gradient to theirs.

    An operand that the result does not depend on has the gradient None. A result of several tensors has a tuple of
    gradients, in which None stands for 0.

    >>> import serrate as sr
    >>> from serrate.ops.derivatives import pullback
    >>> out, back = pullback(lambda x: sr.sum(x * x, axis=1), sr.ragged([[1., 2.], [], [3.]]))
    >>> out.tolist()
    [5.0, 0.0, 9.0]
    >>> back(sr.asarray([1., 1., 10.]))[0].tolist()
    [[2.0, 4.0], [], [60.0]]
    """
    given = tuple(as_tensor(operand) for operand in operands)
    tape = _Tape()
    token = TRACER.set(tape)
    try:
        result = function(*given)
    finally:
        TRACER.reset(token)
    return result, lambda gradient: tape.gradients(result, gradient, given)


def run_body(op: Op, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """What the body of an operation gives for these arguments; torch tensors among them count as Tensors."""

    def read(given: Any) -> Any:
        if isinstance(given, torch.Tensor):
            return as_tensor(given)
        return type(given)(map(read, given)) if type(given) in (tuple, list) else given

    assert op.body is not None
    return op.body(*read(arguments), **{name: read(each) for name, each in named.items()})


def vjp(op: Op, arguments: tuple[Any, ...], named: dict[str, Any], result: Any, gradient: Any) -> tuple[Any, ...]:
    """The gradients of an operation's operands, each like the operand that `op.operands` names; None for none."""
    bound = op.signature.bind(*arguments, **named)
    bound.apply_defaults()
    operands = [bound.arguments.pop(name) for name in op.operands]
    attributes = dict(bound.arguments)
    if op.vjp is None:
        raise NotImplementedError(f"{op.name} has no rule for its derivative")
    if op.vjp == BY_TORCH:
        return _by_torch(op, arguments, named, operands, gradient)
    made = op.vjp(gradient, result, *operands, **attributes)
    return made if isinstance(made, tuple) and len(operands) != 1 else (made,)


class _Tape:
    """A tracer that runs a program, and notes down the steps that its derivative goes back over."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.outside = TRACER.get()
        self.first: dict[int, Tensor] = {}
        """For each tensor that was written to, by its identity, a copy of what it was at first."""

    def __call__(
        self, op: Op, arguments: tuple[Any, ...], named: dict[str, Any], spelling: Callable[..., Any] | None
    ) -> Any:
        if spelling is not None:
            raise TypeError(f"a program that is differentiated calls sr.{op.name}, and not torch's {spelling.__name__}")
        if op.vjp is None and op.body is not None and not op.flat:
            return run_body(op, arguments, named)
        before = self._kept(arguments[0]) if op.writes else None
        token = TRACER.set(self.outside)
        try:
            result = call(op, arguments, named)
        finally:
            TRACER.reset(token)
        if before is not None:
            self.steps.append(Step(op, (before, *arguments[1:]), named, arguments[0]))
        elif not op.flat and op.primitive != "stop_gradient":
            self.steps.append(Step(op, arguments, named, result))
        return result

    def _kept(self, x: Tensor) -> Tensor:
        """A copy of a tensor that is about to be written to, in its place in all steps up to now.

        What other tensors see through the same memory would change without a step that says so.
        """
        for step in self.steps:
            for each in _tensors((step.arguments, step.named, step.result)):
                values = each.values if isinstance(each, Tensor) else each
                if each is not x and shares_memory(values, x.values):
                    raise TypeError(
                        f"a program that is differentiated writes to a tensor of shape {x.shape}, of which another one "
                        f"sees the same memory; write to a clone"
                    )
        copy = x._with(x.values.clone())
        self.first.setdefault(id(x), copy)
        self.steps = [
            step._replace(
                **{name: _replaced(getattr(step, name), x, copy) for name in ("arguments", "named", "result")}
            )
            for step in self.steps
        ]
        return copy

    def gradients(self, result: Any, gradient: Any, operands: tuple[Tensor, ...]) -> tuple[Any, ...]:
        """The gradients of the operands of the program, given that of its result."""
        found = _Gradients()
        found.add(result, gradient)
        given = [self.first.get(id(operand), operand) for operand in operands]
        for step in reversed(self._depending({id(operand) for operand in given})):
            made = found.take(step.result)
            if made is not None:
                bound = step.op.signature.bind(*step.arguments, **step.named)
                each = vjp(step.op, step.arguments, step.named, step.result, made)
                for name, part in zip(step.op.operands, each, strict=True):
                    found.add(bound.arguments.get(name), part)
        return tuple(found.of(operand) for operand in given)

    def _depending(self, known: set[int]) -> list[Step]:
        """The steps whose results depend on the tensors that are known."""
        made = []
        for step in self.steps:
            if any(id(part) in known for part in _tensors((step.arguments, step.named))):
                made.append(step)
                known.update(id(part) for part in _tensors(step.result))
        return made


class _Gradients:
    """Gradients of tensors, added up as they come."""

    def __init__(self) -> None:
        self._of: dict[int, Any] = {}

    def add(self, tensors: Any, gradients: Any) -> None:
        """Add a gradient for a tensor, or those in a tuple or a list for the tensors in another."""
        if gradients is None or tensors is None:
            return
        if isinstance(tensors, (tuple, list)):
            for each, gradient in zip(tensors, gradients, strict=True):
                self.add(each, gradient)
        elif isinstance(tensors, (Tensor, torch.Tensor)):
            before = self._of.get(id(tensors))
            self._of[id(tensors)] = gradients if before is None else ops.add(before, gradients)

    def take(self, tensors: Any) -> Any:
        """The gradient of a tensor, or those of several in a tuple; they are not needed again. None stands for 0."""
        if isinstance(tensors, (tuple, list)):
            made = tuple(self.take(each) for each in tensors)
            return None if all(each is None for each in made) else made
        return self._of.pop(id(tensors), None)

    def of(self, tensor: Tensor) -> Any:
        """The gradient of a tensor."""
        return self._of.get(id(tensor))


def _tensors(given: Any) -> Iterator[Tensor | torch.Tensor]:
    """The tensors in arguments or in a result."""
    if isinstance(given, (Tensor, torch.Tensor)):
        yield given
    elif isinstance(given, dict):
        for part in given.values():
            yield from _tensors(part)
    elif isinstance(given, (tuple, list)):
        for part in given:
            yield from _tensors(part)


def _replaced(given: Any, tensor: Tensor, other: Tensor) -> Any:
    """Arguments or a result with another tensor in the place of one."""
    if isinstance(given, dict):
        return {name: _replaced(part, tensor, other) for name, part in given.items()}
    if type(given) in (tuple, list):
        return type(given)(_replaced(part, tensor, other) for part in given)
    return other if given is tensor else given


def _by_torch(
    op: Op, arguments: tuple[Any, ...], named: dict[str, Any], operands: list[Any], gradient: Any
) -> tuple[Any, ...]:
    """What torch's autograd makes of the last implementation, which is made of torch's operations."""
    if TRACER.get() is not None:
        raise NotImplementedError(
            f"the derivative of {op.name} is torch's own, which a program over operations cannot differentiate again"
        )
    leaves: dict[int, tuple[Any, torch.Tensor]] = {}

    def leaf(given: Any) -> Any:
        if isinstance(given, (Tensor, torch.Tensor)) and (given.is_floating_point() or given.is_complex()):
            values = (given.values if isinstance(given, Tensor) else given).detach().requires_grad_()
            made = given._with(values) if isinstance(given, Tensor) else values
            leaves[id(given)] = (given, values)
            return made
        return type(given)(leaf(part) for part in given) if type(given) in (list, tuple) else given

    with torch.enable_grad():
        result = op.implementations[-1].function(*leaf(arguments), **{name: leaf(each) for name, each in named.items()})
    outs, grads = [], []
    for out, each in zip(_tensors(result), _listed(gradient), strict=True):
        values = out.values if isinstance(out, Tensor) else out
        if each is not None and values.requires_grad:
            outs.append(values)
            grads.append(each.values if isinstance(each, Tensor) else each)
    packed = [values for _, values in leaves.values()]
    found = torch.autograd.grad(outs, packed, grads, allow_unused=True) if outs else [None] * len(packed)
    made = {
        key: None if each is None else given._with(each) if isinstance(given, Tensor) else as_tensor(each)
        for (key, (given, _)), each in zip(leaves.items(), found, strict=True)
    }

    def gradient_of(given: Any) -> Any:
        return [gradient_of(part) for part in given] if isinstance(given, (list, tuple)) else made.get(id(given))

    return tuple(gradient_of(operand) for operand in operands)


def _listed(gradient: Any) -> list[Any]:
    return list(gradient) if isinstance(gradient, (tuple, list)) else [gradient]
