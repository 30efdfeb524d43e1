"""Elementwise operations, each record of the table: against torch on each row, gradients, the three faces, errors."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.ops.samples import DTYPES, NAMES, elements, leaves, per_row, sample
from torch.autograd import gradcheck, gradgradcheck

import serrate as sr
from serrate.errors import DeviceMismatchError, RaggednessError
from serrate.ops.record import TABLE, Op

OPS = [op for op in TABLE.values() if op.family in ("elementwise", "activations")]


def arity(op: Op) -> int:
    return sum(p.kind is p.POSITIONAL_ONLY for p in op.signature.parameters.values())


def operands(op: Op, name: str, dtype: torch.dtype) -> list[sr.Tensor]:
    made = [sample(name, dtype, seed) for seed in range(arity(op))]
    if op.name == "where":
        made[0] = made[0]._with(made[0].values.real > 0.5 if dtype != torch.bool else made[0].values)
    if op.name == "acosh":
        made[0] = made[0]._with(made[0].values + 1)
    return made


def absent(op: Op, dtype: torch.dtype, name: str) -> str:
    """Why a cell of the matrix is empty; "" if it must run."""
    if name == "NaN and inf" and not (dtype.is_floating_point or dtype.is_complex):
        return "no NaN in integers"
    return "" if torch_has(op, dtype) else "torch has no kernel"


def torch_has(op: Op, dtype: torch.dtype) -> bool:
    tensors = [elements(2, (), dtype, seed) for seed in range(arity(op))]
    if op.name == "where":
        tensors[0] = torch.tensor([True, False])
    try:
        op.torch[0](*tensors, **({"min": 0.5} if op.name == "clip" else {}))
    except (RuntimeError, NotImplementedError, TypeError):
        return False
    return True


def same(got: sr.Tensor, want: list[torch.Tensor]) -> None:
    rows = list(leaves(got))
    assert len(rows) == len(want)
    for row, wanted in zip(rows, want, strict=True):
        assert row.dtype == wanted.dtype
        assert row.shape == wanted.shape
        fine = max(1e-6, 4 * torch.finfo(row.dtype).eps) if row.is_floating_point() or row.is_complex() else 0
        torch.testing.assert_close(row, wanted, rtol=fine, atol=fine, equal_nan=True)


def reference(op: Op):
    """What the operation means on a row: torch's, but for the special values that the array API sees otherwise."""
    return {
        "round": torch.round,
        "real": torch.real,
        "imag": torch.imag,
        "sign": lambda x: torch.where(x.isnan(), x * torch.nan, torch.sgn(x)).to(x.dtype),
        "add": lambda x, y: parts(torch.add, x, y),
        "subtract": lambda x, y: parts(torch.sub, x, y),
        "expm1": lambda x: where_finite(torch.expm1, x, lambda z: parts(torch.sub, z.exp(), torch.ones_like(z))),
        "log1p": lambda x: where_finite(torch.log1p, x, lambda z: parts(torch.add, z, torch.ones_like(z)).log()),
    }.get(op.name, op.torch[0])


def where_finite(function, x: torch.Tensor, otherwise) -> torch.Tensor:
    return torch.where(x.isfinite(), function(x), otherwise(x)) if x.is_complex() else function(x)


def parts(function, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.complex(function(x.real, y.real), function(x.imag, y.imag)) if x.is_complex() else function(x, y)


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_every_structure_and_dtype_equals_torch_on_each_row(op):
    ran = 0
    for kind in op.kinds:
        for dtype in DTYPES[kind]:
            for name in NAMES:
                if absent(op, dtype, name):
                    continue
                given = operands(op, name, dtype)
                options = {"min": 0.5} if op.name == "clip" else {}
                got = op.function(*given, **options)
                same(got, per_row(reference(op), *given, **options))
                if name != "no rows" and given[0].is_ragged:
                    assert got.partitions[0] is given[0].partitions[0]
                    assert got.order == given[0].order
                ran += 1
    assert ran >= len(NAMES) - 1


DIFFERENTIABLE = [op for op in OPS if not op.flat and "float" in op.kinds]


@pytest.mark.parametrize("op", DIFFERENTIABLE, ids=lambda op: op.name)
@pytest.mark.parametrize("name", ["empty rows", "two levels", "permuted"])
def test_gradients(op, name):
    given = operands(op, name, torch.float64)
    options = {"min": 0.3, "max": 0.7} if op.name == "clip" else {}
    first = 1 if op.name == "where" else 0

    def run(*values):
        parts = [x._with(v) for x, v in zip(given[first:], values, strict=True)]
        return op.function(*given[:first], *parts, **options).values

    values = [x.values.clone().requires_grad_() for x in given[first:]]
    assert gradcheck(run, values)
    assert gradgradcheck(run, values)


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_the_torch_face_gives_what_torch_gives(op):
    dtype = DTYPES[op.kinds[0]][0]
    given = operands(op, "features", dtype)
    options = {"min": 0.5} if op.name == "clip" else {}
    for function in op.torch:
        if type(function).__name__ == "method_descriptor":
            continue  # a method of torch.Tensor: ours has the same name
        fitting = [given[2], given[0], 0.25] if function is torch.masked_fill else given
        got = function(*fitting, **options)
        same(got, per_row(function, *fitting, **options))
    for name in {function.__name__ for function in op.torch}:
        if hasattr(torch.Tensor, name) and op.name not in ("where", "real", "imag", "conj"):
            same(
                getattr(given[0], name)(*given[1:], **options), per_row(getattr(torch.Tensor, name), *given, **options)
            )


# ---------------------------------------------------------------------------------------------------- broadcasting

X = sr.ragged([[[1.0, 2.0], [3.0, 4.0]], [], [[5.0, 6.0]]], ragged_rank=1)  # [3, r, 2]


@pytest.mark.parametrize(
    ("other", "per_row_other"),
    [
        (torch.tensor([10.0, 20.0]), lambda i: torch.tensor([10.0, 20.0])),
        (torch.tensor([[[1.0]], [[2.0]], [[3.0]]]), lambda i: torch.tensor([[i + 1.0]])),
        (torch.arange(6.0).view(3, 1, 2), lambda i: torch.arange(6.0).view(3, 1, 2)[i]),
        (2.5, lambda i: 2.5),
        (torch.tensor(2.5), lambda i: 2.5),
        (sr.ragged([[1.0, 2.0], [], [3.0]])[:, :, None], lambda i: [[[1.0], [2.0]], [], [[3.0]]][i]),
    ],
)
def test_stretching(other, per_row_other):
    for made in (X + other, other + X, sr.add(X, other), torch.add(X, other)):
        for i in range(3):
            wanted = per_row_other(i)
            wanted = torch.tensor(wanted).reshape(-1, 1) if isinstance(wanted, list) else wanted
            assert torch.equal(made[i].torch(), X[i].torch() + wanted)
        assert made.partitions[0] is X.partitions[0] or made.partitions[0] is other.partitions[0]


def test_combined_with_a_padded_operand():
    d = torch.arange(12.0).view(3, 2, 2)
    total = X + sr.from_dense(d, like=X)
    assert total.tolist() == [[[1.0, 3.0], [5.0, 7.0]], [], [[13.0, 15.0]]]
    assert total.to_dense().tolist()[1] == [[0.0, 0.0], [0.0, 0.0]]


def test_operators_and_their_reflections():
    x = sr.ragged([[1, 2], [3]])
    assert (x + 1).tolist() == (1 + x).tolist() == [[2, 3], [4]]
    assert (x - 1).tolist() == [[0, 1], [2]]
    assert (1 - x).tolist() == [[0, -1], [-2]]
    assert (x * 2).tolist() == (2 * x).tolist() == [[2, 4], [6]]
    assert (x / 2).tolist() == [[0.5, 1.0], [1.5]]
    assert (6 / x).tolist() == [[6.0, 3.0], [2.0]]
    assert (x // 2).tolist() == [[0, 1], [1]]
    assert (7 // x).tolist() == [[7, 3], [2]]
    assert (x % 2).tolist() == [[1, 0], [1]]
    assert (7 % x).tolist() == [[0, 1], [1]]
    assert (x**2).tolist() == [[1, 4], [9]]
    assert (2**x).tolist() == [[2, 4], [8]]
    assert (x & 1).tolist() == (1 & x).tolist() == [[1, 0], [1]]
    assert (x | 4).tolist() == [[5, 6], [7]]
    assert (x ^ 1).tolist() == [[0, 3], [2]]
    assert (x << 1).tolist() == [[2, 4], [6]]
    assert (x >> 1).tolist() == [[0, 1], [1]]
    assert (-x).tolist() == [[-1, -2], [-3]]
    assert (~x).tolist() == [[-2, -3], [-4]]
    assert abs(-x).tolist() == (+x).tolist() == x.tolist()
    column = torch.tensor([[10], [20]])
    assert (column - x).tolist() == [[9, 8], [17]]
    assert isinstance(column - x, sr.Tensor)
    with pytest.raises(TypeError):
        _ = x + "a"
    with pytest.raises(TypeError):
        _ = (1,) - x


def test_in_place():
    x = sr.ragged([[1.0, 2.0], [3.0]])
    before, memory = x, x.values.data_ptr()
    x += 1
    x *= sr.ragged([[1.0, 2.0], [3.0]])
    x -= torch.tensor([[1.0], [2.0]])
    assert x is before
    assert x.values.data_ptr() == memory
    assert x.tolist() == [[1.0, 5.0], [10.0]]
    whole = sr.ragged([[1, 2]])
    with pytest.raises(TypeError, match="does not go back into"):
        whole /= 2


def test_masked_fill_as_a_copy_and_in_place():
    x = sr.ragged([[1.0, 2.0], [3.0]])
    mask, memory = sr.ragged([[True, False], [True]]), x.values.data_ptr()
    for made in (torch.masked_fill(x, mask, 7.0), x.masked_fill(mask, torch.tensor(7.0))):
        assert made.tolist() == [[7.0, 2.0], [7.0]]
    assert x.tolist() == [[1.0, 2.0], [3.0]]
    assert x.masked_fill_(mask, 7.0) is x
    assert x.masked_fill_(torch.tensor([[False], [True]]), value=8.0) is x
    assert x.values.data_ptr() == memory
    assert x.tolist() == [[7.0, 2.0], [8.0]]
    with pytest.raises(ValueError, match="does not broadcast to shape"):
        x.masked_fill_(torch.ones(1, 1, 1, dtype=torch.bool), 0.0)


def test_numbers_first_and_numbers_only():
    x = sr.ragged([[1.0, -2.0]])
    assert sr.maximum(0.0, x).tolist() == [[1.0, 0.0]]
    assert sr.where(x > 0, 1, x).tolist() == [[1.0, -2.0]]
    assert sr.exp(torch.zeros(2)).tolist() == [1.0, 1.0]
    with pytest.raises(TypeError, match="at least one tensor"):
        sr.add(1, 2)


@pytest.mark.parametrize("condition", [True, False, np.bool_(True)])
def test_where_takes_a_bool_for_all_elements(condition):
    x, y = sr.ragged([[1.0, -2.0], [], [3.0]]), sr.ragged([[1.5], [], [2.5]], dtype=torch.float64)
    y = x.new_zeros(()).double() + sr.sum(y, axis=1, keepdims=True)
    for one, other in ((x, y), (y, x), (x, 7), (2.5, x), (x.values, x.values.int()), (x, torch.ones(3, 1))):
        whole = sr.asarray(torch.full((1,), bool(condition)))
        made, right = sr.where(condition, one, other), sr.where(whole, one, other)
        assert made.dtype == right.dtype
        assert made.tolist() == right.tolist()
        chosen = one if condition else other
        if isinstance(chosen, sr.Tensor) and chosen.is_ragged:
            assert made.tolist() == chosen.tolist()  # no row is stretched
    leaf = x.detach().requires_grad_()
    sr.where(condition, leaf * 2, x).values.sum().backward()
    assert leaf.grad.values.tolist() == [2.0 if condition else 0.0] * 3
    with pytest.raises(TypeError, match="where takes at least one tensor, got numbers only"):
        sr.where(condition, 1, 2)
    with pytest.raises(TypeError, match=r"expected an sr.Tensor or a torch.Tensor, got int"):
        sr.where(1, x, y)


def test_wide_unsigned_types_go_through_int64():
    for dtype in (torch.uint16, torch.uint32, torch.uint64):
        x = sr.ragged([[1, 2], [3]], dtype=dtype)
        assert (x + x).dtype == dtype
        assert (x + x).tolist() == [[2, 4], [6]]
        assert sr.greater(x, 1).tolist() == [[False, True], [True]]


def test_dtypes_of_numbers_follow_the_tensor():
    half = sr.ragged([[1.0]], dtype=torch.float16)
    assert (half + 1.5).dtype == (1.5 - half).dtype == sr.maximum(1.5, half).dtype == torch.float16
    assert (sr.ragged([[1]]) + 1.5).dtype == torch.float32
    assert (sr.ragged([[True]]) + 1).dtype == torch.int64


# ---------------------------------------------------------------------------------------------------- refusals


def test_what_does_not_meet_is_named():
    with pytest.raises(RaggednessError, match=r"Ragged\(\[2, 1\]\) and Ragged\(\[1, 2\]\)"):
        _ = sr.ragged([[1, 2], [3]]) + sr.ragged([[1], [2, 3]])
    with pytest.raises(RaggednessError, match="uniform axis of size 1 stretches"):
        _ = sr.ragged([[1, 2], [3, 4]]) + torch.ones(2, 2)
    with pytest.raises(ValueError, match=r"axis 2 has size 2 and 3; shapes .* do not broadcast"):
        _ = X + torch.ones(3)
    with pytest.raises(ValueError, match="axis 0 has size"):
        _ = X + torch.ones(4, 1, 2)
    with pytest.raises(DeviceMismatchError, match=r"on cpu and .* on meta"):
        _ = X + torch.ones(2, device="meta")
    with pytest.raises(TypeError, match="takes tensors and numbers, got str"):
        sr.add(X, "a")


def test_torch_functions_without_an_operation_are_named():
    for call, hint in (
        (lambda: torch.kthvalue(X, 1), "torch's kthvalue .* has no operation like it yet"),
        (lambda: torch.nn.functional.conv2d(X, torch.ones(1)), "torch's conv2d .* has no operation like it yet"),
        (lambda: torch.ones(2).mul_(X), "torch's mul_ .*; use sr.multiply;"),
        (lambda: torch.cumulative_trapezoid(X), "torch's cumulative_trapezoid is not defined"),
    ):
        with pytest.raises(TypeError, match=hint):
            call()
    with pytest.raises(TypeError, match="out="):
        torch.exp(X, out=torch.zeros(3))


def test_results_without_a_ragged_axis_are_torch_tensors_on_the_torch_face_only():
    dense = sr.asarray(torch.ones(2))
    assert type(torch.exp(dense)) is torch.Tensor
    assert isinstance(sr.exp(dense), sr.Tensor)
    assert isinstance(dense.exp(), sr.Tensor)
    assert isinstance(torch.exp(X), sr.Tensor)
    assert isinstance(torch.nn.GELU()(X), sr.Tensor)


def test_torch_equal_is_one_bool():
    x = sr.ragged([[1.0, 2.0], [3.0]])
    assert torch.equal(x, x.clone()) is True
    assert x.equal(sr.ragged([[1.0, 2.0], [4.0]])) is False
    assert torch.equal(x, sr.ragged([[1.0], [2.0, 3.0]])) is False
    assert torch.equal(sr.testing.device_born(x, spare=2), sr.testing.device_born(x, spare=1)) is True
    assert torch.equal(x, torch.ones(2, 2)) is False


def test_nothing_waits_for_device_born_lengths():
    x = sr.testing.device_born(sr.ragged([[1.0, 2.0], [3.0]]), spare=2)
    with sr.testing.forbid_sync():
        y = sr.exp(x + torch.ones(2, 1)) * x - 1
    assert y.partitions[0] is x.partitions[0]
    assert torch.allclose(y.flat().torch(), torch.exp(x.flat().torch() + 1) * x.flat().torch() - 1)


def test_complex_numbers_round_part_by_part():
    """torch has no kernel for it, so the table's test has no reference: the standard's definition is."""
    x = sr.ragged([[1.6 + 2.4j, -0.5 + 1.5j], []])
    assert sr.round(x).tolist() == [[2 + 2j, -0.0 + 2j], []]


def test_the_only_cells_without_a_reference_are_known():
    missing = {(op.name, kind) for op in OPS for kind in op.kinds if not all(torch_has(op, d) for d in DTYPES[kind])}
    assert missing == {("round", "complex")}
