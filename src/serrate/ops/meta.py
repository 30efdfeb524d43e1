"""The types of an operation's results, found from those of its operands without a look at elements.

The rule for types is the operation's own code, its last implementation, which is made of torch's operations: it runs on
tensors without elements (`serrate.program.abstract`). So no shape, dtype or capacity is worked out by a second rule.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import torch

from serrate.ops.call import TRACER
from serrate.ops.record import Op
from serrate.program.abstract import AbstractRun, mapped
from serrate.program.guards import Guard, Known, Meeting
from serrate.program.partitions import Call, Expression
from serrate.program.sizes import POINTS, Polynomial
from serrate.program.types import RaggedAxis, TensorType, Value
from serrate.tensor.tensor import Tensor


class Typed(NamedTuple):
    """What a call gives, with types in the place of tensors, and what has to be equal for that."""

    result: Any
    guards: tuple[Guard, ...]


def meta(
    op: Op, arguments: tuple[Any, ...], named: dict[str, Any], spelling: Callable[..., Any] | None = None
) -> Typed:
    """What the operation gives for arguments in which a `TensorType`, or a `Value`, stands for each tensor.

    Partitions, sizes and ragged axes among the arguments are given as a type has them. `spelling` is the function of
    torch whose arguments these are, as in `call`.

    >>> import serrate as sr
    >>> from serrate.ops.meta import meta
    >>> from serrate.ops.record import TABLE
    >>> from serrate.program.inputs import Inputs
    >>> kind = Inputs().type_of(sr.ragged([[1., 2.], []]))
    >>> print(meta(TABLE["sum"], (kind,), {"axis": 1}).result)
    float32[n0] on cpu
    """
    function = op.implementations[-1].function if spelling is None else op.spellings[spelling]
    call = _call(op, arguments, named, spelling)
    guards: tuple[Guard, ...] = ()
    while True:
        try:
            first, *others = (
                _result(function, AbstractRun(Known(guards), call, point), arguments, named) for point in range(POINTS)
            )
            if any(other != first for other in others):
                raise TypeError(f"a size of what {op.name} gives follows from others in a way that no type can say")
            return Typed(first, guards)
        except Meeting as met:
            if met.guard in guards:
                raise TypeError(f"{op.name} meets {met.guard} again, though it was taken for given") from None
            guards = (*guards, met.guard)


def _result(function: Callable[..., Any], run: AbstractRun, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """What a function gives for tensors of types, as types."""

    def given(part: Any) -> Any:
        if isinstance(part, (TensorType, Value)):
            return run.tensor(part.type if isinstance(part, Value) else part)
        if isinstance(part, Expression):
            return run.partition(part)
        return run.axis(part) if isinstance(part, (RaggedAxis, Polynomial)) else part

    def made(part: Any) -> Any:
        return run.type_of(part) if isinstance(part, (Tensor, torch.Tensor)) else part

    outside = TRACER.set(None)  # a tracer sees the operation, and not what its implementation calls
    try:
        with run.entered():
            return mapped(function(*mapped(arguments, given), **mapped(named, given)), made)
    except (TypeError, ValueError, LookupError) as error:
        error.args = tuple(run.said(part) if isinstance(part, str) else part for part in error.args)
        raise
    finally:
        TRACER.reset(outside)


def _call(op: Op, arguments: tuple[Any, ...], named: dict[str, Any], spelling: Callable[..., Any] | None) -> Call:
    """What decides about the partitions that a call makes."""
    if spelling is not None:
        return Call(op.name, (spelling, _key(arguments, bool(op.decides)), _key(named, bool(op.decides))))
    given = op.signature.bind(*arguments, **named).arguments
    return Call(op.name, tuple((name, _key(value, name in op.decides)) for name, value in given.items()))


def _key(given: Any, decides: bool) -> Hashable:
    """What of an argument decides about partitions: the structure of a tensor, and its elements too if it `decides`."""
    if isinstance(given, (Value, TensorType)):
        kind, name = (given.type, given.name) if isinstance(given, Value) else (given, object())
        return (kind.axes, kind.features, kind.order, name if decides else None)
    if isinstance(given, (list, tuple)):
        return tuple(_key(part, decides) for part in given)
    if isinstance(given, dict):
        return tuple((name, _key(part, decides)) for name, part in given.items())
    if isinstance(given, slice):
        return ("slice", given.start, given.stop, given.step)
    if isinstance(given, torch.Tensor) or not isinstance(given, Hashable):
        return object()  # what elements it has, nobody can tell by its identity
    return (type(given), given) if isinstance(given, (bool, int, float, complex)) else given
