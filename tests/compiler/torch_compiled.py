"""What tests of torch.compile around compiled functions share: functions, batches, comparison with eager code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters

import serrate as sr

BATCHES = [[3, 0, 2], [1, 4], [2, 2, 2, 1], [7, 0]]
BACKENDS = ["eager", "aot_eager", "inductor"]
EACH_BACKEND = [each if each == "aot_eager" else pytest.param(each, marks=pytest.mark.slow) for each in BACKENDS]
"""All of them for tests of one; the one that does all but generate code is always tried."""


def rows(lengths: list[int], width: int = 6, dtype: torch.dtype = torch.float32) -> sr.Tensor:
    generator = torch.Generator().manual_seed(sum(lengths))
    values = torch.randn(sum(lengths), width, dtype=dtype, generator=generator)
    return sr.from_lengths(values.requires_grad_(), lengths)


def packed(given: Any) -> list[torch.Tensor]:
    """The torch tensors in arguments or results."""
    if isinstance(given, (sr.Tensor, torch.Tensor)):
        return [given.values if isinstance(given, sr.Tensor) else given]
    parts = given.values() if isinstance(given, dict) else given if isinstance(given, (tuple, list)) else ()
    return [each for part in parts for each in packed(part)]


def run(function: Callable[..., Any], given: tuple[Any, ...], params: tuple[torch.Tensor, ...] = ()) -> tuple[Any, Any]:
    """What a function gives, and the gradients of what it is given and of the parameters."""
    torch.manual_seed(0)
    result = function(*given)
    leaves = [each for each in (*packed(given), *params) if each.requires_grad]
    total = [each.square().sum() for each in packed(result) if each.requires_grad]
    return result, torch.autograd.grad(sum(total), leaves, allow_unused=True) if total and leaves else ()


def check(
    compiled: Callable[..., Any], function: Callable[..., Any], *given: Any, params: tuple[torch.Tensor, ...] = ()
) -> None:
    """Both give the same, with the same gradients."""
    (got, got_back), (want, want_back) = run(compiled, given, params), run(function, given, params)
    close(got, want)
    for one, other in zip(got_back, want_back, strict=True):
        assert (one is None) == (other is None)
        if other is not None:
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def close(got: Any, want: Any) -> None:
    assert type(got) is type(want)
    if isinstance(want, (sr.Tensor, torch.Tensor)):
        assert got.shape == want.shape
        (one,), (other,) = packed(got), packed(want)
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
        assert one.requires_grad == other.requires_grad
        if isinstance(want, sr.Tensor):
            assert got.tolist() == (got + 0).tolist()  # what comes out can be computed with
    elif isinstance(want, (tuple, list)):
        for one, other in zip(got, want, strict=True):
            close(one, other)
    elif isinstance(want, dict):
        assert list(got) == list(want)
        for name in want:
            close(got[name], want[name])
    else:
        assert got == want


def traced(function: Callable[..., Any], backend: Any, *, fullgraph: bool = True) -> Callable[..., Any]:
    return torch.compile(function, backend=backend, fullgraph=fullgraph, dynamic=True)


def one_graph() -> None:
    """All calls since the start of the test took one graph."""
    assert counters["stats"]["unique_graphs"] == 1
    assert not counters["graph_break"]


# ------------------------------------------------------------------------------------------------------- functions

torch.manual_seed(0)
LAYER = nn.Linear(6, 6)


class Pair(NamedTuple):
    one: Any
    other: Any


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "rows": lambda x: sr.softmax(sr.gelu(x), axis=1),
    "dense and several results": lambda x: (sr.sum(x * x, axis=1), sr.exp(x), sr.sum(x, axis=1).torch()),
    "arguments as results": lambda x: [x, x * 2, x],
    "a dict, numbers and None": lambda x: {"a": (x + 1, None, 3), "b": x.values.mean(0)},
    "a named tuple": lambda x: Pair(x * 2, (Pair(sr.exp(x), 1), None)),
    "a library call": lambda x: sr.gelu(LAYER(x)),
    "a captured parameter alone": lambda x: (LAYER.weight * 2, x * LAYER.bias),
    "dropout": lambda x: sr.dropout(x, 0.5) * x,
    "a slice": lambda x: x[:, :2] * 2,
    "a mask": lambda x: (x * 2)[sr.sum(x, axis=2) > 0],
    "sizes": lambda x: (x * 2, x.shape[0], x.shape[2]),
    "scores": lambda x: x @ x.mT,
    "padded": lambda x: x.to_dense(),
    "without gradients": lambda x: sr.argmax(x, axis=1),
    "cut gradients": lambda x: (x.detach() * 2, x * 3),
}
