"""Parts: complete shards of writers in several processes, which wait until one commit joins them."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import dataclass

from serrate.table.schema import Schema
from serrate.table.storage import strict
from serrate.table.storage.folders import Folder, naming
from serrate.table.storage.manifest import LONGEST_MANIFEST, Manifest, Shard, check_length

PART = re.compile(r"part-(?P<writer>[0-9a-f]{16})\.json")
_FORMAT = "serrate.table.part"


@dataclass(frozen=True)
class Part:
    """The complete shards of one writer, which wait for a commit."""

    writer: str
    order: int | None
    """The position among the parts; None if it was not given."""
    started: int
    """When the writer started, in nanoseconds. Parts without an order are sorted by it."""
    schema: Schema | None
    """What the rows hold; None if nothing was written and no schema was given."""
    shards: tuple[Shard, ...]
    generation: int | None = None
    """The generation of the dataset when the writer started; 0 if there was none, None if it is not known."""

    @property
    def file(self) -> str:
        """The name of its file."""
        return f"part-{self.writer}.json"

    @property
    def place(self) -> tuple[bool, int, int, str]:
        """The key that sorts parts; those with an order come first."""
        return self.order is None, self.order or 0, self.started, self.writer

    def write(self, folder: Folder) -> None:
        """Write the part to its file."""
        manifest = None if self.schema is None else Manifest(self.schema, self.shards).described()
        told = {
            "format": _FORMAT, "order": self.order, "started": self.started, "generation": self.generation,
            "manifest": manifest,
        }  # fmt: skip
        text = json.dumps(told, ensure_ascii=False)
        check_length(text, len(self.shards))
        with naming(f"part {self.file}", folder):
            folder.sync()
            with folder.writing(self.file, new=True) as stream:
                stream.write(text.encode())
        folder.sync()

    @classmethod
    def read(cls, folder: Folder, file: str) -> Part:
        """Return the part that `write` wrote. Parts of earlier versions of Serrate have no generation."""
        where = f"{folder.where}/{file}"
        names = {"format", "order", "started", "generation", "manifest"}
        given = strict.parse(folder.read(file, LONGEST_MANIFEST), where, LONGEST_MANIFEST)
        given = strict.fields(
            {"generation": None, **given} if isinstance(given, dict) else given, names, "a part", where
        )
        if given["format"] != _FORMAT:
            strict.fail(where, f"the format of a part must be {_FORMAT!r}, got {given['format']!r:.60}")
        order, started, generation = given["order"], given["started"], given["generation"]
        if type(started) is not int or not all(each is None or type(each) is int for each in (order, generation)):
            strict.fail(
                where,
                f"order, time and generation of a part must be integers, got {order!r}, {started!r}, {generation!r}",
            )
        writer = file[len("part-") : -len(".json")]
        manifest = None if given["manifest"] is None else Manifest.of(given["manifest"], where)
        schema, shards = (None, ()) if manifest is None else (manifest.schema, manifest.shards)
        return cls(writer, order, started, schema, shards, generation)


def read_parts(folder: Folder) -> list[Part]:
    """Return the parts in a folder, in their order."""
    found = []
    for name in folder.names():
        if PART.fullmatch(name):
            with suppress(FileNotFoundError):  # A commit has just joined it.
                found.append(Part.read(folder, name))
    return sorted(found, key=lambda part: part.place)


def is_committed(part: Part, manifest: Manifest | None) -> bool:
    """Return whether a commit that was interrupted later has already joined a part."""
    return bool(part.shards) and manifest is not None and manifest.files.issuperset(s.file for s in part.shards)
