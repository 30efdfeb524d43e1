"""Forward mode, vmap and Jacobians of every operation of the table; what vmap makes of ragged tensors themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.ops.calls import Call, calls, kind_of
from tests.ops.samples import NAMES
from torch.autograd import forward_ad

import serrate as sr
from serrate.ops.record import TABLE

pytestmark = pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")

FINITE = [name for name in NAMES if name != "NaN and inf"]
FEW = ["empty rows", "permuted", "product"]
SYMMETRIC = ("linalg.cholesky", "linalg.eigh", "linalg.eigvalsh")
"""Operations that read one half of a matrix and take the other for the same: tangents must be the same in both."""
REAL = (*SYMMETRIC, "linalg.svd")
"""Operations whose complex results, or samples, are not determined: vectors are known up to a factor."""
STEPS = ("Tensor.to", "astype", "embedding_bag", "floor_divide", "nextafter", "remainder")
"""Operations that round, or that jump or have ties where the samples stand: differences say nothing about them."""
LAST = ("scatter",)
"""Operations that keep the last of several elements, while gradients go to all: only differences say what is right."""


def tangents(call: Call) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    made = [torch.randn(x.shape, generator=generator, dtype=x.dtype) for x in call.operands]
    if call.op.name not in SYMMETRIC:
        return made
    matrices = call.args[0]._with(made[0])
    return [(matrices + matrices.mT).values]


def differences(function: Callable[..., Any], operands: list[torch.Tensor], along: list[torch.Tensor]) -> list[Any]:
    step = 1e-6
    ends = [function(*(x + s * t for x, t in zip(operands, along, strict=True))) for s in (step, -step)]
    return [(a - b) / (2 * step) for a, b in zip(*ends, strict=True)]


def by_gradients(function: Callable[..., Any], operands: list[torch.Tensor], along: list[torch.Tensor]) -> list[Any]:
    """The derivative along tangents out of gradients alone: what they give is linear in what they are given."""
    leaves = [x.clone().requires_grad_() for x in operands]
    found = []
    for out in function(*leaves):
        given = torch.zeros_like(out).requires_grad_()
        back = torch.autograd.grad(out, leaves, given, create_graph=True, allow_unused=True)
        total = torch.zeros_like(out)
        for gradient, tangent in zip(back, along, strict=True):
            if gradient is not None and gradient.requires_grad:
                (part,) = torch.autograd.grad(gradient, [given], tangent, allow_unused=True, retain_graph=True)
                total = total if part is None else total + part
        found.append(total)
    return found


def by_func(function: Callable[..., Any], operands: list[torch.Tensor], along: list[torch.Tensor]) -> list[Any]:
    return list(torch.func.jvp(function, tuple(operands), tuple(along))[1])


def by_dual(function: Callable[..., Any], operands: list[torch.Tensor], along: list[torch.Tensor]) -> list[Any]:
    """Dual numbers; a tangent that is None says that the derivative is 0."""
    with forward_ad.dual_level():
        made = function(*(forward_ad.make_dual(x, t) for x, t in zip(operands, along, strict=True)))
        parts = [forward_ad.unpack_dual(out) for out in made]
    return [torch.zeros_like(part.primal) if part.tangent is None else part.tangent for part in parts]


def by_dual_with_gradients(
    function: Callable[..., Any], operands: list[torch.Tensor], along: list[torch.Tensor]
) -> list[Any]:
    """Dual numbers of values that gradients are asked for, too, as for the product with a Hessian."""
    return by_dual(function, [x.clone().requires_grad_() for x in operands], along)


def check_forward(call: Call, ways: list[Callable[..., list[Any]]]) -> None:
    function = call.smooth
    if function is None:
        return
    operands, name = call.operands, call.op.name
    along = tangents(call)
    for way in ways:
        got = way(function, operands, along)
        if name not in LAST:
            for one, want in zip(got, by_gradients(function, operands, along), strict=True):
                torch.testing.assert_close(one, want, rtol=1e-7, atol=1e-9, equal_nan=True, msg=f"{call}: {way}")
        if name in STEPS:
            continue
        for one, want in zip(got, differences(function, operands, along), strict=True):
            near = one.isfinite() & want.isfinite()  # nothing is known of what is infinite or NaN
            torch.testing.assert_close(one[near], want[near], rtol=1e-4, atol=1e-4, msg=f"{call}: {way}")


@pytest.mark.parametrize("name", TABLE)
def test_forward_mode_of_every_operation(name):
    for call in calls(TABLE[name], FEW, kind_of(TABLE[name])):
        check_forward(call, [by_func, by_dual_with_gradients])


@pytest.mark.slow
@pytest.mark.parametrize("name", TABLE)
def test_forward_mode_of_every_operation_on_every_structure(name):
    dtypes = [kind_of(TABLE[name]), *[torch.complex128] * ("complex" in TABLE[name].kinds and name not in REAL)]
    for dtype in dtypes:
        for call in calls(TABLE[name], FINITE, dtype):
            check_forward(call, [by_func, by_dual, by_dual_with_gradients])


# ------------------------------------------------------------------------------------------------ vmap, Jacobians

SIZES_ARE_DATA = ("nonzero", "unique_all", "unique_counts", "unique_inverse", "unique_values")
"""Operations whose results have as many entries as the elements say: vmap has no such results."""
UNDEFINED = ("empty_like",)


def lines_of(x: torch.Tensor) -> torch.Tensor:
    return torch.stack([x, x.flip(0) * 0.9 if x.ndim else x * 0.9, x * 0.5])


def check_lines(call: Call) -> None:
    """vmap over three lines of values in one structure, against one call for each line."""
    lines = [lines_of(x) for x in call.operands]
    if call.op.name in SIZES_ARE_DATA:
        with pytest.raises(RuntimeError, match=r"vmap|[Bb]atching rule"):
            torch.vmap(call)(*lines)
        return
    got = torch.vmap(call, randomness="same")(*lines)
    want = [call(*(x[i] for x in lines)) for i in range(3)]
    for one, each in zip(got, zip(*want, strict=True), strict=True):
        torch.testing.assert_close(one, torch.stack(each), equal_nan=True, msg=f"vmap of {call}")


def check_jacobians(call: Call) -> None:
    """Both of torch.func, against one gradient for each element of a result."""
    function, operands = call.smooth, call.operands
    if function is None or not sum(out.numel() for out in function(*operands)):
        return
    if any(out.is_complex() for out in function(*operands)):  # which torch's functions refuse
        return
    leaves = [x.clone().requires_grad_() for x in operands]
    numbers = tuple(range(len(operands)))
    ways = [torch.func.jacrev(function, numbers)(*operands)]
    if call.op.name not in (*SYMMETRIC, *LAST):
        ways.append(torch.func.jacfwd(function, numbers)(*operands))
    for i, out in enumerate(function(*leaves)):
        back = [
            torch.autograd.grad(element, leaves, retain_graph=True, allow_unused=True, materialize_grads=True)
            for element in out.reshape(-1)
        ]
        for k, leaf in enumerate(leaves):
            want = torch.stack([each[k] for each in back]) if back else leaf.new_zeros((0, *leaf.shape))
            for way in ways:
                got = way[i][k].reshape(want.shape).to(want.dtype)
                near = out.detach().isfinite().reshape(-1)  # where the result is NaN, its derivative is anything
                torch.testing.assert_close(got[near], want[near], rtol=1e-7, atol=1e-9, equal_nan=True, msg=f"{call}")


@pytest.mark.parametrize("name", [name for name in TABLE if name not in UNDEFINED])
def test_vmap_over_values_of_one_structure(name):
    for call in calls(TABLE[name], ["empty rows", "product"], kind_of(TABLE[name])):
        check_lines(call)


@pytest.mark.parametrize("name", TABLE)
def test_jacobians_of_every_operation(name):
    for call in calls(TABLE[name], ["empty rows"], kind_of(TABLE[name])):
        check_jacobians(call)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in TABLE if name not in UNDEFINED])
def test_vmap_and_jacobians_on_every_structure(name):
    for call in calls(TABLE[name], FINITE, kind_of(TABLE[name])):
        check_lines(call)
        if call.structure != "one giant row":
            check_jacobians(call)


# ------------------------------------------------------------------------------------- what the table does not hold

BATCH = sr.from_lengths(torch.linspace(0.1, 2.0, 20, dtype=torch.float64).view(10, 2).sin(), [3, 0, 5, 2])
TABLE_OF_ROWS = torch.linspace(-1, 1, 12, dtype=torch.float64).view(6, 2).cos()
IDS = sr.from_lengths(torch.tensor([0, 3, 3, 5, 1, 2, 2, 0, 4, 1]), [3, 0, 5, 2])


def assigned(x: sr.Tensor) -> sr.Tensor:
    y = x * 1
    y[:, :1] = x[:, :1].exp()
    return y


FUNCTIONS: dict[str, tuple[Callable[[torch.Tensor], Any], torch.Tensor]] = {
    "a slice": (lambda v: BATCH._with(v)[:, 1:3], BATCH.values),
    "reversed rows": (lambda v: BATCH._with(v)[:, ::-1], BATCH.values),
    "rows by number": (lambda v: BATCH._with(v)[[3, 0, 3]], BATCH.values),
    "a mask": (lambda v: BATCH._with(v)[BATCH > 0.5], BATCH.values),
    "a ragged index": (lambda v: BATCH._with(v)[sr.ragged([[2, 0], [], [-1], [1, 1, 0]])], BATCH.values),
    "assignment": (lambda v: assigned(BATCH._with(v)), BATCH.values),
    "to_dense": (lambda v: BATCH._with(v).to_dense(-1.0), BATCH.values),
    "to_dense, cut": (lambda v: BATCH._with(v).to_dense(max_lengths=2), BATCH.values),
    "from_dense": (lambda v: sr.from_dense(v.view(2, 5, 2), lengths=[5, 1]), BATCH.values),
    "concat": (lambda v: sr.concat([BATCH._with(v), BATCH, BATCH._with(v.exp())], axis=1), BATCH.values),
    "torch's max": (lambda v: torch.max(BATCH._with(v).round(), 1).values, BATCH.values),
    "embedding": (lambda v: sr.embedding(IDS, v), TABLE_OF_ROWS),
    "bags of sums": (lambda v: sr.embedding_bag(IDS, v, mode="sum"), TABLE_OF_ROWS),
    "bags of means": (lambda v: sr.embedding_bag(IDS, v, mode="mean", padding_idx=3), TABLE_OF_ROWS),
    "bags of maxima": (lambda v: sr.embedding_bag(IDS, v, mode="max", padding_idx=2), TABLE_OF_ROWS),
    "weights of bags": (
        lambda v: sr.embedding_bag(IDS, TABLE_OF_ROWS, mode="sum", per_sample_weights=IDS._with(v)),
        BATCH.values[:, 0].contiguous(),
    ),
    "attention": (lambda v: sr.attention(BATCH._with(v), BATCH._with(v), BATCH), BATCH.values),
    "a window of attention": (
        lambda v: sr.attention(BATCH, BATCH._with(v), BATCH._with(v), causal=True, window=(2, 0)),
        BATCH.values,
    ),
    "a bias of attention": (lambda v: sr.attention(BATCH, BATCH, BATCH, bias=v), torch.eye(5, dtype=torch.float64)),
    "products of rows": (lambda v: BATCH._with(v) @ BATCH._with(v.sin()).mT, BATCH.values),
    "sums over rows": (lambda v: BATCH._with(v).mT @ BATCH._with(v.sin()), BATCH.values),
    "conv1d": (
        lambda v: sr.conv1d(BATCH.mT, v, padding=1),
        torch.linspace(0, 1, 18, dtype=torch.float64).view(3, 2, 3),
    ),
    "groups": (lambda v: sr.group_by(v, torch.tensor([1, 0, 1, -1, 2, 0, 1, 1, 0, 2]), 3), BATCH.values),
    "a product with zeros": (lambda v: sr.prod(BATCH._with(v), axis=1), (BATCH.values * 2).round()),
    "running products with zeros": (
        lambda v: sr.cumulative_prod(BATCH._with(v), axis=1),
        (BATCH.values * 2).round(),
    ),
    "the greatest of ties": (lambda v: sr.max(BATCH._with(v), axis=1), (BATCH.values * 2).round()),
}
KINKS = ("torch's max", "the greatest of ties")


def values_of(function: Callable[[torch.Tensor], Any]) -> Callable[[torch.Tensor], tuple[torch.Tensor, ...]]:
    def call(v: torch.Tensor) -> tuple[torch.Tensor, ...]:
        made = function(v)
        return (made.values if isinstance(made, sr.Tensor) else made,)

    return call


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("way", [by_func, by_dual, by_dual_with_gradients])
def test_forward_mode_of_indexing_tables_and_attention(name, way):
    given, at = FUNCTIONS[name]
    function = values_of(given)
    along = [torch.linspace(-1, 1, at.numel(), dtype=torch.float64).view(at.shape).exp()]
    (got,) = way(function, [at], along)
    torch.testing.assert_close(got, by_gradients(function, [at], along)[0], rtol=1e-9, atol=1e-12)
    if name not in KINKS:
        torch.testing.assert_close(got, differences(function, [at], along)[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name not in KINKS])
def test_hessians_are_right_forward_over_reverse_and_reverse_over_reverse(name):
    """Also of products with zeros among their factors, against differences of gradients."""
    given, at = FUNCTIONS[name]
    function = values_of(given)

    def total(v: torch.Tensor) -> torch.Tensor:
        return function(v)[0].square().sum()

    gradient = torch.func.grad(total)
    along = torch.linspace(1, -1, at.numel(), dtype=torch.float64).view(at.shape)
    (want,) = differences(lambda v: (gradient(v),), [at], [along])
    for hessian in (torch.func.hessian(total)(at), torch.func.jacrev(gradient)(at)):
        got = (hessian.reshape(at.numel(), at.numel()) @ along.reshape(-1)).view(at.shape)
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


def test_torch_s_pair_has_one_tangent_for_ties_in_both_modes():
    x = sr.ragged([[2.0, 2.0, 1.0], [3.0]])
    along = torch.tensor([1.0, 10.0, 100.0, 1000.0])
    _, pair = torch.func.jvp(lambda v: torch.max(x._with(v), 1).values, (x.values,), (along,))
    assert pair.tolist() == [1.0, 1000.0]
    _, shared = torch.func.jvp(lambda v: sr.max(x._with(v), axis=1).values, (x.values,), (along,))
    assert shared.tolist() == [5.5, 1000.0]
    wide = sr.ragged([[float("-inf"), float("-inf")], [float("nan"), 1.0], []])
    value, tangent = torch.func.jvp(
        lambda v: sr.max(wide._with(v), axis=1).values, (wide.values,), (torch.tensor([1.0, 2.0, 3.0, 4.0]),)
    )
    torch.testing.assert_close(value, torch.tensor([-float("inf"), float("nan"), -float("inf")]), equal_nan=True)
    torch.testing.assert_close(tangent, torch.tensor([1.5, 3.0, 0.0]))


def test_what_a_transform_asked_for_first_serves_others_later():
    """Row numbers and lengths are kept with their partition, without what stands for them inside a transform."""
    x = sr.from_lengths(torch.ones(5, 2), [2, 0, 3])
    torch.func.jvp(lambda v: sr.softmax(x._with(v), axis=1).values, (x.values,), (x.values,))
    torch.vmap(lambda w: (x @ x.mT * w).values)(torch.ones(3))
    assert x.lengths[0].numpy().tolist() == [2, 0, 3]
    for kept in x.partitions[0]._memo.values():
        assert not (isinstance(kept, torch.Tensor) and torch._C._functorch.is_functorch_wrapped_tensor(kept))
