"""Operations that no record stands behind: they are read, checked, printed and run; two of them make no instruction."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from tests.dialects.traced import traced

import serrate as sr
from serrate.compiler.compiling import runnable
from serrate.dialects.attributes import ELEMENTS
from serrate.dialects.from_text import program_of, programs_of
from serrate.dialects.pipeline import ON_PROGRAMS
from serrate.dialects.texts import TextError, parse
from serrate.dialects.to_text import module_of, module_of_all
from serrate.opt import main
from serrate.program.program import Program

RAGGED = "!ptensor.ptensor<n0 x @p0 x 2 x f32>"
DECLARED = '{ptensor.partitions = [#ptensor.partition<name = @p0, of = input("p0"), components = n0>]}'


def read(text: str) -> Program:
    """The program of a text, which is the same once it is written and read again."""
    program = program_of(parse(text, "file.mlir"))
    again = str(module_of(program))
    assert program_of(parse(again)) == program
    assert str(module_of(program_of(parse(again)))) == again
    return program


def ranked(given: str, made: str) -> str:
    return f"""func.func @main(%r: {given}) -> {made} {{
      %x = "ptensor.from_ranked"(%r) : ({given}) -> {made}
      %y = "ptensor.elementwise_unary_op"(%x) {{euop = "exp"}} : ({made}) -> {made}
      func.return %y : {made}
    }}"""


@pytest.mark.parametrize("name", ["tensor", "memref"])
@pytest.mark.parametrize(("sizes", "shown"), [("?x3", "n0 x 3 x "), ("2x3", "2 x 3 x "), ("?x?", "n0 x n1 x ")])
def test_a_tensor_of_mlirs_becomes_a_dense_ptensor(name: str, sizes: str, shown: str) -> None:
    text = ranked(f"{name}<{sizes}xf32>", f"!ptensor.ptensor<{shown}f32>")
    program = read(text)
    assert f"%r: {name}<{sizes}xf32>" in str(module_of(program))
    x = torch.rand(2, 3)
    torch.testing.assert_close(runnable(program).run(sr.asarray(x)).values, x.exp())
    for passes in ON_PROGRAMS:  # the function is called as it was before
        made = ON_PROGRAMS[passes][0]({"main": program})["main"]
        assert f"%r: {name}<{sizes}xf32>" in str(module_of_all({"main": made}))


def test_what_a_caller_gives_stays_an_input_of_its_type() -> None:
    kind = "!ptensor.ptensor<n0 x f32>"
    text = f"""func.func @main(%r: memref<?xf32>, %s: {kind}) -> {kind} {{
      %x = "ptensor.from_ranked"(%r) : (memref<?xf32>) -> {kind}
      func.return %s : {kind}
    }}"""
    made = ON_PROGRAMS["dead-code"][0]({"main": read(text)})["main"]
    assert [each.op for each in made.instructions] == ["from_ranked"]
    assert "%r: memref<?xf32>" in str(module_of(made))


@pytest.mark.parametrize(
    "element", ["i1", "ui8", "i8", "i16", "i32", "i64", "f16", "bf16", "f32", "f64", "complex<f32>"]
)
def test_from_ranked_of_any_elements(element: str) -> None:
    text = ranked(f"tensor<4x{element}>", f"!ptensor.ptensor<4 x {element}>").replace("exp", "real")
    text = "\n".join(line for line in text.splitlines() if "%y =" not in line).replace("return %y", "return %x")
    (value,) = read(text).results
    assert ELEMENTS[str(value.type.dtype)[6:]] == element


@pytest.mark.parametrize(
    ("given", "made", "message"),
    [
        ("tensor<3xf32>", "4 x f32", "it is given tensor<3xf32>, and the text says !ptensor.ptensor<4 x f32>"),
        ("tensor<3xf32>", "3 x f64", "it is given tensor<3xf32>, and the text says !ptensor.ptensor<3 x f64>"),
        ("tensor<3xf32>", "3 x 1 x f32", "the text says !ptensor.ptensor<3 x 1 x f32>"),
        ("tensor<3xi32>", "3 x ui32", "the text says !ptensor.ptensor<3 x ui32>"),
        ("tensor<3xf32>", "n0 x f32", "the text says !ptensor.ptensor<n0 x f32>"),
        ("tensor<?xf32>", "3 x f32", "the text says !ptensor.ptensor<3 x f32>"),
        ("tensor<3xf32>", '3 x f32, device = "cuda:0"', "on the default device, without a team"),
        ("memref<3xf32>", "3 x f32, team = 1", "on the default device, without a team"),
        ("memref<3xf32, 1>", "3 x f32", "a memref that is contiguous"),
        ("memref<3xf32, strided<[2]>>", "3 x f32", "a memref that is contiguous"),
        ("tensor<*xf32>", "3 x f32", "the operand of ptensor.from_ranked is tensor<*xf32>, whose rank is unknown"),
        ("memref<*xf32>", "3 x f32", "the operand of ptensor.from_ranked is memref<*xf32>, whose rank is unknown"),
        ("!ptensor.ptensor<3 x f32>", "3 x f32", "takes a tensor or a memref, got !ptensor.ptensor<3 x f32>"),
        ("i64", "i64", "takes a tensor or a memref, got i64"),
    ],
)  # fmt: skip
def test_from_ranked_keeps_shape_and_elements(given: str, made: str, message: str) -> None:
    with pytest.raises(TextError) as caught:
        program_of(parse(ranked(given, f"!ptensor.ptensor<{made}>"), "file.mlir"))
    assert str(caught.value).startswith("file.mlir:2:")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "kind", ["tensor<3xf32>", "memref<3xf32>", "tensor<*xf32>", "f32", "!ptensor.ptensor<* x f32>"]
)
def test_operands_are_ptensors(kind: str) -> None:
    text = f"""func.func @main(%x: {kind}) {{
      %y = "ptensor.elementwise_unary_op"(%x) {{euop = "exp"}} : ({kind}) -> !ptensor.ptensor<3 x f32>
      func.return
    }}"""
    right = {
        "tensor<3xf32>": "2:7: operand 0 of ptensor.elementwise_unary_op is no ptensor, but tensor<3xf32>; ptensor",
        "memref<3xf32>": "2:7: operand 0 of ptensor.elementwise_unary_op is no ptensor, but memref<3xf32>; ptensor",
        "tensor<*xf32>": "2:7: operand 0 of ptensor.elementwise_unary_op is tensor<*xf32>, whose rank is unknown",
        "f32": "2:7: operand 0 of ptensor.elementwise_unary_op is no ptensor, but f32",
    }
    with pytest.raises(TextError) as caught:
        program_of(parse(text, "file.mlir"))
    assert right.get(kind, "1:40: a tensor of unknown rank is no ptensor") in str(caught.value)


ASKED: list[tuple[str, Callable[[sr.Tensor], int]]] = [
    ("rank", lambda x: len(x.shape)),
    ("size", lambda x: sum(2 * len(row) for row in x.tolist())),
]


@pytest.mark.parametrize(("name", "right"), ASKED)
def test_ranks_and_sizes_are_numbers(name: str, right: Callable[[sr.Tensor], int]) -> None:
    text = f"""func.func @main(%x: {RAGGED}) -> i64 attributes {DECLARED} {{
      %n = "ptensor.{name}"(%x) : ({RAGGED}) -> i64
      func.return %n : i64
    }}"""
    program = read(text)
    assert f'%n = "ptensor.{name}"(%x) : ({RAGGED}) -> i64\n' in str(module_of(program))
    x = sr.from_lengths(torch.rand(6, 2), [3, 0, 2, 1])
    assert int(runnable(program).run(x)) == right(x)
    for wrong in ("i1", "!ptensor.ptensor<i64>", "!ptensor.ptensor<i32>"):
        with pytest.raises(TextError, match=f"2:7: ptensor.{name} gives an i64, and the text says {wrong}"):
            program_of(parse(text.replace("i64", wrong), "file.mlir"))


def test_a_number_is_an_operand_like_a_tensor_of_one_element() -> None:
    text = f"""func.func @main(%x: {RAGGED}, %m: i64) -> !ptensor.ptensor<i64> attributes {DECLARED} {{
      %n = "ptensor.rank"(%x) : ({RAGGED}) -> i64
      %s = "ptensor.elementwise_binary_op"(%n, %m) {{ebop = "add"}} : (i64, i64) -> !ptensor.ptensor<i64>
      func.return %s : !ptensor.ptensor<i64>
    }}"""
    x = sr.from_lengths(torch.rand(6, 2), [3, 0, 2, 1])
    assert int(runnable(read(text)).run(x, sr.asarray(torch.tensor(4)))) == 7


def test_the_shape_of_a_dense_tensor() -> None:
    kind, made = "!ptensor.ptensor<n0 x 3 x f32>", "!ptensor.ptensor<2 x i64>"
    text = f"""func.func @main(%x: {kind}) -> {made} {{
      %n = "ptensor.shape"(%x) : ({kind}) -> {made}
      func.return %n : {made}
    }}"""
    assert runnable(read(text)).run(sr.zeros((5, 3))).tolist() == [5, 3]
    with pytest.raises(
        TextError, match=r"gives !ptensor.ptensor<2 x i64>, and the text says !ptensor.ptensor<3 x i64>"
    ):
        read(text.replace("2 x i64", "3 x i64"))
    with pytest.raises(TextError, match=r"gives one number for each dimension, and @p0 of .* is ragged"):
        read(text.replace("{\n", f"attributes {DECLARED} {{\n", 1).replace("n0 x 3", "n0 x @p0"))


@pytest.mark.parametrize(("one", "other"), [("f32", "f64"), ("i8", "ui8"), ("i32", "i64"), ("f32", "complex<f64>")])
def test_result_type_is_checked_and_no_instruction(one: str, other: str) -> None:
    names = {written: name for name, written in ELEMENTS.items()}
    dtypes = [getattr(torch, names[each]) for each in (one, other)]
    right = str(torch.promote_types(*dtypes))[6:]
    given = f"!ptensor.ptensor<3 x {one}>, !ptensor.ptensor<4 x {other}>"
    text = f"""func.func @main(%x: !ptensor.ptensor<3 x {one}>, %y: !ptensor.ptensor<4 x {other}>) {{
      "ptensor.result_type"(%x, %y) {{dtype = #ptensor.term<dtype("{right}")>}} : ({given}) -> ()
      func.return
    }}"""
    assert f'dtype("{right}")' in str(parse(text))
    assert program_of(parse(text)).instructions == ()
    wrong = "bool"
    with pytest.raises(
        TextError, match=rf'2:7: .* gives dtype\("{right}"\) for its operands, and .* dtype\("{wrong}"\)'
    ):
        parse(text.replace(right, wrong), "file.mlir")
    with pytest.raises(TextError, match="since a type is no value"):
        parse(text.replace(f' {{dtype = #ptensor.term<dtype("{right}")>}}', ""))


def test_from_dlpack_is_no_instruction() -> None:
    text = """func.func @main() {
      %x = "ptensor.from_dlpack"() {obj = 140000 : i64} : () -> !ptensor.ptensor<3 x f32>
      func.return
    }"""
    assert '"ptensor.from_dlpack"() {obj = 140000 : i64}' in str(parse(text))
    with pytest.raises(
        TextError, match=r"2:7: ptensor.from_dlpack takes the address of memory, which no program holds"
    ):
        program_of(parse(text, "file.mlir"))
    with pytest.raises(TextError, match=r"2:7: ptensor.from_dlpack gives a dense tensor, and the text says .*@p0"):
        parse(text.replace("3 x f32", "3 x @p0 x f32"))


def test_the_command_runs_what_is_given_from_outside(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, inputs = tmp_path / "ranked.mlir", tmp_path / "inputs.safetensors"
    file.write_text(ranked("tensor<?x3xf32>", "!ptensor.ptensor<n0 x 3 x f32>"))
    x = torch.rand(2, 3)
    save_file({"r": x}, inputs)
    assert main([str(file), "--run", str(inputs)]) == 0
    assert capsys.readouterr().out == f"{sr.asarray(x.exp())}\n"
    assert main([str(file), "--pass", "vjp", "--verify-each"]) == 0
    back = programs_of(parse(capsys.readouterr().out))["main_back"]
    assert [each.type.dtype for each in back.results] == [torch.float32]


def test_other_attributes_are_refused() -> None:
    text = f"""func.func @main(%x: {RAGGED}) attributes {DECLARED} {{
      %n = "ptensor.rank"(%x) {{axis = 1 : i64}} : ({RAGGED}) -> i64
      func.return
    }}"""
    with pytest.raises(TextError, match=r"file.mlir:2:7: ptensor.rank has no attribute axis"):
        program_of(parse(text, "file.mlir"))


def test_sizes_that_a_traced_function_computes_with_are_another_instruction() -> None:
    """A trace has numbers of its own for sizes, which are no sizes of tensors."""
    program = traced(lambda x: x * x.shape[0] + 1.0, sr.from_lengths(torch.rand(6), [3, 0, 2, 1]))
    assert "size" in [each.op for each in program.instructions]
    text = str(module_of(program))
    assert "ptensor.size" not in text
    assert program_of(parse(text)) == program
