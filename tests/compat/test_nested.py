"""serrate.compat.nested returns the rows that torch.nested returns, and raises errors for wrong arguments."""

from __future__ import annotations

import inspect

import pytest
import torch

import serrate as sr
from serrate.compat import nested
from serrate.errors import AxisError, RaggednessError

JAGGED = {"layout": torch.jagged}


def same(x, nt):
    """Assert that both have the same rows, with the same values, shapes and dtypes."""
    assert isinstance(x, sr.Tensor)
    assert x.dtype == nt.dtype
    assert x.ndim == nt.dim()
    rows, expected = x.unbind(), nt.unbind()
    assert len(rows) == len(expected) == nt.size(0)
    for row, wanted in zip(rows, expected, strict=True):
        torch.testing.assert_close(row.torch(), wanted, rtol=0, atol=0)


def entries(*sizes, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(*size, generator=generator).to(dtype) for size in sizes]


LISTS = {
    "vectors": [(2,), (0,), (3,)],
    "features": [(2, 4), (0, 4), (3, 4)],
    "one": [(2, 4)],
    "equal": [(2, 4), (2, 4)],
    "second axis": [(4, 2), (4, 0), (4, 5)],
    "middle axis": [(2, 1, 3), (2, 4, 3)],
    "no entries in any": [(0, 2), (0, 2)],
}
each_list = pytest.mark.parametrize("sizes", LISTS.values(), ids=LISTS)


@each_list
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bfloat16])
def test_from_a_list(sizes, dtype):
    given = entries(*sizes, dtype=dtype)
    same(nested.nested_tensor(given, **JAGGED), torch.nested.nested_tensor(given, **JAGGED))
    same(nested.as_nested_tensor(given, **JAGGED), torch.nested.as_nested_tensor(given, **JAGGED))
    assert nested.nested_tensor(given).shape == nested.nested_tensor(given, **JAGGED).shape
    options = {"dtype": torch.float64, "device": "cpu"}
    same(nested.nested_tensor(given, **options), torch.nested.nested_tensor(given, **options, **JAGGED))
    same(nested.as_nested_tensor(tuple(given), **options), torch.nested.as_nested_tensor(given, **options, **JAGGED))


def test_lists_of_numbers():
    given = [[1.0, 2.0], [3.0]]
    same(nested.nested_tensor(given, **JAGGED), torch.nested.nested_tensor(given, **JAGGED))


def test_history_is_left_or_kept():
    given = [t.requires_grad_() for t in entries((2, 3), (1, 3))]
    new = nested.nested_tensor(given, requires_grad=True)
    assert new.is_leaf
    assert new.requires_grad
    assert not nested.nested_tensor(given).requires_grad
    found = []
    for module in (nested, torch.nested):
        kept = module.as_nested_tensor(given, **JAGGED)
        assert not kept.is_leaf
        values = kept.values if isinstance(kept, sr.Tensor) else kept.values()
        found.append(torch.autograd.grad((values**3).sum(), given))
    torch.testing.assert_close(found[0], found[1])


def test_several_axes_differ():
    given = entries((2, 5), (3, 4), (0, 1))
    x = nested.nested_tensor(given)
    assert [row.torch().tolist() for row in x.unbind()] == [t.tolist() for t in given]
    given = entries((2, 7, 5), (3, 7, 4))
    x = nested.nested_tensor(given)
    assert x.size(2) == 7
    for row, expected in zip(x.unbind(), given, strict=True):
        torch.testing.assert_close(row.torch(), expected)
    with pytest.raises(RaggednessError, match=r"axes \[0, 2\]"):
        nested.nested_tensor(given, **JAGGED)


@pytest.mark.parametrize("shape", [(3, 4), (3, 4, 2), (0, 4, 2), (3, 0)])
def test_from_a_dense_tensor(shape):
    given = torch.randn(*shape)
    if shape[0] and shape[1]:
        same(nested.as_nested_tensor(given), torch.nested.as_nested_tensor(given, **JAGGED))
        given = given.transpose(0, 1)
        same(nested.as_nested_tensor(given), torch.nested.as_nested_tensor(given, **JAGGED))
    x = nested.as_nested_tensor(given)
    assert x.is_ragged
    assert x.values.shape[0] == shape[0] * shape[1]
    assert nested.as_nested_tensor(x) is x
    assert nested.as_nested_tensor(x, dtype=torch.float64).dtype == torch.float64


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("axis", [None, 1, 2, 3])
def test_from_jagged(dtype, axis):
    shape = [2, 4]
    shape.insert((axis or 1) - 1, 6)
    values, offsets = torch.randn(*shape), torch.tensor([0, 2, 2, 6], dtype=dtype)
    for cuts in (
        {"offsets": offsets},
        {"lengths": offsets.diff()},
        {"offsets": offsets, "min_seqlen": 0, "max_seqlen": 4},
    ):
        same(
            nested.nested_tensor_from_jagged(values, jagged_dim=axis, **cuts),
            torch.nested.nested_tensor_from_jagged(values, jagged_dim=axis, **cuts),
        )
    cuts = {"offsets": offsets, "lengths": torch.tensor([1, 0, 3], dtype=dtype)}
    same(
        nested.nested_tensor_from_jagged(values, jagged_dim=axis, **cuts),
        torch.nested.nested_tensor_from_jagged(values, jagged_dim=axis, **cuts),
    )


def test_from_jagged_is_a_view_that_gradients_pass():
    values = torch.randn(6, 2, requires_grad=True)
    x = nested.nested_tensor_from_jagged(values, torch.tensor([0, 2, 6]))
    assert x.values.data_ptr() == values.data_ptr()
    x.values.sum().backward()
    assert values.grad.tolist() == [[1.0, 1.0]] * 6


@pytest.mark.parametrize(
    ("start", "length"),
    [
        (0, 2),
        (1, torch.tensor([3, 0, 2])),
        (torch.tensor([1, 0, 2]), 2),
        (torch.tensor([0, 2, 3]), torch.tensor([2, 2, 1])),
        (0, 4),
    ],
)
@pytest.mark.parametrize("features", [(), (3,)])
def test_narrow(start, length, features):
    given = torch.randn(3, 4, *features)
    same(nested.narrow(given, 1, start, length, **JAGGED), torch.nested.narrow(given, 1, start, length, **JAGGED))


def test_narrow_along_other_axes_and_its_gradient():
    given = torch.randn(3, 4, 5, dtype=torch.float64, requires_grad=True)
    assert nested.narrow(given, 2, 1, 3).tolist() == given[:, :, 1:4].tolist()
    starts, lengths = torch.tensor([0, 1, 3]), torch.tensor([2, 0, 1])
    assert torch.autograd.gradcheck(lambda t: nested.narrow(t, 1, starts, lengths, **JAGGED).values, given)


@pytest.mark.parametrize("mask", [torch.tensor([[True, False, True], [False] * 3]), torch.tensor([False]), None])
def test_masked_select(mask):
    given = torch.randn(2, 3)
    mask = given > 0 if mask is None else mask
    same(nested.masked_select(given, mask), torch.nested.masked_select(given, mask))


def test_masked_select_keeps_the_axes_before():
    given = torch.randn(2, 3, 4)
    x = nested.masked_select(given, given > 0)
    assert x.tolist() == [[row[row > 0].tolist() for row in rows] for rows in given]
    flattened = torch.nested.masked_select(given, given > 0)
    torch.testing.assert_close(x.values, flattened.values())
    line = torch.tensor([1.0, 2.0, 3.0])
    same(nested.masked_select(line, line > 1), torch.nested.masked_select(line, line > 1))


@each_list
@pytest.mark.parametrize("padding", [0.0, -1.5])
def test_padded(sizes, padding):
    given = entries(*sizes)
    made = nested.to_padded_tensor(nested.nested_tensor(given), padding)
    assert type(made) is torch.Tensor
    expected = torch.full(made.shape, padding)
    for row, entry in zip(expected, given, strict=True):
        row[tuple(slice(size) for size in entry.shape)] = entry
    torch.testing.assert_close(made, expected, rtol=0, atol=0)
    if sizes[0][1:] == sizes[-1][1:] and made.numel():  # torch pads only the axis next to the batch.
        torch.testing.assert_close(
            made, torch.nested.to_padded_tensor(torch.nested.nested_tensor(given, **JAGGED), padding)
        )
    wider = [size + i for i, size in enumerate(made.shape)]
    larger = nested.to_padded_tensor(nested.nested_tensor(given), padding, wider)
    assert list(larger.shape) == wider
    torch.testing.assert_close(larger[tuple(slice(size) for size in made.shape)], made)
    torch.testing.assert_close(larger.sum(), made.sum() + padding * (larger.numel() - made.numel()))
    out = torch.empty(0)
    assert nested.to_padded_tensor(nested.nested_tensor(given), padding, out=out) is out
    torch.testing.assert_close(out, made)


def test_means_over_the_ragged_axis():
    given = entries((2, 3), (4, 3))
    x, nt = nested.nested_tensor(given, requires_grad=True), torch.nested.nested_tensor(given, **JAGGED)
    torch.testing.assert_close(torch.mean(x, dim=1), torch.mean(nt, dim=1))
    x.mean(1).torch()[:, 0].sum().backward()  # torch.nested has no gradient here.
    assert x.grad.values[:, 0].tolist() == [0.5, 0.5, 0.25, 0.25, 0.25, 0.25]


def test_signatures_are_torchs():
    for name in nested.__all__:
        if name == "to_padded_tensor":  # It is a builtin, whose signature is in its documentation.
            assert list(inspect.signature(nested.to_padded_tensor).parameters) == [
                "input",
                "padding",
                "output_size",
                "out",
            ]
            continue
        mine, theirs = (inspect.signature(getattr(module, name)).parameters for module in (nested, torch.nested))
        assert [(p.name, p.kind, p.default) for p in mine.values()] == [
            (p.name, p.kind, p.default) for p in theirs.values()
        ]
    assert sorted(nested.__all__) == sorted(torch.nested.__all__)


VALUES, OFFSETS = torch.ones(6, 2), torch.tensor([0, 2, 6])
from_jagged = nested.nested_tensor_from_jagged


def torch_nested(layout=torch.jagged):
    return torch.nested.nested_tensor([torch.ones(2, 3), 2 * torch.ones(1, 3)], layout=layout)


@pytest.mark.parametrize("layout", [torch.jagged, torch.strided])
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors_of_torch_go_in(layout):
    theirs = torch_nested(layout)
    expected = torch.nested.to_padded_tensor(theirs, -1.0)
    torch.testing.assert_close(nested.to_padded_tensor(theirs, -1.0), expected)
    for made in (nested.as_nested_tensor(theirs), nested.nested_tensor(theirs), nested.nested_tensor(theirs.unbind())):
        torch.testing.assert_close(nested.to_padded_tensor(made, -1.0), expected)
    assert nested.as_nested_tensor(theirs, dtype=torch.float64).dtype == torch.float64


def test_rows_of_a_tensor_make_it_again():
    x = nested.nested_tensor([torch.ones(2, 3), 2 * torch.ones(1, 3)], requires_grad=True)
    for rows in (x.unbind(), list(x.unbind())):
        made = nested.as_nested_tensor(rows)
        assert made.tolist() == x.tolist()
    (made * 3).sum().backward()
    assert x.grad.values.tolist() == [[3.0] * 3] * 3


def test_bounds_of_lengths_may_be_wide():
    made = from_jagged(VALUES, OFFSETS, min_seqlen=0, max_seqlen=10)
    assert nested.to_padded_tensor(made, 0.0).shape[1] == 4


WRONG = [
    (lambda: nested.nested_tensor([]), ValueError, "at least one entry"),
    (lambda: nested.nested_tensor([1.0, 2.0]), RaggednessError, "at least one, but entry 0"),
    (lambda: nested.nested_tensor([torch.ones(2), torch.ones(2, 2)]), RaggednessError, r"entry 1 has shape \[2, 2\]"),
    (lambda: nested.nested_tensor([torch.ones(2), torch.ones(2).int()]), TypeError, "entry 1 has torch.int32"),
    (lambda: nested.nested_tensor([torch.ones(2)], layout=torch.sparse_coo), ValueError, "layout must be"),
    (lambda: nested.as_nested_tensor(3), TypeError, "got int"),
    (lambda: nested.as_nested_tensor([[1.0]]), TypeError, "an entry is a list"),
    (lambda: nested.as_nested_tensor(torch.ones(3)), AxisError, r"got shape \[3\]"),
    (lambda: from_jagged(VALUES), ValueError, "offsets or lengths"),
    (lambda: from_jagged(VALUES, torch.tensor([0, 4])), RaggednessError, "6"),
    (lambda: from_jagged(VALUES, torch.tensor([1, 6])), RaggednessError, "0"),
    (lambda: from_jagged(VALUES, torch.tensor([0, 7])), RaggednessError, "6"),
    (lambda: from_jagged(VALUES, torch.tensor([0, 4, 2])), RaggednessError, "never decrease"),
    (lambda: from_jagged(VALUES, lengths=torch.tensor([2, 2])), RaggednessError, "6"),
    (lambda: from_jagged(VALUES, OFFSETS, jagged_dim=0), AxisError, "1 … 2"),
    (lambda: from_jagged(VALUES, OFFSETS, jagged_dim=3), AxisError, "1 … 2"),
    (lambda: from_jagged(VALUES, OFFSETS, max_seqlen=3), RaggednessError, "row 1 has 4"),
    (lambda: from_jagged(VALUES, OFFSETS, min_seqlen=3), RaggednessError, "row 0 has 2"),
    (lambda: from_jagged(VALUES, OFFSETS, torch.tensor([1])), RaggednessError, "one length fewer"),
    (lambda: from_jagged(VALUES, OFFSETS, torch.tensor([1, 5])), RaggednessError, "row 1 starts at 2 and has 5"),
    (lambda: from_jagged(VALUES, OFFSETS, max_seqlen=4.5), TypeError, "max_seqlen must be an integer"),
    (lambda: from_jagged(VALUES, OFFSETS, min_seqlen=-1, max_seqlen=3), RaggednessError, "row 1 has 4"),
    (lambda: from_jagged(VALUES, lengths=torch.tensor([2, 4]), max_seqlen=3), RaggednessError, "row 1 has 4"),
    (lambda: from_jagged(VALUES, OFFSETS, jagged_dim=1.0), TypeError, "jagged_dim must be an integer"),
    (lambda: from_jagged(VALUES.tolist(), OFFSETS), TypeError, "dense torch.Tensor"),
    (lambda: from_jagged(VALUES, OFFSETS.tolist()), TypeError, "offsets must be a torch.Tensor, got list"),
    (lambda: from_jagged(VALUES, OFFSETS.float()), TypeError, "offsets must be integers, got torch.float32"),
    (lambda: from_jagged(VALUES, OFFSETS[None]), RaggednessError, "vector"),
    (lambda: from_jagged(VALUES, OFFSETS.float(), torch.tensor([1, 1])), TypeError, "offsets must be integers"),
    (lambda: from_jagged(VALUES, OFFSETS, torch.tensor([1.0, 1.0])), TypeError, "lengths must be integers"),
    (lambda: from_jagged(VALUES, lengths=torch.tensor([True] * 6)), TypeError, "got torch.bool"),
    (
        lambda: from_jagged(VALUES, OFFSETS, torch.tensor([3, 1])),
        RaggednessError,
        "row 0 has 3 .* starts 2 entries after",
    ),
    (lambda: from_jagged(VALUES, OFFSETS, torch.tensor([-1, 1])), RaggednessError, "row 0 starts at 0 and has -1"),
    (
        lambda: from_jagged(VALUES, torch.tensor([4, 0, 6]), torch.tensor([1, 1])),
        RaggednessError,
        "starts -4 entries after",
    ),
    (lambda: from_jagged(VALUES, torch.tensor([2**63 - 1, 0, 6]), torch.tensor([2, 1])), RaggednessError, "row 0"),
    (lambda: nested.narrow(VALUES, 1, torch.tensor([2**63 - 1] * 6), 2), RaggednessError, "row 0 starts at 9"),
    (lambda: nested.narrow(torch_nested(), 1, 0, 1), TypeError, "narrow takes a dense tensor"),
    (lambda: nested.masked_select(torch_nested(), torch_nested() > 0), TypeError, "masked_select takes a dense"),
    (lambda: nested.nested_tensor([torch_nested()]), TypeError, "entries of a nested tensor must be dense"),
    (lambda: nested.as_nested_tensor([torch_nested()]), TypeError, "entries of a nested tensor must be dense"),
    (lambda: nested.to_padded_tensor(sr.ragged([[1]]), 0, (1, 1.5)), TypeError, "output_size"),
    (lambda: nested.narrow(VALUES, 1, 1, 2), RaggednessError, "within 2 entries"),
    (lambda: nested.narrow(VALUES, 1, -1, 2), RaggednessError, "starts at -1"),
    (lambda: nested.narrow(VALUES, 2, 0, 1), AxisError, "got 2"),
    (lambda: nested.narrow(VALUES, 0, torch.tensor([1]), 1), AxisError, "dim=1"),
    (lambda: nested.narrow(VALUES, 1, torch.tensor([0.5]), 1), TypeError, "start must be integers"),
    (
        lambda: nested.narrow(VALUES, 1, torch.tensor([0, 1]), 1),
        RaggednessError,
        "one number, or one for each of the 6 rows",
    ),
    (lambda: nested.masked_select(torch.tensor(1.0), torch.tensor(True)), AxisError, "at least one axis"),
    (lambda: nested.masked_select(VALUES, VALUES), TypeError, "boolean"),
    (lambda: nested.to_padded_tensor(sr.ragged([[1, 2], [3]]), 0, (2, 1)), ValueError, "not be smaller"),
    (lambda: nested.to_padded_tensor(sr.ragged([[1, 2], [3]]), 0, (2,)), ValueError, "each of the 2 axes"),
]


@pytest.mark.parametrize(("call", "error", "message"), WRONG)
def test_wrong_input_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()
