"""Header: which tensors the file of a table must have, and where they are. Nothing in the file is trusted.

`docs/table_format.md` is the specification. The name of a tensor says what it is: "offsets/<level>",
"composed/<level>", "vocabulary/<column>/bytes", "vocabulary/<column>/offsets", "valid/<column>" or "values/<column>".
The gaps between them are tensors "padding/<n>", because the safetensors format does not allow gaps.
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
"""The greatest length of a header, so that a malicious one cannot fill the memory."""
MOST_UNSEEN = 2**24
"""The greatest number of entries of a level that takes no bytes: it has no column of nonzero size, and no children."""

CODES: Mapping[torch.dtype, str] = {
    torch.bool: "BOOL", torch.uint8: "U8", torch.int8: "I8", torch.uint16: "U16", torch.int16: "I16",
    torch.uint32: "U32", torch.int32: "I32", torch.uint64: "U64", torch.int64: "I64", torch.float16: "F16",
    torch.bfloat16: "BF16", torch.float32: "F32", torch.float64: "F64", torch.complex64: "C64",
    torch.complex128: "F64",  # It has a last axis of 2, since safetensors has no name for this dtype.
}  # fmt: skip
"""The names of the dtypes in safetensors."""
WIDTHS = {code: dtype.itemsize for dtype, code in CODES.items() if dtype != torch.complex128}
OFFSETS = {"I32": torch.int32, "I64": torch.int64}


@dataclass(frozen=True)
class FileSpan:
    """Where a tensor is in a file: its dtype as safetensors names it, its shape, and its first byte and its end."""

    code: str
    shape: tuple[int, ...]
    start: int
    stop: int


@dataclass(frozen=True)
class Expected:
    """What the schema and the counts require of a tensor: its possible dtypes and its shape, with None for any size."""

    codes: tuple[str, ...]
    shape: tuple[int | None, ...]
    optional: bool = False


@dataclass(frozen=True)
class Header:
    """The header of a file, which agrees with itself and with the size of the file. The tensors are not checked.

    Everything that it names is within the file, and every tensor has the dtype and the shape that the schema and the
    counts require.
    """

    schema: Schema
    counts: Mapping[str, int]
    tensors: Mapping[str, FileSpan]
    version: int = VERSION

    @property
    def rows(self) -> int:
        """The number of entries of the only root; 0 if there is no root, or if there are several."""
        return count_rows(self.schema, self.counts)


def expected_tensors(schema: Schema, counts: Mapping[str, int]) -> dict[str, Expected]:
    """Return the tensors that a file with these columns and counts has, in the order in which they are written."""
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


def count_rows(schema: Schema, counts: Mapping[str, int]) -> int:
    """Return the number of entries of the only root; 0 if there is no root or several, as in one row of a table."""
    roots = schema.roots
    return counts[roots[0]] if len(roots) == 1 else 0


def unseen(schema: Schema, counts: Mapping[str, int]) -> str | None:
    """Return a level that has too many entries for a level without any bytes in the file; None if there is none."""
    many = [level for level in schema.levels if counts[level] > MOST_UNSEEN]
    if not many:
        return None
    seen = {parent_of(level) for level in schema.levels}
    seen |= {column.level for column in schema.values() if math.prod(column.features)}
    return next((level for level in many if level not in seen), None)


def read_header(read: Callable[[int, int], bytes], size: int, where: str) -> Header:
    """Read the header of a file of `size` bytes; `read(start, stop)` returns some of them.

    Every fault is a TableFormatError that names the file, which `where` describes, and the fault.

    >>> import io, serrate as sr
    >>> from serrate.table.storage.block_file import write_block
    >>> stream = io.BytesIO()
    >>> _ = write_block(stream, sr.Table({"code": [[1, 2], []]}).block())
    >>> content = stream.getvalue()
    >>> header = read_header(lambda start, stop: content[start:stop], len(content), "a.safetensors")
    >>> header.rows, header.tensors["values/code"].shape
    (2, (2,))
    """
    metadata, spans = read_spans(read, size, where)
    schema, counts = _metadata(metadata, where)
    expected = expected_tensors(schema, counts)
    for name, wanted in expected.items():
        if name in spans:
            _check(name, spans[name], wanted, where)
        elif not wanted.optional:
            fail(where, f"the schema asks for a tensor {name!r:.80}, which the file does not have")
    for name in spans.keys() - expected.keys():
        if not name.startswith("padding/"):
            fail(where, f"the file has a tensor {name!r:.80}, which the schema does not know")
    return Header(schema, counts, {name: spans[name] for name in expected if name in spans})


def read_spans(read: Callable[[int, int], bytes], size: int, where: str) -> tuple[Any, dict[str, FileSpan]]:
    """Return the metadata of any safetensors file, unchecked, and its tensors, which have no gaps between them."""
    described, end = _text(read, size, where)
    metadata = described.pop("__metadata__", None)
    spans = {name: _span(name, given, end, size, where) for name, given in described.items()}
    _check_gaps(spans, end, size, where)
    return metadata, spans


def _text(read: Callable[[int, int], bytes], size: int, where: str) -> tuple[dict[str, Any], int]:
    """Return the object of the header, and where it ends."""
    first = read(0, min(8, size))
    if len(first) < 8:
        fail(where, f"a file of a table has at least 8 bytes, this one has {min(size, len(first))}")
    length = int.from_bytes(first, "little")
    if first.startswith(b"PAR1"):
        fail(where, "this is not a file of a table but a Parquet file, which sr.Table.from_parquet reads")
    if length > LONGEST_HEADER:
        fail(
            where,
            f"a header has at most {LONGEST_HEADER} bytes, but this one says {length}; is this a file of a table?",
        )
    if 8 + length > size:
        fail(where, f"the header ends at byte {8 + length}, but the file has {size} bytes; was it cut off?")
    text = read(8, 8 + length)
    if len(text) != length:
        fail(where, f"the header has {length} bytes, but only {len(text)} could be read")
    if not text.startswith(b"{"):
        fail(where, f"a header begins with '{{', got {bytes(text[:8])!r}; is this a file of a table?")
    described = strict.parse(text, f"{where}, header", LONGEST_HEADER)
    assert isinstance(described, dict)
    return described, 8 + length


def _metadata(given: Any, where: str) -> tuple[Schema, dict[str, int]]:
    """Return the schema and the counts."""
    if not isinstance(given, dict) or given.get("format") != FORMAT:
        fail(
            where,
            f"this is not a file of a table: its metadata does not say that its format is {FORMAT!r}; "
            f"sr.Table.from_nrt reads files of nested_ragged_tensors",
        )
    if not all(isinstance(value, str) for value in given.values()):
        fail(where, "the values of the metadata must be strings")
    check_version(given.get("version"), where)
    for name in ("schema", "counts"):
        if name not in given:
            fail(where, f"the metadata have no {name}")
    schema = schema_from(strict.parse(given["schema"], f"{where}, schema", LONGEST_HEADER), where)
    counts = strict.parse(given["counts"], f"{where}, counts", LONGEST_HEADER)
    return schema, counts_from(counts, schema, where)


def check_version(given: Any, where: str) -> None:
    """Raise an error if the file has another version of the format."""
    if given == str(VERSION):
        return
    if isinstance(given, str) and given.isascii() and given.isdecimal() and len(given) < 10 and int(given) > VERSION:
        fail(
            where,
            f"it has version {given} of the format, but this Serrate reads version {VERSION}; a newer one is needed",
        )
    fail(where, f"the version of the format must be {str(VERSION)!r}, got {given!r:.60}")


def schema_from(given: Any, where: str) -> Schema:
    """Return the schema of an object from JSON."""
    try:
        return Schema.from_json(given)
    except (TypeError, ValueError, KeyError, OverflowError) as error:
        word = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
        fail(where, f"the schema is not valid: {word:.300}")


def counts_from(given: Any, schema: Schema, where: str) -> dict[str, int]:
    """Return the number of entries of each level."""
    counts = strict.fields(given, set(schema.levels), "counts", where)
    for name, count in counts.items():
        strict.size(count, f"the count of {name!r:.60}", where)
    level = unseen(schema, counts)
    if level is not None:
        fail(
            where,
            f"{level!r:.60} has {counts[level]} entries without a byte in the file; at most {MOST_UNSEEN} are allowed",
        )
    return counts


def _span(name: str, given: Any, start: int, size: int, where: str) -> FileSpan:
    """Return where a tensor is; raise an error if it is not within the file."""
    called = f"tensor {name!r:.80}"
    given = strict.fields(given, {"dtype", "shape", "data_offsets"}, called, where)
    code, shape, ends = given["dtype"], given["shape"], given["data_offsets"]
    if not isinstance(code, str) or code not in WIDTHS:
        fail(where, f"{called} must have a dtype of {sorted(WIDTHS)}, got {code!r:.60}")
    if not isinstance(shape, list) or len(shape) > 64 or not isinstance(ends, list) or len(ends) != 2:
        fail(
            where, f"{called} needs a list of at most 64 sizes and a list of two ends, got {shape!r:.60}, {ends!r:.60}"
        )
    for length in (*shape, *ends):
        strict.size(length, f"a size or end of {called}", where)
    if math.prod(length for length in shape if length) * WIDTHS[code] > strict.LARGEST:
        fail(where, f"{called} has a shape whose product is too large: {shape!r:.60}")
    found = FileSpan(code, tuple(shape), start + ends[0], start + ends[1])
    if found.stop > size:
        fail(where, f"{called} ends at byte {found.stop}, but the file has {size} bytes; was it cut off?")
    if found.stop - found.start != math.prod(shape) * WIDTHS[code]:
        wanted = math.prod(shape) * WIDTHS[code]
        fail(where, f"{called} of {code} {shape!r:.60} must have {wanted} bytes, got {found.stop - found.start}")
    return found


def _check_gaps(spans: Mapping[str, FileSpan], start: int, size: int, where: str) -> None:
    """Raise an error unless the tensors follow each other to the end of the file, without gaps and overlaps."""
    place, before = start, "the header"
    for name, span in sorted(spans.items(), key=lambda item: (item[1].start, item[1].stop)):
        if span.start != place:
            fail(where, f"tensor {name!r:.80} begins at byte {span.start}, but {before} ends at {place}")
        place, before = span.stop, f"tensor {name!r:.80}"
    if place != size:
        fail(where, f"{before} ends at byte {place}, but the file has {size} bytes")


def _check(name: str, span: FileSpan, wanted: Expected, where: str) -> None:
    """Raise an error unless the tensor is as the schema and the counts require, and is aligned."""
    fits = len(span.shape) == len(wanted.shape) and all(
        w in (None, s) for s, w in zip(span.shape, wanted.shape, strict=True)
    )
    if span.code not in wanted.codes or not fits:
        shape = tuple("any" if length is None else length for length in wanted.shape)
        fail(
            where,
            f"the schema and the counts ask for a tensor {name!r:.80} of {' or '.join(wanted.codes)} {shape}, "
            f"but the file has one of {span.code} {span.shape}",
        )
    if span.start % ALIGNMENT:
        fail(where, f"tensor {name!r:.80} begins at byte {span.start}, which is not a multiple of {ALIGNMENT}")
    if None in wanted.shape and name.endswith("/offsets") and not span.shape[0]:
        fail(where, f"tensor {name!r:.80} must have at least one entry")
