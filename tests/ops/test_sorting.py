"""Sorting: against torch on each group of elements, found by enumerating nested lists, and numpy's searchsorted."""

from __future__ import annotations

import doctest
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given as drawn
from hypothesis import settings
from tests.ops.enumeration import groups, lines
from tests.ops.samples import DTYPES, NAMES, elements, sample
from tests.oracle import Sample
from tests.oracle import samples as structures
from torch.autograd import gradcheck, gradgradcheck

import serrate as sr
from serrate.errors import DeviceMismatchError, RaggednessError
from serrate.ops.record import TABLE

OPS = [op for op in TABLE.values() if op.family == "sorting"]
KINDS = ("float", "int", "bool")
MANY_AXES = (torch.float64, torch.float32, torch.int64, torch.bool)
NAN, INF = float("nan"), float("inf")


def given(name: str) -> Iterator[sr.Tensor]:
    for kind in KINDS:
        for dtype in DTYPES[kind]:
            if name != "NaN and inf" or dtype.is_floating_point:
                yield sample(name, dtype)


def same(got: list[Any], want: list[Any]) -> None:
    assert got == pytest.approx(want, rel=0, abs=0, nan_ok=True)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_sort_and_argsort_equal_torch_on_each_group(name, descending):
    for x in given(name):
        for axis in range(x.ndim) if x.dtype in MANY_AXES else [1]:
            values, places = (each(x, axis=axis, descending=descending) for each in (sr.sort, sr.argsort))
            assert values.structure is places.structure is x.structure
            assert values.dtype == x.dtype
            assert places.dtype == torch.int64
            sorted_groups, place_groups = groups(values, axis), groups(places, axis)
            for index, group in groups(x, axis).items():
                elements_of = torch.tensor([v for _, v in group], dtype=x.dtype)
                want = torch.sort(elements_of, stable=True, descending=descending)
                same([v for _, v in sorted_groups[index]], want.values.tolist())
                assert [i for _, i in place_groups[index]] == [group[i][0] for i in want.indices.tolist()]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
@pytest.mark.parametrize("lengths", [[6, 0, 4, 1], [11], [4, 4, 3]])
def test_nan_inf_and_ties_stand_where_torch_puts_them(dtype, lengths):
    x = sr.from_lengths(torch.tensor([0.0, NAN, -INF, -0.0, INF, NAN, 1.0, 1.0, -1.0, 1.0, NAN], dtype=dtype), lengths)
    for descending in (False, True):
        got = torch.sort(x, 1, descending)
        for i, row in enumerate(x):
            want = torch.sort(row.torch(), stable=True, descending=descending)
            torch.testing.assert_close(got.values[i].torch(), want.values, equal_nan=True)
            assert got.indices[i].tolist() == want.indices.tolist()
            assert torch.equal(got.values[i].torch().signbit(), want.values.signbit())


def test_integers_of_every_width_sort_over_their_whole_range():
    for dtype in (*DTYPES["int"], torch.uint16, torch.uint32, torch.uint64):
        least, most = torch.iinfo(dtype).min, torch.iinfo(dtype).max
        rows = [[most, least, 3, most - 1], [], [5, least, 4]]
        x = sr.from_lengths(torch.tensor([v for row in rows for v in row], dtype=dtype), [4, 0, 3])
        assert sr.sort(x, axis=1).tolist() == [sorted(row) for row in rows]
        assert sr.sort(x, axis=1).dtype == dtype
        assert sr.sort(x, descending=True).tolist() == [sorted(row, reverse=True) for row in rows]
        assert sr.topk(x, 1, axis=1).values.tolist() == [[most], [], [5]]
        assert sr.searchsorted(sr.sort(x), x).tolist() == [[3, 0, 1, 2], [], [2, 0, 1]]


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_topk_gives_the_first_of_each_group(name, largest):
    for x in given(name):
        for axis in range(x.ndim) if x.dtype in MANY_AXES else [1]:
            for k in (0, 1, 2, 1000):
                size = x.shape[axis]
                feature = isinstance(size, int) and x.order[axis] >= len(x.structure.axes)
                if feature and k > size:
                    with pytest.raises(ValueError, match=f"topk takes {k} entries of axis {axis}, which has {size}"):
                        sr.topk(x, k, axis=axis)
                    continue
                got = sr.topk(x, k, axis=axis, largest=largest)
                values, places = lines(got.values, axis), lines(got.indices, axis)
                assert got.values.dtype == x.dtype
                for index, group in groups(x, axis).items():
                    elements_of = torch.tensor([v for _, v in group], dtype=x.dtype)
                    want = torch.sort(elements_of, stable=True, descending=largest)
                    same(values.get(index, []), want.values.tolist()[:k])
                    assert places.get(index, []) == [group[i][0] for i in want.indices.tolist()[:k]]


@settings(max_examples=40, deadline=None)
@drawn(structures())
def test_orders_of_any_structure_equal_enumeration(made: Sample):
    x = made.x._with(made.x.values * 7 % 5)
    for axis in range(x.ndim):
        places = groups(sr.argsort(x, axis=axis), axis)
        feature = x.order[axis] >= len(x.structure.axes)
        top = lines(sr.topk(x, min(2, x.shape[axis]) if feature else 2, axis=axis).values, axis)
        for index, group in groups(x, axis).items():
            order = torch.tensor([v for _, v in group]).sort(stable=True).indices.tolist()
            assert [i for _, i in places[index]] == [group[i][0] for i in order]
            assert top.get(index, []) == sorted([v for _, v in group], reverse=True)[:2]


@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8])
def test_more_rows_than_numbers_above_a_key_are_sorted_in_two_steps(monkeypatch, dtype):
    x = sample("empty rows", dtype)
    want = [each(x, axis=1).indices.tolist() for each in (torch.sort, sr.cummax)]
    monkeypatch.setattr("serrate.eager.runs.MOST_TAGS", 3)
    monkeypatch.setattr("serrate.eager.scans.MOST_TAGS", 3)
    assert [each(x, axis=1).indices.tolist() for each in (torch.sort, sr.cummax)] == want


def test_topk_equals_torchs_and_bounds_what_it_needs():
    x = sample("rows", torch.float64)
    got = torch.topk(x, 2, 1)
    assert got.values.shape == (3, sr.Ragged([2, 1, 2]))
    for i, row in enumerate(x):
        want = torch.topk(row.torch(), min(2, len(row)))
        assert torch.equal(got.values[i].torch(), want.values)
        assert torch.equal(got.indices[i].torch(), want.indices)
    assert got.values.partitions[0] is got.indices.partitions[0]
    assert sr.topk(x, 3, axis=1).values.partitions[0] == x.partitions[0]
    born = sr.testing.device_born(x, spare=30)
    assert sr.topk(born, 2, axis=1).values.partitions[0].num_values == 6
    assert sr.topk(born, 100, axis=1).values.partitions[0].num_values == 36
    assert sr.topk(torch.tensor([[3, 1, 2]]), 2).values.tolist() == [[3, 2]]
    assert sr.topk(torch.tensor([[True, False, True]]), 2).values.tolist() == [[True, True]]


# ------------------------------------------------------------------------------------------------ searchsorted


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", NAMES)
def test_searchsorted_equals_numpy_on_each_group(name, side):
    for x in given(name):
        for axis in range(x.ndim):
            if any(isinstance(a, sr.Ragged) and axis in a.parents for a in x.shape):
                continue
            wanted = x._with(x.values.flip(0))
            got = sr.searchsorted(sr.sort(x, axis=axis), wanted, side=side, axis=axis)
            by_sorter = sr.searchsorted(x, wanted, side=side, axis=axis, sorter=sr.argsort(x, axis=axis))
            assert got.structure is x.structure
            assert got.dtype == torch.int64
            assert by_sorter.tolist() == got.tolist()
            found, looked_for = groups(got, axis), groups(wanted, axis)
            for index, group in groups(x, axis).items():
                sequence = np.sort([v for _, v in group])
                want = np.searchsorted(sequence, [v for _, v in looked_for[index]], side=side)
                assert [i for _, i in found[index]] == want.tolist()


def test_searchsorted_in_rows_of_other_lengths():
    x = sr.ragged([[1.0, 3.0, 5.0], [], [2.0, 2.0]])
    wanted = sr.ragged([[0.0, 3.0, 9.0, 5.0], [4.0], []])
    assert sr.searchsorted(x, wanted).tolist() == [[0, 1, 3, 2], [0], []]
    assert sr.searchsorted(x, wanted, side="right").tolist() == [[0, 2, 3, 3], [0], []]
    assert sr.searchsorted(x, wanted).structure is wanted.structure
    dense = torch.tensor([[3.0, 6.0], [1.0, 1.0], [2.0, 1.0]])
    assert sr.searchsorted(x, dense, side="right").tolist() == [[2, 3], [0, 0], [2, 0]]
    assert sr.searchsorted(x, torch.tensor([2, 3])).tolist() == [[1, 1], [0, 0], [0, 2]]
    edges = torch.tensor([1.0, 2.0, 4.0])
    assert sr.searchsorted(edges, wanted).tolist() == [[0, 2, 3, 3], [2], []]
    assert sr.searchsorted(edges, wanted, sorter=torch.tensor([0, 1, 2])).tolist() == [[0, 2, 3, 3], [2], []]
    rows = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    assert sr.searchsorted(rows, wanted).tolist() == [[0, 2, 2, 2], [1], []]
    assert sr.searchsorted(rows, torch.tensor([[2.0], [9.0], [5.5]])).tolist() == [[1], [2], [1]]
    empty = sr.from_lengths(torch.zeros(0), [0, 0, 0])
    assert sr.searchsorted(empty, wanted).tolist() == [[0, 0, 0, 0], [0], []]
    levels = sr.ragged([[[1, 4], []], [[2, 3, 7]]])
    assert sr.searchsorted(levels, sr.ragged([[[3], [5, 6]], [[7]]])).tolist() == [[[1], [0, 0]], [[2]]]


def test_searchsorted_takes_nan_for_the_greatest_and_infinities_for_what_they_are():
    x = sr.ragged([[-INF, 0.0, 1.0, INF, NAN, NAN], [NAN], []])
    wanted = sr.ragged([[-INF, -0.0, 0.5, INF, NAN], [1.0, NAN], [NAN]])
    for side in ("left", "right"):
        got = sr.searchsorted(x, wanted, side=side)
        for i in range(3):
            want = np.searchsorted(np.array(x[i].tolist()), np.array(wanted[i].tolist()), side=side)
            assert got[i].tolist() == want.tolist()
        assert sr.searchsorted(x[0], wanted[0], side=side).tolist() == got[0].tolist()


def test_long_and_short_rows_are_searched_alike():
    lengths = [0, 1, 2, 1000, 3, 64, 63, 65]
    x = sr.sort(sr.from_lengths(elements(sum(lengths), (), torch.float32), lengths))
    wanted = sr.from_lengths(elements(400, (), torch.float32, seed=5), [50] * 8)
    got = sr.searchsorted(x, wanted)
    for i in range(8):
        assert got[i].tolist() == torch.searchsorted(x[i].torch(), wanted[i].torch()).tolist()


# ------------------------------------------------------------------------------------------------ gradients, devices


@pytest.mark.parametrize("name", ["empty rows", "equal rows", "two levels", "product", "permuted"])
def test_gradients(name):
    x = sample(name, torch.float64)
    values = x.values.clone().requires_grad_()
    for axis in range(x.ndim):
        for run in (
            lambda v, axis=axis: sr.sort(x._with(v), axis=axis, descending=True).values,
            lambda v, axis=axis: sr.topk(x._with(v), 1, axis=axis).values.values,
        ):
            assert gradcheck(run, [values])
            assert gradgradcheck(run, [values])
    assert not sr.argsort(x._with(values)).requires_grad


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.int16])
@pytest.mark.parametrize("name", ["two levels", "empty rows", "no rows", "product", "permuted", "int32 offsets"])
def test_nothing_waits_for_device_born_lengths(name, dtype):
    x = sample(name, dtype)
    d = sr.testing.device_born(x, spare=3)
    for axis in range(x.ndim):
        with sr.testing.forbid_sync():
            got, places = torch.sort(d, axis)
            falling = torch.sort(d, axis, descending=True)
        assert falling.values.tolist() == sr.sort(x, axis=axis, descending=True).tolist()
        assert got.tolist() == sr.sort(x, axis=axis).tolist()
        assert places.tolist() == sr.argsort(x, axis=axis).tolist()
        if any(isinstance(a, sr.Ragged) and axis in a.parents for a in x.shape) or name == "product":
            top = sr.topk(d, 1, axis=axis)
        else:
            with sr.testing.forbid_sync():
                top = sr.topk(d, 1, axis=axis)
                found = sr.searchsorted(got, d, axis=axis, sorter=sr.argsort(got, axis=axis))
            assert found.tolist() == sr.searchsorted(sr.sort(x, axis=axis), x, axis=axis).tolist()
        want = sr.topk(x, 1, axis=axis)
        assert top.values.flat().tolist() == want.values.flat().tolist()
        assert top.indices.flat().tolist() == want.indices.flat().tolist()


def test_no_gradient_comes_through_undefined_rows():
    x = sample("features", torch.float64)
    d = sr.testing.device_born(x, spare=3)
    for function in (
        lambda t: sr.topk(t, 2, axis=1).values,
        lambda t: sr.sort(t, axis=1),
        lambda t: sr.sort(t, axis=0),
    ):
        grads = []
        for tensor in (x, d):
            leaf = tensor.values.clone().requires_grad_()
            function(tensor._with(leaf)).values.sum().backward()
            grads.append(leaf.grad[:6])
        assert torch.equal(*grads)


# ------------------------------------------------------------------------------------------------ faces and errors


def test_the_torch_face():
    x = sample("rows", torch.float64)
    values, places = torch.sort(x)
    assert torch.equal(values.values, sr.sort(x).values)
    assert torch.equal(places.values, sr.argsort(x).values)
    assert torch.equal(
        torch.sort(x, stable=True, dim=1, descending=True).values.values, sr.sort(x, descending=True).values
    )
    assert torch.equal(torch.argsort(x, 1, True).values, sr.argsort(x, descending=True).values)
    assert isinstance(x.sort(1).indices, sr.Tensor)
    assert torch.equal(x.argsort().values, sr.argsort(x).values)
    assert x.topk(1).values.tolist() == sr.topk(x, 1).values.tolist()
    edges = torch.tensor([0.3, 0.6], dtype=torch.float64)
    assert torch.searchsorted(edges, x).tolist() == sr.searchsorted(edges, x).tolist()
    assert torch.searchsorted(edges, x, right=True, out_int32=True).dtype == torch.int32
    assert torch.searchsorted(sr.asarray(edges), 0.5).tolist() == 1
    assert type(torch.sort(sr.asarray(edges)).values) is torch.Tensor
    for call in (
        lambda: torch.sort(x, out=(edges, edges)),
        lambda: torch.topk(x, 1, out=(edges, edges)),
        lambda: torch.searchsorted(edges, x, out=edges),
        lambda: torch.argsort(x, out=edges),
    ):
        with pytest.raises(TypeError):
            call()
    with pytest.raises(ValueError, match='side="left" and right=True'):
        torch.searchsorted(edges, x, side="left", right=True)


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_wrong_arguments_are_named(op):
    x = sample("features", torch.float32)
    for arguments, error, message in op.errors:
        with pytest.raises(error, match=message):
            eval(f"op.function({arguments})", {"op": op, "x": x, "sr": sr, "torch": torch})


def test_more_wrong_arguments():
    x = sr.ragged([[1.0, 2.0], [3.0]])
    with pytest.raises(TypeError, match="sorter must hold integers"):
        sr.searchsorted(x, x, sorter=x)
    with pytest.raises(ValueError, match="sorter must have shape"):
        sr.searchsorted(x, x, sorter=torch.zeros(2, 2, dtype=torch.int64))
    for row in ([[0, 2], [0]], [[0, 1], [-1]]):
        with pytest.raises(IndexError, match="which is no position of a row"):
            sr.searchsorted(x, x, sorter=sr.ragged(row))
    with pytest.raises(IndexError, match="sorter holds 7"):
        sr.searchsorted(torch.ones(2), x, sorter=torch.tensor([0, 7]))
    with pytest.raises(RaggednessError):
        sr.searchsorted(x, sr.ragged([[[1.0], [2.0], []]]))
    with pytest.raises(TypeError, match=r"expected an sr\.Tensor"):
        sr.searchsorted(x, "3")
    assert sr.searchsorted(x, 3.0).tolist() == [[2], [0]]  # a number is sought in every row
    with pytest.raises(DeviceMismatchError):
        sr.searchsorted(x, torch.ones(2, 2, device="meta"))
    with pytest.raises(TypeError):
        sr.topk(x, 1.5)


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_the_docstring_runs(op):
    found = doctest.DocTestParser().get_doctest(op.function.__doc__, {}, op.name, None, 0)
    assert found.examples
    assert doctest.DocTestRunner(verbose=False).run(found).failed == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_giant_rows_and_many_of_them(dtype):
    lengths = torch.tensor([0, 50_000, 3, 0, 1])
    x = sr.from_lengths(elements(int(lengths.sum()), (2,), dtype), lengths)
    got = sr.sort(x, axis=1)
    for i, row in enumerate(x):
        assert torch.equal(got[i].torch(), row.torch().sort(0).values)
    many = sr.from_lengths(elements(60_000, (), dtype), torch.arange(60_000).remainder(3)[:60_000])
    firsts = sr.sort(many, axis=1)
    assert bool((sr.diff(firsts, axis=1).values >= 0).all())
    torch.testing.assert_close(sr.sum(firsts, axis=1).values, sr.sum(many, axis=1).values)
