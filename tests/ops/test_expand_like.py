"""expand_like: what a reduction gave, back beside each element, against a walk over positions in nested lists."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import serrate as sr

R = sr.Ragged([3, 0, 1, 2])
SHAPES: dict[str, tuple[Any, ...]] = {
    "dense": (2, 3, 2),
    "rows": (4, R),
    "features": (4, R, 2, 3),
    "two levels": (3, sr.Ragged([2, 0, 1]), sr.Ragged([3, 0, 2], (0, 1)), 2),
    "product": (3, sr.Ragged([2, 0, 1]), sr.Ragged([1, 2, 3]), 2),
    "parents of two axes": (2, 3, sr.Ragged([1, 0, 2, 4, 1, 1], (0, 1)), 2),
    "no rows": (0, sr.Ragged([]), 2),
    "all rows empty": (2, sr.Ragged([0, 0]), 2),
    "no features": (4, R, 0),
    "int32 offsets": (3, sr.Ragged(sr.Partition.from_lengths(torch.tensor([2, 0, 3], dtype=torch.int32))), 2),
}
# Orders in which every ragged axis stands behind its parents, so that nested lists can be walked from outside in.
ORDERS = {
    "features": (3, 0, 1, 2),
    "two levels": (0, 3, 1, 2),
    "product": (0, 2, 3, 1),
    "parents of two axes": (3, 1, 0, 2),
}


def tensors() -> Iterator[tuple[str, sr.Tensor]]:
    for name, shape in SHAPES.items():
        x = sr.zeros(shape)
        yield name, x
        if name in ORDERS:
            yield f"{name}, permuted", x.permute_dims(ORDERS[name])
        if x.is_ragged:
            yield f"{name}, born on a device", sr.testing.device_born(x, spare=3 if x.values.shape[0] else 0)
        if name == "features":
            yield "not contiguous", x._with(torch.zeros(3, 2, x.values.shape[0]).permute(2, 1, 0))


LIKE = dict(tensors())


def positions(nested: Any, before: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
    """Where the elements of a nested list stand."""
    if not isinstance(nested, list):
        yield before
        return
    for i, entry in enumerate(nested):
        yield from positions(entry, (*before, i))


def at(nested: Any, place: tuple[int, ...]) -> Any:
    for i in place:
        nested = nested[i]
    return nested


def wrong_places(made: sr.Tensor, reduced: sr.Tensor, like: sr.Tensor, axes: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The places at which there is another element than the one that the place was reduced to."""
    shown, kept, given = like.tolist(), made.tolist(), reduced.tolist()
    assert made.shape == like.shape
    places = list(positions(shown))
    assert list(positions(kept)) == places
    return [p for p in places if at(kept, p) != at(given, tuple(i for a, i in enumerate(p) if a not in axes))]


def numbered(x: sr.Tensor, dtype: torch.dtype = torch.float64) -> sr.Tensor:
    """Different elements, as many as there are places."""
    return x._with(torch.arange(1, x.values.numel() + 1).view(x.values.shape).to(dtype))


@pytest.mark.parametrize("name", LIKE)
def test_every_set_of_axes(name: str) -> None:
    like = LIKE[name]
    ran = 0
    for count in range(like.ndim + 1):
        for axes in itertools.combinations(range(like.ndim), count):
            reduced = numbered(sr.sum(like, axis=axes))
            made = sr.expand_like(reduced, like, axis=axes)
            assert not wrong_places(made, reduced, like, axes), (name, axes)
            assert all(a is b for a, b in zip(made.partitions, like.partitions, strict=True))
            ran += 1
    assert ran == 2**like.ndim


@pytest.mark.parametrize(
    "dtype",
    [torch.float16, torch.bfloat16, torch.float64, torch.complex64, torch.int8, torch.uint16, torch.uint64, torch.bool],
)
def test_every_dtype(dtype: torch.dtype) -> None:
    for like in (LIKE["features"], LIKE["two levels"], LIKE["product"]):
        for axes in ((0,), (1,), (like.ndim - 1,), (0, 1)):
            reduced = numbered(sr.sum(like, axis=axes), dtype)
            made = sr.expand_like(reduced, like, axis=axes)
            assert made.dtype == dtype
            assert not wrong_places(made, reduced, like, axes), (dtype, axes)


def test_what_is_reduced_may_be_stored_in_another_way() -> None:
    like = LIKE["product"]
    q, k = like.partitions
    other = numbered(sr.from_product(torch.zeros(5), k, q)).permute_dims((0, 2, 1))
    assert other.shape == sr.sum(like, axis=3).shape
    assert not wrong_places(sr.expand_like(other, like, axis=3), other, like, (3,))


def test_negative_axes_all_axes_and_nan() -> None:
    like = LIKE["features"]
    reduced = sr.asarray([float("nan"), 1.0, float("inf"), 2.0])
    made = sr.expand_like(sr.broadcast_to(reduced[:, None, None], (4, 2, 3)), like, axis=-3)
    assert made[0].isnan().all()
    assert made[2].isinf().all()
    assert made[3].tolist() == [[[2.0] * 3] * 2] * 2
    assert sr.expand_like(sr.asarray(5.0), like).tolist() == (like + 5.0).tolist()


def test_a_wrong_place_is_found() -> None:
    like, axes = LIKE["two levels"], (1,)
    reduced = numbered(sr.sum(like, axis=axes))
    made = sr.expand_like(reduced, like, axis=axes)
    assert wrong_places(made._with(made.values.roll(1, 0)), reduced, like, axes)
