"""Files with random damage: each is read as what it says, or refused as no table; nothing else happens."""

from __future__ import annotations

import json
import os
import random
import re
import urllib.parse
from collections.abc import Callable
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
from serrate.table.gathering import gather
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
    """Every column and every row, in every way."""
    table = sr.Table._of(source.schema, [source])
    table.tolist()
    if len(source.schema.roots) == 1 and source.rows and len(source.schema):
        rows = torch.randperm(source.rows)[:50]
        gather.take([source], source.schema, gather.Pieces(None, rows))
        gather.pack([source], source.schema, gather.Pieces(None, rows))
        table.to_dense()


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
    read, refused = fuzz(1, 3000, MemorySource)
    assert read > 200
    assert refused > 2000


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
        source.part(rows, columns)
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
