"""Products of operands with room for different numbers of rows, in different orders of storage, and their dtypes.

The oracle enumerates pairs of elements whose labels agree; gradients are compared with differences. What is undefined
is NaN, so it shows wherever it is read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.ops.test_parents_in_products import assert_enumerated, enumerated, random
from torch.autograd import gradcheck, gradgradcheck

import serrate as sr
from serrate.errors import RaggednessError

R = sr.Ragged
BLOCKS = (3, R([2, 0, 1]), R([1, 2, 3]))
"""Blocks of 2 × 1, nothing and 1 × 3."""
NOTHING = (1, R([1]), R([0]))
"""A block without entries: every row of a device-born one is undefined."""
ONE = (3, R([1, 1, 1]), R([0, 0, 1]))
"""One row, which torch would stretch against several."""

EINSUMS = [
    ("abc,abc->abc", BLOCKS, BLOCKS),
    ("abc,abc->cab", BLOCKS, BLOCKS),
    ("abc,abc->", BLOCKS, BLOCKS),
    ("abc,abc->a", BLOCKS, BLOCKS),
    ("abc,abc->ab", BLOCKS, BLOCKS),
    ("abcx,abcy->abcxy", (*BLOCKS, 2), (*BLOCKS, 3)),
    ("abcx,abcx->abc", (*BLOCKS, 2), (*BLOCKS, 2)),
    ("abcx,abcy->xy", (*BLOCKS, 2), (*BLOCKS, 3)),
    ("abcx,abcy->axy", (*BLOCKS, 2), (*BLOCKS, 3)),
    ("abc,acd->abd", BLOCKS, (3, R([1, 2, 3]), R([0, 2, 1]))),
    ("abc,acd->abcd", BLOCKS, (3, R([1, 2, 3]), R([0, 2, 1]))),
    ("abc,adb->acd", BLOCKS, (3, R([1, 2, 2]), R([2, 0, 1]))),
    ("abcx,acb->abcx", (*BLOCKS, 2), (3, R([1, 2, 3]), R([2, 0, 1]))),
    ("abc,abc->abc", NOTHING, NOTHING),
    ("abc,abc->", NOTHING, NOTHING),
    ("abcx,abcy->abxy", (*NOTHING, 1), (*NOTHING, 2)),
    ("abc,acd->abd", NOTHING, (1, R([0]), R([2]))),
    ("abcde,abde->bd", (1, R([1]), R([0]), R([2]), 1), (1, R([1]), R([2]), 1)),
    ("abcx,abcy->abcxy", (*ONE, 1), (*ONE, 1)),
    ("abcx,abcy->bcaxy", (*ONE, 0), (*ONE, 1)),
]
SPARE = [(0, 0), (0, 1), (1, 0), (3, 1), (None, 2), (2, None)]


def born(x: sr.Tensor, spare: int | None) -> sr.Tensor:
    """`x` device-born with undefined rows that hold NaN; host-born for None."""
    if spare is None:
        return x
    made = sr.testing.device_born(x, spare=spare)
    defined = torch.arange(made.values.shape[0]) < x.values.shape[0]
    return made._with(torch.where(defined.view(-1, *[1] * (x.values.ndim - 1)), made.values, float("nan")))


def check(call: Callable[..., sr.Tensor], operands: list[sr.Tensor], spare: Any, want: dict[Any, float]) -> None:
    """A product of operands that have spare rows, its first gradients and its second ones."""
    got = call(*map(born, operands, spare))
    assert_enumerated(got, want)
    if got.is_ragged:
        assert got.values.shape[0] == got.structure.cells(got.structure.whole)
    if not all(x.values.numel() for x in operands):
        leaves = [born(x, s).requires_grad_() for x, s in zip(operands, spare, strict=True)]
        found = torch.autograd.grad(sr.sum(call(*leaves)).torch(), [x.values for x in leaves])
        assert [g.shape for g in found] == [x.values.shape for x in leaves]
        return

    def total(*values: torch.Tensor) -> torch.Tensor:
        made = call(*(born(x._with(v), s) for x, v, s in zip(operands, values, spare, strict=True)))
        return sr.sum(made * made).torch()

    values = [x.values.clone().requires_grad_() for x in operands]
    assert gradcheck(total, values)
    assert gradgradcheck(total, values, fast_mode=True)


@pytest.mark.parametrize("spare", SPARE, ids=str)
@pytest.mark.parametrize(("equation", "left", "right"), EINSUMS, ids=str)
def test_einsum_of_different_capacities(equation, left, right, spare):
    operands: list[Any] = [random(shape, seed) for seed, shape in enumerate((left, right))]
    check(lambda *x: sr.einsum(equation, *x), operands, spare, enumerated(equation, *operands))


@pytest.mark.parametrize("spare", SPARE, ids=str)
def test_matmul_and_outer_of_different_capacities(spare):
    x, y = (random((*BLOCKS, 2, n), n) for n in (1, 3))
    check(lambda a, b: a.mT @ b, [x, y], spare, enumerated("abcxy,abcxz->abcyz", x, y))
    x, y = (random((*BLOCKS, n), n) for n in (1, 3))
    check(sr.outer, [x, y], spare, enumerated("abcx,abcy->abcxy", x, y))
    x, y = random(BLOCKS, 0), random(BLOCKS, 1)
    check(lambda a, b: a @ b.mT, [x, y], spare, enumerated("abc,adc->abd", x, y))
    check(sr.vecdot, [x, y], spare, enumerated("abc,abc->ab", x, y))


@pytest.mark.parametrize("pair", [(0, 1), (1, 0), (2, 1), (None, 1), (1, None)], ids=str)
def test_chains_of_different_capacity_are_refused(pair):
    """The capacity belongs to their innermost ragged axis, and an axis that operands share has one."""
    x, y = (born(random((2, R([2, 1]), 2), 0), spare) for spare in pair)
    for call in (lambda: x.mT @ y, lambda: sr.einsum("abx,aby->abxy", x, y)):
        with pytest.raises(RaggednessError, match=r"different raggedness: .*, with room for \d and \d entries"):
            call()


@pytest.mark.parametrize("spare", [0, 1, 3])
def test_one_ragged_axis_in_each_component_waits_for_nothing(spare):
    """The result has the structure of the operand that has its axes, whichever that is, and no total is asked for."""
    rows = (3, R([2, 0, 1]), 2)
    x, y = born(random(BLOCKS, 0), spare), born(random(rows, 1), 0)
    want = enumerated("abc,aby->abc", random(BLOCKS, 0), random(rows, 1))
    with sr.testing.forbid_sync():
        one, other = sr.einsum("abc,aby->abc", x, y), sr.einsum("aby,abc->abc", y, x)
    assert one.structure is other.structure is x.structure
    for got in (one, other):
        assert_enumerated(got, want)


# --------------------------------------------------------------------------------------------- orders of storage

CROSSED = (2, R([1, 2]), 2, R([3, 1, 0, 2], (0, 2)))
"""[a, r, b, s] where s depends on a and b, and r on a; the same with b before r is stored in another order."""
SWAPPED = (2, 2, R([3, 1, 0, 2], (0, 1)), R([1, 2]))


@pytest.mark.parametrize("spare", [(None, None), *SPARE], ids=str)
@pytest.mark.parametrize("out", ["arbs", "srab", "sbra"])
def test_equal_axes_stored_in_different_orders(out, spare):
    x, y = random((*CROSSED, 2), 0), random((*SWAPPED, 2), 1)
    for equation in (f"arbsx,absrx->{out}", f"arbsx,absry->{out}xy"):
        check(lambda *o, e=equation: sr.einsum(e, *o), [x, y], spare, enumerated(equation, x, y))
        turned = ",".join(reversed(equation.split("->")[0].split(","))) + "->" + equation.split("->")[1]
        check(lambda a, b, e=turned: sr.einsum(e, b, a), [x, y], spare, enumerated(turned, y, x))


def test_views_of_equal_shapes_stored_in_different_orders():
    x = random((1, R([1]), 2, R([3, 1], (0, 2))), 0).permute_dims((3, 2, 1, 0))
    y = random((1, 2, R([3, 1], (0, 1)), R([1])), 1).permute_dims((2, 1, 3, 0))
    assert x.shape == y.shape
    assert_enumerated(sr.einsum("abcd,abcd->dabc", x, y), enumerated("abcd,abcd->dabc", x, y))


# --------------------------------------------------------------------------------------------------------- dtypes

INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32]


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ab,by->by", ((2, 3), (3, R([2, 0, 1])))),
        ("ab,by->aby", ((2, 3), (3, R([2, 0, 1])))),
        ("abc->c", ((3, R([2, 0, 1]), 2),)),
        ("abc->abc", ((3, R([2, 0, 1]), 2),)),
        ("abc->", ((3, R([2, 0, 1]), 2),)),
        ("abc,abc->", (BLOCKS, BLOCKS)),
        ("abc,ac->ab", (BLOCKS, (3, R([1, 2, 3])))),
        ("ab,->b", ((2, 3), ())),
        ("b,abcd->bd", ((2,), (2, 2, 1, 3))),
        ("ab->", ((2, 3),)),
    ],
    ids=str,
)
def test_integers_keep_their_dtype(equation, shapes, dtype):
    """Whether a label of one operand alone is summed or not, ragged or dense; sums wrap as the dtype does."""
    wide = [sr.ones(shape, dtype=torch.int64) * (k + 7) for k, shape in enumerate(shapes)]
    got = sr.einsum(equation, *(x.to(dtype) for x in wide))
    assert got.dtype == dtype
    want = {index: torch.tensor(int(v)).to(dtype).item() for index, v in enumerated(equation, *wide).items()}
    assert_enumerated(got, want)


def test_different_integers_give_the_promoted_dtype():
    x, y = sr.ones((3, R([2, 0, 1])), dtype=torch.uint8), torch.ones(2, 3, dtype=torch.int16)
    for equation in ("by,ab->by", "by,ab->aby", "by,ab->a"):
        assert sr.einsum(equation, x, y).dtype == torch.int16
    assert sr.einsum("ab,by->", torch.ones(2, 3, dtype=torch.int8), y.to(torch.int32).T).dtype == torch.int32
