"""The header of a table's file: which tensors it has to have, and where they lie; read without trust.

`docs/table_format.md` is the specification. Every tensor has a name that says what it is: "offsets/<level>",
"composed/<level>", "vocabulary/<column>/bytes", "vocabulary/<column>/offsets", "valid/<column>", "values/<column>", and
"padding/<n>" for the gaps between them, which the safetensors format does not let be.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from serrate.table.schema import Schema, parent_of
from serrate.table.storage import strict
from serrate.table.storage.strict import fail

FORMAT, VERSION = "serrate.table", 1
ALIGNMENT = 64
LONGEST_HEADER = 2**24
"""A header is not longer, so that a hostile one cannot fill the memory."""
MOST_UNSEEN = 2**24
"""The most entries of a level for which the file has no byte: no offsets of a child, no column with a size."""

CODES: Mapping[torch.dtype, str] = {
    torch.bool: "BOOL", torch.uint8: "U8", torch.int8: "I8", torch.uint16: "U16", torch.int16: "I16",
    torch.uint32: "U32", torch.int32: "I32", torch.uint64: "U64", torch.int64: "I64", torch.float16: "F16",
    torch.bfloat16: "BF16", torch.float32: "F32", torch.float64: "F64", torch.complex64: "C64",
    torch.complex128: "F64",  # with a last axis of 2, as safetensors has no name for it
}  # fmt: skip
"""How safetensors names the dtypes."""
WIDTHS = {code: dtype.itemsize for dtype, code in CODES.items() if dtype != torch.complex128}
OFFSETS = {"I32": torch.int32, "I64": torch.int64}


@dataclass(frozen=True)
class Span:
    """Where a tensor lies: its dtype as safetensors names it, its shape, and its bytes of the file."""

    code: str
    shape: tuple[int, ...]
    start: int
    stop: int


@dataclass(frozen=True)
class Expected:
    """What the schema and the counts say of a tensor: the dtypes it may have, its shape (None: any size)."""

    codes: tuple[str, ...]
    shape: tuple[int | None, ...]
    optional: bool = False


@dataclass(frozen=True)
class Header:
    """What a file says of itself: checked against itself and the size of the file, not against its tensors' contents.

    Nothing that it names lies outside of the file, and every tensor has the dtype and the shape that the schema and the
    counts say.
    """

    schema: Schema
    counts: Mapping[str, int]
    tensors: Mapping[str, Span]
    version: int = VERSION

    @property
    def rows(self) -> int:
        """The entries of the only root; 0 if there is none, or if there are several."""
        return rows_of(self.schema, self.counts)


def tensors_of(schema: Schema, counts: Mapping[str, int]) -> dict[str, Expected]:
    """The tensors that a file with these columns and counts has, in the order in which they are written."""
    found: dict[str, Expected] = {}
    roots: dict[str, str] = {}
    for level in schema.levels:
        above = parent_of(level) or ""
        roots[level] = roots.get(above, level)
        if above in roots:
            found[f"offsets/{level}"] = Expected(tuple(OFFSETS), (counts[above] + 1,))
    for level, root in roots.items():
        if level != root != parent_of(level):
            found[f"composed/{level}"] = Expected(tuple(OFFSETS), (counts[root] + 1,), optional=True)
    for name, column in schema.items():
        if column.text:
            found[f"vocabulary/{name}/offsets"] = Expected(tuple(OFFSETS), (None,))
            found[f"vocabulary/{name}/bytes"] = Expected(("U8",), (None,))
    for name, column in schema.items():
        entries = () if column.level is None else (counts[column.level],)
        if column.nullable:
            found[f"valid/{name}"] = Expected(("BOOL",), entries)
        halves = (2,) if column.stored == torch.complex128 else ()
        found[f"values/{name}"] = Expected((CODES[column.stored],), (*entries, *column.features, *halves))
    return found


def rows_of(schema: Schema, counts: Mapping[str, int]) -> int:
    """The entries of the only root; 0 for a table that has none or several, as one row of a table may."""
    roots = schema.roots
    return counts[roots[0]] if len(roots) == 1 else 0


def unseen(schema: Schema, counts: Mapping[str, int]) -> str | None:
    """A level with more entries than a file without a byte for each of them may have."""
    many = [level for level in schema.levels if counts[level] > MOST_UNSEEN]
    if not many:
        return None
    seen = {parent_of(level) for level in schema.levels}
    seen |= {column.level for column in schema.values() if math.prod(column.features)}
    return next((level for level in many if level not in seen), None)


def read_header(read: Callable[[int, int], bytes], size: int, where: str) -> Header:
    """The header of a file of `size` bytes, of which `read(start, stop)` gives some.

    Every fault is a TableFormatError that names the file, as `where` does, and the fault.

    >>> import io, serrate as sr
    >>> from serrate.table.storage.layout import write_block
    >>> stream = io.BytesIO()
    >>> _ = write_block(stream, sr.Table({"code": [[1, 2], []]}).block())
    >>> content = stream.getvalue()
    >>> header = read_header(lambda start, stop: content[start:stop], len(content), "a.safetensors")
    >>> header.rows, header.tensors["values/code"].shape
    (2, (2,))
    """
    metadata, spans = read_spans(read, size, where)
    schema, counts = _metadata(metadata, where)
    expected = tensors_of(schema, counts)
    for name, wanted in expected.items():
        if name in spans:
            _check(name, spans[name], wanted, where)
        elif not wanted.optional:
            fail(where, f"the schema asks for a tensor {name!r:.80}, which the file does not have")
    for name in spans.keys() - expected.keys():
        if not name.startswith("padding/"):
            fail(where, f"the file has a tensor {name!r:.80}, which the schema does not know")
    return Header(schema, counts, {name: spans[name] for name in expected if name in spans})


def read_spans(read: Callable[[int, int], bytes], size: int, where: str) -> tuple[Any, dict[str, Span]]:
    """The metadata of any safetensors file, unchecked, and its tensors, which lie side by side within it."""
    described, end = _text(read, size, where)
    metadata = described.pop("__metadata__", None)
    spans = {name: _span(name, given, end, size, where) for name, given in described.items()}
    _check_gaps(spans, end, size, where)
    return metadata, spans


def _text(read: Callable[[int, int], bytes], size: int, where: str) -> tuple[dict[str, Any], int]:
    """The header's object, and where it ends."""
    first = read(0, min(8, size))
    if len(first) < 8:
        fail(where, f"a file of a table has at least 8 bytes, this one has {min(size, len(first))}")
    length = int.from_bytes(first, "little")
    if first.startswith(b"PAR1"):
        fail(where, "no file of a table but a Parquet file, which sr.Table.from_parquet reads")
    if length > LONGEST_HEADER:
        fail(where, f"a header has at most {LONGEST_HEADER} bytes, this one says {length}: no file of a table?")
    if 8 + length > size:
        fail(where, f"the header ends at byte {8 + length}, but the file has {size} bytes: cut off?")
    text = read(8, 8 + length)
    if len(text) != length:
        fail(where, f"the header has {length} bytes, but only {len(text)} could be read")
    if not text.startswith(b"{"):
        fail(where, f"a header begins with '{{', got {bytes(text[:8])!r}: no file of a table?")
    described = strict.parse(text, f"{where}, header", LONGEST_HEADER)
    assert isinstance(described, dict)
    return described, 8 + length


def _metadata(given: Any, where: str) -> tuple[Schema, dict[str, int]]:
    """The schema and the counts."""
    if not isinstance(given, dict) or given.get("format") != FORMAT:
        fail(
            where,
            f"no file of a table: its metadata does not say that its format is {FORMAT!r}; sr.Table.from_nrt reads "
            f"files of nested_ragged_tensors",
        )
    if not all(isinstance(value, str) for value in given.values()):
        fail(where, "metadata are strings")
    check_version(given.get("version"), where)
    for name in ("schema", "counts"):
        if name not in given:
            fail(where, f"the metadata have no {name}")
    schema = schema_from(strict.parse(given["schema"], f"{where}, schema", LONGEST_HEADER), where)
    counts = strict.parse(given["counts"], f"{where}, counts", LONGEST_HEADER)
    return schema, counts_from(counts, schema, where)


def check_version(given: Any, where: str) -> None:
    """Nothing, or the error of a format that is not this one."""
    if given == str(VERSION):
        return
    if isinstance(given, str) and given.isascii() and given.isdecimal() and len(given) < 10 and int(given) > VERSION:
        fail(
            where,
            f"it is of version {given} of the format, this Serrate reads version {VERSION}: a newer one is needed",
        )
    fail(where, f"the version of the format is {str(VERSION)!r}, got {given!r:.60}")


def schema_from(given: Any, where: str) -> Schema:
    """The schema out of its JSON."""
    try:
        return Schema.from_json(given)
    except (TypeError, ValueError, KeyError, OverflowError) as error:
        word = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
        fail(where, f"the schema is none: {word:.300}")


def counts_from(given: Any, schema: Schema, where: str) -> dict[str, int]:
    """The number of entries of each level."""
    counts = strict.fields(given, set(schema.levels), "counts", where)
    for name, count in counts.items():
        strict.size(count, f"the count of {name!r:.60}", where)
    level = unseen(schema, counts)
    if level is not None:
        fail(where, f"{level!r:.60} has {counts[level]} entries without a byte in the file; {MOST_UNSEEN} are allowed")
    return counts


def _span(name: str, given: Any, start: int, size: int, where: str) -> Span:
    """Where a tensor lies, within the file."""
    called = f"tensor {name!r:.80}"
    given = strict.fields(given, {"dtype", "shape", "data_offsets"}, called, where)
    code, shape, ends = given["dtype"], given["shape"], given["data_offsets"]
    if not isinstance(code, str) or code not in WIDTHS:
        fail(where, f"{called} has a dtype of {sorted(WIDTHS)}, got {code!r:.60}")
    if not isinstance(shape, list) or len(shape) > 64 or not isinstance(ends, list) or len(ends) != 2:
        fail(where, f"{called} has a list of at most 64 sizes and a list of two ends, got {shape!r:.60}, {ends!r:.60}")
    for length in (*shape, *ends):
        strict.size(length, f"a size or end of {called}", where)
    if math.prod(length for length in shape if length) * WIDTHS[code] > strict.LARGEST:
        fail(where, f"{called} has a shape whose product is too large: {shape!r:.60}")
    found = Span(code, tuple(shape), start + ends[0], start + ends[1])
    if found.stop > size:
        fail(where, f"{called} ends at byte {found.stop}, but the file has {size} bytes: cut off?")
    if found.stop - found.start != math.prod(shape) * WIDTHS[code]:
        fail(where, f"{called} of {code} {shape!r:.60} lies in {found.stop - found.start} bytes")
    return found


def _check_gaps(spans: Mapping[str, Span], start: int, size: int, where: str) -> None:
    """Tensors follow each other, without gaps and without sharing, to the end of the file."""
    place, before = start, "the header"
    for name, span in sorted(spans.items(), key=lambda item: (item[1].start, item[1].stop)):
        if span.start != place:
            fail(where, f"tensor {name!r:.80} begins at byte {span.start}, but {before} ends at {place}")
        place, before = span.stop, f"tensor {name!r:.80}"
    if place != size:
        fail(where, f"{before} ends at byte {place}, but the file has {size} bytes")


def _check(name: str, span: Span, wanted: Expected, where: str) -> None:
    """The tensor is what the schema and the counts say, and lies where it can be used."""
    fits = len(span.shape) == len(wanted.shape) and all(
        w in (None, s) for s, w in zip(span.shape, wanted.shape, strict=True)
    )
    if span.code not in wanted.codes or not fits:
        shape = tuple("any" if length is None else length for length in wanted.shape)
        fail(
            where,
            f"the schema and the counts ask for a tensor {name!r:.80} of {' or '.join(wanted.codes)} {shape}, "
            f"the file has one of {span.code} {span.shape}",
        )
    if span.start % ALIGNMENT:
        fail(where, f"tensor {name!r:.80} begins at byte {span.start}, which is no multiple of {ALIGNMENT}")
    if None in wanted.shape and name.endswith("/offsets") and not span.shape[0]:
        fail(where, f"tensor {name!r:.80} has one entry at least")
