"""What follows from a structure is worked out once, serves every call after it, and goes away with the structure."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
import torch

import serrate as sr
from serrate.tensor import abstract

ROWS = [[[1.0, 2.0], [], [3.0]], [], [[4.0], [5.0, 6.0, 7.0]]]

CALLS: dict[str, Callable[[sr.Tensor], sr.Tensor]] = {
    "sum of the innermost": lambda x: sr.sum(x, axis=2),
    "sum of the middle axis": lambda x: sr.sum(x, axis=1),
    "sum of two axes": lambda x: sr.sum(x, axis=(1, 2)),
    "sum of the outermost": lambda x: sr.sum(x, axis=0),
    "sum of all": lambda x: sr.sum(x),
    "mean": lambda x: sr.mean(x, axis=-1),
    "max": lambda x: sr.max(x, axis=(0, 2)),
    "softmax": lambda x: sr.softmax(x, axis=2),
    "softmax along others": lambda x: sr.softmax(x, axis=1),
    "cumulative_sum": lambda x: sr.cumulative_sum(x, axis=2),
    "cumulative_sum along others": lambda x: sr.cumulative_sum(x, axis=1),
    "to_dense": lambda x: x.to_dense(),
    "from_dense": lambda x: sr.from_dense(x.to_dense(), like=x),
    "x[index]": lambda x: x[torch.tensor([2, 0])],
}


@pytest.fixture
def _no_collector() -> Iterator[None]:
    """Only what nobody holds any more goes away."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("_no_collector")
@pytest.mark.parametrize("name", CALLS)
def test_it_goes_away_with_the_structure(name: str) -> None:
    x = sr.ragged(ROWS)
    CALLS[name](x)
    offsets = [weakref.ref(partition.offsets) for partition in x.partitions]
    del x
    assert [each() for each in offsets] == [None, None]


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("first", ["inference", "vmap", "grad", "forward"])
def test_where_it_is_first_asked_for_does_not_matter(name: str, first: str) -> None:
    """Tensors that are made in inference mode, or in a transform, cannot be used outside."""

    def compute(values: torch.Tensor, x: sr.Tensor) -> torch.Tensor:
        return CALLS[name](x._with(values)).values

    x, fresh = sr.ragged(ROWS), sr.ragged(ROWS)
    if first == "inference":
        with torch.inference_mode():
            compute(x.values, x)
    elif first == "vmap":
        torch.vmap(lambda values: compute(values, x))(torch.stack([x.values, x.values]))
    elif first == "grad":
        torch.func.grad(lambda values: compute(values, x).sum())(x.values)
    else:
        torch.func.jvp(lambda values: compute(values, x), (x.values,), (x.values,))
    found = []
    for each in (x, fresh):
        leaf = each.values.clone().requires_grad_()
        made = compute(leaf, each)
        found.append((made.detach(), *torch.autograd.grad(made.square().sum(), leaf)))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, equal_nan=True)


def test_offsets_that_are_kept_are_no_inference_tensors() -> None:
    x = sr.ragged(ROWS)
    with torch.inference_mode():
        sr.sum(x, axis=1)
    made = sr.sum(x, axis=1)
    assert made.lengths[0].tolist() == [2, 0, 3]  # as long as the longest of each
    assert not made.partitions[0].offsets.is_inference()


def test_nothing_is_kept_of_an_abstract_run() -> None:
    structure = sr.ragged(ROWS).structure
    with abstract.entered(cast("Any", object())):  # a run that nobody asks anything
        assert structure.derived("number", lambda _: 1) == 1
    assert structure.derived("number", lambda _: 2) == 2
    assert structure.derived("number", lambda _: 3) == 2


def test_results_of_one_structure_have_one_structure() -> None:
    x = sr.ragged(ROWS)
    total, most = sr.sum(x, axis=2), sr.max(x * 2, axis=2)
    assert total.structure is most.structure
    assert sr.sum(x, axis=2).tolist() == [[sum(row) for row in rows] for rows in ROWS]
    assert (total + most).tolist() == [[sum(row) + 2 * max(row, default=-torch.inf) for row in rows] for rows in ROWS]


def test_what_is_kept_for_one_call_does_not_serve_another() -> None:
    x = sr.ragged(ROWS)
    for name in (*CALLS, *reversed(CALLS)):
        want = CALLS[name](sr.ragged(ROWS))
        torch.testing.assert_close(CALLS[name](x).values, want.values, equal_nan=True)


def test_the_order_of_axes_and_what_is_kept_of_them() -> None:
    """The same structure is seen in several orders, with several features."""
    x = sr.from_lengths(torch.arange(30.0).view(5, 2, 3), [2, 0, 3])
    rows = x.values.split([2, 0, 3])
    want = torch.stack([row.sum(0) for row in rows])
    for _ in range(2):
        assert torch.equal(sr.sum(x, axis=1).torch(), want)
        assert torch.equal(sr.sum(x.permute_dims((0, 1, 3, 2)), axis=1).torch(), want.mT)
        assert torch.equal(sr.sum(x.permute_dims((3, 0, 2, 1)), axis=-1).torch(), want.permute(2, 0, 1))
        assert torch.equal(sr.sum(x, axis=1, keepdims=True).torch(), want[:, None])
        assert torch.equal(sr.sum(x, axis=(1, 3)).torch(), want.sum(-1))
        assert torch.equal(sr.sum(x, axis=(0, 1)).torch(), want.sum(0))
        assert sr.sum(x, axis=(2, 3)).tolist() == [row.sum((1, 2)).tolist() for row in rows]
        flat = sr.from_lengths(x.values.flatten(1), x.lengths[0])
        assert torch.equal(sr.sum(flat, axis=1).torch(), want.flatten(1))
