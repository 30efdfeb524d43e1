"""Writing: what a traced function writes to tensors becomes new values, also through views of them."""

from __future__ import annotations

import functools
import inspect
import os.path
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from serrate.compiler.refusing import users_line
from serrate.compiler.spellings import CHANGES_SHAPE
from serrate.compiler.traced import Traced
from serrate.lowering import parts, views
from serrate.ops.meta import call_name
from serrate.ops.record import TABLE, Op
from serrate.program.partitions import Call
from serrate.program.program import Instruction, replaced
from serrate.program.types import Value

if TYPE_CHECKING:
    from serrate.compiler.tracing import Trace


def write(trace: Trace, op: Op, arguments: tuple[Any, ...], named: dict[str, Any], spelling: Any) -> Any:
    """A write becomes a new value, which the tensor stands for from now on."""
    written = arguments[0]
    x = _standing(trace, written)
    arguments = (x, *arguments[1:])
    if spelling is not None:
        made = op.spellings[spelling](*arguments, **named)
        return written if made is x else made
    file, line, _ = users_line()
    given, options = replaced((arguments, named), trace.typed)
    function = parts.as_function(op.name)
    value = trace.entered(
        f"{op.name}", call_name(op, given, options), function, given, options, f"{os.path.basename(file)}:{line}",
        function,
    )  # fmt: skip
    _rebind(trace, x, value)
    return None if op.name == "Tensor.setitem" else written


def link(trace: Trace, view: Traced, base: Any, made: Instruction) -> None:
    """Let a tensor that eager code would make as a view see what is written to its base, and the other way."""
    if not isinstance(base, Traced) or made.operands[:1] != (base.value,) or not views.is_view(made):
        return
    where = made.where

    def derived(value: Value) -> Value:
        arguments = (value, *made.arguments[1:])
        return trace.called(TABLE[made.op], arguments, dict(made.named), where)  # type: ignore[no-any-return]

    def written(value: Value, part: Value) -> Value:
        write = views.writer(made)
        given = (value, part, *made.arguments[1:])
        call = Call(f"written through {made.op}", (object(),))
        return trace.entered(  # type: ignore[no-any-return]
            f"written through {made.op}", call, write, given, dict(made.named), where, write
        )

    view.follow(base, derived, written)


def _standing(trace: Trace, given: Any) -> Traced:
    """What stands for a tensor that is written to, if it is one that the function found or made, too."""
    if isinstance(given, Traced):
        return given
    trace.capture(given)
    return trace.standing[id(given)]


def write_by_torch(trace: Trace, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A write of torch becomes a new value, which the tensor stands for from now on."""
    x = _standing(trace, args[0])
    name = f"torch.{function.__name__}"
    if function.__name__ in CHANGES_SHAPE:
        raise NotImplementedError(f"{name} changes what a tensor is, and not only its elements")
    file, line, _ = users_line()
    given, options = replaced(((x, *args[1:]), kwargs), trace.typed)
    run = parts.without_writing(function)
    value = trace.entered(name, Call(name, (object(),)), run, given, options, f"{os.path.basename(file)}:{line}", run)
    _rebind(trace, x, value)
    return None if function.__name__ == "__setitem__" else args[0]


def is_in_place(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a function of torch is asked to write its result to its operand, as by `inplace=True`."""
    place = _place_of_inplace(function)
    return place >= 0 and bool(args[place] if place < len(args) else kwargs.get("inplace", False))


def write_in_place(trace: Trace, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What such a function gives becomes what its operand stands for, which is returned."""
    place = _place_of_inplace(function)
    if place < len(args):
        args = (*args[:place], False, *args[place + 1 :])
    else:
        kwargs = {**kwargs, "inplace": False}
    given = args[0] if args else kwargs["input"]
    x = _standing(trace, given)
    value = trace.typed(trace.torch_function(function, args, kwargs))
    if value != x.value:
        _rebind(trace, x, value)
    return given


@functools.cache
def _place_of_inplace(function: Callable[..., Any]) -> int:
    """The place of the parameter `inplace` of a function of torch; -1 if it has none."""
    if getattr(function, "__module__", None) != "torch.nn.functional":
        return -1
    names = list(inspect.signature(function).parameters)
    return names.index("inplace") if "inplace" in names else -1


def updates_statistics(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a function of torch writes running statistics of what it normalizes."""
    names = _STATISTICS.get(function)
    if names is None:
        return False
    given = dict(zip(names, args, strict=False)) | kwargs
    asked = next(each for each in ("training", "use_input_stats") if each in names)
    default = function is torch.nn.functional.instance_norm
    return given.get("running_mean") is not None and bool(given.get(asked, default))


def write_statistics(trace: Trace, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What a function gives that updates running statistics. These are new values, which are written in the end."""
    names = _STATISTICS[function]
    given = dict(zip(names, args, strict=False)) | kwargs
    standing = [_standing(trace, given[name]) for name in ("running_mean", "running_var")]
    file, line, _ = users_line()
    run = parts.with_statistics(function)
    name, where = f"torch.{function.__name__}", f"{os.path.basename(file)}:{line}"
    options = replaced(given, trace.typed)
    result, *updated = trace.entered(name, Call(name, (object(),)), run, (), options, where, run)
    for x, value in zip(standing, updated, strict=True):
        _rebind(trace, x, trace.called(TABLE["Tensor.detach"], (value,), {}, where))
    return result


_NORM = ("input", "running_mean", "running_var", "weight", "bias")
_NORM_OF_C = ("input", "weight", "bias", "running_mean", "running_var")
_STATISTICS: dict[Callable[..., Any], tuple[str, ...]] = {
    torch.nn.functional.batch_norm: (*_NORM, "training", "momentum", "eps"),
    torch.nn.functional.instance_norm: (*_NORM, "use_input_stats", "momentum", "eps"),
    torch.batch_norm: (*_NORM_OF_C, "training", "momentum", "eps", "cudnn_enabled"),
    torch.instance_norm: (*_NORM_OF_C, "use_input_stats", "momentum", "eps", "cudnn_enabled"),
}
"""Functions of torch that update running statistics, with the names of their parameters."""


def _rebind(trace: Trace, x: Traced, value: Value) -> None:
    """Let a tensor stand for what was written to it, unless that could reach tensors which nobody follows."""
    for each in x.family:
        for made in trace.instructions:
            shown = made.operands[:1] == (each,)
            if (shown or each in made.results) and views.may_be_view(made):
                raise NotImplementedError(
                    f"a tensor is written to that {made.op} gave or took, which may share their memory"
                )
    x.rebind(value)


def link_values(trace: Trace, values: Traced, x: Traced) -> None:
    """Let the packed values of a tensor see what is written to it, and the other way."""
    of_values, with_values = Call("x.values", (object(),)), Call("written to x.values", (object(),))

    def derived(value: Value) -> Value:
        return trace.entered("x.values", of_values, parts.values, (value,), {}, "", parts.values)  # type: ignore[no-any-return]

    def written(value: Value, part: Value) -> Value:
        run = parts.with_values
        return trace.entered("written to x.values", with_values, run, (value, part), {}, "", run)  # type: ignore[no-any-return]

    values.follow(x, derived, written)
