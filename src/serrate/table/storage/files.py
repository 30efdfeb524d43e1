"""FileSource: the rows of one file. It is mapped on the first read, and every read checks that it has not changed."""

from __future__ import annotations

import ctypes
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import torch

from serrate.table.block import Block
from serrate.table.schema import Schema, fits_within, parent_of
from serrate.table.storage.folders import open_regular
from serrate.table.storage.header import OFFSETS, FileSpan, Header, read_header
from serrate.table.storage.memory_map import Lazy, at_random, map_file
from serrate.table.storage.reading import PrefetchPlan
from serrate.table.storage.strict import fail


class FileIdentity(NamedTuple):
    """What shows that a file is the same as before: its size, its time of change and its inode."""

    size: int
    mtime_ns: int
    inode: int

    @classmethod
    def of(cls, found: os.stat_result) -> FileIdentity:
        """Return the identity of a file with this status."""
        return cls(found.st_size, found.st_mtime_ns, found.st_ino)


@dataclass(frozen=True)
class ShardRecord:
    """What a manifest states about a file."""

    schema: Schema
    rows: int
    bytes: int
    counts: Mapping[str, int]

    def check(self, header: Header, where: str) -> None:
        """Raise an error that names the first difference between the file and the manifest."""
        if header.counts != self.counts:
            fail(where, f"the manifest says that the file has the counts {self.counts}, but they are {header.counts}")
        theirs = {name: _meaning(column) for name, column in header.schema.items()}
        for name, column in self.schema.items():
            same = theirs.pop(name, None) == _meaning(column)
            # A file without missing entries does not need a mask.
            fits = same and fits_within(header.schema[name].stored, column.stored)
            if not fits or (header.schema[name].nullable and not column.nullable):
                got = header.schema.get(name, "none")
                fail(where, f"the manifest says that column {name!r:.60} is {column}, but the file has {got}")
        if theirs:
            fail(where, f"the file has columns that the manifest does not have: {sorted(theirs)}")


def _meaning(column: Any) -> tuple[Any, ...]:
    """Return the properties of a column without the way it is stored."""
    return column.level, column.dtype, column.features, column.unit, column.text


class FileSource:
    """The rows of a file on this machine.

    Nothing is read before it is needed. The source can be pickled, and works after fork and spawn: it then maps the
    file again, and raises an error if the file has changed. The memory is mapped privately: writing to a tensor changes
    a copy of the page, never the file.
    """

    def __init__(self, path: str | os.PathLike[str], record: ShardRecord | None = None) -> None:
        self.path = os.path.abspath(os.fsdecode(path))
        self._record = record
        found = os.stat(self.path)
        if not stat.S_ISREG(found.st_mode):  # Opening a pipe would wait for a writer.
            fail(self.path, "it is not a regular file")
        self._identity = FileIdentity.of(found)
        if record is not None and record.bytes != self._identity.size:
            fail(
                self.path, f"the manifest says that the file has {record.bytes} bytes, but it has {self._identity.size}"
            )
        self._opened: _Opened | None = None

    def __repr__(self) -> str:
        return f"FileSource({self.path!r})"

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path, "_record": self._record, "_identity": self._identity}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _opened=None)

    @property
    def place(self) -> tuple[None, str]:
        """Where the file is: on this machine (None), at its path."""
        return None, self.path

    @property
    def header(self) -> Header:
        """The header of the file."""
        return self._open().header

    @property
    def schema(self) -> Schema:
        """What the rows hold, and how they are stored in this file."""
        return self._open().header.schema

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self._record.rows if self._record is not None else self._open().header.rows

    @property
    def counts(self) -> Mapping[str, int]:
        """The number of entries of each level."""
        return self._record.counts if self._record is not None else self._open().header.counts

    def whole(self) -> Block:
        """Return all rows, mapped."""
        opened = self._open()
        self.check_unchanged()
        view = opened.in_order or self._view(opened, scattered=False)
        return view.block

    def block_with(self, rows: torch.Tensor, columns: tuple[str, ...]) -> tuple[Block, torch.Tensor]:
        """Return all rows, mapped, and the same row numbers; the system starts to read the bytes of these rows."""
        opened = self._open()
        self.check_unchanged()
        view = opened.scattered or self._view(opened, scattered=True)
        if view.address is None:
            return view.block, rows
        plan = view.plans.get(columns)
        if plan is None:
            plan = view.plans.setdefault(columns, PrefetchPlan(opened.header, view.address, columns))
        return (view.block if plan.prefetch(rows) else self.whole()), rows

    def check_unchanged(self) -> None:
        """Raise an error if the file is not the one that was opened.

        If a mapped file has become shorter, reading the missing bytes kills the process; so this is called before every
        read.
        """
        try:
            found = os.stat(self.path)
        except FileNotFoundError:
            fail(self.path, "the file is gone since it was opened; open the table again")
        if (found.st_size, found.st_mtime_ns, found.st_ino) != self._identity:
            self._changed(FileIdentity.of(found))

    def _changed(self, now: FileIdentity) -> None:
        kind = "cut off" if now.size < self._identity.size else "changed or replaced"
        fail(self.path, f"the file was {kind} since it was opened, {self._identity}, now {now}; open the table again")

    def _open(self) -> _Opened:
        """Read the header. Two threads may do this at the same time; a lock could be held during a fork."""
        opened = self._opened
        if opened is None:
            with self._handle() as handle:
                header = read_header(lambda a, b: os.pread(handle, b - a, a), self._identity.size, self.path)
            if self._record is not None:
                self._record.check(header, self.path)
            opened = self._opened = _Opened(header)
        return opened

    @contextmanager
    def _handle(self) -> Iterator[int]:
        """Open the file if it has not changed."""
        try:
            handle = open_regular(self.path)
        except FileNotFoundError:
            fail(self.path, "the file is gone since it was opened; open the table again")
        try:
            now = FileIdentity.of(os.fstat(handle))
            if now != self._identity:
                self._changed(now)
            yield handle
        finally:
            os.close(handle)

    def _view(self, opened: _Opened, *, scattered: bool) -> _View:
        """Return the file as a block, mapped if possible.

        If no more files can be mapped, the block reads what is used, and is not kept.
        """
        with self._handle() as handle:
            memory = map_file(handle, self._identity.size, self)
        if memory is None:
            return _View(block_of_file(opened.header, self._read, self.path))
        memory = at_random(memory) if scattered else memory
        made = _View(
            block_of_file(opened.header, lambda span: _tensor(memory, span), self.path), ctypes.addressof(memory)
        )
        other = opened.in_order if scattered else opened.scattered
        if other is not None:
            made.block.vocabularies = other.block.vocabularies  # They are read only once.
        if scattered:
            opened.scattered = made
        else:
            opened.in_order = made
        return made

    def _read(self, span: FileSpan) -> torch.Tensor:
        """Return the bytes of a tensor as uint8."""
        with self._handle() as handle:
            content = bytearray(span.stop - span.start)
            if content and os.preadv(handle, [content], span.start) != len(content):
                fail(
                    self.path,
                    f"{len(content)} bytes from byte {span.start} on are missing; was it cut off since it was opened?",
                )
        return torch.frombuffer(content, dtype=torch.uint8) if content else torch.empty(0, dtype=torch.uint8)

    def let_go(self) -> None:
        """Forget what is mapped. Blocks that are in use stay valid."""
        self._opened = None


@dataclass
class _View:
    """A file as a block."""

    block: Block
    address: int | None = None
    """The address at which the file is mapped; None if it is not mapped."""
    plans: dict[tuple[str, ...], PrefetchPlan] = field(default_factory=dict)
    """For columns that are read together the plan for prefetching their bytes."""


@dataclass
class _Opened:
    """An opened file. It may be mapped for sequential reading, for random reading, or for both."""

    header: Header
    in_order: _View | None = None
    scattered: _View | None = None


def _tensor(memory: Any, span: FileSpan) -> torch.Tensor:
    """Return the bytes of a tensor as uint8."""
    if span.start == span.stop:
        return torch.empty(0, dtype=torch.uint8)
    return torch.frombuffer(memory, dtype=torch.uint8, count=span.stop - span.start, offset=span.start)


def block_of_file(header: Header, fetch: Callable[[FileSpan], torch.Tensor], where: str) -> Block:
    """Return the block of a file. `fetch` returns the bytes of a tensor as uint8, and is called on its first use."""
    schema, spans = header.schema, header.tensors

    def offsets(level: str) -> torch.Tensor:
        span = spans[f"offsets/{level}"]
        return fetch(span).view(OFFSETS[span.code])

    def values(name: str) -> torch.Tensor:
        column = schema[name]
        entries = () if column.level is None else (header.counts[column.level],)
        return fetch(spans[f"values/{name}"]).view(column.stored).view((*entries, *column.features))

    def valid(name: str) -> torch.Tensor:
        span = spans[f"valid/{name}"]
        return fetch(span).view(torch.bool).view(span.shape)

    def vocabulary(name: str) -> tuple[str, ...]:
        ends, text = spans[f"vocabulary/{name}/offsets"], spans[f"vocabulary/{name}/bytes"]
        found = fetch(ends).view(OFFSETS[ends.code])
        return words_of(fetch(text).numpy().tobytes(), found, f"{where}, vocabulary of {name!r:.60}")

    return Block(
        schema,
        header.counts,
        Lazy([level for level in schema.levels if parent_of(level) in header.counts], offsets),
        Lazy(list(schema), values),
        Lazy([name for name, column in schema.items() if column.nullable], valid),
        Lazy([name for name, column in schema.items() if column.text], vocabulary),
        trusted=False,
    )


def words_of(text: bytes, offsets: torch.Tensor, where: str) -> tuple[str, ...]:
    """Return the words of a vocabulary; raise an error unless they are UTF-8, and no two are equal."""
    if int(offsets[0]) or int(offsets[-1]) != len(text) or bool((offsets[1:] < offsets[:-1]).any()):
        fail(where, f"offsets must rise from 0 to the number of bytes, {len(text)}")
    ends = offsets.tolist()
    try:
        words = tuple(text[start:stop].decode() for start, stop in pairwise(ends))
    except UnicodeDecodeError as error:
        fail(where, f"a string is not UTF-8: {error}")
    if len(set(words)) != len(words):
        fail(where, "a string occurs twice")
    return words
