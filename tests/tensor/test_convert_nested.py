"""torch.nested, both ways: jagged layout (transposed, with holes) and strided layout."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.tensor.structures import chains, numbers

import serrate as sr

pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype stage")


def jagged(*shapes, **options):
    return torch.nested.nested_tensor([torch.randn(*s) for s in shapes], layout=torch.jagged, **options)


def assert_rows(x, rows):
    assert len(x) == len(rows)
    for mine, theirs in zip(x.rows(), rows, strict=True):
        assert torch.equal(mine.torch(), theirs)


@given(chains(max_levels=1, dtypes=[torch.float32, torch.float64, torch.int64, torch.bool, torch.bfloat16]))
def test_round_trip(chain):
    nt = chain.x.to_nested()
    assert nt.layout == torch.jagged
    if chain.lists:
        assert [row.tolist() for row in nt.unbind()] == chain.lists
    back = sr.from_nested(nt)
    assert back.tolist() == chain.lists
    assert back.shape == chain.x.shape
    assert back.dtype == chain.x.dtype


@given(st.permutations([1, 2, 3]), st.lists(st.integers(0, 3), min_size=1, max_size=4))
def test_round_trip_of_permuted_tensors(axes, lengths):
    x = sr.from_lengths(numbers(sum(lengths), 2, 3), lengths).permute_dims((0, *axes))
    nt = x.to_nested()
    assert_rows(x, nt.unbind())
    back = sr.from_nested(nt)
    assert back.shape == x.shape
    assert_rows(back, nt.unbind())


def test_jagged_layout_is_not_copied():
    nt = jagged((2, 3), (0, 3), (4, 3))
    x = sr.from_nested(nt)
    assert x.shape == (3, sr.Ragged([2, 0, 4]), 3)
    assert x.values.data_ptr() == nt.values().data_ptr()
    assert x.to_nested().values().data_ptr() == x.values.data_ptr()


@pytest.mark.parametrize(("a", "b"), [(1, 2), (1, 3), (2, 3)])
def test_transposed(a, b):
    nt = jagged((2, 3, 5), (4, 3, 5), (1, 3, 5)).transpose(a, b)
    x = sr.from_nested(nt)
    shape = [3, sr.Ragged([2, 4, 1]), 3, 5]
    shape[a], shape[b] = shape[b], shape[a]
    assert x.shape == tuple(shape)
    assert_rows(x, nt.unbind())
    assert x.values.data_ptr() == nt.values().data_ptr()


@pytest.mark.parametrize("transposed", [False, True])
def test_holes_are_closed(transposed):
    data = numbers(3, 8, 2)
    nt = torch.nested.narrow(
        data, dim=1, start=torch.tensor([0, 1, 2]), length=torch.tensor([3, 0, 5]), layout=torch.jagged
    )
    assert nt.lengths() is not None
    rows = [data[0, :3], data[1, :0], data[2, 2:7]]
    if transposed:
        nt, rows = nt.transpose(1, 2), [row.T for row in rows]
    x = sr.from_nested(nt)
    assert x.lengths[0].tolist() == [3, 0, 5]
    assert x.values.shape[0] == 8
    assert_rows(x, rows)


def test_gradients_flow_through_holes():
    data = numbers(3, 4).requires_grad_()
    nt = torch.nested.narrow(
        data, dim=1, start=torch.tensor([0, 1, 2]), length=torch.tensor([2, 0, 2]), layout=torch.jagged
    )
    (sr.from_nested(nt).values * torch.tensor([1.0, 2.0, 3.0, 4.0])).sum().backward()
    assert data.grad.tolist() == [[1, 2, 0, 0], [0, 0, 0, 0], [0, 0, 3, 4]]


def test_gradients_flow_both_ways():
    nt = jagged((2, 3), (1, 3), requires_grad=True)
    sr.from_nested(nt).values.mul(2).sum().backward()
    assert torch.equal(nt.grad.values(), torch.full((3, 3), 2.0))
    x = sr.from_lengths(numbers(3, 2), [1, 2]).requires_grad_()
    x.mT.to_nested().values().mul(3).sum().backward()
    assert torch.equal(x.grad.values, torch.full((3, 2), 3.0))


def test_torch_operations_take_it():
    x = sr.from_lengths(numbers(5, 2), [2, 0, 3])
    total = x.to_nested().sum(1)
    assert torch.equal(total, torch.stack([row.torch().sum(0) for row in x.rows()]))
    padded = torch.nested.to_padded_tensor(x.to_nested(), -1.0)
    assert torch.equal(padded, x.to_dense(-1.0).torch())


def test_strided_layout():
    rows = [torch.randn(2, 3), torch.randn(4, 3), torch.randn(0, 3)]
    x = sr.from_nested(torch.nested.nested_tensor(rows))
    assert x.shape == (3, sr.Ragged([2, 4, 0]), 3)
    assert_rows(x, rows)


def test_strided_layout_carries_gradients():
    nt = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(1, 3)], requires_grad=True)
    sr.from_nested(nt).values.mul(5).sum().backward()
    assert all(torch.equal(g, torch.full_like(g, 5.0)) for g in nt.grad.unbind())


def test_strided_layout_ragged_in_two_axes_is_refused():
    nt = torch.nested.nested_tensor([torch.randn(2, 3), torch.randn(4, 2)])
    with pytest.raises(sr.errors.RaggednessError, match=r"row 0 .*\[2, 3\].* row 1 .*\[4, 2\]"):
        sr.from_nested(nt)


@pytest.mark.parametrize(
    "x",
    [
        sr.ragged([[[1]]]),
        sr.asarray([1]),
        sr.ragged([[1, 2], [3]]).mT,
        sr.from_product(torch.ones(6), sr.Partition.from_lengths([2, 1]), sr.Partition.from_lengths([3, 0])),
    ],
)
def test_what_torch_nested_cannot_hold_is_refused(x):
    with pytest.raises(sr.errors.RaggednessError, match=r"torch\.nested holds one ragged axis"):
        x.to_nested()


def test_what_is_not_nested_is_refused():
    with pytest.raises(TypeError, match=r"torch\.nested tensor, got Tensor"):
        sr.from_nested(torch.ones(2))
    with pytest.raises(TypeError, match="got list"):
        sr.from_nested([torch.ones(2)])


def test_undefined_rows_of_a_device_born_tensor_stay_out():
    x = sr.from_lengths(numbers(5, 2), [2, 0, 3])
    nt = sr.testing.device_born(x, spare=2).to_nested()
    assert [row.tolist() for row in nt.unbind()] == x.tolist()
