"""Checks of single operations: squeezed axes, conditions, masks, devices and teams; each error names both sides."""

from __future__ import annotations

import pytest
import torch
from tests.dialects.traced import traced

import serrate as sr
from serrate.compiler.compiling import runnable
from serrate.dialects.from_text import program_of
from serrate.dialects.texts import TextError, parse
from serrate.dialects.to_text import module_of

DECLARED = '{ptensor.partitions = [#ptensor.partition<name = @p0, of = input("p0"), components = n0>]}'


def squeezing(given: str, axis: str, made: str) -> str:
    return f"""func.func @main(%x: !ptensor.ptensor<{given}>) -> !ptensor.ptensor<{made}> attributes {DECLARED} {{
      %y = "ptensor.squeeze"(%x) {{axis = {axis}}} : (!ptensor.ptensor<{given}>) -> !ptensor.ptensor<{made}>
      func.return %y : !ptensor.ptensor<{made}>
    }}"""


@pytest.mark.parametrize("axis", [1, -2, (1,), (-2,)])
def test_an_axis_of_size_1_is_squeezed(axis: int | tuple[int, ...]) -> None:
    written = str(axis) + " : i64" if isinstance(axis, int) else f"#ptensor.term<tuple({axis[0]})>"
    program = program_of(parse(squeezing("n0 x 1 x 4 x f32", written, "n0 x 4 x f32")))
    x = torch.rand(3, 1, 4)
    torch.testing.assert_close(runnable(program).run(sr.asarray(x)).values, x.squeeze(axis))


@pytest.mark.parametrize(
    ("given", "axis", "message"),
    [
        ("n0 x 1 x f32", "0 : i64", "axis 0 of !ptensor.ptensor<n0 x 1 x f32> is n0, which is not known to be 1"),
        ("n0 x 1 x f32", "-2 : i64", "axis -2 of !ptensor.ptensor<n0 x 1 x f32> is n0, which is not known to be 1"),
        ("(2 * n0) x 1 x f32", "0 : i64", "is (2 * n0), which is not known to be 1"),
        ("n0 x @p0 x f32", "1 : i64", "axis 1 of !ptensor.ptensor<n0 x @p0 x f32> is @p0, which is ragged"),
        ("n0 x @p0 x 1 x f32", "-2 : i64", "is @p0, which is ragged"),
        ("n0 x @p0 x 1 x f32", "#ptensor.term<tuple(2, -2)>", "axis -2 of !ptensor.ptensor<n0 x @p0 x 1 x f32> is @p0"),
        ("1 x 3 x f32", "1 : i64", "axis 1 of !ptensor.ptensor<1 x 3 x f32> is 3, which is not 1"),
        ("n0 x @p0 x 1 x f32, order = [2, 0, 1]", "2 : i64", "is @p0, which is ragged"),
    ],
)
def test_another_axis_is_not_squeezed(given: str, axis: str, message: str) -> None:
    with pytest.raises(TextError) as caught:
        parse(squeezing(given, axis, "3 x f32"), "file.mlir")
    said = str(caught.value)
    assert said.startswith("file.mlir:2:7: squeeze needs an axis of size 1, and ")
    assert message.replace("(2 * n0)", "2 * n0") in said.replace("(2 * n0)", "2 * n0")


T = "!ptensor.ptensor<3 x f32>"


@pytest.mark.parametrize("condition", [True, False])
def test_where_of_a_constant_of_an_argument_and_of_a_tensor(condition: bool) -> None:
    x, y = torch.rand(3), torch.rand(3)
    right = x if condition else y
    constant = f"""func.func @main(%x: {T}, %y: {T}) -> {T} {{
      %z = "ptensor.where"(%x, %y) {{cond = {str(condition).lower()}}} : ({T}, {T}) -> {T}
      func.return %z : {T}
    }}"""
    program = program_of(parse(constant))
    assert program_of(parse(str(module_of(program)))) == program
    assert runnable(program).run(sr.asarray(x), sr.asarray(y)).tolist() == right.tolist()
    argument = f"""func.func @main(%c: KIND, %x: {T}, %y: {T}) -> {T} {{
      %z = "ptensor.where"(%c, %x, %y) : (KIND, {T}, {T}) -> {T}
      func.return %z : {T}
    }}"""
    for kind, given in (("i1", torch.tensor(condition)), ("!ptensor.ptensor<3 x i1>", torch.full((3,), condition))):
        program = program_of(parse(argument.replace("KIND", kind)))
        assert program_of(parse(str(module_of(program)))) == program
        assert runnable(program).run(*map(sr.asarray, (given, x, y))).tolist() == right.tolist()
    with pytest.raises(
        TextError, match=r"2:7: the condition of ptensor.where has elements of type i1, and operand 0 is"
    ):
        parse(argument.replace("KIND", T), "file.mlir")


def test_a_mask_alone_is_extract_mask() -> None:
    x, index = sr.ragged([[1.0, 2.0], [], [3.0]]), torch.tensor([0, 2])
    masks = (lambda x: x[x > 1], lambda x: x[sr.sum(x, axis=1) > 1])
    for masked in masks:
        program = traced(masked, x)
        text = str(module_of(program))
        assert text.count('"ptensor.extract_mask"') == 1
        assert "extract_slice" not in text
        again = program_of(parse(text))
        assert again.instructions == program.instructions
        rows = [[each for each in row if each > 1] for row in x.tolist()]
        right = rows if masked is masks[0] else [row for row in x.tolist() if sum(row) > 1]
        assert runnable(again).run(x).tolist() == right
    for other in (lambda x, i: x[i], lambda x, i: x[(x > 1)[i],], lambda x, i: x[:1]):
        assert '"ptensor.extract_slice"' in str(module_of(traced(other, x, index)))
    wrong = str(module_of(traced(lambda x, y: x[y], x, x > 1))).replace(" x i1>", " x i8>")
    with pytest.raises(
        TextError, match=r"the mask of ptensor.extract_mask has elements of type i1, and operand 1 is .*i8"
    ):
        parse(wrong)


@pytest.mark.parametrize(
    ("one", "other", "made", "message"),
    [
        ('device = "cuda:0"', "", "", "different devices: operand 0 is on cuda:0, operand 1 on cpu"),
        ('device = "cuda:0"', 'device = "cuda:0"', "", "different devices: operand 0 is on cuda:0, result 0 on cpu"),
        ("", "", 'device = "cuda:1"', "different devices: operand 0 is on cpu, result 0 on cuda:1"),
        ("team = 1", "team = 2", "team = 1", "different teams: operand 0 is of 1, operand 1 of 2"),
        ("team = 1", "", "team = 1", "different teams: operand 0 is of 1, operand 1 of none"),
        ("team = 1", "team = 1", "", "different teams: operand 0 is of 1, result 0 of none"),
        ("", "", 'team = "all"', "different teams: operand 0 is of none, result 0 of all"),
    ],
)
def test_an_operation_has_tensors_of_one_device_and_one_team(one: str, other: str, made: str, message: str) -> None:
    x, y, z = (f"!ptensor.ptensor<3 x f32{', ' if detail else ''}{detail}>" for detail in (one, other, made))
    text = f"""func.func @main(%x: {x}, %y: {y}) {{
      %z = "ptensor.elementwise_binary_op"(%x, %y) {{ebop = "add"}} : ({x}, {y}) -> {z}
      func.return
    }}"""
    with pytest.raises(TextError) as caught:
        parse(text, "file.mlir")
    assert str(caught.value) == f"file.mlir:2:7: ptensor.elementwise_binary_op has tensors on {message}".replace(
        "on different teams", "of different teams"
    )


def test_a_tensor_that_is_cast_elsewhere_is_a_call() -> None:
    program = traced(lambda x: sr.astype(x, torch.float64, device="cpu"), sr.ragged([[1.0], []]))
    text = str(module_of(program))
    assert '"ptensor.call"(%x0) {callee = "astype"' in text
    assert program_of(parse(text)) == program
