"""Compiled implementations of operations against those made of torch's operations, and where they step aside."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from tests.ops.calls import Call, kind_of, replaced, tensors
from tests.ops.matrix import absent, arguments
from tests.ops.samples import DTYPES, NAMES, sample
from tests.ops.test_meta import BIRTHS
from torch._subclasses import FakeTensorMode
from torch.autograd import forward_ad

import serrate as sr
from serrate.native import padded
from serrate.ops.record import TABLE, Implementation, Op

pytestmark = pytest.mark.skipif(not padded.is_there(), reason="needs a C++ compiler")

OPS = [op for op in TABLE.values() if op.implementations[0].name == "native"]
MORE = {"take": ("x, torch.arange(len(x)).flip(0).repeat(2), axis=0",)}
"""Samples that compiled code takes, for operations of which the record has none."""
TOLERANCE = {torch.float16: 2e-3, torch.bfloat16: 2e-2, torch.float32: 2e-6, torch.complex64: 2e-6}


def chosen(op: Op, args: tuple[Any, ...], options: dict[str, Any]) -> Implementation:
    """The implementation that the door takes for these arguments."""
    return next(i for i in op.implementations if i.applies is None or i.applies(*args, **options))


def samples(op: Op, dtype: torch.dtype) -> Iterator[Call]:
    """The samples of an operation that compiled code takes, of all structures and births."""
    for birth, born in BIRTHS.items():
        for name in NAMES:
            if absent(op, name, dtype):
                continue
            for text in (*op.samples, *MORE.get(op.name, ())):
                args, options = arguments(text, born(sample(name, dtype)))
                if chosen(op, args, options).name == "native":
                    yield Call(op, f"{name}, {birth}", text, args, options)


def defined(result: Any) -> list[torch.Tensor]:
    """The values of all tensors in a result, without rows that are undefined."""
    if isinstance(result, sr.Tensor):
        exact = not result.is_ragged or result.structure.is_exact
        return [
            result.values if exact else result.values[: int(result.structure.defined_cells(result.structure.whole))]
        ]
    if isinstance(result, (list, tuple)):
        return [each for part in result for each in defined(part)]
    return tensors(result)


def shapes(result: Any) -> list[Any]:
    if isinstance(result, sr.Tensor):
        return [result.shape, result.dtype, result.order, result.values.shape]
    return [shapes(part) for part in result] if isinstance(result, (list, tuple)) else [type(result)]


def both(call: Call) -> tuple[Any, Any]:
    made = chosen(call.op, call.args, call.options).function(*call.args, **call.options)
    wanted = call.op.implementations[-1].function(*call.args, **call.options)
    return made, wanted


def close(made: torch.Tensor, wanted: torch.Tensor, message: str) -> None:
    tolerance = TOLERANCE.get(made.dtype, 1e-12)
    torch.testing.assert_close(made, wanted, rtol=tolerance, atol=tolerance, equal_nan=True, msg=lambda m: message + m)


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_both_give_the_same(op: Op) -> None:
    seen = 0
    for kind in op.kinds:
        for dtype in DTYPES[kind]:
            for call in samples(op, dtype):
                made, wanted = both(call)
                assert shapes(made) == shapes(wanted), call
                for one, other in zip(defined(made), defined(wanted), strict=True):
                    close(one, other, f"{call}, {dtype}: ")
                seen += 1
    assert seen


def drawn(like: torch.Tensor) -> torch.Tensor:
    """Random numbers in the order of the elements, however they are stored."""
    return torch.randn(like.shape, dtype=like.dtype)


def derivatives(call: Call, function: Callable[..., Any]) -> list[torch.Tensor]:
    """Gradients of all results, and gradients of these."""
    leaves = [x.clone().requires_grad_() for x in call.operands]
    values = iter(leaves)
    args = tuple(replaced(given, values) for given in call.args)
    options = {name: replaced(given, values) for name, given in call.options.items()}
    results = [out for out in defined(function(*args, **options)) if out.requires_grad]
    if not results:
        return []
    torch.manual_seed(1)
    seeds = [drawn(out).requires_grad_() for out in results]
    first = torch.autograd.grad(results, leaves, seeds, create_graph=True, allow_unused=True)
    total = sum((g * drawn(g)).sum() for g in first if g is not None)
    second = isinstance(total, torch.Tensor) and total.requires_grad
    found = [*first, *(torch.autograd.grad(total, [*leaves, *seeds], allow_unused=True) if second else ())]
    return [torch.zeros(()) if g is None else g for g in found]


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_both_have_the_same_derivatives(op: Op) -> None:
    if "float" not in op.kinds:
        return
    for call in samples(op, torch.float64):
        function = chosen(op, call.args, call.options).function
        made, wanted = (derivatives(call, each) for each in (function, op.implementations[-1].function))
        for one, other in zip(made, wanted, strict=True):
            close(one, other, f"{call}: ")


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_compiled_code_steps_aside(op: Op) -> None:
    """Under forward mode, under transforms, in traces and on devices."""
    call = next(samples(op, kind_of(op)))

    def declines(args: Any = call.args, options: Any = call.options) -> None:
        assert chosen(op, args, options).name == "torch"

    with forward_ad.dual_level():
        declines()
    seen = []

    def mapped(line: torch.Tensor) -> torch.Tensor:
        declines()
        seen.append(line)
        return line

    torch.vmap(mapped)(torch.ones(2))
    torch.func.grad(mapped)(torch.ones(()))
    assert len(seen) == 2
    with FakeTensorMode():
        declines()
    elsewhere = [given.to("meta") if isinstance(given, (torch.Tensor, sr.Tensor)) else given for given in call.args]
    declines(tuple(elsewhere))


@pytest.mark.parametrize("ints", [torch.int32, torch.int64])
def test_selected_rows(ints: torch.dtype) -> None:
    """x[index], x[mask] and x[:, a:b] against the rows of a list, and their gradients against torch's."""
    lengths = [3, 0, 5, 1, 0, 4]
    rows = torch.randn(sum(lengths), 2, dtype=torch.float64).split(lengths)
    keys: list[Any] = [
        torch.tensor(index, dtype=ints) for index in ([2, 0, 2, 5], [], [1, 4], [-1, 0], [5, 4, 3, 2, 1, 0])
    ]
    keys += [torch.tensor([True, False, True, True, False, True]), torch.zeros(6, dtype=torch.bool)]
    keys += [(slice(None), slice(a, b)) for a in (None, 0, 1, 2, 9, -2, -9) for b in (None, 0, 1, 3, 99, -1, -3, -9)]
    op = TABLE["Tensor.getitem"]
    for key in keys:
        leaf = torch.cat(rows).requires_grad_()
        x = sr.from_offsets(leaf, torch.tensor([0, *lengths]).cumsum(0).to(ints))
        assert chosen(op, (x, key), {}).name == "native"
        made = x[key]
        if isinstance(key, tuple):
            want = [row[key[1]] for row in rows]
        else:
            want = [rows[i] for i in (key.nonzero().flatten() if key.dtype == torch.bool else key).tolist()]
        assert [row.torch().tolist() for row in made.rows()] == [row.tolist() for row in want], key
        assert made.partitions[0].dtype == ints
        seed = torch.randn_like(made.values)
        (gradient,) = torch.autograd.grad(made.values, leaf, seed)
        (other,) = torch.autograd.grad(op.implementations[-1].function(x, key).values, leaf, seed)
        torch.testing.assert_close(gradient, other)
    for wrong in (torch.tensor([6]), torch.tensor([-7]), torch.ones(5, dtype=torch.bool)):
        with pytest.raises(IndexError):
            x[wrong]
    index = torch.tensor([2, 0, 2], dtype=ints)
    halves = x.to(torch.bfloat16).detach()
    halves.values.requires_grad_()
    (gradient,) = torch.autograd.grad(halves[index].values, halves.values, torch.ones(13, 2, dtype=torch.bfloat16))
    assert gradient[:, 0].tolist() == [1.0] * 3 + [2.0] * 5 + [0.0] * 5


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_products_of_rows(dtype: torch.dtype) -> None:
    """[B, r, K] @ [B, K, M] and [B, K, r] @ [B, r, M] of each row in float64, and their derivatives."""
    op = TABLE["matmul"]
    for lengths in ([3, 0, 5, 1], [0, 0], [], [700], [2, 2]):
        for k, m in ((1, 1), (3, 2), (16, 33), (2, 0), (0, 3)):
            rows, count = sum(lengths), len(lengths)
            x = sr.from_lengths(torch.randn(rows, k, dtype=dtype), lengths)
            z, y = x._with(torch.randn(rows, m, dtype=dtype)), torch.randn(count, k, m, dtype=dtype)
            both = (
                list(zip(x.values.double().split(lengths), z.values.double().split(lengths), strict=True))
                if count
                else []
            )
            wants = [
                torch.cat([a @ b.double() for (a, _), b in zip(both, y, strict=True)] or [torch.zeros(0, m).double()]),
                torch.stack([a.T @ b for a, b in both]) if count else torch.zeros(0, k, m).double(),
            ]
            for args, want in zip(((x, y), (x.mT, z)), wants, strict=True):
                assert chosen(op, args, {}).name == "native"
                made = sr.matmul(*args)
                room = 8 * torch.finfo(dtype).eps * (1 + want.abs().max() if want.numel() else 1) * 30
                assert made.values.shape == want.shape
                assert bool(((made.values.double() - want).abs() <= room).all())
    x = sr.from_lengths(torch.randn(6, 2, dtype=torch.float64), [4, 0, 2])
    given = (x.values.requires_grad_(), torch.randn(6, 3, dtype=torch.float64, requires_grad=True))
    y = torch.randn(3, 2, 3, dtype=torch.float64, requires_grad=True)
    for check in (torch.autograd.gradcheck, torch.autograd.gradgradcheck):
        assert check(lambda v, w: sr.matmul(x._with(v), w).values, (given[0], y))
        assert check(lambda v, w: sr.matmul(x._with(v).mT, x._with(w)).values, given)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert chosen(op, (x.to(torch.float32), y.float()), {}).name == "torch"
