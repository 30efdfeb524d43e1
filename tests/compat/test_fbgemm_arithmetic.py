"""Sums and products of packed and padded values are compared with FBGEMM's and with loops over rows."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.compat.jagged_rows import offsets_of, padded, random_levels, reached, same, unpadded
from torch.autograd import gradcheck, gradgradcheck

import serrate as sr
from serrate.compat import fbgemm
from serrate.errors import RaggednessError

pytestmark = pytest.mark.usefixtures("way")

pytest.importorskip("fbgemm_gpu")
theirs = torch.ops.fbgemm


def first(made: Any) -> torch.Tensor:
    return made if isinstance(made, torch.Tensor) else made[0]


FUNCTIONS = (
    "jagged_dense_elementwise_add",
    "jagged_dense_elementwise_add_jagged_output",
    "jagged_dense_dense_elementwise_add_jagged_output",
    "jagged_dense_elementwise_mul",
)


def operands(name: str, depth: int, most: int, seed: int, dtype: torch.dtype = torch.float32) -> tuple[Any, ...]:
    torch.manual_seed(seed)
    offsets = offsets_of(*random_levels(depth, 3, seed))
    x = torch.randn(int(offsets[-1][-1]), 2)
    y = [torch.randn(3, *[most] * depth, 2) for _ in range(1 + ("dense_dense" in name))]
    if not dtype.is_floating_point:
        x, *y = ((t * 4).round() for t in (x, *y))
    return (x.to(dtype), offsets, *(t.to(dtype) for t in y))


def expected(name: str, x: torch.Tensor, offsets: list[torch.Tensor], *ys: torch.Tensor) -> torch.Tensor:
    depth = len(offsets)
    if name == "jagged_dense_elementwise_add":
        return padded(x, offsets, ys[0].shape[1 : depth + 1], 0) + ys[0]
    there = [unpadded(y, offsets, x.shape[0]) for y in ys]
    if name.endswith("mul"):
        known = reached(offsets, ys[0].shape[1 : depth + 1], x.shape[0])
        return (x * there[0]).masked_fill(~known.view(-1, *[1] * (x.ndim - 1)), 0)
    return sum(there, x)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("depth", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("most", [1, 2, 5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64])
def test_like_fbgemm(name: str, depth: int, most: int, dtype: torch.dtype) -> None:
    for seed in range(3):
        given = operands(name, depth, most, seed, dtype)
        ours = getattr(fbgemm, name)(*given)
        same(first(ours), first(getattr(theirs, name)(*given)))
        if not isinstance(ours, torch.Tensor):
            assert isinstance(ours, tuple)
            assert [o.data_ptr() for o in ours[1]] == [o.data_ptr() for o in given[1]]


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.complex64, torch.int8, torch.int32, torch.bool])
@pytest.mark.parametrize("most", [0, 1, 5])
def test_any_dtype(name: str, dtype: torch.dtype, most: int) -> None:
    x, offsets, *ys = operands(name, 2, most, 0)
    given = [t.mul(4).round().to(dtype) for t in (x, *ys)]
    same(first(getattr(fbgemm, name)(given[0], offsets, *given[1:])), expected(name, given[0], offsets, *given[1:]))


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("features", [(), (3,), (2, 3), (0,)])
@pytest.mark.parametrize("spare", [0, 2])
def test_any_features_and_rows_past_the_end(name: str, features: tuple[int, ...], spare: int) -> None:
    offsets = offsets_of([2, 0, 3], dtype=torch.int32)
    x = torch.randn(5 + spare, *features, dtype=torch.float64)
    for most in (0, 2, 4):
        ys = [torch.randn(3, most, *features, dtype=torch.float64) for _ in range(1 + ("dense_dense" in name))]
        same(first(getattr(fbgemm, name)(x, offsets, *ys)), expected(name, x, offsets, *ys))


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("lengths", [[], [0, 0], [2, 2]])
def test_empty_and_equal_rows(name: str, lengths: list[int]) -> None:
    offsets = offsets_of(lengths)
    x = torch.randn(sum(lengths), 2)
    before = x.clone()
    for most in (0, 2):
        ys = [torch.randn(len(lengths), most, 2) for _ in range(1 + ("dense_dense" in name))]
        kept = [y.clone() for y in ys]
        same(first(getattr(fbgemm, name)(x, offsets, *ys)), expected(name, x, offsets, *ys))
        same(x, before)  # No function writes to the memory of an operand.
        for y, copy in zip(ys, kept, strict=True):
            same(y, copy)


def test_promotion_and_broadcasting_like_fbgemm() -> None:
    offsets = offsets_of([2, 1])
    x = torch.randn(3, 4)
    wide = torch.randn(2, 2, 4, dtype=torch.float64)
    same(fbgemm.jagged_dense_elementwise_add(x, offsets, wide), theirs.jagged_dense_elementwise_add(x, offsets, wide))
    narrow = torch.randn(2, 2, 1)
    same(
        fbgemm.jagged_dense_elementwise_add(x, offsets, narrow), theirs.jagged_dense_elementwise_add(x, offsets, narrow)
    )
    made = fbgemm.jagged_dense_elementwise_mul(x, offsets, narrow)[0]
    same(made, x * unpadded(narrow, offsets, 3))
    assert fbgemm.jagged_dense_elementwise_add_jagged_output(x, offsets, wide)[0].dtype == torch.float64


def test_two_padded_operands_of_different_extent() -> None:
    offsets = offsets_of([3, 1])
    x, short, long = torch.randn(4, 2), torch.randn(2, 1, 2), torch.randn(2, 4, 2)
    name = "jagged_dense_dense_elementwise_add_jagged_output"
    same(first(getattr(fbgemm, name)(x, offsets, short, long)), expected(name, x, offsets, short, long))


def test_nothing_leaks() -> None:
    """Infinities stay in their places, and a product is 0 where y has no place, whatever x holds."""
    offsets = offsets_of([2, 1])
    x = torch.tensor([[1.0], [float("inf")], [float("nan")]])
    y = torch.tensor([[[2.0]], [[3.0]]])
    made = fbgemm.jagged_dense_elementwise_mul(x, offsets, y)[0]
    same(made, torch.tensor([[2.0], [0.0], [float("nan")]]))
    same(
        fbgemm.jagged_dense_elementwise_add_jagged_output(x, offsets, y * float("inf"))[0],
        torch.tensor([[float("inf")], [float("inf")], [float("nan")]]),
    )


def test_layouts() -> None:
    offsets = offsets_of([2, 1])
    x, y = torch.randn(4, 3).T, torch.randn(4, 2, 2).permute(1, 2, 0)
    for name in FUNCTIONS:
        ys = (y, y) if "dense_dense" in name else (y,)
        same(first(getattr(fbgemm, name)(x, offsets, *ys)), expected(name, x, offsets, *ys))


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("most", [1, 4])
def test_gradients(name: str, depth: int, most: int) -> None:
    x, offsets, *ys = operands(name, depth, most, 1, torch.float64)
    given = [t.requires_grad_() for t in (x, *ys)]

    def function(x: torch.Tensor, *ys: torch.Tensor) -> torch.Tensor:
        return first(getattr(fbgemm, name)(x, offsets, *ys)) ** 2

    assert gradcheck(function, given, fast_mode=True)
    assert gradgradcheck(function, given, fast_mode=True)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.filterwarnings("ignore:fbgemm.*an autograd kernel was not registered")
def test_gradients_like_fbgemm(name: str) -> None:
    x, offsets, *ys = operands(name, 1, 2, 5)
    leaves = [t.requires_grad_() for t in (x, *ys)]
    made = [first(getattr(where, name)(x, offsets, *ys)) for where in (fbgemm, theirs)]
    seed = torch.randn_like(made[0])
    for ours, other in zip(*(torch.autograd.grad(m, leaves, seed) for m in made), strict=True):
        same(ours, other)


@pytest.mark.parametrize("wanted", [(0, 1, 2), (1,), (2,), (0, 2)])
def test_gradients_of_operands_of_different_extent(wanted: tuple[int, ...]) -> None:
    offsets = offsets_of([2, 0, 3])
    for sizes in ((1, 4), (2, 2)):
        given = [torch.randn(5, 2), *(torch.randn(3, size, 2) for size in sizes)]
        leaves = [t.double().requires_grad_(i in wanted) for i, t in enumerate(given)]

        def function(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
            return fbgemm.jagged_dense_dense_elementwise_add_jagged_output(x, offsets, y, z)[0] ** 3

        assert gradcheck(function, leaves)
        assert gradgradcheck(function, leaves)


def test_same_as_serrates_own() -> None:
    offsets = offsets_of([2, 0, 3])
    x, y = torch.randn(5, 2), torch.randn(3, 2, 2)
    ragged = sr.from_offsets(x, offsets)
    same(
        fbgemm.jagged_dense_elementwise_add_jagged_output(x, offsets, y)[0],
        (ragged + sr.from_dense(y, like=ragged)).values,
    )


GOOD = torch.tensor([0, 2, 3])


@pytest.mark.parametrize(
    ("x", "y", "error", "words"),
    [
        (torch.ones(3, 2), torch.ones(3, 2, 2), RaggednessError, "y(_0)? must have a row for each of the 2"),
        (torch.ones(3, 2), torch.ones(2, 2), ValueError, "must have 3 axes, .* the features of x_values, got shape"),
        (torch.ones(3, 2), torch.ones(2, 2, 3), ValueError, "features of y(_0)? must be those of x_values"),
        (torch.ones(3, 2), [1.0], TypeError, "y(_0)? must be a tensor, got a list"),
        ([1.0], torch.ones(2, 2, 2), TypeError, "x_values must be a tensor, got a list"),
        (torch.ones(2, 2), torch.ones(2, 2, 2), RaggednessError, r"x_offsets\[0\] must end with at most 2"),
        (
            torch.ones(3, 2),
            torch.ones(2, 2, 2, device="meta"),
            ValueError,
            "y(_0)? lies on meta, but x_values lie on cpu",
        ),
    ],
)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_wrong_calls(name: str, x: Any, y: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        getattr(fbgemm, name)(x, [GOOD], *((y, y) if "dense_dense" in name else (y,)))


def test_wrong_second_operand() -> None:
    name = "jagged_dense_dense_elementwise_add_jagged_output"
    with pytest.raises(ValueError, match="the features of y_1 must be"):
        getattr(fbgemm, name)(torch.ones(3, 2), [GOOD], torch.ones(2, 2, 2), torch.ones(2, 2, 3))
    with pytest.raises(TypeError, match="y_1 must be a tensor"):
        getattr(fbgemm, name)(torch.ones(3, 2), [GOOD], torch.ones(2, 2, 2), 1.0)
