"""Steps that write: x[key] = value and x += value, seen by everyone who shares the memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from tests.programs.broadcast import fits, kind_of, ranks
from tests.programs.indexing import get
from tests.programs.keys import Key, random_key, shape_only
from tests.programs.leaves import INTS, Leaf, like, random_leaf, random_values
from tests.programs.mapped import Lengths, Mapped
from tests.programs.program import Draw, Environment, Step, generator
from tests.programs.verdicts import Refused, Undecided, Verdict, decide


def put(env: Environment, x: Mapped, key: Key, value: Any) -> Mapped | Verdict:
    """x[key] = value, where value is a number or the name of a tensor: writes where x[key] reads."""
    numbered = Mapped.of(x.axes, torch.arange(len(x.indices)), stored=x.is_stored_as_seen)
    verdict = decide(get, env, numbered, key)
    if verdict.results is None:
        return verdict
    (read,) = verdict.results
    where = read.flat.tolist()
    try:
        given = value_for(env, x, read, value)
    except Refused as refused:
        raise Refused(*refused.errors, *verdict.errors) from None
    if len(set(where)) < len(where) and not _is_one_number(given):
        raise Undecided  # which of several values for one element stays is left open
    x.write(where, given.to(x.dtype))
    return Verdict((x,), verdict.errors)


def value_for(env: Environment, x: Mapped, read: Mapped, value: Any) -> torch.Tensor:
    """The value stretched to what is written to."""
    if not isinstance(value, str):
        if isinstance(value, complex) and kind_of(x.dtype) < 3:
            raise Refused(TypeError, ValueError)
        if kind_of(x.dtype) == 1 and not torch.iinfo(x.dtype).min <= value <= torch.iinfo(x.dtype).max:
            raise Refused(ValueError, OverflowError)
        return torch.tensor(value, dtype=x.dtype).expand(len(read.indices))
    given = env[value]
    if kind_of(given.dtype) == 3 and kind_of(x.dtype) != 3:
        raise Refused(TypeError, ValueError, RuntimeError)
    if not fits(given, read.axes):
        if given.ndim > read.ndim:
            raise Undecided  # numpy and torch take more axes than there are, if they are of size 1
        raise Refused(ValueError)
    return given.flat[ranks(given, read.axes)]


def _is_one_number(given: torch.Tensor) -> bool:
    return given.numel() == 0 or (not given.requires_grad and bool((given == given[0]).all()))


def is_writable(x: Mapped) -> bool:
    """Not a leaf of autograd, and without elements that would be written to twice."""
    return not x.memory.is_leaf and len(set(x.places)) == len(x.places)


@generator(16)
def setitem(draw: Draw) -> Step | None:
    name = _target(draw)
    if name is None:
        return None
    x = draw[name]
    key = random_key(draw, x)
    numbered = Mapped.of(x.axes, torch.arange(len(x.indices)))
    verdict = decide(get, draw.program.environment, numbered, key)
    read = None if verdict.results is None else verdict.results[0]
    value, text, uses = _value(draw, x, read, key)
    return Step(
        "setitem",
        f"{name}[{key.text}] = {text}",
        lambda env: put(env, env[name], key, value),
        (name, *key.uses, *uses),
        writes=name,
    )


def _target(draw: Draw) -> str | None:
    """A tensor that may be written to; where leaves have gradients, one that was computed."""
    name = draw.tensor(is_writable)
    if name is not None:
        return name
    source = draw.tensor()
    if source is None:
        return None
    name = draw.name()
    oracle = lambda env: env[source].copied()  # noqa: E731
    draw.program.add(
        Step("clone", f"{source} * 1" if _multiplies(draw[source]) else f"{source}.clone()", oracle, (source,), (name,))
    )
    return name


def _multiplies(x: Mapped) -> bool:
    return x.dtype != torch.bool


def _value(draw: Draw, x: Mapped, read: Mapped | None, key: Key) -> tuple[Any, str, tuple[str, ...]]:
    """A number, a tensor of the shape that is written to, or one that stretches to it; sometimes one that does not."""
    kind = draw.choice(("number", "number", "same", "same", "same", "stretch", "stretch", "stretch", "any"))
    misfit = _misfit(draw, x) if draw.chance(0.05) else None
    if misfit is not None:
        return misfit, str(misfit), ()
    if kind == "number" or read is None:
        (number,) = random_values(draw.random, 1, x.dtype)
        return number, str(number), ()
    dtype = x.dtype
    if draw.chance(0.1):
        dtype = draw.choice((torch.float64, torch.int64, torch.float32, torch.complex64, *INTS))
        if dtype.is_floating_point and not (x.dtype.is_floating_point or x.dtype.is_complex):
            dtype = torch.int64
    leaf: Leaf | None
    if kind == "any":
        leaf = random_leaf(draw.random, dtype)
    else:
        shape = read if kind == "same" else stretching(draw, read)
        leaf = like(draw.random, shape, dtype)
    if leaf is None:
        (number,) = random_values(draw.random, 1, x.dtype)
        return number, str(number), ()
    if draw.chance(0.5) and not leaf.is_ragged and leaf.order is None:
        leaf = replace(leaf, plain=True)
    name = draw.like(leaf)
    text = name
    host = leaf.plain and name not in draw.program.leaves and leaf.dtype == x.dtype and leaf.values
    if host and draw.chance(0.4):
        text = f"{name}.tolist()" if leaf.dtype == torch.bfloat16 or draw.chance(0.5) else f"{name}.cpu().numpy()"
    return name, text, (name,)


def _misfit(draw: Draw, x: Mapped) -> Any:
    """A number that the dtype does not hold."""
    if kind_of(x.dtype) == 1 and torch.iinfo(x.dtype).bits < 64:
        return draw.choice((torch.iinfo(x.dtype).max + 1, torch.iinfo(x.dtype).min - 1))
    return 1j if kind_of(x.dtype) == 2 else None


def stretching(draw: Draw, read: Mapped) -> Mapped:
    """A shape that stretches to that of `read`: some axes of size 1, outer ones left out."""
    ones = {a for a in range(read.ndim) if draw.chance(0.5)}
    changed = True
    while changed:  # an axis that depends on one of size 1 could have no table of its own
        more = {a for a, axis in enumerate(read.axes) if isinstance(axis, Lengths) and set(axis.parents) & ones}
        changed, ones = not more <= ones, ones | more
    out = draw.integer(0, read.ndim)
    while out and any(isinstance(a, Lengths) and k not in ones for k, a in enumerate(read.axes)):
        out -= 1
    axes = [1 if a in ones else axis for a, axis in enumerate(read.axes)]
    axes = axes[out:] if not any(isinstance(a, Lengths) for a in axes) else axes
    return shape_only(axes)
