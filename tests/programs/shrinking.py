"""A failing program made small: steps dropped, lengths shortened, leaves made plain; and printed as a script."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import replace

import torch
from tests.programs import leaves
from tests.programs.leaves import Leaf, canonical
from tests.programs.mapped import Axis, Lengths, Mapped, cells
from tests.programs.program import Given, Program, Statement, Step
from tests.programs.reading import described
from tests.programs.running import Failure, run

PREAMBLE = """import numpy as np
import torch

import serrate as sr
from serrate.tensor.structure import Structure

R, nan, inf = sr.Ragged, float("nan"), float("inf")

"""


def failure_of(program: Program, born: bool, device: str = "cpu") -> Failure | None:
    """What is wrong with a program, if anything is."""
    try:
        run(program, born, device)
    except Failure as failure:
        return failure
    return None


def rebuilt(seed: int, statements: list[Statement]) -> Program | None:
    """A program of these statements; None if the oracle cannot run them."""
    made = Program(seed)
    try:
        for statement in statements:
            made.add(statement)
    except Exception:  # arguments that were drawn for other shapes: not a program that says anything
        return None
    return made


def shrink(program: Program, born: bool, device: str = "cpu", tries: int = 400) -> tuple[Program, Failure]:
    """The smallest program found that fails in the same way."""
    best = failure_of(program, born, device)
    assert best is not None
    program = rebuilt(program.seed, program.statements[: best.at + 1]) or program
    best = failure_of(program, born, device) or best
    progress = True
    while progress and tries > 0:
        progress = False
        for candidate in _candidates(program):
            tries -= 1
            made = rebuilt(program.seed, candidate)
            found = None if made is None else failure_of(made, born, device)
            if made is not None and found is not None and _kind(found) == _kind(best):
                program, best, progress = made, found, True
                break
            if tries <= 0:
                break
    return program, best


def _kind(failure: Failure) -> str:
    """The message without its numbers."""
    return re.sub(r"v?-?\d[\d.e+-]*|nan|inf|\(.*|\[.*|'.*", "", failure.message)[:40]


def _candidates(program: Program) -> Iterator[list[Statement]]:
    """Programs a little smaller."""
    statements = program.statements
    used = {name for s in statements if isinstance(s, Step) for name in s.uses}
    for k, statement in enumerate(statements[:-1]):
        names = (statement.name,) if isinstance(statement, Given) else statement.names
        writes = isinstance(statement, Step) and bool(statement.writes)
        if writes or not used & set(names):
            yield statements[:k] + statements[k + 1 :]
        elif isinstance(statement, Step) and len(names) == 1 and names[0] in program.environment:
            given = _as_leaf(program, k, names[0])
            if given is not None:
                yield [*statements[:k], given, *statements[k + 1 :]]
    for change in _changes(statements):
        yield [replace(s, leaf=change(s.leaf)) if isinstance(s, Given) else s for s in statements]
    for k, statement in enumerate(statements):
        if isinstance(statement, Given):
            for leaf in _plainer(statement.leaf):
                yield [*statements[:k], replace(statement, leaf=leaf), *statements[k + 1 :]]


def _as_leaf(program: Program, k: int, name: str) -> Given | None:
    """What a statement computes, given instead."""
    made: Mapped = next(m for n, m, _ in program.outcomes[k].after if n == name)
    flat = next(f for n, _, f in program.outcomes[k].after if n == name)
    found = canonical(made)
    if found is None:
        return None
    axes, order = found
    seen = dict(zip(made.indices, flat.detach().tolist(), strict=True))
    values = tuple(seen[tuple(index[c] for c in order)] for index in cells(axes))
    spare = max((s.leaf.spare or 0 for s in program.statements if isinstance(s, Given)), default=0)
    return Given(name, Leaf(axes, values, flat.dtype, order, spare, "nan" if flat.is_floating_point() else 97))


def _changes(statements: list[Statement]) -> Iterator[object]:
    """Ways to shorten an axis, in all leaves that have it alike."""
    given = [s.leaf for s in statements if isinstance(s, Given)]
    seen: list[object] = []
    for leaf in given:
        for a, axis in enumerate(leaf.axes):
            if (a, axis) in seen:
                continue
            seen.append((a, axis))
            if isinstance(axis, int):
                if axis > 1:
                    yield lambda leaf, a=a, axis=axis: _with_axis(leaf, a, axis, axis - 1)
                continue
            for key, n in axis.table.items():
                if n > 1:
                    shorter = Lengths(axis.parents, axis.table | {key: n - 1})
                    yield lambda leaf, a=a, axis=axis, shorter=shorter: _with_axis(leaf, a, axis, shorter)


def _with_axis(leaf: Leaf, a: int, old: Axis, new: Axis) -> Leaf:
    """A leaf with one axis replaced, if it has it: what depends on cells that are gone goes too."""
    if a >= len(leaf.axes) or leaf.axes[a] != old:
        return leaf
    axes: list[Axis] = []
    for b, axis in enumerate(leaf.axes):
        axis = new if b == a else axis
        if isinstance(axis, Lengths):
            axis = Lengths(axis.parents, {key: axis.table[key] for key in cells(axes, axis.parents)})
        axes.append(axis)
    held = dict(zip(cells(leaf.axes), leaf.values, strict=True))
    return replace(leaf, axes=tuple(axes), values=tuple(held[index] for index in cells(axes)))


def _plainer(leaf: Leaf) -> Iterator[Leaf]:
    if leaf.grad:
        yield replace(leaf, grad=False)
    if leaf.int32:
        yield replace(leaf, int32=False)
    if leaf.spare:
        yield replace(leaf, spare=leaf.spare - 1)
        yield replace(leaf, spare=None)
    if leaf.order is not None:
        yield replace(leaf, order=None)
    if leaf.dtype not in (torch.float64, torch.int64, torch.bool) and not leaf.dtype.is_complex:
        wide = torch.float64 if leaf.dtype.is_floating_point else torch.int64
        yield replace(leaf, dtype=wide)
    simple = tuple(range(1, len(leaf.values) + 1))
    if leaf.dtype == torch.float64 and leaf.values != simple and not leaf.plain:
        yield replace(leaf, values=tuple(float(v) for v in simple))


def script(program: Program, failure: Failure, born: bool) -> str:
    """A program that a reader can run, with what is wrong at its end."""
    lines = [s.text(born) for s in program.statements[: failure.at + 1]]
    outcome = program.outcomes[failure.at]
    results = outcome.verdict.results or ()
    wanted = [f"# the oracle: {described(made.axes)} {made.flat.detach().tolist()}" for made in results]
    if outcome.verdict.errors:
        wanted.append(f"# the oracle: {' or '.join(e.__name__ for e in outcome.verdict.errors)}")
    head = f"# seed {program.seed}, {'device-born' if born else 'host-born'}"
    source = inspect.getsource(leaves.leaf).replace("Sequence[Any]", "tuple").replace("Sequence[int]", "tuple")
    source = re.sub(r": Any\b", "", source)
    return "\n".join([head, PREAMBLE + source, *lines, *wanted, f"# but: {failure.message}"])


def short(program: Program, failure: Failure, born: bool) -> str:
    """The same without the lines that every script has."""
    whole = script(program, failure, born).splitlines()
    at = next(i for i, line in enumerate(whole) if line.startswith("    return x if order is None"))
    return "\n".join([whole[0], *whole[at + 1 :]])
