"""Damaged files: random changes of bytes, of the header's JSON, and of the numbers that a reader follows."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable
from typing import Any

import torch

import serrate as sr
from serrate.table.block import Block
from serrate.table.schema import Schema
from serrate.table.storage.block_file import write_block
from serrate.table.storage.files import block_of_file
from serrate.table.storage.header import Header, read_header

WHERE = "a.safetensors"


def content_of(block: Block, *, composed: bool = True) -> bytes:
    """The bytes of a block's file."""
    stream = io.BytesIO()
    write_block(stream, block, composed=composed)
    return stream.getvalue()


class MemorySource:
    """A file that lies in memory."""

    path = WHERE

    def __init__(self, content: bytes) -> None:
        self.header = read_header(lambda start, stop: content[start:stop], len(content), WHERE)
        self.memory = bytearray(content)

    @property
    def schema(self) -> Schema:
        return self.header.schema

    @property
    def rows(self) -> int:
        return self.header.rows

    @property
    def counts(self) -> Any:
        return self.header.counts

    def whole(self) -> Block:
        return block_of_file(self.header, self._fetch, WHERE)

    def block_with(self, rows: torch.Tensor, columns: tuple[str, ...]) -> tuple[Block, torch.Tensor]:
        return self.whole(), rows

    def _fetch(self, span: Any) -> torch.Tensor:
        if span.start == span.stop:
            return torch.empty(0, dtype=torch.uint8)
        return torch.frombuffer(self.memory, dtype=torch.uint8, count=span.stop - span.start, offset=span.start)

    def table(self) -> sr.Table:
        return sr.Table._of(self.schema, [self])


def header_of(content: bytes) -> tuple[dict[str, Any], bytes]:
    """The header as JSON has it, schema and counts too, and the bytes behind it."""
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    for name in ("schema", "counts"):
        header["__metadata__"][name] = json.loads(header["__metadata__"][name])
    return header, content[8 + length :]


def with_header(header: Any, tail: bytes) -> bytes:
    """The file with this header: `header_of` the other way round, at a multiple of 64 bytes."""
    if isinstance(header, dict) and isinstance(header.get("__metadata__"), dict):
        inner = header["__metadata__"]
        for name in ("schema", "counts"):
            if name in inner and not isinstance(inner[name], str):
                inner = {**inner, name: json.dumps(inner[name])}
        header = {**header, "__metadata__": inner}
    return with_text(json.dumps(header).encode(), tail)


def with_text(text: bytes, tail: bytes) -> bytes:
    """The file whose header is this text."""
    text += b" " * (-(len(text) + 8) % 64)
    return len(text).to_bytes(8, "little") + text + tail


# --------------------------------------------------------------------------------------------------- random changes

NUMBERS = (0, 1, -1, 2, 3, 7, 63, 64, 255, 2**31 - 1, 2**31, 2**32, 2**62, 2**63 - 1, 2**63, 2**64, -(2**63), 10**30)
OTHERS: tuple[Any, ...] = (
    None, True, False, 1.5, float("nan"), float("inf"), "", "rows", "I64", "F64", "\ud800", [], {}, [[]], [0, 0],
    "datetime64[s]", "visits", "a.b", "9" * 5000,
)  # fmt: skip


def bits(draw: random.Random, content: bytes) -> bytes:
    """Some bits turned round."""
    made = bytearray(content)
    for _ in range(draw.choice((1, 1, 2, 8))):
        place = draw.randrange(8 * len(made))
        made[place // 8] ^= 1 << place % 8
    return bytes(made)


def early_bits(draw: random.Random, content: bytes) -> bytes:
    """Bits of the header and the offsets turned round."""
    first = min(len(content), 8 + int.from_bytes(content[:8], "little") + 512)
    return bits(draw, content[:first]) + content[first:]


def cut(draw: random.Random, content: bytes) -> bytes:
    """The end, or a part in the middle, missing."""
    start = draw.randrange(len(content))
    return content[:start] if draw.random() < 0.5 else content[:start] + content[start + draw.randrange(1, 200) :]


def longer(draw: random.Random, content: bytes) -> bytes:
    """Bytes put in."""
    start = draw.choice((len(content), draw.randrange(len(content))))
    return content[:start] + draw.randbytes(draw.choice((1, 8, 64))) + content[start:]


def bytes_over(draw: random.Random, content: bytes) -> bytes:
    """A run of bytes written over."""
    start, size = draw.randrange(len(content)), draw.choice((1, 4, 8, 40))
    filling = draw.choice((b"\0", b"\xff", b"\x7f", b"[", b'"', b"9", b"\x80"))
    return content[:start] + (filling * size)[: len(content) - start] + content[start + size :]


def numbers_of(content: bytes, kinds: tuple[str, ...]) -> list[tuple[int, int, int]]:
    """For each tensor of some kinds that is not empty: where it begins, the bytes of a number, how many it has."""
    header, tail = header_of(content)
    found = []
    for name, span in header.items():
        if name.startswith(kinds):
            start, stop = span["data_offsets"]
            item = {"I64": 8, "U64": 8, "I32": 4, "U32": 4, "I16": 2, "U16": 2}.get(span["dtype"], 1)
            if stop > start:
                found.append((len(content) - len(tail) + start, item, (stop - start) // item))
    return found


def offsets_over(draw: random.Random, content: bytes) -> bytes:
    """Other numbers as offsets, codes or masks."""
    found = numbers_of(content, (draw.choice(("offsets/", "composed/", "vocabulary/", "valid/", "values/")),))
    if not found:
        return bits(draw, content)
    made, (start, item, count) = bytearray(content), draw.choice(found)
    for _ in range(draw.choice((1, 1, 3))):
        place = start + item * draw.randrange(count)
        number = draw.choice((*NUMBERS, draw.randrange(-20, 200)))
        made[place : place + item] = (number % 2 ** (8 * item)).to_bytes(item, "little")
    return bytes(made)


def ends_over(draw: random.Random, content: bytes) -> bytes:
    """The first or the last offset a little smaller or larger, as if some entries belonged to nobody."""
    found = numbers_of(content, ("offsets/",))
    if not found:
        return bits(draw, content)
    made, (start, item, count) = bytearray(content), draw.choice(found)
    place = start + item * draw.choice((0, count - 1))
    number = int.from_bytes(made[place : place + item], "little") + draw.choice((-2, -1, 1, 2))
    made[place : place + item] = (number % 2 ** (8 * item)).to_bytes(item, "little")
    return bytes(made)


def codes_over(draw: random.Random, content: bytes) -> bytes:
    """The code of a string a little too large, or negative."""
    header, _ = header_of(content)
    texts = [name for name, column in header["__metadata__"]["schema"]["columns"] if column.get("text")]
    found = numbers_of(content, tuple(f"values/{name}" for name in texts)) if texts else []
    if not found:
        return bits(draw, content)
    made, (start, item, count) = bytearray(content), draw.choice(found)
    place = start + item * draw.randrange(count)
    made[place : place + item] = (draw.randrange(-3, 8) % 2 ** (8 * item)).to_bytes(item, "little")
    return bytes(made)


def node_over(draw: random.Random, content: bytes) -> bytes:
    """Something else somewhere in the JSON of the header."""
    header, tail = header_of(content)
    for _ in range(draw.choice((1, 1, 2))):
        places: list[tuple[Any, Any]] = []
        _walk(header, places)
        holder, key = draw.choice(places)
        action = draw.random()
        if action < 0.15:
            del holder[key]
        elif action < 0.3 and isinstance(holder, dict):
            holder[draw.choice((f"{key}2", "padding/x", "", "__metadata__"))] = holder[key]
        elif action < 0.4 and isinstance(holder, list):
            holder.append(holder[key])
        elif action < 0.6 and type(holder[key]) is int:
            holder[key] += draw.choice((-64, -1, 1, 4, 8, 64))
        elif action < 0.7:
            holder[key] = draw.choice(places)[1]
        else:
            holder[key] = draw.choice((*NUMBERS, *OTHERS))
    try:
        return with_header(header, tail)
    except (ValueError, RecursionError):  # a node that was put into itself
        return content


def _walk(node: Any, places: list[tuple[Any, Any]]) -> None:
    if isinstance(node, dict | list):
        for key in list(node) if isinstance(node, dict) else range(len(node)):
            places.append((node, key))
            _walk(node[key], places)


MUTATIONS: tuple[Callable[[random.Random, bytes], bytes], ...] = (
    bits, early_bits, cut, longer, bytes_over, offsets_over, offsets_over, ends_over, codes_over, node_over, node_over,
    node_over,
)  # fmt: skip


def mutated(draw: random.Random, content: bytes) -> bytes:
    """The file with one or two random changes."""
    content = draw.choice(MUTATIONS)(draw, content)
    if draw.random() < 0.2 and len(content) > 100:
        try:
            content = draw.choice(MUTATIONS)(draw, content)
        except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError):
            return content  # the header is no header any more
    return content


__all__ = ["MUTATIONS", "Header", "MemorySource", "content_of", "header_of", "mutated", "with_header", "with_text"]
