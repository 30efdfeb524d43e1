"""Sums of exponentials in one walk: where they are found, and what they give for all kinds of numbers."""

from __future__ import annotations

import math

import pytest
import torch
from tests.kernel.harness import check

from serrate.fusion import Fusion, TensorView, symbol
from serrate.kernel import lower
from serrate.schedule.online import elements_of, with_online_sums, with_reciprocals

INF, NAN = math.inf, math.nan
ROWS = {
    "usual": [[1.0, -2.0, 0.5], [3.0]],
    "large": [[1e30, 1e30, -1e30], [-1e38, 3e38]],
    "nothing": [[], [0.0]],
    "inf": [[1.0, INF, 2.0], [INF, INF], [INF]],
    "-inf": [[-INF, -INF], [-INF, 0.0], [0.0, -INF, 1.0]],
    "nan": [[NAN, 1.0], [1.0, NAN], [INF, NAN], [-INF, NAN]],
}


def nested(fusion: Fusion) -> TensorView:
    offsets = fusion.input("offsets", [symbol("k") + 1], "int64")
    return fusion.view_as_nested(fusion.input("x", ["n"]), offsets)


def softmax(axis: int = 1, other_axis: int | None = None, scaled: bool = False) -> Fusion:
    """Softmax over an axis of [n, m]; the maximum is that over another axis if one is given."""
    fusion = Fusion()
    x = fusion.input("x", ["n", "m"])
    x = x * 2 if scaled else x
    greatest = fusion.reduce("max", x, [axis if other_axis is None else other_axis], keepdims=True)
    exponentials = fusion.unary("exp", x - greatest)
    fusion.output(exponentials / fusion.reduce("sum", exponentials, [axis], keepdims=True), "y")
    return fusion


@pytest.mark.parametrize("name", ROWS)
def test_sums_of_all_kinds_of_numbers_are_those_of_three_walks(name: str) -> None:
    fusion = Fusion()
    x = nested(fusion)
    exponentials = fusion.unary("exp", x - fusion.reduce("max", x, [1], keepdims=True))
    total = fusion.output(fusion.reduce("sum", exponentials, [1]), "total")
    y = fusion.output(exponentials / fusion.broadcast(total, [False, True]), "y")
    online = with_online_sums(fusion)
    assert elements_of(total) is not None
    rows = ROWS[name]
    values = torch.tensor([number for row in rows for number in row])
    offsets = torch.tensor([0, *torch.tensor([len(row) for row in rows]).cumsum(0)])
    wanted = [torch.tensor(row).sub(max(row, default=0.0)).exp().sum() for row in rows]
    if name != "nan":  # Python's max does not tell
        torch.testing.assert_close(online.evaluate(offsets, values)[0], torch.stack(wanted), equal_nan=True)
    given = [torch.zeros(0), *(torch.tensor(row).softmax(0) for row in rows)]
    for made in (fusion, online):
        torch.testing.assert_close(made.evaluate(offsets, values)[1], torch.cat(given), equal_nan=True)
    check(lower(online, online.named("y")), [offsets, values])
    assert y.name == "y"


@pytest.mark.parametrize(
    ("fusion", "is_found"),
    [
        (softmax(), True),
        (softmax(scaled=True), True),
        (softmax(axis=0), True),
        (softmax(axis=1, other_axis=0), False),
    ],
    ids=["rows", "of what is computed", "columns", "of another axis"],
)
def test_where_sums_are_found(fusion: Fusion, is_found: bool) -> None:
    found = [tensor for tensor in with_online_sums(fusion).tensors if "relative_exp_sum" in str(tensor.definition)]
    assert bool(found) is is_found
    x = torch.linspace(-2, 2, 15).view(3, 5)
    torch.testing.assert_close(with_online_sums(fusion).evaluate(x)[0], fusion.evaluate(x)[0])


def test_a_maximum_of_another_tensor_is_none() -> None:
    fusion = Fusion()
    x, other = fusion.input("x", ["n", "m"]), fusion.input("other", ["n", "m"])
    exponentials = fusion.unary("exp", x - fusion.reduce("max", other, [1], keepdims=True))
    fusion.output(fusion.reduce("sum", exponentials, [1]), "y")
    assert with_online_sums(fusion) is fusion


def test_what_is_divided_by_such_a_sum_is_multiplied_by_its_reciprocal() -> None:
    made = with_reciprocals(softmax())
    assert "divide" not in str(made)
    x = torch.linspace(-2, 2, 15).view(3, 5)
    torch.testing.assert_close(made.evaluate(x)[0], x.softmax(1))
    fusion = Fusion()  # a sum of other numbers may be so small that it has no reciprocal
    given = fusion.input("x", ["n", "m"])
    fusion.output(given / fusion.reduce("sum", given, [1], keepdims=True), "y")
    assert with_reciprocals(fusion) is fusion
