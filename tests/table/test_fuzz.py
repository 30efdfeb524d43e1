"""Files with random damage: each is read as what it says, or refused as no table; nothing else happens."""

from __future__ import annotations

import json
import os
import random
import re
import urllib.parse
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.table import blocks
from tests.table.mutations import MemorySource, content_of, mutated
from tests.table.test_hostile import CONTENT, MANIFEST, SHARD, TABLE

import serrate as sr
from serrate.errors import TableFormatError
from serrate.native import gather as library
from serrate.table.gathering import gather
from serrate.table.gathering.batch import Packed
from serrate.table.gathering.padding import Padding
from serrate.table.schema import Schema
from serrate.table.storage import reading
from serrate.table.storage.files import FileSource
from serrate.table.storage.manifest import Manifest


def seeds() -> list[bytes]:
    """Files of every kind."""
    rng, kinds = np.random.default_rng(0), blocks.column_kinds()
    few = ("missing", "missing wörd", "word", "features", "nothing", "narrow torch.uint8", "bool/0", "float16/9")
    small = {name: kinds[name] for name in few}
    made = [content_of(blocks.block(rng, rows, small, offsets=kind)) for rows in (0, 1, 4) for kind in (torch.int64,)]
    made += [CONTENT, content_of(blocks.block(rng, 5, {"word": kinds["word"]})), content_of(TABLE[0].block())]
    return [*made, content_of(blocks.block(rng, 3))]


def read_wholly(source: Any) -> None:
    """Every column and every row, in every way: what one way refuses all refuse, and all others agree."""
    table = sr.Table._of(source.schema, [source])
    wanted = outcome(table.tolist)
    if len(source.schema.roots) == 1 and len(source.schema) and source.rows < 1000:
        for without_compiler in (False, True):
            with pytest.MonkeyPatch.context() as patch:
                if without_compiler:
                    patch.setattr(library, "routines", lambda: None)
                    patch.setattr(library, "padding_routines", lambda: None)
                for name, way in ways(source).items():
                    found = outcome(way)
                    assert found == wanted, f"{name}, without a compiler {without_compiler}: {found} and not {wanted}"
    if wanted is None:
        raise TableFormatError("refused by all")


def outcome(way: Callable[[], Any]) -> str | None:
    """What a way of reading gives, as text, in which NaN equals NaN; None if it refuses."""
    try:
        return repr(way())
    except TableFormatError:
        return None


def ways(source: Any) -> dict[str, Callable[[], Any]]:
    """Ways to read all rows of a source: alone, as the second of two with the same words, and of two with others."""
    schema, rows = source.schema, torch.arange(source.rows)
    others = {name: ("another word",) for name, column in schema.items() if column.text}
    other = replace(source.whole(), vocabularies=others)
    alone, second = gather.Pieces(None, rows), gather.Pieces(torch.ones_like(rows), rows)
    made: dict[str, Callable[[], Any]] = {}
    for name, sources, pieces in (
        ("one", [source], alone), ("two", [source, source], second), ("two, others", [other, source], second)
    ):  # fmt: skip
        made[f"{name}, taken"] = partial(lists_of, gather.take, sources, schema, pieces)
        made[f"{name}, packed"] = partial(lists_of, gather.pack, sources, schema, pieces)
        made[f"{name}, padded"] = partial(unpadded, sources, schema, pieces)
    return made


def lists_of(function: Callable[..., Any], *arguments: Any) -> dict[str, Any]:
    """A block or a packed batch as lists."""
    made = function(*arguments)
    block = made._block if isinstance(made, Packed) else made
    for name, column in block.schema.items():
        if column.text:
            check_codes(block.values[name], block.vocabularies[name])
    return sr.Table._from_block(block).tolist()


def check_codes(codes: torch.Tensor, words: tuple[str, ...]) -> None:
    """No code of a batch leads outside of the vocabulary."""
    assert not codes.numel() or 0 <= int(codes.min()) <= int(codes.max()) < max(len(words), 1)


def unpadded(sources: Any, schema: Schema, pieces: gather.Pieces) -> dict[str, Any]:
    """A padded batch as lists."""
    packed = gather.pack(sources, schema, pieces)
    dense = gather.pad(sources, schema, pieces, Padding.of(schema))
    for name, column in schema.items():
        if column.text:
            check_codes(dense[name], dense.vocabulary(name))
        if column.level in dense.masks:
            given = dense[name][dense.masks[column.level]]
            assert repr(given.tolist()) == repr(packed.flat(name).tolist())  # as text: NaN is there too
    return sr.Table._from_block(packed._block).tolist()


def fuzz(seed: int, count: int, opened: Callable[[bytes], Any]) -> tuple[int, int]:
    """How many of `count` damaged files were read, and how many refused; any other error comes through."""
    held, read, refused = seeds(), 0, 0
    for number in range(count):
        draw = random.Random(seed * 10**7 + number)
        content = mutated(draw, draw.choice(held))
        try:
            read_wholly(opened(content))
            read += 1
        except TableFormatError:
            refused += 1
        except Exception as error:
            error.add_note(f"seed {seed}, number {number}")
            raise
    return read, refused


def test_damaged_files_in_memory() -> None:
    read, refused = fuzz(1, 700, MemorySource)
    assert read > 70
    assert refused > 400


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 20))
def test_many_damaged_files_in_memory(seed: int) -> None:
    fuzz(seed, 11_000, MemorySource)


def damaged_on_disk(seed: int, count: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for files that are not in memory, so that their rows are looked for and asked for first."""
    asked = 0
    library = reading._library()
    assert library is not None

    def prefetch(*arguments: int) -> int:
        nonlocal asked
        found = library["prefetch"](*arguments)
        asked += found > 0
        return found

    monkeypatch.setattr(reading, "_library", lambda: {"prefetch": prefetch})

    def opened(content: bytes) -> FileSource:
        path = folder / "a.safetensors"
        path.unlink(missing_ok=True)
        with path.open("wb") as stream:
            stream.write(content)
            stream.flush()
            os.fdatasync(stream.fileno())
            source = FileSource(path)
            rows, columns = torch.randperm(source.header.rows)[:50], tuple(source.schema)
            os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        source.block_with(rows, columns)
        return source

    read, refused = fuzz(seed, count, opened)
    assert min(read, refused) > count // 20
    if not asked:
        pytest.skip("the file system keeps all files in memory")


def test_damaged_files_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    damaged_on_disk(2, 300, tmp_path, monkeypatch)


@pytest.mark.slow
def test_many_damaged_files_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    damaged_on_disk(3, 10_000, tmp_path, monkeypatch)


# ------------------------------------------------------------------------------------------------- several shards


def damaged_shards(seed: int, count: int, folder: Path, url: str) -> tuple[int, int]:
    """A dataset of three shards, one of them damaged: it is read as its files are one by one, or refused."""
    import fsspec

    rng, kinds = np.random.default_rng(0), blocks.column_kinds()
    columns = {name: kinds[name] for name in ("missing", "missing wörd", "word", "features", "narrow torch.uint8")}
    vocabularies = (("a", "b", "c"), ("c", "x"), ("a", "b", "c"))
    held = [blocks.block(rng, 4, columns, words=words) for words in vocabularies]
    whole = [content_of(block, composed=number != 1) for number, block in enumerate(held)]
    files, place = fsspec.url_to_fs(url)
    files.makedirs(place, exist_ok=True)
    read = refused = 0
    for number in range(count):
        draw = random.Random(seed * 10**7 + number)
        shards = list(whole)
        which = draw.randrange(3)
        shards[which] = mutated(draw, shards[which])
        described = [
            {"file": f"{i}.safetensors", "rows": 4, "bytes": len(each), "xxh3": "0" * 16, "counts": dict(block.counts)}
            for i, (each, block) in enumerate(zip(shards, held, strict=True))
        ]
        manifest = {**MANIFEST, "schema": held[0].schema.to_json(), "shards": described}
        contents = {f"{i}.safetensors": each for i, each in enumerate(shards)}
        for name, content in {**contents, "manifest.json": json.dumps(manifest).encode()}.items():
            (folder / name).write_bytes(content)
            files.pipe_file(f"{place}/{name}", content)
        wanted = outcome(partial(joined, shards, held[0].schema))
        for name, way in DATASET_WAYS.items():
            where = f"seed {seed}, number {number}, {name}"
            found = outcome(lambda way=way: way(sr.open(folder)))  # type: ignore[misc]
            assert found == wanted, f"{where}: {found} and not {wanted}"
            # who reads from afar follows composed offsets, and refuses them if they lie
            found = outcome(lambda way=way: way(sr.open(url)))  # type: ignore[misc]
            assert found in (wanted, None), f"{where}: {found} and not {wanted}"
        read, refused = read + (found is not None), refused + (wanted is None)
    return read, refused


def joined(shards: list[bytes], schema: Schema) -> Any:
    """The lists of files one after another, each read by itself; the manifest allows no other schema."""
    made: dict[str, list[Any]] = {name: [] for name in schema}
    for content in shards:
        source = MemorySource(content)
        if {n: c.dtype for n, c in source.schema.items()} != {n: c.dtype for n, c in schema.items()}:
            raise TableFormatError("another schema")
        for name, lists in source.table().tolist().items():
            made[name] += lists
    return made


DATASET_WAYS: dict[str, Callable[[sr.Table], Any]] = {
    "lists": lambda t: t.tolist(),
    "rows": lambda t: t[list(range(12))].tolist(),
    "packed": lambda t: sr.Table._from_block(t.to_packed()._block).tolist(),
    "a loader": lambda t: sr.Table.concat(
        [sr.Table._from_block(batch._block) for batch in t.loader(batch_size=5)]  # type: ignore[union-attr]
    ).tolist(),
}


def test_damaged_shards(tmp_path: Path) -> None:
    read, refused = damaged_shards(4, 60, tmp_path, "memory://damaged-shards")
    assert min(read, refused) > 4


@pytest.mark.slow
def test_many_damaged_shards(tmp_path: Path) -> None:
    damaged_shards(5, 10_000, tmp_path, "memory://damaged-shards")


def test_damaged_manifests() -> None:
    text = json.dumps({**MANIFEST, "shards": [SHARD, {**SHARD, "file": "b"}]}).encode()
    read = 0
    for number in range(3000):
        draw = random.Random(number)
        made = bytearray(text)
        for _ in range(draw.choice((1, 2, 9))):
            made[draw.randrange(len(made))] = draw.choice((draw.randrange(256), *b'0129{}[]",:-.eE\\u'))
        try:
            Manifest.from_json(bytes(made), "manifest.json")
            read += 1
        except TableFormatError:
            pass
    assert 10 < read < 2900


PIECES = (
    "a", "b.safetensors", "..", ".", "/", "\\", "%", "%2e", "%2F", "%5c", "%00", "%25", "?", "#", ":", "\0", "\n", "\r",
    " ", "é", "~", "&", "=", ";", "@", "*", "[", "]", "//", "http:", "$", "|", "'", '"',
)  # fmt: skip


def stays_inside(name: str) -> bool:
    """Whether a name leads to a file right in its folder, by what paths and URLs mean to the standard library."""
    path = os.path.normpath(os.path.join("/data/set", name))
    parts = urllib.parse.urlsplit(f"http://host/data/set/{name}".strip())
    whole = (parts.query, parts.fragment, urllib.parse.unquote(parts.path)) == ("", "", f"/data/set/{name}")
    inside = urllib.parse.urljoin("http://host/data/set/", name).startswith("http://host/data/set/")
    return os.path.split(path) == ("/data/set", name) and whole and inside


def test_names_in_manifests() -> None:
    """A name that leads elsewhere is never taken; one of letters, digits, points and dashes always is."""
    taken = 0
    for number in range(20_000):
        draw = random.Random(number)
        name = "".join(draw.choice(PIECES) for _ in range(draw.choice((1, 2, 3, 5))))
        text = json.dumps({**MANIFEST, "shards": [SHARD, {**SHARD, "file": name}]}).encode()
        try:
            made = Manifest.from_json(text, "manifest.json")
        except TableFormatError:
            assert not re.fullmatch(r"[a-z][a-z.-]*", name) or name == SHARD["file"], name
            continue
        taken += 1
        assert made.shards[1].file == name
        assert stays_inside(name), name
    assert 1000 < taken < 15_000
