"""Files of blocks: what the official safetensors package finds in them, and what comes back."""

from __future__ import annotations

import io
import json
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
import xxhash
from hypothesis import given
from tests.table import blocks
from tests.table.mutations import MemorySource, content_of, header_of
from tests.table.strategies import Sample, samples

import serrate as sr
from serrate.table.block import Block
from serrate.table.schema import DTYPES, Column, Schema
from serrate.table.storage import block_file
from serrate.table.storage import header as header_module
from serrate.table.storage.block_file import write_block
from serrate.table.storage.header import read_header


def official(content: bytes) -> dict[str, torch.Tensor]:
    return safetensors.torch.load(content)


def one(dtype: torch.dtype, values: torch.Tensor, **fields: Any) -> Block:
    """A block with one column "x" of rows."""
    features = tuple(values.shape[1:])
    schema = Schema(["rows"], {"x": Column("rows", dtype, values.dtype, features, **fields)})
    return Block(schema, {"rows": len(values)}, {}, {"x": values})


# -------------------------------------------------------------------------------------------------------- round trips


@given(samples())
def test_what_is_written_is_read(sample: Sample) -> None:
    table = sample.table()
    for composed in (True, False):
        back = MemorySource(content_of(table.block(), composed=composed)).table()
        assert back.schema == table.schema
        assert list(back.keys()) == list(table.keys())
        assert repr(back.tolist()) == repr(table.tolist())  # NaT equals nothing


@given(samples())
def test_official_package_loads_every_file(sample: Sample) -> None:
    block = sample.table().block()
    found = official(content_of(block))
    for name, values in block.values.items():
        raw = torch.view_as_real(values) if values.dtype == torch.complex128 else values
        assert found[f"values/{name}"].dtype == raw.dtype
        assert found[f"values/{name}"].tolist() == raw.tolist()
    for level, offsets in block.offsets.items():
        assert found[f"offsets/{level}"].dtype == torch.int32
        assert found[f"offsets/{level}"].tolist() == offsets.tolist()
    for name, words in block.vocabularies.items():
        ends = found[f"vocabulary/{name}/offsets"].tolist()
        text = bytes(found[f"vocabulary/{name}/bytes"].tolist())
        assert tuple(text[a:b].decode() for a, b in pairwise(ends)) == words


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
@pytest.mark.parametrize("shape", [(0,), (1,), (5,), (3, 2), (4, 0), (0, 3)])
def test_every_dtype(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    values = blocks.random_values(np.random.default_rng(0), shape, dtype)
    back = MemorySource(content_of(one(dtype, values))).whole().values["x"]
    assert back.dtype == dtype
    assert back.shape == values.shape
    assert back.tolist() == values.tolist()


def test_bits_of_nan_survive() -> None:
    bits = torch.tensor([0x7FC00001, 0x7F800001, -1, 0x80000000 - 2**32], dtype=torch.int32)
    back = MemorySource(content_of(one(torch.float32, bits.view(torch.float32)))).whole().values["x"]
    assert back.view(torch.int32).tolist() == bits.tolist()


def test_forest_with_every_kind_of_column() -> None:
    block = blocks.block(np.random.default_rng(1), 7)
    content = content_of(block)
    back = MemorySource(content).table()
    assert back.tolist() == sr.Table._from_block(block).tolist()
    composed = official(content)["composed/visits.codes.parts"].tolist()
    walk = [block.offsets["visits"].tolist(), block.offsets["visits.codes"].tolist()]
    deepest = block.offsets["visits.codes.parts"].tolist()
    assert composed == [deepest[walk[1][walk[0][row]]] for row in range(8)]


def test_columns_without_level_and_several_roots() -> None:
    table = sr.Table({"age": [41, 63], "time": [[0, 3], [2]], "dose": [[1.5], []]}, {"time": "visits", "dose": "meds"})
    row = table[0]
    assert row.schema.roots == ("visits", "meds")
    source = MemorySource(content_of(row.block()))
    assert source.rows == 0
    assert source.table().tolist() == {"age": 41, "time": [0, 3], "dose": [1.5]}


# ------------------------------------------------------------------------------------------------------ the layout


@given(samples())
def test_tensors_begin_at_multiples_of_64(sample: Sample) -> None:
    content = content_of(sample.table().block())
    header, tail = header_of(content)
    header.pop("__metadata__")
    for name, found in header.items():
        start, _ = found["data_offsets"]
        assert name.startswith("padding/") or (len(content) - len(tail) + start) % 64 == 0


def test_metadata_and_names() -> None:
    table = sr.Table({"a/b": [["x", None]], "": [[1, 2]]}, {"a/b": "été", "": "été"})
    header, _ = header_of(content_of(table.block()))
    assert header["__metadata__"]["format"] == "serrate.table"
    assert header["__metadata__"]["version"] == "1"
    assert header["__metadata__"]["counts"] == {"rows": 1, "été": 2}
    names = {name for name in header if not name.startswith("padding/")} - {"__metadata__"}
    assert names == {
        "offsets/été", "values/a/b", "valid/a/b", "vocabulary/a/b/bytes", "vocabulary/a/b/offsets", "values/",
    }  # fmt: skip


def test_same_block_same_bytes() -> None:
    block = blocks.block(np.random.default_rng(2), 5)
    assert content_of(block) == content_of(block)


def test_checksum_and_size() -> None:
    stream = io.BytesIO()
    written = write_block(stream, blocks.block(np.random.default_rng(3), 5))
    assert written.bytes == len(stream.getvalue())
    assert written.xxh3 == xxhash.xxh3_64_hexdigest(stream.getvalue())


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_offsets_are_stored_as_int32_where_they_fit(dtype: torch.dtype) -> None:
    block = blocks.block(np.random.default_rng(4), 5, offsets=dtype)
    assert {
        found.code for name, found in MemorySource(content_of(block)).header.tensors.items() if "ffsets" in name
    } == {"I32"}


@pytest.mark.slow
def test_more_entries_than_int32_holds() -> None:
    count = 2**31 + 5
    schema = Schema(["rows", "v"], {"x": Column("v", torch.uint8)})
    values = torch.full((1,), 7, dtype=torch.uint8).expand(count)
    block = Block(schema, {"rows": 1, "v": count}, {"v": torch.tensor([0, count])}, {"x": values})

    class Sink(io.RawIOBase):
        first, total = b"", 0

        def write(self, data: Any) -> int:
            self.first += bytes(data[: max(0, 4096 - len(self.first))])
            self.total += len(data)
            return len(data)

    sink = Sink()
    written = write_block(sink, block)  # type: ignore[arg-type]
    assert sink.total == written.bytes > count
    header = read_header(lambda start, stop: sink.first[start:stop], sink.total, "x")
    assert header.tensors["offsets/v"].code == "I64"
    assert header.counts["v"] == count


# ------------------------------------------------------------------------------------------------- memory as it lies


@pytest.mark.parametrize("chunk", [1, 24, 2**23])
def test_memory_that_is_not_contiguous(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_file, "CHUNK", chunk)
    base = torch.arange(60.0).view(6, 10)
    for values in (base[::2], base[:, ::3], base.T, base.flip(0), torch.tensor([2.0]).expand(7), base[1:1]):
        back = MemorySource(content_of(one(torch.float32, values))).whole().values["x"]
        assert back.tolist() == values.tolist()
    wide = (base + 1j * base).conj()[1:, ::2]
    assert MemorySource(content_of(one(torch.complex64, wide))).whole().values["x"].tolist() == wide.tolist()
    mask = torch.tensor([True, False] * 4)[::2]
    block = one(torch.float32, base[:4, 0])
    schema = Schema(["rows"], {"x": Column("rows", torch.float32, nullable=True)})
    block = Block(schema, block.counts, {}, block.values, {"x": mask})
    assert MemorySource(content_of(block)).whole().valid["x"].tolist() == [True] * 4


def test_stream_that_takes_a_little_at_a_time() -> None:
    class Slow(io.RawIOBase):
        taken = b""

        def write(self, data: Any) -> int:
            self.taken += bytes(data[:100])
            return min(100, len(data))

    block = blocks.block(np.random.default_rng(5), 5)
    stream = Slow()
    written = write_block(stream, block)  # type: ignore[arg-type]
    assert stream.taken == content_of(block)
    assert len(stream.taken) == written.bytes


def test_values_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    values = torch.arange(1000)
    seen: list[int] = []

    class Where(io.RawIOBase):
        def write(self, data: Any) -> int:
            if len(data) == values.nbytes:
                seen.append(np.frombuffer(data, np.uint8).ctypes.data)
            return len(data)

    write_block(Where(), one(torch.int64, values))  # type: ignore[arg-type]
    assert seen == [values.data_ptr()]


# ------------------------------------------------------------------------------------------------ what is not written


def test_names_that_are_no_text_are_refused() -> None:
    schema = Schema(["rows"], {"\ud800": Column("rows", torch.int64)})
    block = Block(schema, {"rows": 1}, {}, {"\ud800": torch.zeros(1, dtype=torch.int64)})
    with pytest.raises(ValueError, match="must be valid Unicode"):
        content_of(block)


@pytest.mark.parametrize(("words", "fault"), [(("\udfff",), "not valid Unicode"), (("a", "b", "a"), "a string twice")])
def test_vocabularies_that_are_none(words: tuple[str, ...], fault: str) -> None:
    block = one(torch.int64, torch.zeros(1, dtype=torch.int64), text=True)
    block.vocabularies = {"x": words}
    with pytest.raises(ValueError, match=fault):
        content_of(block)


def test_rows_without_bytes_are_limited() -> None:
    most = header_module.MOST_UNSEEN
    for count in (most, most + 1):
        block = one(torch.float32, torch.empty(count, 0))
        if count == most:
            assert MemorySource(content_of(block)).rows == most
        else:
            with pytest.raises(ValueError, match=rf"at most {most} entries .* 'rows' has {count}"):
                content_of(block)


def test_blocks_that_do_not_fit_are_refused() -> None:
    block = one(torch.int64, torch.arange(3))
    block.counts = {"rows": 4}
    with pytest.raises(ValueError, match="needs shape"):
        content_of(block)


def test_too_many_columns_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_file, "LONGEST_HEADER", 1000)
    table = sr.Table({f"column {i}": [0] for i in range(20)})
    with pytest.raises(ValueError, match="at most 1000 bytes, these need"):
        content_of(table.block())


def test_without_xxhash_the_error_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "xxhash", None)
    with pytest.raises(ImportError, match="pip install xxhash"):
        content_of(one(torch.int64, torch.arange(3)))


def test_other_metadata_are_left_alone() -> None:
    content = content_of(one(torch.int64, torch.arange(3)))
    header, tail = header_of(content)
    header["__metadata__"] |= {"author": "me"}
    for name in ("schema", "counts"):
        header["__metadata__"][name] = json.dumps(header["__metadata__"][name])
    text = json.dumps(header).encode()
    text += b" " * (-(len(text) + 8) % 64)
    assert MemorySource(len(text).to_bytes(8, "little") + text + tail).rows == 3
