"""Rows past the last offset of device-born tensors are undefined: no gradient of a parameter ever sums over them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import serrate as sr

LENGTHS = [3, 0, 2, 1]


def values(seed: int = 0) -> torch.Tensor:
    return torch.rand(6, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + 0.5


def parameters() -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(3)
    shapes = {
        "square": (4, 4),
        "feature": (4,),
        "row": (4, 1, 4),
        "each": (4, 4, 4),
        "kernel": (4, 4, 3),
        "table": (9, 4),
    }
    return {
        name: (torch.rand(shape, generator=draw, dtype=torch.float64) + 0.5).requires_grad_()
        for name, shape in shapes.items()
    }


# A function of a ragged tensor [4, r, 4] and parameters, to a ragged tensor.
FUNCTIONS: dict[str, Callable[[sr.Tensor, dict[str, torch.Tensor]], Any]] = {
    "linear": lambda x, p: F.linear(x, p["square"], p["feature"]),
    "matmul": lambda x, p: x @ p["square"],
    "matmul per row": lambda x, p: x @ p["each"],
    "multiplied": lambda x, p: x * p["feature"],
    "divided by": lambda x, p: p["feature"] / x,
    "powers": lambda x, p: x ** p["feature"],
    "per row": lambda x, p: x + p["row"],
    "layer_norm": lambda x, p: F.layer_norm(x, (4,), p["feature"], p["feature"]),
    "rms_norm": lambda x, p: F.rms_norm(x, (4,), p["feature"]),
    "conv1d": lambda x, p: F.conv1d(x.mT, p["kernel"], p["feature"], padding=1).mT,
    "conv1d, longer": lambda x, p: F.conv1d(x.mT, p["kernel"], p["feature"], padding=3).mT,
    "embedding": lambda x, p: F.embedding((x[..., 0] * 3).to(torch.int64), p["table"]),
    "embedding_bag": lambda x, p: F.embedding_bag((x[..., 0] * 3).to(torch.int64), p["table"], mode="sum"),
    "softmax": lambda x, p: sr.softmax(x * p["feature"], axis=1),
    "cumulative_sum": lambda x, p: sr.cumulative_sum(x * p["feature"], axis=1),
    "attention": lambda x, p: sr.attention(x * p["feature"], x @ p["square"], x),
    "one of many": lambda x, p: sr.einsum("brd,bre->bde", x * p["feature"], x),
    "all rows": lambda x, p: sr.einsum("brd,bre->de", x * p["feature"], x),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_of_parameters_see_defined_rows_alone(name):
    run = FUNCTIONS[name]
    exact = sr.from_lengths(values(), LENGTHS)
    spare = sr.testing.device_born(exact, spare=3)
    for undefined in (float("nan"), float("inf"), 0.0, 97.0):
        found = []
        for x in (exact, spare):
            given = parameters()
            packed = x.values.clone()
            packed[6:] = undefined if name not in ("embedding", "embedding_bag") else 97.0
            made = run(x._with(packed.requires_grad_()), given)
            made = sr.log(sr.Tensor(made) if isinstance(made, torch.Tensor) else made)  # whose slope is infinite at 0
            loss = sr.sum(sr.where(sr.isfinite(made), made, 0))
            loss.backward()
            found.append(
                {n: v.grad for n, v in given.items()} | {"x": packed.grad[:6] if packed.grad is not None else None}
            )
        for parameter, want in found[0].items():
            if want is None:
                assert found[1][parameter] is None, parameter
            else:
                torch.testing.assert_close(found[1][parameter], want, msg=f"{parameter} with {undefined}")


def test_what_is_sliced_away_or_undefined_has_no_gradient():
    x = sr.testing.device_born(sr.from_lengths(values()[:, 0], LENGTHS), spare=3)
    x.values.requires_grad_()
    sr.sum(x[:, :2]).backward()
    assert x.values.grad.tolist() == [1, 1, 0, 1, 1, 1, 0, 0, 0]


def test_stretching_over_undefined_rows_of_a_product_stays_in_bounds():
    p, q = sr.Partition.from_lengths([2, 0, 1]), sr.Partition.from_lengths([1, 2, 3])
    exact = sr.from_product(values()[:5, 0], p, q)
    for spare in (1, 7):
        d = sr.testing.device_born(exact, spare=spare)
        for x in (d, exact):
            total = sr.expand_dims(sr.sum(x, axis=1), axis=1)
            assert (x + total).tolist() == (exact + sr.expand_dims(sr.sum(exact, axis=1), axis=1)).tolist()


ALONG = [
    "var",
    "std",
    "layer_norm",
    "rms_norm",
    "normalize",
    "log_softmax",
    "softmax",
    "logsumexp",
    "mean",
    "norm",
    "prod",
]


@pytest.mark.parametrize("name", ALONG)
def test_gradients_along_rows_see_defined_rows_alone(name):
    """First and second derivatives of a function of what lies along an axis, and of the whole."""
    exact = sr.from_lengths(values(), [3, 0, 2, 1] if name not in ("var", "std", "layer_norm") else [3, 3])
    spare = sr.testing.device_born(exact, spare=3)
    for axis in (1, (1, 2)):
        for undefined in (float("nan"), 97.0):
            found = []
            for x in (exact, spare):
                packed = x.values.clone()
                packed[6:] = undefined
                leaf = packed.requires_grad_()
                made = getattr(sr, name)(x._with(leaf), axis=axis)
                loss = sr.sum(sr.where(sr.isfinite(made), made * made, 0)).torch()
                (first,) = torch.autograd.grad(loss, leaf, create_graph=True)
                kept = first[:6]
                (second,) = torch.autograd.grad((kept * kept).sum(), leaf)
                found.append((kept.detach(), second[:6]))
            for mine, theirs in zip(*found, strict=True):
                torch.testing.assert_close(mine, theirs, rtol=1e-7, atol=1e-7)


def test_a_number_with_a_gradient_stretches_over_everything():
    x = sr.testing.device_born(sr.from_lengths(torch.ones(2, 3), [1, 1]), spare=1)
    for dtype in (torch.float32, torch.float64):
        scale = torch.tensor(2.0, dtype=dtype, requires_grad=True)
        made = x * scale
        assert made.tolist() == [[[2.0, 2.0, 2.0]], [[2.0, 2.0, 2.0]]]
        sr.sum(made).backward()
        assert scale.grad == 6


def test_parents_of_over_allocated_tensors_are_reduced_in_bounds():
    x = sr.from_lengths(torch.arange(6.0), [[2, 1], [2, 2, 2]])
    d = sr.testing.device_born(x)
    assert sr.sum(d[:, 1:], axis=0).tolist() == sr.sum(x[:, 1:], axis=0).tolist()
    one = sr.ragged([[1.0], []])
    for name in ("softmax", "sum", "var", "argmax"):
        got = getattr(sr, name)(sr.testing.device_born(one)[:, 1:], axis=0)
        assert got.tolist() == getattr(sr, name)(one[:, 1:], axis=0).tolist()


def test_one_row_and_no_features():
    q = sr.testing.device_born(sr.ragged([[[1.0]]], ragged_rank=1))
    assert (q @ q.mT + torch.zeros(1)).tolist() == [[[1.0]]]
    nothing = sr.testing.device_born(sr.from_lengths(torch.zeros(3, 0), [2, 1]))
    assert (nothing @ torch.ones(2, 0, 4)).tolist() == [[[0.0] * 4] * 2, [[0.0] * 4]]


def test_options_of_embeddings_that_look_at_every_index_are_refused():
    ids = sr.testing.device_born(sr.ragged([[0, 1], [0]]), spare=3)
    with pytest.raises(TypeError, match="scale_grad_by_freq"):
        F.embedding(ids, torch.ones(2, 2), scale_grad_by_freq=True)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int8, torch.uint8, torch.uint32])
def test_undefined_rows_are_no_divisors(dtype):
    a, b = (sr.testing.device_born(sr.ragged(rows).to(dtype), spare=2) for rows in ([[7, 3], [2]], [[3, 3], [1]]))
    b.values[3:] = 0
    assert (a // b).tolist() == sr.floor_divide(a, b).tolist() == torch.floor_divide(a, b).tolist() == [[2, 1], [2]]
    assert (a % b).tolist() == torch.remainder(a, b).tolist() == [[1, 0], [0]]
    assert torch.div(a, b, rounding_mode="trunc").tolist() == [[2, 1], [2]]
    a //= b
    assert a.tolist() == [[2, 1], [2]]
