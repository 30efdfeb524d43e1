"""Result types in texts: those that torch or nested lists give are read, and any others are an error at their line."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.compiler.test_every_operation import samples_of
from tests.dialects.traced import traced
from tests.ops.samples import DTYPES

import serrate as sr
from serrate.dialects.attributes import ELEMENTS
from serrate.dialects.from_text import program_of
from serrate.dialects.texts import TextError, parse
from serrate.dialects.to_text import module_of
from serrate.ops.checking import has_rule
from serrate.ops.record import TABLE
from serrate.program.program import Program, replaced
from serrate.program.types import Value

DENSE: list[tuple[str, str, Callable[[torch.Tensor], torch.Tensor]]] = [
    ("reduce", 'rop = "sum", axis = 1', lambda x: x.sum(1)),
    ("reduce", 'rop = "mean", axis = -1', lambda x: x.mean(-1)),
    ("reduce", 'rop = "max", axis = 0, keepdims = true', lambda x: x.amax(0, keepdim=True)),
    ("find_index", 'fop = "argmax", axis = 2', lambda x: x.argmax(2)),
    ("find_index", 'fop = "argmin", axis = 2, keepdims = true', lambda x: x.argmin(2, keepdim=True)),
    ("elementwise_unary_op", 'euop = "exp"', torch.exp),
    ("elementwise_unary_test", 'euop = "isnan"', torch.isnan),
    ("permute_dims", "axis = #ptensor.term<tuple(2, 0, 1)>", lambda x: x.permute(2, 0, 1)),
    ("expand_dims", "axis = 1", lambda x: x[:, None]),
    ("flip", "axis = 1", lambda x: x.flip(1)),
    ("cast", "dtype = #ptensor.term<dtype(\"int32\")>", lambda x: x.int()),
    ("extract_slice", "slice = #ptensor.term<tuple(1, slice(none, 2, none))>", lambda x: x[1, :2]),
    ("extract_triangle", 'side = "lower"', torch.tril),
    ("reshape", "shape = #ptensor.term<tuple(6, 4)>", lambda x: x.reshape(6, 4)),
    ("broadcast", "shape = #ptensor.term<tuple(5, 2, 3, 4)>", lambda x: x.expand(5, 2, 3, 4)),
    ("create_like", 'kind = "zeros_like"', torch.zeros_like),
    ("sort", "axis = 1", lambda x: x.sort(1).values),
    ("argsort", "axis = 1", lambda x: x.argsort(1)),
]  # fmt: skip


def written(x: torch.Tensor) -> str:
    """The type of a dense tensor as a text has it; torch says its shape and its elements."""
    return f"!ptensor.ptensor<{' x '.join([*map(str, x.shape), ELEMENTS[str(x.dtype)[6:]]])}>"


def module(name: str, attributes: str, given: str, made: str) -> str:
    return f"""func.func @main(%x: {given}) -> {made} {{
      %y = "ptensor.{name}"(%x) {{{attributes}}} : ({given}) -> {made}
      func.return %y : {made}
    }}"""


@pytest.mark.parametrize(("name", "attributes", "torchs"), DENSE, ids=[f"{a} {b}" for a, b, _ in DENSE])
def test_the_type_that_torch_gives_is_read_and_no_other(
    name: str, attributes: str, torchs: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    x = torch.rand(2, 3, 4)
    right = torchs(x)
    shown = written(right)
    program = program_of(parse(module(name, attributes, written(x), shown)))
    assert str(program.results[0].type.shape) == str(tuple(right.shape))
    others = [right.to(torch.float64), right[None], torch.cat([right, right])]
    for wrong in map(written, others):
        with pytest.raises(TextError) as caught:
            program_of(parse(module(name, attributes, written(x), wrong), "file.mlir"))
        said = str(caught.value)
        assert said.startswith("file.mlir:2:7: the result of ")
        assert f" is {shown}, and the text says {wrong}" in said


RAGGED = """func.func @main(%x: !ptensor.ptensor<n0 x @p0 x f32>, %y: !ptensor.ptensor<n1 x @p1 x f32>)
  -> !ptensor.ptensor<{made}> attributes {{ptensor.partitions = [
    #ptensor.partition<name = @p0, of = input("p0"), components = n0>,
    #ptensor.partition<name = @p1, of = input("p1"), components = n1>{partition}], ptensor.guards = [{guards}]}} {{
    %z = {operation} -> !ptensor.ptensor<{made}>
    func.return %z : !ptensor.ptensor<{made}>
  }}"""
SUM = '"ptensor.reduce"(%x) {rop = "sum", axis = 1} : (!ptensor.ptensor<n0 x @p0 x f32>)'
SLICE = (
    '"ptensor.extract_slice"(%x) {slice = #ptensor.term<tuple(slice(none, none, none), slice(none, 2, none))>}'
    " : (!ptensor.ptensor<n0 x @p0 x f32>)"
)
ADD = (
    '"ptensor.elementwise_binary_op"(%x, %y) {ebop = "add"}'
    " : (!ptensor.ptensor<n0 x @p0 x f32>, !ptensor.ptensor<n1 x @p1 x f32>)"
)
SAME = "#ptensor.term<equal(@p0, @p1)>"


def cut(capacity: str, stop: int = 2) -> str:
    return f", #ptensor.partition<name = @p2, of = at_most(@p0, {stop}), components = n0{capacity}>"


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"operation": SUM, "made": "n0 x f32"}, None),
        ({"operation": SUM, "made": "n1 x f32"}, "is !ptensor.ptensor<n0 x f32>, and the text says !ptensor.ptensor<n"),
        ({"operation": SUM, "made": "n0 x @p0 x f32"}, "the text says !ptensor.ptensor<n0 x @p0 x f32>"),
        ({"operation": SLICE, "made": "n0 x @p2 x f32", "partition": cut("")}, None),
        ({"operation": SLICE, "made": "n0 x @p2 x f32", "partition": cut("", 3)}, "is !ptensor.ptensor<n0 x @p3 x"),
        ({"operation": SLICE, "made": "n0 x @p2 x f32", "partition": cut(", capacity = 9")}, "the text says"),
        ({"operation": SLICE, "made": "n0 x @p2 x f32", "partition": cut(", uniform_length = 2")}, "the text says"),
        ({"operation": SLICE, "made": "n0 x @p0 x f32"}, "with #ptensor.partition<name = @p2, of = at_most"),
        ({"operation": ADD, "made": "n0 x @p0 x f32", "guards": SAME}, None),
        ({"operation": ADD, "made": "n1 x @p1 x f32", "guards": SAME}, None),
        ({"operation": ADD, "made": "n0 x @p0 x f32"}, "add needs the guard equal(size(n0), size(n1)), which"),
        ({"operation": ADD, "made": "n0 x f32", "guards": SAME}, "the text says !ptensor.ptensor<n0 x f32>"),
        ({"operation": SUM.replace("1", "2"), "made": "n0 x f32"}, "does not take these operands: axis 2 is out of"),
    ],
)  # fmt: skip
def test_ragged_results(parts: dict[str, str], message: str | None) -> None:
    text = RAGGED.format(**{"partition": "", "guards": ""} | parts)
    if message is None:
        assert program_of(parse(text)).results
        return
    with pytest.raises(TextError) as caught:
        program_of(parse(text, "file.mlir"))
    assert str(caught.value).startswith("file.mlir:5:5: ")
    assert message in str(caught.value)


def test_the_number_of_results_is_checked() -> None:
    kind = "!ptensor.ptensor<3 x f32>"
    text = f"""func.func @main(%x: {kind}) {{
      "ptensor.elementwise_unary_op"(%x) {{euop = "exp"}} : ({kind}) -> ()
      func.return
    }}"""
    with pytest.raises(TextError, match="text:2:7: exp has 1 results, and the text 0"):
        program_of(parse(text))


def with_another_type(program: Program, value: Value) -> Program:
    """The program in which a value has other elements, everywhere."""
    dtype = torch.int16 if value.type.dtype is not torch.int16 else torch.float64
    other = Value(replace(value.type, dtype=dtype), value.name)

    def change(part: Any) -> Any:
        return replaced(part, lambda each: other if isinstance(each, Value) and each == value else each)

    steps = [
        replace(step, arguments=change(step.arguments), named=change(step.named), result=change(step.result))
        for step in program.instructions
    ]
    return replace(program, instructions=tuple(steps), outputs=change(program.outputs))


@pytest.mark.parametrize("name", TABLE)
def test_a_wrong_type_of_any_record_is_found(name: str) -> None:
    op = TABLE[name]
    for _, function, operands in samples_of(op, ["features"], DTYPES[op.kinds[0]][0]):
        try:
            program = traced(function, *operands)
        except (TypeError, ValueError, LookupError, AttributeError, RuntimeError, ArithmeticError):
            continue  # it runs eagerly
        for step in program.instructions:
            if has_rule(step) and step.results:
                wrong = str(module_of(with_another_type(program, step.results[0])))
                with pytest.raises(TextError, match=rf"^file.mlir:\d+:5: .* of {re.escape(step.op)} is .*and the text"):
                    program_of(parse(wrong, "file.mlir"))
                return


def test_partitions_that_are_made_of_many_others_are_compared_at_once() -> None:
    def function(x: sr.Tensor) -> sr.Tensor:
        for _ in range(20):
            x = sr.concat([x[:, 1:], x], axis=1)[:, :3]
        return x

    text = str(module_of(traced(function, sr.ragged([[1.0, 2.0], []]))))
    assert len(program_of(parse(text)).instructions) == 60  # without sharing, this would not end


def test_types_under_autocast_are_those_that_it_gives() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.autocast("cpu", torch.bfloat16):
            low = sr.matmul(x, y)
        return low, sr.matmul(x, y)

    program = traced(function, torch.rand(3, 4), torch.rand(4, 5))
    assert [each.type.dtype for each in program.results] == [torch.bfloat16, torch.float32]
    text = str(module_of(program))
    assert program_of(parse(text)) == program
    with pytest.raises(TextError, match=r"the result of matmul is !ptensor.ptensor<n0 x 5 x bf16>, and the text says"):
        program_of(parse(text.replace("5 x bf16", "5 x f16")))


@pytest.mark.parametrize(
    ("guard", "message"),
    [
        ("equal(3, 4)", "sizes 3 and 4 have to be equal, which no type can say"),
        ("equal(size(n0), size(n0 + 1))", "have to be equal, which no type can say"),
        ("equal(3)", "a guard is equal"),
    ],
)
def test_guards_that_cannot_hold(guard: str, message: str) -> None:
    text = RAGGED.format(operation=SUM, made="n0 x f32", partition="", guards=f"#ptensor.term<{guard}>")
    with pytest.raises(TextError, match=r"^file.mlir:1:1: ") as caught:
        program_of(parse(text, "file.mlir"))
    assert message in str(caught.value)


@pytest.mark.parametrize("device", ["cuda:0", "xpu:1"])
def test_texts_for_devices_that_torch_was_not_built_for_are_read(device: str) -> None:
    x, y = (f'!ptensor.ptensor<n0 x {rows}f32, device = "{device}">' for rows in ("@p0 x ", ""))
    text = f"""func.func @main(%x: {x}) -> {y} attributes {{ptensor.partitions = [
        #ptensor.partition<name = @p0, of = input("p0"), components = n0>]}} {{
      %y = "ptensor.elementwise_binary_op"(%x) {{ebop = "multiply", rhs = #ptensor.term<2.0>}} : ({x}) -> {x}
      %z = "ptensor.reduce"(%y) {{rop = "sum", axis = 1}} : ({x}) -> {y}
      func.return %z : {y}
    }}"""
    program = program_of(parse(text))
    assert [each.op for each in program.instructions] == ["multiply", "sum"]
    assert program_of(parse(str(module_of(program)))) == program
