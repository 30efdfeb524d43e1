"""The table of operations: what each is called, means, computes and is tested with, in one record.

`sr.*` functions, `Tensor` methods, `torch.*` on Tensors, the documents and the tests are made from these records or
checked against them. Adding an operation is adding a record.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch.utils._pytree import tree_leaves, tree_map

from serrate.errors import AxisError
from serrate.tensor.tracing import untraced

Capacity = Literal["exact", "bounded", "needs-host"]
Kind = Literal["float", "complex", "int", "bool"]
Shape = Literal["broadcast", "same", "reduced", "own"]
"""How the result's shape follows: the operands' common shape, the first operand's, the first operand's without the
reduced axes, or as the operation's summary says."""
Result = Literal["promoted", "same", "real", "complex", "float", "sum", "bool", "int64", "own"]
"""How the result's dtype follows: torch's promotion of the operands, the first operand's, the real type of a complex
one, the complex type of a real one, the default float for integers, int64 for integers and bools (uint64 for unsigned
ones), always bool, always int64, or as the summary says."""
Error = tuple[str, type[Exception], str]
"""A call that is wrong (its arguments as text), the exception it raises, and a pattern in the message."""
BAD_AXIS: Error = ("x, axis=5", AxisError, "axis 5 is out of range")
NO_TENSOR: Error = ("None, axis=1", TypeError, "expected an sr.Tensor")

TABLE: dict[str, Op] = {}
TORCH: dict[Callable[..., Any], Callable[..., Any]] = {}
"""torch functions, and what answers them when a Tensor is among the arguments."""


@dataclass(frozen=True)
class Op:
    """One operation."""

    name: str
    """The array API's name, or torch's where the standard has none: `sr.<name>`; in an extension, `linalg.<name>`."""
    family: str
    """The file it stands in."""
    summary: str
    """What the caller gets, in one line."""
    eager: Callable[..., Any]
    """The public function: torch operations on packed values, no padding, no loop over rows."""
    torch: tuple[Callable[..., Any], ...]
    """The torch functions it answers; the first is also the reference the per-row oracle applies."""
    kinds: tuple[Kind, ...]
    """The kinds of dtypes it takes."""
    gradient: str
    """The rule for the compiler: an expression in `g`, `out`, the operands and operations; empty if there is none.

    In the rule of an operation along an axis, reductions are along that axis, `spread(v)` stands for what was reduced
    put back beside each element, `count` for the number of elements of each result.
    """
    shape: Shape
    """The rule for the result's shape."""
    dtype: Result
    """The rule for the result's dtype."""
    capacity: Capacity = "exact"
    """Whether the number of rows of the result is known, bounded, or data, where lengths were born on a device."""
    dialect: str = ""
    """The operation it is traced to."""
    fusion: str = ""
    """The rule by which it joins a fused kernel, as `module:name`."""
    example: tuple[str, str] = ("", "")
    """A call and what it gives, shown in the docstring and run by the tests."""
    samples: tuple[str, ...] = ("x",)
    """Arguments to test with, as text in which `x` is a tensor of each structure and dtype."""
    errors: tuple[Error, ...] = ()
    """Wrong calls, in which `x` is a ragged tensor [3, r, 2] of floats."""
    also: tuple[str, ...] = ()
    """Extensions of the array API that have the same function under the same name."""
    traced: bool = False
    """Whether torch.compile may trace it: it takes packed values as they are, or leaves structure to others."""


def define(op: Op, answer: Callable[..., Any] | None = None) -> None:
    """Enter `op` into the table, document its public function from the record, and let `answer` stand for torch's."""
    if op.name in TABLE:
        raise ValueError(f"operation {op.name} is defined twice")
    function = op.eager
    extension, _, name = op.name.rpartition(".")
    function.__name__ = function.__qualname__ = name
    function.__module__ = f"serrate.{extension}" if extension else "serrate"
    call, gives = op.example
    function.__doc__ = f"{op.summary}\n\n>>> import torch, serrate as sr\n>>> {call}\n{gives}\n"
    TABLE[op.name] = op
    if answer is not None:
        TORCH.update(dict.fromkeys(op.torch, answer))
    if not op.traced:
        for each in (function, answer):
            if each is not None:
                untraced(each)


def record(family: str, name: str, eager: Callable[..., Any], answer: Callable[..., Any] | None, **fields: Any) -> None:
    """Define an operation that torch, where it has it, has under the same name, answered by `answer`."""
    fields = {"torch": torch_names(name), "dialect": f"ptensor.{name}"} | fields
    define(Op(name=name, family=family, eager=eager, **fields), answer)


def members(extension: str = "") -> dict[str, Callable[..., Any]]:
    """The functions of `sr.<extension>`, by name; without one, those of `sr` itself."""
    found: dict[str, Callable[..., Any]] = {}
    for op in TABLE.values():
        home, _, name = op.name.rpartition(".")
        if extension == home or extension in op.also:
            found[name] = op.eager
    return found


def signature(op: Op) -> inspect.Signature:
    """The signature of the public function."""
    return inspect.signature(op.eager)


def plain(result: Any) -> Any:
    """A result as torch's callers expect it: without a ragged axis and a team, a torch tensor."""
    if isinstance(result, tuple):
        made = [plain(part) for part in result]
        return type(result)(*made) if hasattr(result, "_fields") else tuple(made)
    if hasattr(result, "structure") and not result.is_ragged and result.team is None:
        return result.values
    return result


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "structure") and hasattr(value, "is_ragged")


def answer(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """torch called with a Tensor: the operation that answers, or a TypeError that names the nearest one."""
    handler = TORCH.get(function)
    if handler is None:
        found = [leaf for leaf in tree_leaves((args, kwargs), is_leaf=_is_tensor) if _is_tensor(leaf)]
        if found and not any(leaf.is_ragged for leaf in found):  # dense ones are torch tensors
            args, kwargs = tree_map(lambda v: v.values if _is_tensor(v) else v, (args, kwargs), is_leaf=_is_tensor)
            return function(*args, **kwargs)
        name = getattr(function, "__name__", str(function))
        raise TypeError(f"torch's {name} is not defined for sr.Tensor; {_nearest(name)}")
    return plain(handler(*args, **kwargs))


def refuse_out(name: str, out: Any) -> None:
    """torch's `out=`, which no operation on Tensors has."""
    if out is not None:
        raise TypeError(f"{name}(out=…) is not defined for sr.Tensor")


def _nearest(name: str) -> str:
    """What to use instead: the operation that answers to that name, in place or not, else one spelt nearly so."""
    import difflib

    import serrate

    known = {*serrate.__all__, *TABLE}
    spelt = {function.__name__: op.name for op in TABLE.values() for function in op.torch}
    spelt |= dict.fromkeys(("hstack", "vstack", "dstack"), "concat")
    plain_name = name.strip("_")
    plain_name = plain_name if plain_name in known else spelt.get(plain_name, plain_name)
    close = [plain_name] if plain_name in known else difflib.get_close_matches(plain_name, known, n=1, cutoff=0.9)
    hint = f"use sr.{close[0]}" if close else "Serrate has no operation like it yet"
    return f"{hint}; x.values and x.offsets are torch tensors"


def torch_names(*names: str) -> tuple[Callable[..., Any], ...]:
    """The functions of these names in torch, torch.Tensor, torch.nn.functional and torch.special, where they exist."""
    homes = (torch, torch.Tensor, torch.nn.functional, torch.special)
    found = [getattr(home, name) for name in names for home in homes if callable(getattr(home, name, None))]
    return tuple(dict.fromkeys(found))
