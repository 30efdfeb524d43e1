"""Padded rows with every option: what plain Python pads, with and without a compiler, and out of a packed batch."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from tests.table import blocks

from serrate.native import gather as library
from serrate.table.block import Block
from serrate.table.gathering import gather
from serrate.table.gathering.batch import Dense
from serrate.table.gathering.gather import Pieces
from serrate.table.gathering.padding import Padding
from serrate.table.schema import Column, Schema

LEVELS = blocks.FOREST[1:]


@pytest.fixture(params=["compiled", "torch", "packed"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "torch":
        monkeypatch.setattr(library, "routines", lambda: None)
    return str(request.param)


def padded(way: str, given: list[Block], wanted: Pieces, out: Dense | None = None, **options: Any) -> Dense:
    schema = given[0].schema
    if way == "packed":
        return gather.pack(given, schema, wanted).to_dense(out=out, **options)
    return gather.pad(given, schema, wanted, Padding.of(schema, **options), out)


def of(option: Any, key: str, default: Any) -> Any:
    return option.get(key, default) if isinstance(option, dict) else option


def expected_sizes(given: list[Block], wanted: Pieces, options: dict[str, Any]) -> dict[str, int]:
    """How long lists are padded to be, from the lengths of those in the batch."""
    packed = gather.pack(given, given[0].schema, wanted)
    made = {}
    for level in packed.offsets:
        length = of(options.get("max_lengths"), level, None)
        length = max(packed.lengths[level].tolist(), default=0) if length is None else length
        step = of(options.get("multiple_of", 1), level, 1)
        made[level] = -(-length // step) * step
    return made


def check(dense: Dense, given: list[Block], wanted: Pieces, options: dict[str, Any]) -> None:
    """That a batch is what plain Python pads."""
    schema, sizes = given[0].schema, expected_sizes(given, wanted, options)
    assert wanted.source is not None
    pairs = list(zip(wanted.source.tolist(), wanted.row.tolist(), strict=True))
    assert set(dense.masks) == set(LEVELS)
    for name, column in schema.items():
        path = blocks.path(given[0], name)
        shape = [sizes[level] for level in path]
        keep = [min(sizes[level], of(options.get("max_lengths"), level, None) or sizes[level]) for level in path]
        keep = [
            0 if of(options.get("max_lengths"), level, None) == 0 else n for level, n in zip(path, keep, strict=True)
        ]
        left = [of(options.get("side", "right"), level, "right") == "left" for level in path]
        filling = blocks.filled(column.features, of(options.get("padding", 0), name, 0))
        words = dense.vocabularies.get(name)
        zero = blocks.filled(column.features, 0)

        def shown(value: Any, words: Any = words, zero: Any = zero) -> Any:
            return zero if value is None else words.index(value) if words is not None else value

        rows = [deep(blocks.row(given[s], name, r), len(path), shown) for s, r in pairs]
        assert tuple(dense[name].shape) == (len(pairs), *shape, *column.features), name
        assert dense[name].dtype == column.dtype
        assert dense[name].tolist() == [blocks.padded(row, shape, keep, left, filling, None) for row in rows], name
        there = [deep(blocks.row(given[s], name, r), len(path), lambda _: True) for s, r in pairs]
        if path:
            masks = [blocks.padded(row, shape, keep, left, False, None) for row in there]
            assert dense.masks[path[-1]].tolist() == masks
        if column.nullable:
            valid = [deep(blocks.row(given[s], name, r), len(path), lambda value: value is not None) for s, r in pairs]
            assert dense.valid[name].tolist() == [blocks.padded(row, shape, keep, left, False, None) for row in valid]


def deep(lists: Any, depth: int, change: Any) -> Any:
    return change(lists) if depth == 0 else [deep(each, depth - 1, change) for each in lists]


def batch(seed: int, count: int, rows: int = 8, **options: Any) -> tuple[list[Block], Pieces]:
    rng = np.random.default_rng(seed)
    words = [("a", "b", "c"), ("c", "x"), ("b",)]
    given = [blocks.block(rng, 6, words=words[i], **options) for i in range(count)]
    return given, Pieces(torch.from_numpy(rng.integers(0, count, rows)), torch.from_numpy(rng.integers(0, 6, rows)))


OPTIONS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "left": {"side": "left"},
    "one side left": {"side": {"visits.codes": "left"}},
    "outer side left": {"side": {"visits": "left", "meds": "left"}},
    "cut": {"max_lengths": 2},
    "cut to nothing": {"max_lengths": 0},
    "inner cut": {"max_lengths": {"visits.codes": 1}},
    "outer cut": {"max_lengths": {"visits": 2}},
    "cut and left": {"max_lengths": {"visits": 2, "visits.codes": 3}, "side": "left"},
    "longer than lists": {"max_lengths": {"visits": 9, "visits.codes": 7}},
    "multiple": {"multiple_of": 4},
    "some multiple": {"multiple_of": {"visits": 8, "visits.labs": 3}},
    "cut and multiple": {"max_lengths": 3, "multiple_of": 2, "side": {"visits": "left"}},
    "padding": {"padding": {"features": -1.5, "word": 9, "bool/0": True, "narrow torch.int8": -7, "missing": 3}},
    "padding left": {"padding": {"features": -1.5, "wide complex128": 2 - 1j, "uint64/7": 2**64 - 1}, "side": "left"},
}


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("count", [1, 3])
def test_options(way: str, name: str, count: int) -> None:
    given, wanted = batch(1, count)
    check(padded(way, given, wanted, **OPTIONS[name]), given, wanted, OPTIONS[name])


@pytest.mark.parametrize("offsets", [torch.int32, torch.int64])
def test_long_lists(way: str, offsets: torch.dtype) -> None:
    """Longer than what is written by vectors, and rows larger than what is filled at once."""
    columns = {
        "code": Column("visits.codes", torch.int64), "narrow": Column("visits.codes", torch.int64, torch.uint8),
        "x": Column("visits.codes", torch.float32, features=(3,)), "y": Column("visits", torch.complex128),
    }  # fmt: skip
    given, wanted = batch(2, 2, rows=5, columns=columns, longest=90, offsets=offsets)
    wide = {level: of({"visits": 300, "visits.codes": 120}, level, None) for level in ("visits", "visits.codes")}
    for options in ({}, {"side": "left", "padding": 3}, {"max_lengths": wide}, {"max_lengths": {"visits.codes": 70}}):
        dense = padded(way, given, wanted, **options)
        sizes = expected_sizes(given, wanted, options)
        for name, column in columns.items():
            path = blocks.path(given[0], name)
            shape = [sizes[level] for level in path]
            left = [of(options.get("side", "right"), level, "right") == "left" for level in path]
            filling = blocks.filled(column.features, options.get("padding", 0))
            assert wanted.source is not None
            rows = [
                blocks.row(given[s], name, r) for s, r in zip(wanted.source.tolist(), wanted.row.tolist(), strict=True)
            ]
            assert dense[name].tolist() == [blocks.padded(row, shape, shape, left, filling, 0) for row in rows], (
                name,
                options,
            )


@pytest.mark.parametrize("side", ["left", "right"])
def test_results_larger_than_caches(way: str, side: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which are written past them: what the other way gives, which is compared with Python above."""
    columns = {
        "a": Column("visits.codes", torch.int64), "b": Column("visits.codes", torch.complex128),
        "c": Column("visits.codes", torch.int64, torch.uint8), "d": Column("visits", torch.float32, nullable=True),
    }  # fmt: skip
    given, wanted = batch(10, 2, rows=50, columns=columns, longest=60)
    options = {"max_lengths": {"visits": 120, "visits.codes": 100}, "side": side, "padding": {"a": -7, "b": 1 - 2j}}
    found = padded(way, given, wanted, **options)
    monkeypatch.setattr(library, "routines", lambda: None)
    other = gather.pad(given, given[0].schema, wanted, Padding.of(given[0].schema, **options))
    assert found.nbytes > 2**24
    for name in columns:
        assert torch.equal(found[name], other[name])
    assert all(torch.equal(found.masks[level], other.masks[level]) for level in found.masks)


@pytest.mark.parametrize("seed", range(30))
def test_random_options(way: str, seed: int) -> None:
    draw = random.Random(seed)
    given, wanted = batch(
        seed, draw.choice([1, 2, 3]), rows=draw.choice([1, 2, 9]), longest=draw.choice([1, 3, 12]), empty=draw.random()
    )

    def per_level(choices: list[Any]) -> Any:
        if draw.random() < 0.4:
            return draw.choice(choices)
        return {level: draw.choice(choices) for level in LEVELS if draw.random() < 0.5}

    options = {
        "side": per_level(["left", "right"]),
        "max_lengths": per_level([0, 1, 2, 5, 13]),
        "multiple_of": per_level([1, 2, 3, 8]),
    }
    check(padded(way, given, wanted, **options), given, wanted, options)


def test_padding_for_all_columns(way: str) -> None:
    given, wanted = batch(
        3,
        1,
        columns={
            "a": Column("visits", torch.int8),
            "b": Column("visits", torch.bfloat16),
            "c": Column("rows", torch.bool),
        },
    )
    dense = padded(way, given, wanted, padding=-2)
    outside = ~dense.masks["visits"]
    assert bool(outside.any())
    assert set(dense["a"][outside].tolist()) == set(dense["b"][outside].tolist()) == {-2}


def test_out_is_written_again(way: str) -> None:
    given, wanted = batch(4, 2)
    options = {"max_lengths": 5, "padding": {"features": 2.0}}
    first = padded(way, given, wanted, **options)
    addresses = [each.data_ptr() for each in (*first.values(), *first.masks.values(), *first.valid.values())]
    other = Pieces(wanted.source, wanted.row.flip(0))
    again = padded(way, given, other, out=first, **options)
    assert again is first
    assert [each.data_ptr() for each in (*again.values(), *again.masks.values(), *again.valid.values())] == addresses
    check(again, given, other, options)


def test_out_that_does_not_fit(way: str) -> None:
    columns = {"time": Column("visits", torch.float32, nullable=True), "age": Column("rows", torch.int64)}
    given, wanted = batch(5, 1, columns=columns)

    def made() -> Dense:
        return padded(way, given, wanted, max_lengths=3)

    def refused(out: Any, words: str, error: type[Exception] = ValueError) -> None:
        with pytest.raises(error, match=words):
            padded(way, given, wanted, max_lengths=3, out=out)

    refused({"time": 1}, "out must be a Dense that an earlier call returned, got dict", TypeError)
    with pytest.raises(
        ValueError, match=r"column 'time' of out must have shape \(8, 4\) and torch.float32, got \(8, 3\)"
    ):
        padded(way, given, wanted, max_lengths=4, out=made())
    out = made()
    out.columns["time"] = out["time"].double()
    refused(out, r"column 'time' of out must have shape \(8, 3\) and torch.float32, got \(8, 3\) and torch.float64")
    out = made()
    out.columns["time"] = out["time"].t().contiguous().t()
    refused(out, "column 'time' of out must be contiguous and on cpu")
    out = made()
    del out.masks["visits"]
    refused(out, "out lacks the mask of level 'visits'")
    out = made()
    out.valid["age"] = torch.ones(8, dtype=torch.bool)
    refused(out, "out has validity of column 'age', which the result does not have")
    out = made()
    del out.columns["age"]
    refused(out, "out lacks the column 'age'")


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"side": "top"}, ValueError, 'side must be "left" or "right", or a dict of these by level, got \'top\''),
        ({"side": {"visit": "left"}}, ValueError, "side names 'visit', but the levels below the rows are visits, "),
        ({"side": {"rows": "left"}}, ValueError, "side names 'rows', but the levels below the rows are visits, "),
        ({"side": {"visits": "top"}}, ValueError, 'side must be "left"'),
        ({"max_lengths": -1}, ValueError, "max_lengths must be an int of 0 or more, or a dict of these by level, got"),
        ({"max_lengths": 1.5}, ValueError, r"max_lengths must be an int of 0 or more.*got 1.5"),
        ({"max_lengths": True}, ValueError, "max_lengths must be an int of 0 or more.*got True"),
        ({"max_lengths": 2**63}, ValueError, "max_lengths must be an int of 0 or more"),
        ({"max_lengths": {"codes": 3}}, ValueError, "max_lengths names 'codes'"),
        ({"multiple_of": 0}, ValueError, "multiple_of must be an int of 1 or more"),
        ({"multiple_of": {"visits": 0}}, ValueError, "multiple_of must be an int of 1 or more"),
        ({"padding": {"codes": 3}}, ValueError, "padding names 'codes', but the columns are "),
        ({"padding": {"bool/0": 2}}, ValueError, "padding of column 'bool/0': 2 does not fit"),
        ({"padding": {"narrow torch.int8": 1.5}}, ValueError, "column 'narrow torch.int8': 1.5 does not fit"),
        ({"padding": {"narrow torch.int8": float("nan")}}, ValueError, "padding of column 'narrow torch.int8': nan"),
        ({"padding": {"uint8/1": 256}}, ValueError, "padding of column 'uint8/1': 256 does not fit torch.uint8"),
        ({"padding": {"uint8/1": "x"}}, TypeError, "padding must be a number, or a dict of numbers by column, got 'x'"),
        ({"padding": None}, TypeError, "padding must be a number, or a dict of numbers by column, got None"),
    ],
)  # fmt: skip
def test_wrong_options(way: str, options: dict[str, Any], error: type[Exception], words: str) -> None:
    given, wanted = batch(6, 1)
    given[0].schema._columns["bool/0"] = Column("visits", torch.bool)  # type: ignore[index]
    given[0].values["bool/0"] = torch.zeros(given[0].counts["visits"], dtype=torch.bool)  # type: ignore[index]
    with pytest.raises(error, match=words):
        padded(way, given, wanted, **options)


def test_a_batch_without_rows_has_its_shape(way: str) -> None:
    given, _ = batch(7, 1, columns={"code": Column("visits.codes", torch.int64, features=(2,))})
    none = torch.empty(0, dtype=torch.int64)
    assert padded(way, given, Pieces(None, none))["code"].shape == (0, 0, 0, 2)
    dense = padded(way, given, Pieces(None, none), max_lengths={"visits": 3}, multiple_of=2)
    assert dense["code"].shape == (0, 4, 0, 2)
    assert dense.masks["visits.codes"].shape == (0, 4, 0)


def test_rows_without_entries(way: str) -> None:
    given, wanted = batch(8, 2, empty=1.0)
    dense = padded(way, given, wanted, max_lengths={"visits": 2, "visits.codes": 3}, padding={"features": 5})
    assert dense["features"].shape == (8, 2, 3, 3, 2)
    assert bool((dense["features"] == 5).all())
    assert not dense.masks["visits.codes"].any()


def test_what_is_past_a_short_row_is_not_written(way: str) -> None:
    """Whole vectors are written; what follows the result in memory stays as it is."""
    columns = {"x": Column("visits", torch.int32), "m": Column("visits.codes", torch.int8)}
    given, wanted = batch(9, 1, rows=3, columns=columns)
    if way == "packed":
        pytest.skip("allocates its own")
    schema = Schema(given[0].schema.levels, columns)
    dense = gather.pad(given, schema, wanted, Padding.of(schema, max_lengths=3))
    for name, size in (("x", 9), ("m", 27)):
        memory = torch.full((size + 64,), 77, dtype=columns[name].dtype)
        dense.columns[name] = memory[:size].view(dense[name].shape)
    guard = dense.columns["x"]._base, dense.columns["m"]._base
    gather.pad(given, schema, wanted, Padding.of(schema, max_lengths=3), dense)
    for memory, size in zip(guard, (9, 27), strict=True):
        assert memory is not None
        assert memory[size:].tolist() == [77] * 64
