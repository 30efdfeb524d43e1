"""Lanes: which accesses of a Vectorize loop are of adjacent elements, and the loop with these on registers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from serrate.fusion.binding import TORCH
from serrate.fusion.dtypes import BOOL, INDEX
from serrate.fusion.proof import Prover
from serrate.fusion.scalar import TRUE, Scalar, both, const, less, less_equal, load, logical_not
from serrate.fusion.simplify import simplify
from serrate.fusion.types import ParallelType
from serrate.kernel.ir import Allocate, Buffer, For, If, Let, Statement, Store, expressions, map_expressions, walk

WIDEST = 16  # bytes of one access
ZERO = const(0)
NATURAL = (ZERO, None)  # the bounds of an index that is not negative

LaneStatement = Let | Store
Address = tuple[str, Scalar]  # a parameter and the index of its first lane
Path = tuple[tuple[Scalar, bool], ...]  # conditions under which an operand is evaluated, and whether they hold


@dataclass(frozen=True)
class Wide(For):
    """A loop over lanes that copies elements of a parameter to registers, or back, in accesses of up to 16 bytes:
    those from `base` on, a multiple of its extent."""

    parameter: str = ""
    base: Scalar = ZERO


@dataclass(frozen=True)
class Known:
    """What is known of names where a statement stands: numbers that divide them, and bounds."""

    multiples: Mapping[Scalar, int]
    bounds: Mapping[Scalar, tuple[Scalar, None]]
    prover: Prover = field(default_factory=lambda: Prover({}))

    def bind(self, name: Scalar, multiple: int, natural: bool) -> Known:
        """With a name that stands for something else from here on."""
        multiples = {node: number for node, number in self.multiples.items() if name not in node.symbols}
        bounds = {other: bound for other, bound in self.bounds.items() if other != name}
        return Known({**multiples, name: multiple}, bounds | ({name: NATURAL} if natural else {}))

    def divisor(self, node: Scalar) -> int:
        """A number that divides the node, 0 if it is 0."""
        if node in self.multiples:
            return self.multiples[node]
        products = self.prover.products(node, True)
        if products == ((1, (node,)),):
            return self._divisor_by_operation(node)
        return math.gcd(*(number * math.prod(map(self.divisor, parts)) for number, parts in products))

    def _divisor_by_operation(self, node: Scalar) -> int:
        match node.op:
            case "index_remainder" | "minimum" | "maximum":  # x mod n = x − q·n
                return math.gcd(*map(self.divisor, node.args))
            case "where":
                return math.gcd(*map(self.divisor, node.args[1:]))
            case "index_divide" if node.args[1].is_const:
                whole, by = self.divisor(node.args[0]), int(node.args[1].value)
                return whole // by if by and whole % by == 0 else 1
        return 1


@dataclass(frozen=True)
class _Access:
    """A load, where it is evaluated, or a store. `base` is None if it is not wide."""

    line: int
    node: Scalar | None  # None: the store of the line
    name: str
    base: Scalar | None
    path: tuple[Scalar, ...] | None  # what holds where it is evaluated; None if that differs between lanes


class Lanes:
    """One loop over lanes."""

    def __init__(
        self, loop: For, known: Known, parameters: Mapping[str, Buffer], register: Callable[[str, int], Buffer]
    ) -> None:
        self.loop, self.known, self.parameters, self.register = loop, known, parameters, register
        self.var, self.count = loop.var, loop.extent.value
        self.bounds = {**known.bounds, loop.var: (ZERO, loop.extent)}
        self.values: dict[Scalar, Scalar] = {}  # of the names in the body, in terms of those outside
        self.stored = {statement.buffer for statement in walk(loop.body) if isinstance(statement, Store)}

    def widened(self) -> list[Statement] | None:
        """What the loop becomes; None if nothing in it is wide."""
        found = self._straight()
        if found is None:
            return None
        condition, lines = found
        accesses = self._accesses(lines)
        places = {place: there for place, there in _by_place(accesses) if self._is_wide(place, accesses)}
        if not places:
            return None
        registers = {place: self.register(place[0], self.count) for place in places}
        made: list[Statement] = []
        for place, there in places.items():
            made.append(Allocate(registers[place]))
            made += self._preload(place, there, registers[place])
        made.append(replace(self.loop, body=_without_unread(self._on_registers(lines, places, registers))))
        for place, there in places.items():
            stores = [lines[access.line] for access in there if access.node is None]
            if stores:
                made.append(self._copy(place, registers[place], stores[-1]))
        return [If(condition, tuple(made))] if condition != TRUE else made

    # What the lanes do

    def _straight(self) -> tuple[Scalar, list[LaneStatement]] | None:
        """The body as lines without guards, and the guard around them, which is the same for all lanes."""
        lines: list[LaneStatement] = []
        conditions: list[Scalar] = []
        body = self.loop.body
        while True:
            last = len(body) - isinstance(body[-1], If) if body else 0
            for statement in body[:last]:
                if not isinstance(statement, (Let, Store)) or (isinstance(statement, Store) and last < len(body)):
                    return None
                if isinstance(statement, Let):
                    if statement.var in self.values:
                        return None
                    self.values[statement.var] = statement.value.substitute(self.values)
                lines.append(statement)
            if last == len(body):
                return both(*conditions), lines
            guard = body[last]
            assert isinstance(guard, If)
            condition = self._for_all(guard.condition)
            if condition is None:
                return None
            conditions.append(condition)
            body = guard.body

    def _outside(self, node: Scalar) -> Scalar:
        """An index or a condition in terms of the lane and what is known outside of the loop."""
        node = node.substitute(self.values)
        if any(part.dtype not in (INDEX, BOOL) for part in node.walk()):
            return node
        return simplify(node, self.bounds)

    def _is_same(self, node: Scalar) -> bool:
        """Whether a node of outside has one value for all lanes, before and after they store."""
        return self.var not in node.symbols and not any(
            part.op in ("load", "search") and part.value in self.stored for part in node.walk()
        )

    def _base(self, index: Scalar) -> Scalar | None:
        """The index of lane 0, if that of each lane is it + lane, and it is a multiple of the number of lanes."""
        products = list(self.known.prover.products(index, True))
        if (1, (self.var,)) not in products:
            return None
        base = index.substitute({self.var: ZERO})
        products.remove((1, (self.var,)))
        same = all(self._is_same(part) for _, parts in products for part in parts) and self._is_same(base)
        return base if same and self._is_multiple(base) else None

    def _is_multiple(self, node: Scalar) -> bool:
        return self._is_same(node) and self.known.divisor(node) % self.count == 0

    def _for_all(self, condition: Scalar) -> Scalar | None:
        """The condition, if it holds for all lanes or for none, as one that does not mention the lane."""
        condition = self._outside(condition)
        if condition.op == "logical_and":
            parts = [self._for_all(part) for part in condition.args]
            return None if None in parts else both(*(part for part in parts if part is not None))
        if self._is_same(condition):
            return condition
        if condition.op not in ("less", "less_equal"):
            return None
        # Of multiples a, b of v and a lane l: a + l < b ⇔ a < b, and b ≤ a + l ⇔ b ≤ a.
        left, right = condition.args
        varying, other = (left, right) if condition.op == "less" else (right, left)
        base = self._base(varying)
        if base is None or not self._is_multiple(other):
            return None
        return less(base, other) if condition.op == "less" else less_equal(other, base)

    # Accesses

    def _accesses(self, lines: Sequence[LaneStatement]) -> list[_Access]:
        """All accesses of parameters, in the order of their evaluation in each lane."""
        found: list[_Access] = []
        for number, line in enumerate(lines):
            for expression in expressions(line):
                for node, path in _loads(expression):
                    if node.value in self.parameters:
                        base = self._place(node.value, node.args[0]) if node.op == "load" else None
                        found.append(_Access(number, node, node.value, base, self._path(path)))
            if isinstance(line, Store) and line.buffer in self.parameters:
                found.append(_Access(number, None, line.buffer, self._place(line.buffer, line.index), ()))
        return found

    def _place(self, name: str, index: Scalar) -> Scalar | None:
        size = self.count * TORCH[self.parameters[name].dtype].itemsize
        if self.count < 2 or (size not in (2, 4, 8) and size % WIDEST):
            return None
        return self._base(self._outside(index))

    def _path(self, path: Path) -> tuple[Scalar, ...] | None:
        made: list[Scalar] = []
        for condition, holds in path:
            same = self._for_all(condition)
            if same is None:
                return None
            made.append(same if holds else logical_not(same))
        return tuple(made)

    def _is_wide(self, place: Address, accesses: Sequence[_Access]) -> bool:
        """Whether a place can be held in registers while the lanes run."""
        name, base = place
        own = [access for access in accesses if access.name == name]
        if name in self.stored and any(access.base != base for access in own):
            return False  # the other may be the same element
        loads = _first_loads([access for access in own if access.base == base])
        paths = {access.path for access in loads}
        return not loads or () in paths or (len(paths) == 1 and None not in paths)

    # The statements

    def _preload(self, place: Address, there: Sequence[_Access], registers: Buffer) -> list[Statement]:
        loads = _first_loads(there)
        if not loads:
            return []
        path = () if any(access.path == () for access in loads) else loads[0].path
        copy = self._copy(place, registers, None)
        return [If(both(*path), (copy,))] if path else [copy]

    def _copy(self, place: Address, registers: Buffer, store: LaneStatement | None) -> Wide:
        """The wide load of a place, or the wide store, as `store` does it."""
        name, base = place
        at = base + self.var
        if isinstance(store, Store):
            copy = Store(name, at, load(registers.name, self.var, registers.dtype), store.draft)
        else:
            copy = Store(registers.name, self.var, load(name, at, registers.dtype))
        return Wide(self.var, self.loop.extent, (copy,), self.loop.axis, ParallelType.Vectorize, name, base)

    def _on_registers(
        self,
        lines: Sequence[LaneStatement],
        places: Mapping[Address, Sequence[_Access]],
        registers: Mapping[Address, Buffer],
    ) -> list[Statement]:
        made: list[Statement] = []
        for number, line in enumerate(lines):
            own = [(a, registers[place].name) for place, there in places.items() for a in there if a.line == number]
            nodes = {a.node: load(name, self.var, a.node.dtype) for a, name in own if a.node is not None}
            stores = [name for access, name in own if access.node is None]
            changed = map_expressions(line, partial(Scalar.substitute, values=nodes))
            if isinstance(changed, Store) and stores:
                changed = replace(changed, buffer=stores[0], index=self.var, draft=False)
            made.append(changed)
        return made


def _loads(root: Scalar) -> Iterator[tuple[Scalar, Path]]:
    """The loads and searches of an expression, operands first, and under which conditions they are evaluated."""
    seen: set[tuple[Scalar, Path]] = set()
    stack: list[tuple[Scalar, Path, bool]] = [(root, (), False)]
    while stack:
        node, path, operands_done = stack.pop()
        if operands_done:
            yield node, path
        elif (node, path) not in seen:
            seen.add((node, path))
            if node.op in ("load", "search"):
                stack.append((node, path, True))
            for number, argument in reversed(list(enumerate(node.args))):
                inside = path
                if number > 0 and node.op in ("logical_and", "logical_or", "where"):
                    holds = node.op == "logical_and" or (node.op == "where" and number == 1)
                    inside = (*path, (node.args[0], holds))
                stack.append((argument, inside, False))


def _by_place(accesses: Sequence[_Access]) -> list[tuple[Address, list[_Access]]]:
    found: dict[Address, list[_Access]] = {}
    for access in accesses:
        if access.base is not None:
            found.setdefault((access.name, access.base), []).append(access)
    return list(found.items())


def _first_loads(there: Sequence[_Access]) -> list[_Access]:
    """The loads of a place before it is stored."""
    stores = [number for number, access in enumerate(there) if access.node is None]
    return list(there[: stores[0]] if stores else there)


def _without_unread(lines: Sequence[Statement]) -> tuple[Statement, ...]:
    """Without names that nothing reads any more."""
    kept: list[Statement] = []
    for line in reversed(lines):
        if not isinstance(line, Let) or any(line.var in e.symbols for later in kept for e in expressions(later)):
            kept.append(line)
    return tuple(reversed(kept))
