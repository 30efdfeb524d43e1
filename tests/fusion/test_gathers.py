"""gather along every axis, by regular and by ragged indices, by `evaluate` and by kernels."""

from __future__ import annotations

import pytest
import torch
from tests.fusion.nested_rows import EVERY_ROWS, Rows, every_rows, packed, paths
from tests.fusion.samples import some
from tests.fusion.test_values_of_indices import EVERY_DTYPE, each_target, on
from tests.kernel.harness import agree, as_numpy

from serrate.fusion import Fusion
from serrate.kernel import lower
from serrate.kernel.check import run


def ids(*shape: int, below: int, dtype: str = "int64", seed: int = 0) -> torch.Tensor:
    made = torch.randint(max(below, 1), shape, generator=torch.Generator().manual_seed(seed))
    return made.to(getattr(torch, dtype))


@each_target
@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("shape", [[], [3], [2, 3], [0]])
def test_every_regular_axis(shape: list[int], dtype: str, target: str) -> None:
    for axis in range(3):
        fusion = Fusion()
        x = fusion.input("x", [2, "n", 4])
        y = fusion.output(fusion.gather(x, fusion.input("ids", shape, dtype), axis), "y")
        values = some(2, 5, 4)
        chosen = ids(*shape, below=[2, 5, 4][axis], dtype=dtype)
        want = values.index_select(axis, chosen.reshape(-1).long())
        want = want.reshape(*values.shape[:axis], *shape, *values.shape[axis + 1 :])
        assert torch.equal(fusion.evaluate(values, chosen)[0], want)
        agree(on(target, fusion, y), values, chosen)


@pytest.mark.parametrize("dtype", EVERY_DTYPE)
def test_every_dtype(dtype: str) -> None:
    fusion = Fusion()
    y = fusion.output(fusion.gather(fusion.input("x", [4, 3], dtype), fusion.input("ids", [5], "int64"), 1), "y")
    values, chosen = some(4, 3, dtype=dtype), ids(5, below=3)
    assert torch.equal(fusion.evaluate(values, chosen)[0], values[:, chosen])
    agree(lower(fusion, y), values, chosen)


@every_rows
@each_target
def test_features_of_rows(target: str, rows: Rows) -> None:
    fusion = Fusion()
    x = rows.input(fusion, 4)
    y = fusion.output(fusion.gather(x, fusion.input("ids", [2, 3], "int64"), rows.depth + 1), "y")
    values, chosen = rows.values(4), ids(2, 3, below=4)
    inputs = rows.given(fusion, x=values, ids=chosen)
    assert torch.equal(fusion.evaluate(*inputs)[0], values[:, chosen])
    agree(on(target, fusion, y), *inputs)


@every_rows
@each_target
def test_by_ragged_indices(target: str, rows: Rows) -> None:
    """Indices of any depth stand in the place of the axis."""
    fusion = Fusion()
    y = fusion.output(fusion.gather(fusion.input("x", [2, 5]), rows.input(fusion, name="ids", dtype="int64"), 1), "y")
    values, chosen = some(2, 5), ids(rows.count, below=5)
    inputs = rows.given(fusion, x=values, ids=chosen)
    assert torch.equal(fusion.evaluate(*inputs)[0], values[:, chosen])
    agree(on(target, fusion, y), *inputs)


FULL = {
    "one level": Rows(((3, 1, 4),)),
    "two levels": Rows(((2, 1), (3, 1, 2))),
    "three levels": Rows(((1, 2), (2, 1, 1), (1, 2, 3, 1))),
    "no rows": Rows(((),)),
}


@each_target
@pytest.mark.parametrize("rows", FULL.values(), ids=FULL.keys())
def test_along_rows_by_as_many_indices_of_each(target: str, rows: Rows) -> None:
    """[k, r, …, d] by [k, r, …, 2], within the innermost rows."""
    fusion = Fusion()
    x = rows.input(fusion, 2)
    outer = Rows(rows.levels[:-1])
    place = (
        outer.input(fusion, 2, name="ids", dtype="int64") if outer.depth else fusion.input("ids", ["n0", 2], "int64")
    )
    y = fusion.output(fusion.gather(x, place, rows.depth), "y")
    values = rows.values(2)
    lengths = torch.tensor(rows.levels[-1], dtype=torch.int64)
    chosen = ids(len(lengths), 2, below=1000) % lengths[:, None]
    inputs = rows.given(fusion, x=values, ids=chosen)
    leaves = [row for _, row in paths(rows.tree(values), rows.depth)]
    want = [torch.stack([row[p] for p in places]) for row, places in zip(leaves, chosen.tolist(), strict=True)]
    assert torch.equal(fusion.evaluate(*inputs)[0], packed(want, values.new_zeros(0, 2, 2)))
    agree(on(target, fusion, y), *inputs)


@each_target
@pytest.mark.parametrize("name", ["one level", "empty rows", "no rows", "one row"])
def test_along_rows_by_ragged_indices(name: str, target: str) -> None:
    """Every row reversed, and its first taken again: indices have as many rows, of other lengths."""
    rows, fusion = EVERY_ROWS[name], Fusion()
    lengths = rows.levels[0]
    wanted = [[*reversed(range(length)), *[0][:length]] for length in lengths]
    x = rows.input(fusion, 2)
    offsets = fusion.input("o", ["m"], "int64")
    chosen = fusion.view_as_nested(fusion.input("ids", ["l"], "int64"), offsets)
    x = fusion.view_as_nested(fusion.input("v", ["n", 2]), fusion.input("p", ["m"], "int64"))
    y = fusion.output(fusion.gather(x, chosen, 1), "y")
    values = rows.values(2)
    starts = torch.tensor([0, *torch.tensor([len(w) for w in wanted], dtype=torch.int64).cumsum(0).tolist()])
    flat = torch.tensor([p for w in wanted for p in w], dtype=torch.int64)
    inputs = rows.given(fusion, x=values, o=starts, ids=flat, v=values, p=rows.offsets[0])
    want = [row[p] for row, places in zip(rows.tree(values), wanted, strict=True) for p in places]
    assert torch.equal(fusion.evaluate(*inputs)[0], packed(want, values))
    agree(on(target, fusion, y), *inputs)


@every_rows
@each_target
def test_rows_in_reverse_order(target: str, rows: Rows) -> None:
    """Indices that are computed have all the axes of what they are taken of."""
    fusion = Fusion()
    x = rows.input(fusion, 2)
    lengths = fusion.broadcast(fusion.row_lengths(x, rows.depth), [*[False] * rows.depth, True])
    places = lengths - 1 - fusion.positions(x.domain.kept[: rows.depth + 1], rows.depth)
    y = fusion.output(fusion.gather(x, places, rows.depth), "y")
    values = rows.values(2)
    inputs = rows.given(fusion, x=values)
    want = [leaf for _, row in paths(rows.tree(values), rows.depth) for leaf in reversed(row)]
    assert torch.equal(fusion.evaluate(*inputs)[0], packed(want, values))
    agree(on(target, fusion, y), *inputs)


@each_target
def test_shared_regular_axes(target: str) -> None:
    fusion = Fusion()
    x, chosen = fusion.input("x", ["n", 3, 4]), fusion.input("ids", ["n", 2], "int64")
    y = fusion.output(fusion.gather(x, chosen, 2, batch=1), "y")
    values, places = some(5, 3, 4), ids(5, 2, below=4)
    want = torch.stack([row[:, p] for row, p in zip(values, places, strict=True)])
    assert torch.equal(fusion.evaluate(values, places)[0], want)
    agree(on(target, fusion, y), values, places)


def test_a_tensor_by_itself() -> None:
    """The axes of the indices are not those of the table, though both are of one tensor."""
    fusion = Fusion()
    x = fusion.input("x", [2, 2], "int64")
    y = fusion.output(fusion.gather(x, x), "y")
    values = torch.tensor([[0, 1], [1, 1]])
    assert torch.equal(fusion.evaluate(values)[0], values[values])
    agree(lower(fusion, y), values)


@pytest.mark.parametrize("wrong", [-1, 3, 2**40, -(2**40)])
def test_out_of_range_reads_nothing(wrong: int) -> None:
    """The kernel reads 0 there, and nothing out of bounds; `evaluate` refuses it."""
    fusion = Fusion()
    fusion.output(fusion.gather(fusion.input("x", [2, 3]), fusion.input("ids", [2], "int64"), 1), "y")
    values, chosen = some(2, 3), torch.tensor([1, wrong])
    kernel = lower(fusion, fusion.outputs[0]).kernel
    made = run(kernel, {"x": as_numpy(values), "ids": as_numpy(chosen)}, {})["y"].reshape(2, 2)
    assert made.tolist() == [[values[0, 1], 0], [values[1, 1], 0]]
    with pytest.raises(IndexError, match="an index is outside of"):
        fusion.evaluate(values, chosen)


def test_out_of_a_row_reads_nothing() -> None:
    """The next row is not read, though it lies there."""
    fusion = Fusion()
    x = fusion.view_as_nested(fusion.input("x", [5]), fusion.input("offsets", [4], "int64"))
    fusion.output(fusion.gather(x, fusion.input("ids", [3, 1], "int64"), 1), "y")
    values, offsets, chosen = some(5), torch.tensor([0, 2, 2, 5]), torch.tensor([[2], [0], [2]])
    arrays = {"x": as_numpy(values), "offsets": as_numpy(offsets), "ids": as_numpy(chosen)}
    made = run(lower(fusion, fusion.outputs[0]).kernel, arrays, {})["y"]
    assert made.tolist() == [0, 0, values[4]]
    with pytest.raises(IndexError, match=r"an index is outside of iS_r"):
        fusion.evaluate(values, offsets, chosen)
