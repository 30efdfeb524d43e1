"""Every operation of a Fusion by `evaluate`, against torch on rows one by one; printing, cloning, equality, offsets."""

from __future__ import annotations

import copy
import itertools
import math
import pickle
import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import serrate as sr
from serrate.fusion import (
    Fusion,
    IterDomain,
    Memory,
    ParallelType,
    RaggedIterDomain,
    TensorView,
    const,
    inject_offsets,
    symbol,
)
from serrate.fusion.evaluate import TORCH
from serrate.fusion.operations import BINARY, REDUCTIONS, UNARY

LENGTHS = {"ragged": [3, 0, 4, 1], "one row": [5], "empty rows": [0, 0], "no rows": []}
FLOATS = ["float64", "float32", "float16", "bfloat16"]
WHOLE = ["int64", "int32"]
each_length = pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS.keys())
each_dtype = pytest.mark.parametrize("dtype", FLOATS + WHOLE)


def offsets_of(lengths: Sequence[int]) -> torch.Tensor:
    return torch.tensor([0, *itertools.accumulate(lengths)])


def some(shape: Sequence[int], dtype: str = "float32", seed: int = 0) -> torch.Tensor:
    """Numbers from -2 to 2."""
    drawn = torch.rand(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) * 4 - 2
    if dtype == "bool":
        return drawn > 0
    return (drawn if dtype in FLOATS else (drawn * 4).round()).to(TORCH[dtype])


def nested(
    fusion: Fusion, *features: int | str, name: str = "x", dtype: str = "float32", offsets: str = "offsets"
) -> TensorView:
    """An input [n, *features] as [k, r, *features]."""
    data = fusion.input(name, ["n", *features], dtype)
    known = [tensor for tensor in fusion.inputs if tensor.name == offsets]
    return fusion.view_as_nested(data, known[0] if known else fusion.input(offsets, [symbol("k") + 1], "int64"))


def by_rows(
    values: torch.Tensor, lengths: Sequence[int], function: Callable[[torch.Tensor], torch.Tensor]
) -> torch.Tensor:
    """What a function makes of each row, one after another."""
    rows = [function(row) for row in values.split(list(lengths))] if lengths else [function(values[:0])]
    return torch.cat(rows)


def same(got: torch.Tensor, want: torch.Tensor) -> None:
    torch.testing.assert_close(got, want, equal_nan=True)


# Pointwise

TORCH_UNARY: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "reciprocal": lambda a: 1 / a, "relu": lambda a: a.clamp(min=0), "sigmoid": lambda a: 1 / (1 + (-a).exp()),
    "silu": F.silu, "gelu": F.gelu, "square": lambda a: a * a, "rsqrt": lambda a: a**-0.5,
}  # fmt: skip


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("dtype", FLOATS)
def test_unary(name: str, dtype: str) -> None:
    fusion, lengths = Fusion(), LENGTHS["ragged"]
    y = fusion.output(fusion.unary(name, nested(fusion, 3, dtype=dtype)))
    x = some([8, 3], dtype)
    assert y.dtype == dtype
    function = TORCH_UNARY.get(name) or getattr(torch, name)
    same(
        fusion.evaluate(x, offsets_of(lengths))[0], by_rows(x, lengths, lambda row: function(row.double())).to(x.dtype)
    )


@each_length
@pytest.mark.parametrize("name", ["neg", "abs", "relu", "square"])
@pytest.mark.parametrize("dtype", WHOLE)
def test_unary_of_whole_numbers(name: str, dtype: str, lengths: list[int]) -> None:
    fusion = Fusion()
    fusion.output(fusion.unary(name, nested(fusion, dtype=dtype)))
    x = some([sum(lengths)], dtype)
    function = TORCH_UNARY.get(name) or getattr(torch, name)
    assert torch.equal(fusion.evaluate(x, offsets_of(lengths))[0], by_rows(x, lengths, function))


@pytest.mark.parametrize(
    ("name", "dtype"), [row for row in itertools.product(BINARY, FLOATS + WHOLE) if row[0] != "div" or row[1] in FLOATS]
)
def test_binary(name: str, dtype: str) -> None:
    fusion, lengths = Fusion(), LENGTHS["ragged"]
    x, y = nested(fusion, 2, dtype=dtype), nested(fusion, 2, name="z", dtype=dtype)
    by_component = fusion.broadcast(fusion.input("w", ["k", 2], dtype), [False, True, False])
    made = [fusion.binary(name, x, y), fusion.binary(name, x, by_component), fusion.binary(name, 1, x)]
    for tensor in made:
        fusion.output(tensor)
    assert {tensor.dtype for tensor in made} == {"bool" if name in ("lt", "le", "eq", "ne") else dtype}
    a, b, w = some([8, 2], dtype), some([8, 2], dtype, 1), some([4, 2], dtype, 2)
    b[::3] = a[::3]  # some are equal
    function = {"div": torch.true_divide}.get(name) or getattr(torch, name)
    weights = w.repeat_interleave(torch.tensor(lengths), 0)
    got = fusion.evaluate(a, offsets_of(lengths), b, w)
    for found, (left, right) in zip(got, [(a, b), (a, weights), (torch.ones_like(a), a)], strict=True):
        same(found, function(left, right))


@each_dtype
@each_length
def test_where(dtype: str, lengths: list[int]) -> None:
    fusion = Fusion()
    condition, x = nested(fusion, 2, name="condition", dtype="bool"), nested(fusion, 2, dtype=dtype)
    shared = fusion.input("shared", [2], dtype)
    for tensor in (fusion.where(condition, x, shared), fusion.where(condition, x, 1), fusion.where(condition, -1, x)):
        fusion.output(tensor)
    n = sum(lengths)
    c, a, s = some([n, 2], "bool"), some([n, 2], dtype), some([2], dtype, 2)
    got = fusion.evaluate(c, offsets_of(lengths), a, s)
    one = torch.ones((), dtype=a.dtype)
    for found, want in zip(got, [a.where(c, s), a.where(c, one), (-one).where(c, a)], strict=True):
        assert torch.equal(found, want)


@pytest.mark.parametrize(("old", "new"), list(itertools.permutations([*FLOATS, *WHOLE, "bool"], 2)))
def test_cast(old: str, new: str) -> None:
    fusion = Fusion()
    fusion.output(fusion.cast(nested(fusion, dtype=old), new))
    x = some([8], old) * (3 if old != "bool" else True)
    assert torch.equal(fusion.evaluate(x, offsets_of([3, 0, 5]))[0], x.to(TORCH[new]))


def test_cast_rounds_what_follows() -> None:
    fusion = Fusion()
    x = fusion.input("x", [1])
    fusion.output(fusion.cast(fusion.cast(x, "bfloat16"), "float32"))
    assert fusion.evaluate(torch.tensor([1.001]))[0].tolist() == [1.0]


@each_length
@pytest.mark.parametrize("dtype", [*FLOATS, *WHOLE, "bool"])
def test_copy(dtype: str, lengths: list[int]) -> None:
    fusion = Fusion()
    fusion.output(fusion.copy(nested(fusion, 2, dtype=dtype)))
    x = some([sum(lengths), 2], dtype)
    assert torch.equal(fusion.evaluate(x, offsets_of(lengths))[0], x)


def test_operators_are_the_binary_operations() -> None:
    fusion = Fusion()
    x, y = fusion.input("x", [3]), fusion.input("y", [3])
    for tensor in (x + y, x - y, x * y, x / y, 1 + x, 1 - x, 2 * x, 2 / x, -x, x + 1, x - 1, x * 2, x / 2):
        fusion.output(tensor)
    a, b = torch.tensor([1.0, -2.0, 4.0]), torch.tensor([0.5, 8.0, -1.0])
    want = [a + b, a - b, a * b, a / b, 1 + a, 1 - a, 2 * a, 2 / a, -a, a + 1, a - 1, a * 2, a / 2]
    for found, expected in zip(fusion.evaluate(a, b), want, strict=True):
        same(found, expected)


def test_numbers_that_are_none_or_infinite_pass_through() -> None:
    fusion = Fusion()
    x = fusion.input("x", [5])
    for tensor in (fusion.unary("relu", x), fusion.binary("maximum", x, 0), fusion.unary("neg", x)):
        fusion.output(tensor)
    a = torch.tensor([math.nan, math.inf, -math.inf, 0.0, -0.0])
    for found, want in zip(fusion.evaluate(a), (a.relu(), a.maximum(torch.zeros(())), -a), strict=True):
        same(found, want)
        assert torch.equal(found.signbit() & (found == 0), want.signbit() & (want == 0))


# Broadcasts


@each_length
def test_broadcast_over_rows_components_and_features(lengths: list[int]) -> None:
    fusion = Fusion()
    x = nested(fusion, 2)
    by_component = fusion.broadcast(fusion.input("b", ["k"]), [False, True, True])
    by_row = fusion.broadcast(nested(fusion, name="r"), [False, False, True])
    fusion.output(x * by_component + by_row + fusion.input("d", [2]))
    n, k = sum(lengths), len(lengths)
    a, b, r, d = some([n, 2]), some([k], seed=1), some([n], seed=2), some([2], seed=3)
    parts = zip(a.split(lengths), b, r.split(lengths), strict=True) if lengths else ()
    want = [row * weight + shift[:, None] + d for row, weight, shift in parts]
    same(fusion.evaluate(a, offsets_of(lengths), b, r, d)[0], torch.cat([a[:0], *want]))


@each_length
def test_outer_product_of_two_ragged_axes(lengths: list[int]) -> None:
    fusion = Fusion()
    left = nested(fusion)
    right = fusion.view_as_nested(fusion.input("s", ["m"]), fusion.input("s_offsets", [symbol("k") + 1], "int64"))
    fusion.output(fusion.broadcast(left, [False, False, True]) * fusion.broadcast(right, [False, True, False]))
    other = [length + 1 for length in reversed(lengths)]
    q, s = some([sum(lengths)]), some([sum(other)], seed=1)
    parts = zip(q.split(lengths), s.split(other), strict=True) if lengths else ()
    want = torch.cat([torch.empty(0), *(torch.outer(a, b).flatten() for a, b in parts)])
    same(fusion.evaluate(q, offsets_of(lengths), s, offsets_of(other))[0], want)


# Reductions


def reduced(name: str, given: list[tuple[int, Any]], dtype: torch.dtype) -> Any:
    """A reduction of (position, number), as torch has it; of none, what is neutral."""
    values = torch.tensor([value for _, value in given], dtype=dtype)
    wide = values.double() if values.is_floating_point() else values.long()
    match name:
        case "max" | "min" if not given:
            limits = torch.finfo(dtype) if values.is_floating_point() else torch.iinfo(dtype)
            low, high = (-math.inf, math.inf) if values.is_floating_point() else (limits.min, limits.max)
            return low if name == "max" else high
        case "argmax" | "argmin":
            return given[getattr(wide, name)()][0] if given else -1
        case "var":
            return wide.var(correction=0).item() if given else math.nan
        case "logsumexp":
            return wide.logsumexp(0).item()
    return getattr(wide, name)().item()


def reduced_by_hand(
    name: str, x: torch.Tensor, lengths: Sequence[int], gone: Sequence[int], positions: int
) -> list[Any]:
    """The elements of [k, r, d] gathered by their kept indices, each list reduced; rows are seen up to `positions`
    where components are reduced and rows are not."""
    rows = x.split(list(lengths)) if lengths else ()
    elements = {
        (c, r, d): value
        for c, row in enumerate(rows)
        for r, features in enumerate(row.tolist())
        for d, value in enumerate(features)
    }
    kept = [axis for axis in range(3) if axis not in gone]
    if 1 in kept and 0 in gone:
        places = itertools.product(*(range([0, positions, x.shape[1]][axis]) for axis in kept))
        groups: dict[tuple[int, ...], list[tuple[int, Any]]] = {place: [] for place in places}
    else:
        whole = [(c, r, d) for c, length in enumerate(lengths) for r in range(length) for d in range(x.shape[1])]
        if 1 in gone:  # empty rows have a result too
            whole = list(itertools.product(range(len(lengths) or (0 in gone)), [0], range(x.shape[1])))
        groups = {tuple(index[axis] for axis in kept): [] for index in whole}
    for index, value in elements.items():
        groups[tuple(index[axis] for axis in kept)].append((index[gone[0]], value))
    return [reduced(name, groups[place], x.dtype) for place in sorted(groups)]


AXES = [[0], [1], [2], [0, 1], [0, 2], [1, 2], [0, 1, 2]]
REDUCED = [
    *itertools.product(REDUCTIONS, FLOATS[:2]),
    *itertools.product(["sum", "prod", "max", "min", "argmax", "argmin"], WHOLE),
    *[("sum", "float16"), ("mean", "bfloat16"), ("max", "bfloat16"), ("sum", "bool"), ("prod", "bool")],
]


@each_length
@pytest.mark.parametrize(
    ("name", "dtype", "axes"),
    [(*row, axes) for row in REDUCED for axes in AXES if len(axes) == 1 or not row[0].startswith("arg")],
    ids=str,
)
def test_reduce(name: str, dtype: str, axes: list[int], lengths: list[int]) -> None:
    fusion = Fusion()
    y = fusion.output(fusion.reduce(name, nested(fusion, 3, dtype=dtype), axes))
    n = sum(lengths)
    x = some([n, 3], dtype)
    got = fusion.evaluate(x, offsets_of(lengths))[0]
    whole = dtype not in FLOATS
    assert y.dtype == ("int64" if name.startswith("arg") or (whole and name in ("sum", "prod")) else dtype)
    sizes = {0: len(lengths), 1: n, 2: 3}
    kept = [axis for axis in range(3) if axis not in axes]
    shape = [n, *([3] if 2 in kept else [])] if 1 in kept else [sizes[axis] for axis in kept]
    want = torch.tensor(reduced_by_hand(name, x, lengths, axes, n), dtype=torch.float64 if not whole else torch.int64)
    same(got, want.reshape(shape).to(got.dtype))


@pytest.mark.parametrize("axes", AXES, ids=str)
def test_keepdims_broadcasts_against_what_was_reduced(axes: list[int]) -> None:
    """x − mean(x) twice: by keepdims, and by a broadcast of the reduced tensor."""
    lengths = LENGTHS["ragged"]
    fusion = Fusion()
    x = nested(fusion, 3)
    with_axes = fusion.reduce("mean", x, axes, keepdims=True)
    assert with_axes.ndim == 3
    assert [axis.is_broadcast for axis in with_axes.domain.kept] == [axis in axes for axis in range(3)]
    if 0 in axes and 1 not in axes:  # positions up to the longest row are no longer the rows
        return
    fusion.output(x - with_axes)
    plain = fusion.broadcast(fusion.reduce("mean", x, axes), [axis in axes for axis in range(3)])
    fusion.output(x - plain)
    a = some([8, 3])
    first, second = fusion.evaluate(a, offsets_of(lengths))
    assert torch.equal(first, second)
    if axes == [1]:
        same(first, by_rows(a, lengths, lambda row: row - row.mean(0)))
    if axes == [2]:
        same(first, a - a.mean(1, keepdim=True))


def test_reduction_of_positions_up_to_a_bound_that_is_given() -> None:
    fusion = Fusion()
    data, offsets = fusion.input("x", ["n"]), fusion.input("offsets", [symbol("k") + 1], "int64")
    rows = RaggedIterDomain.from_offsets(offsets, size="n", longest=4)
    fusion.output(fusion.reduce("sum", fusion.view_as_nested(data, rows.raggedness), [0]))
    got = fusion.evaluate(torch.arange(1.0, 7.0), offsets_of([3, 0, 2, 1]))[0]
    assert got.tolist() == [1 + 4 + 6, 2 + 5, 3, 0]


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_positions_are_of_the_first_and_of_none(name: str) -> None:
    fusion = Fusion()
    fusion.output(fusion.reduce(name, nested(fusion), [1]))
    x = torch.tensor([1.0, 1.0, 0.0, math.nan, 5.0])
    got = fusion.evaluate(x, offsets_of([2, 0, 3]))[0]
    assert got.tolist() == [0, -1, 1]  # the first of equals; NaN before all


def test_max_of_bool() -> None:
    fusion = Fusion()
    fusion.output(fusion.reduce("max", fusion.input("x", [3], "bool"), [0]))
    assert fusion.evaluate(torch.zeros(3, dtype=torch.bool))[0].item() is False


@pytest.mark.parametrize("dtype", ["int8", "int16", "uint8"])
def test_max_of_short_numbers(dtype: str) -> None:
    fusion = Fusion()
    fusion.output(fusion.reduce("max", fusion.input("x", [3], dtype), [0]))
    assert fusion.evaluate(torch.tensor([1, 3, 2], dtype=TORCH[dtype]))[0].item() == 3


# Resizing, gathering, selecting


@each_length
@pytest.mark.parametrize(("left", "right"), [(0, 0), (1, 0), (0, 2), (1, 2)])
@pytest.mark.parametrize(("axis", "dtype"), [(1, "float32"), (2, "float32"), (-1, "int64"), (1, "bfloat16")])
def test_pad(axis: int, dtype: str, left: int, right: int, lengths: list[int]) -> None:
    fusion = Fusion()
    fusion.output(fusion.pad(nested(fusion, 3, dtype=dtype), axis, left, right, value=-1))
    x = some([sum(lengths), 3], dtype)
    sides = [0, 0, left, right] if axis == 1 else [left, right]
    want = by_rows(x, lengths, lambda row: F.pad(row, sides, value=-1)) if lengths or axis != 1 else x
    assert torch.equal(fusion.evaluate(x, offsets_of(lengths))[0], want)


@each_length
@pytest.mark.parametrize(("start", "stop"), [(0, 0), (1, 0), (0, -1), (2, -1)])
@pytest.mark.parametrize("axis", [1, 2])
def test_slice(axis: int, start: int, stop: int, lengths: list[int]) -> None:
    fusion = Fusion()
    fusion.output(fusion.slice(nested(fusion, 4), axis, start, stop))
    x = some([sum(lengths), 4])

    def cut(row: torch.Tensor) -> torch.Tensor:
        """As Python slices; of a row that is too short, nothing."""
        window = slice(start, max(row.shape[axis - 1] + stop, 0))
        return row[window] if axis == 1 else row[:, window]

    assert torch.equal(fusion.evaluate(x, offsets_of(lengths))[0], by_rows(x, lengths, cut))


@each_length
@pytest.mark.parametrize("dtype", ["float32", "int64", "float16"])
def test_concat_of_features(dtype: str, lengths: list[int]) -> None:
    fusion = Fusion()
    fusion.output(fusion.concat(nested(fusion, 2, dtype=dtype), nested(fusion, 3, name="z", dtype=dtype), 2))
    a, b = some([sum(lengths), 2], dtype), some([sum(lengths), 3], dtype, 1)
    assert torch.equal(fusion.evaluate(a, offsets_of(lengths), b)[0], torch.cat([a, b], 1))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_concat_of_regular_tensors(axis: int) -> None:
    fusion = Fusion()
    fusion.output(fusion.concat(fusion.input("x", [2, 3]), fusion.input("z", [2, 3]), axis))
    a, b = some([2, 3]), some([2, 3], seed=1)
    assert torch.equal(fusion.evaluate(a, b)[0], torch.cat([a, b], axis))


@each_length
@pytest.mark.parametrize("dtype", WHOLE)
def test_gather(dtype: str, lengths: list[int]) -> None:
    fusion = Fusion()
    table = fusion.input("table", ["entries", 3])
    fusion.output(fusion.gather(table, nested(fusion, name="ids", dtype=dtype)))
    ids = torch.randint(5, [sum(lengths)], generator=torch.Generator().manual_seed(0)).to(TORCH[dtype])
    values = some([5, 3])
    assert torch.equal(fusion.evaluate(values, ids, offsets_of(lengths))[0], values[ids.long()])


def test_gather_by_computed_indices_of_two_axes() -> None:
    fusion = Fusion()
    table, ids = fusion.input("table", [6]), fusion.input("ids", [2, 3], "int64")
    fusion.output(fusion.gather(fusion.unary("exp", table), ids + 1))
    values, chosen = some([6]), torch.tensor([[0, 4, 1], [2, 2, 3]])
    same(fusion.evaluate(values, chosen)[0], values.exp()[chosen + 1])


@pytest.mark.parametrize("component", range(4))
def test_select_of_a_component(component: int) -> None:
    fusion, lengths = Fusion(), LENGTHS["ragged"]
    x = nested(fusion, 3)
    row = fusion.output(x.select(0, component))
    assert row.ndim == 2
    assert not any(axis.is_ragged for axis in row.domain.logical)
    a = some([8, 3])
    assert torch.equal(fusion.evaluate(a, offsets_of(lengths))[0], a.split(lengths)[component])


@each_length
def test_select_of_a_feature(lengths: list[int]) -> None:
    fusion = Fusion()
    column = fusion.output(fusion.select(nested(fusion, 3), 2, 1))
    assert [axis.is_ragged for axis in column.domain.logical] == [False, True]
    a = some([sum(lengths), 3])
    assert torch.equal(fusion.evaluate(a, offsets_of(lengths))[0], a[:, 1])


# Nesting


@each_length
def test_view_with_the_ragged_axis_inside(lengths: list[int]) -> None:
    fusion = Fusion()
    data, offsets = fusion.input("x", [3, "n", 2]), fusion.input("offsets", [symbol("k") + 1], "int64")
    x = fusion.view_as_nested(data, offsets, ragged_dim=1)
    assert [axis.is_ragged for axis in x.domain.logical] == [False, False, True, False]
    fusion.output(fusion.unary("neg", x))
    fusion.output(fusion.reduce("sum", x, [2]))
    a = some([3, sum(lengths), 2])
    doubled, sums = fusion.evaluate(a, offsets_of(lengths))
    assert torch.equal(doubled, -a)
    parts = a.split(lengths, 1) if lengths else ()
    same(sums, torch.stack([part.sum(1) for part in parts], 1) if parts else torch.empty(3, 0, 2))


def test_rows_need_not_fill_the_data() -> None:
    fusion = Fusion()
    data, offsets = fusion.input("x", ["n", 2]), fusion.input("offsets", [symbol("k") + 1], "int64")
    x = fusion.view_as_nested(data, offsets, exact=False)
    for tensor in (fusion.unary("exp", x), fusion.reduce("sum", x, [1]), fusion.reduce("sum", x, [0, 1])):
        fusion.output(tensor)
    a, lengths = some([9, 2]), [2, 0, 3]
    a[5:] = math.nan  # what comes after the rows is not part of them
    values, by_component, total = fusion.evaluate(a, offsets_of(lengths))
    same(values, a[:5].exp())
    same(by_component, torch.stack([row.sum(0) for row in a[:5].split(lengths)]))
    same(total, a[:5].sum(0))


@each_length
def test_offsets_of_extents(lengths: list[int]) -> None:
    fusion = Fusion()
    data, extents = fusion.input("x", ["n"]), fusion.input("extents", ["k"], "int64")
    rows = RaggedIterDomain.from_extents(extents, size="n")
    fusion.output(fusion.named(rows.raggedness.base_arrays[0]), "offsets")
    x = fusion.view_as_nested(data, fusion.named("offsets"))
    fusion.output(fusion.reduce("sum", x, [1]))
    a = some([sum(lengths)])
    offsets, sums = fusion.evaluate(a, torch.tensor(lengths, dtype=torch.int64))
    assert offsets.tolist() == offsets_of(lengths).tolist()
    same(sums, torch.stack([row.sum() for row in a.split(lengths)]) if lengths else torch.empty(0))


def two_levels(fusion: Fusion) -> TensorView:
    """[k, r, s], s depending on r."""
    outer = fusion.input("outer", [symbol("k") + 1], "int64")
    inner = fusion.input("inner", [symbol("n") + 1], "int64")
    components = IterDomain("k", name="c")
    rows = RaggedIterDomain.from_offsets(outer, size="n", component=components, name="r")
    items = RaggedIterDomain.from_offsets(inner, size="m", component=IterDomain.combine(components, rows), name="s")
    return fusion.input("x", [components, rows, items])


@each_length
def test_two_levels(lengths: list[int]) -> None:
    fusion = Fusion()
    x = two_levels(fusion)
    for tensor in (fusion.unary("neg", x), fusion.reduce("sum", x, [2]), fusion.reduce("sum", x, [1, 2])):
        fusion.output(tensor)
    inner = [(row + 1) % 3 for row in range(sum(lengths))]
    a = some([sum(inner)])
    negative, by_row, by_component = fusion.evaluate(offsets_of(lengths), offsets_of(inner), a)
    assert torch.equal(negative, -a)
    rows = torch.tensor([row.sum() for row in a.split(inner)]) if inner else torch.empty(0)
    same(by_row, rows)
    same(by_component, torch.tensor([part.sum() for part in rows.split(lengths)]) if lengths else torch.empty(0))


def test_a_view_of_a_view() -> None:
    fusion = Fusion()
    rows = fusion.view_as_nested(fusion.input("x", ["n"]), fusion.input("inner", [symbol("m") + 1], "int64"))
    whole = fusion.view_as_nested(rows, fusion.input("outer", [symbol("k") + 1], "int64"))
    fusion.output(fusion.reduce("sum", whole, [1, 2]))
    got = fusion.evaluate(torch.arange(6.0), offsets_of([2, 0, 3, 1]), offsets_of([1, 0, 3]))[0]
    assert got.tolist() == [1, 0, 14]


@pytest.mark.parametrize("split", [False, True])
def test_inputs_are_read_as_they_lie(split: bool) -> None:
    fusion = Fusion()
    x = fusion.input("x", [2, 6])
    row, column = x.domain.logical
    x.set_allocation_domain([row, *IterDomain.split(column, 4)] if split else [column, row])
    fusion.output(fusion.copy(x))
    a = some([2, 6])
    given = F.pad(a, [0, 2]).reshape(2, 2, 4) if split else a.T.contiguous()
    assert torch.equal(fusion.evaluate(given)[0], a)


# Offsets as outputs


@each_length
def test_injected_offsets(lengths: list[int]) -> None:
    fusion = Fusion()
    x = nested(fusion, 2)
    fusion.output(fusion.pad(x, 1, 1, 2), "padded")
    fusion.output(fusion.slice(x, 1, 2, 0), "cut")
    fusion.output(fusion.reduce("sum", x, [1]), "sums")
    injected = inject_offsets(fusion)
    names = ["padded", "padded_offsets", "cut", "cut_offsets", "sums"]
    assert [tensor.name for tensor in injected.outputs] == names
    a = some([sum(lengths), 2])
    with sr.testing.forbid_sync():
        got = dict(zip(names, injected.evaluate(a, offsets_of(lengths)), strict=True))
    assert got["padded_offsets"].tolist() == offsets_of([length + 3 for length in lengths]).tolist()
    assert got["cut_offsets"].tolist() == offsets_of([max(length - 2, 0) for length in lengths]).tolist()
    for before, name in zip(fusion.evaluate(a, offsets_of(lengths)), ["padded", "cut", "sums"], strict=True):
        assert torch.equal(got[name], before)


def test_injected_offsets_of_two_ragged_axes() -> None:
    fusion = Fusion()
    fusion.output(fusion.unary("neg", two_levels(fusion)), "y")
    injected = inject_offsets(fusion)
    assert [tensor.name for tensor in injected.outputs] == ["y", "y_offsets", "y_offsets1"]
    outer, inner = offsets_of([1, 2]), offsets_of([2, 0, 1])
    got = injected.evaluate(outer, inner, some([3]))
    assert [got[1].tolist(), got[2].tolist()] == [outer.tolist(), inner.tolist()]


# Printing


def everything() -> Fusion:
    """A fusion with an operation of each kind."""
    fusion = Fusion()
    x = nested(fusion, 4)
    w = fusion.broadcast(fusion.input("w", ["k", 4]), [False, True, False])
    product = x * w
    total = fusion.reduce("sum", product, [1])
    fusion.output(fusion.pad(product, 1, 1, 0, value=2.0), "padded")
    fusion.output(fusion.gather(fusion.input("table", [3, 2]), fusion.input("ids", [5], "int64")), "rows")
    fusion.output(fusion.where(fusion.binary("lt", x, 0.5), x, 0.0), "chosen")
    fusion.output(fusion.cast(total, "float16"), "half")
    fusion.output(x.select(0, 1), "row")
    return fusion


def test_printing() -> None:
    assert str(everything()) == "\n".join([
        "inputs:",
        "  x[iS_i{n}, iS_d{4}] float32",
        "  offsets[iS_i{k + 1}] int64",
        "  w[iS_i{k}, iS_d{4}] float32",
        "  table[iS_i{3}, iS_d{2}] float32",
        "  ids[iS_i{5}] int64",
        "t2[iS_c{k}, iS_r{[offsets]}, iS_d{4}] float32 = view_as_nested(x, offsets, 0)",
        "t4[iS_i{k}, bS{1}, iS_d{4}] float32 = broadcast(w, False, True, False)",
        "t5[iS_c{k}, iS_r{[offsets]}, iS_d{4}] float32 = mul(t2, t4)",
        "t6[iS_c{k}, rS_r{[offsets]}, iS_d{4}] float32 = sum(t5, (1,), False)",
        "padded[iS_c{k}, iS_r{[offsets_plus_1]}, iS_d{4}] float32 = pad(t5, 1, 1, 0, 2.0)",
        "rows[iS_i{5}, iS_d{2}] float32 = gather(table, ids, 1)",
        "t11[iS_c{k}, iS_r{[offsets]}, iS_d{4}] bool = lt(t2, None, 0.5)",
        "chosen[iS_c{k}, iS_r{[offsets]}, iS_d{4}] float32 = where(t11, t2, None, None, 0.0)",
        "half[iS_c{k}, iS_d{4}] float16 = cast(t6)",
        "row[iS_r{offsets[2] - offsets[1]}, iS_d{4}] float32 = select(t2, 0, 1)",
        "outputs: padded, rows, chosen, half, row",
    ])  # fmt: skip


def test_a_schedule_is_printed() -> None:
    fusion = Fusion()
    y = fusion.output(fusion.copy(nested(fusion, 4)), "y")
    y.split(1, 2).combine(0).parallelize(0, ParallelType.BIDx).parallelize(2, ParallelType.TIDx)
    assert repr(y) == "y[iblockIdx.x_cr_outer{offsets_by_2[k]}, iS_r_inner{2}, ithreadIdx.x_d{4}] float32"
    assert repr(y) in str(fusion)


# Clones, equality, pickles


def scaled(
    name: str = "exp", by: float = 2.0, extent: int = 8, first: str = "x", dtype: str = "float32", swapped: bool = False
) -> Fusion:
    """name(x) − by·z over an axis."""
    fusion = Fusion()
    x, z = fusion.input(first, [extent, 4], dtype), fusion.input("z", [extent, 4], dtype)
    left, right = fusion.unary(name, x), z * by
    fusion.output(right - left if swapped else left - right, "y")
    return fusion


def scheduled(change: Callable[[TensorView], object]) -> Fusion:
    fusion = scaled()
    change(fusion.outputs[0])
    return fusion


def laid_out(fusion: Fusion, factor: int, fill: float | None) -> Fusion:
    y = fusion.outputs[0]
    row, column = y.domain.logical
    y.set_allocation_domain([*IterDomain.split(row, factor), column], fill)
    return fusion


def keep(y: TensorView) -> None:
    y.fusion.tensors[2].keep_in(y)


VARIANTS: dict[str, Callable[[], Fusion]] = {
    "as it is": scaled,
    "operation": lambda: scaled("log"),
    "constant": lambda: scaled(by=2.5),
    "extent": lambda: scaled(extent=12),
    "name of a tensor": lambda: scaled(first="q"),
    "dtype": lambda: scaled(dtype="float64"),
    "operands": lambda: scaled(swapped=True),
    "split": lambda: scheduled(lambda y: y.split(0, 4)),
    "outer split": lambda: scheduled(lambda y: y.split(0, 4, inner_split=False)),
    "factor": lambda: scheduled(lambda y: y.split(0, 2)),
    "merge": lambda: scheduled(lambda y: y.merge(0)),
    "order": lambda: scheduled(lambda y: y.reorder([1, 0])),
    "parallel type": lambda: scheduled(lambda y: y.parallelize(0, ParallelType.Thread)),
    "another parallel type": lambda: scheduled(lambda y: y.parallelize(0, ParallelType.BIDx)),
    "another axis": lambda: scheduled(lambda y: y.parallelize(1, ParallelType.Thread)),
    "memory": lambda: scheduled(lambda y: y.fusion.tensors[2].set_memory_type(Memory.SHARED)),
    "kept": lambda: scheduled(lambda y: y.fusion.tensors[2].set_memory_type(Memory.REGISTER)),
    "kept in": lambda: scheduled(keep),
    "cache": lambda: scheduled(lambda y: y.cache_before()),
    "swizzle": lambda: scheduled(lambda y: y.split(0, 4).swizzle(1, 2)),
    "other swizzle": lambda: scheduled(lambda y: y.split(0, 4).swizzle(1, 2, "shift")),
    "layout": lambda: laid_out(scaled(), 3, None),
    "fill": lambda: laid_out(scaled(), 3, 0.0),
    "other fill": lambda: laid_out(scaled(), 3, 1.0),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_a_clone_is_equal(name: str) -> None:
    fusion = VARIANTS[name]()
    for other in (fusion.clone(), VARIANTS[name](), pickle.loads(pickle.dumps(fusion)), copy.deepcopy(fusion)):
        assert other is not fusion
        assert other == fusion
        assert hash(other) == hash(fusion)
        assert str(other) == str(fusion)


@pytest.mark.parametrize(("one", "other"), list(itertools.combinations(VARIANTS, 2)))
def test_what_differs_is_not_equal(one: str, other: str) -> None:
    assert VARIANTS[one]() != VARIANTS[other]()
    assert len({VARIANTS[one](), VARIANTS[other]()}) == 2


def test_what_is_not_a_fusion_is_not_equal() -> None:
    assert scaled() != 3
    assert scaled() != Fusion()


def test_names_of_axes_count() -> None:
    """They are part of the generated source."""

    def named(name: str) -> Fusion:
        fusion = Fusion()
        fusion.output(fusion.copy(fusion.input("x", [IterDomain(3, name=name)])), "y")
        return fusion

    assert named("a") == named("a")
    assert named("a") != named("b")


def test_raggedness_counts() -> None:
    def of(*lengths: int) -> Fusion:
        fusion = Fusion()
        rows = RaggedIterDomain([IterDomain(length) for length in lengths])
        fusion.output(fusion.copy(fusion.input("x", [IterDomain(len(lengths)), rows])), "y")
        return fusion

    assert of(3, 5) == of(3, 5)
    assert of(3, 5) != of(5, 3)


@pytest.mark.parametrize(("one", "other", "equal"), [(0.0, -0.0, False), (math.nan, float("nan"), True)])
def test_constants_are_told_apart_by_what_they_compute(one: float, other: float, equal: bool) -> None:
    assert (scaled(by=one) == scaled(by=other)) == equal


def test_a_clone_is_independent() -> None:
    fusion = everything()
    before, key = str(fusion), fusion.key()
    made = fusion.clone()
    assert not set(map(id, made.tensors)) & set(map(id, fusion.tensors))
    assert all(tensor.fusion is made for tensor in made.tensors)
    y = made.named("chosen")
    y.combine(0).split(0, 4).parallelize(0, ParallelType.Thread)
    made.named("t5").set_memory_type(Memory.SHARED)
    made.output(made.unary("exp", y), "more")
    assert (str(fusion), fusion.key()) == (before, key)
    assert made != fusion


def test_a_clone_computes_the_same() -> None:
    fusion = everything()
    inputs = [some([8, 4]), offsets_of(LENGTHS["ragged"]), some([4, 4]), some([3, 2]), torch.tensor([0, 2, 1, 1, 0])]
    for made in (fusion.clone(), pickle.loads(pickle.dumps(fusion))):
        for got, want in zip(made.evaluate(*inputs), fusion.evaluate(*inputs), strict=True):
            assert torch.equal(got, want)


def test_scalars_are_one_object_after_a_copy() -> None:
    expression = (symbol("n") + 3) // 4 * 2 + const(1)
    assert copy.deepcopy(expression) is expression
    assert pickle.loads(pickle.dumps(expression)) is expression


# Names


def test_names_are_found_and_unique() -> None:
    fusion = everything()
    names = [tensor.name for tensor in fusion.tensors]
    assert len(set(names)) == len(names)
    assert all(fusion.named(name).name == name for name in names)
    assert all(re.fullmatch(r"\w+", name) for name in names)


def test_an_input_as_an_output_is_copied() -> None:
    fusion = Fusion()
    x = fusion.input("x", [3])
    y = fusion.output(x, "y")
    z = fusion.output(nested(fusion, name="data"), "z")
    assert y is not x
    assert [str(tensor.definition) for tensor in (y, z)] == ["copy(x)", "copy(t4)"]
    a = some([3])
    for got in fusion.evaluate(a, a, offsets_of([1, 2])):
        assert torch.equal(got, a)
