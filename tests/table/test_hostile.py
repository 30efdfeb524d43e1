"""Files that are cut off, damaged or made to do harm: refused as such, or read as what they say; nothing else."""

from __future__ import annotations

import json
import os
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.table.mutations import MemorySource, content_of, header_of, with_header, with_text

import serrate as sr
from serrate.errors import TableFormatError
from serrate.table.gathering import gather
from serrate.table.schema import Column
from serrate.table.storage import header, strict
from serrate.table.storage.files import FileSource
from serrate.table.storage.manifest import Manifest

TABLE = sr.Table(
    {
        "age": [41, 63],
        "time": [[0, 3, 9], [2]],
        "code": [[["a", "b"], ["c"], []], [[None, "a"]]],
        "x": [[[1.5]] * 3, [[2.0]]],
    },
    {"time": "visits", "code": "visits.codes", "x": Column("visits", torch.float32, features=(1,))},
)
CONTENT = content_of(TABLE.block())
Change = Callable[[dict[str, Any]], Any]


def refused(content: bytes, fault: str) -> None:
    with pytest.raises(TableFormatError, match=fault) as caught:
        MemorySource(content).table().tolist()
    assert str(caught.value).startswith("a.safetensors")


def changed(change: Change) -> bytes:
    """The file with its header changed in place, or by another one."""
    found, tail = header_of(CONTENT)
    return with_header(change(found) or found, tail)


def put(*path: Any) -> Change:
    """Something else at a place of the header: the last of the path."""

    def change(found: Any) -> None:
        *outer, key, value = path
        for step in outer:
            found = found[step]
        found[key] = value

    return change


def drop(*path: Any) -> Change:
    def change(found: Any) -> None:
        for step in path[:-1]:
            found = found[step]
        del found[path[-1]]

    return change


def named(old: str, new: str) -> Change:
    return lambda found: {(new if name == old else name): value for name, value in found.items()}


# ----------------------------------------------------------------------------------------------------- one by one


def test_the_file_itself_is_read() -> None:
    assert MemorySource(CONTENT).table() == TABLE
    assert MemorySource(changed(lambda found: None)).table() == TABLE


@pytest.mark.parametrize("size", range(0, len(CONTENT), 7))
def test_cut_off(size: int) -> None:
    refused(CONTENT[:size], "cut off|at least 8 bytes|not JSON|the header|not a file of a table")


def test_too_long() -> None:
    refused(CONTENT + b"\0", "ends at byte .* but the file has")


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"", "at least 8 bytes"),
        (b"\xff" * 200, "at most 16777216 bytes, but this one says 18446744073709551615"),
        ((2**24 + 1).to_bytes(8, "little") + b"{" * 100, "at most 16777216"),
        ((100).to_bytes(8, "little") + b"{}", "ends at byte 108, but the file has 10"),
        ((0).to_bytes(8, "little"), "begins with '{'"),
        (with_text(b"[]", b""), "begins with '{'"),
        (with_text(b"\x80\x02}q\x00.", b""), "begins with '{'"),
        (with_text(b"{}", b""), "not a file of a table"),
        (with_text(b'{"__metadata__":{"format":"pt"}}', b""), "not a file of a table"),
        (with_text(b'{"\xff":1}', b""), "is not UTF-8"),
        (with_text(b'{"\\ud800":1}', b""), "is not UTF-8"),
        (with_text(b"{" + b'"a":{' * 50_000, b""), "nested too deeply"),
        (with_text(b'{"a":' + b"[" * 10**6, b""), "nested too deeply"),
        (with_text(b'{"a":' + b"9" * 10**6 + b"}", b""), "at most 2\\*\\*62, got 999"),
        (with_text(b'{"a":1e400}', b""), "numbers must be integers, got 1e400"),
        (with_text(b'{"a":NaN}', b""), "numbers must be integers, got NaN"),
        (with_text(b'{"a":-Infinity}', b""), "numbers must be integers, got -Infinity"),
        (with_text(b'{"a":1,"a":2}', b""), "the key 'a' twice"),
        (with_text(b'{"a":1', b""), "is not JSON"),
    ],
)
def test_headers_that_are_none(content: bytes, fault: str) -> None:
    refused(content, fault)


def test_duplicate_tensor() -> None:
    found, tail = header_of(CONTENT)
    text = json.dumps({**found, "__metadata__": {}}).encode()[:-1] + b',"values/age":{}}'
    refused(with_text(text, tail), "the key 'values/age' twice")


META = "__metadata__"


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (put(META, "version", "2"), "version 2 of the format, but this Serrate reads version 1; a newer one is needed"),
        (put(META, "version", "0"), "the version of the format must be '1', got '0'"),
        (put(META, "version", "1.0"), "the version of the format must be '1'"),
        (put(META, "version", "²"), "the version of the format must be '1'"),
        (drop(META, "version"), "the version of the format must be '1', got None"),
        (drop(META, "schema"), "the metadata have no schema"),
        (drop(META, "counts"), "the metadata have no counts"),
        (put(META, "other", 3), "values of the metadata must be strings"),
        (put(META, "schema", []), "the schema is not valid"),
        (put(META, "schema", "{"), "is not JSON"),
        (put(META, "schema", "levels", ["visits", "rows"]), "the schema is not valid"),
        (put(META, "schema", "levels", 3), "the schema is not valid"),
        (put(META, "schema", "levels", [[]]), "the schema is not valid"),
        (put(META, "schema", "columns", 0, 1, "dtype", "object"), "the schema is not valid"),
        (drop(META, "schema", "columns", 0, 1, "stored"), "the schema is not valid: it lacks 'stored'"),
        (put(META, "schema", "columns", 0, 1, "level", "rows.rows"), "the schema is not valid"),
        (put(META, "schema", "columns", 3, 1, "features", [-1]), "the schema is not valid"),
        (put(META, "schema", "columns", 3, 1, "features", [True]), "the schema is not valid"),
        (put(META, "schema", "columns", 3, 1, "features", [2]), "ask for a tensor 'values/x'"),
        (put(META, "schema", "columns", 0, 0, "other"), "asks for a tensor 'values/other'"),
        (put(META, "schema", "columns", 1, 0, "age"), "'age' occurs twice"),
        (put(META, "counts", "rows", 3), "ask for a tensor 'offsets/visits'"),
        (put(META, "counts", "rows", -2), "an integer from 0"),
        (put(META, "counts", "rows", True), "an integer from 0"),
        (put(META, "counts", "rows", "2"), "an integer from 0"),
        (put(META, "counts", "visits", 2**62), "ask for a tensor"),
        (drop(META, "counts", "visits"), "counts must be an object of"),
        (put(META, "counts", "labs", 3), "counts must be an object of"),
        (put("values/age", "dtype", "I32"), "must have 8 bytes, got 16"),
        (put("values/age", "dtype", "U64"), "ask for a tensor 'values/age' of I64 .* one of U64"),
        (put("values/age", "dtype", "O"), "must have a dtype of"),
        (put("values/age", "dtype", ["I64"]), "must have a dtype of"),
        (put("values/age", "shape", [1, 2]), "ask for a tensor 'values/age'"),
        (put("values/age", "shape", [-1, -2]), "an integer from 0"),
        (put("values/age", "shape", [2.0]), "numbers must be integers"),
        (put("values/age", "shape", 2), "list of at most 64 sizes"),
        (put("values/age", "shape", [1] * 65), "list of at most 64 sizes"),
        (put("values/age", "shape", [2**40, 2**40]), "product is too large"),
        (put("values/age", "shape", [0, 2**40, 2**40]), "product is too large"),
        (put("values/age", "shape", [2**61]), "product is too large"),
        (put("values/age", "data_offsets", [0]), "list of two ends"),
        (put("values/age", "data_offsets", [16, 0]), "must have 16 bytes, got -16"),
        (put("values/age", "data_offsets", [0, 16]), "begins at byte|lies in"),
        (put("values/age", "data_offsets", [2**61, 2**61 + 16]), "cut off"),
        (put("values/age", "data_offsets", [-16, 0]), "an integer from 0"),
        (put("values/age", "more", 1), "must be an object of"),
        (put("values/age", 3), "must be an object of"),
        (drop("values/age"), "but .* ends at"),
        (drop("padding/2"), "begins at byte .* ends at"),
        (put("values/y", {"dtype": "I64", "shape": [0], "data_offsets": [0, 0]}), "does not know"),
        (named("offsets/visits", "offsets/labs"), "asks for a tensor 'offsets/visits'"),
        (named("valid/code", "padding/z"), "asks for a tensor 'valid/code'"),
        (named("padding/2", "values/padding"), "does not know"),
    ],
)
def test_headers_that_lie(change: Change, fault: str) -> None:
    refused(changed(change), fault)


def test_tensors_that_are_not_aligned() -> None:
    found, tail = header_of(CONTENT)
    text = json.dumps(
        {**found, META: {**found[META], **{name: json.dumps(found[META][name]) for name in ("schema", "counts")}}}
    ).encode()
    text += b" " * (8 - (len(text) + 8) % 64)
    refused(len(text).to_bytes(8, "little") + text + tail, "not a multiple of 64")


def test_bytes_that_are_shared() -> None:
    def change(found: Any) -> None:
        found["values/time"]["data_offsets"] = [each - 64 for each in found["values/time"]["data_offsets"]]

    refused(changed(change), "begins at byte .* ends at")


def test_entries_without_bytes() -> None:
    schema = {"levels": ["rows"], "columns": []}
    metadata = {"format": "serrate.table", "version": "1", "schema": schema, "counts": {"rows": 2**40}}
    refused(with_header({META: metadata}, b""), "without a byte in the file; at most 16777216 are allowed")


# -------------------------------------------------------------------------------------------------- what tensors hold


def over(name: str, place: int, number: int, content: bytes = CONTENT) -> bytes:
    """The file with another number in a tensor."""
    found, tail = header_of(content)
    code = found[name]["dtype"]
    kind = {"I32": "<i", "I64": "<q", "U8": "<B", "BOOL": "<B"}[code]
    at = len(content) - len(tail) + found[name]["data_offsets"][0] + place * struct.calcsize(kind)
    return content[:at] + struct.pack(kind, number) + content[at + struct.calcsize(kind) :]


@pytest.mark.parametrize("level", ["visits", "visits.codes"])
@pytest.mark.parametrize(
    ("place", "number"), [(0, 1), (0, -1), (1, 2**31 - 1), (1, -(2**31)), (1, 99), (-1, 0), (2, 1)]
)
def test_offsets_that_lie(level: str, place: int, number: int) -> None:
    last = {"visits": 2, "visits.codes": 4}[level]
    content = over(f"offsets/{level}", place % (last + 1), number)
    source = MemorySource(content)
    with pytest.raises(TableFormatError, match=r"a\.safetensors.*offsets"):
        source.table().tolist()
    with pytest.raises(TableFormatError, match=r"a\.safetensors"):
        gather.pack([source], source.schema, gather.Pieces(None, torch.tensor([1, 0])))


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("number", [-1, 7, 2**31 - 1])
def test_composed_offsets_that_lie_change_nothing_here(place: int, number: int) -> None:
    source = MemorySource(over("composed/visits.codes", place, number))
    assert source.table() == TABLE
    assert source.table()[[1, 0]] == TABLE[[1, 0]]


@pytest.mark.parametrize(("place", "number"), [(0, 1), (1, -5), (1, 2**31 - 1), (3, 2), (2, 0)])
def test_vocabularies_that_lie(place: int, number: int) -> None:
    source = MemorySource(over("vocabulary/code/offsets", place, number))
    with pytest.raises(TableFormatError, match="vocabulary of 'code'"):
        source.table().tolist()


def test_vocabulary_that_is_no_text() -> None:
    refused(over("vocabulary/code/bytes", 0, 0xFF), "is not UTF-8")
    refused(over("vocabulary/code/bytes", 0, ord("b")), "a string occurs twice")


CODE_READERS: dict[str, Callable[[sr.Table], Any]] = {
    "lists": lambda t: t.tolist(),
    "a column": lambda t: t["code"],
    "isin": lambda t: t.isin("code", "a"),
    "equality": lambda t: t == t,
    "another's equality": lambda t: t == TABLE,
    "rows": lambda t: t[[1, 0]],
    "one row": lambda t: t[0],
    "packed": lambda t: t.to_packed(),
    "padded": lambda t: t.to_dense(),
    "a loader": lambda t: list(t.loader(batch_size=1)),
    "a padded loader": lambda t: list(t.loader(batch_size=2, to="dense")),
    "a dataset": lambda t: t.dataset().__getitems__([1, 0]),
    "concat": lambda t: sr.Table.concat([t, TABLE]),
    "sort_by": lambda t: t.sort_by("code"),
    "with_column": lambda t: t.with_column("more", [1, 2]),
    "windows": lambda t: t.windows(size=1, level="visits"),
    "arrow": lambda t: t.to_arrow(),
}


@pytest.mark.parametrize("number", [3, -1, -(2**31), 2**31 - 1])
@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize("how", CODE_READERS)
def test_codes_outside_of_the_vocabulary(how: str, shards: int, number: int, tmp_path: Path) -> None:
    """Refused with the same words by all that reads them, in memory and mapped, in one file and in one of several."""
    content = over("values/code", 0, number)
    (tmp_path / "a.safetensors").write_bytes(content)
    for source in (MemorySource(content), FileSource(tmp_path / "a.safetensors")):
        table = sr.Table._of(source.schema, [source] * shards)
        fault = f"a.safetensors: column 'code' has code {number}, but its vocabulary has 3 words"
        with pytest.raises(TableFormatError, match=fault):
            CODE_READERS[how](table)
        assert table.drop("code").tolist() == sr.Table.concat([TABLE] * shards).drop("code").tolist()


def test_codes_of_an_empty_vocabulary_and_of_what_is_missing() -> None:
    """A code under a missing entry leads nowhere either, but 0 is none."""
    nothing = sr.Table({"word": [[None, None], []]}, {"word": Column("words", torch.int64, text=True, nullable=True)})
    content = content_of(nothing.block())
    assert MemorySource(content).table().tolist() == {"word": [[None, None], []]}
    for changed in (over("valid/word", 1, 1, content), over("values/word", 1, 1, content)):
        refused(changed, "column 'word' has code [01], but its vocabulary has 0 words")
    assert MemorySource(over("values/code", 3, 2)).table() == TABLE  # missing, and a place in the vocabulary
    refused(over("values/code", 3, 3), "column 'code' has code 3, but its vocabulary has 3 words")


@pytest.mark.parametrize("level", ["visits", "visits.codes"])
@pytest.mark.parametrize("place", [0, -1])
@pytest.mark.parametrize("difference", [-1, 1])
def test_shards_whose_first_or_last_offset_lies(level: str, place: int, difference: int, tmp_path: Path) -> None:
    """Entries that belong to no row, or to a row that they are not of: refused whichever rows are read."""
    last = {"visits": 2, "visits.codes": 4}[level]
    count = {"visits": 4, "visits.codes": 5}[level]
    number = (0 if place == 0 else count) + difference
    content = over(f"offsets/{level}", place % (last + 1), number)
    (tmp_path / "a.safetensors").write_bytes(CONTENT)
    (tmp_path / "b.safetensors").write_bytes(content)
    both = [{**SHARD, "file": name, "bytes": len(CONTENT)} for name in ("a.safetensors", "b.safetensors")]
    (tmp_path / "manifest.json").write_text(json.dumps({**MANIFEST, "shards": both}))
    reads: list[Callable[[sr.Table], Any]] = [
        lambda t: t.tolist(), lambda t: t[[2]], lambda t: t[[3]], lambda t: t[2:], lambda t: t.to_dense(),
        lambda t: t.to_packed(), lambda t: list(t.loader(batch_size=1)), lambda t: list(t.loader(max_tokens=100)),
        lambda t: t["code"], lambda t: t.dataset(to="dense").__getitems__([3]),
    ]  # fmt: skip
    for read in reads:
        with pytest.raises(TableFormatError, match=r"b\.safetensors: offsets of "):
            read(sr.open(tmp_path))
    assert sr.open(tmp_path)[[0, 1]] == TABLE


def test_masks_with_other_bytes_than_0_and_1() -> None:
    made = MemorySource(over("valid/code", 0, 2)).table()
    assert made["age"].tolist() == [41, 63]
    made.tolist(), made.to_dense(), made.to_packed()


# ------------------------------------------------------------------------------------------------------------ folders

SCHEMA = TABLE.schema.to_json()
SHARD = {
    "file": "a.safetensors",
    "rows": 2,
    "bytes": 5,
    "xxh3": "0" * 16,
    "counts": {"rows": 2, "visits": 4, "visits.codes": 5},
}
MANIFEST = {"format": "serrate.table", "version": "1", "generation": 1, "schema": SCHEMA, "shards": [SHARD]}


def test_the_manifest_itself_is_read() -> None:
    made = Manifest.from_json(json.dumps(MANIFEST).encode(), "m")
    assert made.schema == TABLE.schema
    assert made.shards[0].counts == SHARD["counts"]
    assert Manifest.from_json(made.to_json().encode(), "m") == made


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"format": "x"}, "not the manifest of a table"),
        ({"version": "2"}, "version 2 of the format, but this Serrate reads version 1"),
        ({"version": 1}, "the version of the format must be '1', got 1"),
        ({"generation": -1}, "generation must be an integer"),
        ({"generation": None}, "generation must be an integer"),
        ({"schema": {}}, "the schema is not valid"),
        ({"shards": {}}, "shards must be a list"),
        ({"shards": [3]}, "a shard must be an object"),
        ({"shards": [SHARD, SHARD]}, "a file occurs twice"),
        ({"more": 1}, "a manifest must be an object of"),
        *(
            ({"shards": [{**SHARD, "file": name}]}, "must be in the folder of the manifest")
            for name in (
                "/etc/passwd",
                "../a.safetensors",
                "..",
                ".",
                "",
                "a/b",
                "a\\b",
                "C:x",
                "a\0",
                3,
                None,
                "%2e%2e%2fa",
                "%2E%2E%5Ca",
                "..%2fa",
                "a%00",
                "a?b=c",
                "..;",
                "..;a",
                ".. ",
                " a",
                "?",
                "a#b",
                "#",
                "a\r\nHost: b",
                "a\tb",
                "\x7f",
                "http://b/a",
            )
        ),
        ({"shards": [{**SHARD, "rows": 3}]}, "has 2 rows by its counts, got 3"),
        ({"shards": [{**SHARD, "rows": True}]}, "rows by its counts"),
        ({"shards": [{**SHARD, "bytes": -5}]}, "bytes must be an integer"),
        ({"shards": [{**SHARD, "xxh3": "0" * 15}]}, "16 digits"),
        ({"shards": [{**SHARD, "xxh3": "G" * 16}]}, "16 digits"),
        ({"shards": [{**SHARD, "xxh3": 0}]}, "16 digits"),
        ({"shards": [{**SHARD, "counts": {"rows": 2}}]}, "counts must be an object of"),
        ({"shards": [{**SHARD, "counts": {"rows": 2, "visits": 4, "visits.codes": -1}}]}, "an integer from 0"),
    ],
)
def test_manifests_that_lie(change: dict[str, Any], fault: str) -> None:
    with pytest.raises(TableFormatError, match=fault):
        Manifest.from_json(json.dumps({**MANIFEST, **change}).encode(), "manifest.json")


@pytest.mark.parametrize("name", ["a", "a.safetensors", "día 1.safetensors", "...", "..a", "a..b", "~", "a&b=c", "*"])
def test_names_of_shards_that_are_names(name: str) -> None:
    made = Manifest.from_json(json.dumps({**MANIFEST, "shards": [{**SHARD, "file": name}]}).encode(), "m")
    assert made.shards[0].file == name


@pytest.mark.parametrize("shape", ["wide", "below", "deep"])
def test_many_levels_are_opened_quickly(shape: str, tmp_path: Path) -> None:
    """64,000 levels, or as many as lie within each other in a file of like size."""
    levels = {
        "wide": [f"l{n}" for n in range(64_000)],
        "below": [*(f"l{n}" for n in range(250)), *(f"l{n % 250}.m{n}" for n in range(64_000))],
        "deep": [".".join("a" * n) for n in range(1, 1500)],
    }[shape]
    levels = ["rows", *levels]
    schema = {"levels": levels, "columns": [["x", {"level": "rows", "dtype": "int64", "stored": "int64"}]]}
    shard = {**SHARD, "rows": 0, "counts": dict.fromkeys(levels, 0)}
    (tmp_path / "manifest.json").write_text(json.dumps({**MANIFEST, "schema": schema, "shards": [shard]}))
    (tmp_path / "a.safetensors").write_bytes(b"12345")
    start = time.process_time()
    table = sr.open(tmp_path)
    assert time.process_time() - start < 1
    assert len(table) == 0
    assert len(table.levels) == len(levels)
    start = time.process_time()
    assert repr(table).count("\n") == len(levels)
    assert time.process_time() - start < 2


@pytest.mark.parametrize("text", [b"", b"[]", b"null", b"{", b"\xff", b'{"a":1,"a":1}', b"[" * 10**5, b"1" * 10**5])
def test_manifests_that_are_none(text: bytes) -> None:
    with pytest.raises(TableFormatError, match="manifest"):
        Manifest.from_json(text, "manifest.json")


def test_long_json_is_refused_unread() -> None:
    with pytest.raises(TableFormatError, match="at most 10 bytes, got 11"):
        strict.parse(b" " * 11, "x", 10)


@pytest.mark.parametrize("name", ["manifest.json", "a.safetensors"])
def test_pipes_are_not_waited_for(name: str, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(json.dumps(MANIFEST))
    (tmp_path / name).unlink(missing_ok=True)
    os.mkfifo(tmp_path / name)
    with pytest.raises(TableFormatError, match=f"{name}: it is not a regular file"):
        sr.open(tmp_path)


def test_shards_that_are_not_what_the_manifest_says(tmp_path: Path) -> None:
    def opened(**change: Any) -> sr.Table:
        shard = {**SHARD, "bytes": len(CONTENT), **change}
        (tmp_path / "manifest.json").write_text(json.dumps({**MANIFEST, "shards": [shard]}))
        return sr.open(tmp_path)

    with pytest.raises(TableFormatError, match=r"names the file 'a\.safetensors', which is not there"):
        opened()
    (tmp_path / "a.safetensors").write_bytes(CONTENT)
    assert opened() == TABLE
    with pytest.raises(TableFormatError, match=r"a\.safetensors: the manifest says that the file has 7 bytes"):
        opened(bytes=7)
    with pytest.raises(TableFormatError, match=r"a\.safetensors: the manifest says that the file has the counts"):
        opened(counts={**SHARD["counts"], "visits": 5}).tolist()
    other = content_of(TABLE.rename({"age": "years"}).block())
    (tmp_path / "a.safetensors").write_bytes(other)
    with pytest.raises(TableFormatError, match="the manifest says that column 'age' is"):
        opened(bytes=len(other)).tolist()
    wide = content_of(TABLE.with_column("age", [2**40, 1]).block())
    (tmp_path / "a.safetensors").write_bytes(wide)
    columns = [[name, {**each, "stored": "uint8"} if name == "age" else each] for name, each in SCHEMA["columns"]]
    claimed = {**MANIFEST, "schema": {**SCHEMA, "columns": columns}, "shards": [{**SHARD, "bytes": len(wide)}]}
    (tmp_path / "manifest.json").write_text(json.dumps(claimed))
    with pytest.raises(
        TableFormatError, match="the manifest says that column 'age' is"
    ):  # else a gather writes too far
        sr.open(tmp_path)[[1, 0]]
    more = content_of(TABLE.with_column("more", [1, 2]).block())
    (tmp_path / "a.safetensors").write_bytes(more)
    with pytest.raises(TableFormatError, match=r"columns that the manifest does not have: \['more'\]"):
        opened(bytes=len(more)).tolist()


def test_limits_are_those_of_the_specification() -> None:
    assert (header.LONGEST_HEADER, header.MOST_UNSEEN, header.ALIGNMENT) == (2**24, 2**24, 64)
