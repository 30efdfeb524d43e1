"""Products over uniform and ragged axes: against torch on each component, gradients, length classes, waits, errors."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.ops.samples import DTYPES, NAMES, leaves, sample
from torch.autograd import gradcheck, gradgradcheck

import serrate as sr
from serrate.eager.classes import length_classes
from serrate.errors import AxisError, DeviceMismatchError, RaggednessError
from serrate.tensor.structure import Structure

Q, K = [3, 0, 5, 2, 3, 1], [1, 2, 4, 0, 1, 7]


def as_dtype(made: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    if dtype.is_complex:
        return torch.complex(made, made.flip(0)).to(dtype)
    return made.to(dtype) if dtype.is_floating_point else (made * 4).abs().to(dtype)


def rows(lengths: list[int], *features: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> sr.Tensor:
    made = torch.randn(sum(lengths), *features, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return sr.from_lengths(as_dtype(made, dtype), lengths)


def noise(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 5) -> torch.Tensor:
    made = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return as_dtype(made, dtype)


def close(got: torch.Tensor, want: torch.Tensor) -> None:
    fine = {torch.float16: 2e-2, torch.bfloat16: 2e-1, torch.float32: 1e-4, torch.complex64: 1e-4}.get(got.dtype, 1e-9)
    torch.testing.assert_close(got, want, rtol=fine, atol=fine)


# The form; its operands; each component's operands are their entries at b, or themselves.
FORMS = {
    "brd,de": lambda dtype: (rows(Q, 4, dtype=dtype), noise(4, 5, dtype=dtype)),
    "brd,bde": lambda dtype: (rows(Q, 4, dtype=dtype), noise(6, 4, 5, dtype=dtype)),
    "bdr,bre": lambda dtype: (rows(Q, 4, dtype=dtype).mT, rows(Q, 5, dtype=dtype, seed=1)),
    "bqd,bdk": lambda dtype: (rows(Q, 4, dtype=dtype), rows(K, 4, dtype=dtype, seed=1).mT),
    "bqk,bke": lambda dtype: (
        sr.from_product(
            noise(sum(q * k for q, k in zip(Q, K, strict=True)), dtype=dtype),
            sr.Partition.from_lengths(Q),
            sr.Partition.from_lengths(K),
        ),
        rows(K, 3, dtype=dtype, seed=2),
    ),
    "bhqd,bhdk": lambda dtype: (
        rows(Q, 2, 4, dtype=dtype).permute_dims((0, 2, 1, 3)),
        rows(K, 2, 4, dtype=dtype, seed=1).permute_dims((0, 2, 3, 1)),
    ),
    "bd,bdr": lambda dtype: (noise(6, 1, 4, dtype=dtype), rows(Q, 4, dtype=dtype, seed=1).mT),
}


def by_component(left, right):
    for b in range(6):
        yield tuple((x[b].torch() if isinstance(x, sr.Tensor) else x if x.ndim == 2 else x[b]) for x in (left, right))


@pytest.mark.parametrize("form", FORMS)
def test_matmul_equals_torch_on_each_component(form):
    for kind in ("float", "complex", "int"):
        for dtype in DTYPES[kind]:
            left, right = FORMS[form](dtype)
            for got in (sr.matmul(left, right), torch.matmul(left, right), left @ right):
                assert got.dtype == dtype
                for b, (a, c) in enumerate(by_component(left, right)):
                    mine = got[b] if isinstance(got, torch.Tensor) else got[b].torch()
                    close(mine, torch.matmul(a, c))


@pytest.mark.parametrize("form", FORMS)
def test_gradients(form):
    left, right = FORMS[form](torch.float64)
    packed = [x.values if isinstance(x, sr.Tensor) else x for x in (left, right)]
    values = [v.clone().requires_grad_() for v in packed]

    def run(a, b):
        return sr.matmul(
            left._with(a) if isinstance(left, sr.Tensor) else a, right._with(b) if isinstance(right, sr.Tensor) else b
        ).values

    assert gradcheck(run, values)
    assert gradgradcheck(run, values, fast_mode=True)


def test_complex_gradients():
    left, right = FORMS["brd,bde"](torch.complex128)
    values = [left.values.clone().requires_grad_(), right.clone().requires_grad_()]
    assert gradcheck(lambda a, b: sr.matmul(left._with(a), b).values, values)


def test_what_the_result_shares():
    x, w = FORMS["brd,bde"](torch.float64)
    assert (x @ w).structure is x.structure
    assert (x @ w[0]).structure is x.structure
    q, k = FORMS["bqd,bdk"](torch.float64)
    scores = q @ k
    assert scores.partitions == (q.partitions[0], k.partitions[0])
    assert scores.shape == (6, sr.Ragged(Q), sr.Ragged(K))


def test_several_levels():
    x = sr.from_lengths(noise(7, 3), [[2, 0, 1], [3, 0, 4]])  # [3, r1, r2, 3]
    w = noise(3, 3, 2)
    per_entry = sr.from_lengths(noise(3, 3, 2, seed=3), [2, 0, 1])  # [3, r1, 3, 2]
    inner = sr.from_lengths(noise(5, 3, seed=4), [[2, 0, 1], [2, 1, 2]])  # [3, r1, s2, 3]
    one = x @ w[:, None]
    two = x @ per_entry
    three = x @ inner.mT
    mixed = sr.einsum("brsd,bed->brse", x, w.mT)
    outer = sr.einsum("brsd,bke->brskde", x, sr.from_lengths(noise(4, 2, seed=8), [1, 2, 1]))
    for b, visits in enumerate([2, 0, 1]):
        for v in range(visits):
            block = x[b, v].torch()
            close(one[b, v].torch(), block @ w[b])
            close(mixed[b, v].torch(), block @ w[b])
            close(two[b, v].torch(), block @ per_entry[b, v].torch())
            close(three[b, v].torch(), block @ inner[b, v].torch().T)
    assert outer.ndim == 6
    summed = sr.einsum("brsd,brsd->bsd", x, x)  # r is summed over, and s depends on it
    assert summed.tolist() == sr.sum(x * x, axis=1).tolist()
    assert one.structure is x.structure


def test_stretched_batches_and_vectors():
    x = rows(Q, 2, 4).permute_dims((0, 2, 1, 3))  # [B, H, r, 4]
    for other in (noise(4, 3), noise(1, 1, 4, 3), noise(2, 4, 3), noise(6, 1, 4, 3), noise(6, 2, 4, 3)):
        got = x @ other
        full = other.expand(6, 2, 4, 3)
        for b in range(6):
            close(got[b].torch(), torch.matmul(x[b].torch(), full[b]))
    y = rows(Q, 4)
    close((y @ noise(4)).values, y.values @ noise(4))
    per_row = sr.matmul(rows(Q)[:, None, :], rows(Q, 3, seed=9))
    for b in range(6):
        close(per_row[b].torch(), rows(Q)[b].torch()[None] @ rows(Q, 3, seed=9)[b].torch())


EQUATIONS = [
    ("bqd,bkd->bqk", (Q, 4), (K, 4)),
    ("bqd,bkd->bkq", (Q, 4), (K, 4)),
    ("bqd,bqd->bq", (Q, 4), (Q, 4)),
    ("bqd,bqd->bd", (Q, 4), (Q, 4)),
    ("bqd,bqe->bde", (Q, 4), (Q, 3)),
    ("bqd,bqd->b", (Q, 4), (Q, 4)),
    ("bqd,bke->bqk", (Q, 4), (K, 3)),
    ("bqd,bke->bkqed", (Q, 4), (K, 3)),
    ("b...,b...->b...", (Q, 4), (Q, 4)),
    ("bqd,bkd", (Q, 4), (K, 4)),
]


@pytest.mark.parametrize(("equation", "left", "right"), EQUATIONS)
def test_einsum_equals_torch_on_each_component(equation, left, right):
    x, y = rows(*left), rows(*right, seed=3)
    got = sr.einsum(equation, x, y)
    assert torch.equal(
        torch.einsum(equation, x, y).values if got.is_ragged else torch.einsum(equation, x, y), got.values
    )
    if "->" not in equation:  # b is summed too: position by position, which is no equation per row
        want = torch.einsum(equation, x.to_dense().torch(), y.to_dense().torch())
        close(got.to_dense().torch(), want)
        return
    inner = equation.replace("b", "")
    for b in range(6):
        close(got[b].torch(), torch.einsum(inner, x[b].torch(), y[b].torch()))


def test_einsum_over_rows_and_of_three_operands():
    x, y = rows(Q, 4), rows(Q, 3, seed=1)
    close(sr.einsum("brd,bre->de", x, y).torch(), torch.einsum("nd,ne->de", x.values, y.values))
    close(sr.einsum("brd->d", x).torch(), x.values.sum(0))
    close(sr.einsum("brd->bd", x).torch(), sr.sum(x, axis=1).torch())
    assert sr.einsum("brd->bdr", x).shape == (6, 4, sr.Ragged(Q))
    keys = rows(K, 4, seed=2)
    got = sr.einsum("bqd,bkd,bke->bqe", x, keys, rows(K, 5, seed=3))
    for b in range(6):
        close(got[b].torch(), x[b].torch() @ keys[b].torch().T @ rows(K, 5, seed=3)[b].torch())
    dense = noise(3, 4)
    close(sr.einsum("ij,kj->ik", dense, dense).torch(), dense @ dense.T)


@pytest.mark.parametrize("name", [n for n in NAMES if n != "one giant row"])
def test_vecdot_outer_and_tensordot_on_every_structure(name):
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.complex128, torch.int64):
        if name == "NaN and inf" and not (dtype.is_floating_point or dtype.is_complex):
            continue
        x = sample(name, dtype)
        for axis in range(x.ndim):
            got = sr.vecdot(x, x, axis=axis)
            first = sr.conj(x) if dtype.is_complex else x
            want = sr.sum(first * x, axis=axis, dtype=dtype)
            fine = 0.05 if dtype == torch.bfloat16 else 1e-5
            torch.testing.assert_close(got.values, want.values, equal_nan=True, rtol=fine, atol=fine)
        flat = x[..., None]
        got = sr.tensordot(flat, torch.ones(1, 3, dtype=dtype), axes=1)
        for mine, row in zip(leaves(got), leaves(flat), strict=True):
            torch.testing.assert_close(mine, row * torch.ones(3, dtype=dtype), equal_nan=True)
    if name in ("rows", "empty rows", "one row", "equal rows", "no rows", "all rows empty"):
        x = sample(name, torch.float64)
        x = x if x.ndim == 2 else x[..., 0]
        for mine, row in zip(leaves(sr.outer(x, x)), leaves(x), strict=True):
            torch.testing.assert_close(mine, torch.outer(row, row))


def test_tensordot_over_pairs_of_axes():
    x = rows(Q, 4, 3)
    w = noise(3, 5, 4)
    got = sr.tensordot(x, w, axes=((2, 3), (2, 0)))
    for b in range(6):
        close(got[b].torch(), torch.tensordot(x[b].torch(), w, ([1, 2], [2, 0])))
        close(torch.tensordot(x, w, dims=([3], [0]))[b].torch(), torch.tensordot(x[b].torch(), w, ([2], [0])))


def test_nan_and_inf_stay_in_their_row():
    x, y = rows([2, 1, 3], 2), rows([2, 1, 3], 2, seed=1)
    x.values[2], y.values[2] = float("nan"), float("inf")
    for got in (sr.matmul(x.mT, y), sr.matmul(x, y.mT), sr.matmul(sr.matmul(x, y.mT), y)):
        assert bool(got[0].torch().isfinite().all())
        assert bool(got[2].torch().isfinite().all())
        assert not bool(got[1].torch().isfinite().all())


@given(st.lists(st.integers(0, 3000), min_size=1, max_size=200))
@settings(deadline=None)
def test_length_classes_are_few_and_waste_little(lengths):
    partition = sr.Partition.from_lengths(lengths)
    found = length_classes([partition])
    longest = max(lengths)
    assert len(found) <= 4 * np.log2(max(longest, 1)) + 1
    members = sorted(int(m) for group in found for m in group.members)
    assert members == [i for i, n in enumerate(lengths) if n]
    for group in found:
        have = [lengths[int(m)] for m in group.members]
        assert group.sizes == (max(have),)
        assert group.is_exact == (min(have) == max(have))
        assert len(have) * max(have) <= 1.25 * sum(have)


def test_device_born_lengths_are_not_waited_for():
    x, w = rows(Q, 4), noise(6, 4, 5)
    y = rows(Q, 3, seed=1)
    d, e = sr.testing.device_born(x, spare=5), sr.testing.device_born(y, spare=5)
    d.values[14:] = float("nan")
    with sr.testing.forbid_sync():
        grouped, weight = d @ w, d.mT @ like(e, d)
        flat = sr.einsum("brd,bre->de", d, like(e, d))
    for b in range(6):
        close(grouped[b].torch(), x[b].torch() @ w[b])
        close(weight[b].torch(), x[b].torch().T @ y[b].torch())
    close(flat.torch(), x.values.T @ y.values)
    long = rows([70, 200, 0, 64, 1], 4)
    big = noise(5, 4, 3)
    got = sr.testing.device_born(long, spare=7) @ big
    for b in range(5):
        close(got[b].torch(), long[b].torch() @ big[b])


def test_tiles_in_several_chunks(monkeypatch):
    """As where the matrices of all tiles together would fill the memory."""
    monkeypatch.setattr("serrate.eager.contraction._COPIES", 30)
    test_device_born_lengths_are_not_waited_for()


def like(x: sr.Tensor, other: sr.Tensor) -> sr.Tensor:
    """x with the very structure of `other`."""
    return sr.Tensor(x.values, other.structure, x.order)


def test_device_born_gradients():
    x, w = sr.testing.device_born(rows([2, 0, 3], 2), spare=2), noise(3, 2, 2)
    values = [x.values.clone().requires_grad_(), w.requires_grad_()]

    def run(v, u):
        return (x._with(v) @ u).values[:5]

    assert gradcheck(run, values)
    assert gradgradcheck(run, values, fast_mode=True)


def test_operators_and_their_reflections():
    x, w = rows([2, 1], 3), noise(3, 3)
    close((x @ w).values, x.values @ w)
    swapped = w @ x.mT
    for b in range(2):
        close(swapped[b].torch(), w @ x[b].torch().T)
    with pytest.raises(TypeError):
        x @ 3
    with pytest.raises(TypeError):
        x @ np.ones((3, 3))


def test_wrong_arguments_are_named():
    x = rows(Q, 4)
    with pytest.raises(RaggednessError, match=r"different raggedness: Ragged\(\[3, 0, 5.* and Ragged\(\[1, 2, 4"):
        sr.matmul(x.mT, rows(K, 4))
    with pytest.raises(RaggednessError, match="ragged in one operand and uniform in the other"):
        sr.matmul(x.mT, noise(6, 5, 4))
    with pytest.raises(ValueError, match="axes of size 4 and 5 do not go together"):
        x @ noise(5, 2)
    with pytest.raises(ValueError, match="at least one axis"):
        sr.matmul(x, torch.tensor(2.0))
    with pytest.raises(TypeError, match="out"):
        torch.matmul(x, noise(4, 2), out=torch.ones(2))
    p, k = sr.Partition.from_lengths([2, 1]), sr.Partition.from_lengths([1, 2])
    nested, blocks = sr.from_lengths(noise(5), [[2, 1], [1, 2, 2]]), sr.from_product(noise(4), k, p)
    with pytest.raises(AxisError, match="combine them first"):
        sr.einsum("brs,bkr->bks", nested, blocks)
    with pytest.raises(DeviceMismatchError, match=r"on cpu and .* on meta"):
        sr.matmul(x, torch.ones(4, 2, device="meta"))


def test_no_call_per_row():
    """As many library calls for many rows as for few of the same lengths."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Count(TorchDispatchMode):
        seen = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.seen += 1
            return func(*args, **(kwargs or {}))

    def calls(times: int) -> int:
        x = rows(Q * times, 4)
        with Count() as count:
            x @ x.mT
        return count.seen

    assert calls(200) <= calls(2) + 8


def test_autocast():
    x = rows(Q, 4, dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        assert (x @ noise(6, 4, 3, dtype=torch.float32)).dtype == torch.bfloat16
        assert sr.einsum("bqd,bkd->bqk", x, x).dtype == torch.bfloat16


def test_a_dense_operand_with_an_axis_between_ragged_ones():
    p, q = sr.Partition.from_lengths([2, 1]), sr.Partition.from_lengths([1, 3])
    structure = Structure((2, sr.Ragged(p), 3, sr.Ragged(q))).check()
    x = sr.Tensor(noise(structure.cells(structure.whole)), structure)  # [B, q, 3, k]
    w = noise(2, 3)
    got = sr.einsum("bqhk,bh->bqhk", x, w)
    for b in range(2):
        close(got[b].torch(), torch.einsum("qhk,h->qhk", x[b].torch(), w[b]))


def test_a_summed_batch_goes_position_by_position():
    x, w = rows([3, 1, 2]), noise(3)
    close(sr.einsum("br,b->r", x, w).torch(), torch.einsum("br,b->r", x.to_dense().torch(), w))


def test_rows_of_like_lengths_share_a_class():
    """Long rows, so that the members of a class differ and its rectangles have holes."""
    q, k = rows([16, 17, 18, 40, 41], 3), rows([21, 20, 22, 33, 35], 3, seed=1)
    values = rows([21, 20, 22, 33, 35], 2, seed=2)
    assert any(not group.is_exact for group in length_classes([q.partitions[0], k.partitions[0]]))
    scores = q @ k.mT
    made, back = scores @ values, scores.mT @ q
    for b in range(5):
        block = q[b].torch() @ k[b].torch().T
        close(scores[b].torch(), block)
        close(made[b].torch(), block @ values[b].torch())
        close(back[b].torch(), block.T @ q[b].torch())
