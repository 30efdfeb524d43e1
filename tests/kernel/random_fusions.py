"""Random fusions: operations over random layouts, and inputs that fit.

Everything is drawn from a `random.Random`, which hypothesis can supply, so that failures shrink. A value carries what
makes comparing with float64 fair: whether it is exact (a comparison or a floor of it has one answer), and how large it
may be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from random import Random

from tests.kernel.random_layouts import FLOATS, LONGEST, WHOLE, Inputs, layout
from tests.kernel.random_moves import moved

from serrate.fusion import IterDomain, TensorView
from serrate.fusion.dtypes import COMPLEX, UNSIGNED
from serrate.fusion.shapes import parents_of

LARGE = 64.0
WRAPPED = 2.0**64  # numbers without a sign that may have gone below 0


@dataclass(frozen=True)
class Value:
    """A tensor of a fusion under construction."""

    tensor: TensorView
    exact: bool = True
    bound: float = 2.0
    moved: bool = False  # no longer has the axes of the layout

    @property
    def is_float(self) -> bool:
        return self.tensor.dtype in FLOATS

    @property
    def is_complex(self) -> bool:
        return self.tensor.dtype in COMPLEX

    @property
    def is_unsigned(self) -> bool:
        return self.tensor.dtype in UNSIGNED


@dataclass
class Program(Inputs):
    """A fusion; when complete, also the tensor whose loops are scheduled, and which of its axes are reduced."""

    reference: TensorView = None  # type: ignore[assignment]
    reduced: tuple[IterDomain, ...] = ()

    # Pointwise operations

    def unary(self, x: Value) -> Value:
        """A function of one operand."""
        names = [n for n, (rule, _) in _UNARY.items() if rule(x)]
        name = self.random.choice(names)
        return replace(_UNARY[name][1](x), tensor=self.fusion.unary(name, x.tensor))

    def operand(self, x: Value) -> Value | float:
        """Something to compute with `x`: a number, `x` itself, a new input."""
        kind = self.random.choice(["number", "self", "indices", "input", "input", "other"])
        if kind == "number":
            if x.is_complex:
                return self.random.choice([2, 0.5, 1 - 2j])
            return self.random.choice([-1.5, 0.5, 2.0] if x.is_float else [1, 2, 3] if x.is_unsigned else [-1, 2, 3])
        if kind == "indices":
            return self.of_indices(x.tensor)
        if kind == "other" and x.exact and not x.moved:  # so that one of them is promoted
            dtypes = [dtype for dtype in (*FLOATS, *WHOLE, *COMPLEX * x.is_complex) if _meet(dtype, x.tensor.dtype)]
            return Value(self.any_input(self.random.choice(dtypes)))
        if kind == "self" or x.moved or x.tensor.dtype != self.dtype:
            return x
        return Value(self.any_input())

    def of_indices(self, like: TensorView) -> Value:
        """A number, an index or the length of a row for each element of a tensor."""
        axes = like.domain.kept
        kinds = ["full", "bits"] + ["positions"] * bool(axes) + ["lengths"] * any(axis.is_ragged for axis in axes)
        kind = self.random.choice(kinds)
        if kind == "full":
            return Value(self.fusion.full_like(like, self.random.choice([1, 0, 2])))
        if kind == "bits":
            drawn = self.fusion.random_bits(like, self.random.getrandbits(64), self.random.getrandbits(64))
            return Value(self.fusion.cast(self.fusion.binary("bitwise_and", drawn, 3), like.dtype), True, 3)
        if kind == "positions":
            made = self.fusion.positions(like, self.random.randrange(len(axes)))
        else:
            chosen = self.random.choice([at for at, axis in enumerate(axes) if axis.is_ragged])
            parents = parents_of(axes[chosen], axes)
            made = self.fusion.row_lengths(like, chosen)
            made = self.fusion.broadcast(made, [axis not in parents for axis in axes])
            made = self.fusion.expand(made, like) if self.random.random() < 0.5 else made
        return Value(self.fusion.cast(made, like.dtype), True, 8)

    def binary(self, x: Value) -> Value:
        """A function of `x` and something else, in either order."""
        y = self.operand(x)
        other = y if isinstance(y, Value) else Value(x.tensor, True, abs(y))
        exact = x.exact and other.exact
        either = [each.dtype in COMPLEX for each in (x.tensor, other.tensor)]
        names = ["add", "subtract"] + ["maximum", "minimum"] * (not any(either))
        names += ["multiply"] * (x.bound * other.bound < LARGE)
        names += ["divide"] * ((x.is_float or x.is_complex) and exact and isinstance(y, Value))
        name = self.random.choice(names)
        arguments = [x.tensor, y.tensor if isinstance(y, Value) else y]
        if self.random.random() < 0.5:
            arguments.reverse()
        bound = {"multiply": x.bound * other.bound, "divide": LARGE}.get(name, x.bound + other.bound)
        made = self.fusion.binary(name, *arguments)
        wraps = name == "subtract" and made.dtype in UNSIGNED
        return Value(made, exact and name != "divide", WRAPPED if wraps else bound, x.moved)

    def choose(self, x: Value) -> Value:
        """where(a comparison, x, something)."""
        y = self.operand(x)
        compared = self.compare(x)
        taken = [x.tensor, y.tensor if isinstance(y, Value) else y]
        if self.random.random() < 0.5:
            taken.reverse()
        other = y if isinstance(y, Value) else Value(x.tensor, True, abs(y))
        made = self.fusion.where(compared.tensor, *taken)
        return Value(made, x.exact and other.exact, max(x.bound, other.bound), x.moved)

    def compare(self, x: Value) -> Value:
        """A comparison of exact values."""
        name = self.random.choice(["equal", "not_equal"] + ["less", "less_equal"] * (not x.is_complex))
        if not x.exact:
            if x.moved or x.tensor.dtype != self.dtype:
                return Value(self.fusion.binary("equal", x.tensor, x.tensor), True, 1, x.moved)
            x = Value(self.input([True] * len(self.axes)))
        y = self.random.choice([0.0, 0.5] if x.is_float else [0, 1])
        return Value(self.fusion.binary(name, x.tensor, y), True, 1, x.moved)

    def cast(self, x: Value) -> Value:
        """The same numbers in another dtype, of those that have them."""
        # A wider dtype shows the rounding errors of a narrower one.
        if x.is_complex:
            return replace(
                x, tensor=self.fusion.cast(x.tensor, self.random.choice(COMPLEX) if x.exact else x.tensor.dtype)
            )
        kinds = ["float32", "float64"] if x.exact or not x.is_float else [x.tensor.dtype]
        kinds += ["int32", "int64"] * (not x.is_float) + ["float16", "bfloat16"] * (x.exact and x.bound <= 8)
        return replace(x, tensor=self.fusion.cast(x.tensor, self.random.choice(kinds)))

    def pointwise(self, x: Value) -> Value:
        """One more operation on `x`."""
        if x.tensor.dtype == "bool":
            return replace(x, tensor=self.fusion.cast(x.tensor, self.dtype))
        if x.bound > LARGE:
            return self.unary(x)
        return self.random.choice([self.unary, self.unary, self.binary, self.binary, self.choose, self.cast])(x)

    def chain(self, x: Value, least: int, most: int) -> list[Value]:
        """`x` and what some operations make of it, one of the other."""
        made = [x]
        for _ in range(self.random.randint(least, most)):
            made.append(self.pointwise(made[-1]))
        return made

    # Operands read elsewhere

    def move(self, x: Value) -> Value:
        """Rows of a table, one row or column of `x`, or its elements moved."""
        if self.random.random() < 0.15:
            return self.gather(x)
        if not x.moved and self.random.random() < 0.15:
            return self.select(x)
        if not x.moved and self.random.random() < 0.15:
            return self.scatter(x)
        made = moved(self.random, self.fusion, x.tensor)
        return replace(x, tensor=made, moved=True, bound=WRAPPED if x.is_unsigned else x.bound)  # some are negated

    def gather(self, x: Value) -> Value:
        """Rows of a table by indices that have the axes of the layout."""
        rows, width = self.random.randint(1, 4), self.random.randint(1, 3)
        name = f"x{len(self.fusion.inputs)}"
        table = self.fusion.input(name, [rows, width][: self.random.randint(1, 2)], self.dtype)
        self.inputs.append(self._data([axis.extent.value for axis in table.domain.logical], self.dtype))
        places = self.input([True] * len(self.axes), self.random.choice(["int32", "int64"]))
        if self.random.random() < 0.15:
            self.inputs[-1] = self.inputs[-1] % (rows + 2) - 1  # some of them out of range
        else:
            self.inputs[-1] = self.inputs[-1].abs() % rows
        return Value(self.fusion.gather(table, places), moved=True)

    def scatter(self, x: Value) -> Value:
        """Elements, or their features, added up where indices say that have the first axes of the layout."""
        regular = next(at for at in range(len(self.axes), -1, -1) if not at or self.axes[at - 1].parents)
        if any(one.parents == other.parents != () for one, other in pairwise(self.axes)):
            return self.gather(x)  # of two rows of one component only data tells how many elements they have
        first, size = self.random.randint(max(regular, 1), len(self.axes)), self.random.randint(1, 4)
        chosen = self.input([at < first for at in range(len(self.axes))], self.random.choice(["int32", "int64"]))
        while chosen.definition is not None and chosen.definition.kind == "broadcast":
            chosen = chosen.definition.inputs[0]
        wrong = self.random.random() < 0.15
        self.inputs[-1] = self.inputs[-1] % (size + 2) - 1 if wrong else self.inputs[-1].abs() % size
        made = self.fusion.scatter_add(x.tensor, chosen, [size, *x.tensor.domain.kept[first:]])
        return Value(made, False, WRAPPED if x.is_unsigned else 2 * LARGE, True)

    def select(self, x: Value) -> Value:
        regular = [at for at in range(len(self.axes)) if not self.axes[at].parents and self.axes[at].actual > 0]
        deep = {at for axis in self.axes if len(axis.parents) > 1 for at in axis.parents}
        choices = [at for at in regular if at not in deep]
        if not choices:
            return self.gather(x)
        at = self.random.choice(choices)
        made = self.fusion.select(x.tensor, at, self.random.randrange(self.axes[at].actual))
        return replace(x, tensor=made, moved=True)

    # Reductions

    def reduce(self, x: Value, axes: Sequence[int], keepdims: bool = False, names: Sequence[str] = ()) -> Value:
        """A reduction over axes."""
        names = names or [name for name, rule in _REDUCTIONS.items() if rule(x, axes)]
        if not names:  # complex numbers that may be large
            x, names = replace(x, tensor=self.fusion.unary("abs", x.tensor), exact=False), ["max", "min"]
        name = self.random.choice(names)
        tensor = x.tensor
        if name == "prod":  # so that a partial product neither overflows nor depends on the order
            low, high = (-1.0, 1.0) if x.is_float else (0, 1) if x.is_unsigned else (-1, 1)
            tensor = self.fusion.binary("minimum", self.fusion.binary("maximum", tensor, low), high)
        made = self.fusion.reduce(name, tensor, axes, keepdims)
        exact = name in ("max", "min", "argmax", "argmin", "count_nonzero", "any", "all") and x.exact
        return Value(made, exact, x.bound if name in ("max", "min", "mean") else 2 * LARGE, True)

    def moved_by(self, x: Value, statistic: Value) -> Value:
        """A value and a statistic of the same axes, or of what was made of it, in one."""
        bounded = self.fusion.unary("tanh", statistic.tensor) if statistic.is_float else statistic.tensor
        bounded = bounded if bounded.dtype == x.tensor.dtype else self.fusion.cast(bounded, x.tensor.dtype)
        name = self.random.choice(["subtract", "add", "maximum"])
        return Value(self.fusion.binary(name, x.tensor, bounded), False, LARGE, True)

    def scan(self, x: Value) -> Value:
        """A scan along an axis; of numbers so small that no order of adding them matters much."""
        at = self.random.randrange(len(self.axes))
        name = self.random.choice(["max", "min", "sum"] if x.bound <= 8 else ["max", "min"])
        options = {option: self.random.random() < 0.5 for option in ("exclusive", "reverse")}
        made = self.fusion.scan(name, x.tensor, at, **options)
        if options["exclusive"] and name != "sum":  # the neutral value of the first elements is infinite, or huge
            low, high = (-2.0, 2.0) if x.is_float else (0, 2) if x.is_unsigned else (-2, 2)
            made = self.fusion.binary("minimum", self.fusion.binary("maximum", made, low), high)
        made = made if made.dtype == x.tensor.dtype else self.fusion.cast(made, x.tensor.dtype)
        return replace(x, tensor=made, exact=False, bound=LARGE if name == "sum" else x.bound)

    def reduced_axes(self, x: Value, whole: bool) -> list[int]:
        """Some axes of `x`; `whole`: with each axis those nested in it."""
        axes = {at for at in range(x.tensor.ndim) if self.random.random() < 0.4}
        axes = axes or {self.random.randrange(x.tensor.ndim)}
        if whole:
            axes |= {at for at, axis in enumerate(self.axes) if axes & set(axis.parents)}
        return sorted(axes)


def _meet(one: str, other: str) -> bool:
    """Whether two dtypes have one in common."""
    return "uint64" not in (one, other) or one == other or not {one, other} <= {"uint64", *WHOLE[4:]}


def _small_exact(x: Value) -> bool:
    return x.is_float and x.exact


Rule = tuple[Callable[[Value], bool], Callable[[Value], Value]]


def _inexact(bound: float) -> Callable[[Value], Value]:
    return lambda x: replace(x, exact=False, bound=bound)


_UNARY: dict[str, Rule] = {
    "relu": (lambda x: not x.is_complex, lambda x: x),
    "abs": (lambda x: True, lambda x: replace(x, exact=False) if x.is_complex else x),
    "conj": (lambda x: x.is_complex, lambda x: x),
    **{name: (lambda x: x.is_complex, lambda x: x) for name in ("real", "imag")},
    "negative": (lambda x: True, lambda x: replace(x, bound=WRAPPED) if x.is_unsigned else x),
    "square": (lambda x: x.bound <= 8, lambda x: replace(x, bound=x.bound**2)),
    **{name: (_small_exact, lambda x: x) for name in ("floor", "ceil")},
    **{name: (_small_exact, _inexact(8)) for name in ("log", "sqrt", "rsqrt", "reciprocal")},
    **{name: (lambda x: x.is_float, _inexact(1)) for name in ("tanh", "sigmoid", "erf", "sin", "cos")},
    **{name: (lambda x: x.is_float, lambda x: replace(x, exact=False)) for name in ("silu", "gelu")},
    "exp": (lambda x: x.is_float and x.bound <= 4, _inexact(LARGE)),
}
_REDUCTIONS: dict[str, Callable[[Value, Sequence[int]], bool]] = {
    "sum": lambda x, axes: x.bound <= LARGE,
    "prod": lambda x, axes: not x.is_complex,
    **{name: (lambda x, axes: not x.is_complex) for name in ("max", "min")},
    **{name: (lambda x, axes: x.exact) for name in ("count_nonzero", "any", "all")},
    **{
        name: (lambda x, axes: x.is_float and x.bound <= LARGE)
        for name in ("mean", "var", "logsumexp", "relative_exp_sum")
    },
    **{name: (lambda x, axes: x.exact and not x.is_complex and len(axes) == 1) for name in ("argmax", "argmin")},
}


# Programs


def program(random: Random) -> Program:
    """A random fusion with inputs."""
    axes, as_view = layout(random)
    dtype = random.choice(
        ["float32", "float32", "float32", "float64", "int32", "int64", "float16", "bfloat16", *WHOLE, *COMPLEX]
    )
    longest = LONGEST if random.random() < 0.4 else None
    offsets = random.choice(["int32", "int64"])
    made = Program(random, axes, dtype, random.random() < 0.2, as_view, longest, offsets)
    made.start()
    x = Value(made.input([True] * len(axes)))
    kinds = [_pointwise, _reduction, _reduction, move_elements]
    kinds += [_normalization, _network, _network, _scan] * (dtype not in COMPLEX)
    random.choice(kinds)(made, x)
    return made


def _scan(made: Program, x: Value) -> None:
    values = made.chain(x, 0, 1)
    values.append(made.scan(values[-1]))
    values.append(made.unary(replace(values[-1], moved=True)))
    made.reference = made.fusion.output(values[-1].tensor, "y")
    if made.random.random() < 0.4:
        made.fusion.output(made.scan(values[0]).tensor, "z")


def _pointwise(made: Program, x: Value) -> None:
    values = made.chain(x, 1, 4)
    if made.random.random() < 0.1 and values[-1].exact:
        values.append(made.compare(values[-1]))
    made.reference = made.fusion.output(values[-1].tensor, "y")
    if len(values) > 2 and made.random.random() < 0.4:
        made.fusion.output(made.random.choice(values[1:-1]).tensor, "z")


def _reduction(made: Program, x: Value) -> None:
    values = made.chain(x, 0, 2)
    axes = made.reduced_axes(values[-1], whole=False)
    result = made.reduce(values[-1], axes)
    made.reference, made.reduced = result.tensor, tuple(a for a in result.tensor.domain.root if a.is_reduction)
    if result.tensor.dtype != "bool" and made.random.random() < 0.25:
        made.fusion.output(made.chain(result, 1, 2)[-1].tensor, "y")
    else:
        made.fusion.output(result.tensor, "y")
    if made.random.random() < 0.25:
        made.fusion.output(made.reduce(made.random.choice(values), axes).tensor, "z")


def _normalization(made: Program, x: Value) -> None:
    x = made.chain(x, 0, 1)[-1]
    axes = made.reduced_axes(x, whole=True)
    for _ in range(made.random.randint(1, 2)):
        names = ["max", "min", "sum"] + ["mean", "var", "logsumexp", "relative_exp_sum"] * x.is_float
        statistic = made.reduce(x, axes, True, names)
        same = statistic.tensor.dtype == x.tensor.dtype
        statistic = statistic if same else replace(statistic, tensor=made.fusion.cast(statistic.tensor, x.tensor.dtype))
        smaller = x.is_float and made.random.random() < 0.5
        y = made.fusion.unary("tanh", statistic.tensor) if smaller else statistic.tensor
        x = Value(
            made.fusion.binary(made.random.choice(["subtract", "add", "maximum"]), x.tensor, y), False, LARGE, True
        )
        if x.is_float and made.random.random() < 0.5:
            x = Value(made.fusion.unary("tanh", x.tensor), False, 1, True)
    made.reference = made.fusion.output(x.tensor, "y")
    made.reduced = tuple(made.reference.domain.logical[at] for at in axes)
    if made.random.random() < 0.2:
        made.fusion.output(statistic.tensor, "z")


def _network(made: Program, x: Value) -> None:
    """Several statistics, each over axes of its own, of what others were made of; and results of some of them."""
    reduced: set[int] = set()
    x, outputs, earlier = made.chain(x, 0, 1)[-1], 0, list[Value]()
    for _ in range(made.random.randint(2, 3)):
        earlier.append(x)
        axes = made.reduced_axes(x, whole=True)
        reduced.update(axes)
        if made.random.random() < 0.2:
            x = made.scan(x)
        names = ["max", "min", "sum"] + ["mean", "var", "logsumexp", "relative_exp_sum"] * x.is_float
        statistic = made.reduce(x, axes, True, names)
        if outputs < 2 and made.random.random() < 0.3:
            outputs += 1
            other = made.reduce(x, axes, False, names)
            rest = list(range(other.tensor.ndim))
            # The other axes too, in a second reduction: a reduction inside of what is reduced.
            if rest and made.random.random() < 0.5 and not any(a.is_ragged for a in other.tensor.domain.kept):
                reduced.update(at for at in range(len(made.axes)) if at not in axes)
                other = made.reduce(replace(other, bound=1.0), rest, False, ["max", "min"])
            made.fusion.output(other.tensor, f"z{outputs}")
        x = made.moved_by(x, statistic)
        if x.is_float:
            x = Value(made.fusion.unary(made.random.choice(["tanh", "sigmoid"]), x.tensor), False, 1, True)
    made.reference = made.fusion.output(x.tensor, "y")
    if made.random.random() < 0.4:  # a value that was there before y is read again, after all of y is known
        axes = made.reduced_axes(x, whole=True)
        reduced.update(axes)
        last = made.reduce(x, axes, True, ["max", "min", "sum"])
        made.fusion.output(made.moved_by(made.random.choice(earlier), last).tensor, "z")
    made.reduced = tuple(made.reference.domain.logical[at] for at in sorted(reduced))


def move_elements(made: Program, x: Value) -> None:
    x = made.chain(x, 0, 1)[-1]
    for _ in range(made.random.choice([1, 1, 2, 3])):
        x = made.chain(made.move(x), 0, 2)[-1]
    if x.tensor.ndim and made.random.random() < 0.3:
        result = made.reduce(x, [made.random.randrange(x.tensor.ndim)])
        made.reference, made.reduced = result.tensor, tuple(a for a in result.tensor.domain.root if a.is_reduction)
        made.fusion.output(result.tensor, "y")
    else:
        made.reference = made.fusion.output(x.tensor, "y")
