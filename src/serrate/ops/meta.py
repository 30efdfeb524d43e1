"""The types of an operation's results, found from those of its operands without a look at elements.

The rule for types is the operation's own code, its last implementation, which is made of torch's operations: it runs on
tensors without elements (`serrate.program.abstract`). So no shape, dtype or capacity is worked out by a second rule.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException

from serrate.ops.call import TRACER
from serrate.ops.record import Op
from serrate.program.abstract import AbstractRun, mapped, unsaid
from serrate.program.devices import device_named, has_stand_in, stand_in
from serrate.program.guards import Guard, Known, Meeting
from serrate.program.partitions import Call, Expression
from serrate.program.points import POINTS, SCALES, Point
from serrate.program.program import replaced
from serrate.program.sizes import Polynomial
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
    program = program_of(op.name, (arguments, named))
    return typed(op.name, call_name(op, arguments, named, spelling), function, arguments, named, program)


def typed(
    name: str,
    call: Call,
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    named: dict[str, Any],
    program: int | None,
    guards: tuple[Guard, ...] = (),
) -> Typed:
    """What a function gives for arguments in which types, or values, stand for tensors.

    `name` says in errors what runs, and `call` names the partitions that it makes. `guards` are taken for given.
    """

    def at(run: AbstractRun) -> Any:
        outside = TRACER.set(None)  # a tracer sees the operation, and not what its implementation calls
        try:
            with run.entered(), torch._C.DisableTorchFunctionSubclass():
                inside, options = replaced((arguments, named), lambda part: given_at(run, part))
                result = function(*inside, **options)
                return replaced(
                    result, lambda part: run.type_of(part) if isinstance(part, (Tensor, torch.Tensor)) else part
                )
        finally:
            TRACER.reset(outside)

    return found_at_points(name, at, call, program, guards=guards)


def found_at_points(
    name: str,
    run: Callable[[AbstractRun], Any],
    call: Call,
    program: int | None,
    *,
    guards: tuple[Guard, ...] = (),
) -> Typed:
    """What `run` gives on tensors without elements, with types in the place of tensors, and the guards that it needs.

    It runs at several points, and has to give the same at all of them. `name` says in errors what runs; `guards` are
    taken for given from the start.
    """
    plain: frozenset[int] = frozenset()
    scales = iter(SCALES)
    scale = next(scales)
    while True:
        known = Known(guards)
        points = [Point(known.sizes, which, scale, plain) for which in range(POINTS)]
        try:
            made = _at_points(run, [AbstractRun(known, call, each, program) for each in points])
        except TooManyElements:
            scale, plain = next(scales, scale), frozenset()
            if scale is points[0].scale:
                raise TypeError(f"{name} makes a tensor of so many unknown sizes that torch cannot count it") from None
            continue
        first = made[0]
        if isinstance(first, Exception) or not _is_settled(made):
            alike = frozenset.intersection(*(frozenset(point.guessed) for point in points))
            if alike:  # Numbers that do not depend on what stands for symbols are known.
                plain |= alike
                continue
        if isinstance(first, Meeting) and first.guard not in guards:
            guards = (*guards, first.guard)
        elif isinstance(first, Meeting):
            raise TypeError(f"{name} meets {first.guard} again, though it was taken for given")
        elif isinstance(first, Exception):
            raise first
        elif _is_settled(made):
            return Typed(first, guards)
        else:
            raise TypeError(f"a size of what {name} gives follows from others in a way that no type can say")


def _is_settled(made: list[Any]) -> bool:
    """Whether all points give the same types, and these say all of their sizes."""
    wrong: list[TensorType] = []

    def look(part: Any) -> None:
        kind = part.type if isinstance(part, Value) else part
        if isinstance(kind, TensorType) and unsaid(kind) is not None:
            wrong.append(kind)

    mapped(made[0], look)
    return not wrong and all(other == made[0] for other in made)


class TooManyElements(Exception):
    """The numbers that stand for symbols make a tensor of more elements than torch can count."""


def _at_points(at: Callable[[AbstractRun], Any], runs: list[AbstractRun]) -> list[Any]:
    """What a program gives at each point: a result, or the error or `Meeting` by which the run ends.

    Other points are left out where the first one ends by an error, unless they may show which numbers are known.
    """
    made: list[Any] = []
    for run in runs:
        try:
            made.append(at(run))
        except (Meeting, TypeError, ValueError, LookupError) as error:
            if "Overflow when unpacking" in str(error):
                raise TooManyElements from None
            error.args = tuple(run.said(part) if isinstance(part, str) else part for part in error.args)
            made.append(error)
        except (DynamicOutputShapeException, DataDependentOutputException) as error:
            raise TypeError(f"the type of the result depends on elements, at which torch's {error} looks") from None
        except RuntimeError as error:
            if "overflow" in str(error):
                raise TooManyElements from None
            raise
        if isinstance(made[0], Exception) and not run.point.guessed:
            break
    return made


def given_at(run: AbstractRun, part: Any) -> Any:
    """A part of the arguments of a call as eager code takes it: a tensor without elements for a type, and so on."""
    if isinstance(part, slice):
        return slice(given_at(run, part.start), given_at(run, part.stop), given_at(run, part.step))
    if isinstance(part, (TensorType, Value)):
        return run.tensor(part.type if isinstance(part, Value) else part)
    if isinstance(part, Expression):
        return run.partition(part)
    if has_stand_in(part):
        return stand_in(device_named(str(part)))
    return run.axis(part) if isinstance(part, (RaggedAxis, Polynomial)) else part


def program_of(name: str, given: Any) -> int | None:
    """The program that the types among the arguments are of; None if they were made by hand."""
    found: set[int] = set()

    def look(part: Any) -> None:
        kind = part.type if isinstance(part, Value) else part
        if isinstance(kind, TensorType) and kind.program is not None:
            found.add(kind.program)

    mapped(given, look)
    if len(found) > 1:
        raise TypeError(
            f"{name} was given types that come from {len(found)} Inputs, in which equal names mean different sizes "
            f"and partitions; the types of one program come from one Inputs"
        )
    return found.pop() if found else None


def call_name(
    op: Op, arguments: tuple[Any, ...], named: dict[str, Any], spelling: Callable[..., Any] | None = None
) -> Call:
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
