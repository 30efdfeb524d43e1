"""Packed and padded rows by compiled functions, against loops over rows; wrong arguments give None, touch nothing."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from typing import Any

import pytest
import torch
from tests.native.packed import INTS, ROWS, drawn, offsets_of, same

from serrate.errors import RaggednessError
from serrate.native import padded

t = torch.tensor

pytestmark = pytest.mark.skipif(padded._library() is None, reason="needs a C++ compiler")


# --------------------------------------------------------------------------------------------- packed and padded


@pytest.mark.parametrize("kind", ROWS)
@pytest.mark.parametrize("dtype", INTS)
@pytest.mark.parametrize("most", [0, 1, 3, 50])
@pytest.mark.parametrize("spare", [0, 2])
def test_padding_and_back(kind: str, dtype: torch.dtype, most: int, spare: int) -> None:
    lengths = ROWS[kind]
    offsets = offsets_of(lengths, dtype)
    for features in [(), (3,), (2, 0)]:
        values = drawn(sum(lengths) + spare, *features)
        expected = torch.full((len(lengths), most, *features), 7.0)
        back = torch.zeros_like(values)
        for b, n in enumerate(lengths):
            first, some = int(offsets[b]), min(n, most)
            expected[b, :some] = values[first : first + some]
            back[first : first + some] = values[first : first + some]
        same(padded.pad(values, (offsets,), (most,), 7.0), expected)
        same(padded.unpad(expected, (offsets,), values.shape[0]), back)


def cells_of(levels: list[list[int] | int], components: int, sizes: list[int]) -> list[tuple[int, ...]]:
    """For each packed row its place in a padded tensor, by a walk over the cells."""
    cells: list[tuple[int, ...]] = [(b,) for b in range(components)]
    for level, size in zip(levels, sizes, strict=True):
        lengths = [size] * len(cells) if isinstance(level, int) else level
        cells = [(*cell, i) for cell, length in zip(cells, lengths, strict=True) for i in range(length)]
    return cells


@pytest.mark.parametrize(
    ("levels", "sizes"),
    [
        ([[2, 0, 1], [3, 0, 2]], [2, 3]),
        ([[2, 0, 1], [3, 0, 2]], [1, 2]),
        ([[2, 0, 1], [3, 0, 2]], [3, 0]),
        ([[2, 0, 1], [3, 0, 2]], [0, 4]),
        ([[1, 2], 2, [1, 0, 3, 2, 0, 1]], [2, 2, 3]),
        ([[1, 2], 2, [1, 0, 3, 2, 0, 1]], [1, 2, 1]),
        ([[0, 0], 2, []], [1, 2, 3]),
        ([[], []], [2, 2]),
        ([[1, 2], [1, 1, 2], [2, 0, 1, 3]], [2, 2, 2]),
    ],
)
@pytest.mark.parametrize("spare", [0, 2])
def test_levels_inside_levels(levels: list[Any], sizes: list[int], spare: int) -> None:
    components = len(levels[0])
    cells = cells_of(levels, components, sizes)
    for dtype in (torch.float32, torch.int8):
        values = (drawn(len(cells) + spare, 3) * 50).to(dtype)
        expected = torch.full((components, *sizes, 3), 7, dtype=dtype)
        back = torch.full_like(values, 5)
        for row, (b, *inner) in enumerate(cells):
            if all(i < size for i, size in zip(inner, sizes, strict=True)):
                expected[(b, *inner)] = back[row] = values[row]
        offsets = [None if isinstance(level, int) else offsets_of(level) for level in levels]
        same(padded.pad(values, offsets, sizes, 7), expected)
        same(padded.unpad(expected, offsets, len(values), 5), back)
    if spare == 0 and components:
        x = values.double().requires_grad_()
        for call in (
            lambda x: padded.pad(x, offsets, sizes, 3),
            lambda x: padded.unpad(expected * x.sum(), offsets, 9, 1),
        ):
            assert torch.autograd.gradcheck(call, (x,))
            assert torch.autograd.gradgradcheck(call, (x,))


def test_wrong_levels_inside_levels() -> None:
    values = torch.ones(5)
    outer, inner = t([0, 2, 3]), t([0, 3, 3, 5])
    assert padded.pad(values, (outer, inner), (2, 3)) is not None
    for wrong in (t([0, 3, 5]), t([0, 3, 2, 5]), t([1, 3, 3, 5]), t([0, 3, 3, 6]), t([0.0, 3, 3, 5])):
        assert padded.pad(values, (outer, wrong), (2, 3)) is None  # too few, decreasing, past the end
        assert padded.unpad(torch.ones(2, 2, 3), (outer, wrong), 5) is None
    assert padded.pad(values, (None, inner), (2, 3)) is None
    assert padded.pad(values, (outer, inner), (2, -1)) is None
    assert padded.pad(torch.ones(1), (t([0, 1]),) + (t([0, 1]),) * 16, (1,) * 17) is None  # deeper than it goes


def test_large_results_use_all_threads() -> None:
    lengths = torch.randint(0, 60, (1000,)).tolist()
    values, offsets = drawn(sum(lengths), 64), offsets_of(lengths)
    made = padded.pad(values, (offsets,), (60,))
    assert made is not None
    assert made.nbytes >= 2**23
    mask = torch.arange(60) < t(lengths)[:, None]
    same(made[mask], values)
    assert not made[~mask].any()
    same(padded.unpad(made, (offsets,), values.shape[0]), values)


@pytest.mark.parametrize(
    "offsets",
    [
        t([1, 3]), t([0, 2, 1]), t([0, 9]), t([0, -1, 3]), t([], dtype=torch.int64), t([[0, 3]]), t([0.0, 3.0]),
        t([0, 9, 3, 9])[::2], [0, 3], None, t([0, 3]).to("meta"), t([0, 2**62, 3]), t([-(2**62), 3]),
    ],
)  # fmt: skip
def test_wrong_offsets(offsets: Any) -> None:
    assert padded.pad(torch.ones(3), (offsets,), (2,)) is None
    assert padded.unpad(torch.ones(1, 2), (offsets,), 3) is None
    assert padded.pad(torch.ones(3, requires_grad=True), (offsets,), (2,)) is None
    assert padded.total(offsets) is None or offsets.tolist() == [0, 9]  # which end past these values only


def test_wrong_sizes() -> None:
    assert padded.pad(torch.ones(3), (t([0, 3]),), (-1,)) is None
    assert padded.unpad(torch.ones(2, 2), (t([0, 3]),), 3) is None
    assert padded.unpad(torch.ones(1, 2), (t([0, 3]),), 2) is None
    with pytest.raises(ValueError, match=r"0\.5 does not fit"):
        padded.pad(t([1]), (t([0, 1]),), (1,), 0.5)


def test_conjugates_and_strides() -> None:
    values = torch.randn(6, 2, dtype=torch.complex64).conj()
    same(padded.pad(values, (t([0, 6]),), (6,)), values[None].resolve_conj())
    same(padded.unpad(values.T[..., None], (t([0, 6, 12]),), 12), values.T.reshape(12, 1).resolve_conj())


def test_keys() -> None:
    lengths, values = t([[2, 0, 1], [1, 1, 3]], dtype=torch.int32), drawn(10, 2)
    ends = torch.nn.functional.pad(lengths.cumsum(1), (1, 0))
    made = padded.pad_keys(values, ends, [1, 4, 10], [2, 4], 5)
    assert made is not None
    for key, (first, size) in enumerate([(1, 2), (4, 4)]):
        same(made[key], padded.pad(values[first:], (offsets_of(lengths[key].tolist()),), (size,), 5))  # type: ignore[arg-type]
    assert padded.pad_keys(values, ends, [1, 3, 10], [2, 4]) is None  # the first key has three rows
    assert padded.pad_keys(values, -ends, [1, 4, 10], [2, 4]) is None


# --------------------------------------------------------------------------------------------- sums and products


def spread(x: torch.Tensor, lengths: list[int], most: int) -> torch.Tensor:
    """Packed rows padded with 0, one after the other."""
    made = x.new_zeros(len(lengths), most, *x.shape[1:])
    for b, (first, n) in enumerate(zip(accumulate([0, *lengths]), lengths, strict=False)):
        made[b, : min(n, most)] = x[first : first + min(n, most)]
    return made


def gathered(y: torch.Tensor, lengths: list[int], rows: int) -> torch.Tensor:
    """What a padded tensor has of each packed row, 0 where that is nothing."""
    made = y.new_zeros(rows, *y.shape[2:])
    for b, (first, n) in enumerate(zip(accumulate([0, *lengths]), lengths, strict=False)):
        made[first : first + min(n, y.shape[1])] = y[b, :n]
    return made


@pytest.mark.parametrize("kind", ROWS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int32, torch.int64])
@pytest.mark.parametrize("most", [0, 1, 3, 50])
def test_sums_and_products(kind: str, dtype: torch.dtype, most: int) -> None:
    lengths = ROWS[kind]
    for features, spare, ints in [((), 0, torch.int64), ((3,), 2, torch.int32), ((2, 0), 1, torch.int64)]:
        rows, offsets = sum(lengths) + spare, offsets_of(lengths, ints)
        x, z = ((drawn(rows, *features) * scale).to(dtype) for scale in (9, 7))
        y = (drawn(len(lengths) * most, *features) * 9).to(dtype).view(len(lengths), most, *features)
        other = y[:, : most // 2] + 1
        there = gathered(y, lengths, rows)
        same(padded.packed_sum(x, offsets, y), x + there)
        same(padded.packed_sum(x, offsets, y, other), x + there + gathered(other, lengths, rows))
        same(padded.padded_sum(x, offsets, y), spread(x, lengths, most) + y)
        same(padded.packed_product(x, offsets, y), x * there)
        same(padded._PaddedProduct.call(x, offsets.long(), z, most), spread(x * z, lengths, most))


def test_large_sums_and_products_use_all_threads() -> None:
    lengths = torch.randint(0, 60, (1000,)).tolist()
    x, y, offsets = drawn(sum(lengths), 64), drawn(60_000, 64).view(1000, 60, 64), offsets_of(lengths)
    there = y[torch.arange(60) < t(lengths)[:, None]]
    same(padded.packed_sum(x, offsets, y), x + there)
    same(padded.packed_product(x, offsets, y), x * there)
    same(padded.padded_sum(x, offsets, y), y.clone().masked_scatter_(
        (torch.arange(60) < t(lengths)[:, None])[..., None].expand_as(y), x + there
    ))  # fmt: skip


def test_values_of_other_rows_and_signs() -> None:
    inf, nan = float("inf"), float("nan")
    x, offsets = t([inf, -0.0, nan, -0.0]), t([0, 2, 3])
    y = t([[0.0], [1.0]])
    made = padded.packed_product(x, offsets, y)
    assert made is not None
    assert made[0].isnan()  # inf · 0 in one cell
    same(made[1:2], t([0.0]))
    assert made[2].isnan()
    same(made[3:], t([0.0]))  # past the last offset
    summed = padded.packed_sum(x, offsets, y)
    assert summed is not None
    assert summed[[1, 3]].signbit().tolist() == [False, False]  # -0.0 + 0


@pytest.mark.parametrize("most", [0, 2, 5])
def test_gradients(most: int) -> None:
    lengths = [2, 0, 4]
    offsets = offsets_of(lengths)
    x, y, z = (v.double().requires_grad_() for v in (drawn(7, 2), drawn(3 * most, 2).view(3, most, 2), drawn(3, 1, 2)))
    calls: list[Callable[..., Any]] = [
        lambda x, y, z: padded.pad(x, (offsets,), (most,), 3),
        lambda x, y, z: padded.unpad(y, (offsets,), 7),
        lambda x, y, z: padded.packed_sum(x, offsets, y, z),
        lambda x, y, z: padded.packed_sum(x, offsets, y, y),
        lambda x, y, z: padded.padded_sum(x, offsets, y),
        lambda x, y, z: padded.packed_product(x, offsets, y),
        lambda x, y, z: padded._PaddedProduct.call(x, offsets, x * 2, most),
    ]
    for call in calls:
        assert torch.autograd.gradcheck(call, (x, y, z))
        assert torch.autograd.gradgradcheck(call, (x, y, z))


def test_only_gradients_that_are_asked_for() -> None:
    offsets = t([0, 2, 3])
    x, y = torch.ones(3, requires_grad=True), torch.full((2, 2), 2.0, requires_grad=True)
    for call in (padded.packed_sum, padded.padded_sum, padded.packed_product):
        for a, b in ((x, y.detach()), (x.detach(), y)):
            made = call(a, offsets, b)
            assert made is not None
            made.sum().backward()
    same(x.grad, t([4.0, 4.0, 4.0]))  # type: ignore[arg-type]
    same(y.grad, t([[3.0, 3.0], [3.0, 1.0]]))  # type: ignore[arg-type]


def test_offsets_that_change_before_the_gradient() -> None:
    offsets = t([0, 2, 3])
    made = padded.pad(torch.ones(3, requires_grad=True), (offsets,), (2,))
    assert made is not None
    offsets += 1
    with pytest.raises(
        RaggednessError, match="offsets were changed between a call and the computation of its gradient"
    ):
        made.sum().backward()


@pytest.mark.parametrize(
    ("x", "y"),
    [
        (torch.ones(3), torch.ones(1, 2)), (torch.ones(3), torch.ones(2, 2, 1)), (torch.ones(2), torch.ones(2, 2)),
        (torch.ones(3, 2), torch.ones(2, 2, 1)), (torch.ones(()), torch.ones(2)), (torch.ones(3), None),
        (torch.ones(3), torch.ones(2, 2).double()), (torch.ones(3).half(), torch.ones(2, 2).half()),
        ([1.0], torch.ones(2, 2)),
        (torch.ones(3).to("meta"), torch.ones(2, 2)), (torch.ones(3), torch.ones(2, 2).to("meta")),
    ],
)  # fmt: skip
def test_wrong_operands(x: Any, y: Any) -> None:
    for call in (padded.packed_sum, padded.padded_sum, padded.packed_product):
        assert call(x, t([0, 2, 3]), y) is None
