"""Creation: against torch and nested lists, in ragged shapes, with partitions shared."""

from __future__ import annotations

import doctest
import itertools

import numpy as np
import pytest
import torch
from tests.ops.expected import dtype_rule, shape_rule
from tests.ops.samples import DTYPES, NAMES, elements, sample
from torch.autograd import gradcheck, gradgradcheck

import serrate as sr
from serrate.errors import OffsetsDeviceError, RaggednessError
from serrate.ops.derivatives import pullback
from serrate.ops.record import TABLE

OPS = [op for op in TABLE.values() if op.family == "creation"]
ALL = [dtype for kind in DTYPES.values() for dtype in kind]
FILLED = {"zeros": 0, "ones": 1, "full": 5, "empty": None}


def usable(name: str, dtype: torch.dtype) -> bool:
    return name != "NaN and inf" or dtype.is_floating_point


def filled(nested, number):
    return [filled(inner, number) for inner in nested] if isinstance(nested, list) else number


def options(name: str) -> list[int]:
    return [5] if name.startswith("full") else []


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("make", FILLED)
def test_a_shape_with_ragged_axes(make, name):
    for dtype in ALL:
        if not usable(name, dtype):
            continue
        x = sample(name, dtype)
        got = getattr(sr, make)(x.shape, *options(make), dtype=dtype)
        like = getattr(sr, f"{make}_like")(x, *options(make))
        for made in (got, like):
            assert made.shape == x.shape
            assert made.dtype == dtype
            assert all(a is b for a, b in zip(made.partitions, x.partitions, strict=True))
            assert made.values.shape == x.values.shape
            if FILLED[make] is not None:
                assert made.tolist() == filled(x.tolist(), torch.tensor(FILLED[make]).to(dtype).item())
        assert like.structure is x.structure
        assert like.order == x.order
        assert not like.requires_grad


def test_shapes_of_permuted_views_and_of_several_levels():
    x = sample("two levels", torch.float32)
    for axes in ((0, 1, 2, 3), (0, 3, 1, 2), (3, 0, 1, 2), (2, 1, 0, 3), (1, 0, 3, 2)):
        view = x.permute_dims(axes)
        made = sr.zeros(view.shape)
        assert made.shape == view.shape
        assert (made + view).shape == view.shape
        assert [p is q for p, q in zip(made.partitions, view.partitions, strict=True)] == [True, True]
    shape = (3, sr.Ragged([2, 0, 1]), 4, sr.Ragged([1, 2, 0, 1] * 3, parents=(0, 1, 2)))
    assert sr.ones(shape).values.shape == (12,)
    assert sr.zeros(5).shape == (5,)
    assert sr.zeros(()).shape == ()
    assert sr.zeros([2, np.int64(3)]).shape == (2, 3)
    assert sr.zeros(torch.Size([2, 3])).shape == (2, 3)


def test_dtypes_follow_the_array_api():
    assert sr.full((2,), 1).dtype == torch.int64
    assert sr.full((2,), True).dtype == torch.bool
    assert sr.full((2,), 1.0).dtype == torch.get_default_dtype()
    assert sr.full((2,), 1j).dtype == torch.complex64
    assert sr.full((2,), np.float32(2)).tolist() == [2.0, 2.0]
    assert sr.zeros((2,)).dtype == torch.get_default_dtype()
    x = sample("rows", torch.float64)
    assert sr.zeros_like(x, dtype=torch.int8).dtype == torch.int8
    assert sr.full_like(x, 2, dtype=torch.bool).values.all()


def test_lengths_that_were_born_on_a_device():
    x = sample("two levels", torch.float64)
    d = sr.testing.device_born(x, spare=3)
    with sr.testing.forbid_sync():
        made = sr.ones(d.shape, dtype=torch.float64)
        total = made + d
        like = sr.ones_like(d)
        sr.tril(d)
    assert total.tolist() == (x + 1).tolist()
    assert like.structure is d.structure
    for name in ("product", "permuted"):
        x = sample(name, torch.float64)
        d = sr.testing.device_born(x, spare=3)
        with sr.testing.forbid_sync():
            got = sr.tril(d, k=0), sr.triu(d, k=0)
            assert sr.zeros_like(d).values.shape == d.values.shape
        assert [g.tolist() for g in got] == [sr.tril(x).tolist(), sr.triu(x).tolist()]
    # Only adding up the lengths tells how many rows a product has.
    with sr.testing.forbid_sync(), pytest.raises(sr.errors.SyncError):
        sr.zeros(sr.testing.device_born(sample("product", torch.float64)).shape)
    meta = sr.Ragged(sr.testing.device_born(sample("rows", torch.float64)).partitions[0])
    with pytest.raises(OffsetsDeviceError, match="lie on cpu"):
        sr.zeros((3, meta), device="meta")


def test_another_device():
    x = sample("features", torch.float64)
    assert sr.zeros(x.shape, device="meta").device.type == "meta"
    assert sr.zeros_like(x, device="meta").values.shape == (6, 2)
    assert sr.empty((2, 3), device=torch.device("cpu")).device.type == "cpu"
    moved = sr.zeros_like(sr.testing.device_born(x), device="meta")
    assert moved.partitions[0].home.type == "meta"


# ---------------------------------------------------------------------------------------------------------- ranges


def test_arange():
    for start, stop, step in itertools.product((0, -3, 2.5), (4, -5, 2.5, None), (1, 2, -1, 0.5)):
        want = np.arange(start, stop, step) if stop is not None else np.arange(0, start, step)
        got = sr.arange(start, stop, step)
        assert got.tolist() == pytest.approx(want.tolist())
        whole = all(isinstance(n, int) for n in (start, stop, step) if n is not None)
        assert got.dtype == (torch.int64 if whole else torch.get_default_dtype())
    assert sr.arange(3, dtype=torch.float64).dtype == torch.float64
    assert isinstance(sr.arange(3), sr.Tensor)


def test_linspace():
    for num, endpoint in itertools.product((0, 1, 2, 7), (True, False)):
        want = np.linspace(-1, 3, num, endpoint=endpoint)
        got = sr.linspace(-1, 3, num, endpoint=endpoint, dtype=torch.float64)
        assert got.tolist() == pytest.approx(want.tolist())
    assert sr.linspace(0, 10, 3).dtype == torch.get_default_dtype()
    assert sr.linspace(0, 1j, 3).dtype == torch.complex64


def test_eye():
    for rows, columns, k in itertools.product((0, 1, 3), (None, 0, 2, 4), (-5, -3, -1, 0, 1, 2, 4)):
        want = np.eye(rows, columns, k=k)
        got = sr.eye(rows, columns, k=k)
        assert got.shape == want.shape
        assert got.tolist() == want.tolist()
    assert sr.eye(2, dtype=torch.bool).tolist() == [[True, False], [False, True]]


def test_meshgrid():
    a, b, c = torch.arange(3), torch.arange(2), torch.arange(4)
    for given in ((a,), (a, b), (a, b, c)):
        for indexing in ("xy", "ij"):
            got = sr.meshgrid(*given, indexing=indexing)
            want = np.meshgrid(*[t.numpy() for t in given], indexing=indexing)
            assert [g.tolist() for g in got] == [w.tolist() for w in want]
            assert all(isinstance(g, sr.Tensor) for g in got)
    assert sr.meshgrid() == []
    assert [g.shape for g in sr.meshgrid(a, b)] == [(2, 3)] * 2
    torch_grids = torch.meshgrid(sr.Tensor(a), sr.Tensor(b), indexing="ij")
    assert [type(g) for g in torch_grids] == [torch.Tensor] * 2
    with pytest.raises(TypeError, match="one dtype"):
        sr.meshgrid(a, b.double())


# ------------------------------------------------------------------------------------------------------- triangles


def triangle(nested, ndim: int, keep, zero, at: tuple[int, ...] = ()):
    if len(at) == ndim:
        return nested if keep(at[-2], at[-1]) else zero
    return [triangle(inner, ndim, keep, zero, (*at, i)) for i, inner in enumerate(nested)]


@pytest.mark.parametrize("name", NAMES)
def test_triangles_equal_enumeration(name):
    for dtype in ALL:
        if not usable(name, dtype):
            continue
        x, zero = sample(name, dtype), torch.zeros((), dtype=dtype).item()
        for k in (-1, 0, 1):
            lower = triangle(x.tolist(), x.ndim, lambda i, j, k=k: j - i <= k, zero)
            upper = triangle(x.tolist(), x.ndim, lambda i, j, k=k: j - i >= k, zero)
            for got, want in ((sr.tril(x, k=k), lower), (sr.triu(x, k=k), upper)):
                assert str(got.tolist()) == str(want)
                assert got.structure is x.structure
                assert got.dtype == dtype


def test_triangles_of_every_pair_of_axes():
    x = sample("two levels", torch.int64)
    scores = sr.ones((2, *[sr.Ragged([3, 1])] * 2, 2), dtype=torch.int64)
    for given in (x, scores, sr.Tensor(torch.ones(2, 3, 4))):
        for axes in itertools.permutations(range(given.ndim)):
            view = given.permute_dims(axes)
            packed = given.to_dense().torch().permute(axes)  # padding is 0 already
            assert torch.equal(sr.tril(view).to_dense().torch(), packed.tril())
            assert torch.equal(sr.triu(view, k=1).to_dense().torch(), packed.triu(1))


def test_causal_scores():
    q, k = sr.Partition.from_lengths([2, 0, 1]), sr.Partition.from_lengths([3, 1, 2])
    scores = sr.from_product(torch.arange(1, 9), q, k)
    assert sr.tril(scores).tolist() == [[[1, 0, 0], [4, 5, 0]], [], [[7, 0]]]
    assert torch.tril(scores, 1).tolist() == [[[1, 2, 0], [4, 5, 6]], [], [[7, 8]]]
    assert scores.triu(diagonal=1).tolist() == [[[0, 2, 3], [0, 0, 6]], [], [[0, 8]]]
    assert torch.equal(torch.tril(sr.Tensor(torch.ones(3, 3))), torch.ones(3, 3).tril())


def test_triangles_have_gradients():
    for name in ("product", "two levels"):
        x = sample(name, torch.float64)
        values = x.values.clone().requires_grad_()
        for op in (sr.tril, sr.triu):
            assert gradcheck(lambda v, x=x, op=op: op(x._with(v), k=0).values, [values])
            assert gradgradcheck(lambda v, x=x, op=op: op(x._with(v * v), k=0).values, [values])
            g = x._with(elements(x.values.shape[0], tuple(x.values.shape[1:]), torch.float64, 5))
            (want,) = torch.autograd.grad(op(x._with(values)).values, values, g.values)
            _, back = pullback(op, x)
            (got,) = back(g)
            assert torch.equal(got.values, want)


def test_undefined_elements_have_no_gradient_and_nan_stays_outside():
    x = sr.Tensor(torch.tensor([[1.0, float("nan")], [2.0, 3.0]], requires_grad=True))
    sr.tril(x).values.sum().backward()
    assert x.values.grad.tolist() == [[1.0, 0.0], [1.0, 1.0]]


# -------------------------------------------------------------------------------------------------- the torch face


def test_the_torch_face():
    x = sample("features", torch.float64)
    assert torch.zeros_like(x).tolist() == filled(x.tolist(), 0.0)
    assert torch.ones_like(x, dtype=torch.int8).dtype == torch.int8
    assert torch.full_like(x, 3, requires_grad=True).requires_grad
    assert torch.empty_like(x, memory_format=torch.preserve_format).shape == x.shape
    assert torch.zeros_like(x).partitions[0] is x.partitions[0]
    assert type(torch.zeros_like(sr.Tensor(torch.ones(2)))) is torch.Tensor
    with pytest.raises(TypeError, match="neither layout nor pin_memory"):
        torch.zeros_like(x, layout=torch.sparse_coo)
    assert x.new_zeros(2, 3).shape == (2, 3)
    assert x.new_zeros((2, 3), dtype=torch.int32).dtype == torch.int32
    assert x.new_ones(x.shape).dtype == torch.float64
    assert x.new_full((3, x.shape[1]), 4).tolist() == [[4.0] * 3, [4.0], [4.0] * 2]
    assert x.new_full(size=(2,), fill_value=4).tolist() == [4.0, 4.0]
    assert x.new_empty(3, requires_grad=True).requires_grad
    with pytest.raises(TypeError):
        torch.zeros(x.shape)  # a ragged shape cannot be padded by accident


# ------------------------------------------------------------------------------------------------------ the records


def scope(x: sr.Tensor) -> dict[str, object]:
    return {"x": x, "sr": sr, "torch": torch}


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_samples_run_on_every_structure_and_dtype(op):
    for name in NAMES:
        for dtype in ALL:
            if usable(name, dtype):
                x = sample(name, dtype)
                for arguments in op.samples:
                    got = eval(f"op.function({arguments})", {"op": op, **scope(x)})
                    if shape_rule(op.name) == "same":
                        assert got.shape == x.shape
                    if dtype_rule(op.name) == "same":
                        assert got.dtype == dtype


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_wrong_calls_are_named(op):
    x = sr.from_lengths(torch.ones(6, 2), [3, 1, 2])
    for arguments, kind, text in op.errors:
        with pytest.raises(kind, match=text):
            eval(f"op.function({arguments})", {"op": op, **scope(x)})


def test_more_wrong_calls():
    with pytest.raises(RaggednessError, match="circle"):
        sr.zeros((sr.Ragged([1, 2]), 3))
    with pytest.raises(RaggednessError, match="no axes of a shape"):
        sr.zeros((2, sr.Ragged([1, 2], parents=(5,))))
    with pytest.raises(TypeError, match="fill_value must be a number"):
        sr.full((2,), torch.ones(2))
    with pytest.raises(TypeError, match=r"axes, got 2\.5 in"):
        sr.zeros((2, 2.5))
    with pytest.raises(TypeError, match="a shape is an int"):
        sr.zeros(sr.Ragged([1, 2]))


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_the_docstring_runs(op):
    found = doctest.DocTestParser().get_doctest(op.function.__doc__, {}, op.name, None, 0)
    assert found.examples
    assert doctest.DocTestRunner(verbose=False).run(found).failed == 0


def test_a_tensor_of_one_number_fills():
    number = torch.tensor(2.5, requires_grad=True)
    for made in (sr.full((2, 3), number), sr.full_like(sr.ragged([[1.0], [2.0, 3.0]]), number)):
        assert set(made.values.flatten().tolist()) == {2.5}
        (gradient,) = torch.autograd.grad(made.values.sum(), number)
        assert gradient.item() == made.values.numel()
    assert sr.full((1,), sr.asarray(3), dtype=sr.int8).dtype == sr.int8
    with pytest.raises(TypeError, match=r"a number or a 0-d tensor, got shape \(1,\)"):
        sr.full((2,), torch.ones(1))


def test_lists_of_tensors():
    made = sr.asarray([[sr.asarray(1), 2.5], [sr.asarray(3), sr.asarray(4.0, dtype=sr.float64)]])
    assert made.tolist() == [[1.0, 2.5], [3.0, 4.0]]
    assert made.dtype == sr.float64
    assert sr.asarray([sr.asarray([1, 2]), [3, 4]], dtype=sr.float32).tolist() == [[1.0, 2.0], [3.0, 4.0]]
    with pytest.raises(sr.errors.RaggednessError, match="rectangular"):
        sr.asarray([sr.asarray([1, 2]), sr.asarray([3])])
