"""Loops over axes, run as Python source, and compared with brute force.

Loops are opened and routes followed as the lowering does it; in the source an index is computed only where every
condition before it holds. A load or search out of its range, or a division by 0, fails.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.fusion.brute_force import Axes

from serrate.fusion import IterDomain, Scalar, symbol
from serrate.fusion.domain import history
from serrate.fusion.indices import Indices, is_natural, route
from serrate.fusion.mapping import AxisGraph
from serrate.fusion.scalar import TRUE, const


class Violation(Exception):
    """Something was computed that must not be."""


def _load(array: list[int], index: int) -> int:
    if not 0 <= index < len(array):
        raise Violation(f"element {index} of {array}")
    return array[index]


def _search(array: list[int], count: int, position: int) -> int:
    if not 0 <= count < len(array) or not 0 <= position < array[count]:
        raise Violation(f"{position} searched in {array} of {count} components")
    return bisect.bisect_right(array, position, 0, count + 1) - 1


def _index_divide(a: int, b: int) -> int:
    if b <= 0:
        raise Violation(f"{a} / {b}")
    return a // b


def _index_remainder(a: int, b: int) -> int:
    return a - _index_divide(a, b) * b


def _count(bound: int) -> range:
    if bound < 0:
        raise Violation(f"a loop to {bound}")
    return range(bound)


_SIGNS = {
    "add": "+", "subtract": "-", "multiply": "*", "less": "<", "less_equal": "<=", "equal": "==", "not_equal": "!=",
}  # fmt: skip


def python(node: Scalar) -> str:
    """The expression as Python source, with every load, search and division checked."""
    args = [python(argument) for argument in node.args]
    match node.op:
        case "const" | "symbol":
            return str(node.value)
        case "load" | "search":
            return f"_{node.op}({', '.join([str(node.value), *args])})"
        case "index_divide" | "index_remainder":
            return f"_{node.op}({', '.join(args)})"
        case "logical_and":
            return f"({args[0]} and {args[1]})"
        case "bitwise_xor":
            return f"({args[0]} ^ {args[1]})"
        case "minimum" | "maximum":
            return f"{node.op[:3]}({', '.join(args)})"
    return f"({args[0]} {_SIGNS[node.op]} {args[1]})"


@dataclass(frozen=True)
class Launch:
    """Which loops run further than their axes, by how much, and in which order loops are opened."""

    order: tuple[IterDomain, ...]
    beyond: Mapping[IterDomain, int]
    named: bool = False  # whether indices get names, as in kernels


class Loops:
    """Loops over axes, with the indices of others computed in them: (loop, bound), (condition,) or (name, value)."""

    def __init__(self, axes: Axes, launch: Launch, wanted: Sequence[IterDomain]) -> None:
        self.axes = axes
        self.launch = launch
        self.lines: list[tuple[str, Any, Scalar]] = []
        self.indices = Indices(AxisGraph((), [*axes.logical, *axes.leaves]))
        components = [Axes.component(axis) for axis in (*launch.order, *wanted) if axis.is_ragged]
        steps = route(self.indices.graph, launch.order, [*wanted, *components])
        self.indices.advance(steps, self._emit, self._bind)
        for number, axis in enumerate(launch.order):
            self._open(axis, symbol(f"loop{number}"))
            self.indices.advance(steps, self._emit, self._bind)
        for axis in wanted:
            self.indices.guard(axis, self._emit)
        self.wanted = [self.indices.of(axis) for axis in wanted]

    def _emit(self, condition: Scalar) -> None:
        if condition != TRUE:
            self.lines.append(("if", None, condition))

    def _bind(self, axis: IterDomain, index: Scalar) -> Scalar:
        if not self.launch.named or not is_natural(index):
            return index
        name = symbol(axis.name or f"index{len(self.lines)}")
        self.lines.append(("let", name, index))
        return name

    def _open(self, axis: IterDomain, variable: Scalar) -> None:
        beyond = axis in self.launch.beyond
        if axis.is_ragged and not beyond:
            self.indices.guard(Axes.component(axis), self._emit)
        bound = const(self.axes.longest(axis) + self.launch.beyond[axis]) if beyond else self.indices.extent(axis)
        self.lines.append(("for", variable, bound))
        self.indices.set(axis, variable, unsafe=beyond)

    @property
    def conditions(self) -> list[Scalar]:
        return [value for kind, _, value in self.lines if kind == "if"]

    def source(self, without: int | None = None) -> str:
        """A generator of what is found, `without` one of the conditions."""
        text, indent, leave, number = ["def run():"], "    ", "return", itertools.count()
        for kind, target, value in self.lines:
            if kind == "for":
                text.append(f"{indent}for {target} in _count({python(value)}):")
                indent, leave = indent + " ", "continue"
            elif kind == "let":
                text.append(f"{indent}{target} = {python(value)}")
            elif next(number) != without:
                text.append(f"{indent}if not {python(value)}: {leave}")
        variables = [target for kind, target, _ in self.lines if kind == "for"]
        results = ["".join(f"{part}, " for part in parts) for parts in (variables, map(python, self.wanted))]
        return "\n".join([*text, f"{indent}yield ({results[0]}), ({results[1]})"])

    def run(self, without: int | None = None) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
        names: dict[str, Any] = {f.__name__: f for f in (_load, _search, _index_divide, _index_remainder, _count)}
        names |= {**self.axes.sizes, **self.axes.arrays}
        exec(self.source(without), names)
        yield from names["run"]()


def failure(axes: Axes, launch: Launch, forward: bool, without: int | None = None) -> str | None:
    """What is wrong with loops over the leaves from which logical indices are computed, or the other way round."""
    wanted = axes.leaves if forward else axes.logical
    expected = {tuple(p[a] for a in launch.order): tuple(p[a] for a in wanted) for p in axes.points}
    assert len(set(expected.values())) == len(expected) == len(axes.points)
    loops = Loops(axes, launch, wanted)
    try:
        found = dict(loops.run(without))
    except Violation as violation:
        return f"{violation}\n{loops.source()}"
    if found != expected:
        steps = "\n".join(map(repr, history([*axes.logical, *axes.leaves])))
        return f"found {found}, expected {expected}\n{loops.source()}\n{steps}\n{axes.sizes} {axes.arrays}"
    exact = not launch.beyond and not (axes.cuts if forward else axes.makes_holes)
    return f"no condition is needed\n{loops.source()}" if exact and loops.conditions else None
