"""expand, full, positions and row_lengths, by `evaluate` and by kernels, against nested lists."""

from __future__ import annotations

import pytest
import torch
from tests.fusion.nested_rows import Rows, every_rows, packed, paths
from tests.fusion.samples import FLOATS, WHOLE, some
from tests.kernel.harness import agree

from serrate.errors import AxisError, RaggednessError
from serrate.fusion import Fusion, TensorView
from serrate.fusion import ParallelType as P
from serrate.kernel import Lowered, lower

EVERY_DTYPE = [*FLOATS, *WHOLE, "int16", "uint8", "bool"]
each_target = pytest.mark.parametrize("target", ["cpp", "cuda"])


def on(target: str, fusion: Fusion, y: TensorView) -> Lowered:
    if target == "cuda" and y.ndim:
        y.parallelize(0, P.BIDx)
    return lower(fusion, y, target=target)


@every_rows
@each_target
@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_expand_along_every_ragged_axis(dtype: str, target: str, rows: Rows) -> None:
    """[k, 1, …, d] along the rows of [k, r, …, d]."""
    fusion = Fusion()
    x = rows.input(fusion, 2, dtype="float32")
    g = fusion.input("g", ["n0", 2], dtype)
    wide = fusion.broadcast(g, [False, *[True] * rows.depth, False])
    y = fusion.output(fusion.expand(wide, x), "y")
    assert [axis.is_ragged for axis in y.domain.kept] == [False, *[True] * rows.depth, False]
    values, given = rows.values(2), some(len(rows.levels[0]), 2, dtype=dtype, seed=1)
    inputs = rows.given(fusion, x=values, g=given)
    want = packed([given[path[0]] for path, _ in paths(rows.tree(values), rows.depth + 1)], given.new_zeros(0, 2))
    assert torch.equal(fusion.evaluate(*inputs)[0], want)
    agree(on(target, fusion, y), *inputs)


@every_rows
def test_gradient_of_a_sum_in_the_kernel_of_the_sum(rows: Rows) -> None:
    """What is expanded has the indices of the tensor that is summed, so that one kernel computes both."""
    fusion = Fusion()
    x = rows.input(fusion)
    total = fusion.reduce("sum", x, [rows.depth], keepdims=True)
    y = fusion.output(fusion.expand(total, x), "y")
    values = rows.values()
    inputs = rows.given(fusion, x=values)
    found = {path: sum(row, torch.tensor(0.0)) for path, row in paths(rows.tree(values), rows.depth)}
    want = packed([found[path[:-1]] for path, _ in paths(rows.tree(values), rows.depth + 1)], values)
    torch.testing.assert_close(fusion.evaluate(*inputs)[0], want)
    agree(lower(fusion, y), *inputs)


def test_expand_to_a_list_of_axes() -> None:
    fusion = Fusion()
    x, w = fusion.input("x", ["n", 3]), fusion.input("w", [3])
    y = fusion.output(fusion.expand(w, [4, x.domain.kept[0], x.domain.kept[1]]), "y")
    values = some(3, seed=1)
    assert torch.equal(fusion.evaluate(some(5, 3), values)[0], values.expand(4, 5, 3))
    agree(lower(fusion, y), some(5, 3), values)


def test_expand_keeps_axes_of_extent_one() -> None:
    fusion = Fusion()
    x = fusion.broadcast(fusion.input("x", ["n"]), [True, False])
    assert fusion.expand(x, x).domain.kept[0].is_broadcast


def test_refused_expansions() -> None:
    fusion = Fusion()
    x = Rows(((1,),)).input(fusion)
    with pytest.raises(AxisError, match=r"has 2 axes, and cannot be expanded to the 1"):
        fusion.expand(x, ["n0"])
    with pytest.raises(RaggednessError, match="are not the same raggedness"):
        fusion.expand(x, [x.domain.kept[0], 4])
    with pytest.raises(ValueError, match="the extents 3 and 4 differ"):
        fusion.expand(fusion.input("a", [3]), [2, 4])
    with pytest.raises(AxisError, match="is reduced"):
        fusion.expand(fusion.input("b", [3]), fusion.reduce("sum", x, [1]).domain.root)
    with pytest.raises(RaggednessError, match="a ragged axis depends on"):
        fusion.full([x.domain.kept[1]], 1)
    with pytest.raises(AxisError, match="differ from each other"):
        fusion.full([x.domain.kept[0], x.domain.kept[0]], 1)
    with pytest.raises(TypeError, match=r"0\.5 is not a number of int64"):
        fusion.full([2], 0.5, "int64")
    with pytest.raises(AxisError, match="axis 2 of"):
        fusion.positions(x, 2)
    with pytest.raises(RaggednessError, match="row_lengths needs a ragged axis"):
        fusion.row_lengths(x, 0)


@each_target
@pytest.mark.parametrize("dtype", EVERY_DTYPE)
def test_full_of_every_dtype(dtype: str, target: str) -> None:
    rows, fusion = Rows(((2, 0, 1),)), Fusion()
    x = rows.input(fusion, 2)
    y = fusion.output(fusion.full(x, 1, dtype), "y")
    inputs = rows.given(fusion, x=rows.values(2))
    assert torch.equal(fusion.evaluate(*inputs)[0], torch.ones(3, 2, dtype=getattr(torch, dtype)))
    agree(on(target, fusion, y), *inputs)


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan"), 0.1, -0.0])
def test_full_of_every_number(value: float) -> None:
    fusion = Fusion()
    y = fusion.output(fusion.full_like(fusion.input("x", ["n"]), value), "y")
    want = torch.full((3,), value)
    assert torch.equal(fusion.evaluate(some(3))[0].view(torch.int32), want.view(torch.int32))
    assert torch.equal(lower(fusion, y)(some(3))[0].view(torch.int32), want.view(torch.int32))


@every_rows
@each_target
def test_positions_along_every_axis(target: str, rows: Rows) -> None:
    for axis in range(rows.depth + 2):
        fusion = Fusion()
        x = rows.input(fusion, 3)
        y = fusion.output(fusion.positions(x, axis), "y")
        values = rows.values(3)
        inputs = rows.given(fusion, x=values)
        places = [path for path, _ in paths(rows.tree(values), rows.depth + 1)]
        want = torch.tensor([[(*path, d)[axis] for d in range(3)] for path in places], dtype=torch.int64)
        assert torch.equal(fusion.evaluate(*inputs)[0], want.reshape(-1, 3))
        agree(on(target, fusion, y), *inputs)


def test_positions_in_flat_loops_and_tiles() -> None:
    """The index within a row follows from a loop over all rows, and from one over tiles of them."""
    rows = Rows(((3, 0, 4, 1),))
    for step in ("flat", "tiles", "outside"):
        fusion = Fusion()
        x = rows.input(fusion)
        y = fusion.output(fusion.positions(x, 1) * 10 + fusion.positions(x, 0), "y")
        if step == "flat":
            y.combine(0)
        elif step == "tiles":
            y.split(1, 2).combine(0)
        else:
            y.reorder([1, 0])
        agree(lower(fusion, y), *rows.given(fusion, x=rows.values()))


def test_positions_read_elsewhere() -> None:
    """They move with what they stand in."""
    rows, fusion = Rows(((3, 0, 4, 1),)), Fusion()
    x = rows.input(fusion)
    y = fusion.output(fusion.pad(fusion.positions(x, 1) + fusion.positions(x, 0), 1, 1, 0, -1), "y")
    inputs = rows.given(fusion, x=rows.values())
    want = [p for row, length in enumerate([3, 0, 4, 1]) for p in (-1, *range(row, row + length))]
    assert fusion.evaluate(*inputs)[0].tolist() == want
    agree(lower(fusion, y), *inputs)


@every_rows
@each_target
def test_row_lengths_of_every_level(target: str, rows: Rows) -> None:
    for axis in range(1, rows.depth + 1):
        fusion = Fusion()
        x = rows.input(fusion, 2)
        y = fusion.output(fusion.row_lengths(x, axis), "y")
        assert y.ndim == axis
        values = rows.values(2)
        inputs = rows.given(fusion, x=values)
        want = [len(row) for _, row in paths(rows.tree(values), axis)]
        assert fusion.evaluate(*inputs)[0].tolist() == want
        agree(on(target, fusion, y), *inputs)


@every_rows
def test_mean_by_row_lengths(rows: Rows) -> None:
    """Row lengths are values like others: they broadcast, are cast, and divide."""
    fusion = Fusion()
    x = rows.input(fusion)
    lengths = fusion.cast(fusion.row_lengths(x, rows.depth), "float32")
    total = fusion.reduce("sum", x, [rows.depth])
    fusion.output(total / lengths, "y")
    values = rows.values()
    inputs = rows.given(fusion, x=values)
    found = [
        torch.stack(row).mean() if row else torch.tensor(torch.nan) for _, row in paths(rows.tree(values), rows.depth)
    ]
    torch.testing.assert_close(fusion.evaluate(*inputs)[0], packed(found, values), equal_nan=True)
    agree(lower(fusion, total), *inputs)


def test_row_lengths_of_changed_rows() -> None:
    """Lengths that follow from others have a formula, and of those on int32 offsets as well."""
    fusion = Fusion()
    data, offsets = fusion.input("x", ["n"]), fusion.input("offsets", ["m"], "int32")
    x = fusion.view_as_nested(data, offsets)
    y = fusion.output(fusion.row_lengths(fusion.pad(x, 1, 1, 1), 1), "y")
    inputs = some(8), torch.tensor([0, 3, 3, 7, 8], dtype=torch.int32)
    assert fusion.evaluate(*inputs)[0].tolist() == [5, 2, 6, 3]
    agree(lower(fusion, y), *inputs)


def test_keys_tell_values_of_indices_apart() -> None:
    """Two fusions are the same if and only if they compute the same of the same axes."""

    def made(name: str, axis: int) -> Fusion:
        fusion = Fusion()
        fusion.output(getattr(fusion, name)(Rows(((1,), (1,))).input(fusion), axis), "y")
        return fusion

    kinds = [("positions", 1), ("positions", 2), ("row_lengths", 1), ("row_lengths", 2)]
    keys = [made(*kind) for kind in kinds]
    assert len(set(keys)) == len(kinds)
    assert [made(*kind) for kind in kinds] == keys
    assert all(fusion.clone() == fusion for fusion in keys)


def test_rows_are_printed_by_their_offsets() -> None:
    fusion = Fusion()
    lengths = fusion.row_lengths(Rows(((1,),)).input(fusion), 1)
    assert str(lengths.definition) == "row_lengths([offsets0])"
