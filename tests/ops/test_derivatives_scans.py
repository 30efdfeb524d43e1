"""Derivatives of scans, sorting, sets, tables and random numbers, for every attribute and at borders.

The rules are compared with autograd through torch's own functions on each row, and with autograd through the operation.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.ops.gradients import LENGTHS, agree_with_autograd, like, pulled, ragged, row_by_row

import serrate as sr
from serrate.ops.derivatives import pullback, run_body
from serrate.ops.record import TABLE, ops

# ---------------------------------------------------------------------------------------------------------- scans


def with_zeros(count: int, dtype: torch.dtype = torch.float64) -> sr.Tensor:
    """Rows [5, 0, 3, 1] of two features in which every element is 0 whose number divides by `count`."""
    values = torch.linspace(-1.5, 2.0, 18, dtype=torch.float64).view(9, 2)
    values = values.masked_fill(torch.arange(18).view(9, 2) % count == 0, 0.0)
    made = values if dtype == torch.float64 else torch.complex(values, values.flip(0))
    return sr.from_lengths(made, [5, 0, 3, 1])


@pytest.mark.parametrize("initial", [False, True])
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("zeros", [2, 3, 5, 100])
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_products_at_zeros_to_the_second_derivative(zeros: int, axis: int, initial: bool, dtype: torch.dtype) -> None:
    agree_with_autograd(lambda x: sr.cumulative_prod(x, axis=axis, include_initial=initial), with_zeros(zeros, dtype))


@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
def test_scans_row_by_row(name: str) -> None:
    x = with_zeros(3)
    _, g, (got,) = pulled(lambda x: TABLE[f"cumulative_{name[3:]}"].function(x, axis=1), x)
    (want,) = row_by_row(lambda row: getattr(torch, name)(row, 0), g, x)
    torch.testing.assert_close(got.values, want)


@pytest.mark.parametrize("name", ["cumulative_sum", "cumulative_prod"])
def test_scans_in_another_dtype(name: str) -> None:
    x = ragged(2, low=0.5)
    for dtype in (torch.float32, torch.complex128):
        out, back = pullback(lambda x, dtype=dtype: TABLE[name].function(x, axis=1, dtype=dtype), x)
        leaf = x._with(x.values.clone().requires_grad_())
        g = like(out).to(dtype)
        (got,) = back(g)
        (want,) = torch.autograd.grad(TABLE[name].function(leaf, axis=1, dtype=dtype).values, leaf.values, g.values)
        assert got.dtype == torch.float64
        torch.testing.assert_close(got.values, want, rtol=1e-5, atol=1e-6)
    numbers = sr.from_lengths(torch.arange(8), LENGTHS)
    out, back = pullback(lambda x: TABLE[name].function(x, axis=1, dtype=torch.float64), numbers)
    assert back(like(out)) == (None,)


def test_a_product_that_forgets_a_second_zero_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(g: Any, out: Any, x: Any, *, axis: int, **_: Any) -> Any:
        back = ops.flip(ops.cumulative_sum(ops.flip(g * out, axis=axis), axis=axis), axis=axis)
        return ops.where(ops.equal(x, 0), 0, back / ops.where(ops.equal(x, 0), 1, x))

    monkeypatch.setitem(TABLE, "cumulative_prod", dataclasses.replace(TABLE["cumulative_prod"], vjp=wrong))
    agree_with_autograd(lambda x: sr.cumulative_prod(x, axis=1), ragged(2, low=0.5))
    with pytest.raises(AssertionError):
        agree_with_autograd(lambda x: sr.cumulative_prod(x, axis=1), with_zeros(3))


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("name", ["cummax", "cummin"])
def test_running_extremes_with_ties(name: str, axis: int) -> None:
    x = sr.round(ragged(2) * 2)
    agree_with_autograd(lambda x: TABLE[name].function(x, axis=axis).values, x)
    if axis == 1:
        _, g, (got,) = pulled(lambda x: TABLE[name].function(x, axis=1).values, x)
        (want,) = row_by_row(lambda row: getattr(torch, name)(row, 0).values, g, x)
        torch.testing.assert_close(got.values, want)


@pytest.mark.parametrize("n", [1, 2, 5])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_differences(axis: int, n: int) -> None:
    agree_with_autograd(lambda x: sr.diff(x, axis=axis, n=n), ragged(3))


def test_differences_of_longer_rows_row_by_row() -> None:
    x, before, behind = ragged(2), ragged(2, seed=1), ragged(2, seed=2)
    agree_with_autograd(lambda x, a, b: sr.diff(x, axis=1, prepend=a, append=b), x, before, behind)
    same = sr.diff(x, axis=1, prepend=before, append=behind)
    body = run_body(TABLE["diff"], (x,), {"axis": 1, "prepend": before, "append": behind})
    assert torch.equal(body.values, same.values)
    _, g, (got,) = pulled(lambda x: sr.diff(x, axis=1), x)
    (want,) = row_by_row(lambda row: torch.diff(row, dim=0), g, x)
    torch.testing.assert_close(got.values, want)


# -------------------------------------------------------------------------------------------------- orders and sets


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("descending", [False, True])
def test_sorted_rows_with_ties(axis: int, descending: bool) -> None:
    x = sr.round(ragged(3) * 2)
    agree_with_autograd(lambda x: sr.sort(x, axis=axis, descending=descending), x)
    if axis == 1:
        _, g, (got,) = pulled(lambda x: sr.sort(x, axis=1, descending=descending), x)
        (want,) = row_by_row(lambda row: torch.sort(row, dim=0, descending=descending, stable=True).values, g, x)
        torch.testing.assert_close(got.values, want)


@pytest.mark.parametrize("k", [0, 1, 2])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_the_greatest_few(axis: int, k: int) -> None:
    x = ragged(3)
    for largest in (True, False):
        agree_with_autograd(lambda x, largest=largest: sr.topk(x, k, axis=axis, largest=largest).values, x)


@pytest.mark.parametrize("axis", [None, 1, 2])
def test_distinct_elements_give_their_gradient_to_the_first(axis: int | None) -> None:
    x = sr.from_lengths(torch.tensor([[1.0, 2.0], [1.0, 2.0], [3.0, 3.0]]).double(), [2, 1])
    for name in ("unique_values", "unique_counts", "unique_inverse", "unique_all"):
        made, back = pullback(lambda x, name=name: TABLE[name].function(x, axis=axis), x)
        values = made if isinstance(made, sr.Tensor) else made[0]
        ones = sr.ones_like(values)
        (got,) = back(ones if isinstance(made, sr.Tensor) else (ones, *[None] * (len(made) - 1)))
        want = {
            None: [[1.0, 1.0], [0.0, 0.0], [1.0, 0.0]],
            1: [[1.0, 1.0], [0.0, 0.0], [1.0, 1.0]],
            2: [[1.0, 1.0], [1.0, 1.0], [1.0, 0.0]],
        }[axis]
        assert got.values.tolist() == want


# --------------------------------------------------------------------------------------------------------- tables

IDS = sr.from_lengths(torch.tensor([[1, 0], [3, 3], [1, 1], [2, 0], [3, 2], [1, 3], [0, 0], [2, 2]]), LENGTHS)
TABLE_OF = sr.asarray(torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)))


@pytest.mark.parametrize("padding", [None, 1, -1])
@pytest.mark.parametrize("scaled", [False, True])
def test_tables_that_are_looked_up(padding: int | None, scaled: bool) -> None:
    out, g, (got,) = pulled(
        lambda w: sr.embedding(IDS, w, padding_idx=padding, scale_grad_by_freq=scaled), TABLE_OF
    )  # fmt: skip
    leaf = TABLE_OF.values.clone().requires_grad_()
    F.embedding(IDS.values, leaf, padding, scale_grad_by_freq=scaled).backward(g.values)
    torch.testing.assert_close(got.values, leaf.grad)
    dense = sr.embedding(IDS.values, TABLE_OF)
    assert torch.equal(dense.values, out.values)
    agree_with_autograd(lambda w: sr.embedding(IDS.values, w) * sr.embedding(IDS.values, w), TABLE_OF)
    agree_with_autograd(lambda w: sr.embedding(IDS.permute_dims((0, 2, 1)), w), TABLE_OF)


def test_linear_maps_row_by_row() -> None:
    x, bias = ragged(3), sr.asarray(torch.linspace(-1, 1, 4).double())
    _, g, got = pulled(lambda x, w, b: sr.linear(x, w, b), x, TABLE_OF, bias)
    want = row_by_row(F.linear, g, x, TABLE_OF, bias)
    for mine, theirs in zip(got, want, strict=True):
        torch.testing.assert_close(mine.values, theirs)
    agree_with_autograd(lambda x, w: sr.linear(x * x, w), x, sr.asarray(torch.linspace(-1, 1, 3).double()))
    agree_with_autograd(lambda x, w: sr.linear(x.permute_dims((0, 2, 1)).mT, w), x, TABLE_OF)


@pytest.mark.parametrize("padding", [None, 1, -1])
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags(mode: str, padding: int | None) -> None:
    ids = IDS[:, :, 0]
    out, g, (got,) = pulled(lambda w: sr.embedding_bag(ids, w, mode=mode, padding_idx=padding), TABLE_OF)
    leaf = TABLE_OF.values.clone().requires_grad_()
    want = F.embedding_bag(ids.values, leaf, ids.offsets[0][:-1], mode=mode, padding_idx=padding)
    torch.testing.assert_close(out.values, want)
    want.backward(g.values)
    torch.testing.assert_close(got.values, leaf.grad)
    agree_with_autograd(lambda w: sr.embedding_bag(IDS, w, mode=mode, padding_idx=padding), TABLE_OF)
    agree_with_autograd(lambda w: sr.embedding_bag(IDS.values, w, mode=mode, padding_idx=padding), TABLE_OF)


def test_rows_of_a_table_that_are_equally_great_share() -> None:
    ids, table = sr.from_lengths(torch.tensor([0, 1, 2]), [3]), sr.asarray(torch.tensor([[1.0], [1.0], [0.0]]))
    _, back = pullback(lambda w: sr.embedding_bag(ids, w, mode="max"), table)
    assert back(sr.asarray([[1.0]]))[0].tolist() == [[0.5], [0.5], [0.0]]
    leaf = table.values.clone().requires_grad_()
    sr.embedding_bag(ids, leaf, mode="max").values.sum().backward()
    assert leaf.grad is not None
    assert leaf.grad.tolist() == [[1.0], [0.0], [0.0]]


@pytest.mark.parametrize("padding", [None, 1])
def test_bags_with_weights(padding: int | None) -> None:
    weights = ragged(2, seed=3)
    agree_with_autograd(
        lambda w, each: sr.embedding_bag(IDS, w, mode="sum", per_sample_weights=each, padding_idx=padding),
        TABLE_OF, weights,
    )  # fmt: skip


# --------------------------------------------------------------------------------------------------- random numbers

KEY = sr.random.Key(3, 1)


@pytest.mark.parametrize("p", [0.0, 0.3, 1.0])
def test_dropout(p: float) -> None:
    agree_with_autograd(lambda x: sr.dropout(x * x, p, key=KEY), ragged(3))
    agree_with_autograd(lambda x: sr.dropout(x * x, p, training=False), ragged(3))


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_shuffled_rows(axis: int) -> None:
    agree_with_autograd(lambda x: sr.random.shuffle(x * x, axis, key=KEY), ragged(3))
    out, back = pullback(lambda x: sr.random.shuffle(x, axis), ragged(3))
    with pytest.raises(ValueError, match=r"derivative of random\.shuffle needs its key"):
        back(out)


@pytest.mark.parametrize("shape", [(5,), (2, sr.Ragged([3, 1]), 2)])
def test_bodies_of_what_is_drawn_in_a_shape(shape: Any) -> None:
    """A shape in the place of a tensor, dtypes, and no key: the same number of calls is drawn."""
    cases: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
        ("uniform", (), {}),
        ("uniform", (-1.0, 2.0), {"dtype": torch.float16}),
        ("exponential", (3.0,), {"dtype": torch.float64}),
        ("randint", (-5, 9), {}),
        ("randint", (0, 200), {"dtype": torch.uint8}),
    ]
    for name, further, options in cases:
        op = TABLE[f"random.{name}"]
        torch.manual_seed(5)
        want, after = op.function(shape, *further, **options), torch.rand(1)
        torch.manual_seed(5)
        got, again = run_body(op, (shape, *further), options), torch.rand(1)
        assert got.dtype == want.dtype
        assert got.shape == want.shape
        torch.testing.assert_close(got.values, want.values)
        assert torch.equal(after, again)


def test_random_bits() -> None:
    x = ragged(2)
    few, many = sr.random.bits(x, key=KEY), sr.random.bits(x, width=64, key=KEY)
    assert few.dtype == many.dtype == torch.int64
    words = sr.random.bits((32,), key=KEY).values
    assert torch.equal(few.values.reshape(-1), words[:16])
    pairs = words.view(16, 2)
    assert torch.equal(many.values.reshape(-1), pairs[:, 0] + (pairs[:, 1] << 32))
    assert 0 <= int(few.values.min()) <= int(few.values.max()) < 2**32
