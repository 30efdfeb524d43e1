"""Distinct elements and what is not 0: against numpy and Python on each group, found by enumerating nested lists."""

from __future__ import annotations

import cmath
import doctest
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given as drawn
from hypothesis import settings
from tests.ops.enumeration import cells, groups, lines
from tests.ops.samples import DTYPES, NAMES, elements, sample
from tests.oracle import Sample
from tests.oracle import samples as structures
from torch.autograd import gradcheck

import serrate as sr
from serrate.errors import AxisError, SyncError
from serrate.ops.record import TABLE

OPS = [op for op in TABLE.values() if op.family == "sets"]
MANY_AXES = (torch.float64, torch.float32, torch.int64, torch.complex64, torch.bool)
NAN = float("nan")


def given(name: str) -> Iterator[sr.Tensor]:
    """Tensors of every dtype with few distinct elements, 0 among them."""
    for dtypes in DTYPES.values():
        for dtype in dtypes:
            if name != "NaN and inf" or dtype.is_floating_point:
                x = sample(name, dtype)
                if dtype.is_floating_point:
                    x = x._with((x.values * 4).floor() - 1)
                elif dtype.is_complex:
                    x = x._with(torch.view_as_complex((torch.view_as_real(x.values) * 4).floor()) - 1)
                yield x


def same(got: list[Any], want: list[Any]) -> None:
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        assert a == b or (cmath.isnan(a) and cmath.isnan(b))


def check(made: Any, group: list[tuple[int, Any]], key: Any) -> None:
    """The four results of one group, as lists, against numpy."""
    values, indices, inverse, counts = made
    want = np.unique(np.array([v for _, v in group]), True, True, True, equal_nan=False)
    same(values, want[0].tolist())
    assert indices == [group[i][0] for i in want[1]], key
    assert inverse == want[2].tolist(), key
    assert counts == want[3].tolist(), key


@pytest.mark.parametrize("name", NAMES)
def test_unique_with_an_axis_equals_numpy_on_each_group(name):
    for x in given(name):
        for axis in range(x.ndim) if x.dtype in MANY_AXES else [1]:
            made = sr.unique_all(x, axis=axis)
            assert made.values.dtype == x.dtype
            assert made.inverse_indices.structure is x.structure
            values, indices, counts = (lines(t, axis) for t in (made.values, made.indices, made.counts))
            inverse = groups(made.inverse_indices, axis)
            for index, group in groups(x, axis).items():
                check(
                    (values[index], indices[index], [i for _, i in inverse[index]], counts[index]), group, (axis, index)
                )
            assert set(values) == set(groups(x, axis))


@pytest.mark.parametrize("name", NAMES)
def test_unique_of_everything_equals_numpy_on_the_packed_elements(name):
    for x in given(name):
        made = sr.unique_all(x)
        flat = x.values.reshape(-1).tolist()
        assert all(t.ndim == 1 for t in (made.values, made.indices, made.counts))
        assert made.inverse_indices.shape == x.shape
        inverse = made.inverse_indices.values.reshape(-1).tolist()
        check((made.values.tolist(), made.indices.tolist(), inverse, made.counts.tolist()), list(enumerate(flat)), name)


@settings(max_examples=40, deadline=None)
@drawn(structures())
def test_distinct_elements_of_any_structure_equal_numpys(made: Sample):
    x = made.x._with(made.x.values * 7 % 3)
    for axis in range(x.ndim):
        got = sr.unique_all(x, axis=axis)
        values, indices, counts = (lines(t, axis) for t in (got.values, got.indices, got.counts))
        inverse, positions = groups(got.inverse_indices, axis), lines(sr.nonzero(x, axis=axis), axis)
        for at, group in groups(x, axis).items():
            check((values[at], indices[at], [i for _, i in inverse[at]], counts[at]), group, (axis, at))
            assert positions.get(at, []) == [i for i, value in group if value]


def test_results_share_one_structure_and_their_names():
    x = sr.ragged([[3, 1, 3], [], [2, 2]])
    for axis in (None, 1):
        made = sr.unique_all(x, axis=axis)
        assert made._fields == ("values", "indices", "inverse_indices", "counts")
        assert sr.unique_values(x, axis=axis).tolist() == made.values.tolist()
        values, counts = sr.unique_counts(x, axis=axis)
        assert (values.tolist(), counts.tolist()) == (made.values.tolist(), made.counts.tolist())
        pair = sr.unique_inverse(x, axis=axis)
        assert pair._fields == ("values", "inverse_indices")
        assert pair.inverse_indices.tolist() == made.inverse_indices.tolist()
        assert sr.unique_counts(x, axis=axis)._fields == ("values", "counts")
    assert made.values.structure is made.counts.structure is made.indices.structure
    assert made.values.shape == (3, sr.Ragged([2, 0, 1]))
    assert x[sr.argsort(x, axis=1)].tolist() == [[1, 3, 3], [], [2, 2]]
    assert made.values[made.inverse_indices].tolist() == x.tolist()


def test_the_axis_of_distinct_elements_depends_on_all_the_others():
    x = sr.from_lengths(torch.tensor([[1, 2], [1, 3], [5, 5]]), [2, 1])
    made = sr.unique_values(x, axis=1)
    assert made.shape == (2, sr.Ragged([1, 2, 1, 1], parents=(0, 2)), 2)
    assert made.permute_dims((0, 2, 1)).tolist() == [[[1], [2, 3]], [[5], [5]]]
    assert sr.unique_values(x, axis=2).tolist() == [[[1, 2], [1, 3]], [[5]]]
    along_rows = sr.unique_values(x, axis=0)
    assert along_rows.shape == (sr.Ragged([2, 2, 1, 1], parents=(1, 2)), 2, 2)
    dense = sr.unique_values(torch.tensor([[1, 1, 2], [3, 3, 3]]), axis=1)
    assert dense.shape == (2, sr.Ragged([2, 1]))
    assert sr.unique_values(torch.tensor([3, 1, 3]), axis=0).tolist() == [1, 3]
    levels = sr.ragged([[[1, 1], []], [[2, 3, 2]]])
    assert sr.unique_values(levels, axis=2).partitions[0] is levels.partitions[0]
    int32 = sr.unique_values(sample("int32 offsets", torch.int64), axis=-1)
    assert int32.partitions[-1].dtype == torch.int32


def test_each_nan_is_distinct_and_zeros_are_one():
    x = sr.ragged([[NAN, 1.0, NAN], [], [-0.0, 0.0, 0.0]])
    made = sr.unique_all(x, axis=1)
    assert made.counts.tolist() == [[1, 1, 1], [], [3]]
    assert made.indices.tolist() == [[1, 0, 2], [], [0]]
    assert made.inverse_indices.tolist() == [[1, 0, 2], [], [0, 0, 0]]
    odd = sr.unique_counts(torch.tensor([complex(1, NAN), complex(NAN, 1), complex(1, NAN), 2j, 2j]))
    assert odd.counts.tolist() == [2, 1, 1, 1]


def test_integers_over_their_whole_range():
    for dtype in (*DTYPES["int"], torch.uint16, torch.uint32, torch.uint64):
        least, most = torch.iinfo(dtype).min, torch.iinfo(dtype).max
        x = sr.from_lengths(torch.tensor([most, least, most, 1, 1], dtype=dtype), [3, 2])
        assert sr.unique_values(x, axis=1).tolist() == [[least, most], [1]]
        assert sr.unique_values(x).tolist() == [least, 1, most]
        assert sr.nonzero(x, axis=1).tolist() == ([[0, 1, 2], [0, 1]] if least else [[0, 2], [0, 1]])


def test_gradient_goes_to_where_an_element_stands_first():
    x = sr.ragged([[3.0, 1.0, 3.0], [], [2.0]], dtype=torch.float64)
    values = x.values.clone().requires_grad_()
    sr.unique_values(x._with(values), axis=1).values.sum().backward()
    assert values.grad.tolist() == [1.0, 1.0, 0.0, 1.0]
    distinct = elements(4, (), torch.float64).requires_grad_()
    assert gradcheck(lambda v: sr.unique_values(x._with(v), axis=1).values, [distinct])


# ------------------------------------------------------------------------------------------------ nonzero


@pytest.mark.parametrize("name", NAMES)
def test_nonzero_equals_enumeration(name):
    for x in given(name):
        got = sr.nonzero(x)
        assert len(got) == x.ndim
        assert all(isinstance(t, sr.Tensor) and t.ndim == 1 and t.dtype == torch.int64 for t in got)
        stored = [index for index, value in cells(x.tolist()) if value != 0]
        found = list(zip(*[t.tolist() for t in got], strict=True))
        assert sorted(found) == stored
        if x.order == tuple(range(x.ndim)):
            assert found == stored
        for axis in range(x.ndim):
            along = sr.nonzero(x, axis=axis)
            positions = lines(along, axis)
            for index, group in groups(x, axis).items():
                assert positions.get(index, []) == [i for i, value in group if value != 0]


def test_nonzero_of_rows():
    x = sr.ragged([[0, 1, 5], [], [0, 2]])
    assert [t.tolist() for t in sr.nonzero(x)] == [[0, 0, 2], [1, 2, 1]]
    assert sr.nonzero(x, axis=1).tolist() == [[1, 2], [], [1]]
    assert torch.nonzero(x).tolist() == [[0, 1], [0, 2], [2, 1]]
    assert [t.tolist() for t in torch.nonzero(x, as_tuple=True)] == [[0, 0, 2], [1, 2, 1]]
    assert type(torch.nonzero(x)) is torch.Tensor
    assert x.nonzero().tolist() == [[0, 1], [0, 2], [2, 1]]
    dense = torch.tensor([[0.0, NAN], [2.0, 0.0]])
    assert [t.tolist() for t in sr.nonzero(dense)] == [t.tolist() for t in dense.nonzero(as_tuple=True)]
    assert [t.tolist() for t in sr.nonzero(sr.asarray(dense).mT)] == [[0, 1], [1, 0]]
    with pytest.raises(AxisError, match="0-d"):
        sr.nonzero(torch.tensor(1.0))


# ------------------------------------------------------------------------------------------------ devices, faces


@pytest.mark.parametrize("name", ["two levels", "empty rows", "no rows", "product", "permuted", "int32 offsets"])
@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_device_born_lengths_are_waited_for_once_and_undefined_rows_left_out(op, name):
    x = sample(name, torch.int64)
    d = sr.testing.device_born(x, spare=3)
    for axis in (None, *range(x.ndim)):
        got, want = op.function(d, axis=axis), op.function(x, axis=axis)
        for mine, theirs in zip(got, want, strict=True) if isinstance(got, tuple) else [(got, want)]:
            assert mine.flat().tolist() == theirs.flat().tolist()
            assert mine.is_ragged == theirs.is_ragged
            assert not mine.is_ragged or all(not p.is_host_born for p in mine.partitions)
    if name == "empty rows":
        with pytest.raises(SyncError), sr.testing.forbid_sync():
            op.function(d, axis=1)


def test_the_torch_face():
    x = sr.ragged([[3, 1, 3], [], [2]])
    assert torch.unique(x).tolist() == [1, 2, 3]
    assert type(torch.unique(x)) is torch.Tensor
    values, inverse, counts = torch.unique(x, return_inverse=True, return_counts=True)
    assert (values.tolist(), counts.tolist()) == ([1, 2, 3], [1, 1, 2])
    assert inverse.tolist() == [[2, 0, 2], [], [1]]
    values, counts = torch.unique(x, return_counts=True)
    assert counts.tolist() == [1, 1, 2]
    assert x.unique().tolist() == [1, 2, 3]
    with pytest.raises(TypeError, match=r"sr\.unique_values"):
        torch.unique(x, dim=1)
    with pytest.raises(TypeError, match="out="):
        torch.nonzero(x, out=torch.ones(3, dtype=torch.int64))


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_wrong_arguments_are_named(op):
    x = sample("features", torch.float32)
    for arguments, error, message in op.errors:
        with pytest.raises(error, match=message):
            eval(f"op.function({arguments})", {"op": op, "x": x, "sr": sr, "torch": torch})


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_the_docstring_runs(op):
    found = doctest.DocTestParser().get_doctest(op.function.__doc__, {}, op.name, None, 0)
    assert found.examples
    assert doctest.DocTestRunner(verbose=False).run(found).failed == 0
