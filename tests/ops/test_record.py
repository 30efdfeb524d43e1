"""Records: every field is read by code, and an operation is added in one place."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from tests.ops.matrix import arguments
from tests.ops.samples import DTYPES, sample

import serrate as sr
from serrate.dialects.ptensor import record_of
from serrate.ops import answers, document, operators, stubs
from serrate.ops.call import call
from serrate.ops.derivatives import pullback
from serrate.ops.meta import meta
from serrate.ops.record import TABLE, Implementation, Op, define, members, operation
from serrate.program.inputs import Inputs
from serrate.tensor.tensor import as_tensor

ROOT = Path(__file__).parents[2]
BY_TESTS = {"samples", "errors", "example"}
"""Fields that tests and documents read."""


class Watched(Op):
    """A record that notes down which of its fields are read."""

    read: ClassVar[set[str]] = set()

    def __getattribute__(self, name: str) -> Any:
        Watched.read.add(name)
        return super().__getattribute__(name)


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    """The record of softmax in the table, its reads noted down from now on."""
    op = TABLE["softmax"]
    fields = {f.name: getattr(op, f.name) for f in dataclasses.fields(op) if f.init}
    made = Watched(**fields)
    monkeypatch.setitem(TABLE, "softmax", made)
    monkeypatch.setattr(Watched, "read", set())
    return made


def test_every_field_is_read_by_code(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    x = sr.ragged([[1.0, 2.0], []])
    monkeypatch.setattr(answers, "SPELLED", {})
    Watched(**{f.name: object.__getattribute__(watched, f.name) for f in dataclasses.fields(watched) if f.init})
    answers.gather_spellings()
    members()
    document.page()
    call(TABLE["softmax"], (x,), {"axis": 1})
    torch.softmax(x, 1)
    meta(TABLE["softmax"], (Inputs().type_of(x),), {"axis": 1})
    pullback(lambda x: sr.softmax(x, axis=1), x)
    record_of("reduce", "sum")
    unread = {f.name for f in dataclasses.fields(Op)} - Watched.read - read_by_define()
    assert unread <= BY_TESTS


def read_by_define() -> set[str]:
    """What `define` reads of a record that it has just made, which nobody can watch."""
    source = ast.parse((ROOT / "src/serrate/ops/record.py").read_text())
    body = next(node for node in source.body if isinstance(node, ast.FunctionDef) and node.name == "define")
    return {node.attr for node in ast.walk(body) if isinstance(node, ast.Attribute) and _is_op(node.value)}


def _is_op(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == "op"


def test_fields_for_tests_and_documents_are_read_by_them() -> None:
    trees = [ast.parse(path.read_text()) for path in (ROOT / "tests" / "ops").glob("*.py")]
    read = {
        node.attr for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Attribute) and _is_op(node.value)
    }
    assert read >= BY_TESTS
    for op in TABLE.values():
        assert ">>>" in (op.function.__doc__ or ""), op.name


def test_every_record_has_a_body_or_is_a_primitive() -> None:
    assert not [op.name for op in TABLE.values() if op.is_opaque]


def test_operands_and_what_decides_are_parameters() -> None:
    (first, *_) = TABLE.values()
    fields = {f.name: getattr(first, f.name) for f in dataclasses.fields(first) if f.init}
    with pytest.raises(ValueError, match="names as operands"):
        Op(**fields | {"operands": ("nothing",)})
    with pytest.raises(ValueError, match="no operands"):
        Op(**fields | {"decides": ("nothing",)})


# ------------------------------------------------------------------------------------------- adding an operation


@pytest.fixture
def added() -> Iterator[Op]:
    """A new operation: this one call is all that it takes."""

    def sinc(x: Any, /, *, scale: float = 1.0) -> sr.Tensor:
        tensor = as_tensor(x)
        return tensor._with(torch.sinc(tensor.values * scale))

    op = define(
        operation(sinc),
        "sinc",
        family="elementwise",
        summary="sin(πx) / (πx).",
        spellings={torch.sinc: lambda input: TABLE["sinc"].function(input)},
        kinds=("float",),
        primitive="scalar",
        example=("sr.sinc(sr.ragged([[0.], []])).tolist()", "[[1.0], []]"),
        native=(Implementation("native", lambda x, **_: "compiled", lambda x, scale=1.0: scale == 7),),
    )
    try:
        operators.attach()
        yield op
    finally:
        del TABLE["sinc"], answers.SPELLED[torch.sinc]


def test_an_operation_is_added_in_one_place(added: Op) -> None:
    x = sr.ragged([[0.0, 1.0], []])
    function = members()["sinc"]
    assert function(x).tolist()[0][0] == 1.0
    assert torch.equal(torch.sinc(x).values, torch.sinc(x.values))  # type: ignore[attr-defined]
    kind = Inputs().type_of(x)
    assert meta(added, (kind,), {}).result == kind
    assert "`sr.sinc(x, /, *, scale=1.0)` | sin(πx) / (πx)." in document.page()
    assert "def sinc(x: Any, /, *, scale: Any = ...) -> Any: ..." in stubs.package()
    assert ">>> sr.sinc" in (function.__doc__ or "")


def test_the_first_implementation_that_applies_computes(added: Op) -> None:
    x = sr.ragged([[0.0]])
    assert call(added, (x,), {"scale": 7}) == "compiled"
    assert call(added, (x,), {"scale": 1.0}).tolist() == [[1.0]]


def test_an_operation_has_one_record(added: Op) -> None:
    with pytest.raises(ValueError, match="sinc is defined twice"):
        define(added.function, "sinc", spellings={}, example=("", ""), summary="", family="", kinds=())


def test_a_function_of_torch_is_a_spelling_of_one_operation(added: Op, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(added.spellings, torch.exp, lambda input: input)
    with pytest.raises(ValueError, match=r"torch's exp is a spelling of \w+ and \w+"):
        answers.gather_spellings()


# ---------------------------------------------------------------------------------------------- what eager calls do


def test_eager_calls_know_no_types() -> None:
    program = (
        "import sys, torch, serrate as sr\n"
        "x = sr.ragged([[1.0, 2.0], []])\n"
        "y = sr.softmax(x + torch.exp(x), axis=1)[:, :1]\n"
        "sr.concat([y, y]).to_dense()\n"
        "sr.matmul(sr.ones((2, sr.Ragged([1, 2]), 3)), torch.ones(3, 2))\n"
        "print([name for name in sys.modules if name.startswith('serrate.program')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_eager_calls_bind_no_signature(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("a signature was bound")

    monkeypatch.setattr(inspect.Signature, "bind", refuse)
    for op in TABLE.values():
        for text in op.samples:
            args, options = arguments(text, sample("two levels", DTYPES[op.kinds[0]][0]))
            op.function(*args, **options)


def test_what_torchs_functions_stand_for_is_written_in_records_alone() -> None:
    spelled = {function: op for op in TABLE.values() for function in op.spellings}
    assert spelled == answers.SPELLED
    assert not set(answers.QUESTIONS) & set(spelled)
