"""How many files are mapped at a time: not more than the system allows, however many a table has."""

from __future__ import annotations

import ctypes
import errno
import gc
import json
import os
import resource
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.table.loading import ids, make

import serrate as sr
from serrate.table.storage import memory_map
from serrate.table.storage.files import FileSource
from serrate.table.storage.manifest import read_local_manifest

TABLE = make(80)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Forty shards."""
    TABLE.save(tmp_path / "a", rows_per_shard=2)
    return tmp_path / "a"


@pytest.fixture(params=[4, pytest.param(1, marks=pytest.mark.slow), pytest.param(8, marks=pytest.mark.slow)])
def most(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Not more than so many files may be mapped."""
    gc.collect()
    monkeypatch.setattr(memory_map, "MOST_MAPPED", request.param)
    monkeypatch.setattr(memory_map, "_mapped", set())
    monkeypatch.setattr(memory_map, "_owners", OrderedDict())
    yield request.param
    gc.collect()


def mapped(path: Path) -> int:
    """How many mappings of files of a folder this process has, as the system counts them."""
    return Path("/proc/self/maps").read_text().count(f"{path}/")


def is_mapped(source: Any) -> bool:
    return source.path in Path("/proc/self/maps").read_text()


@pytest.mark.parametrize("workers", [0, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "options", [{"batch_size": 1}, {"batch_size": 16, "shuffle": True}, {"max_tokens": 30, "tokens_at": "visits",
    "bucket_by": "visits", "to": "dense"}], ids=str
)  # fmt: skip
def test_an_epoch(path: Path, most: int, options: dict[str, Any], workers: int) -> None:
    options = {**options, "num_workers": workers}
    assert most < 40
    wanted = TABLE.loader(**options)
    loader = sr.open(path).loader(**options)
    highest = 0
    for batch, other in zip(loader, wanted, strict=True):
        assert batch["id"].tolist() == other["id"].tolist()
        assert batch["code"].tolist() == other["code"].tolist()
        assert batch["weight"].tolist() == other["weight"].tolist()
        assert batch.vocabulary("drug") == other.vocabulary("drug")
        highest = max(highest, mapped(path))
        assert len(memory_map._mapped) <= most + workers  # each of them may find the last place free
    assert highest <= most + workers
    if options == {"batch_size": 1, "num_workers": 0}:
        assert is_mapped(loader.table.sources[-1])  # in the place of one that was mapped before


def test_all_rows_at_once(path: Path, most: int) -> None:
    """What is in use stays; the files beyond are read."""
    table = sr.open(path)
    assert table.tolist() == TABLE.tolist()
    assert table[::-1].tolist() == TABLE[::-1].tolist()
    assert table == TABLE
    assert table["code"].tolist() == TABLE["code"].tolist()
    assert mapped(path) <= most
    del table
    gc.collect()
    assert mapped(path) == 0
    assert not memory_map._mapped
    assert not memory_map._owners


def test_what_is_in_use_is_not_taken_away(path: Path, most: int) -> None:
    table = sr.open(path)
    held = [source.whole().values["id"] for source in table.sources]
    parts = [source.block_with(torch.tensor([1]), ("id", "code"))[0] for source in table.sources]
    assert mapped(path) <= most
    assert [x for values in held for x in values.tolist()] == list(range(80))
    assert [int(block.values["id"][1]) for block in parts] == list(range(1, 80, 2))
    del held, parts
    assert ids(table.loader(8)) == ids(TABLE.loader(8))
    assert mapped(path) <= most


def test_files_that_changed_are_noticed_where_they_are_read(path: Path, most: int) -> None:
    table = sr.open(path)
    held = [source.whole() for source in table.sources]
    last = table.sources[-1]
    assert isinstance(last, FileSource)
    os.utime(last.path, ns=(1, 1))
    with pytest.raises(sr.errors.TableFormatError, match="changed or replaced since it was opened"):
        held[-1].values["id"]
    os.unlink(last.path)
    with pytest.raises(sr.errors.TableFormatError, match="gone since it was opened"):
        held[-1].values["id"]


def test_the_system_may_allow_less(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where mapping fails for want of room files are given back first, and read where that does not help."""
    real, allowed = memory_map.libc().mmap, 5

    def failing(*given: Any) -> Any:
        if mapped(path) >= allowed:
            ctypes.set_errno(errno.ENOMEM)
            return memory_map._FAILED
        return real(*given)

    monkeypatch.setattr(memory_map.libc(), "mmap", failing)
    monkeypatch.setattr(memory_map, "_mapped", set())
    monkeypatch.setattr(memory_map, "_owners", OrderedDict())
    table = sr.open(path)
    assert ids(table.loader(2, shuffle=True)) == ids(TABLE.loader(2, shuffle=True))
    for source in table.sources:
        source.block_with(torch.tensor([0]), ("id",))
        assert is_mapped(source)
    assert table.tolist() == TABLE.tolist()
    allowed = 0
    assert sr.open(path).tolist() == TABLE.tolist()


def test_as_many_as_the_system_allows() -> None:
    assert memory_map.MOST_MAPPED >= 2**10
    limit = Path("/proc/sys/vm/max_map_count")
    if limit.exists():
        assert int(limit.read_text()) // 2 == memory_map.MOST_MAPPED


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/sys/vm/max_map_count"), reason="a limit of Linux")
def test_more_shards_than_the_system_allows_mappings(tmp_path: Path) -> None:
    """An epoch over more files than are mapped at a time, and all of them at once; they are links to a few."""
    limit = int(Path("/proc/sys/vm/max_map_count").read_text())
    count = limit // 2 + 1000  # with two mappings for each it would be more than the limit
    if count > 10**6:
        pytest.skip("the limit is too high here for a test of it")
    table = make(40)
    table.save(tmp_path / "few", rows_per_shard=1)
    manifest = read_local_manifest(tmp_path / "few")
    (tmp_path / "many").mkdir()
    shards = []
    for number in range(count):
        shard = manifest.shards[number % 40]
        name = f"{number:06}.safetensors"
        os.link(tmp_path / "few" / shard.file, tmp_path / "many" / name)
        shards.append({**shard.to_json(), "file": name})
    text = json.dumps({**manifest.described(), "shards": shards})
    (tmp_path / "many" / "manifest.json").write_text(text)
    many = sr.open(tmp_path / "many", columns=["id", "weight", "time", "code"])
    assert len(many) == count
    seen = torch.zeros(40, dtype=torch.int64)
    for batch in many.loader(256, shuffle=True):
        seen += torch.bincount(batch["id"].values, minlength=40)
    assert seen.sum() == count
    assert seen.max() - seen.min() <= 1
    assert len(Path("/proc/self/maps").read_text().splitlines()) < limit
    taken = many.select(["id"])["id"].tolist()  # all files at once
    assert taken == [number % 40 for number in range(count)]
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] < count
