"""RemoteSource: the rows of one file in a remote store, read through fsspec in ranges of bytes.

The header is read once, and for each level the first entry of each row. Composed offsets give the latter without the
offsets of the levels in between. A batch is then one request for all ranges of its offsets and columns. Rows that are
close together are read as one run, including what is between them.
"""

from __future__ import annotations

import os
import pickle
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

import torch

from serrate.table.block import Block, Source
from serrate.table.gathering.sources import empty_block
from serrate.table.schema import Schema, parent_of
from serrate.table.storage.files import FileSource, ShardRecord, block_of_file
from serrate.table.storage.header import OFFSETS, FileSpan, Header, read_header
from serrate.table.storage.manifest import NAME, Manifest, shard_records
from serrate.table.storage.strict import fail

FIRST = 2**16
"""The number of bytes that are read before the length of the header is known."""
GAP = 2**16
"""A gap of at most this many bytes is read, too, instead of being left out."""


def open_remote(url: str) -> tuple[Schema, list[Source]]:
    """Return the schema and the sources of a dataset or a file at an fsspec URL."""
    from fsspec.core import url_to_fs

    files, path = url_to_fs(url)
    local = _is_local(files)
    if path.endswith(".safetensors"):
        only = FileSource(path) if local else RemoteSource(files, path)
        return only.schema, [only]
    folder = path.rstrip("/")
    try:
        text = files.cat_file(f"{folder}/{NAME}")
    except FileNotFoundError:
        raise FileNotFoundError(f"{url}: the folder has no {NAME}, so it is not a dataset of a table") from None
    manifest = Manifest.from_json(bytes(text), f"{url}/{NAME}")
    sources: list[Source] = []
    for shard, record in shard_records(manifest):
        place = f"{folder}/{shard.file}"
        sources.append(FileSource(place, record) if local else RemoteSource(files, place, record))
    return manifest.schema, sources or [empty_block(manifest.schema)]


def _is_local(files: Any) -> bool:
    from fsspec.implementations.local import LocalFileSystem

    return isinstance(files, LocalFileSystem)


class RemoteSource:
    """The rows of a file of an fsspec file system. It can be pickled if the file system can.

    It also works after a fork. A file system may have a connection, or a thread that makes its requests, and a forked
    process can use neither. There the file system is made anew, as after pickling.
    """

    def __init__(self, files: Any, path: str, record: ShardRecord | None = None) -> None:
        self._files, self.path = files, path
        self._record = record
        self._header: Header | None = None
        self._block: Block | None = None
        self._firsts: dict[str, torch.Tensor] = {}
        self._lock = threading.RLock()
        self._process = os.getpid()

    @property
    def files(self) -> Any:
        """The file system for this process."""
        self._renew()
        return self._files

    def _renew(self) -> None:
        """Make the file system and the lock anew after a fork; a thread of the old process may hold the old lock."""
        if self._process != os.getpid():
            self._files, self._lock = pickle.loads(pickle.dumps(self._files)), threading.RLock()
            self._process = os.getpid()

    def __repr__(self) -> str:
        return f"RemoteSource({self.where!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return RemoteSource, (self.files, self.path, self._record)

    @property
    def place(self) -> tuple[Any, str]:
        """Where the file is: its file system, and its path there."""
        return self.files, self.path

    @property
    def where(self) -> str:
        """The URL of the file."""
        return str(self.files.unstrip_protocol(self.path))

    @property
    def header(self) -> Header:
        """The header of the file."""
        self._renew()
        with self._lock:
            if self._header is None:
                self._header = self._read_header()
            return self._header

    def _read_header(self) -> Header:
        try:
            size = self.files.info(self.path).get("size")
        except FileNotFoundError:
            if self._record is None:
                raise
            self._gone()
        if size is None:
            fail(self.where, "its size is not known")
        if self._record is not None and self._record.bytes != size:
            fail(self.where, f"the manifest says that the file has {self._record.bytes} bytes, but it has {size}")
        first = self.read([(0, min(size, FIRST))])[0]

        def read(start: int, stop: int) -> bytes:
            return first[start:stop] if stop <= len(first) else self.read([(start, stop)])[0]

        header = read_header(read, size, self.where)
        if self._record is not None:
            self._record.check(header, self.where)
        return header

    @property
    def schema(self) -> Schema:
        """What the rows hold, and how they are stored in this file."""
        return self.header.schema

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self._record.rows if self._record is not None else self.header.rows

    @property
    def counts(self) -> Mapping[str, int]:
        """The number of entries of each level."""
        return self._record.counts if self._record is not None else self.header.counts

    def whole(self) -> Block:
        """Return all rows. Each column is read on its first use, and kept as long as the block."""
        return block_of_file(self.header, self._fetch, self.where)

    def vocabulary(self, column: str) -> tuple[str, ...]:
        """Return the words of a column; they are read once."""
        self._renew()
        with self._lock:
            if self._block is None:
                self._block = self.whole()
            return self._block.vocabularies[column]

    def block_with(self, rows: torch.Tensor, columns: tuple[str, ...]) -> tuple[Block, torch.Tensor]:
        """Return a block of these rows and some between them, and the numbers that the rows have in it."""
        starts, stops = self._runs(rows, columns)
        lengths = stops - starts
        before = torch.cumsum(lengths, 0) - lengths
        run = torch.searchsorted(starts, rows, right=True) - 1
        return RowRuns(self, starts, stops, columns).block(), before[run] + rows - starts[run]

    def _runs(self, rows: torch.Tensor, columns: tuple[str, ...]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the starts and stops of runs that contain all these rows; only large gaps separate the runs."""
        wanted = torch.unique(rows)
        if not wanted.numel():
            return wanted, wanted
        between = torch.zeros(wanted.numel() - 1, dtype=torch.int64)
        for name in columns:
            level = self.schema[name].level
            if level is not None:
                width = _width(self.header.tensors[f"values/{name}"])
                between += (self.first(level, wanted[1:]) - self.first(level, wanted[:-1] + 1)) * width
        apart = torch.nonzero(between > GAP).flatten()
        begins, ends = (
            torch.cat([apart.new_zeros(1), apart + 1]),
            torch.cat([apart, apart.new_full((1,), len(between))]),
        )
        return wanted[begins], wanted[ends] + 1

    def first(self, level: str, rows: torch.Tensor) -> torch.Tensor:
        """Return the first entry of a level of each row; the number of all rows stands for the end."""
        if parent_of(level) not in self.schema.levels:
            return rows
        self._renew()
        with self._lock:
            found = self._firsts.get(level)
            if found is None:
                found = self._firsts[level] = self._read_first(level)
        return found[rows].to(torch.int64)

    def _read_first(self, level: str) -> torch.Tensor:
        """Read the first entry of a level of each row, and the end."""
        above = parent_of(level)
        assert above is not None
        direct = parent_of(above) not in self.schema.levels
        name = f"offsets/{level}" if direct else f"composed/{level}"
        span = self.header.tensors.get(name)
        if span is None:
            name = f"offsets/{level}"
            span = self.header.tensors[name]
        found = self._fetch(span).view(OFFSETS[span.code])
        if int(found[0]) or int(found[-1]) != self.counts[level] or bool((found[1:] < found[:-1]).any()):
            fail(
                self.where,
                f"{name!r:.80} must rise from 0 to {self.counts[level]}, the number of entries of {level!r:.60}",
            )
        walked = not direct and name.startswith("offsets/")
        return found[self.first(above, torch.arange(self.rows + 1))] if walked else found

    def _fetch(self, span: FileSpan) -> torch.Tensor:
        return tensor_of_bytes(self.read([(span.start, span.stop)]))

    def read(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Read the bytes of several ranges in one request."""
        some = [(start, stop) for start, stop in ranges if stop > start]
        found: Iterator[bytes] = iter(())
        if some:
            starts, stops = ([each[i] for each in some] for i in (0, 1))
            try:
                found = iter(self.files.cat_ranges([self.path] * len(some), starts, stops, on_error="raise"))
            except FileNotFoundError:
                self._gone()
        made = [next(found) if stop > start else b"" for start, stop in ranges]
        for (start, stop), text in zip(ranges, made, strict=True):
            if len(text) != stop - start:
                fail(
                    self.where,
                    f"got {len(text)} bytes for the range from {start} to {stop}; was it cut off since it was opened?",
                )
        return made

    def _gone(self) -> NoReturn:
        fail(self.where, "the file is gone since it was opened; open the table again")


class RowRuns:
    """Runs of rows of a file, with all that is read of them."""

    def __init__(
        self, source: RemoteSource, starts: torch.Tensor, stops: torch.Tensor, columns: tuple[str, ...]
    ) -> None:
        self.source, old = source, source.schema
        self.schema = Schema(old.levels, {name: old[name] for name in columns})
        self.runs = {level: (source.first(level, starts), source.first(level, stops)) for level in old.levels}
        """For each level the first entries and the ends of the runs."""
        self.counts = {level: int((stop - start).sum()) for level, (start, stop) in self.runs.items()}

    def block(self) -> Block:
        """Read the runs in one request, and return them as one block."""
        schema, ranges = self.schema, self._ranges()
        found = iter(self.source.read([each for some in ranges.values() for each in some]))
        bytes_of = {name: tensor_of_bytes([next(found) for _ in some]) for name, some in ranges.items()}
        offsets, values, valid = {}, {}, {}
        for name, flat in bytes_of.items():
            kind, _, key = name.partition("/")
            if kind == "offsets":
                offsets[key] = self._offsets(key, flat.view(OFFSETS[self.source.header.tensors[name].code]))
                continue
            column = schema[key]
            entries = () if column.level is None else (self.counts[column.level],)
            if kind == "valid":
                valid[key] = flat.view(torch.bool).view(entries)
            else:
                values[key] = flat.view(column.stored).view((*entries, *column.features))
        words = {name: self.source.vocabulary(name) for name, column in schema.items() if column.text}
        return Block(schema, self.counts, offsets, values, valid, words)

    def _ranges(self) -> dict[str, list[tuple[int, int]]]:
        """Return for each tensor the ranges of bytes of the runs."""
        wanted = {}
        for name, span in self.source.header.tensors.items():
            kind, _, key = name.partition("/")
            if kind == "offsets":
                wanted[name] = self._bytes(span, parent_of(key), more=1)
            elif kind in ("values", "valid") and key in self.schema:
                wanted[name] = self._bytes(span, self.schema[key].level)
        return wanted

    def _bytes(self, span: FileSpan, level: str | None, more: int = 0) -> list[tuple[int, int]]:
        """Return the range of bytes of each run of a level, with `more` entries after it."""
        if level is None:
            return [(span.start, span.stop)]
        starts, stops = self.runs[level]
        begins, ends = span.start + starts * _width(span), span.start + (stops + more) * _width(span)
        return list(zip(begins.tolist(), ends.tolist(), strict=True))

    def _offsets(self, level: str, found: torch.Tensor) -> torch.Tensor:
        """Return the offsets of a level from the bytes of its runs; each run has one more offset than entries."""
        (starts, stops), (lowest, highest) = self.runs[parent_of(level) or ""], self.runs[level]
        lengths = stops - starts
        ends = torch.cumsum(lengths + 1, 0) - 1
        inside = numbers_within(ends - lengths, ends)
        sizes = (found[inside + 1] - found[inside]).to(torch.int64)
        if not (torch.equal(found[ends - lengths].long(), lowest) and torch.equal(found[ends].long(), highest)):
            fail(self.source.where, f"offsets and composed offsets of {level!r:.60} do not agree")
        if bool((sizes < 0).any()):
            fail(self.source.where, f"offsets of {level!r:.60} must never decrease")
        return torch.cat([sizes.new_zeros(1), torch.cumsum(sizes, 0)])


def _width(span: FileSpan) -> int:
    """Return the number of bytes of an entry."""
    return (span.stop - span.start) // max(1, span.shape[0])


def tensor_of_bytes(texts: Sequence[bytes]) -> torch.Tensor:
    """Return pieces of bytes, joined, as a writable tensor."""
    joined = bytearray().join(texts)
    return torch.frombuffer(joined, dtype=torch.uint8) if joined else torch.empty(0, dtype=torch.uint8)


def numbers_within(starts: torch.Tensor, stops: torch.Tensor) -> torch.Tensor:
    """Return the numbers from each start up to its stop, one run after the other.

    >>> numbers_within(torch.tensor([3, 7]), torch.tensor([5, 8]))
    tensor([3, 4, 7])
    """
    lengths = stops - starts
    total = int(lengths.sum())
    begins = torch.cumsum(lengths, 0) - lengths
    return torch.arange(total) + torch.repeat_interleave(starts - begins, lengths, output_size=total)
