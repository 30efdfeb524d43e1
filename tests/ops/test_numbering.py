"""Elements by number: numbered, collect and distribute, against loops over single elements."""

from __future__ import annotations

import pytest
import torch
from tests.ops.samples import NAMES, elements, sample

import serrate as sr


@pytest.mark.parametrize("name", NAMES)
def test_numbers_count_elements_as_they_are_stored(name: str) -> None:
    x = sample(name, torch.float32)
    numbers = sr.numbered(x)
    assert numbers.dtype == torch.int64
    assert numbers.shape == x.shape
    assert numbers.values.reshape(-1).tolist() == list(range(x.values.numel()))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16, torch.complex64, torch.int8])
@pytest.mark.parametrize("name", ["features", "empty rows", "two levels", "permuted", "product", "all rows empty"])
def test_collecting_is_adding_up_one_by_one(name: str, dtype: torch.dtype) -> None:
    like = sample(name, torch.float32)
    count = like.values.numel()
    numbers = (torch.arange(9) * 5) % (count + 1) - 1
    x = elements(9, (), dtype)
    want = [0] * count
    for number, value in zip(numbers.tolist(), x.tolist(), strict=True):
        if number >= 0:
            want[number] += value
    got = sr.collect(x, numbers, like)
    assert (got.shape, got.dtype) == (like.shape, dtype)
    torch.testing.assert_close(got.values.reshape(-1), torch.tensor(want, dtype=dtype).reshape(-1))
    back = sr.distribute(got, numbers, like).tolist()
    flat = got.values.reshape(-1).tolist()
    assert back == [flat[n] if n >= 0 else 0 for n in numbers.tolist()]


def test_numbers_are_those_of_like_however_the_operand_is_stored() -> None:
    p, q = sr.Partition.from_lengths([2, 0, 1]), sr.Partition.from_lengths([1, 2, 3])
    like = sr.from_product(torch.zeros(5), p, q)
    other = sr.from_product(torch.arange(5.0), q, p).permute_dims((0, 2, 1))
    assert other.shape == like.shape
    assert sr.distribute(other, sr.numbered(like), like).tolist() == other.tolist()
    assert sr.collect(other, sr.numbered(like), like).tolist() == other.tolist()


def test_sums_of_halves_do_not_stop_growing() -> None:
    ones = torch.ones(5000, dtype=torch.float16)
    made = sr.collect(ones, torch.zeros(5000, dtype=torch.int64), sr.zeros((1,), dtype=torch.float16))
    assert made.tolist() == [5000.0]


def test_what_is_undefined_is_neither_read_nor_added() -> None:
    x = sr.testing.device_born(sr.from_lengths(torch.ones(3), [2, 1]), spare=2)
    x = x._with(torch.tensor([1.0, 1.0, 1.0, float("nan"), float("nan")]))
    numbers = x._with(torch.tensor([0, 1, 0, 1, 99]))
    assert sr.collect(x, numbers, torch.zeros(2)).tolist() == [2.0, 1.0]
    assert sr.distribute(torch.tensor([5.0, 6.0]), numbers, torch.zeros(2)).tolist() == [[5.0, 6.0], [5.0]]
    with sr.testing.forbid_sync():
        sr.collect(x, numbers, torch.zeros(2))
