"""torch's functions called with a Tensor: each is a spelling of an operation, which its record answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.utils._pytree import tree_leaves, tree_map

from serrate.ops.call import call
from serrate.ops.record import TABLE, Op

SPELLED: dict[Callable[..., Any], Op] = {}
"""The operation that each function of torch is a spelling of; an index of the records."""
QUESTIONS: dict[Callable[..., Any], Callable[..., Any]] = {}
"""Functions of torch that ask about a tensor and compute no other, and what answers them."""


def gather_spellings() -> None:
    """Fill the index from the records."""
    for op in TABLE.values():
        for function in op.spellings:
            if SPELLED.setdefault(function, op) is not op:
                raise ValueError(f"torch's {function.__name__} is a spelling of {SPELLED[function].name} and {op.name}")


def answer(function: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """torch called with a Tensor: what the operation gives, or a TypeError that names the nearest one."""
    op = SPELLED.get(function)
    if op is not None:
        return plain(call(op, arguments, named, function))
    if function in QUESTIONS:
        return QUESTIONS[function](*arguments, **named)
    found = [leaf for leaf in tree_leaves((arguments, named), is_leaf=_is_tensor) if _is_tensor(leaf)]
    if found and not any(leaf.is_ragged for leaf in found):  # dense ones are torch tensors
        arguments, named = tree_map(lambda v: v.values if _is_tensor(v) else v, (arguments, named), is_leaf=_is_tensor)
        return function(*arguments, **named)
    name = getattr(function, "__name__", str(function))
    raise TypeError(f"torch's {name} is not defined for sr.Tensor; {_nearest(name)}")


def plain(result: Any) -> Any:
    """A result as torch's callers expect it: without a ragged axis and a team, a torch tensor."""
    if isinstance(result, tuple):
        made = [plain(part) for part in result]
        return type(result)(*made) if hasattr(result, "_fields") else tuple(made)
    if hasattr(result, "structure") and not result.is_ragged and result.team is None:
        return result.values
    return result


def refuse_out(name: str, out: Any) -> None:
    """A TypeError for torch's `out=`, which no operation on Tensors has."""
    if out is not None:
        raise TypeError(f"{name}(out=…) is not defined for sr.Tensor")


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "structure") and hasattr(value, "is_ragged")


def _called(name: str) -> str:
    """How a user calls an operation: a function of `sr`, or a method."""
    return f"x.{name.removeprefix('Tensor.')}()" if name.startswith("Tensor.") else f"sr.{name}"


def _nearest(name: str) -> str:
    """What to use instead: the operation that answers to that name, in place or not, else one spelt nearly so."""
    import difflib

    import serrate

    known = {*serrate.__all__, *TABLE}
    spelt = {function.__name__: op.name for function, op in SPELLED.items()}
    spelt |= dict.fromkeys(("hstack", "vstack", "dstack"), "concat")
    plain_name = name.strip("_")
    plain_name = plain_name if plain_name in known else spelt.get(plain_name, plain_name)
    close = [plain_name] if plain_name in known else difflib.get_close_matches(plain_name, known, n=1, cutoff=0.9)
    hint = f"use {_called(close[0])}" if close else "Serrate has no operation like it yet"
    return f"{hint}; x.values and x.offsets are torch tensors"
