"""Reductions by `evaluate`, against torch on elements gathered by their kept indices."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from tests.fusion.samples import FLOATS, LENGTHS, WHOLE, by_rows, each_length, nested, offsets_of, same, some

from serrate.fusion import Fusion, RaggedIterDomain, symbol
from serrate.fusion.binding import TORCH
from serrate.fusion.monoids import MONOIDS


def reduced(name: str, given: list[tuple[int, Any]], dtype: torch.dtype) -> Any:
    """A reduction of (position, number), as torch has it; of none, what is neutral."""
    values = torch.tensor([value for _, value in given], dtype=dtype)
    wide = values.double() if values.is_floating_point() else values.long()
    match name:
        case "max" | "min" if not given:
            limits = torch.finfo(dtype) if values.is_floating_point() else torch.iinfo(dtype)
            low, high = (-math.inf, math.inf) if values.is_floating_point() else (limits.min, limits.max)
            return low if name == "max" else high
        case "argmax" | "argmin":
            return given[getattr(wide, name)()][0] if given else -1
        case "var":
            return wide.var(correction=0).item() if given else math.nan
        case "logsumexp":
            return wide.logsumexp(0).item()
        case "relative_exp_sum":
            return (wide - wide.max()).exp().sum().item() if given else 0.0
    return getattr(torch, name)(wide).item()


def reduced_by_hand(
    name: str, x: torch.Tensor, lengths: Sequence[int], gone: Sequence[int], positions: int
) -> list[Any]:
    """The elements of [k, r, d] gathered by their kept indices, each list reduced; rows are seen up to `positions`
    where components are reduced and rows are not."""
    rows = x.split(list(lengths)) if lengths else ()
    elements = {
        (c, r, d): value
        for c, row in enumerate(rows)
        for r, features in enumerate(row.tolist())
        for d, value in enumerate(features)
    }
    kept = [axis for axis in range(3) if axis not in gone]
    if 1 in kept and 0 in gone:
        places = itertools.product(*(range([0, positions, x.shape[1]][axis]) for axis in kept))
        groups: dict[tuple[int, ...], list[tuple[int, Any]]] = {place: [] for place in places}
    else:
        whole = [(c, r, d) for c, length in enumerate(lengths) for r in range(length) for d in range(x.shape[1])]
        if 1 in gone:  # empty rows have a result too
            whole = list(itertools.product(range(len(lengths) or (0 in gone)), [0], range(x.shape[1])))
        groups = {tuple(index[axis] for axis in kept): [] for index in whole}
    for index, value in elements.items():
        groups[tuple(index[axis] for axis in kept)].append((index[gone[0]], value))
    return [reduced(name, groups[place], x.dtype) for place in sorted(groups)]


AXES = [[0], [1], [2], [0, 1], [0, 2], [1, 2], [0, 1, 2]]
REDUCED = [
    *itertools.product(MONOIDS, FLOATS[:2]),
    *itertools.product(["sum", "prod", "max", "min", "argmax", "argmin", "any", "all", "count_nonzero"], WHOLE),
    *itertools.product(["any", "all", "count_nonzero"], ["bool", "float16"]),
    *[("sum", "float16"), ("mean", "bfloat16"), ("max", "bfloat16"), ("sum", "bool"), ("prod", "bool")],
]


@each_length
@pytest.mark.parametrize(
    ("name", "dtype", "axes"),
    [(*row, axes) for row in REDUCED for axes in AXES if len(axes) == 1 or not row[0].startswith("arg")],
    ids=str,
)
def test_reduce(name: str, dtype: str, axes: list[int], lengths: list[int]) -> None:
    fusion = Fusion()
    y = fusion.output(fusion.reduce(name, nested(fusion, 3, dtype=dtype), axes))
    n = sum(lengths)
    x = some(n, 3, dtype=dtype)
    if name in ("any", "all", "count_nonzero") and dtype != "bool":
        x[1::3] = 0
        x[4:6] = 0
    got = fusion.evaluate(x, offsets_of(lengths))[0]
    whole = dtype not in FLOATS
    counts = name.startswith("arg") or name == "count_nonzero" or (whole and name in ("sum", "prod"))
    assert y.dtype == ("int64" if counts else "bool" if name in ("any", "all") else dtype)
    sizes = {0: len(lengths), 1: n, 2: 3}
    kept = [axis for axis in range(3) if axis not in axes]
    shape = [n, *([3] if 2 in kept else [])] if 1 in kept else [sizes[axis] for axis in kept]
    want = torch.tensor(reduced_by_hand(name, x, lengths, axes, n), dtype=torch.float64 if not whole else torch.int64)
    same(got, want.reshape(shape).to(got.dtype))


@pytest.mark.parametrize("axes", AXES, ids=str)
def test_keepdims_broadcasts_against_what_was_reduced(axes: list[int]) -> None:
    """x − mean(x) twice: by keepdims, and by a broadcast of the reduced tensor."""
    lengths = LENGTHS
    fusion = Fusion()
    x = nested(fusion, 3)
    with_axes = fusion.reduce("mean", x, axes, keepdims=True)
    assert with_axes.ndim == 3
    assert [axis.is_broadcast for axis in with_axes.domain.kept] == [axis in axes for axis in range(3)]
    if 0 in axes and 1 not in axes:  # positions up to the longest row are no longer the rows
        return
    fusion.output(x - with_axes)
    plain = fusion.broadcast(fusion.reduce("mean", x, axes), [axis in axes for axis in range(3)])
    fusion.output(x - plain)
    a = some(8, 3)
    first, second = fusion.evaluate(a, offsets_of(lengths))
    assert torch.equal(first, second)
    if axes == [1]:
        same(first, by_rows(a, lengths, lambda row: row - row.mean(0)))
    if axes == [2]:
        same(first, a - a.mean(1, keepdim=True))


def test_reduction_of_positions_up_to_a_bound_that_is_given() -> None:
    fusion = Fusion()
    data, offsets = fusion.input("x", ["n"]), fusion.input("offsets", [symbol("k") + 1], "int64")
    rows = RaggedIterDomain.from_offsets(offsets, size="n", longest=4)
    fusion.output(fusion.reduce("sum", fusion.view_as_nested(data, rows.raggedness), [0]))
    got = fusion.evaluate(torch.arange(1.0, 7.0), offsets_of([3, 0, 2, 1]))[0]
    assert got.tolist() == [1 + 4 + 6, 2 + 5, 3, 0]


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_positions_are_of_the_first_and_of_none(name: str) -> None:
    fusion = Fusion()
    fusion.output(fusion.reduce(name, nested(fusion), [1]))
    x = torch.tensor([1.0, 1.0, 0.0, math.nan, 5.0])
    got = fusion.evaluate(x, offsets_of([2, 0, 3]))[0]
    assert got.tolist() == [0, -1, 1]  # the first of equals; NaN before all


def test_max_of_bool() -> None:
    fusion = Fusion()
    fusion.output(fusion.reduce("max", fusion.input("x", [3], "bool"), [0]))
    assert fusion.evaluate(torch.zeros(3, dtype=torch.bool))[0].item() is False


@pytest.mark.parametrize("dtype", ["int8", "int16", "uint8"])
def test_max_of_short_numbers(dtype: str) -> None:
    fusion = Fusion()
    fusion.output(fusion.reduce("max", fusion.input("x", [3], dtype), [0]))
    assert fusion.evaluate(torch.tensor([1, 3, 2], dtype=TORCH[dtype]))[0].item() == 3
