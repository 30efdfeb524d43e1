"""permute, squeeze, flatten, unflatten and reshape, by `evaluate` and by kernels, against nested lists and torch."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from tests.fusion.nested_rows import EVERY_ROWS, Rows, every_rows, packed, paths
from tests.fusion.samples import some
from tests.fusion.test_values_of_indices import EVERY_DTYPE, each_target, on
from tests.kernel.harness import agree

from serrate.errors import AxisError, RaggednessError
from serrate.fusion import Fusion, IterDomain, RaggedIterDomain, TensorView, inject_offsets, symbol
from serrate.kernel import lower


@pytest.mark.parametrize("dtype", EVERY_DTYPE)
@each_target
def test_every_order_of_regular_axes(target: str, dtype: str) -> None:
    values = some(2, 3, 4, dtype=dtype)
    for order in itertools.permutations(range(3)):
        fusion = Fusion()
        y = fusion.output(fusion.permute(fusion.input("x", [2, "n", 4], dtype), order), "y")
        assert torch.equal(fusion.evaluate(values)[0], values.permute(order))
        agree(on(target, fusion, y), values)


@every_rows
@each_target
def test_features_before_and_between_ragged_axes(target: str, rows: Rows) -> None:
    """Rows are packed where their component axis stands, whatever stands between the two."""
    values = rows.values(2, 3)
    for at in range(rows.depth + 2):
        fusion = Fusion()
        order = list(range(rows.depth + 1))
        order[at:at] = [rows.depth + 2]
        y = fusion.output(fusion.permute(rows.input(fusion, 2, 3), [*order, rows.depth + 1]), "y")
        inputs = rows.given(fusion, x=values)
        want = values.permute(2, 0, 1) if at == 0 else values.permute(0, 2, 1)
        assert torch.equal(fusion.evaluate(*inputs)[0], want)
        agree(on(target, fusion, y), *inputs)


def pair(fusion: Fusion) -> TensorView:
    """[c, q, p]: two ragged axes of one component axis."""
    axes: list[IterDomain] = [IterDomain("k", name="c")]
    for name in ("q", "p"):
        offsets = fusion.input(f"{name}_offsets", [symbol("k") + 1], "int64")
        axes.append(RaggedIterDomain.from_offsets(offsets, size=f"n_{name}", component=axes[0], name=name))
    return fusion.input("x", axes)


PAIRS = [(2, 3), (0, 2), (1, 1), (3, 0)]


def pair_inputs() -> list[torch.Tensor]:
    q, p = zip(*PAIRS, strict=True)
    offsets = [torch.tensor([0, *itertools.accumulate(lengths)]) for lengths in (q, p)]
    return [*offsets, some(sum(a * b for a, b in PAIRS))]


def with_sizes(fusion: Fusion) -> list[torch.Tensor]:
    """What tells the host how many rows there are."""
    for name in ("q", "p"):
        fusion.input(f"size_{name}", [f"n_{name}"])
    return [torch.zeros(sum(lengths)) for lengths in zip(*PAIRS, strict=True)]


def test_two_ragged_axes_change_places() -> None:
    fusion = Fusion()
    x = pair(fusion)
    sizes = with_sizes(fusion)
    y = fusion.output(fusion.permute(x, [0, 2, 1]), "y")
    inputs = [*pair_inputs(), *sizes]
    blocks = inputs[2].split([a * b for a, b in PAIRS])
    want = torch.cat([block.reshape(a, b).T.reshape(-1) for block, (a, b) in zip(blocks, PAIRS, strict=True)])
    assert torch.equal(fusion.evaluate(*inputs)[0], want)
    agree(lower(fusion, y), *inputs)


@pytest.mark.parametrize(("start", "stop"), [(0, 2), (1, 2), (0, 1)])
def test_two_ragged_axes_as_one(start: int, stop: int) -> None:
    fusion = Fusion()
    x = pair(fusion)
    sizes = with_sizes(fusion)
    if (start, stop) == (0, 1):
        with pytest.raises(RaggednessError, match="depends on a part of"):
            fusion.flatten(x, start, stop)
        return
    y = fusion.output(fusion.flatten(x, start, stop), "y")
    inputs = [*pair_inputs(), *sizes]
    assert [axis.is_ragged for axis in y.domain.kept] == [False, True][: 3 - stop + start]
    assert torch.equal(fusion.evaluate(*inputs)[0], inputs[2])
    agree(lower(fusion, y), *inputs)


def count_of(tree: Any, depth: int) -> int:
    """How many elements nested lists hold."""
    return sum(count_of(row, depth - 1) for row in tree) if depth else 1


@every_rows
@each_target
def test_every_group_of_axes_as_one(target: str, rows: Rows) -> None:
    """Flattened rows are the same packed values; those of one level have the lengths of all that was in them."""
    count = rows.depth + 2
    for start, stop in itertools.combinations_with_replacement(range(count), 2):
        fusion = Fusion()
        x = rows.input(fusion, 2)
        y = fusion.output(fusion.flatten(x, start, stop), "y")
        assert y.ndim == count - (stop - start)
        values = rows.values(2)
        inputs = rows.given(fusion, x=values)
        features = stop == count - 1 and start < stop
        want = values.reshape(-1) if features else values
        got = inject_offsets(fusion).evaluate(*inputs)
        assert torch.equal(got[0], want)
        if 1 <= start <= rows.depth <= stop:
            inside = [count_of(row, rows.depth + 1 - start) for _, row in paths(rows.tree(values), start)]
            assert got[start].diff().tolist() == [count * (2 if features else 1) for count in inside]
        agree(on(target, fusion, y), *inputs)


@every_rows
def test_reduction_of_flattened_rows(rows: Rows) -> None:
    """The sum over all levels below the first, as one axis."""
    if rows.depth == 1:
        fusion = Fusion()
        total = fusion.reduce("sum", fusion.flatten(rows.input(fusion, 2), 1), [1])
    else:
        fusion = Fusion()
        total = fusion.reduce("sum", fusion.flatten(rows.input(fusion, 2), 0, rows.depth - 1), [1])
    y = fusion.output(total, "y")
    values = rows.values(2)
    inputs = rows.given(fusion, x=values)
    groups = [torch.stack(row) if row else torch.zeros(0, 2) for _, row in paths(rows.tree(values), rows.depth)]
    sums = [group.sum() if rows.depth == 1 else group.sum(0) for group in groups]
    torch.testing.assert_close(fusion.evaluate(*inputs)[0], packed(sums, values[:, 0] if rows.depth == 1 else values))
    agree(lower(fusion, y), *inputs)


@pytest.mark.parametrize("name", ["two levels", "two levels, empty", "three levels", "three levels, empty"])
def test_sums_of_flattened_levels(name: str) -> None:
    """All elements of a component, whatever rows they are in, with a weight of each component."""
    rows, fusion = EVERY_ROWS[name], Fusion()
    x, w = rows.input(fusion, 2), fusion.input("w", ["n0", 2])
    flat = fusion.flatten(x, 1, rows.depth)
    y = fusion.output(fusion.reduce("sum", flat * fusion.broadcast(w, [False, True, False]), [1]), "y")
    values, weights = rows.values(2), some(len(rows.levels[0]), 2, seed=1)
    inputs = rows.given(fusion, x=values, w=weights)
    sums = [sum((leaf for _, leaf in paths(tree, rows.depth)), torch.zeros(2)) for tree in rows.tree(values)]
    torch.testing.assert_close(fusion.evaluate(*inputs)[0], packed(sums, values) * weights)
    agree(lower(fusion, y), *inputs)


def test_flattening_a_nested_view_searches_nothing() -> None:
    """The axis of all rows is the axis that was cut."""
    fusion = Fusion()
    data, offsets = fusion.input("x", ["n"]), fusion.input("offsets", ["m"], "int64")
    flat = fusion.flatten(fusion.view_as_nested(data, offsets))
    lowered = lower(fusion, fusion.output(fusion.unary("exp", flat), "y"))
    assert "search" not in str(lowered.kernel)
    assert "offsets" not in [buffer.name for buffer in lowered.kernel.buffers]
    agree(lowered, some(5), torch.tensor([0, 2, 2, 5]))


def test_flat_rows_that_do_not_fill_their_axis() -> None:
    fusion = Fusion()
    data, offsets = fusion.input("x", ["n"]), fusion.input("offsets", ["m"], "int64")
    y = fusion.output(fusion.flatten(fusion.view_as_nested(data, offsets, exact=False)), "y")
    values = some(7)
    inputs = values, torch.tensor([0, 2, 2, 5])
    assert torch.equal(fusion.evaluate(*inputs)[0], values[:5])
    agree(lower(fusion, y), *inputs)


@each_target
@pytest.mark.parametrize(
    ("shape", "sizes"),
    [([12], [3, 4]), ([12], [2, 3, 2]), ([12, 2], [-1, 6]), ([6, 2], [3, -1]), ([1], [1, 1]), ([12], [12, 1])],
)
def test_unflatten(shape: list[int], sizes: list[int], target: str) -> None:
    fusion = Fusion()
    y = fusion.output(fusion.unflatten(fusion.input("x", shape), 0, sizes), "y")
    values = some(*shape)
    assert torch.equal(fusion.evaluate(values)[0], values.unflatten(0, sizes))
    agree(on(target, fusion, y), values)


@every_rows
def test_features_of_flattened_rows(rows: Rows) -> None:
    """What was joined comes apart again, into rows of the same raggedness."""
    fusion = Fusion()
    x = rows.input(fusion, 6)
    flat = fusion.flatten(x, rows.depth)
    y = fusion.output(fusion.unflatten(flat, rows.depth, [-1, 6]) + x, "y")
    values = rows.values(6)
    inputs = rows.given(fusion, x=values)
    assert torch.equal(fusion.evaluate(*inputs)[0], values * 2)
    agree(lower(fusion, y), *inputs)


RESHAPES: list[tuple[list[int | str], list[int | str], tuple[int, ...]]] = [
    ([2, 3, 4], [6, 4], (6, 4)),
    ([2, 3, 4], [4, 6], (4, 6)),
    ([2, 3, 4], [24], (24,)),
    ([24], [2, 1, 3, 4, 1], (2, 1, 3, 4, 1)),
    (["n", 12], ["n", 3, 4], (5, 3, 4)),
    (["n", 12], [-1, 3, 4], (5, 3, 4)),
    (["n", 3, 4], [-1, 4], (15, 4)),
    (["n", 3, 4], ["n", -1], (5, 12)),
    (["n", 1, 4], ["n", 4], (5, 4)),
    ([1, 1], [], ()),
    ([0, 4], [2, 0], (2, 0)),
]


@pytest.mark.parametrize(("shape", "wanted", "sizes"), RESHAPES)
@each_target
def test_reshape(target: str, shape: list[int | str], wanted: list[int | str], sizes: tuple[int, ...]) -> None:
    fusion = Fusion()
    y = fusion.output(fusion.reshape(fusion.input("x", shape), wanted), "y")
    values = some(*(5 if size == "n" else int(size) for size in shape))
    # Axes of extent 1 that broadcast do not lie in memory.
    memory = [size for size, entry in zip(sizes, wanted, strict=True) if entry != 1]
    assert y.ndim == len(sizes)
    assert torch.equal(fusion.evaluate(values)[0], values.reshape(memory))
    agree(on(target, fusion, y), values)


@each_target
def test_rows_behind_a_regular_axis_as_one_axis(target: str) -> None:
    """[b, k, r, d]: the rows of all components, b times."""
    fusion = Fusion()
    x = fusion.view_as_nested(fusion.input("x", [2, "n", 3]), fusion.input("offsets", ["k"], "int64"), 1)
    y = fusion.output(fusion.flatten(x, 0, 3), "y")
    values, offsets = some(2, 5, 3), torch.tensor([0, 2, 2, 5])
    assert torch.equal(fusion.evaluate(values, offsets)[0], values.reshape(-1))
    agree(on(target, fusion, y), values, offsets)


@each_target
@pytest.mark.parametrize("over", [[0], [1], [2], [0, 2]], ids=str)
def test_components_as_several_axes(over: list[int], target: str) -> None:
    """[4, r, d] as [2, 2, r, d]: rows then depend on both axes."""
    lengths = torch.tensor([3, 0, 2, 1])
    values, w = some(6, 3), some(2, seed=1)
    offsets = torch.nn.functional.pad(lengths.cumsum(0), (1, 0))
    parts = [w[number // 2] * row for number, row in enumerate(values.split(lengths.tolist()))]
    dense = torch.stack([torch.nn.functional.pad(part, (0, 0, 0, 6 - len(part))) for part in parts]).view(2, 2, 6, 3)
    for reduced, want in ((False, torch.cat(parts)), (True, dense.sum(over))):
        fusion = Fusion()
        x = fusion.view_as_nested(fusion.input("x", ["n", 3]), fusion.input("offsets", [5], "int64"))
        y = fusion.unflatten(x, 0, [2, -1]) * fusion.broadcast(fusion.input("w", [2]), [False, True, True, True])
        y = fusion.output(fusion.reduce("sum", y, over) if reduced else y, "y")
        torch.testing.assert_close(fusion.evaluate(values, offsets, w)[0], want)
        agree(on(target, fusion, y), values, offsets, w)


@pytest.mark.parametrize("name", ["one level", "two levels", "empty rows"])
def test_reshape_of_features_of_rows(name: str) -> None:
    rows, fusion = EVERY_ROWS[name], Fusion()
    x = rows.input(fusion, 2, 6)
    kept = x.domain.kept[: rows.depth + 1]
    y = fusion.output(fusion.reshape(x, [*kept, 4, -1]), "y")
    values = rows.values(2, 6)
    inputs = rows.given(fusion, x=values)
    assert torch.equal(fusion.evaluate(*inputs)[0], values.reshape(-1, 4, 3))
    agree(lower(fusion, y), *inputs)


def test_squeeze() -> None:
    fusion = Fusion()
    x = fusion.input("x", ["n", 1, 3])
    wide = fusion.broadcast(fusion.unary("exp", x), [False, True, False, False])
    y = fusion.output(fusion.squeeze(fusion.squeeze(wide, 1), 1), "y")
    values = some(4, 1, 3)
    torch.testing.assert_close(fusion.evaluate(values)[0], values.exp()[:, 0])
    agree(lower(fusion, y), values)


def test_refused_shapes() -> None:
    fusion = Fusion()
    rows = Rows(((1,), (1,)))
    x, a = rows.input(fusion, 6), fusion.input("a", ["m", 6])
    with pytest.raises(AxisError, match="must name each of its 2 axes once"):
        fusion.permute(a, [0, 0])
    with pytest.raises(RaggednessError, match="cannot stand before"):
        fusion.permute(x, [1, 0, 2, 3])
    with pytest.raises(RaggednessError, match="cannot stand before"):
        fusion.permute(x, [0, 2, 1, 3])
    with pytest.raises(AxisError, match="not known to have one index"):
        fusion.squeeze(a, 0)
    with pytest.raises(AxisError, match="which stands before it"):
        fusion.flatten(a, 1, 0)
    with pytest.raises(RaggednessError, match="is only a part"):
        fusion.flatten(fusion.permute(Rows(((1,),)).input(fusion, 6, name="z"), [0, 2, 1]), 0, 2)
    with pytest.raises(RaggednessError, match="a ragged axis depends on it"):
        fusion.unflatten(x, 1, [-1, 1])
    with pytest.raises(ValueError, match="4 is not known to divide"):
        fusion.unflatten(a, 1, [-1, 4])
    with pytest.raises(ValueError, match="its extent is 6"):
        fusion.unflatten(a, 1, [2, 4])
    with pytest.raises(ValueError, match="one may be -1"):
        fusion.unflatten(a, 1, [-1, -1])
    with pytest.raises(RaggednessError, match="its size is -1"):
        fusion.unflatten(x, 2, [2, 3])
    with pytest.raises(ValueError, match="the sizes do not fit"):
        fusion.reshape(a, [4, -1])
    with pytest.raises(ValueError, match="the sizes do not fit"):
        fusion.reshape(a, ["m", 5])
    with pytest.raises(RaggednessError, match="has to stand for itself"):
        fusion.reshape(x, [-1, 6])
