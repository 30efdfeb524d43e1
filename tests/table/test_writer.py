"""TableWriter: batches become a dataset in bounded memory, alone or in parts, appended or not, or nothing happens."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.table.batches import LEVELS, TYPES, batch, files, joined, table

import serrate as sr
from serrate.errors import RaggednessError, TableFormatError
from serrate.table.schema import Column, Schema
from serrate.table.storage import manifest as manifest_module
from serrate.table.storage import parts as parts_module
from serrate.table.storage import sharding
from serrate.table.storage.checking import repair, verify
from serrate.table.storage.committing import commit
from serrate.table.storage.manifest import open_table, read_local_manifest
from serrate.table.storage.writer import TableWriter
from serrate.table.storage.writing import save

# ----------------------------------------------------------------------------------------------------------- batches


@pytest.mark.parametrize("rows_per_shard", [1, 3, 7, 50, None])
@pytest.mark.parametrize("size", [1, 5, 17])
def test_batches_are_cut_into_shards(tmp_path: Path, rows_per_shard: int | None, size: int) -> None:
    with TableWriter(tmp_path / "a", TYPES, rows_per_shard=rows_per_shard, narrow=True) as writer:
        for start in range(0, 50, size):
            columns = batch(start, min(size, 50 - start))
            writer.write(table(columns) if start % 2 else columns)
        assert not (tmp_path / "a" / "manifest.json").exists()
    back = open_table(tmp_path / "a")
    verify(tmp_path / "a")
    assert back.tolist() == batch(0, 50)
    counts = [shard.rows for shard in read_local_manifest(tmp_path / "a").shards]
    assert counts == [min(rows_per_shard, 50 - at) for at in range(0, 50, rows_per_shard)] if rows_per_shard else [50]


def test_an_error_among_many_rows_says_how_many_were_taken_before(tmp_path: Path) -> None:
    rows = [{"x": [1]} for _ in range(5000)]
    rows[4500] = {"x": [2**80]}
    writer = TableWriter(tmp_path / "a")
    with pytest.raises(OverflowError, match=r"entry \[404\]\[0\]") as caught:  # 4500 - 4096
        writer.write_rows(iter(rows))
    assert caught.value.__notes__ == [
        "write_rows had accepted 4096 rows before; the numbers of rows in this error count from the next row"
    ]
    writer.close()
    assert len(open_table(tmp_path / "a")) == 4096


def test_single_rows_are_joined_on_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    longest = 0
    with TableWriter(tmp_path / "a", LEVELS) as writer:
        for n in range(700):
            writer.write({"time": [[n] * (n % 3)], "code": [[[n]] * (n % 3)]})
            longest = max(longest, len(writer._shards._waiting))
    assert longest < 64 + 700 // 64
    assert open_table(tmp_path / "a")["time"].tolist() == [[n] * (n % 3) for n in range(700)]


def test_a_table_from_disk_is_written_without_being_loaded(tmp_path: Path) -> None:
    save(table(batch(0, 40)), tmp_path / "a", rows_per_shard=7)
    with TableWriter(tmp_path / "b", rows_per_shard=9) as writer:
        writer.write(open_table(tmp_path / "a"))
        writer.write(open_table(tmp_path / "a")[::-1])
    assert (
        open_table(tmp_path / "b").tolist() == table(joined(batch(0, 40), table(batch(0, 40))[::-1].tolist())).tolist()
    )


def test_what_was_written_may_change_afterwards(tmp_path: Path) -> None:
    values, offsets = torch.arange(6), torch.tensor([0, 2, 6])
    with TableWriter(tmp_path / "a", rows_per_shard=3) as writer:
        for step in range(3):
            values.copy_(torch.arange(6) + step * 10)
            writer.write({"x": sr.from_offsets(values, offsets, copy=False)})
            values.fill_(-1)
    rows = [[0, 1], [2, 3, 4, 5]]
    assert open_table(tmp_path / "a")["x"].tolist() == [
        [x + step * 10 for x in row] for step in range(3) for row in rows
    ]


def test_later_batches_may_be_wider_lack_values_and_have_other_words(tmp_path: Path) -> None:
    batches: list[dict[str, Any]] = [
        {"x": [1, 2], "word": ["a", "b"], "y": [0.5, 1.5]},
        {"x": [-3, None], "word": ["b", "c"], "y": [2.5, 3.5]},
        {"x": [100_000, 5], "word": [None, "a"], "y": [None, 4.5]},
    ]
    for rows in (1, 2, 4):
        for narrow in (True, None, False):
            path = tmp_path / f"{rows}{narrow}"
            with TableWriter(path, rows_per_shard=rows, narrow=narrow) as writer:
                for each in batches:
                    writer.write(each)
            verify(path)
            back = open_table(path)
            assert back.tolist() == joined(*batches)
            assert back.schema["x"].stored == (torch.int32 if narrow else torch.int64)
            assert [back.schema[name].nullable for name in ("x", "word", "y")] == [True, True, True]
            assert back[1:4].tolist() == {name: rows[1:4] for name, rows in joined(*batches).items()}
            assert back.to_dense()["x"].tolist() == [1, 2, -3, 0, 100_000, 5]
    stored = [source.schema["x"].stored for source in open_table(tmp_path / "2True").sources]
    assert stored == [torch.uint8, torch.int8, torch.int32]


def test_narrow_tables_then_wide_mappings(tmp_path: Path) -> None:
    with TableWriter(tmp_path / "a", rows_per_shard=2) as writer:
        writer.write(sr.Table({"x": [1, 2]}, narrow=True))
        writer.write({"x": [300, 4]})
    back = open_table(tmp_path / "a")
    assert back["x"].tolist() == [1, 2, 300, 4]
    assert [source.schema["x"].stored for source in back.sources] == [torch.uint8, torch.int64]


def test_empty_batches_and_lists(tmp_path: Path) -> None:
    schema = Schema(("rows", "visits"), {"time": Column("visits", torch.int64, features=(2,))})
    with TableWriter(tmp_path / "a", schema) as writer:
        writer.write({"time": []})
        writer.write({"time": [[], []]})
        writer.write({"time": [[[1, 2]], []]})
        writer.write(sr.Table({"time": []}, schema=schema))
    back = open_table(tmp_path / "a")
    assert back["time"].tolist() == [[], [], [[1, 2]], []]
    assert len(read_local_manifest(tmp_path / "a").shards) == 1


@pytest.mark.parametrize("void", [[[], []], [[None], []]])
@pytest.mark.parametrize(
    "entries", [[1, 2], [1.5], ["a", "b"], [True], [None, 3], [None, "a"], [[1, 2]], [np.datetime64("2020-01-01", "s")]]
)
def test_what_a_column_holds_is_seen_once_it_holds_something(tmp_path: Path, void: Any, entries: list[Any]) -> None:
    batches: list[dict[str, Any]] = [
        {"id": [1, 2], "x": void}, {"id": [3, 4], "x": [[], []]}, {"id": [5], "x": [entries]}, {"id": [6], "x": [[]]}
    ]  # fmt: skip
    with TableWriter(tmp_path / "a", {"x": "visits"}) as writer:
        for each in batches:
            writer.write(each)
    verify(tmp_path / "a")
    alone = sr.Table({"x": [entries]}, {"x": "visits"})
    back = open_table(tmp_path / "a")
    assert back.tolist()["x"] == [*void, [], [], alone.tolist()["x"][0], []]
    assert back.schema["x"].dtype == alone.schema["x"].dtype
    assert back.schema["x"].nullable == (alone.schema["x"].nullable or void == [[None], []])


def test_a_guess_that_is_on_disk_stays(tmp_path: Path) -> None:
    with TableWriter(tmp_path / "a", {"x": "visits"}, rows_per_shard=1) as writer:
        writer.write({"x": [[]]})
        with pytest.raises(TypeError, match="say in the schema"):
            writer.write({"x": [[1]]})
        writer.write({"x": [[1.5]]})
    assert open_table(tmp_path / "a")["x"].tolist() == [[], [1.5]]


def test_no_rows_with_a_schema_and_without(tmp_path: Path) -> None:
    schema = Schema(("rows",), {"x": Column("rows", torch.float32), "word": Column("rows", torch.int64, text=True)})
    TableWriter(tmp_path / "a", schema).close()
    assert len(open_table(tmp_path / "a")) == 0
    assert open_table(tmp_path / "a").schema["x"].dtype == torch.float32
    verify(tmp_path / "a")
    with pytest.raises(ValueError, match="nothing was written"):
        TableWriter(tmp_path / "b").close()
    assert files(tmp_path / "b") == set()


def test_rows_that_do_not_fit_are_refused_and_the_writer_goes_on(tmp_path: Path) -> None:
    with TableWriter(tmp_path / "a") as writer:
        writer.write({"x": [1, 2], "y": [[1.0], []]})
        wrong: list[tuple[Any, type[Exception], str]] = [
            ({"x": [1]}, KeyError, "'y'"),
            ({"x": [1], "y": [[1.0]], "z": [1]}, KeyError, "'z'"),
            ({"x": ["a"], "y": [[1.0]]}, TypeError, "'x'"),
            ({"x": [1], "y": [[1.0], []]}, RaggednessError, "rows"),
            (sr.Table({"x": [1.5], "y": [[1.0]]}), TypeError, "'x'"),
            (sr.Table({"x": [1], "y": [[1.0]]}, schema={"y": "visits"}), RaggednessError, "visits"),
            (sr.Table({"x": torch.zeros(1, 2, dtype=torch.int64), "y": [[1.0]]}), ValueError, "features"),
            (sr.Table({"x": [1], "y": [[1.0]]})[0], ValueError, "unsqueeze"),
            ([1, 2], TypeError, "mappings of columns"),
        ]
        for given, error, match in wrong:
            with pytest.raises(error, match=match):
                writer.write(given)
        writer.write({"y": [[2.0]], "x": [3]})
    assert open_table(tmp_path / "a").tolist() == {"x": [1, 2, 3], "y": [[1.0], [], [2.0]]}


def test_a_declared_stored_type_holds(tmp_path: Path) -> None:
    schema = Schema(("rows",), {"x": Column("rows", torch.int64, torch.uint8)})
    with TableWriter(tmp_path / "a", schema) as writer:
        writer.write({"x": [1, 255]})
        with pytest.raises(OverflowError, match="256"):
            writer.write({"x": [256]})
    assert open_table(tmp_path / "a").schema["x"].stored == torch.uint8


# ------------------------------------------------------------------------------------------------------ all or nothing


@pytest.mark.parametrize("mode", ["new", "overwrite", "append", "part"])
def test_an_exception_leaves_what_was_there(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "a"
    if mode != "new":
        save(table(batch(0, 5)), path)
    before = files(path) if path.exists() else set()
    make = TableWriter.part if mode == "part" else TableWriter
    options = {mode: True} if mode in ("overwrite", "append") else {}
    writer = make(path, TYPES, rows_per_shard=1, **options)  # type: ignore[operator]

    def fail() -> None:
        with writer:
            writer.write(batch(0, 5))
            assert len(files(path)) > len(before) + 4
            raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        fail()
    assert files(path) == before
    if mode != "new":
        assert open_table(path).tolist() == batch(0, 5)
    with pytest.raises(ValueError, match="closed"):
        writer.write(batch(0, 5))
    writer.close()
    assert files(path) == before


def test_closing_twice_and_discarding(tmp_path: Path) -> None:
    writer = TableWriter(tmp_path / "a")
    writer.write({"x": [1]})
    writer.close()
    writer.close()
    writer.discard()
    assert open_table(tmp_path / "a")["x"].tolist() == [1]
    writer = TableWriter(tmp_path / "a", overwrite=True, rows_per_shard=1)
    writer.write({"x": [2]})
    writer.discard()
    assert open_table(tmp_path / "a")["x"].tolist() == [1]
    assert repair(tmp_path / "a") == []


def test_wrong_arguments(tmp_path: Path) -> None:
    save(sr.Table({"x": [1]}), tmp_path / "a")
    with pytest.raises(FileExistsError, match="append=True"):
        TableWriter(tmp_path / "a")
    with pytest.raises(ValueError, match="one of them"):
        TableWriter(tmp_path / "a", append=True, overwrite=True)
    with pytest.raises(ValueError, match="one file"):
        TableWriter(tmp_path / "b.safetensors")
    with pytest.raises(ValueError, match="rows_per_shard"):
        TableWriter(tmp_path / "b", rows_per_shard=0)
    with pytest.raises(TypeError, match="order"):
        TableWriter.part(tmp_path / "b", order="first")  # type: ignore[arg-type]
    assert files(tmp_path) == {"a"}
    assert repair(tmp_path / "a") == []


def test_a_forgotten_writer_leaves_leftovers(tmp_path: Path) -> None:
    save(sr.Table({"x": [1]}), tmp_path / "a")
    writers = [TableWriter(tmp_path / "a", append=True, rows_per_shard=1)]
    writers[0].write({"x": [2]})
    with pytest.warns(RuntimeWarning, match=r"all rows that were written to it \(1\) are lost"):
        writers.clear()
    assert len(repair(tmp_path / "a")) == 2
    assert open_table(tmp_path / "a")["x"].tolist() == [1]


PROGRAM = """
import gc, os, sys, serrate as sr
from serrate.table import TableWriter

def rows():
    return {"x": [1, 2, 3]}

def forget(path, how):
    if how == "part":
        writer = TableWriter.part(path)
    else:
        writer = TableWriter(path, rows_per_shard=2)  # this line
    writer.write(rows())
    writer.write(rows())
    if how == "cycle":
        writer.itself = writer
    if how == "kept":
        globals()["writer"] = writer
    if how == "error":
        raise SystemExit(3)
    if how == "forked":
        child = os.fork()
        if not child:
            sys.exit()
        os.waitpid(child, 0)
    if how in ("closed", "forked"):
        writer.close()
    if how == "discarded":
        writer.discard()

forget(sys.argv[1], sys.argv[2])
gc.collect()
"""


@pytest.mark.parametrize(
    "how",
    [
        *("dropped", "kept", "forked"),
        *(pytest.param(how, marks=pytest.mark.slow) for how in ("part", "cycle", "error", "closed", "discarded")),
    ],
)
def test_a_program_that_forgets_a_writer_says_so(tmp_path: Path, how: str) -> None:
    """With the filters of warnings that Python has by itself, and once."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, program, tmp_path / "a", how], capture_output=True, text=True, timeout=120,
        env={name: value for name, value in os.environ.items() if name != "PYTHONWARNINGS"},
    )  # fmt: skip
    assert done.returncode == (3 if how == "error" else 0)
    if how in ("closed", "discarded", "forked"):
        assert done.stderr == ""
        assert (tmp_path / "a" / "manifest.json").exists() == (how != "discarded")
        return
    assert done.stderr.count("RuntimeWarning") == 1
    line = next(
        n
        for n, text in enumerate(PROGRAM.splitlines(), 1)
        if ("TableWriter.part" if how == "part" else "# this") in text
    )
    assert (
        f"{program}:{line}: RuntimeWarning: a TableWriter for {tmp_path / 'a'} was dropped before it was closed"
        in done.stderr
    )
    assert "all rows that were written to it (6) are lost" in done.stderr
    assert "call close()" in done.stderr
    assert "ResourceWarning" not in done.stderr
    assert not (tmp_path / "a" / "manifest.json").exists()
    assert len(repair(tmp_path / "a")) == (1 if how == "part" else 4)
    assert files(tmp_path / "a") == set()


def test_a_relative_path_stays_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with TableWriter("a", rows_per_shard=1) as writer:
        writer.write({"x": [1]})
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        writer.write({"x": [2]})
    assert open_table(tmp_path / "a")["x"].tolist() == [1, 2]


def test_somebody_else_was_faster(tmp_path: Path) -> None:
    writer = TableWriter(tmp_path / "a")
    writer.write({"x": [1]})
    save(sr.Table({"x": [2]}), tmp_path / "a")
    with pytest.raises(FileExistsError):
        writer.close()
    assert open_table(tmp_path / "a")["x"].tolist() == [2]
    assert len(files(tmp_path / "a")) == 2


# ------------------------------------------------------------------------------------------------------------- append


def test_append(tmp_path: Path) -> None:
    path = tmp_path / "a"
    for n in range(3):
        with TableWriter(path, TYPES, append=True, rows_per_shard=4) as writer:
            writer.write(batch(10 * n, 10))
        assert read_local_manifest(path).generation == n + 1
    assert open_table(path).tolist() == joined(batch(0, 10), batch(10, 10), batch(20, 10))
    assert [shard.rows for shard in read_local_manifest(path).shards] == [4, 4, 2] * 3
    TableWriter(path, append=True).close()
    assert read_local_manifest(path).generation == 3
    verify(path)


def test_appended_columns_must_fit(tmp_path: Path) -> None:
    save(sr.Table({"x": [1]}), tmp_path / "a")
    with TableWriter(tmp_path / "a", append=True) as writer, pytest.raises(KeyError, match="'y'"):
        writer.write({"x": [2], "y": [3]})
    with TableWriter(tmp_path / "a", append=True) as writer:
        writer.write({"x": [2]})
    assert open_table(tmp_path / "a")["x"].tolist() == [1, 2]
    save(sr.Table({"x": [1], "y": [[2]]})[0], tmp_path / "row")
    with TableWriter(tmp_path / "row", append=True) as writer, pytest.raises((RaggednessError, ValueError)):
        writer.write({"x": [2], "y": [[3]]})


def test_appending_widens_the_manifest(tmp_path: Path) -> None:
    save(sr.Table({"x": [1], "w": ["a"]}), tmp_path / "a", narrow=True)
    with TableWriter(tmp_path / "a", append=True, narrow=True) as writer:
        writer.write({"x": [None, -1000], "w": ["b", "a"]})
    back = open_table(tmp_path / "a")
    assert back.schema["x"] == Column("rows", torch.int64, torch.int16, nullable=True)
    assert back.tolist() == {"x": [1, None, -1000], "w": ["a", "b", "a"]}
    assert back.vocabulary("w") == ("a", "b")


def test_two_appends_at_once_both_count(tmp_path: Path) -> None:
    save(sr.Table({"x": [0]}), tmp_path / "a")
    one, two = (TableWriter(tmp_path / "a", append=True) for _ in range(2))
    one.write({"x": [1]})
    two.write({"x": [2]})
    two.close()
    one.close()
    assert open_table(tmp_path / "a")["x"].tolist() == [0, 2, 1]


def _append(path: str, first: int, start: Any) -> None:
    start.wait()
    for n in range(5):
        with TableWriter(path, append=True) as writer:
            writer.write({"x": [first + n]})


def test_processes_append_at_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    start = context.Event()
    workers = [context.Process(target=_append, args=(str(tmp_path / "a"), 100 * n, start)) for n in range(4)]
    for worker in workers:
        worker.start()
    start.set()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    found = open_table(tmp_path / "a")["x"].tolist()
    assert sorted(found) == [100 * n + k for n in range(4) for k in range(5)]
    assert [x for x in found if x < 100] == [0, 1, 2, 3, 4]
    assert read_local_manifest(tmp_path / "a").generation == 20


# ------------------------------------------------------------------------------------------------------------- length


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> int:
    """Manifests have room for some shards."""
    for module in (manifest_module, sharding, parts_module):
        monkeypatch.setattr(module, "LONGEST_MANIFEST", 3000)
    return 3000


def test_the_longest_manifest_is_that_of_the_specification() -> None:
    assert manifest_module.LONGEST_MANIFEST == sharding.LONGEST_MANIFEST == parts_module.LONGEST_MANIFEST == 2**28


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("mode", ["new", "append", "overwrite", "part"])
def test_a_manifest_that_would_be_too_long_is_refused_before_rows_are_taken(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "a"
    if mode != "new":
        save(sr.Table({"x": [-1]}), path)
    make: Any = TableWriter.part if mode == "part" else TableWriter
    with make(path, rows_per_shard=1, **({mode: True} if mode in ("append", "overwrite") else {})) as writer:
        taken = 0
        for number in range(100):
            with suppress(ValueError):
                writer.write({"x": [number]})
                taken += 1
        for count in (1, 50):
            with pytest.raises(ValueError, match=r"at most 3000 bytes.*close\(\) keeps the rows"):
                writer.write({"x": list(range(count))})
    assert taken > 3
    if mode == "part":
        commit(path, overwrite=True)
    verify(path)
    assert open_table(path)["x"].tolist() == ([-1] if mode == "append" else []) + list(range(taken))
    assert (path / "manifest.json").stat().st_size > 2000


@pytest.mark.usefixtures("short")
def test_a_manifest_that_would_be_too_long_replaces_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a"
    save(sr.Table({"x": [-1]}), path)
    before = files(path)
    with pytest.raises(ValueError, match="at most 3000 bytes"):
        save(sr.Table({"x": list(range(100))}), path, rows_per_shard=1, overwrite=True)
    wide = {"é" * 30 + str(n): [1] for n in range(50)}  # here it is the schema
    with pytest.raises(ValueError, match=r"at most 3000 bytes, but with 1 shards it would have .* untouched"):
        save(sr.Table(wide), path, overwrite=True)
    with pytest.raises(ValueError, match="at most 3000 bytes"), TableWriter.part(path) as writer:
        writer.write(wide)
    for _ in range(2):  # each fits, but not both
        with TableWriter.part(path, rows_per_shard=1) as writer:
            writer.write({"x": list(range(11))})
    with pytest.raises(ValueError, match="at most 3000 bytes, but with 23 shards"):
        commit(path, append=True)
    assert open_table(path)["x"].tolist() == [-1]
    assert len(repair(path, parts=True)) == 24
    assert files(path) == before


# ------------------------------------------------------------------------------------------------------ with readers


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[list[Any]]:
    """What a reader that opens the dataset again and again finds, until the test ends."""
    found: list[Any] = []
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            try:
                back = open_table(tmp_path / "a")
                found.append(back["x"].tolist())
            except TableFormatError as error:
                found.append(error)
            except BaseException as error:
                found.append(error)
                return

    save(sr.Table({"x": [0] * 40}), tmp_path / "a", rows_per_shard=10)
    thread = threading.Thread(target=read)
    thread.start()
    yield found
    stop.set()
    thread.join()


def test_readers_during_overwriting(tmp_path: Path, reader: list[Any]) -> None:
    """They find one version, or are told to open the dataset again."""
    for n in range(1, 40):
        save(sr.Table({"x": [n] * 40}), tmp_path / "a", rows_per_shard=10, overwrite=True)
    while len(reader) < 50 or not isinstance(reader[-1], list) or reader[-1][0] != 39:
        assert len(reader) < 100_000
        time.sleep(0.001)
    last = 0
    for found in list(reader):
        if isinstance(found, list):
            assert len(found) == 40
            assert len(set(found)) == 1
            assert found[0] >= last
            last = found[0]
        else:
            assert isinstance(found, TableFormatError)
            assert "open the table again" in str(found)


def test_readers_during_appending(tmp_path: Path, reader: list[Any]) -> None:
    for n in range(1, 40):
        with TableWriter(tmp_path / "a", append=True) as writer:
            writer.write({"x": [n]})
    while len(reader) < 50 or len(reader[-1]) != 79:
        assert len(reader) < 100_000
        time.sleep(0.001)
    for found in list(reader):
        assert found == [0] * 40 + list(range(1, len(found) - 39))


# ------------------------------------------------------------------------------------------------------------- memory


def _peak() -> int:
    """The most memory that this process had at once, in bytes."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def _measure(path: str, batches: int, answer: Any) -> None:
    sharding.SHARD_BYTES = 2**23
    rows = torch.randint(0, 1000, (20_000,))
    before = _peak()
    with TableWriter(path, narrow=True) as writer:
        for n in range(batches):
            lengths = torch.full((1000,), 20)
            writer.write({"x": sr.from_lengths(rows + n, lengths), "id": torch.arange(1000) + n})
    answer.put(_peak() - before)


def test_memory_does_not_grow_with_the_rows(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    answer = context.SimpleQueue()
    peaks = []
    for batches in (100, 500):
        worker = context.Process(target=_measure, args=(str(tmp_path / str(batches)), batches, answer))
        worker.start()
        peaks.append(answer.get())
        worker.join()
    assert len(open_table(tmp_path / "500")) == 500_000
    written = 500 * 20_000 * 8
    assert peaks[1] < written / 2
    assert peaks[1] < peaks[0] + 2**24, peaks


def test_values_of_all_kinds_through_a_writer(tmp_path: Path) -> None:
    columns = {
        "when": np.array(["2020-01-01", "NaT", "2021-05-05"], "datetime64[s]"),
        "half": torch.tensor([1.5, float("nan"), -0.0], dtype=torch.bfloat16),
        "big": torch.tensor([0, 2**64 - 1, 5], dtype=torch.uint64),
        "z": torch.tensor([1j, 2, 3], dtype=torch.complex128),
        "none": torch.zeros(3, 0, 2),
    }
    with TableWriter(tmp_path / "a", rows_per_shard=2) as writer:
        for n in range(3):
            writer.write({name: values[n : n + 1] for name, values in columns.items()})
    verify(tmp_path / "a")
    assert open_table(tmp_path / "a").equals(sr.Table(columns), equal_nan=True)
