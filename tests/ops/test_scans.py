"""Scans: against torch on each group of elements, found by enumerating nested lists; gradients, zeros, NaN included."""

from __future__ import annotations

import doctest
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from tests.ops.enumeration import groups, lines
from tests.ops.samples import DTYPES, NAMES, elements, sample
from tests.oracle import Sample
from tests.oracle import samples as structures
from torch.autograd import gradcheck, gradgradcheck

import serrate as sr
from serrate.errors import AxisError, RaggednessError
from serrate.ops.record import TABLE

OPS = [op for op in TABLE.values() if op.family == "scans"]
SUMS = {"cumulative_sum": torch.cumsum, "cumulative_prod": torch.cumprod}
EXTREMES = {"cummax": torch.cummax, "cummin": torch.cummin}
EXACT = (torch.float64, torch.int64, torch.bool)


def samples_of(op: Any, name: str) -> Iterator[sr.Tensor]:
    for kind in op.kinds:
        for dtype in DTYPES[kind]:
            if name != "NaN and inf" or dtype.is_floating_point:
                yield sample(name, dtype)


def axes_of(x: sr.Tensor) -> range:
    return range(x.ndim)


def close(got: Any, want: torch.Tensor, dtype: torch.dtype) -> None:
    rough = dtype.is_floating_point or dtype.is_complex
    fine = 16 * torch.finfo(dtype).eps if rough else 0
    made = torch.tensor(got, dtype=want.dtype)
    torch.testing.assert_close(made, want, rtol=fine, atol=fine, equal_nan=True)


def widest(dtype: torch.dtype) -> torch.dtype:
    return torch.complex128 if dtype.is_complex else torch.float64 if dtype.is_floating_point else torch.int64


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("op", [TABLE[n] for n in SUMS], ids=lambda op: op.name)
def test_sums_and_products_equal_torch_on_each_group(op, name):
    for x in samples_of(op, name):
        whole = not (x.is_floating_point() or x.is_complex())
        integer = torch.uint64 if x.dtype == torch.uint8 else torch.int64  # the only unsigned one among the samples
        for axis in axes_of(x) if x.dtype in EXACT else [1]:
            got = op.function(x, axis=axis)
            assert got.dtype == (integer if whole else x.dtype)
            assert got.structure is x.structure
            found = groups(got.to(torch.int64) if whole else got, axis)  # uint64 overflows elsewhere than int64
            for index, group in groups(x, axis).items():
                want = SUMS[op.name](torch.tensor([v for _, v in group], dtype=widest(x.dtype)), 0)
                close([v for _, v in found[index]], want, x.dtype)


@pytest.mark.parametrize("name", [n for n in NAMES if n != "one giant row"])
@pytest.mark.parametrize("op", [TABLE[n] for n in SUMS], ids=lambda op: op.name)
def test_include_initial_makes_groups_one_longer(op, name):
    initial = 0 if op.name == "cumulative_sum" else 1
    x = sample(name, torch.float64)
    for axis in axes_of(x):
        got = op.function(x, axis=axis, include_initial=True)
        plain = groups(op.function(x, axis=axis), axis)
        found = lines(got, axis)
        assert set(plain) <= set(found)
        for index, line in found.items():
            close(line, torch.tensor([initial, *[v for _, v in plain.get(index, [])]], dtype=torch.float64), x.dtype)


def test_include_initial_of_rows():
    x = sr.ragged([[1, 2], [], [3]])
    assert sr.cumulative_sum(x, axis=1, include_initial=True).tolist() == [[0, 1, 3], [0], [0, 3]]
    assert sr.cumulative_prod(x, axis=1, include_initial=True).tolist() == [[1, 1, 2], [1], [1, 3]]
    born = sr.testing.device_born(x, spare=4)
    with sr.testing.forbid_sync():
        got = sr.cumulative_sum(born, axis=1, include_initial=True)
    assert got.partitions[0].num_values == 3 + 4 + 3
    assert got.tolist() == [[0, 1, 3], [0], [0, 3]]
    dense = torch.tensor([[1, 2], [3, 4]])
    assert sr.cumulative_sum(dense, axis=1, include_initial=True).tolist() == [[0, 1, 3], [0, 3, 7]]


@settings(max_examples=40, deadline=None)
@given(structures())
def test_scans_of_any_structure_equal_enumeration(made: Sample):
    x = made.x._with(made.x.values % 5 - 2)
    for axis in range(x.ndim):
        sums = groups(sr.cumulative_sum(x, axis=axis), axis)
        places = groups(sr.cummin(x, axis=axis).indices, axis)
        initial = lines(sr.cumulative_prod(x, axis=axis, include_initial=True), axis)
        steps = lines(sr.diff(x, axis=axis), axis)
        for index, group in groups(x, axis).items():
            line = torch.tensor([v for _, v in group])
            assert [v for _, v in sums[index]] == line.cumsum(0).tolist()
            assert [i for _, i in places[index]] == [group[i][0] for i in line.cummin(0).indices.tolist()]
            assert initial[index] == [1, *line.cumprod(0).tolist()]
            assert steps.get(index, []) == line.diff().tolist()


def test_positions_too_many_for_one_number_are_compared_one_after_the_other(monkeypatch):
    x = sample("two levels", torch.float64)
    want = [sr.cumulative_sum(x, axis=axis).tolist() for axis in (0, 1)]
    monkeypatch.setattr("serrate.eager.runs._ROOM", 1)
    for tensor in (x, sr.testing.device_born(x, spare=3)):
        assert [sr.cumulative_sum(tensor, axis=axis).tolist() for axis in (0, 1)] == want


def test_undefined_parents_have_no_entries():
    x = sample("two levels", torch.float64)
    outer = sr.Partition._of(x.partitions[0].offsets, 6, device_born=True, exact=False)
    inner = sr.Partition.from_lengths([3, 0, 2, 0, 0, 0])
    inner = sr.Partition._of(inner.offsets, 9, device_born=True, exact=False)
    axes = (3, sr.Ragged(outer, (0,)), sr.Ragged(inner, (0, 1)))
    born = sr.Tensor(torch.cat([x.values, torch.full((4, 2), 97.0)]), type(x.structure)(axes))
    for axis in (2, 3):
        with sr.testing.forbid_sync():
            got = sr.cumulative_sum(born, axis=axis, include_initial=True)
            plain = sr.cumulative_sum(born, axis=axis)
        assert got.tolist() == sr.cumulative_sum(x, axis=axis, include_initial=True).tolist()
        assert plain.tolist() == sr.cumulative_sum(x, axis=axis).tolist()
        assert sr.sum(got).item() == pytest.approx(sr.sum(sr.cumulative_sum(x, axis=axis)).item())
    for axis in (0, 1):
        with sr.testing.forbid_sync():
            got, greatest = sr.cumulative_sum(born, axis=axis), sr.cummax(born, axis=axis).indices
        assert got.tolist() == sr.cumulative_sum(x, axis=axis).tolist()
        assert greatest.tolist() == sr.cummax(x, axis=axis).indices.tolist()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("op", [TABLE[n] for n in EXTREMES], ids=lambda op: op.name)
def test_extremes_equal_torch_on_each_group(op, name):
    for x in samples_of(op, name):
        for axis in axes_of(x) if x.dtype in (*EXACT, torch.float32) else [1]:
            got = op.function(x, axis=axis)
            assert got.values.dtype == x.dtype
            assert got.indices.dtype == torch.int64
            assert got.indices.structure is x.structure
            values, indices = groups(got.values, axis), groups(got.indices, axis)
            for index, group in groups(x, axis).items():
                want = EXTREMES[op.name](torch.tensor([v for _, v in group], dtype=x.dtype), 0)
                close([v for _, v in values[index]], want.values, x.dtype)
                assert [i for _, i in indices[index]] == [group[i][0] for i in want.indices.tolist()]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_extremes_with_nan_inf_ties_and_zeros_equal_torch(dtype):
    nan, inf = float("nan"), float("inf")
    rows = [[1.0, 1.0, nan, 2.0, nan], [], [0.0, -0.0, inf, inf, 3.0], [-inf, -inf, -1.0], [nan], [5.0, -5.0, nan]]
    x = sr.ragged(rows, dtype=dtype)
    for name, function in EXTREMES.items():
        for got in (TABLE[name].function(x, axis=1), function(x, 1)):
            for i, row in enumerate(rows):
                want = function(torch.tensor(row, dtype=dtype), 0)
                torch.testing.assert_close(got.values[i].torch(), want.values, equal_nan=True)
                assert torch.equal(got.values[i].torch().signbit(), want.values.signbit())
                assert got.indices[i].tolist() == want.indices.tolist()


def test_extremes_of_the_outermost_integers():
    least, most = torch.iinfo(torch.int64).min, torch.iinfo(torch.int64).max
    x = sr.ragged([[least, least, 3, most], [most, least], [least]])
    assert sr.cummax(x, axis=1).values.tolist() == [[least, least, 3, most], [most, most], [least]]
    assert sr.cummax(x, axis=1).indices.tolist() == [[0, 1, 2, 3], [0, 0], [0]]
    assert sr.cummin(x, axis=1).indices.tolist() == [[0, 1, 1, 1], [0, 1], [0]]
    small = sr.from_lengths(torch.tensor([255, 0, 7], dtype=torch.uint8), [2, 1])
    assert sr.cummin(small, axis=1).values.tolist() == [[255, 0], [7]]
    for dtype in (torch.uint16, torch.uint32, torch.uint64):
        wide = small.to(dtype)
        assert sr.cummax(wide, axis=1).values.dtype == dtype
        assert sr.cummax(wide, axis=1).values.tolist() == [[255, 255], [7]]
        assert sr.diff(wide, axis=1).values.tolist() == [torch.iinfo(dtype).max - 254]


@pytest.mark.parametrize("name", [n for n in NAMES if n != "one giant row"])
def test_diff_equals_torch_on_each_group(name):
    for x in samples_of(TABLE["diff"], name):
        for axis in axes_of(x) if x.dtype in EXACT else [-1 % x.ndim]:
            for n in (0, 1, 2):
                got = sr.diff(x, axis=axis, n=n)
                assert got.dtype == x.dtype
                found = lines(got, axis) if n else {k: [v for _, v in g] for k, g in groups(got, axis).items()}
                for index, group in groups(x, axis).items():
                    want = torch.diff(torch.tensor([v for _, v in group], dtype=x.dtype), n=n)
                    close(found.get(index, []), want, x.dtype)


def test_diff_of_rows():
    x = sr.ragged([[1, 4, 9], [], [5]])
    assert sr.diff(x).tolist() == [[3, 5], [], []]
    assert sr.diff(x, n=5).lengths[0].tolist() == [0, 0, 0]
    assert sr.diff(x, axis=1, prepend=torch.zeros(3, 1, dtype=torch.int64)).tolist() == [[1, 3, 5], [], [5]]
    assert sr.diff(x, axis=1, append=sr.ragged([[10], [], [7, 8]])).tolist() == [[3, 5, 1], [], [2, 1]]
    assert torch.diff(x, dim=1).tolist() == x.diff().tolist() == [[3, 5], [], []]
    born = sr.testing.device_born(x, spare=2)
    with sr.testing.forbid_sync():
        got = sr.diff(born, axis=1, n=2)
    assert got.tolist() == [[2], [], []]
    assert sr.diff(torch.zeros(3, 0), axis=1).shape == (3, 0)


# ------------------------------------------------------------------------------------------------ rows stay apart


def test_nan_and_inf_stay_in_their_row_and_sums_lose_nothing():
    nan, inf = float("nan"), float("inf")
    x = sr.ragged([[1e30, nan, 1.0], [1.0, 2.0], [inf, -inf], [3.0], [], [1e-9, 1.0]])
    got = sr.cumulative_sum(x, axis=1)
    assert [row.tolist() for row in got][1] == [1.0, 3.0]
    assert [row.tolist() for row in got][3:] == [[3.0], [], torch.tensor([1e-9, 1.0]).cumsum(0).tolist()]
    assert sr.cumulative_prod(x, axis=1)[1].tolist() == [1.0, 2.0]
    values = x.values.clone().requires_grad_()
    sr.cumulative_sum(x._with(values), axis=1)[1].values.sum().backward()
    assert values.grad.tolist()[3:5] == [2.0, 1.0]
    assert values.grad.isfinite().all()


def test_half_accumulates_in_float32():
    for dtype in (torch.float16, torch.bfloat16):
        for lengths in ([3000, 0, 2], [3000]):
            x = sr.from_lengths(torch.ones(sum(lengths), dtype=dtype), lengths)
            got = sr.cumulative_sum(x, axis=1)
            assert got.dtype == dtype
            assert torch.equal(got[0].torch(), torch.arange(1.0, 3001.0).to(dtype))
        assert sr.cumulative_sum(torch.ones(3000, dtype=dtype)).torch()[-1] == torch.tensor(3000.0).to(dtype)


def test_dtypes_asked_for():
    x = sr.ragged([[1, 2], [3]], dtype=torch.int8)
    assert sr.cumulative_sum(x, axis=1).dtype == torch.int64
    assert sr.cumulative_sum(x, axis=1, dtype=torch.float16).dtype == torch.float16
    assert sr.cumulative_prod(x, axis=1, dtype=torch.int32).dtype == torch.int32
    big = sr.ragged([[100, 100], [3]], dtype=torch.int8)
    assert sr.cumulative_sum(big, axis=1).tolist() == [[100, 200], [3]]
    assert sr.cumulative_sum(torch.tensor([1, 2, 3])).tolist() == [1, 3, 6]


# ------------------------------------------------------------------------------------------------ gradients

GRADED = ["empty rows", "equal rows", "two levels", "product", "permuted", "int32 offsets"]


@pytest.mark.parametrize("name", GRADED)
@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_gradients(op, name):
    x = sample(name, torch.float64)
    values = x.values.clone().requires_grad_()
    for axis in axes_of(x):

        def run(v, axis=axis, **options):
            made = op.function(x._with(v), axis=axis, **options)
            return (made.values if op.name in EXTREMES else made).values

        assert gradcheck(run, [values])
        assert gradgradcheck(run, [values])
        if op.name in SUMS:
            assert gradcheck(lambda v, run=run: run(v, include_initial=True), [values])


def test_gradients_of_products_with_zeros_and_of_complex_ones():
    given = torch.tensor([2.0, 0.0, 3.0, 0.0, 5.0, 0.0, 7.0, -2.0, 0.5], dtype=torch.float64, requires_grad=True)
    x = sr.from_lengths(given.detach(), [5, 0, 3, 1])

    def run(v):
        return sr.cumulative_prod(x._with(v), axis=1).values

    assert gradcheck(run, [given])
    assert gradgradcheck(run, [given])
    (got,) = torch.autograd.grad(run(given).sum(), [given])
    rows = [part.detach().requires_grad_() for part in given.split([5, 3, 1])]
    sum(torch.cumprod(row, 0).sum() for row in rows).backward()
    torch.testing.assert_close(got, torch.cat([row.grad for row in rows]))
    leaf = elements(9, (), torch.complex128).requires_grad_()
    for name in SUMS:
        assert gradcheck(lambda v, name=name: TABLE[name].function(x._with(v), axis=1).values, [leaf])
        assert gradgradcheck(lambda v, name=name: TABLE[name].function(x._with(v), axis=1).values, [leaf])


# ------------------------------------------------------------------------------------------------ devices, faces


@pytest.mark.parametrize("name", ["two levels", "empty rows", "no rows", "product", "permuted", "int32 offsets"])
@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_nothing_waits_for_device_born_lengths(op, name):
    x = sample(name, torch.float64)
    d = sr.testing.device_born(x, spare=3)
    for axis in axes_of(x):
        parent = any(isinstance(a, sr.Ragged) and axis in a.parents for a in x.shape)
        if op.name == "diff" and (parent or name == "product"):
            got = op.function(d, axis=axis)  # lengths that depend on lengths are added up
        else:
            values = d.values.clone().requires_grad_()
            with sr.testing.forbid_sync():
                got = op.function(d._with(values), axis=axis)
                made = got.values if op.name in EXTREMES else got
                (gradient,) = torch.autograd.grad(made.values.sum(), [values])
            leaf = x.values.clone().requires_grad_()
            made = op.function(x._with(leaf), axis=axis)
            (made.values if op.name in EXTREMES else made).values.sum().backward()
            torch.testing.assert_close(gradient[: x.values.shape[0]], leaf.grad)
        want = op.function(x, axis=axis)
        for mine, theirs in zip(got, want, strict=True) if op.name in EXTREMES else [(got, want)]:
            assert mine.flat().tolist() == theirs.flat().tolist()


def test_the_torch_face():
    x = sample("features", torch.float64)
    assert torch.equal(torch.cumsum(x, 1).values, sr.cumulative_sum(x, axis=1).values)
    assert torch.equal(
        torch.cumsum(x, dim=1, dtype=torch.float32).values, sr.cumulative_sum(x.to(torch.float32), axis=1).values
    )
    assert torch.equal(x.cumprod(dim=1).values, sr.cumulative_prod(x, axis=1).values)
    assert torch.equal(x.cumsum(axis=1).values, sr.cumulative_sum(x, axis=1).values)
    pair = torch.cummax(x, dim=1)
    assert isinstance(pair.indices, sr.Tensor)
    values, indices = x.cummin(1)
    assert torch.equal(values[0].torch(), x[0].torch().cummin(0).values)
    assert torch.equal(indices[0].torch(), x[0].torch().cummin(0).indices)
    assert type(torch.cumsum(sr.asarray(torch.ones(3)), 0)) is torch.Tensor
    with pytest.raises(TypeError, match="needs dim"):
        x.cumsum()
    with pytest.raises(TypeError, match="out="):
        torch.cumsum(x, 1, out=torch.ones(3))
    with pytest.raises(TypeError, match="out="):
        torch.diff(x, out=torch.ones(3))


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_wrong_arguments_are_named(op):
    x = sample("features", torch.float32)
    for arguments, error, message in op.errors:
        with pytest.raises(error, match=message):
            eval(f"op.function({arguments})", {"op": op, "x": x, "sr": sr, "torch": torch})


def test_more_wrong_arguments():
    x = sample("rows", torch.float64)
    with pytest.raises(AxisError, match="needs an axis"):
        sr.cumulative_sum(x)
    with pytest.raises(TypeError):
        sr.cummax(x)
    with pytest.raises(RaggednessError):
        sr.diff(x, axis=0, prepend=torch.zeros(1, 2, dtype=torch.float64))


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_the_docstring_runs(op):
    found = doctest.DocTestParser().get_doctest(op.function.__doc__, {}, op.name, None, 0)
    assert found.examples
    assert doctest.DocTestRunner(verbose=False).run(found).failed == 0


def test_giant_rows_and_many_of_them():
    lengths = torch.tensor([0, 100_000, 3, 0, 1])
    x = sr.from_lengths(elements(int(lengths.sum()), (2,), torch.float64), lengths)
    for i, row in enumerate(x):
        torch.testing.assert_close(sr.cumulative_sum(x, axis=1)[i].torch(), row.torch().cumsum(0))
        assert torch.equal(sr.cummax(x, axis=1).values[i].torch(), row.torch().cummax(0).values)
        assert torch.equal(sr.cummax(x, axis=1).indices[i].torch(), row.torch().cummax(0).indices)
