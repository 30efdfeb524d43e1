"""Compiled code sees what torch's operations saw: offsets that were written to, and gradients that come in batches."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch

import serrate as sr
from serrate.errors import RaggednessError

CALLS: dict[str, Callable[[sr.Tensor], sr.Tensor]] = {
    "to_dense": lambda x: x.to_dense(max_lengths=4),
    "softmax": lambda x: sr.softmax(x, axis=1),
    "log_softmax": lambda x: sr.log_softmax(x, axis=1),
    "cumulative_sum": lambda x: sr.cumulative_sum(x, axis=1),
    "cumulative_prod": lambda x: sr.cumulative_prod(x, axis=1),
    "x[index]": lambda x: x[torch.tensor([3, 0])],
    "x[:, 1:]": lambda x: x[:, 1:],
    "take": lambda x: sr.take(x, torch.tensor([1, 2]), axis=0),
    "matmul": lambda x: sr.matmul(x, torch.arange(24, dtype=torch.float64).view(4, 2, 3)),
    "sum": lambda x: sr.sum(x, axis=1),
}
OFFSETS, WRITTEN = [0, 3, 3, 8, 9], [0, 1, 2, 3, 9]


def values() -> torch.Tensor:
    return torch.linspace(0.5, 2, 18, dtype=torch.float64).view(9, 2)


@pytest.mark.parametrize("name", [name for name in CALLS if name != "sum"])
def test_offsets_that_were_written_to_are_not_read(name: str) -> None:
    """They are valid offsets still, but others: what was found with the first ones does not fit them."""
    offsets = torch.tensor(OFFSETS)
    x = sr.from_offsets(values(), offsets, copy=False)
    offsets.copy_(torch.tensor(WRITTEN))
    with pytest.raises(RuntimeError, match="were written to"):
        CALLS[name](x)


@pytest.mark.parametrize("name", CALLS)
def test_a_gradient_is_right_or_an_error_where_offsets_were_written_to(name: str) -> None:
    def made(offsets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        leaf = values().requires_grad_()
        return CALLS[name](sr.from_offsets(leaf, offsets, copy=False)).values, leaf

    out, leaf = made(torch.tensor(OFFSETS))
    (want,) = torch.autograd.grad(out.square().sum(), leaf)
    offsets = torch.tensor(OFFSETS)
    out, leaf = made(offsets)
    offsets.copy_(torch.tensor(WRITTEN))
    try:
        (got,) = torch.autograd.grad(out.square().sum(), leaf)
    except (RuntimeError, RaggednessError) as error:
        assert re.search("written to|were changed|modified by an inplace operation", str(error))  # noqa: PT017  either is right
    else:
        torch.testing.assert_close(got, want)


@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")
@pytest.mark.parametrize("name", [name for name in CALLS if name != "matmul"])  # of which torch has no such product
def test_several_gradients_at_once(name: str) -> None:
    leaf = values().requires_grad_()
    out = CALLS[name](sr.from_offsets(leaf, torch.tensor(OFFSETS))).values
    given = torch.linspace(-1, 1, 3 * out.numel(), dtype=torch.float64).view(3, *out.shape)
    (got,) = torch.autograd.grad(out, leaf, given, is_grads_batched=True, retain_graph=True)
    want = [torch.autograd.grad(out, leaf, each, retain_graph=True)[0] for each in given]
    torch.testing.assert_close(got, torch.stack(want))


def test_sizes_and_padding_that_are_wrong() -> None:
    x = sr.from_lengths(values(), [4, 5])
    with pytest.raises(RuntimeError, match="overflow"):
        x.to_dense(max_lengths=2**61)
    with pytest.raises(ValueError, match="does not fit"):
        x.to_dense(padding_value=torch.ones(3))


def test_equal_rows_are_a_copy() -> None:
    x = sr.from_lengths(values()[:8], [4, 4])
    made = x.to_dense()
    assert torch.equal(made.values, x.values.view(2, 4, 2))
    made += 1
    assert torch.equal(x.values, values()[:8])
