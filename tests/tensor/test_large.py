"""More than 2³¹ elements: nothing wraps, and nothing is proportional to what is not asked for."""

from __future__ import annotations

import pytest
import torch

import serrate as sr

pytestmark = pytest.mark.slow

BIG = 2**31 + 5


@pytest.fixture(scope="module")
def x():
    values = torch.zeros(BIG, dtype=torch.int8)
    values[:3] = torch.tensor([1, 2, 3])
    values[-3:] = torch.tensor([4, 5, 6])
    return sr.from_offsets(values, [0, 2, BIG - 2, BIG])


def test_rows_and_ends(x):
    assert x.numel() == BIG
    assert x.max_lengths == (BIG - 4,)
    assert x[0].tolist() == [1, 2]
    assert x[-1].tolist() == [5, 6]
    assert x[:, :1].tolist() == [[1], [3], [5]]
    assert x[:, -1].tolist() == [2, 4, 6]
    assert x[:, -1:].tolist() == [[2], [4], [6]]
    assert x[1, -2:].tolist() == [0, 4]
    assert x[[2, 0], [0, 1]].tolist() == [5, 2]
    assert x.to_dense(max_lengths=2).tolist() == [[1, 2], [3, 0], [5, 6]]
    assert "2147483649" in repr(x)


def test_writing(x):
    before = x[1, -1].item()
    x[1, -1] = 7
    assert x.values[BIG - 3] == 7
    x[1, -1] = before


def test_int32_offsets_that_no_longer_fit_widen():
    half = sr.Partition.from_lengths(torch.tensor([2**30, 2**30 - 1], dtype=torch.int32))
    assert half.dtype == torch.int32
    assert half.scaled(2).dtype == torch.int64
    assert half.scaled(2).offsets.tolist() == [0, 2**31, 2**32 - 2]
    assert half.take(torch.tensor([0, 0])).offsets.tolist() == [0, 2**30, 2**31]
    p = sr.Partition.from_lengths(torch.tensor([2**16], dtype=torch.int32))
    product = sr.from_product(torch.zeros(2**32, dtype=torch.int8), p, p)
    assert product.structure.level((0, 1, 2)).dtype == torch.int64
    assert product[0, -1, -1].item() == 0
