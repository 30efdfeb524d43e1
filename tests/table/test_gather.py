"""Rows of blocks, taken, packed and padded: what plain Python makes of the same lists, with and without a compiler."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from tests.table import blocks

from serrate.errors import TableFormatError
from serrate.native import gather as library
from serrate.table.block import Block
from serrate.table.gathering import gather
from serrate.table.gathering.gather import Pieces, Sources
from serrate.table.gathering.padding import Padding
from serrate.table.schema import DTYPES, Column, Schema, is_integer

CODES = {"time": Column("visits", torch.float32), "code": Column("visits.codes", torch.int64, torch.int32)}


@pytest.fixture(params=["compiled", "torch"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "torch":
        monkeypatch.setattr(library, "routines", lambda: None)
    return str(request.param)


def sources(seed: int, count: int = 1, rows: int = 6, **options: Any) -> tuple[list[Block], Schema]:
    rng = np.random.default_rng(seed)
    vocabularies = [("a", "b", "c"), ("c", "x"), ("b",), ("a", "b", "c", "d")]
    made = [blocks.block(rng, rows, words=vocabularies[i % 4], **options) for i in range(count)]
    return made, made[0].schema


def functions(schema: Schema) -> list[Callable[..., Any]]:
    """All that make a batch of sources, a schema and pieces."""
    return [gather.take, gather.pack, partial(gather.pad, options=Padding.of(schema))]


def pieces(seed: int, given: list[Block], count: int, *, cut: bool = False) -> Pieces:
    """Random rows of random sources; where asked for, random runs of their visits."""
    rng = np.random.default_rng(seed)
    source = torch.from_numpy(rng.integers(0, len(given), count))
    rows = torch.tensor([int(rng.integers(0, given[s].rows)) for s in source.tolist()], dtype=torch.int64)
    if not cut:
        return Pieces(source, rows)
    lengths = [
        int(given[s].offsets["visits"][r + 1] - given[s].offsets["visits"][r])
        for s, r in zip(source, rows, strict=True)
    ]
    start = [int(rng.integers(0, n + 1)) for n in lengths]
    stop = [int(rng.integers(a, n + 1)) for a, n in zip(start, lengths, strict=True)]
    return Pieces(source, rows, "visits", torch.tensor(start), torch.tensor(stop))


def expected(given: list[Block], wanted: Pieces, name: str) -> list[Any]:
    assert wanted.source is not None
    made = []
    for i, (s, r) in enumerate(zip(wanted.source.tolist(), wanted.row.tolist(), strict=True)):
        cut = None
        if wanted.start is not None and wanted.stop is not None:
            cut = (str(wanted.level), int(wanted.start[i]), int(wanted.stop[i]))
        made.append(blocks.row(given[s], name, r, cut))
    return made


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("offsets", [torch.int32, torch.int64])
def test_take_of_every_kind(count: int, offsets: torch.dtype, cut: bool) -> None:
    given, schema = sources(1, count, offsets=offsets)
    wanted = pieces(2, given, 11, cut=cut)
    taken = gather.take(given, schema, wanted).check()
    assert taken.schema == schema
    assert all(ends.dtype == offsets for ends in taken.offsets.values())
    for name, column in schema.items():
        assert taken.values[name].dtype == column.stored
        assert [blocks.row(taken, name, i) for i in range(11)] == expected(given, wanted, name), name
        if column.nullable:
            assert not taken.values[name][~taken.valid[name]].any()


def test_offsets_of_both_widths_give_the_wide_one() -> None:
    rng = np.random.default_rng(0)
    given = [blocks.block(rng, 4, CODES, offsets=offsets) for offsets in (torch.int32, torch.int64)]
    wanted = Pieces(torch.tensor([1, 0, 1]), torch.tensor([3, 3, 0]))
    taken = gather.take(given, given[0].schema, wanted)
    assert taken.offsets["visits.codes"].dtype == torch.int64
    assert [blocks.row(taken, "code", i) for i in range(3)] == expected(given, wanted, "code")


@pytest.mark.parametrize("count", [1, 3])
def test_pack_widens(count: int) -> None:
    given, schema = sources(3, count)
    wanted = pieces(4, given, 9, cut=True)
    packed = gather.pack(given, schema, wanted)
    assert packed.rows == 9
    assert list(packed) == list(schema)
    for name, column in schema.items():
        assert packed[name].dtype == packed.flat(name).dtype == column.dtype
        found = packed._block
        assert [blocks.row(found, name, i) for i in range(9)] == expected(given, wanted, name), name


def test_sources_of_different_widths() -> None:
    rng = np.random.default_rng(0)
    narrow = {
        "code": Column("visits", torch.int64, torch.uint8),
        "word": Column("visits", torch.int64, torch.int8, text=True),
    }
    wide = {
        "code": Column("visits", torch.int64, torch.int32),
        "word": Column("visits", torch.int64, torch.int32, text=True),
    }
    given = [
        blocks.block(rng, 5, narrow, words=tuple(f"n{i}" for i in range(120))),
        blocks.block(rng, 5, wide, words=tuple(f"w{i}" for i in range(120))),
    ]
    wanted = pieces(5, given, 30)
    taken = gather.take(given, Schema(given[0].schema.levels, wide), wanted)
    for name in narrow:
        assert [blocks.row(taken, name, i) for i in range(30)] == expected(given, wanted, name)


def test_codes_that_outgrow_their_dtype_are_stored_wider() -> None:
    rng = np.random.default_rng(0)
    narrow = {"word": Column("visits", torch.int64, torch.int8, text=True)}
    given = [blocks.block(rng, 5, narrow, words=tuple(f"{k}{i}" for i in range(100))) for k in "ab"]
    wanted = pieces(5, given, 30)
    taken = gather.take(given, given[0].schema, wanted)
    assert taken.schema["word"].stored == torch.uint8
    assert [blocks.row(taken, "word", i) for i in range(30)] == expected(given, wanted, "word")


@pytest.mark.parametrize("rows", [[], [2], [0, 1, 2, 3, 4, 5], [5, 4, 3], [1, 1, 1]])
def test_rows_in_any_order(rows: list[int]) -> None:
    given, schema = sources(7)
    wanted = Pieces(None, torch.tensor(rows, dtype=torch.int64))
    taken = gather.take(given, schema, wanted).check()
    for name in schema:
        assert [blocks.row(taken, name, i) for i in range(len(rows))] == [blocks.row(given[0], name, r) for r in rows]


def test_no_sources_and_no_rows() -> None:
    _, schema = sources(0)
    none = torch.empty(0, dtype=torch.int64)
    for given in ([], sources(0, 2, rows=0)[0]):
        for source in (None, none):
            taken = gather.take(given, schema, Pieces(source, none)).check()
            assert set(taken.counts.values()) == {0}
            dense = gather.pad(given, schema, Pieces(source, none), Padding.of(schema))
            assert dense["features"].shape == (0, 0, 0, 3, 2)
            assert gather.row_lengths(given, schema, Pieces(source, none), "visits.codes").tolist() == []


@pytest.mark.parametrize("empty", [0.0, 1.0])
def test_full_and_empty_rows(empty: float) -> None:
    given, schema = sources(11, 2, rows=3, empty=empty, longest=2)
    wanted = pieces(12, given, 7)
    packed = gather.pack(given, schema, wanted)
    for name in schema:
        assert [blocks.row(packed._block, name, i) for i in range(7)] == expected(given, wanted, name)


def test_one_giant_row() -> None:
    ends = {"visits": torch.tensor([0, 1, 1, 3]), "visits.codes": torch.tensor([0, 2, 100_002, 100_003])}
    values = {"time": torch.arange(3.0), "code": torch.arange(100_003, dtype=torch.int32)}
    given = Block(
        Schema(["rows", "visits", "visits.codes"], CODES),
        {"rows": 3, "visits": 3, "visits.codes": 100_003},
        ends,
        values,
    )
    packed = gather.pack([given], given.schema, Pieces(None, torch.tensor([2, 0])))
    assert packed.lengths["visits.codes"].tolist() == [100_000, 1, 2]
    assert packed.flat("code").tolist() == [*range(2, 100_003), 0, 1]
    dense = gather.pad([given], given.schema, Pieces(None, torch.tensor([2, 0])), Padding.of(given.schema, -1))
    assert dense["code"].shape == (2, 2, 100_000)
    assert dense["code"][1, 0, :3].tolist() == [0, 1, -1]
    assert dense["code"][0, 1, :2].tolist() == [100_002, -1]
    assert dense["code"][0, 0].tolist() == list(range(2, 100_002))


def test_lengths_of_rows() -> None:
    given, schema = sources(13, 3)
    wanted = pieces(14, given, 12, cut=True)
    packed = gather.pack(given, schema, wanted)
    for level in schema.levels:
        lengths = gather.row_lengths(given, schema, wanted, level)
        assert lengths.dtype == torch.int64
        assert lengths.tolist() == torch.diff(packed.cu_seqlens(level)).tolist()
    assert gather.row_lengths(given, schema, wanted, "rows").tolist() == [1] * 12


def test_entries_of_an_inner_level() -> None:
    given, schema = sources(15)
    block, (before,) = given[0], given
    ids = torch.tensor([3, 0, 0, 2])
    made = gather.take_entries(block, "visits", ids, torch.tensor([0, 1, 1, 1, 4, 4, 4])).check()
    assert made.schema == schema
    assert made.values["bool/0"] is before.values["bool/0"]
    visit = _entries(block, "visits", "word")
    assert blocks.row(made, "word", 0) == [visit[3]]
    assert blocks.row(made, "word", 3) == [visit[0], visit[0], visit[2]]
    assert blocks.row(made, "word", 1) == []


def _entries(block: Block, level: str, name: str) -> list[Any]:
    """The entries of a level as nested lists, whichever row they are of."""
    ends = {k: v for k, v in block.offsets.items() if k != level}
    cut = Block(block.schema, block.counts, ends, block.values, block.valid, block.vocabularies)
    return [blocks.row(cut, name, i) for i in range(block.counts[level])]


def test_memory_that_is_not_contiguous() -> None:
    given, schema = sources(17, 2, columns=CODES)
    wanted = pieces(18, given, 9)
    strided = [
        Block(
            schema,
            b.counts,
            {level: torch.stack([ends, ends], 1)[:, 0] for level, ends in b.offsets.items()},
            {name: torch.stack([each, each], 1)[:, 1] for name, each in b.values.items()},
        )
        for b in given
    ]
    taken = gather.take(strided, schema, wanted)
    for name in schema:
        assert [blocks.row(taken, name, i) for i in range(9)] == expected(given, wanted, name)


def test_columns_of_the_whole_table() -> None:
    columns = {
        "time": Column("visits", torch.int64),
        "age": Column(None, torch.int64, torch.uint8),
        "p": Column(None, torch.float32, features=(2,), nullable=True),
    }
    values = {"time": torch.arange(3), "age": torch.tensor(41, dtype=torch.uint8), "p": torch.zeros(2)}
    block = Block(Schema(["visits"], columns), {"visits": 3}, {}, values, {"p": torch.tensor(False)})
    packed = gather.pack([block], block.schema, Pieces(None, torch.tensor([2, 0])))
    assert (packed["time"].tolist(), packed["age"].tolist(), packed["p"].tolist()) == ([2, 0], 41, [0, 0])
    assert packed["age"].dtype == torch.int64
    assert not packed.valid["p"]
    dense = gather.pad([block], block.schema, Pieces(None, torch.tensor([2, 0])), Padding.of(block.schema, 7))
    assert (dense["time"].tolist(), dense["age"].tolist(), dense.valid["p"].tolist()) == ([2, 0], 41, False)


def test_nan_and_zeros_keep_their_bits() -> None:
    bits = torch.tensor([0x7FC00001, -1, 1 << 31, 0], dtype=torch.int64).to(torch.int32)
    block = Block(
        Schema(["rows", "v"], {"x": Column("v", torch.float32)}),
        {"rows": 2, "v": 4},
        {"v": torch.tensor([0, 1, 4])},
        {"x": bits.view(torch.float32)},
    )
    wanted = Pieces(None, torch.tensor([1, 0]))
    assert (
        gather.take([block], block.schema, wanted).values["x"].view(torch.int32).tolist() == bits[[1, 2, 3, 0]].tolist()
    )
    dense = gather.pad([block], block.schema, wanted, Padding.of(block.schema, -0.0))["x"].view(torch.int32)
    assert dense.tolist() == [bits[1:].tolist(), [bits[0].item(), -(1 << 31), -(1 << 31)]]


# --------------------------------------------------------------------------------------------------- what lies


def lying(level: str, place: int, value: int, *, trusted: bool = False, dtype: torch.dtype = torch.int64) -> Block:
    ends = {
        "visits": torch.tensor([0, 2, 2, 4], dtype=dtype),
        "visits.codes": torch.tensor([0, 1, 1, 3, 5], dtype=dtype),
    }
    ends[level][place] = value
    values = {"time": torch.zeros(4), "code": torch.arange(5, dtype=torch.int32)}
    schema = Schema(["rows", "visits", "visits.codes"], CODES)
    return Block(schema, {"rows": 3, "visits": 4, "visits.codes": 5}, ends, values, trusted=trusted)


LIES = [
    ("visits", 1, -1, "by the offsets, entry 0 of 'rows' has the entries 0 to -1 of 'visits', which has 4"),
    ("visits", 1, 3, "by the offsets, entry 1 of 'rows' has the entries 3 to 2 of 'visits', which has 4"),
    ("visits", 2, 5, "by the offsets, entry 1 of 'rows' has the entries 2 to 5 of 'visits', which has 4"),
    ("visits.codes", 3, 0, "by the offsets, entry 2 of 'visits' has the entries 1 to 0 of 'visits.codes', which has 5"),
    (
        "visits.codes", 1, 2**31 - 1,
        "by the offsets, entry 0 of 'visits' has the entries 0 to 2147483647 of 'visits.codes', which has 5",
    ),
    ("visits", 0, -5, "offsets of 'visits' must begin with 0 and end with 4, the number of its entries, got -5 and 4"),
    ("visits", 0, 1, "offsets of 'visits' must begin with 0 and end with 4, the number of its entries, got 1 and 4"),
    ("visits", 3, 5, "offsets of 'visits' must begin with 0 and end with 4, the number of its entries, got 0 and 5"),
    ("visits", 3, 3, "offsets of 'visits' must begin with 0 and end with 4, the number of its entries, got 0 and 3"),
    ("visits.codes", 4, 6, "offsets of 'visits.codes' must begin with 0 and end with 5, .* got 0 and 6"),
    ("visits.codes", 4, 4, "offsets of 'visits.codes' must begin with 0 and end with 5, .* got 0 and 4"),
    ("visits.codes", 0, 1, "offsets of 'visits.codes' must begin with 0 and end with 5, .* got 1 and 5"),
    ("visits.codes", 0, -(2**31), "offsets of 'visits.codes' must begin with 0 and end with 5, .* got -2147483648"),
]  # fmt: skip


@pytest.mark.parametrize(("level", "place", "value", "words"), LIES)
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_offsets_that_lie(level: str, place: int, value: int, words: str, dtype: torch.dtype) -> None:
    """In a source of its own, and in the second of two: rows are refused, whichever they are if an end is wrong."""
    block = lying(level, place, value, dtype=dtype)
    good = lying(level, place, int(lying(level, 0, 0).offsets[level][place]), dtype=dtype)
    of_ends = words.startswith("offsets")
    for function in functions(block.schema):
        for rows in ([0, 1, 2], [1]) if of_ends else ([0, 1, 2],):
            with pytest.raises(TableFormatError, match=f"source 0: {words}"):
                function([block], block.schema, Pieces(None, torch.tensor(rows)))
            second = Pieces(torch.tensor([0] + [1] * len(rows)), torch.tensor([0, *rows]))
            with pytest.raises(TableFormatError, match=f"source 1: {words}"):
                function([good, block], block.schema, second)
    with pytest.raises(TableFormatError, match=words):
        gather.row_lengths([block], block.schema, Pieces(None, torch.arange(3)), "visits.codes")


def test_offsets_whose_difference_is_no_int64() -> None:
    block = lying("visits.codes", 1, 2**63 - 1, dtype=torch.int64)
    block.offsets["visits.codes"][2] = -(2**63)  # 1 more, as int64 counts
    for function in functions(block.schema):
        with pytest.raises(TableFormatError, match="entry 0 of 'visits' has the entries 0 to 9223372036854775807"):
            function([block], block.schema, Pieces(None, torch.arange(3)))


@pytest.mark.parametrize("seed", range(40))
def test_offsets_that_lie_at_random(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever offsets hold, both ways give the same result or the same error."""
    rng = np.random.default_rng(seed)
    for _ in range(10):
        block = blocks.block(rng, 8, CODES, offsets=torch.int32 if rng.random() < 0.5 else torch.int64)
        block.trusted = False
        for _ in range(rng.integers(1, 4)):
            ends = block.offsets[str(rng.choice(["visits", "visits.codes"]))]
            least, most = torch.iinfo(ends.dtype).min, torch.iinfo(ends.dtype).max
            near, far = rng.integers(-3, 30), rng.choice([least, most, rng.integers(least, most)])
            ends[rng.integers(0, ends.numel())] = int(near if rng.random() < 0.8 else far)
        wanted = Pieces(None, torch.from_numpy(rng.integers(0, 8, 5)))
        for function in functions(block.schema):
            found = _outcome(function, block, wanted)
            with monkeypatch.context() as other:
                other.setattr(library, "routines", lambda: None)
                assert _outcome(function, block, wanted) == found


def _outcome(function: Any, block: Block, wanted: Pieces) -> Any:
    try:
        made = function([block], block.schema, wanted)
    except TableFormatError as error:
        return str(error)
    if isinstance(made, Block):
        return [blocks.row(made, "code", i) for i in range(5)]
    return made["code"].tolist()


def test_offsets_that_lie_in_the_second_source() -> None:
    given = [lying("visits", 0, 0), lying("visits.codes", 3, 9)]
    with pytest.raises(TableFormatError, match="source 1: by the offsets, entry 2 of 'visits'"):
        gather.pack(given, given[0].schema, Pieces(torch.tensor([0, 1]), torch.tensor([2, 2])))
    good = gather.pack(given, given[0].schema, Pieces(torch.tensor([0, 1]), torch.tensor([2, 0])))
    assert good["code"].tolist() == [[[1, 2], [3, 4]], [[0], []]]


def test_sizes_that_lie() -> None:
    block = lying("visits", 0, 0)
    for offsets, values, words in [
        ({"visits": block.offsets["visits"][:-1]}, {}, "level 'visits' needs 4 offsets, got 3"),
        ({}, {"code": block.values["code"][:-1]}, r"column 'code' needs shape \(5,\), got \(4,\)"),
    ]:
        bad = Block(block.schema, block.counts, {**block.offsets, **offsets}, {**block.values, **values}, trusted=False)
        with pytest.raises(TableFormatError, match=words):
            gather.pack([bad], bad.schema, Pieces(None, torch.tensor([0])))


@pytest.mark.parametrize("row", [-1, 3, 2**62])
def test_rows_that_there_are_not(row: int) -> None:
    block = lying("visits", 0, 0)
    with pytest.raises(IndexError, match=f"entry {row} of 'rows' is asked for, but there are 3"):
        gather.take([block], block.schema, Pieces(None, torch.tensor([0, row])))


@pytest.mark.parametrize(("start", "stop"), [(-1, 1), (2, 1), (0, 3), (3, 3)])
def test_runs_that_there_are_not(start: int, stop: int) -> None:
    block = lying("visits", 0, 0)
    cut = Pieces(None, torch.tensor([1, 2]), "visits", torch.tensor([0, start]), torch.tensor([0, stop]))
    with pytest.raises(
        IndexError, match=f"entries {start} to {stop} of 'visits' are asked for, but entry 2 of 'rows' has 2"
    ):
        gather.take([block], block.schema, cut)


INTEGERS = [dtype for dtype in DTYPES.values() if is_integer(dtype)]


def worded(stored: torch.dtype, level: str, words: int, *, nullable: bool = False, lengths: Any = (3, 0, 200)) -> Block:
    """A block of strings at a level, whose codes go round the vocabulary; of the visits every one has two codes."""
    schema = Schema(
        ["rows", "visits", "visits.codes"],
        {"word": Column(level, torch.int64 if stored.itemsize < 8 else stored, stored, text=True, nullable=nullable)},
    )
    ends = np.cumsum([0, *lengths])
    counts = {"rows": len(lengths), "visits": int(ends[-1]), "visits.codes": 2 * int(ends[-1])}
    offsets = {"visits": torch.from_numpy(ends), "visits.codes": torch.arange(counts["visits"] + 1) * 2}
    codes = torch.from_numpy(np.arange(counts[level]) % max(words, 1)).to(stored)
    valid = {"word": torch.ones(counts[level], dtype=torch.bool)} if nullable else {}
    vocabulary = tuple(f"word {i}" for i in range(words))
    return Block(schema, counts, offsets, {"word": codes}, valid, {"word": vocabulary}, trusted=False)


def every_way(block: Block) -> list[Callable[[], object]]:
    """All that makes batches of a block: alone, beside one with the same words, and beside one with others."""
    others = [worded(block.values["word"].dtype, str(block.schema["word"].level), n, nullable=True) for n in (0, 2)]
    beside = [replace(block, values={"word": torch.zeros_like(block.values["word"])}), *others]
    rows, schema = torch.arange(block.rows), block.schema.changed(word={"nullable": True})
    made: list[Callable[[], object]] = []
    for function in functions(schema):
        made.append(partial(function, [block], block.schema, Pieces(None, rows)))
        made += [partial(function, [other, block], schema, Pieces(torch.ones_like(rows), rows)) for other in beside]
    far = torch.iinfo(block.schema["word"].dtype).max  # what pads is no code
    left = Padding.of(block.schema, padding=far, side="left")
    return [*made, partial(gather.pad, [block], block.schema, Pieces(None, rows), left)]


@pytest.mark.parametrize("stored", INTEGERS)
@pytest.mark.parametrize("level", ["rows", "visits", "visits.codes"])
def test_codes_that_are_no_places_in_the_vocabulary(stored: torch.dtype, level: str) -> None:
    """One wrong code anywhere: in short lists, long ones, the last of all; just past the last word, and far from it."""
    info = torch.iinfo(stored)
    for words in (1, 5, min(info.max + 1, 300)):
        block = worded(stored, level, words)
        entries = block.values["word"].numel()
        for action in every_way(block):
            action()
        for place in sorted({0, 1, entries // 2, entries - 1}):
            for code in {words, words + 1, info.max, info.min, -1} - set(range(words)):
                if not info.min <= code <= info.max:
                    continue
                codes = block.values["word"].clone()
                codes.numpy()[place] = code
                wrong = replace(block, values={"word": codes})
                for action in every_way(wrong):
                    fault = f"source [01]: column 'word' has code {code}, but its vocabulary has {words} words"
                    with pytest.raises(TableFormatError, match=fault):
                        action()


@pytest.mark.parametrize("stored", [torch.int32, torch.uint8, torch.int64])
@pytest.mark.parametrize("words", [0, 3])
def test_codes_of_missing_entries(stored: torch.dtype, words: int) -> None:
    """They are 0, as the format says, or at least no number that leads outside of the vocabulary."""
    block = worded(stored, "visits.codes", words, nullable=True)
    block.valid["word"][2:] = False
    if words:
        block.valid["word"][5] = True
    else:
        block.valid["word"][:2] = False
    block.values["word"][~block.valid["word"]] = 0
    for action in every_way(block):
        action()
    for place, code in ((7, 100), (block.values["word"].numel() - 1, 4)):
        codes = block.values["word"].clone()
        codes[place] = code
        for action in every_way(replace(block, values={"word": codes})):
            with pytest.raises(
                TableFormatError, match=f"column 'word' has code {code}, but its vocabulary has {words}"
            ):
                action()
    if not words:
        there = block.valid["word"].clone()
        there[9] = True
        for action in every_way(replace(block, valid={"word": there})):
            with pytest.raises(TableFormatError, match="column 'word' has code 0, but its vocabulary has 0 words"):
                action()


def test_a_signed_code_is_no_place_though_its_bits_would_be_one() -> None:
    """-1 of int8 has the bits of 255, which a vocabulary of 300 words has."""
    block = worded(torch.int8, "visits", 128)
    for dtype in (torch.int64, torch.int8):
        schema = block.schema.changed(word={"dtype": dtype})
        codes = block.values["word"].clone()
        codes[1] = -1
        words = tuple(map(str, range(300)))
        wrong = replace(block, schema=schema, values={"word": codes}, vocabularies={"word": words})
        for function in functions(schema):
            with pytest.raises(TableFormatError, match="column 'word' has code -1, but its vocabulary has 300 words"):
                function([wrong], schema, Pieces(None, torch.tensor([0, 1])))


def test_codes_that_a_padded_batch_leaves_out_do_not_matter_to_it(way: str) -> None:
    block = worded(torch.int32, "visits.codes", 5)
    block.values["word"][-1] = 99
    cut = Padding.of(block.schema, max_lengths={"visits": 150})
    rows = Pieces(None, torch.arange(3))
    if way == "compiled":  # what is not written is not looked at
        assert int(gather.pad([block], block.schema, rows, cut)["word"].max()) == 4
    with pytest.raises(TableFormatError, match="has code 99"):
        gather.pad([block], block.schema, rows, Padding.of(block.schema))
    assert gather.pack([block], block.schema, Pieces(None, torch.tensor([0]))).flat("word").tolist() == [
        0,
        1,
        2,
        3,
        4,
        0,
    ]


def test_a_code_without_a_level() -> None:
    block = worded(torch.int32, "visits", 2)
    schema = Schema(block.schema.levels, {"word": replace(block.schema["word"], level=None)})
    for code in (0, 1, 2, -1):
        one = replace(block, schema=schema, values={"word": torch.tensor(code, dtype=torch.int32)})
        for function in functions(schema):
            action = partial(function, [one], schema, Pieces(None, torch.tensor([0, 1])))
            if code in (0, 1):
                action()
                continue
            with pytest.raises(TableFormatError, match=f"source 0: column 'word' has code {code}, but its vocabulary"):
                action()


def test_a_column_stored_wider_than_the_schema_says() -> None:
    block = lying("visits", 0, 0)
    for column in (Column("visits.codes", torch.int16), Column("visits.codes", torch.int64, torch.uint8)):
        schema = Schema(block.schema.levels, {**CODES, "code": column})
        with pytest.raises(TypeError, match=rf"column 'code' must be stored as {column.stored}, got torch.int32"):
            gather.take([block], schema, Pieces(None, torch.tensor([0])))


# ------------------------------------------------------------------------------------------------------- the rest


def test_a_vocabulary_of_all_sources() -> None:
    rng = np.random.default_rng(0)
    columns = {"word": Column("visits", torch.int64, text=True)}
    given = [blocks.block(rng, 2, columns, words=words) for words in (("b", "a"), ("c", "a"), ("b", "ä"))]
    assert gather.vocabulary(given, "word") == ("b", "a", "c", "ä")
    assert gather.pack(given, given[0].schema, Pieces(torch.tensor([2]), torch.tensor([0]))).vocabulary("word") == (
        "b",
        "a",
        "c",
        "ä",
    )


def test_sources_are_pickled_without_addresses() -> None:
    given, schema = sources(19, 2, columns=CODES)
    held = Sources(given)
    wanted = pieces(20, given, 5)
    before = gather.pack(held, schema, wanted)
    again = pickle.loads(pickle.dumps(held))
    assert isinstance(again, Sources)
    assert gather.pack(again, schema, wanted)["code"].tolist() == before["code"].tolist()


def test_a_source_that_gives_another_block_each_time() -> None:
    class Fickle:
        def __init__(self, blocks_: list[Block]) -> None:
            self.blocks, self.schema, self.rows, self.counts = blocks_, blocks_[0].schema, 6, {}

        def whole(self) -> Block:
            return self.blocks[0]

        def block_with(self, rows: torch.Tensor, columns: tuple[str, ...]) -> tuple[Block, torch.Tensor]:
            self.blocks = [*self.blocks[1:], self.blocks[0]]
            return self.blocks[0], rows.flip(0) * 0 + rows

    given, schema = sources(21, 2, columns=CODES)
    held, wanted = Sources([Fickle(given)]), Pieces(None, torch.tensor([4, 1]))
    for i in (1, 0, 1):
        assert gather.pack(held, schema, wanted)["code"].tolist() == [blocks.row(given[i], "code", r) for r in (4, 1)]


def test_calls_from_threads() -> None:
    given, schema = sources(23, 3, rows=40)
    held, plans = Sources(given), [pieces(seed, given, 30) for seed in range(8)]
    alone = [gather.pad(held, schema, wanted, Padding.of(schema)) for wanted in plans]
    found: dict[int, Any] = {}

    def work(i: int) -> None:
        for _ in range(5):
            found[i] = gather.pad(held, schema, plans[i], Padding.of(schema))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i, dense in enumerate(alone):
        for name in schema:
            assert torch.equal(found[i][name], dense[name])


def test_more_levels_than_are_walked() -> None:
    words = [f"l{i}" for i in range(70)]
    levels = ["rows", *(".".join(words[: i + 1]) for i in range(70))]
    ends = {level: torch.tensor([0, 1, 2]) for level in levels[1:]}
    block = Block(
        Schema(levels, {"x": Column(levels[-1], torch.int64)}),
        dict.fromkeys(levels, 2),
        ends,
        {"x": torch.tensor([3, 4])},
    )
    assert gather.pack([block], block.schema, Pieces(None, torch.tensor([1, 0]))).flat("x").tolist() == [4, 3]


@pytest.mark.parametrize("threads", [1, 2])
def test_large_gathers_use_threads(threads: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        rng = np.random.default_rng(0)
        columns = {
            "x": Column("visits", torch.int64, torch.int32, features=(64,)),
            "y": Column("visits.codes", torch.float32),
        }
        block = blocks.block(rng, 3000, columns, longest=20)
        rows = torch.from_numpy(rng.integers(0, 3000, 3000))
        packed = gather.pack([block], block.schema, Pieces(None, rows))
        ends = block.offsets["visits"]
        ids = torch.cat([torch.arange(int(ends[r]), int(ends[r + 1])) for r in rows.tolist()])
        assert torch.equal(packed.flat("x"), block.values["x"][ids].to(torch.int64))
        dense = gather.pad([block], block.schema, Pieces(None, rows), Padding.of(block.schema))
        assert torch.equal(dense["x"][dense.masks["visits"]], packed.flat("x"))
        assert torch.equal(dense["y"][dense.masks["visits.codes"]], packed.flat("y"))
    finally:
        torch.set_num_threads(before)
