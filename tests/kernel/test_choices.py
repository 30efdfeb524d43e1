"""Choices that all lanes share stand before the loop over the lanes, and mean the same there."""

from __future__ import annotations

import pytest
import torch
from tests.fusion.samples import offsets_of, some
from tests.kernel.harness import agree

from serrate.fusion import Fusion, TensorView, symbol
from serrate.fusion import ParallelType as P
from serrate.fusion.scalar import Scalar, both, const, less, load, where
from serrate.kernel import Lowered, lower
from serrate.kernel.choices import chosen_before_lanes
from serrate.kernel.ir import For, If, Let, Statement, Store, expressions, walk

c, lane = symbol("c"), symbol("lane")
LENGTHS = (3, 0, 2)


def x(index: Scalar) -> Scalar:
    return load("x", index, "float32")


def lanes(*body: Statement) -> tuple[Statement, ...]:
    return chosen_before_lanes((For(lane, const(8), body, "lanes", P.Simd),))


def conditions(body: tuple[Statement, ...]) -> list[str]:
    return [str(statement.condition) for statement in walk(body) if isinstance(statement, If)]


def choices(body: tuple[Statement, ...]) -> int:
    """How many are left in values."""
    return sum(
        node.op == "where" for statement in walk(body) for e in expressions(statement) for node in e.walk()
    )  # fmt: skip


def chosen(condition: Scalar, index: Scalar = lane) -> Store:
    return Store("y", index, where(condition, x(c * 8 + lane), const(0.0, "float32")))


def test_a_choice_by_what_a_name_means() -> None:
    """The name is of the loop; before it stands what the name means."""
    place = symbol("place")
    body = lanes(Let(place, load("places", c)), chosen(less(place, 4)))
    assert conditions(body) == ["places[c] < 4", "!(places[c] < 4)"]
    assert choices(body) == 0


def test_what_differs_between_lanes_stays() -> None:
    half = symbol("half")
    assert not conditions(lanes(chosen(less(c * 8 + lane, 20))))
    assert not conditions(lanes(Let(half, lane // 2), chosen(less(half, c))))


def test_what_the_lanes_store_is_not_looked_at_before() -> None:
    assert not conditions(lanes(chosen(less(load("y", c), 4))))


def test_what_is_looked_at_only_if_something_else_holds_stays_behind_that() -> None:
    """The second condition may read out of bounds where the first does not hold."""
    inner = where(less(load("places", c), 4), x(lane), const(1.0, "float32"))
    body = lanes(Store("y", lane, where(less(c, 3), inner, const(0.0, "float32"))))
    assert conditions(body) == ["c < 3", "places[c] < 4", "!(places[c] < 4)", "!(c < 3)"]
    guarded = both(less(lane, 3), less(where(less(c, 3), load("places", c), const(0)), 4))
    assert not conditions(lanes(chosen(guarded)))


def test_few_choices_are_made_before_a_loop() -> None:
    body = lanes(*(chosen(less(c, number)) for number in range(5)))
    assert len(conditions(body)) == 14  # 2 + 4 + 8
    assert choices(body) > 0


def rows(fusion: Fusion, name: str) -> TensorView:
    return fusion.view_as_nested(fusion.input(name, ["n", 8]), fusion.named("offsets"))


def scheduled(fusion: Fusion, y: TensorView) -> Lowered:
    return lower(fusion, y.parallelize(0, P.Thread).parallelize(len(y.loop) - 1, P.Simd))


@pytest.mark.parametrize("move", ["gather", "stacked", "padded", "all"])
def test_moves_of_rows(move: str) -> None:
    fusion = Fusion()
    fusion.input("offsets", [symbol("k") + 1], "int64")
    table, ids = rows(fusion, "x"), fusion.view_as_nested(fusion.input("ids", ["n"], "int64"), fusion.named("offsets"))
    made = fusion.gather(table, ids, 1) if move in ("gather", "all") else table
    made = fusion.concat([made, rows(fusion, "z"), made], 0) if move in ("stacked", "all") else made
    made = fusion.pad(made, 1, 1, 2, 3.0) if move in ("padded", "all") else made
    lowered = scheduled(fusion, fusion.output(made, "y"))
    assert move == "all" or not choices(lowered.kernel.body)  # which has more than are made before one loop
    given = {
        "offsets": offsets_of(LENGTHS),
        "x": some(5, 8),
        "ids": torch.tensor([2, 0, 1, 1, 1]),
        "z": some(5, 8, seed=1),
    }
    agree(lowered, *(given[tensor.name] for tensor in fusion.inputs))
