"""Wrong calls of every public method: the type of the error, and that it says what was expected, what came, where."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import serrate as sr
from serrate.errors import RaggednessError, TableFormatError
from serrate.table.schema import Column, Schema

Call = Callable[[sr.Table], Any]
Errors = type[Exception] | tuple[type[Exception], ...]
Case = tuple[Call, Errors, list[str]]


def patients() -> sr.Table:
    """Two lists below the rows, one of them with a list of its own, and a word and a gap."""
    return sr.Table(
        {
            "age": [41, 63, 7],
            "name": ["a", "b", "c"],
            "dose": [1.5, None, 2.0],
            "time": [[0, 3, 9], [], [2]],
            "code": [[[7, 5], [], [4]], [], [[5]]],
            "med": [[1], [2, 3], []],
            "where": [[0.5, 1.5], [2.5, 3.5], [4.5, 5.5]],
        },
        {
            "time": "visits", "code": "visits.codes", "med": "meds",
            "where": Column("rows", torch.float32, features=(2,)),
        },
    )  # fmt: skip


def raises(call: Call, error: Errors, words: list[str]) -> None:
    with pytest.raises(error) as caught:
        call(patients())
    assert type(caught.value).__module__ in ("builtins", "serrate.errors")
    message = str(caught.value)
    for word in words:
        assert word in message, f"{word!r} is not in: {message}"


def of_itself() -> list[Any]:
    made: list[Any] = []
    made.append(made)
    return made


MAKING: dict[str, tuple[Callable[[], Any], type[Exception], list[str]]] = {
    "no mapping": (lambda: sr.Table([[1]]), TypeError, ["mapping", "list"]),
    "no columns": (lambda: sr.Table({}), ValueError, ["at least one column"]),
    "name": (lambda: sr.Table({1: [1]}), TypeError, ["name of a column", "string", "got 1"]),
    "a number": (lambda: sr.Table({"a": 3}), TypeError, ["'a'", "int", "3"]),
    "a string": (lambda: sr.Table({"a": "abc"}), TypeError, ["'a'", "str"]),
    "a mapping": (lambda: sr.Table({"a": {"b": [1]}}), TypeError, ["'a'", "dict"]),
    "a set": (lambda: sr.Table({"a": {1, 2}}), TypeError, ["'a'", "set"]),
    "bytes": (lambda: sr.Table({"a": b"ab"}), TypeError, ["'a'", "bytes"]),
    "a list of itself": (lambda: sr.Table({"a": of_itself()}), ValueError, ["'a'", "64"]),
    "a time zone": (
        lambda: sr.Table({"a": [datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)]}), TypeError, ["'a'", "time zone"],
    ),
    "0-d tensor": (lambda: sr.Table({"a": torch.tensor(1)}), ValueError, ["'a'", "0-d"]),
    "0-d array": (lambda: sr.Table({"a": np.array(1)}), ValueError, ["'a'", "0-d"]),
    "rows": (lambda: sr.Table({"a": [1, 2], "b": [1]}), RaggednessError, ["'a'", "'b'", "2", "1"]),
    "lists": (
        lambda: sr.Table({"a": [[1], [2]], "b": [[1, 2], []]}), RaggednessError, ["'a'", "'b'", "level1", "schema"],
    ),
    "depth": (lambda: sr.Table({"a": [[1], 2]}), ValueError, ["'a'", "[1]", "2"]),
    "too deep": (lambda: sr.Table({"a": [[1], [[2]]]}), ValueError, ["'a'"]),
    "too shallow": (lambda: sr.Table({"a": [[1]]}, {"a": "visits.codes"}), ValueError, ["'a'", "[0][0]"]),
    "bool and int": (lambda: sr.Table({"a": [[True], [2]]}), TypeError, ["'a'", "[0][0]", "[1][0]"]),
    "str and int": (lambda: sr.Table({"a": [["x"], [2]]}), TypeError, ["'a'", "[1][0]", "2"]),
    "object": (lambda: sr.Table({"a": [[1], [object]]}), TypeError, ["'a'", "[1][0]"]),
    "too large": (lambda: sr.Table({"a": [[1], [2**70]]}), OverflowError, ["'a'", "[1][0]", str(2**70)]),
    "too large a dtype": (lambda: sr.Table({"a": [300]}, {"a": torch.uint8}), OverflowError, ["'a'", "300", "uint8"]),
    "negative": (lambda: sr.Table({"a": [-1]}, {"a": torch.uint64}), OverflowError, ["'a'", "-1", "uint64"]),
    "not whole": (lambda: sr.Table({"a": [0.5]}, {"a": torch.int64}), ValueError, ["'a'", "whole", "int64"]),
    "not a bool": (lambda: sr.Table({"a": [2]}, {"a": torch.bool}), ValueError, ["'a'", "bool"]),
    "complex": (lambda: sr.Table({"a": [1j]}, {"a": torch.float32}), TypeError, ["'a'", "complex", "float32"]),
    "dtype": (lambda: sr.Table({"a": torch.zeros(1).to(torch.float8_e4m3fn)}), TypeError, ["float8_e4m3fn"]),
    "numpy dtype": (lambda: sr.Table({"a": np.zeros(1, np.longdouble)}), TypeError, ["'a'", "float128"]),
    "shapes": (lambda: sr.Table({"a": [np.zeros(2), np.zeros(3)]}, {"a": "rows"}), ValueError, ["'a'", "shape"]),
    "gradient": (lambda: sr.Table({"a": torch.zeros(1, requires_grad=True)}), ValueError, ["'a'", "gradient"]),
    "device": (lambda: sr.Table({"a": torch.zeros(1, device="meta")}), ValueError, ["'a'", "CPU", "meta"]),
    "schema": (lambda: sr.Table({"a": [1]}, [("a", "rows")]), TypeError, ["list"]),
    "unknown column": (lambda: sr.Table({"a": [1]}, {"b": "rows"}), KeyError, ["'b'", "'a'"]),
    "level": (lambda: sr.Table({"a": [[1]]}, {"a": "visits..x"}), ValueError, ["visits..x"]),
    "no level": (lambda: sr.Table({"a": [1]}, {"a": ""}), ValueError, ["''"]),
    "level rows": (lambda: sr.Table({"a": [[1]]}, {"a": "visits.rows"}), ValueError, ["visits.rows"]),
    "declared": (lambda: sr.Table({"a": [1]}, {"a": 3}), TypeError, ["'a'", "3"]),
    "features": (
        lambda: sr.Table({"a": [[1, 2]]}, {"a": Column("rows", torch.int64, features=(3,))}),
        ValueError, ["'a'", "(3,)", "(2,)"],
    ),
    "words": (
        lambda: sr.Table({"a": [1]}, {"a": Column("rows", torch.int64, text=True)}), TypeError, ["'a'", "strings"],
    ),
    "numbers": (
        lambda: sr.Table({"a": ["x"]}, {"a": Column("rows", torch.int64)}), TypeError, ["'a'", "strings", "numbers"],
    ),
    "unit": (
        lambda: sr.Table({"a": np.array([1], "M8[s]")}, {"a": Column("rows", torch.int64, unit="datetime64[D]")}),
        TypeError, ["'a'", "datetime64[s]", "datetime64[D]"],
    ),
    "empty level": (
        lambda: sr.Table({"a": [1]}, Schema(["rows", "visits"], {"a": Column("rows", torch.int64)})),
        ValueError, ["visits"],
    ),
    "two times": (
        lambda: sr.Table({"a": [np.datetime64(1, "s"), np.timedelta64(1, "s")]}), TypeError, ["'a'"],
    ),
    "rows of a mapping": (lambda: sr.Table.from_rows([{"a": 1}, {"b": 2}]), KeyError, ["row 1", "'a'", "'b'"]),
    "rows that are none": (lambda: sr.Table.from_rows([{"a": 1}, 3]), TypeError, ["row 1", "int"]),
    "no rows": (lambda: sr.Table.from_rows([]), ValueError, ["schema"]),
}  # fmt: skip


@pytest.mark.parametrize("case", MAKING.values(), ids=MAKING)
def test_making(case: tuple[Callable[[], Any], type[Exception], list[str]]) -> None:
    call, error, words = case
    raises(lambda _: call(), error, words)


INDEXING: dict[str, Case] = {
    "column": (lambda t: t["nope"], KeyError, ["nope", "'age'"]),
    "past the end": (lambda t: t[3], IndexError, ["3", "rows"]),
    "before the start": (lambda t: t[-4], IndexError, ["-4", "3"]),
    "in a list": (lambda t: t[[0, 3]], IndexError, ["position 1", "3"]),
    "in an array": (lambda t: t[np.array([0, -4])], IndexError, ["position 1", "-4"]),
    "huge": (lambda t: t[2**80], IndexError, [str(2**80)]),
    "huge unsigned": (lambda t: t[np.array([2**64 - 1], np.uint64)], IndexError, [str(2**64 - 1)]),
    "mask": (lambda t: t[[True, False]], IndexError, ["3", "2"]),
    "long mask": (lambda t: t[torch.ones(4, dtype=torch.bool)], IndexError, ["3", "4"]),
    "float": (lambda t: t[1.0], TypeError, ["1.0", "rows"]),
    "floats": (lambda t: t[[1.0]], TypeError, ["1.0"]),
    "float tensor": (lambda t: t[torch.tensor([1.0])], TypeError, ["float32"]),
    "empty float tensor": (lambda t: t[torch.tensor([])], TypeError, ["float32"]),
    "matrix": (lambda t: t[torch.zeros(1, 1, dtype=torch.int64)], TypeError, ["[1, 1]"]),
    "bool": (lambda t: t[True], TypeError, ["True"]),
    "None": (lambda t: t[None], TypeError, ["None"]),
    "names": (lambda t: t[["age", "time"]], TypeError, ["select"]),
    "names in a tuple": (lambda t: t.drop("med")["age", "time"], TypeError, ["'age'"]),
    "slice": (lambda t: t["a":], TypeError, ["'a'"]),
    "step": (lambda t: t[::0], ValueError, ["step"]),
    "which level": (lambda t: t[0, 0], IndexError, ["visits", "meds"]),
    "too many": (lambda t: t.select(["age"])[0, 0], IndexError, ["2"]),
    "inner": (lambda t: t.select(["time"])[:, 0], IndexError, ["visits", "list 1", "0 entries"]),
    "inner list": (lambda t: t.select(["time"])[:, [0, 3]], IndexError, ["visits"]),
    "inner mask": (lambda t: t.select(["time"])[:, [True]], TypeError, ["visits", "filter"]),
    "inner step": (lambda t: t.select(["time"])[:, ::0], ValueError, ["0"]),
    "ragged mask": (lambda t: t[t["time"] > 1], TypeError, ["ragged", "filter"]),
    "no rows": (lambda t: t[0][0], TypeError, ["visits", "meds"]),
    "no rows at all": (lambda t: t.select(["age"])[0][0], TypeError, ["rows"]),
    "length": (lambda t: len(t[0]), TypeError, ["visits", "meds"]),
    "iterating": (lambda t: list(t), TypeError, ["keys()"]),
    "hash": (hash, TypeError, ["hash"]),
    "assignment": (lambda t: t.__setitem__("age", [1]), AttributeError, ["__setitem__"]),
}


@pytest.mark.parametrize("case", INDEXING.values(), ids=INDEXING)
def test_indexing(case: Case) -> None:
    raises(*case)


COLUMNS: dict[str, Case] = {
    "keys_at": (lambda t: t.keys_at("nope"), KeyError, ["nope", "visits"]),
    "keys_at type": (lambda t: t.keys_at(1.5), KeyError, ["1.5", "visits"]),
    "count": (lambda t: t.count("nope"), KeyError, ["nope", "visits"]),
    "select": (lambda t: t.select(["age", "nope"]), KeyError, ["nope", "'age'"]),
    "select a string": (lambda t: t.select("age"), TypeError, ["list", "'age'"]),
    "select nothing": (lambda t: t.select([]), ValueError, ["at least one column"]),
    "drop": (lambda t: t.drop(["nope"]), KeyError, ["nope"]),
    "drop all": (lambda t: t.drop(list(t.keys())), ValueError, ["at least one column"]),
    "rename": (lambda t: t.rename({"nope": "x"}), KeyError, ["nope"]),
    "rename onto another": (lambda t: t.rename({"age": "name"}), ValueError, ["'name'"]),
    "rename to a number": (lambda t: t.rename({"age": 3}), (TypeError, ValueError), ["3"]),
    "vocabulary": (lambda t: t.vocabulary("age"), TypeError, ["'age'", "strings"]),
    "vocabulary of none": (lambda t: t.vocabulary("nope"), KeyError, ["nope"]),
    "valid": (lambda t: t.valid("nope"), KeyError, ["nope"]),
    "with_column rows": (lambda t: t.with_column("x", [1, 2]), RaggednessError, ["'x'", "3", "2"]),
    "with_column lists": (
        lambda t: t.with_column("x", [[1], [2], [3]], "visits"), RaggednessError, ["'x'", "visits"],
    ),
    "with_column depth": (lambda t: t.with_column("x", [[1], [2, 3], []]), ValueError, ["'x'", "visits", "meds"]),
    "with_column level": (lambda t: t.with_column("x", [[1], [], []], "nope"), KeyError, ["nope", "visits"]),
    "with_column too shallow": (lambda t: t.with_column("x", [1, 2, 3], "visits"), ValueError, ["'x'"]),
    "with_column name": (lambda t: t.with_column(3, [1, 2, 3]), TypeError, ["3"]),
    "with_column what": (lambda t: t.with_column("x", 3), TypeError, ["'x'", "3"]),
    "map level": (lambda t: t.map(lambda _: {}, "nope"), KeyError, ["nope"]),
    "map result": (lambda t: t.map(lambda _: [1]), TypeError, ["mapping", "list"]),
    "map size": (lambda t: t.map(lambda _: {"x": [1, 2]}), RaggednessError, ["'x'", "3", "rows"]),
    "map lists": (lambda t: t.map(lambda _: {"x": [[1], [2], [3]]}), RaggednessError, ["'x'", "rows"]),
    "map function": (lambda t: t.map(3), TypeError, ["callable"]),
    "rows_of column": (lambda t: t.rows_of("nope", [1]), KeyError, ["nope"]),
    "rows_of missing": (lambda t: t.rows_of("age", [41, 99]), KeyError, ["99", "'age'"]),
    "rows_of missing word": (lambda t: t.rows_of("name", ["z"]), KeyError, ["z", "'name'"]),
    "rows_of deeper": (lambda t: t.rows_of("time", [0]), TypeError, ["'visits'"]),
    "rows_of gaps": (lambda t: t.rows_of("dose", [1.5]), TypeError, ["float64"]),
    "rows_of features": (lambda t: t.rows_of("where", [0.5]), TypeError, ["features"]),
    "rows_of floats": (lambda t: t.rows_of("age", [41.5]), TypeError, ["'age'", "41.5"]),
    "rows_of objects": (lambda t: t.rows_of("age", [object]), TypeError, ["'age'"]),
    "rows_of words": (lambda t: t.rows_of("age", ["41"]), TypeError, ["'age'", "41"]),
    "rows_of twice": (
        lambda t: sr.Table({"id": [1, 2, 1]}).rows_of("id", [1]), ValueError, ["'id'", "0", "2"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", COLUMNS.values(), ids=COLUMNS)
def test_columns(case: Case) -> None:
    raises(*case)


ENTRIES: dict[str, Case] = {
    "flatten how": (lambda t: t.flatten_level("visits.codes", "last"), ValueError, ["'last'", "first"]),
    "flatten level": (lambda t: t.flatten_level("nope"), KeyError, ["nope", "visits"]),
    "flatten rows": (lambda t: t.flatten_level("rows"), ValueError, ["'rows'"]),
    "flatten with others": (lambda t: t.flatten_level("visits"), ValueError, ["meds"]),
    "flatten which": (lambda t: t.select(["time", "med"]).flatten_level(), ValueError, ["visits", "meds"]),
    "flatten fill": (lambda t: t.flatten_level("visits.codes", fill=0.5), (TypeError, ValueError), ["0.5"]),
    "squeeze": (lambda t: t.squeeze(), ValueError, ["3"]),
    "squeeze no rows": (lambda t: t[0].squeeze(), TypeError, ["visits", "meds"]),
    "unsqueeze": (lambda t: t.unsqueeze("a..b"), ValueError, ["a..b"]),
    "concat nothing": (lambda t: sr.Table.concat([]), ValueError, ["at least one"]),
    "concat columns": (lambda t: sr.Table.concat([t, t.drop("age")]), KeyError, ["age", "table 1"]),
    "concat levels": (
        lambda t: sr.Table.concat([sr.Table({"a": [[1]]}, {"a": "x"}), sr.Table({"a": [[1]]}, {"a": "y"})]),
        RaggednessError, ["'x'", "'y'"],
    ),
    "concat dtypes": (
        lambda t: sr.Table.concat([sr.Table({"a": [1]}), sr.Table({"a": [1.0]})]),
        TypeError, ["'a'", "int64", "float64"],
    ),
    "concat features": (
        lambda t: sr.Table.concat([sr.Table({"a": torch.zeros(1, 2)}), sr.Table({"a": torch.zeros(1, 3)})]),
        ValueError, ["'a'", "(2,)", "(3,)"],
    ),
    "concat words": (lambda t: sr.Table.concat([sr.Table({"a": [1]}), sr.Table({"a": ["x"]})]), TypeError, ["'a'"]),
    "concat rows": (lambda t: sr.Table.concat([t[0], t[1]]), TypeError, ["visits", "meds"]),
    "concat what": (lambda t: sr.Table.concat([t, {"age": [1]}]), TypeError, ["dict"]),
    "concat a table": (lambda t: sr.Table.concat(t), TypeError, ["table"]),
    "stack nothing": (lambda t: sr.Table.stack([]), ValueError, ["at least one"]),
    "windows keep": (lambda t: t.windows(keep="middle", level="visits"), ValueError, ["'middle'", "head"]),
    "windows size": (lambda t: t.windows(size=-1, level="visits"), ValueError, ["-1"]),
    "windows size type": (lambda t: t.windows(size=1.5, level="visits"), (TypeError, ValueError), ["1.5"]),
    "windows which": (lambda t: t.windows(size=1), ValueError, ["visits", "meds", "level"]),
    "windows level": (lambda t: t.windows(level="visits.codes"), ValueError, ["visits.codes", "meds"]),
    "windows none": (lambda t: t.select(["age"]).windows(size=1), ValueError, ["none"]),
    "windows rows": (lambda t: t.windows([3], level="visits"), IndexError, ["3"]),
    "windows rows type": (lambda t: t.windows([0.5], level="visits"), TypeError, ["0.5"]),
    "windows bounds": (lambda t: t.windows([0, 1], [1, 2, 3], level="visits"), ValueError, ["start", "2", "3"]),
    "windows bound type": (lambda t: t.windows([0], "a", level="visits"), TypeError, ["'a'"]),
    "filter level": (lambda t: t.filter([True], "nope"), KeyError, ["nope"]),
    "filter size": (lambda t: t.filter([True]), IndexError, ["rows", "3", "1"]),
    "filter inner": (lambda t: t.filter(torch.ones(3, dtype=torch.bool), "visits"), IndexError, ["visits", "4", "3"]),
    "filter type": (lambda t: t.filter([1, 0, 1]), TypeError, ["int64"]),
    "filter what": (lambda t: t.filter(3), TypeError, ["3"]),
    "filter other lists": (
        lambda t: t.filter(sr.ragged([[True], [True], [True, True]]), "visits"), RaggednessError, ["visits"],
    ),
    "sort_by": (lambda t: t.sort_by("nope"), KeyError, ["nope"]),
    "sort_by features": (lambda t: t.sort_by("where"), TypeError, ["'where'"]),
    "sort_by complex": (lambda t: sr.Table({"a": [1j]}).sort_by("a"), TypeError, ["'a'", "complex"]),
    "sort_by one entry": (lambda t: t[0].sort_by("age"), ValueError, ["'age'"]),
}  # fmt: skip


@pytest.mark.parametrize("case", ENTRIES.values(), ids=ENTRIES)
def test_entries(case: Case) -> None:
    raises(*case)


BATCHES: dict[str, Case] = {
    "padding column": (lambda t: t.to_dense(padding={"nope": 1}), (KeyError, ValueError), ["nope"]),
    "padding value": (lambda t: t.to_dense(padding={"time": 0.5}), (TypeError, ValueError), ["0.5", "time"]),
    "padding size": (lambda t: t.to_dense(padding={"time": 2**70}), (OverflowError, ValueError), ["time"]),
    "padding type": (lambda t: t.to_dense(padding="x"), (TypeError, ValueError), ["'x'"]),
    "side": (lambda t: t.to_dense(side="up"), ValueError, ["'up'", "left", "right"]),
    "side level": (lambda t: t.to_dense(side={"nope": "left"}), (KeyError, ValueError), ["nope"]),
    "side of a level": (lambda t: t.to_dense(side={"visits": "up"}), ValueError, ["'up'"]),
    "max_lengths": (lambda t: t.to_dense(max_lengths=-1), ValueError, ["-1"]),
    "max_lengths type": (lambda t: t.to_dense(max_lengths=1.5), (TypeError, ValueError), ["1.5"]),
    "max_lengths level": (lambda t: t.to_dense(max_lengths={"nope": 1}), (KeyError, ValueError), ["nope"]),
    "max_lengths size": (lambda t: t.to_dense(max_lengths=2**62), MemoryError, ["bytes"]),
    "multiple_of": (lambda t: t.to_dense(multiple_of=0), ValueError, ["0"]),
    "multiple_of level": (lambda t: t.to_dense(multiple_of={"nope": 1}), (KeyError, ValueError), ["nope"]),
    "out": (lambda t: t.to_dense(out={}), TypeError, ["Dense", "dict"]),
    "out shape": (lambda t: t.to_dense(out=t[:2].to_dense()), ValueError, ["(3", "(2"]),
    "out columns": (lambda t: t.to_dense(out=t.select(["age"]).to_dense()), ValueError, ["name"]),
    "no rows": (lambda t: t[0].to_dense(), TypeError, ["visits", "meds"]),
    "packed no rows": (lambda t: t[0].to_packed(), TypeError, ["visits", "meds"]),
    "cu_seqlens": (lambda t: t.to_packed().cu_seqlens("nope"), KeyError, ["nope"]),
    "position_ids": (lambda t: t.to_packed().position_ids("nope"), KeyError, ["nope"]),
    "segment_ids": (lambda t: t.to_packed().segment_ids("nope"), KeyError, ["nope"]),
    "max_seqlen": (lambda t: t.to_packed().max_seqlen("nope"), KeyError, ["nope"]),
    "flat": (lambda t: t.to_packed().flat("nope"), KeyError, ["nope"]),
    "vocabulary": (lambda t: t.to_packed().vocabulary("age"), (KeyError, TypeError), ["age"]),
    "column": (lambda t: t.to_packed()["nope"], KeyError, ["nope"]),
    "dense column": (lambda t: t.to_dense()["nope"], KeyError, ["nope"]),
}


@pytest.mark.parametrize("case", BATCHES.values(), ids=BATCHES)
def test_batches(case: Case) -> None:
    raises(*case)


def test_opening(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nope"):
        sr.open(tmp_path / "nope")
    (tmp_path / "empty").mkdir()
    with pytest.raises((TableFormatError, FileNotFoundError), match="empty"):
        sr.open(tmp_path / "empty")
    (tmp_path / "text.safetensors").write_text("nothing of the kind")
    with pytest.raises(TableFormatError, match=r"text\.safetensors"):
        sr.open(tmp_path / "text.safetensors")
    with pytest.raises(TypeError, match="int"):
        sr.open(3)
    patients().save(tmp_path / "t")
    with pytest.raises(KeyError, match="nope"):
        sr.open(tmp_path / "t", columns=["nope"])


def test_saving(tmp_path: Path) -> None:
    table = patients()
    with pytest.raises((TypeError, ValueError), match="rows_per_shard"):
        table.save(tmp_path / "t", rows_per_shard=0)
    with pytest.raises((TypeError, ValueError), match="rows_per_shard"):
        table.save(tmp_path / "t", rows_per_shard=1.5)
    with pytest.raises(TypeError, match="nope"):
        table.save(tmp_path / "t", nope=1)
    assert list(tmp_path.iterdir()) == []
    table.save(tmp_path / "t")
    with pytest.raises(FileExistsError, match="overwrite"):
        table.save(tmp_path / "t")
    table[:1].save(tmp_path / "t", overwrite=True)
    assert sr.open(tmp_path / "t") == table[:1]


def test_a_wrong_call_changes_nothing() -> None:
    table, same = patients(), patients()
    for case in (*INDEXING.values(), *COLUMNS.values(), *ENTRIES.values()):
        with pytest.raises(case[1]):
            case[0](table)
    assert table == same
