"""Random functions over ragged tensors, drawn from seeds, as text and as functions of the oracle in nests.py.

All tensors of a program have as many axes: the batch, the ragged levels, the features. An axis that was reduced has
size 1.
"""

from __future__ import annotations

import linecache
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from tests.compiler.nests import BINARY, REDUCTIONS, UNARY, Nest, flat, mapped, nest_of, reduced

import serrate as sr

Oracle = Callable[[dict[str, Nest]], Nest]
ONE = "1"


@dataclass(frozen=True)
class Form:
    """What the generator knows of a tensor: for each axis of the packed ones a name, or `ONE`; the feature sizes."""

    packed: tuple[Any, ...]
    features: tuple[int, ...]

    @property
    def is_full(self) -> bool:
        """Whether no packed axis is reduced."""
        return ONE not in self.packed


@dataclass(frozen=True)
class Statement:
    """One line of a program."""

    name: str
    text: str
    form: Form
    oracle: Oracle


@dataclass(frozen=True)
class Input:
    """An argument: "ragged", "batch" (`[B, *features]`), "shared" (`[*features]`) or "matrix"."""

    name: str
    kind: str
    form: Form


@dataclass
class Drawn:
    """A program and its oracle."""

    seed: int
    levels: int
    inputs: list[Input] = field(default_factory=list)
    statements: list[Statement] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The source of the function."""
        lines = [f"def program({', '.join(each.name for each in self.inputs)}):"]
        lines += [f"    {each.name} = {each.text}" for each in self.statements]
        return "\n".join([*lines, f"    return {', '.join(self.outputs)}{',' * (len(self.outputs) == 1)}"]) + "\n"

    def function(self) -> Callable[..., tuple[Any, ...]]:
        """The function, with lines that a traceback finds."""
        title = f"<program {self.seed}>"
        linecache.cache[title] = (len(self.text), None, self.text.splitlines(keepends=True), title)
        scope: dict[str, Any] = {"sr": sr, "torch": torch}
        exec(compile(self.text, title, "exec"), scope)
        return scope["program"]  # type: ignore[no-any-return]

    def expected(self, given: Sequence[Any]) -> list[torch.Tensor]:
        """The elements of each result, in the order of the rows."""
        known = {each.name: nest_of(x, each.kind, self.levels) for each, x in zip(self.inputs, given, strict=True)}
        forms = {each.name: each.form for each in self.inputs}
        for each in self.statements:
            known[each.name], forms[each.name] = each.oracle(known), each.form
        return [flat(known[name], forms[name].features) for name in self.outputs]


class Drawing:
    """A program that is being drawn."""

    def __init__(self, seed: int, least: int = 2, most: int = 30) -> None:
        self.random = random.Random(seed)
        self.levels = self.random.choice([1, 1, 1, 2, 2, 3])
        self.made = Drawn(seed, self.levels)
        self.names = ("b", *(f"r{level + 1}" for level in range(self.levels)))
        self.features = self.random.choice([(), (3,), (4,), (4,), (2, 2), (3, 2)])
        self.forms: dict[str, Form] = {}
        for number in range(self.random.choice([1, 1, 2, 3])):
            self._input(f"x{number}", "ragged", Form(self.names, self.features))
        ones = (ONE,) * self.levels
        if self.features and self.random.random() < 0.5:
            self._dense("w", "shared", 0, Form((ONE, *ones), self.features))
        if self.random.random() < 0.35:
            self._dense("g", "batch", 1, Form(("b", *ones), self.features))
        for _ in range(self.random.randint(least, self.random.choice([min(least + 6, most), most]))):
            self.random.choices(*zip(*self.STEPS, strict=True))[0](self)
        self._finish()

    # ------------------------------------------------------------------------------------------------------ pieces

    def _input(self, name: str, kind: str, form: Form) -> None:
        self.made.inputs.append(Input(name, kind, form))
        self.forms[name] = form

    def _dense(self, name: str, kind: str, at: int, form: Form) -> None:
        """An argument that lacks axes, which it is given."""
        self._input(name, kind, form)
        self._say(self._opened(name, at, len(self.names) - at), form, lambda known: known[name])
        del self.forms[name]

    def _say(self, text: str, form: Form, oracle: Oracle) -> str:
        name = f"v{len(self.made.statements)}"
        self.made.statements.append(Statement(name, text, form, oracle))
        self.forms[name] = form
        return name

    def _opened(self, text: str, at: int, count: int) -> str:
        """The text with new axes of size 1."""
        for _ in range(count):
            text = f"sr.expand_dims({text}, axis={at})"
        return text

    def _any(self, wanted: Callable[[Form], bool] = lambda form: True) -> str | None:
        """One of the tensors, the last ones more often."""
        found = [name for name, form in self.forms.items() if wanted(form)]
        return self.random.choice(found[-3:] if self.random.random() < 0.6 else found) if found else None

    def _is_ragged(self, form: Form) -> bool:
        return form.packed[-1] != ONE

    # ------------------------------------------------------------------------------------------------------- steps

    def unary(self) -> None:
        x = self._any()
        text, function = UNARY[self.random.choice(list(UNARY))]
        assert x is not None
        self._say(text.format(x), self.forms[x], lambda known: mapped(function, known[x]))

    def binary(self) -> None:
        x = self._any()
        assert x is not None
        mine = self.forms[x]

        def fits(form: Form) -> bool:
            pairs = zip((*form.packed, *form.features), (*mine.packed, *mine.features), strict=True)
            return all(one == other or {one, other} & {ONE, 1} for one, other in pairs)

        y = self._any(fits)
        assert y is not None
        if (
            any(each.name == "w" for each in self.made.inputs)
            and self.random.random() < 0.15
            and fits(self.forms["v0"])
        ):
            y = "w"  # which lacks axes on the left
        text, function = BINARY[self.random.choice(list(BINARY))]
        theirs = self.forms["v0" if y == "w" else y]
        packed = tuple(b if a == ONE else a for a, b in zip(mine.packed, theirs.packed, strict=True))
        features = tuple(map(max, mine.features, theirs.features))
        self._say(
            text.format(x, y), Form(packed, features), lambda known: mapped(function, known[x], known[y])
        )  # fmt: skip

    def reduce(self) -> None:
        x = self._any()
        assert x is not None
        form, levels = self.forms[x], self.levels
        depth = self.random.choice([levels, levels, levels + 1, *range(levels + 1)])
        chosen = [axis for axis in range(len(form.features)) if self.random.random() < 0.4]
        if depth > levels and not chosen:
            chosen = list(range(len(form.features)))
            depth = depth if chosen else levels
        name = self.random.choice([*REDUCTIONS, "sum", "sum"])
        text, how = REDUCTIONS[name]
        axes = (*range(depth, levels + 1), *(levels + 1 + axis for axis in chosen))
        packed = tuple(ONE if at >= depth else axis for at, axis in enumerate(form.packed))
        features = tuple(1 if at in chosen else size for at, size in enumerate(form.features))
        text = text.format(x, axes)
        gone = [axis for axis in axes if self.random.random() < 0.5]
        if gone == list(axes) and name in ("sum", "mean", "max"):  # without the axes, which come back
            text = text.replace(", keepdims=True", "")
            for axis in axes:
                text = f"sr.expand_dims({text}, axis={axis})"
        self._say(
            text, Form(packed, features),
            lambda known: reduced(known[x], depth, levels, form.features, [1 + axis for axis in chosen], how),
        )  # fmt: skip

    def along(self) -> None:
        """A softmax, scan or normalization along one axis."""
        x = self._any(self._is_ragged)
        if x is None:
            return
        form, at = self.forms[x], self.levels
        places = [(at, 0)] * 2 + [(at + 1 + axis, 1 + axis) for axis in range(len(form.features))]
        axis, dim = self.random.choice(places)
        ways: list[tuple[str, Callable[[torch.Tensor], torch.Tensor]]] = [
            (f"sr.softmax({x}, axis={axis})", lambda leaf: leaf.softmax(dim)),
            (f"sr.log_softmax({x}, axis={axis}) * 0.1", lambda leaf: leaf.log_softmax(dim) * 0.1),
            (f"sr.cumulative_sum({x}, axis={axis})", lambda leaf: leaf.cumsum(dim)),
            (f"sr.flip({x}, axis={axis})", lambda leaf: leaf.flip(dim)),
        ]
        if dim:
            size = (form.features[dim - 1],)
            ways.append((
                f"sr.layer_norm({x}, axis={axis})",
                lambda leaf: torch.nn.functional.layer_norm(leaf.movedim(dim, -1), size).movedim(-1, dim),
            ))  # fmt: skip
        text, function = self.random.choice(ways)
        self._say(text, form, lambda known: mapped(function, known[x]))

    def view(self) -> None:
        """Something on a view with other axes, and back."""
        x = self._any()
        assert x is not None
        text, function = UNARY[self.random.choice(list(UNARY))]
        order = list(range(1 + self.levels + len(self.features)))
        self.random.shuffle(order)
        back = [order.index(axis) for axis in range(len(order))]
        inner = text.format(f"sr.permute_dims({x}, {order})")
        self._say(
            f"sr.permute_dims({inner}, {back})", self.forms[x], lambda known: mapped(function, known[x])
        )  # fmt: skip

    def sliced(self) -> None:
        """A part of each innermost row: other lengths from now on."""
        x = self._any(lambda form: form.is_full)
        if x is None:
            return
        start, stop = self.random.choice([(1, None), (None, 2), (1, 4), (None, -1), (-2, None)])
        key = ", ".join([":"] * self.levels + [f"{'' if start is None else start}:{'' if stop is None else stop}"])
        form = self.forms[x]
        packed = (*form.packed[:-1], ("part", form.packed[-1], start, stop))
        self._say(
            f"{x}[{key}]", replace(form, packed=packed), lambda known: mapped(lambda leaf: leaf[start:stop], known[x])
        )  # fmt: skip

    def joined(self) -> None:
        """Rows of one behind rows of the other."""
        x = self._any(lambda form: form.is_full)
        if x is None:
            return
        mine = self.forms[x]
        y = self._any(
            lambda form: form.is_full and (form.packed[:-1], form.features) == (mine.packed[:-1], mine.features)
        )
        assert y is not None
        packed = (*mine.packed[:-1], ("joined", mine.packed[-1], self.forms[y].packed[-1]))
        self._say(
            f"sr.concat([{x}, {y}], axis={self.levels})", replace(mine, packed=packed),
            lambda known: mapped(lambda one, other: torch.cat([one, other]), known[x], known[y]),
        )  # fmt: skip

    def padded(self) -> None:
        """Something on padded rows, and back."""
        x = self._any(lambda form: form.is_full)
        if x is None:
            return
        text, function = UNARY[self.random.choice(list(UNARY))]
        inner = text.format(f"{x}.to_dense(0.25)")
        self._say(
            f"sr.from_dense({inner}, like={x})", self.forms[x], lambda known: mapped(function, known[x])
        )  # fmt: skip

    def product(self) -> None:
        """A product with a matrix, which all rows share."""
        x = self._any(lambda form: bool(form.features) and form.features[-1] > 1)
        if x is None:
            return
        size = self.forms[x].features[-1]
        name = f"m{size}"
        if name not in (each.name for each in self.made.inputs):
            self.made.inputs.append(Input(name, "matrix", Form((), (size, size))))
        self._say(
            f"sr.tanh({x} @ {name})", self.forms[x],
            lambda known: mapped(lambda leaf, m: torch.tanh(leaf @ m), known[x], known[name]),
        )  # fmt: skip

    def counted(self) -> None:
        """With the positions in the rows."""
        x = self._any(self._is_ragged)
        if x is None:
            return
        ones = (1,) * len(self.features)

        def function(leaf: torch.Tensor) -> torch.Tensor:
            return leaf + 0.125 * torch.arange(len(leaf), dtype=leaf.dtype).view(-1, *ones)

        positions = self._opened(f"sr.positions({x}, axis={self.levels})", self.levels + 1, len(ones))
        self._say(f"{x} + 0.125 * {positions}", self.forms[x], lambda known: mapped(function, known[x]))

    STEPS = (
        (unary, 6), (binary, 6), (reduce, 4), (along, 3), (view, 1), (sliced, 0.7), (joined, 0.5), (padded, 0.5),
        (product, 0.8), (counted, 0.4),
    )  # fmt: skip

    def _finish(self) -> None:
        used = {name for each in self.made.statements for name in self.forms if f"{name}" in _words(each.text)}
        unused = [each.name for each in self.made.statements if each.name not in used]
        kept = unused[-3:] if unused else [self.made.statements[-1].name]
        if self.random.random() < 0.3:
            kept = list(dict.fromkeys([*kept, self.random.choice(self.made.statements).name]))
        self.made.outputs = kept


def _words(text: str) -> set[str]:
    return set("".join(c if c.isalnum() or c == "_" else " " for c in text).split())


def drawn(seed: int, least: int = 2, most: int = 30) -> Drawn:
    """The program of a seed."""
    return Drawing(seed, least, most).made


def without_unused(program: Drawn) -> Drawn:
    """The program without statements that no output needs."""
    needed = set(program.outputs)
    for each in reversed(program.statements):
        if each.name in needed:
            needed |= _words(each.text)
    kept = [each for each in program.statements if each.name in needed]
    return Drawn(program.seed, program.levels, program.inputs, kept, program.outputs)


# ---------------------------------------------------------------------------------------------------------- inputs

BATCHES = ("some rows", "other rows", "empty rows", "one row", "no rows")


def batch(program: Drawn, kind: str) -> list[Any]:
    """Arguments for a program; all ragged ones share their partitions."""
    chosen = random.Random(f"{program.seed} {kind}")
    generator = torch.Generator().manual_seed(program.seed * 7 + BATCHES.index(kind))
    count = {"some rows": 4, "other rows": 7, "empty rows": 5, "one row": 1, "no rows": 0}[kind]
    least = 0 if kind == "empty rows" else 1
    levels, components = [], count
    for level in range(program.levels):
        most = (6, 4, 3)[level]
        levels.append([chosen.choice([0, most]) if not least and chosen.random() < 0.5 else chosen.randint(least, most)
                       for _ in range(components)])  # fmt: skip
        components = sum(levels[-1])

    def elements(*shape: int) -> torch.Tensor:
        return torch.rand(shape, generator=generator, dtype=torch.float64) * 2 - 1

    first: sr.Tensor | None = None
    given: list[Any] = []
    for each in program.inputs:
        if each.kind == "ragged":
            values = elements(components, *each.form.features)
            first = sr.from_lengths(values, levels) if first is None else first._with(values)
            given.append(first._with(values))
        elif each.kind == "batch":
            given.append(elements(count, *each.form.features))
        else:
            given.append(elements(*each.form.features))
    return given
