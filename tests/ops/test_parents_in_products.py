"""Products with operands that have uniform axes on which ragged axes of the other depend: heads, batches of one.

The oracle enumerates: every element of one operand times every element of the other whose labels agree, summed into
the element of the result that the labels name.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.ops.enumeration import seen
from torch.autograd import gradcheck, gradgradcheck

import serrate as sr
from serrate.errors import AxisError
from serrate.tensor.structure import Structure

R = sr.Ragged
# [B, H, r] with a length for each head, [B, q, H, r] with one for each head of each entry, and others of that kind.
HEADS = (2, 3, R([1, 2, 3, 0, 1, 2], (0, 1)))
LEVELS = (2, R([2, 1]), 3, R([1, 0, 2, 1, 1, 0, 3, 1, 2], (0, 1, 2)))
CROSSED = (2, 3, R([1, 0, 3], (1,)), R([1, 2], (0,)))


def random(shape: tuple[Any, ...], seed: int) -> sr.Tensor | torch.Tensor:
    """A torch tensor, or a ragged one, of this shape."""
    generator = torch.Generator().manual_seed(seed)
    if all(isinstance(size, int) for size in shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)
    made = sr.zeros(shape, dtype=torch.float64)
    return made._with(torch.randn(made.values.shape, generator=generator, dtype=torch.float64))


def enumerated(equation: str, *operands: Any) -> dict[tuple[int, ...], float]:
    terms, out = equation.split("->")
    found: dict[tuple[int, ...], float] = {}
    cells = [seen(x if isinstance(x, sr.Tensor) else sr.Tensor(x)) for x in operands]
    for pair in itertools.product(*(each.items() for each in cells)):
        at: dict[str, int] = {}
        value = 1.0
        for term, (index, factor) in zip(terms.split(","), pair, strict=True):
            if any(at.setdefault(label, i) != i for label, i in zip(term, index, strict=True)):
                break
            value *= factor
        else:
            place = tuple(at[label] for label in out)
            found[place] = found.get(place, 0.0) + value
    return found


def assert_enumerated(got: sr.Tensor, want: dict[tuple[int, ...], float]) -> None:
    found = seen(got)
    assert found.keys() >= want.keys()
    for index, value in found.items():
        assert value == pytest.approx(want.get(index, 0.0), rel=1e-9, abs=1e-12), index


EINSUMS = [
    ("bhre,h->bhre", (*HEADS, 2), (3,)),
    ("bhre,hef->bhrf", (*HEADS, 2), (3, 2, 2)),
    ("bhre,fhe->rbfh", (*HEADS, 2), (2, 3, 2)),
    ("h,bhr->bhr", (3,), HEADS),
    ("hfe,bhre->bhfr", (3, 2, 2), (*HEADS, 2)),
    ("bhre,he->bhr", (*HEADS, 2), (3, 2)),
    ("bhre,he->bre", (*HEADS, 2), (3, 2)),
    ("bhre,h->hre", (*HEADS, 2), (3,)),
    ("bhre,h->e", (*HEADS, 2), (3,)),
    ("bhre,bh->bre", (*HEADS, 2), (2, 3)),
    ("bhre,bh->re", (*HEADS, 2), (2, 3)),
    ("bhre,hb->bhre", (*HEADS, 2), (3, 2)),
    ("bqhr,h->bqhr", LEVELS, (3,)),
    ("bqhr,bh->bqhr", LEVELS, (2, 3)),
    ("bqhr,bhf->bqhrf", LEVELS, (2, 3, 2)),
    ("bqhr,h->bqr", LEVELS, (3,)),
    ("bhrs,h->bhrs", CROSSED, (3,)),
    ("bhrs,b->bhrs", CROSSED, (2,)),
    ("bhrs,hf->bhsrf", CROSSED, (3, 2)),
    # Both ragged: an axis that is packed in one and a feature of the other, or missing there.
    ("bhre,bshe->bhrs", (*HEADS, 2), (2, R([2, 1]), 3, 2)),
    ("bshe,bhre->bhsr", (2, R([2, 1]), 3, 2), (*HEADS, 2)),
    ("bhre,hse->bhrs", (*HEADS, 2), (3, R([2, 0, 1]), 2)),
    ("hse,bhre->bhsr", (3, R([2, 0, 1]), 2), (*HEADS, 2)),
]


@pytest.mark.parametrize(("equation", "left", "right"), EINSUMS, ids=lambda v: v if isinstance(v, str) else "")
def test_einsum_equals_enumeration(equation, left, right):
    operands = [random(left, 1), random(right, 2)]
    want = enumerated(equation, *operands)
    got = sr.einsum(equation, *operands)
    assert_enumerated(got, want)
    for spare in (0, 3):
        born = [sr.testing.device_born(x, spare=spare) if isinstance(x, sr.Tensor) else x for x in operands]
        assert_enumerated(sr.einsum(equation, *born), want)
    check_gradients(lambda *given: sr.einsum(equation, *given), operands)


def check_gradients(run: Callable[..., sr.Tensor], operands: list[Any], spare: int = 2) -> None:
    """First and second derivatives for both operands; and those of a dense one see no undefined row."""
    values = [(x.values if isinstance(x, sr.Tensor) else x).clone().requires_grad_() for x in operands]

    def call(*given: torch.Tensor) -> torch.Tensor:
        return run(
            *[x._with(v) if isinstance(x, sr.Tensor) else v for x, v in zip(operands, given, strict=True)]
        ).values

    assert gradcheck(call, values)
    assert gradgradcheck(call, values)
    wanted = torch.autograd.grad((call(*values) ** 2).sum(), values)
    born = [sr.testing.device_born(x, spare=spare) if isinstance(x, sr.Tensor) else x for x in operands]
    leaves = [(x.values if isinstance(x, sr.Tensor) else x).clone() for x in born]
    for leaf, x in zip(leaves, operands, strict=True):
        if isinstance(x, sr.Tensor):
            leaf[x.values.shape[0] :] = float("nan")
        leaf.requires_grad_()
    made = run(*[x._with(v) if isinstance(x, sr.Tensor) else v for x, v in zip(born, leaves, strict=True)])
    total = sr.sum(made * made).torch()
    for got, want in zip(torch.autograd.grad(total, leaves), wanted, strict=True):
        torch.testing.assert_close(got[: want.shape[0]], want)


# A call, its operands, and the equation that says what it means; axes of size 1 stretch, which the equation leaves out.
CALLS: dict[str, tuple[Callable[..., sr.Tensor], tuple[Any, ...], tuple[Any, ...], str]] = {
    "matmul, heads": (sr.matmul, (*HEADS, 2), (3, 2, 4), "bhre,hef->bhrf"),
    "matmul, heads on the left": (lambda x, w: sr.matmul(w, x.mT), (*HEADS, 2), (3, 4, 2), "bhre,hfe->bhfr"),
    "matmul, heads of one": (sr.matmul, (*HEADS, 2), (1, 3, 2, 4), "bhre,ahef->bhrf"),
    "matmul, batches": (sr.matmul, (*HEADS, 2), (2, 1, 2, 4), "bhre,baef->bhrf"),
    "matmul, one of each": (sr.matmul, (*HEADS, 2), (1, 1, 2, 4), "bhre,acef->bhrf"),
    "matmul, one more axis": (sr.matmul, (*HEADS, 2), (2, 1, 3, 2, 4), "bhre,gahef->gbhrf"),
    "matmul, vector": (sr.matmul, (*HEADS, 2), (2,), "bhre,e->bhr"),
    "matmul, levels": (sr.matmul, (*LEVELS, 2), (3, 2, 4), "bqhre,hef->bqhrf"),
    "tensordot, heads": (lambda x, w: sr.tensordot(x, w, axes=((1,), (0,))), (*HEADS, 2), (3, 4), "bhre,hf->bref"),
    "tensordot, both": (
        lambda x, w: sr.tensordot(x, w, axes=((1, 3), (0, 1))),
        (*HEADS, 2),
        (3, 2, 4),
        "bhre,hef->brf",
    ),
    "vecdot, features": (sr.vecdot, (*HEADS, 2), (3, 1, 2), "bhre,hae->bhr"),
    "vecdot, heads": (lambda x, w: sr.vecdot(x, w, axis=1), (*HEADS, 2), (3, 1, 2), "bhre,hae->bre"),
    "linear": (sr.linear, (*HEADS, 2), (4, 2), "bhre,fe->bhrf"),
    "outer": (sr.outer, HEADS, (2, 3, 4), "bhr,bhf->bhrf"),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls_equal_enumeration(name):
    run, left, right, equation = CALLS[name]
    operands: list[Any] = [random(left, 1), random(right, 2)]
    want = enumerated(equation, *operands)
    assert_enumerated(run(*operands), want)
    for spare in (0, 3):
        with sr.testing.forbid_sync() if "tensordot" not in name and name != "vecdot, heads" else torch.no_grad():
            got = run(sr.testing.device_born(operands[0], spare=spare), operands[1])
        assert_enumerated(got, want)
    check_gradients(run, operands)


def test_rows_of_one_batch_stretch_and_stay_ragged():
    one = random((1, R([3]), 2), 1)
    got = one @ random((4, 2, 5), 2)
    assert got.shape == (4, R([3] * 4), 5)
    assert_enumerated(got, enumerated("are,bef->brf", one, random((4, 2, 5), 2)))
    heads = random((2, 1, R([3, 1], (0, 1)), 2), 3)
    got = heads @ random((3, 2, 5), 4)
    assert got.shape == (2, 3, R([3, 3, 3, 1, 1, 1], (0, 1)), 5)
    assert_enumerated(got, enumerated("bare,hef->bhrf", heads, random((3, 2, 5), 4)))
    assert sr.einsum("bre,be->bre", one, torch.ones(4, 2, dtype=torch.float64)).shape == (4, R([3] * 4), 2)
    check_gradients(lambda x, w: x @ w, [heads, random((3, 2, 5), 4)])
    check_gradients(lambda x, w: x @ w, [one, random((4, 2, 5), 2)])


def test_undefined_cells_of_the_axes_outside_take_no_part():
    """Device-born lengths with room for one more entry of q, which would have three heads, and for two more rows."""
    exact = random((*LEVELS, 2), 1)
    q, r = exact.partitions
    roomy = sr.Partition._of(q.offsets, q.num_values + 1, device_born=True, exact=False)
    ends = torch.cat([r.offsets, r.offsets[-1:].expand(3)])
    rows = sr.Partition._of(ends, r.num_values + 2, device_born=True, exact=False)
    structure = Structure((2, R(roomy, (0,)), 3, R(rows, (0, 1, 2))), r.num_values + 2)
    weight = random((3, 2, 4), 2)
    for undefined in (97.0, float("nan")):
        x = sr.Tensor(torch.cat([exact.values, torch.full((2, 2), undefined, dtype=torch.float64)]), structure)
        with sr.testing.forbid_sync():
            got = x @ weight
        assert_enumerated(got, enumerated("bqhre,hef->bqhrf", exact, weight))


def test_the_dense_operand_is_not_copied_for_every_row():
    """A weight for each head, and many rows: what is allocated does not grow with batch × weight."""
    x = sr.ones((64, 2, R([1] * 128, (0, 1)), 64))
    weight = torch.ones(2, 64, 64)
    with torch.profiler.profile(profile_memory=True) as profile:
        _ = x @ weight
    allocated = sum(max(event.self_cpu_memory_usage, 0) for event in profile.events())
    assert allocated < 8 * (x.values.nbytes + weight.nbytes)
    assert allocated < 64 * weight.nbytes


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float32, torch.complex64, torch.int32, torch.uint16]
)
def test_dtypes(dtype):
    x = sr.ones((*HEADS, 2)).to(dtype)
    got = x @ torch.ones(3, 2, 4).to(dtype)
    assert got.dtype == dtype
    assert set(got.values.to(torch.complex64).reshape(-1).tolist()) == {2 + 0j}
    empty = sr.ones((0, 3, R([], (0, 1)), 2)).to(dtype) @ torch.ones(3, 2, 4).to(dtype)
    assert empty.shape == (0, 3, R([], (0, 1)), 4)
    nothing = sr.ones((2, 3, R([0] * 6, (0, 1)), 2)).to(dtype) @ torch.ones(3, 2, 4).to(dtype)
    assert nothing.values.shape == (0, 4)


def test_a_row_of_nan_stays_in_its_row():
    x = random((*HEADS, 2), 1)
    x[1, 2, 0] = float("nan")
    got = x @ random((3, 2, 4), 2)
    assert sr.any(sr.isnan(got), axis=3).tolist() == sr.any(sr.isnan(x), axis=3).tolist()


def test_what_does_not_go_together_is_named():
    x = random((*HEADS, 2), 1)
    with pytest.raises(ValueError, match="axes of size 3 and 4 do not go together"):
        x @ torch.ones(4, 2, 5, dtype=torch.float64)
    with pytest.raises(AxisError, match="share no outer axis"):
        sr.einsum("bhre,gse->bhrgs", x, random((3, R([2, 0, 1]), 2), 2))
