"""Reductions, each record of the table: against an enumeration of all elements, over every set of axes."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from tests.ops.enumeration import cells
from tests.ops.samples import DTYPES, NAMES, elements, sample
from torch.autograd import gradcheck, gradgradcheck

import serrate as sr
from serrate.errors import AxisError
from serrate.ops.record import TABLE

OPS = [op for op in TABLE.values() if op.family == "reductions"]
PLACES = ("argmax", "argmin")
SMALL = [n for n in NAMES if n != "one giant row"]


def of_nothing(name: str, dtype: torch.dtype) -> Any:
    least, most = (
        (-float("inf"), float("inf"))
        if dtype.is_floating_point or dtype.is_complex
        else (torch.iinfo(dtype).min, torch.iinfo(dtype).max)
        if dtype != torch.bool
        else (False, True)
    )
    meanings = {"sum": 0, "prod": 1, "any": False, "all": True, "max": least, "min": most, "count_nonzero": 0}
    meanings |= {"mean": float("nan"), "var": float("nan"), "std": float("nan"), "logsumexp": -float("inf"), "norm": 0}
    return meanings.get(name, -1)


def by_torch(name: str, values: list[Any], dtype: torch.dtype) -> Any:
    """The operation on one group of elements, in double or int64."""
    wide = torch.complex128 if dtype.is_complex else torch.float64 if dtype.is_floating_point else torch.int64
    group = torch.tensor(values, dtype=wide if dtype != torch.bool else torch.int64)
    if name in ("var", "std"):
        return getattr(torch, name)(group, correction=0).item()
    if name == "any":
        return bool((group != 0).any())
    if name == "all":
        return bool((group != 0).all())
    function = {"max": torch.amax, "min": torch.amin}.get(name, getattr(torch, name, None))
    return function(group, 0).item() if name in ("max", "min", "logsumexp") else function(group).item()


def check(name: str, x: sr.Tensor, axes: tuple[int, ...]) -> None:
    got = TABLE[name].function(x, axis=axes if name not in PLACES else axes[0])
    groups: dict[tuple[int, ...], list[Any]] = {}
    for index, value in cells(x.tolist()):
        groups.setdefault(tuple(i for a, i in enumerate(index) if a not in axes), []).append((index[axes[0]], value))
    found = dict(cells(got.tolist() if got.ndim else [got.item()]))
    found = found if got.ndim else {(): next(iter(found.values()))}
    assert set(groups) <= set(found)
    for index, value in found.items():
        group = groups.get(index, [])
        want = by_torch(name, [v for _, v in group], x.dtype) if group else of_nothing(name, x.dtype)
        want = group[want][0] if name in PLACES and group else want
        fine = tolerance(x.dtype)
        assert value == pytest.approx(want, rel=fine, abs=fine, nan_ok=True), (index, group)


def tolerance(dtype: torch.dtype) -> float:
    return 16 * torch.finfo(dtype).eps if dtype.is_floating_point or dtype.is_complex else 0


def subsets(ndim: int) -> list[tuple[int, ...]]:
    return [s for n in range(1, ndim + 1) for s in itertools.combinations(range(ndim), n)]


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_every_set_of_axes_equals_enumeration(op, name):
    for kind in op.kinds:
        for dtype in DTYPES[kind]:
            if name == "NaN and inf" and (not dtype.is_floating_point or op.name in PLACES):
                continue
            x = sample(name, dtype)
            for axes in subsets(x.ndim) if dtype in (torch.float64, torch.int64, torch.bool) else [(1,), (0,)]:
                if op.name in PLACES and len(axes) > 1:
                    continue
                check(op.name, x, axes)


@pytest.mark.parametrize("op", [op for op in OPS if not op.flat], ids=lambda op: op.name)
@pytest.mark.parametrize("name", ["empty rows", "two levels", "product", "permuted"])
def test_gradients(op, name):
    x = sample(name, torch.float64)
    values = x.values.clone().requires_grad_()
    for axes in subsets(x.ndim):

        def run(v, axes=axes):
            made = op.function(x._with(v), axis=axes)
            return torch.where(made.values.isfinite(), made.values, torch.zeros_like(made.values))

        if op.name in ("var", "std"):
            elements_of_each = sr.count_nonzero(x, axis=axes).values
            if bool((elements_of_each < 2).any()):
                continue  # the root of 0 has no derivative
        assert gradcheck(run, [values])
        assert gradgradcheck(run, [values], fast_mode=True)


def test_gradients_of_products_with_zeros():
    x = sr.ragged([[2.0, 0.0, 3.0], [0.0, 0.0, 5.0], [4.0], [], [0.0, 0.0, 0.0], [7.0, 2.0]]).to(torch.float64)
    values = x.values.clone().requires_grad_()

    def run(v):
        return sr.prod(x._with(v), axis=1).values

    assert gradcheck(run, [values])
    assert gradgradcheck(run, [values])


@pytest.mark.parametrize("order", [0, 1, 2, 3, 2.5, float("inf"), -float("inf")])
def test_norms_of_other_orders(order):
    x = sample("features", torch.float64)
    x = x._with(x.values - 0.5)
    for axis in (1, 2, (1, 2), None):
        got = sr.norm(x, axis=axis, ord=order)
        assert torch.equal(torch.linalg.vector_norm(x, order, dim=axis), got.values) or got.is_ragged
    for mine, row in zip(sr.norm(x, axis=1, ord=order), x, strict=True):
        torch.testing.assert_close(mine.torch(), torch.linalg.vector_norm(row.torch(), order, dim=0))
    if order not in (0,):
        assert gradcheck(lambda v: sr.norm(x._with(v), axis=1, ord=order).values, [x.values.clone().requires_grad_()])
    zero = sr.ragged([[0.0, 0.0], []]).requires_grad_()
    sr.norm(zero, axis=1)[0].backward()
    assert zero.grad.tolist() == [[0.0, 0.0], []]


def test_sums_equal_those_of_the_padded_tensor_over_every_set_of_axes():
    for name in SMALL:
        if name == "NaN and inf":
            continue  # integers have neither
        x = sample(name, torch.int64)
        for axes in subsets(x.ndim):
            for keepdims in (False, True):
                got = sr.sum(x, axis=axes, keepdims=keepdims)
                want = x.to_dense().torch().sum(axes, keepdim=keepdims)
                assert torch.equal(got.to_dense().torch(), want), (name, axes)


def test_half_accumulates_in_float32():
    for dtype in (torch.float16, torch.bfloat16):
        x = sr.from_lengths(torch.ones(5000, dtype=dtype), [5000])
        assert sr.sum(x, axis=1).values.dtype == dtype
        assert float(sr.sum(x, axis=1)) == float(torch.tensor(5000.0, dtype=dtype))
        assert float(sr.mean(x)) == 1.0


def test_nan_and_inf_stay_in_their_row():
    x = sr.ragged([[float("nan"), 1.0], [2.0], [float("inf"), 3.0], []])
    assert sr.sum(x, axis=1).tolist()[1] == 2.0
    assert sr.max(x, axis=1).tolist()[1:] == [2.0, float("inf"), -float("inf")]
    assert sr.isnan(sr.max(x, axis=1)).tolist() == [True, False, False, False]
    assert sr.logsumexp(x, axis=1).tolist()[1:] == [2.0, float("inf"), -float("inf")]


def test_partitions_that_stay_are_shared():
    x = sample("two levels", torch.float64)
    assert sr.sum(x, axis=2).partitions[0] is x.partitions[0]
    assert sr.sum(x, axis=3).partitions == x.partitions
    assert sr.sum(x, axis=3).partitions[1] is x.partitions[1]


def test_the_torch_face():
    x = sample("rows", torch.float64)
    assert type(torch.sum(x)) is torch.Tensor
    assert torch.equal(torch.sum(x, dim=1), sr.sum(x, axis=1).torch())
    assert torch.equal(x.sum(1, keepdim=True).torch(), sr.sum(x, axis=1, keepdims=True).torch())
    assert torch.allclose(torch.var(x, 1)[0], x[0].torch().var())
    assert torch.allclose(x.std(dim=1, unbiased=False)[0].torch(), x[0].torch().std(unbiased=False))
    pair = torch.max(x, 1)
    assert [t.item() for t in pair.values] == [row.torch().max().item() for row in x]
    assert [t.item() for t in pair.indices] == [row.torch().argmax().item() for row in x]
    values, indices = x.min(dim=1)
    assert isinstance(values, sr.Tensor)
    assert torch.equal(torch.max(x, x + 1).values, (x + 1).values)
    assert torch.equal(torch.amax(x, 1), torch.max(x, 1).values)
    assert indices.shape == (3,)
    loss = torch.mean(x.requires_grad_())
    loss.backward()
    assert torch.allclose(x.grad.values, torch.full((6,), 1 / 6, dtype=torch.float64))


def test_nothing_waits_for_device_born_lengths():
    x = sample("two levels", torch.float64)
    d = sr.testing.device_born(x, spare=3)
    for op in OPS:
        for axis in (1, 2, 3) if op.name in PLACES else (2, 3, (1, 2), (2, 3), (1, 2, 3)):
            if axis == 1:
                continue
            with sr.testing.forbid_sync():
                got = op.function(d, axis=axis)
            assert str(got.tolist()) == str(op.function(x, axis=axis).tolist()), (op.name, axis)
    assert sr.sum(d, axis=1).tolist() == sr.sum(x, axis=1).tolist()
    assert sr.sum(d, axis=0).tolist() == sr.sum(x, axis=0).tolist()
    assert float(sr.sum(d)) == pytest.approx(float(sr.sum(x)))


def test_wrong_arguments_are_named():
    x = sample("rows", torch.float64)
    with pytest.raises(AxisError, match="axis 5 is out of range"):
        sr.sum(x, axis=5)
    with pytest.raises(ValueError, match="named twice"):
        sr.sum(x, axis=(1, -1))
    with pytest.raises(TypeError, match="mean needs floating-point"):
        sr.mean(sr.ragged([[1]]), axis=1)
    with pytest.raises(TypeError, match="max needs ordered"):
        sr.max(sr.ragged([[1j]]), axis=1)
    with pytest.raises(TypeError, match="var needs real"):
        sr.var(sr.ragged([[1]]), axis=1)


def test_giant_rows_and_many_of_them():
    lengths = torch.tensor([0, 100_000, 3, 0, 1])
    x = sr.from_lengths(elements(int(lengths.sum()), (2,), torch.float64), lengths)
    for i, row in enumerate(x):
        assert torch.allclose(sr.sum(x, axis=1)[i].torch(), row.torch().sum(0))
    assert sr.max(x, axis=1).shape == (5, 2)


def test_means_of_halves_do_not_overflow():
    for dtype in (torch.float16, torch.bfloat16):
        x = sr.from_lengths(torch.full((2000,), 60.0, dtype=dtype), [1999, 1])
        assert sr.mean(x, axis=1).tolist() == [60.0, 60.0]
        assert float(sr.mean(x)) == 60.0
    many = sr.from_lengths(torch.zeros(70_000, dtype=torch.float16), [70_000])
    assert float(sr.logsumexp(many, axis=1)) == pytest.approx(11.16, abs=0.01)


def test_torch_spellings_of_var_and_std():
    x = sample("rows", torch.float64)
    dense = [row.torch() for row in x]
    assert torch.std(x, 1, False).tolist() == pytest.approx([row.std(unbiased=False).item() for row in dense])
    assert x.var(1, False, True).shape == (3, 1)
    assert x.var(False).item() == pytest.approx(x.values.var(unbiased=False).item())
    assert x.var(False, keepdim=True).ndim == 2
    assert x.var(1, keepdim=True).shape == (3, 1)


def test_derivatives_at_points_without_one_are_those_of_torch():
    one = torch.tensor([1.0, 2.0, 4.0, 3.0], requires_grad=True)
    sr.from_lengths(one, [3, 1]).std(1, correction=0).sum().backward()
    assert one.grad[3] == 0
    zero = torch.zeros(2, 3, requires_grad=True)
    torch.nn.functional.normalize(sr.from_lengths(zero, [2]), dim=-1).sum().backward()
    want = torch.zeros(2, 3, requires_grad=True)
    torch.nn.functional.normalize(want, dim=-1).sum().backward()
    assert torch.equal(zero.grad, want.grad)


@pytest.mark.parametrize("name", ["max", "min"])
@pytest.mark.parametrize("structure", ["features", "two levels", "permuted", "product"])
def test_the_pair_of_torch_sends_its_gradient_to_the_one_it_names(name, structure):
    x = sample(structure, torch.float64)
    x = x._with((x.values * 2).round())  # many are equal
    for axis in range(x.ndim):
        leaf = x.values.clone().requires_grad_()
        pair = getattr(torch, name)(x._with(leaf), axis)
        made = pair.values.values if isinstance(pair.values, sr.Tensor) else pair.values
        torch.where(made.isfinite(), made, 0).sum().backward()
        groups = int(made.isfinite().sum())
        assert int((leaf.grad == 1).sum()) == groups
        assert int((leaf.grad != 0).sum()) == groups


def test_over_no_axis_gives_a_copy():
    x = sample("rows", torch.float64)
    made = sr.sum(x, axis=())
    made += 1
    assert made.tolist() != x.tolist()


def test_the_place_of_the_greatest_of_nothing_is_minus_one_in_every_dtype():
    for dtype in (torch.uint8, torch.bool, torch.int16, torch.float16, torch.uint64):
        nothing = sr.zeros((1, sr.Ragged([0])), dtype=dtype)
        assert sr.argmax(nothing).item() == sr.argmin(nothing).item() == -1
