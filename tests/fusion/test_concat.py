"""Tensors behind each other, along every kind of axis, by `evaluate` and by kernels."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
from tests.fusion.nested_rows import EVERY_ROWS, Rows, every_rows, packed, paths
from tests.fusion.samples import some
from tests.fusion.test_values_of_indices import EVERY_DTYPE, each_target, on
from tests.kernel.harness import agree

from serrate.fusion import Fusion, IterDomain, RaggedIterDomain, TensorView, inject_offsets, symbol
from serrate.kernel import lower


@each_target
@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_regular_axes(count: int, target: str) -> None:
    for axis in range(2):
        fusion = Fusion()
        sizes = [[number, 2] if axis == 0 else [3, number] for number in range(count)]
        y = fusion.output(fusion.concat([fusion.input(f"x{n}", size) for n, size in enumerate(sizes)], axis), "y")
        values = [some(*size, seed=n) for n, size in enumerate(sizes)]
        assert torch.equal(fusion.evaluate(*values)[0], torch.cat(values, axis))
        agree(on(target, fusion, y), *values)


@each_target
def test_symbolic_axes(target: str) -> None:
    for sizes in ([3, 0, 2], [0, 0, 0], [1, 4, 1]):
        fusion = Fusion()
        inputs = [fusion.input(f"x{n}", [f"n{n}", 2]) for n in range(3)]
        y = fusion.output(fusion.concat(inputs, 0), "y")
        values = [some(size, 2, seed=n) for n, size in enumerate(sizes)]
        assert torch.equal(fusion.evaluate(*values)[0], torch.cat(values))
        agree(on(target, fusion, y), *values)


@pytest.mark.parametrize("dtype", EVERY_DTYPE)
def test_every_dtype(dtype: str) -> None:
    fusion = Fusion()
    y = fusion.output(fusion.concat([fusion.input("x", [2], dtype), fusion.input("z", [3], dtype)], 0), "y")
    a, b = some(2, dtype=dtype), some(3, dtype=dtype, seed=1)
    assert torch.equal(fusion.evaluate(a, b)[0], torch.cat([a, b]))
    agree(lower(fusion, y), a, b)


JOINED = {
    "two": (((3, 0, 4, 1),), ((0, 2, 1, 1),)),
    "three": (((3, 0, 4, 1),), ((0, 0, 1, 1),), ((1, 0, 0, 2),)),
    "empty": (((0, 0),), ((0, 0),)),
    "no rows": (((),), ((),)),
    "one row": (((2,),), ((3,),)),
}


@each_target
@pytest.mark.parametrize("levels", JOINED.values(), ids=JOINED.keys())
def test_rows_are_joined(levels: tuple[tuple[tuple[int, ...], ...], ...], target: str) -> None:
    fusion, given, tensors = Fusion(), {}, []
    parts = [Rows(each) for each in levels]
    k = len(levels[0][0])
    for number, rows in enumerate(parts):
        offsets = fusion.input(f"o{number}", ["m"], "int64")
        data = fusion.input(f"x{number}", [f"n{number}", 2])
        tensors.append(fusion.view_as_nested(data, offsets))
        given[f"o{number}"], given[f"x{number}"] = rows.offsets[0], rows.values(2, seed=number)
    y = fusion.output(fusion.concat(tensors, 1), "y")
    inputs = [given[tensor.name] for tensor in fusion.inputs]
    trees = [rows.tree(given[f"x{number}"]) for number, rows in enumerate(parts)]
    want = [leaf for row in range(k) for tree in trees for leaf in tree[row]]
    got = inject_offsets(fusion).evaluate(*inputs)
    assert torch.equal(got[0], packed(want, given["x0"]))
    assert got[1].diff().tolist() == [sum(len(tree[row]) for tree in trees) for row in range(k)]
    agree(on(target, fusion, y), *inputs)


@pytest.mark.parametrize("step", ["flat", "tiles", "outside"])
def test_joined_rows_in_other_loops(step: str) -> None:
    fusion = Fusion()
    data, offsets = fusion.input("x", ["n"]), fusion.input("offsets", ["m"], "int64")
    x = fusion.view_as_nested(data, offsets)
    y = fusion.output(fusion.concat([x, fusion.unary("square", x), x * 2], 1), "y")
    if step == "flat":
        y.combine(0)
    elif step == "tiles":
        y.split(1, 2).combine(0)
    else:
        y.reorder([1, 0])
    agree(lower(fusion, y), some(8), torch.tensor([0, 3, 3, 7, 8]))


def test_joined_rows_of_the_same_tensors_can_be_added() -> None:
    """The same raggednesses joined in the same order are the same raggedness."""
    rows, fusion = EVERY_ROWS["one level"], Fusion()
    x, z = rows.input(fusion), rows.input(fusion, name="z")
    y = fusion.output(fusion.concat([x, z], 1) + fusion.concat([z, x], 1), "y")
    values = {"x": rows.values(), "z": rows.values(seed=1)}
    agree(lower(fusion, y), *rows.given(fusion, **values))


@every_rows
@each_target
def test_components_of_all(target: str, rows: Rows) -> None:
    """Along the component axis: all levels below come along."""
    fusion = Fusion()
    other = Rows(tuple(_first(rows, level) for level in range(rows.depth)))
    x, z = rows.input(fusion, 2), other.input(fusion, 2, name="z", prefix="z_")
    y = fusion.output(fusion.concat([x, z, x], 0), "y")
    given = {"x": rows.values(2), "z": other.values(2, seed=1)}
    given |= {f"z_offsets{level}": offsets for level, offsets in enumerate(other.offsets)}
    inputs = rows.given(fusion, **given)
    tree = [*rows.tree(given["x"]), *other.tree(given["z"]), *rows.tree(given["x"])]
    got = inject_offsets(fusion).evaluate(*inputs)
    assert torch.equal(got[0], packed([leaf for _, leaf in paths(tree, rows.depth + 1)], given["x"]))
    for level in range(rows.depth):
        assert got[1 + level].diff().tolist() == [len(row) for _, row in paths(tree, level + 1)]
    agree(on(target, fusion, y), *inputs)


def _first(rows: Rows, level: int) -> tuple[int, ...]:
    """The lengths of the rows of the first component alone."""
    kept = rows.levels[0][:1]
    for lengths in rows.levels[1 : level + 1]:
        kept = lengths[: sum(kept)]
    return kept


def test_rows_of_stacked_components_are_reduced() -> None:
    rows, fusion = EVERY_ROWS["one level"], Fusion()
    x = rows.input(fusion)
    y = fusion.output(fusion.reduce("sum", fusion.concat([x, x * 2], 0), [1]), "y")
    values = rows.values()
    inputs = rows.given(fusion, x=values)
    sums = torch.stack([row.sum() for row in values.split(list(rows.levels[0]))])
    torch.testing.assert_close(fusion.evaluate(*inputs)[0], torch.cat([sums, sums * 2]))
    agree(lower(fusion, y), *inputs)


@pytest.mark.parametrize("step", ["flat", "tiles", "outside"])
def test_stacked_components_in_other_loops(step: str) -> None:
    """The first has the longest row."""
    fusion, tensors, inputs = Fusion(), [], []
    for number, offsets in enumerate(([0, 3, 3, 7], [0, 1, 2])):
        starts = fusion.input(f"o{number}", [len(offsets)], "int32")
        data = fusion.input(f"x{number}", [offsets[-1]])
        rows = RaggedIterDomain.from_offsets(starts, size=offsets[-1], longest=[4, 1][number])
        tensors.append(fusion.view_as_nested(data, rows.raggedness))
        inputs += [torch.tensor(offsets, dtype=torch.int32), some(offsets[-1], seed=number)]
    y = fusion.output(fusion.concat(tensors, 0), "y")
    if step == "flat":
        y.combine(0)
    elif step == "tiles":
        y.split(1, 2).combine(0)
    else:
        y.reorder([1, 0])
    assert torch.equal(fusion.evaluate(*inputs)[0], torch.cat(inputs[1::2]))
    agree(lower(fusion, y), *inputs)


@pytest.mark.parametrize("component", range(8))
def test_a_row_of_stacked_components(component: int) -> None:
    """Its length is data that follows from other data."""
    rows, fusion = EVERY_ROWS["one level"], Fusion()
    x = rows.input(fusion)
    y = fusion.output(fusion.select(fusion.concat([x, x * 2], 0), 0, component), "y")
    values = rows.values()
    inputs = rows.given(fusion, x=values)
    want = [*values.split(list(rows.levels[0])), *(values * 2).split(list(rows.levels[0]))][component]
    assert torch.equal(fusion.evaluate(*inputs)[0], want)
    agree(lower(fusion, y), *inputs)


DEEP = {
    "two levels": [((2, 0, 3), (3, 0, 1, 2, 0)), ((1, 1, 0), (2, 1)), ((0, 2, 1), (1, 0, 2))],
    "three levels": [((2, 0, 1), (2, 0, 1), (1, 0, 3)), ((0, 1, 2), (1, 0, 2), (2, 2, 1))],
    "four levels": [((1, 2), (1, 0, 2), (2, 1, 1), (1, 0, 2, 1)), ((2, 0), (1, 1), (0, 2), (3, 1))],
    "empty": [((0, 0), ()), ((0, 1), (0,))],
}


@each_target
@pytest.mark.parametrize("name", DEEP)
def test_rows_of_rows_are_joined(name: str, target: str) -> None:
    """Along every ragged axis: what is below comes along."""
    parts = [Rows(levels) for levels in DEEP[name]]
    for axis in range(1, parts[0].depth + 1):
        same = [Rows((*parts[0].levels[: axis - 1], *_fitting(part, parts[0], axis))) for part in parts]
        fusion, tensors, given = Fusion(), [], {}
        for number, rows in enumerate(same):
            shared = {f"offsets{level}": f"p{number}_offsets{level}" for level in range(axis - 1, rows.depth)}
            tensors.append(_input(fusion, rows, axis, number))
            given |= {new: rows.offsets[int(old[-1])] for old, new in shared.items()}
            given[f"x{number}"] = rows.values(2, seed=number)
        given |= {f"offsets{level}": parts[0].offsets[level] for level in range(axis - 1)}
        y = fusion.output(fusion.concat(tensors, axis), "y")
        inputs = [given[tensor.name] for tensor in fusion.inputs]
        trees = [rows.tree(given[f"x{number}"]) for number, rows in enumerate(same)]
        tree = _joined(trees, axis)
        got = inject_offsets(fusion).evaluate(*inputs)
        assert torch.equal(got[0], packed([leaf for _, leaf in paths(tree, parts[0].depth + 1)], given["x0"]))
        for level in range(parts[0].depth):
            assert got[1 + level].diff().tolist() == [len(row) for _, row in paths(tree, level + 1)]
        agree(on(target, fusion, y), *inputs)


def _joined(trees: list[Any], axis: int) -> list[Any]:
    """Nested lists, of which those at a depth are put behind each other."""
    if axis == 0:
        return [row for tree in trees for row in tree]
    return [_joined(list(rows), axis - 1) for rows in zip(*trees, strict=True)]


def _fitting(part: Rows, first: Rows, axis: int) -> list[tuple[int, ...]]:
    """Lengths for the levels from an axis on, as many as there are rows above it; drawn from those of a part."""
    count = len(first.levels[axis - 1])
    made: list[tuple[int, ...]] = []
    for lengths in part.levels[axis - 1 :]:
        known = lengths or (1,)
        made.append(tuple(known[at % len(known)] for at in range(count)))
        count = sum(made[-1])
    return made


def _input(fusion: Fusion, rows: Rows, axis: int, number: int) -> TensorView:
    """An input whose levels above an axis are those of all inputs, and whose others are its own."""
    axes: list[IterDomain] = [IterDomain("n0", name="c")]
    component, size = axes[0], symbol("n0")
    for level in range(rows.depth):
        own = level >= axis - 1
        name = f"p{number}_offsets{level}" if own else f"offsets{level}"
        known = [tensor for tensor in fusion.inputs if tensor.name == name]
        offsets = known[0] if known else fusion.input(name, [size + 1], "int64")
        size = symbol(f"p{number}_n{level + 1}" if own else f"n{level + 1}")
        axes.append(RaggedIterDomain.from_offsets(offsets, size=size, component=component, name=f"r{level}"))
        component = IterDomain.combine(component, axes[-1])
    return fusion.input(f"x{number}", [*axes, IterDomain(2, name="d")])


def test_concat_of_many_is_linear() -> None:
    """In source, and nearly so in the time that lowering takes."""

    def made(count: int) -> tuple[int, float]:
        fusion = Fusion()
        parts = [fusion.input(f"x{number}", ["n", 2]) for number in range(count)]
        y = fusion.output(fusion.concat(parts, 0), "y")
        begin = time.perf_counter()
        return len(lower(fusion, y).source), time.perf_counter() - begin

    sizes, times = zip(*(made(count) for count in (10, 20, 40)), strict=True)
    assert sizes[2] - sizes[1] <= 2.4 * (sizes[1] - sizes[0])
    assert times[2] < 2


def test_chains_of_concats_are_linear() -> None:
    def made(count: int) -> int:
        fusion = Fusion()
        y = fusion.input("x", [1])
        for number in range(count):
            y = fusion.concat([fusion.unary("square", y), fusion.input(f"z{number}", [1])], 0)
        return len(str(lower(fusion, fusion.output(y, "y")).kernel))

    sizes = [made(count) for count in (6, 12, 18)]
    assert sizes[2] - sizes[1] <= 1.5 * (sizes[1] - sizes[0])
