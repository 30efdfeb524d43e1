"""Pointwise operations and broadcasts by `evaluate`, against torch on rows one by one."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import pytest
import torch
from tests.fusion.samples import (
    FLOATS,
    LENGTHS,
    WHOLE,
    by_rows,
    each_dtype,
    each_length,
    nested,
    offsets_of,
    same,
    some,
)

import serrate as sr
from serrate.fusion import Fusion, elementwise, symbol
from serrate.fusion.binding import TORCH
from serrate.fusion.functions import FUNCTIONS

OPTIONS = {"clip": {"min": -1, "max": 1}}  # for operations that do nothing without


def meaning(name: str) -> Callable[..., torch.Tensor]:
    """The eager operation of this name, on torch tensors."""
    return lambda *given: getattr(sr, name)(*given, **OPTIONS.get(name, {})).torch()


def takes(name: str, dtype: str) -> bool:
    """Whether an operation is for a dtype: floats, or whole numbers."""
    kinds = FUNCTIONS[name].kinds if name in FUNCTIONS else ("float", "int")
    if name == "complex":
        return False  # which makes complex numbers, tested among those
    return ("float" if dtype in FLOATS else "int") in kinds


def cases(arity: int, dtypes: Sequence[str]) -> list[tuple[str, str]]:
    return [(name, dtype) for name in elementwise.names(arity) for dtype in dtypes if takes(name, dtype)]


@pytest.mark.parametrize(("name", "dtype"), cases(1, FLOATS))
def test_unary(name: str, dtype: str) -> None:
    fusion, lengths = Fusion(), LENGTHS
    y = fusion.output(fusion.unary(name, nested(fusion, 3, dtype=dtype), **OPTIONS.get(name, {})))
    x = some(8, 3, dtype=dtype)
    want = by_rows(x, lengths, lambda row: meaning(name)(row.double()))
    assert y.dtype == (dtype if want.is_floating_point() else "bool")
    same(fusion.evaluate(x, offsets_of(lengths))[0], want.to(TORCH[y.dtype]))


@each_length
@pytest.mark.parametrize(("name", "dtype"), cases(1, WHOLE))
def test_unary_of_whole_numbers(name: str, dtype: str, lengths: list[int]) -> None:
    """Functions that give fractions compute and give float32, the default dtype, as eager operations do."""
    fusion = Fusion()
    y = fusion.output(fusion.unary(name, nested(fusion, dtype=dtype), **OPTIONS.get(name, {})))
    x = some(sum(lengths), dtype=dtype)
    want = by_rows(x, lengths, meaning(name))
    assert TORCH[y.dtype] == want.dtype
    same(fusion.evaluate(x, offsets_of(lengths))[0], want)


@pytest.mark.parametrize(("name", "dtype"), cases(2, FLOATS + WHOLE))
def test_binary(name: str, dtype: str) -> None:
    fusion, lengths = Fusion(), LENGTHS
    x, y = nested(fusion, 2, dtype=dtype), nested(fusion, 2, name="z", dtype=dtype)
    by_component = fusion.broadcast(fusion.input("w", ["k", 2], dtype), [False, True, False])
    made = [fusion.binary(name, x, y), fusion.binary(name, x, by_component), fusion.binary(name, 1, y)]
    for tensor in made:
        fusion.output(tensor)
    a, b, w = some(8, 2, dtype=dtype), some(8, 2, dtype=dtype, seed=1), some(4, 2, dtype=dtype, seed=2)
    b[::3] = a[::3]  # some are equal
    if name in ("floor_divide", "remainder") and dtype not in FLOATS:
        b[b == 0], w[w == 0] = 3, 2
    weights = w.repeat_interleave(torch.tensor(lengths), 0)
    got = fusion.evaluate(a, offsets_of(lengths), b, w)
    for found, (left, right) in zip(got, [(a, b), (a, weights), (torch.ones_like(b), b)], strict=True):
        want = meaning(name)(left, right)
        assert found.dtype == want.dtype
        same(found, want)


@each_dtype
@each_length
def test_where(dtype: str, lengths: list[int]) -> None:
    fusion = Fusion()
    condition, x = nested(fusion, 2, name="condition", dtype="bool"), nested(fusion, 2, dtype=dtype)
    shared = fusion.input("shared", [2], dtype)
    for tensor in (fusion.where(condition, x, shared), fusion.where(condition, x, 1), fusion.where(condition, -1, x)):
        fusion.output(tensor)
    n = sum(lengths)
    c, a, s = some(n, 2, dtype="bool"), some(n, 2, dtype=dtype), some(2, dtype=dtype, seed=2)
    got = fusion.evaluate(c, offsets_of(lengths), a, s)
    one = torch.ones((), dtype=a.dtype)
    for found, want in zip(got, [a.where(c, s), a.where(c, one), (-one).where(c, a)], strict=True):
        assert torch.equal(found, want)


@pytest.mark.parametrize(("old", "new"), list(itertools.permutations([*FLOATS, *WHOLE, "bool"], 2)))
def test_cast(old: str, new: str) -> None:
    fusion = Fusion()
    fusion.output(fusion.cast(nested(fusion, dtype=old), new))
    x = some(8, dtype=old) * (3 if old != "bool" else True)
    assert torch.equal(fusion.evaluate(x, offsets_of([3, 0, 5]))[0], x.to(TORCH[new]))


def test_cast_rounds_what_follows() -> None:
    fusion = Fusion()
    x = fusion.input("x", [1])
    fusion.output(fusion.cast(fusion.cast(x, "bfloat16"), "float32"))
    assert fusion.evaluate(torch.tensor([1.001]))[0].tolist() == [1.0]


@each_length
@pytest.mark.parametrize("dtype", [*FLOATS, *WHOLE, "bool"])
def test_copy(dtype: str, lengths: list[int]) -> None:
    fusion = Fusion()
    fusion.output(fusion.copy(nested(fusion, 2, dtype=dtype)))
    x = some(sum(lengths), 2, dtype=dtype)
    assert torch.equal(fusion.evaluate(x, offsets_of(lengths))[0], x)


def test_operators_are_the_binary_operations() -> None:
    fusion = Fusion()
    x, y = fusion.input("x", [3]), fusion.input("y", [3])
    for tensor in (x + y, x - y, x * y, x / y, 1 + x, 1 - x, 2 * x, 2 / x, -x, x + 1, x - 1, x * 2, x / 2):
        fusion.output(tensor)
    a, b = torch.tensor([1.0, -2.0, 4.0]), torch.tensor([0.5, 8.0, -1.0])
    want = [a + b, a - b, a * b, a / b, 1 + a, 1 - a, 2 * a, 2 / a, -a, a + 1, a - 1, a * 2, a / 2]
    for found, expected in zip(fusion.evaluate(a, b), want, strict=True):
        same(found, expected)


def test_numbers_that_are_none_or_infinite_pass_through() -> None:
    fusion = Fusion()
    x = fusion.input("x", [5])
    for tensor in (fusion.unary("relu", x), fusion.binary("maximum", x, 0), fusion.unary("negative", x)):
        fusion.output(tensor)
    a = torch.tensor([math.nan, math.inf, -math.inf, 0.0, -0.0])
    for found, want in zip(fusion.evaluate(a), (a.relu(), a.maximum(torch.zeros(())), -a), strict=True):
        same(found, want)
        assert torch.equal(found.signbit() & (found == 0), want.signbit() & (want == 0))


# Broadcasts


@each_length
def test_broadcast_over_rows_components_and_features(lengths: list[int]) -> None:
    fusion = Fusion()
    x = nested(fusion, 2)
    by_component = fusion.broadcast(fusion.input("b", ["k"]), [False, True, True])
    by_row = fusion.broadcast(nested(fusion, name="r"), [False, False, True])
    fusion.output(x * by_component + by_row + fusion.input("d", [2]))
    n, k = sum(lengths), len(lengths)
    a, b, r, d = some(n, 2), some(k, seed=1), some(n, seed=2), some(2, seed=3)
    parts = zip(a.split(lengths), b, r.split(lengths), strict=True) if lengths else ()
    want = [row * weight + shift[:, None] + d for row, weight, shift in parts]
    same(fusion.evaluate(a, offsets_of(lengths), b, r, d)[0], torch.cat([a[:0], *want]))


@each_length
def test_outer_product_of_two_ragged_axes(lengths: list[int]) -> None:
    fusion = Fusion()
    left = nested(fusion)
    right = fusion.view_as_nested(fusion.input("s", ["m"]), fusion.input("s_offsets", [symbol("k") + 1], "int64"))
    fusion.output(fusion.broadcast(left, [False, False, True]) * fusion.broadcast(right, [False, True, False]))
    other = [length + 1 for length in reversed(lengths)]
    q, s = some(sum(lengths)), some(sum(other), seed=1)
    parts = zip(q.split(lengths), s.split(other), strict=True) if lengths else ()
    want = torch.cat([torch.empty(0), *(torch.outer(a, b).flatten() for a, b in parts)])
    same(fusion.evaluate(q, offsets_of(lengths), s, offsets_of(other))[0], want)
