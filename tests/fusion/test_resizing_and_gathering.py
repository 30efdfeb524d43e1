"""Pad, slice, concat, gather and select by `evaluate`, against torch on rows one by one."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from tests.fusion.samples import LENGTHS, WHOLE, by_rows, each_length, nested, offsets_of, same, some

from serrate.fusion import Fusion
from serrate.fusion.binding import TORCH


@each_length
@pytest.mark.parametrize(("left", "right"), [(0, 0), (1, 0), (0, 2), (1, 2)])
@pytest.mark.parametrize(("axis", "dtype"), [(1, "float32"), (2, "float32"), (-1, "int64"), (1, "bfloat16")])
def test_pad(axis: int, dtype: str, left: int, right: int, lengths: list[int]) -> None:
    fusion = Fusion()
    fusion.output(fusion.pad(nested(fusion, 3, dtype=dtype), axis, left, right, value=-1))
    x = some(sum(lengths), 3, dtype=dtype)
    sides = [0, 0, left, right] if axis == 1 else [left, right]
    want = by_rows(x, lengths, lambda row: F.pad(row, sides, value=-1)) if lengths or axis != 1 else x
    assert torch.equal(fusion.evaluate(x, offsets_of(lengths))[0], want)


@each_length
@pytest.mark.parametrize(("start", "stop"), [(0, 0), (1, 0), (0, -1), (2, -1)])
@pytest.mark.parametrize("axis", [1, 2])
def test_slice(axis: int, start: int, stop: int, lengths: list[int]) -> None:
    fusion = Fusion()
    fusion.output(fusion.slice(nested(fusion, 4), axis, start, stop or None))
    x = some(sum(lengths), 4)

    def cut(row: torch.Tensor) -> torch.Tensor:
        """As Python slices; of a row that is too short, nothing."""
        window = slice(start, max(row.shape[axis - 1] + stop, 0))
        return row[window] if axis == 1 else row[:, window]

    assert torch.equal(fusion.evaluate(x, offsets_of(lengths))[0], by_rows(x, lengths, cut))


@each_length
@pytest.mark.parametrize("dtype", ["float32", "int64", "float16"])
def test_concat_of_features(dtype: str, lengths: list[int]) -> None:
    fusion = Fusion()
    fusion.output(fusion.concat([nested(fusion, 2, dtype=dtype), nested(fusion, 3, name="z", dtype=dtype)], 2))
    a, b = some(sum(lengths), 2, dtype=dtype), some(sum(lengths), 3, dtype=dtype, seed=1)
    assert torch.equal(fusion.evaluate(a, offsets_of(lengths), b)[0], torch.cat([a, b], 1))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_concat_of_regular_tensors(axis: int) -> None:
    fusion = Fusion()
    fusion.output(fusion.concat([fusion.input("x", [2, 3]), fusion.input("z", [2, 3])], axis))
    a, b = some(2, 3), some(2, 3, seed=1)
    assert torch.equal(fusion.evaluate(a, b)[0], torch.cat([a, b], axis))


@each_length
@pytest.mark.parametrize("dtype", WHOLE)
def test_gather(dtype: str, lengths: list[int]) -> None:
    fusion = Fusion()
    table = fusion.input("table", ["entries", 3])
    fusion.output(fusion.gather(table, nested(fusion, name="ids", dtype=dtype)))
    ids = torch.randint(5, [sum(lengths)], generator=torch.Generator().manual_seed(0)).to(TORCH[dtype])
    values = some(5, 3)
    assert torch.equal(fusion.evaluate(values, ids, offsets_of(lengths))[0], values[ids.long()])


def test_gather_by_computed_indices_of_two_axes() -> None:
    fusion = Fusion()
    table, ids = fusion.input("table", [6]), fusion.input("ids", [2, 3], "int64")
    fusion.output(fusion.gather(fusion.unary("exp", table), ids + 1))
    values, chosen = some(6), torch.tensor([[0, 4, 1], [2, 2, 3]])
    same(fusion.evaluate(values, chosen)[0], values.exp()[chosen + 1])


@pytest.mark.parametrize("component", range(4))
def test_select_of_a_component(component: int) -> None:
    fusion, lengths = Fusion(), LENGTHS
    x = nested(fusion, 3)
    row = fusion.output(x.select(0, component))
    assert row.ndim == 2
    assert not any(axis.is_ragged for axis in row.domain.logical)
    a = some(8, 3)
    assert torch.equal(fusion.evaluate(a, offsets_of(lengths))[0], a.split(lengths)[component])


@each_length
def test_select_of_a_feature(lengths: list[int]) -> None:
    fusion = Fusion()
    column = fusion.output(fusion.select(nested(fusion, 3), 2, 1))
    assert [axis.is_ragged for axis in column.domain.logical] == [False, True]
    a = some(sum(lengths), 3)
    assert torch.equal(fusion.evaluate(a, offsets_of(lengths))[0], a[:, 1])
