"""Clones, copies and pickles of fusions, and which fusions are equal."""

from __future__ import annotations

import copy
import itertools
import math
import pickle
from collections.abc import Callable

import pytest
import torch
from tests.fusion.samples import LENGTHS, everything, offsets_of, some

from serrate.fusion import Fusion, IterDomain, Memory, ParallelType, RaggedIterDomain, TensorView, const, symbol


def scaled(
    name: str = "exp", by: float = 2.0, extent: int = 8, first: str = "x", dtype: str = "float32", swapped: bool = False
) -> Fusion:
    """name(x) − by·z over an axis."""
    fusion = Fusion()
    x, z = fusion.input(first, [extent, 4], dtype), fusion.input("z", [extent, 4], dtype)
    left, right = fusion.unary(name, x), z * by
    fusion.output(right - left if swapped else left - right, "y")
    return fusion


def scheduled(change: Callable[[TensorView], object]) -> Fusion:
    fusion = scaled()
    change(fusion.outputs[0])
    return fusion


def laid_out(fusion: Fusion, factor: int, fill: float | None) -> Fusion:
    y = fusion.outputs[0]
    row, column = y.domain.logical
    y.set_allocation_domain([*IterDomain.split(row, factor), column], fill)
    return fusion


def keep(y: TensorView) -> None:
    y.fusion.tensors[2].keep_in(y)


VARIANTS: dict[str, Callable[[], Fusion]] = {
    "as it is": scaled,
    "operation": lambda: scaled("log"),
    "constant": lambda: scaled(by=2.5),
    "extent": lambda: scaled(extent=12),
    "name of a tensor": lambda: scaled(first="q"),
    "dtype": lambda: scaled(dtype="float64"),
    "operands": lambda: scaled(swapped=True),
    "split": lambda: scheduled(lambda y: y.split(0, 4)),
    "outer split": lambda: scheduled(lambda y: y.split(0, 4, inner_split=False)),
    "factor": lambda: scheduled(lambda y: y.split(0, 2)),
    "merge": lambda: scheduled(lambda y: y.merge(0)),
    "order": lambda: scheduled(lambda y: y.reorder([1, 0])),
    "parallel type": lambda: scheduled(lambda y: y.parallelize(0, ParallelType.Thread)),
    "another parallel type": lambda: scheduled(lambda y: y.parallelize(0, ParallelType.BIDx)),
    "another axis": lambda: scheduled(lambda y: y.parallelize(1, ParallelType.Thread)),
    "memory": lambda: scheduled(lambda y: y.fusion.tensors[2].set_memory_type(Memory.SHARED)),
    "kept": lambda: scheduled(lambda y: y.fusion.tensors[2].set_memory_type(Memory.REGISTER)),
    "kept in": lambda: scheduled(keep),
    "cache": lambda: scheduled(lambda y: y.cache_before()),
    "swizzle": lambda: scheduled(lambda y: y.split(0, 4).swizzle(1, 2)),
    "other swizzle": lambda: scheduled(lambda y: y.split(0, 4).swizzle(1, 2, "shift")),
    "layout": lambda: laid_out(scaled(), 3, None),
    "fill": lambda: laid_out(scaled(), 3, 0.0),
    "other fill": lambda: laid_out(scaled(), 3, 1.0),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_a_clone_is_equal(name: str) -> None:
    fusion = VARIANTS[name]()
    for other in (fusion.clone(), VARIANTS[name](), pickle.loads(pickle.dumps(fusion)), copy.deepcopy(fusion)):
        assert other is not fusion
        assert other == fusion
        assert hash(other) == hash(fusion)
        assert str(other) == str(fusion)


@pytest.mark.parametrize(("one", "other"), list(itertools.combinations(VARIANTS, 2)))
def test_what_differs_is_not_equal(one: str, other: str) -> None:
    assert VARIANTS[one]() != VARIANTS[other]()
    assert len({VARIANTS[one](), VARIANTS[other]()}) == 2


def test_what_is_not_a_fusion_is_not_equal() -> None:
    assert scaled() != 3
    assert scaled() != Fusion()


def test_names_of_axes_count() -> None:
    """They are part of the generated source."""

    def named(name: str) -> Fusion:
        fusion = Fusion()
        fusion.output(fusion.copy(fusion.input("x", [IterDomain(3, name=name)])), "y")
        return fusion

    assert named("a") == named("a")
    assert named("a") != named("b")


def test_raggedness_counts() -> None:
    def of(*lengths: int) -> Fusion:
        fusion = Fusion()
        rows = RaggedIterDomain([IterDomain(length) for length in lengths])
        fusion.output(fusion.copy(fusion.input("x", [IterDomain(len(lengths)), rows])), "y")
        return fusion

    assert of(3, 5) == of(3, 5)
    assert of(3, 5) != of(5, 3)


@pytest.mark.parametrize(("one", "other", "equal"), [(0.0, -0.0, False), (math.nan, float("nan"), True)])
def test_constants_are_told_apart_by_what_they_compute(one: float, other: float, equal: bool) -> None:
    assert (scaled(by=one) == scaled(by=other)) == equal


def test_a_clone_is_independent() -> None:
    fusion = everything()
    before, key = str(fusion), fusion.key()
    made = fusion.clone()
    assert not set(map(id, made.tensors)) & set(map(id, fusion.tensors))
    assert all(tensor.fusion is made for tensor in made.tensors)
    y = made.named("chosen")
    y.combine(0).split(0, 4).parallelize(0, ParallelType.Thread)
    made.named("t5").set_memory_type(Memory.SHARED)
    made.output(made.unary("exp", y), "more")
    assert (str(fusion), fusion.key()) == (before, key)
    assert made != fusion


def test_a_clone_computes_the_same() -> None:
    fusion = everything()
    inputs = [some(8, 4), offsets_of(LENGTHS), some(4, 4), some(3, 2), torch.tensor([0, 2, 1, 1, 0])]
    for made in (fusion.clone(), pickle.loads(pickle.dumps(fusion))):
        for got, want in zip(made.evaluate(*inputs), fusion.evaluate(*inputs), strict=True):
            assert torch.equal(got, want)


def test_scalars_are_one_object_after_a_copy() -> None:
    expression = (symbol("n") + 3) // 4 * 2 + const(1)
    assert copy.deepcopy(expression) is expression
    assert pickle.loads(pickle.dumps(expression)) is expression
