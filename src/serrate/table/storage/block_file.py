"""Block file: a block is written as a safetensors file whose tensors begin at multiples of 64 bytes; see header.py."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol

import torch

from serrate.native.loading import plain
from serrate.table.block import Block
from serrate.table.storage.header import (
    ALIGNMENT,
    FORMAT,
    LONGEST_HEADER,
    MOST_UNSEEN,
    OFFSETS,
    VERSION,
    WIDTHS,
    FileSpan,
    Header,
    expected_tensors,
    read_header,
    unseen,
)

__all__ = ["FileSpan", "Header", "Written", "checksum", "memory_of", "read_header", "write_block"]

CHUNK = 2**23
"""The number of bytes that are converted and written at once."""


@dataclass(frozen=True)
class Written:
    """What was written: the number of bytes, and their XXH3 checksum of 64 bits as 16 digits."""

    bytes: int
    xxh3: str


def write_block(stream: BinaryIO, block: Block, *, composed: bool = True) -> Written:
    """Write a block as a file, with `composed` also the offsets from each row to its entries of the deeper levels.

    >>> import io, serrate as sr
    >>> from serrate.table.storage.block_file import write_block
    >>> block = sr.Table({"code": [[1, 2], []]}).block()
    >>> write_block(io.BytesIO(), block).bytes % 64 == len(block.values["code"]) * 8
    True
    """
    block.check()
    level = unseen(block.schema, block.counts)
    if level is not None:
        raise ValueError(
            f"a file may have at most {MOST_UNSEEN} entries of a level that no column has a value for, but "
            f"{level!r} has {block.counts[level]}"
        )
    tensors = dict(_tensors(block, composed))
    header = _header(block, tensors)
    sink = _Sink(stream)
    sink.put(header)
    for _, tensor, code in tensors.values():
        sink.put(bytes(-sink.count % ALIGNMENT))
        for piece in _pieces(tensor, OFFSETS.get(code, tensor.dtype)):
            sink.put(piece)
    return Written(sink.count, sink.digest.hexdigest())


_Tensor = tuple[tuple[int, ...], torch.Tensor, str]


def _tensors(block: Block, composed: bool) -> Iterator[tuple[str, _Tensor]]:
    """Yield the name, shape, tensor and dtype of each tensor that is written."""
    words = {name: _encoded(name, block.vocabularies[name]) for name, column in block.schema.items() if column.text}
    for full, expected in expected_tensors(block.schema, block.counts).items():
        kind, _, name = full.partition("/")
        if kind == "composed" and not composed:
            continue
        if kind == "vocabulary":
            name, _, part = name.rpartition("/")
            tensor = words[name][part]
        else:
            tensor = block.composed(name) if kind == "composed" else getattr(block, kind)[name]
        code = expected.codes[0]
        if len(expected.codes) > 1:
            code = "I32" if int(tensor[-1]) < 2**31 else "I64"
        shape = tuple(tensor.shape) if None in expected.shape else expected.shape
        yield full, (shape, tensor, code)  # type: ignore[misc]


def _encoded(name: str, vocabulary: tuple[str, ...]) -> dict[str, torch.Tensor]:
    """Return the words of a vocabulary as bytes, and the offsets of the words."""
    try:
        words = [word.encode() for word in vocabulary]
    except UnicodeEncodeError as error:
        raise ValueError(f"column {name!r:.60} has a string that is not valid Unicode: {error}") from None
    if len(set(words)) != len(words):
        raise ValueError(f"the vocabulary of column {name!r:.60} has a string twice")
    offsets = torch.zeros(len(words) + 1, dtype=torch.int64)
    torch.cumsum(torch.tensor([len(word) for word in words], dtype=torch.int64), 0, out=offsets[1:])
    return {"offsets": offsets, "bytes": torch.frombuffer(bytearray(b"".join(words) + b"."), dtype=torch.uint8)[:-1]}


def _header(block: Block, tensors: Mapping[str, _Tensor]) -> bytes:
    """Return the first bytes of the file, up to the first tensor."""
    metadata = {
        "format": FORMAT, "version": str(VERSION),
        "schema": json.dumps(block.schema.to_json(), ensure_ascii=False),
        "counts": json.dumps({level: block.counts[level] for level in block.schema.levels}, ensure_ascii=False),
    }  # fmt: skip
    described: dict[str, Any] = {"__metadata__": metadata}
    place = 0
    for name, (shape, _, code) in tensors.items():
        if gap := -place % ALIGNMENT:
            described[f"padding/{len(described)}"] = _described("U8", (gap,), place)
            place += gap
        described[name] = _described(code, shape, place)
        place = described[name]["data_offsets"][1]
    try:
        text = json.dumps(described, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"names of columns and levels must be valid Unicode: {error}") from None
    text += b" " * (-(len(text) + 8) % ALIGNMENT)
    if len(text) > LONGEST_HEADER:
        raise ValueError(f"a file describes its columns in at most {LONGEST_HEADER} bytes, these need {len(text)}")
    return len(text).to_bytes(8, "little") + text


def _described(code: str, shape: tuple[int, ...], start: int) -> dict[str, Any]:
    size = math.prod(shape) * WIDTHS[code]
    return {"dtype": code, "shape": list(shape), "data_offsets": [start, start + size]}


def _pieces(tensor: torch.Tensor, dtype: torch.dtype) -> Iterator[memoryview]:
    """Yield the bytes of a tensor as `dtype`, some at a time; they are copied only if a conversion needs it."""
    lines = tensor.reshape(1) if tensor.ndim == 0 else tensor
    if not lines.numel():
        return
    if lines.dtype == dtype and not lines.is_conj() and not lines.is_neg() and lines.is_contiguous():
        flat = memory_of(lines)
        yield from (flat[start : start + CHUNK] for start in range(0, len(flat), CHUNK))
        return
    step = max(1, CHUNK * len(lines) // (lines.numel() * dtype.itemsize))
    for start in range(0, len(lines), step):
        yield memory_of(plain(lines[start : start + step].to(dtype)))


def memory_of(tensor: torch.Tensor) -> memoryview:
    """Return the bytes of a contiguous tensor.

    A tensor of a single entry may have any stride, which torch does not accept for a view as bytes.
    """
    return tensor.as_strided((tensor.numel(),), (1,)).view(torch.uint8).numpy().data


class _Digest(Protocol):
    def update(self, data: bytes | memoryview) -> None: ...
    def hexdigest(self) -> str: ...


def checksum() -> _Digest:
    """Return a new XXH3 checksum of 64 bits."""
    try:
        from xxhash import xxh3_64
    except ImportError:
        raise ImportError("the checksums of tables need the package xxhash: pip install xxhash") from None
    made: _Digest = xxh3_64()
    return made


class _Sink:
    """A stream whose bytes are counted and added to a checksum."""

    def __init__(self, stream: BinaryIO) -> None:
        self.stream, self.count, self.digest = stream, 0, checksum()

    def put(self, data: bytes | memoryview) -> None:
        """Write all of the data. A stream without a buffer may write less than it gets."""
        self.digest.update(data)
        self.count += len(data)
        while data:
            taken = self.stream.write(data)
            if taken is None or taken == len(data):
                return
            data = data[taken:]
