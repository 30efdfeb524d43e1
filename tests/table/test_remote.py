"""Tables elsewhere, through fsspec: in its memory, in local files, and on a real HTTP server that gives ranges."""

from __future__ import annotations

import errno
import io
import json
import os
import pickle
import random
import re
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import numpy as np
import pytest
import torch
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import given
from hypothesis import strategies as st
from tests.table import blocks
from tests.table.mutations import content_of, header_of, mutated
from tests.table.strategies import Sample, samples
from tests.table.test_killed import fork
from torch.utils.data import DataLoader

import serrate as sr
from serrate.errors import TableFormatError
from serrate.table.storage import remote
from serrate.table.storage.files import FileSource
from serrate.table.storage.remote import RemoteSource

TABLE = sr.Table(
    {"age": [41, 63, 7], "time": [[0, 3, 9], [], [2]], "code": [[["a", "b"], [], ["c"]], [], [[None]]]},
    {"time": "visits", "code": "visits.codes"},
)


class Counting(MemoryFileSystem):  # type: ignore[misc]
    """A memory that knows which ranges were asked for."""

    protocol = "counting"
    cachable = False
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[list[tuple[int, int]]] = []

    def cat_ranges(self, paths: list[str], starts: list[int], ends: list[int], **options: Any) -> list[bytes]:
        self.requests.append(list(zip(starts, ends, strict=True)))
        return super().cat_ranges(paths, starts, ends, **options)

    def asked(self) -> int:
        """How many bytes were asked for since the last time."""
        total = sum(end - start for request in self.requests for start, end in request)
        self.requests.clear()
        return total


def source_of(content: bytes) -> RemoteSource:
    files = Counting()
    files.pipe_file("/a.safetensors", content)
    return RemoteSource(files, "/a.safetensors")


def table_of(source: RemoteSource) -> sr.Table:
    return sr.Table._of(source.schema, [source])


# ------------------------------------------------------------------------------------------------------- what is read


@given(samples(), st.booleans(), st.sampled_from([0, 30, 2**16]), st.data())
def test_any_rows_of_any_table(sample: Sample, composed: bool, gap: int, data: st.DataObject) -> None:
    table = sample.table()
    made = table_of(source_of(content_of(table.block(), composed=composed)))
    rows = data.draw(st.lists(st.integers(0, len(table) - 1), max_size=8)) if len(table) else []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(remote, "GAP", gap)
        assert repr(made[rows].tolist()) == repr(table[rows].tolist())
        assert repr(made.tolist()) == repr(table.tolist())


@pytest.mark.parametrize("composed", [True, False])
@pytest.mark.parametrize("gap", [0, 500, 2**16])
def test_a_forest_of_every_kind(composed: bool, gap: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "GAP", gap)
    rng = np.random.default_rng(0)
    block = blocks.block(rng, 60)
    table, made = sr.Table._from_block(block), table_of(source_of(content_of(block, composed=composed)))
    for size in (0, 1, 7, 200):
        rows = rng.integers(0, 60, size).tolist()
        assert made[rows].tolist() == table[rows].tolist()
    assert made.tolist() == table.tolist()
    assert made["word"].tolist() == table["word"].tolist()


def test_one_row_of_a_table() -> None:
    row = TABLE[0]
    assert table_of(source_of(content_of(row.block()))).tolist() == row.tolist()


def test_a_batch_is_one_request_for_little() -> None:
    count = 20_000
    inner = sr.from_lengths(torch.arange(20 * count), torch.full((count,), 20))
    source = source_of(content_of(sr.Table({"x": torch.arange(count), "y": inner, "z": inner * 2}).block()))
    files, rows = source.files, torch.tensor([7, 19_000, 7, 8, 4000])
    source.block_with(rows, ("y",))
    files.requests.clear()
    block, numbers = source.block_with(rows, ("y",))
    assert len(files.requests) == 1
    assert files.asked() < 5000
    assert [block.tensor("y")[i].tolist() for i in numbers.tolist()] == [list(range(20 * i, 20 * i + 20)) for i in rows]
    assert "z" not in block.values


def test_composed_offsets_spare_the_levels_between() -> None:
    lists = [[[1] * 5] * 50] * 2000
    asked = []
    for composed in (True, False):
        source = source_of(content_of(sr.Table({"x": lists}).block(), composed=composed))
        assert source.schema["x"].level == "level1.level2"
        source.files.requests.clear()
        source.block_with(torch.tensor([3, 1500]), ("x",))
        asked.append(source.files.asked())
    assert asked[0] < 40_000
    assert asked[1] > 400_000


def test_a_column_is_read_alone() -> None:
    source = source_of(content_of(sr.Table({"x": torch.zeros(50_000), "y": torch.arange(50_000)}).block()))
    made = table_of(source)
    source.files.requests.clear()
    assert made["x"].shape == (50_000,)
    assert source.files.asked() < 250_000
    renamed = made.rename({"x": "y", "y": "x"})
    source.files.requests.clear()
    assert renamed["y"].shape == (50_000,)
    assert source.files.asked() < 250_000


def test_long_headers() -> None:
    wide = sr.Table({f"column {i}": [i] for i in range(1000)})
    source = source_of(content_of(wide.block()))
    assert table_of(source) == wide
    assert source.header.tensors["values/column 999"].start > remote.FIRST


# --------------------------------------------------------------------------------------------------------- other places


@pytest.fixture
def memory() -> Iterator[Any]:
    files = fsspec.filesystem("memory")
    files.store.clear()
    yield files
    files.store.clear()


def copied(files: Any, folder: Path, place: str) -> None:
    for path in folder.iterdir():
        files.pipe_file(f"{place}/{path.name}", path.read_bytes())


def test_fsspec_memory(tmp_path: Path, memory: Any) -> None:
    TABLE.save(tmp_path / "a", rows_per_shard=2)
    copied(memory, tmp_path / "a", "/a")
    for url in ("memory://a", "memory://a/"):
        made = sr.open(url)
        assert made == TABLE
        assert made[[2, 0]] == TABLE[[2, 0]]
        assert len(made.sources) == 2
    memory.pipe_file("/b.safetensors", content_of(TABLE.block()))
    assert sr.open("memory://b.safetensors", columns=["time"]) == TABLE.select(["time"])
    assert pickle.loads(pickle.dumps(sr.open("memory://a"))) == TABLE


def test_a_manifest_that_could_not_be_replaced_is_still_there(memory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    TABLE.save("memory://a")
    before = sorted(memory.ls("/a", detail=False))

    def failing(function: Any) -> Any:
        def wrapped(self: Any, *paths: Any, **options: Any) -> Any:
            if any(str(path).endswith("manifest.json") for path in paths) and "rb" not in paths:
                raise OSError(errno.EIO, "the network is gone")
            return function(self, *paths, **options)

        return wrapped

    for name in ("_open", "cp_file", "pipe_file"):
        monkeypatch.setattr(type(memory), name, failing(getattr(type(memory), name)))
    for change in ({"append": True}, {"overwrite": True}):
        writer = sr.TableWriter("memory://a", **change)
        writer.write(TABLE)
        with pytest.raises(OSError, match="what was there before is untouched"):
            writer.close()
    with pytest.raises(OSError, match="what was there before is untouched"):
        TABLE.save("memory://b")
    monkeypatch.undo()
    assert sr.open("memory://a") == TABLE
    assert sorted(memory.ls("/a", detail=False)) == before


def test_fsspec_local(tmp_path: Path) -> None:
    TABLE.save(tmp_path / "a", rows_per_shard=2)
    made = sr.open(f"file://{tmp_path}/a")
    assert made == TABLE
    assert all(isinstance(source, FileSource) for source in made.sources)
    path = next((tmp_path / "a").glob("*.safetensors"))
    source = RemoteSource(LocalFileSystem(), str(path))
    assert source.where == f"file://{path}"
    assert table_of(source).tolist() == sr.open(path).tolist()


class Web(fsspec.AbstractFileSystem):  # type: ignore[misc]
    """HTTP by the standard library, for where aiohttp, which fsspec's own needs, is not installed."""

    protocol = ("http", "https")

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return path

    def unstrip_protocol(self, name: str) -> str:
        return name

    def _asked(self, url: str, **options: Any) -> Any:
        try:
            return urllib.request.urlopen(urllib.request.Request(url, **options), timeout=30)
        except urllib.error.HTTPError as error:
            error.close()
            raise FileNotFoundError(url) from None

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        with self._asked(path, method="HEAD") as answer:
            return {"name": path, "size": int(answer.headers["Content-Length"]), "type": "file"}

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: Any) -> bytes:
        headers = {} if end is None else {"Range": f"bytes={start or 0}-{end - 1}"}
        with self._asked(path, headers=headers) as answer:
            found: bytes = answer.read()
            return found


class Handler(SimpleHTTPRequestHandler):
    """Files of a folder, and ranges of them."""

    def send_head(self) -> Any:
        found = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        path = Path(self.translate_path(self.path))
        if not found or not path.is_file():
            return super().send_head()
        start, last = map(int, found.groups())
        content = path.read_bytes()
        self.send_response(206)
        self.send_header("Content-Length", str(len(content[start : last + 1])))
        self.send_header("Content-Range", f"bytes {start}-{last}/{len(content)}")
        self.end_headers()
        return io.BytesIO(content[start : last + 1])

    def log_message(self, *given: Any) -> None:
        if hasattr(self, "headers"):  # not where the request was none
            self.server.asked.append(self.headers.get("Range"))  # type: ignore[attr-defined]
        self.server.paths.append(self.path)  # type: ignore[attr-defined]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Any]:
    """An HTTP server for the folder of the test; its `url`, which ranges were `asked` for, and at which `paths`."""

    def handler(*given: Any) -> Handler:
        return Handler(*given, directory=str(tmp_path))

    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as made:
        made.url = f"http://127.0.0.1:{made.server_address[1]}"  # type: ignore[attr-defined]
        made.asked, made.paths = [], []  # type: ignore[attr-defined]
        thread = threading.Thread(target=made.serve_forever, daemon=True)
        thread.start()
        yield made
        made.shutdown()
        thread.join()


@pytest.fixture
def http(monkeypatch: pytest.MonkeyPatch) -> None:
    if find_spec("aiohttp") is None:
        monkeypatch.setitem(sys.modules["fsspec.registry"]._registry, "http", Web)


@pytest.mark.usefixtures("http")
def test_http(server: Any, tmp_path: Path) -> None:
    big = sr.Table({"x": torch.arange(30_000), "y": sr.from_lengths(torch.arange(60_000), torch.full((30_000,), 2))})
    big.save(tmp_path / "a", rows_per_shard=20_000)
    table = sr.open(f"{server.url}/a")
    assert len(table) == 30_000
    rows = [7, 29_000, 7, 15_000]
    assert table[rows].tolist() == big[rows].tolist()
    server.asked.clear()
    assert table[rows].tolist() == big[rows].tolist()
    sizes = [int(last) - int(first) + 1 for first, last in (each[6:].split("-") for each in server.asked if each)]
    assert sizes
    assert sum(sizes) < 3000
    assert table == big
    assert sr.open(f"{server.url}/a/{next((tmp_path / 'a').glob('*-00001.safetensors')).name}") == big[20_000:]


@pytest.mark.usefixtures("http")
def test_http_without_a_table(server: Any) -> None:
    with pytest.raises(FileNotFoundError, match=r"the folder has no manifest\.json"):
        sr.open(f"{server.url}/nothing")
    with pytest.raises(FileNotFoundError):
        sr.open(f"{server.url}/nothing.safetensors")


@pytest.mark.usefixtures("http")
def test_a_server_without_ranges(server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Handler, "send_head", SimpleHTTPRequestHandler.send_head)
    (tmp_path / "a.safetensors").write_bytes(content_of(sr.Table({"x": torch.arange(30_000)}).block()))
    with pytest.raises((TableFormatError, ValueError)):
        sr.open(f"{server.url}/a.safetensors")["x"]


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
@pytest.mark.usefixtures("http")
def test_worker_processes_read_by_http(server: Any, tmp_path: Path, method: str) -> None:
    """Also after this process has read, and while another thread of it is about to."""
    if method == "spawn" and find_spec("aiohttp") is None:
        pytest.skip("the file system of this test is known to this process only")
    big = sr.Table(
        {"x": torch.arange(300), "y": [[n] * (n % 4) for n in range(300)], "w": [str(n % 7) for n in range(300)]}
    )
    big.save(tmp_path / "a", rows_per_shard=100)
    table = sr.open(f"{server.url}/a")
    assert table[[7, 290]].tolist() == big[[7, 290]].tolist()  # the thread that makes requests is there
    rows = table.dataset()
    for source in table.sources:  # as if a thread were in the midst of reading
        threading.Thread(target=source._lock.acquire).start()
    loader = DataLoader(
        rows, batch_size=32, collate_fn=rows.collate, num_workers=2, multiprocessing_context=method, timeout=60
    )
    found = [(batch["x"].tolist(), batch["y"].tolist(), batch.vocabulary("w")) for batch in loader]
    assert [x for batch, _, _ in found for x in batch] == list(range(300))
    assert [y for _, batch, _ in found for y in batch] == big["y"].tolist()
    assert {words for _, _, words in found} == {big.vocabulary("w")}


@pytest.mark.usefixtures("http")
def test_a_forked_process_that_forks(server: Any, tmp_path: Path) -> None:
    """Each has a file system of its own, which all of its sources share."""
    TABLE.save(tmp_path / "a", rows_per_shard=1)
    table = sr.open(f"{server.url}/a")
    assert table.tolist() == TABLE.tolist()

    def work(depth: int) -> None:
        before = {id(source._files) for source in table.sources}
        assert table.tolist() == TABLE.tolist()
        found = {id(source.files) for source in table.sources}
        assert not found & before
        assert len(found) == 1
        if depth:
            assert os.waitpid(fork(lambda: work(depth - 1)), 0)[1] == 0

    child = fork(lambda: work(1))
    deadline = time.monotonic() + 60
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert ended[1] == 0


# ------------------------------------------------------------------------------------------------- changed and hostile


@pytest.mark.usefixtures("http")
@pytest.mark.parametrize(
    "name",
    ["%2e%2e%2fsecret", "..%2Fsecret", "%2e%2e%5csecret", "a?file=../secret", "a#b", "?", "#", "a%0d%0ab", "a\nb"],
)
def test_names_that_lead_elsewhere_reach_no_server(server: Any, tmp_path: Path, name: str) -> None:
    TABLE.save(tmp_path / "a")
    (tmp_path / "secret").write_bytes(next((tmp_path / "a").glob("*.safetensors")).read_bytes())
    manifest = json.loads((tmp_path / "a" / "manifest.json").read_text())
    manifest["shards"][0]["file"] = name
    (tmp_path / "a" / "manifest.json").write_text(json.dumps(manifest))
    for url in (f"{server.url}/a", f"{server.url}/a/"):
        with pytest.raises(TableFormatError, match="must be in the folder of the manifest"):
            sr.open(url)
        with pytest.raises(TableFormatError, match="must be in the folder of the manifest"):
            sr.table.verify(url)
    assert set(server.paths) == {"/a/manifest.json"}


def test_a_manifest_that_is_not_true(tmp_path: Path, memory: Any) -> None:
    TABLE.save(tmp_path / "a")
    copied(memory, tmp_path / "a", "/a")
    (name,) = [path for path in memory.find("/a") if path.endswith(".safetensors")]
    table = sr.open("memory://a")
    assert len(table) == 3
    content = memory.cat_file(name)
    memory.pipe_file(name, content[:-1])
    with pytest.raises(TableFormatError, match=r"the manifest says that the file has \d+ bytes"):
        table.tolist()


def test_cut_off_while_it_is_open() -> None:
    source = source_of(content_of(sr.Table({"x": torch.arange(50_000)}).block()))
    made = table_of(source)
    assert made[[5]]["x"].tolist() == [5]
    source.files.pipe_file("/a.safetensors", source.files.cat_file("/a.safetensors")[:100_000])
    assert made[[5]]["x"].tolist() == [5]
    with pytest.raises(TableFormatError, match=r"counting:///a\.safetensors: got 0 bytes for the range from"):
        made[[49_999]]
    with pytest.raises(TableFormatError, match="cut off since it was opened"):
        made.tolist()


@pytest.mark.parametrize("name", ["offsets/visits", "offsets/visits.codes", "composed/visits.codes"])
@pytest.mark.parametrize("place", [0, 1, 2, -1])
@pytest.mark.parametrize("number", [-1, 99, 2**31 - 1])
def test_offsets_that_lie(name: str, place: int, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "GAP", -1)  # every row is a run, whose ends are compared
    content = content_of(TABLE.block())
    header, tail = header_of(content)
    at = len(content) - len(tail) + header[name]["data_offsets"][0] + 4 * (place % header[name]["shape"][0])
    made = content[:at] + number.to_bytes(4, "little", signed=True) + content[at + 4 :]
    table = table_of(source_of(made))
    with pytest.raises(TableFormatError, match=r"counting:///a\.safetensors: "):
        table[[0, 1, 2]]


def test_damaged_files() -> None:
    rng, read = np.random.default_rng(0), 0
    kinds = blocks.column_kinds()
    few = ("missing", "missing wörd", "word", "features", "nothing", "bool/0")
    held = [content_of(blocks.block(rng, 4, {name: kinds[name] for name in few}, longest=6)), content_of(TABLE.block())]
    for number in range(1500):
        draw = random.Random(number)
        try:
            source = source_of(mutated(draw, draw.choice(held)))
            table_of(source).tolist()
            if len(source.schema.roots) == 1 and source.rows and len(source.schema):
                table_of(source)[torch.randperm(source.rows)[:30]].tolist()
            read += 1
        except TableFormatError:
            pass
        except Exception as error:
            error.add_note(f"number {number}")
            raise
    assert read > 50
