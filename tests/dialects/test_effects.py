"""Writes and deletions: they stay in their places among reads, and what was deleted is not read."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from xdsl.context import Context
from xdsl.traits import MemoryEffectKind, get_effects
from xdsl.transforms.common_subexpression_elimination import CommonSubexpressionElimination
from xdsl.transforms.dead_code_elimination import DeadCodeElimination

import serrate as sr
from serrate.compiler.compiling import runnable
from serrate.dialects.from_text import program_of, programs_of
from serrate.dialects.pipeline import ON_PROGRAMS
from serrate.dialects.ptensor import CLASSES, OPERATIONS
from serrate.dialects.texts import Module, TextError, parse
from serrate.dialects.to_text import module_of, module_of_all
from serrate.opt import main
from serrate.passes import explicit_writes, inline_calls

T = "!ptensor.ptensor<3 x f32>"
WRITTEN = (
    f"""func.func @main(%x: {T}, %v: {T}) -> ({T}, {T}, {T}) {{
  %before = "ptensor.elementwise_unary_op"(%x) {{euop = "exp"}} : ({T}) -> {T}
  "ptensor.insert_slice"(%x, %v) {{slice = #ptensor.term<slice(0, 2, none)>}} : ({T}, {T}) -> ()
  %after = "ptensor.elementwise_unary_op"(%x) {{euop = "exp"}} : ({T}) -> {T}
  "ptensor.delete"(%v) : ({T}) -> ()
  func.return %before, %after, %x : {T}, {T}, {T}
}}
""".replace(f"({T}, {T}) -> ()", f"({T}, !ptensor.ptensor<2 x f32>) -> ()")
    .replace(f"%v: {T}", "%v: !ptensor.ptensor<2 x f32>")
    .replace(f'"ptensor.delete"(%v) : ({T})', '"ptensor.delete"(%v) : (!ptensor.ptensor<2 x f32>)')
)
OPS = ["exp", "Tensor.setitem", "exp", "delete"]


def expected() -> list[torch.Tensor]:
    """What the function above gives, by torch."""
    x = torch.tensor([1.0, 2.0, 3.0])
    before = x.exp()
    x[0:2] = torch.tensor([5.0, 6.0])
    return [before, x.exp(), x]


def inputs() -> list[sr.Tensor]:
    return [sr.asarray(torch.tensor([1.0, 2.0, 3.0])), sr.asarray(torch.tensor([5.0, 6.0]))]


def test_a_write_is_read_where_it_stands() -> None:
    program = program_of(parse(WRITTEN))
    assert [each.op for each in program.instructions] == OPS
    again = str(module_of(program))
    assert program_of(parse(again)) == program
    given = inputs()
    for made, right in zip(runnable(program).run(*given), expected(), strict=True):
        torch.testing.assert_close(made.values, right)
    assert given[0].tolist() == [1.0, 2.0, 3.0]  # the caller's own tensor is not written to
    explicit = explicit_writes.run(program)
    assert [each.op for each in explicit.instructions] == OPS[:3]
    assert program_of(parse(str(module_of(explicit)))) == explicit


@pytest.mark.parametrize("name", ["dead-code", "common-subexpressions"])
def test_passes_leave_writes_and_deletions_in_their_places(name: str) -> None:
    programs = programs_of(parse(WRITTEN))
    assert ON_PROGRAMS[name][0](programs) == programs
    unread = WRITTEN.replace("%before, %after, %x : ", "%v, %v, %v : ")
    unread = unread.replace(f"{T}, {T}, {T}\n", "T, T, T\n").replace(f"({T}, {T}, {T})", "(T, T, T)")
    unread = unread.replace("T, T, T", ", ".join(["!ptensor.ptensor<2 x f32>"] * 3))
    unread = "\n".join(line for line in unread.splitlines() if "delete" not in line)
    kept = ON_PROGRAMS[name][0](programs_of(parse(unread)))["main"].instructions
    assert "Tensor.setitem" in [each.op for each in kept]
    assert len(kept) == (1 if name == "dead-code" else 3)


def test_equal_reads_between_two_writes_are_one_and_written_values_stay_apart() -> None:
    exp = f'"ptensor.elementwise_unary_op"(%x) {{euop = "exp"}} : ({T}) -> {T}'
    fill = f'"ptensor.insert_slice"(%NAME) {{slice = 0 : i64, lhs = 7 : i64}} : ({T}) -> ()'
    text = f"""func.func @main(%x: {T}) -> ({T}, {T}, {T}, {T}) {{
      %a = {exp}
      %b = {exp}
      {fill.replace("NAME", "x")}
      %c = {exp}
      %d = {exp}
      %e = {exp}
      {fill.replace("NAME", "d")}
      %s = "ptensor.elementwise_binary_op"(%a, %b) {{ebop = "add"}} : ({T}, {T}) -> {T}
      %t = "ptensor.elementwise_binary_op"(%c, %e) {{ebop = "add"}} : ({T}, {T}) -> {T}
      func.return %s, %t, %d, %x : {T}, {T}, {T}, {T}
    }}"""
    programs = programs_of(parse(text))
    short = ON_PROGRAMS["common-subexpressions"][0](programs)
    assert [each.op for each in short["main"].instructions] == [
        *("exp", "Tensor.setitem", "exp", "exp", "Tensor.setitem"), "add", "add",
    ]  # fmt: skip
    x = torch.tensor([1.0, 2.0, 3.0])
    y = torch.tensor([7.0, 2.0, 3.0])
    right = [2 * x.exp(), 2 * y.exp(), torch.cat([torch.tensor([7.0]), y.exp()[1:]]), y]
    for each in (programs, short):
        for made, wanted in zip(runnable(each["main"]).run(sr.asarray(x)), right, strict=True):
            torch.testing.assert_close(made.values, wanted)


def test_xdsls_own_passes_keep_the_order_too() -> None:
    module = parse(WRITTEN).module
    CommonSubexpressionElimination().apply(Context(), module)
    DeadCodeElimination().apply(Context(), module)
    program = program_of(Module(module))
    assert [each.op for each in program.instructions] == OPS


def test_every_operation_says_what_it_does_to_memory() -> None:
    writes = {name for name, each in CLASSES.items() if each.effect == "write"}
    assert writes == {"insert_slice", "delete"}
    assert {name for name, each in CLASSES.items() if each.effect == "none"} == {
        *("arange", "create", "create_like", "eye", "linspace", "rank", "shape", "size", "result_type")
    }
    for name in CLASSES:
        assert get_effects(OPERATIONS[name].create()) is not None
    text = """"ptensor.call"() {callee = "random.uniform", arguments = #ptensor.term<tuple(3)>}
        : () -> !ptensor.ptensor<3 x f32>"""
    (drawn,) = parse(text).module.ops
    assert {each.kind for each in get_effects(drawn) or ()} == {MemoryEffectKind.WRITE}


DELETES = f"""func.func @main(%x: {T}, %y: {T}) -> {T} {{
  "ptensor.delete"(%x) : ({T}) -> ()
  %z = "ptensor.elementwise_unary_op"(%NAME) {{euop = "exp"}} : ({T}) -> {T}
  func.return %z : {T}
}}
"""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (DELETES.replace("NAME", "x"), "file.mlir:3:3: %x is used after it was deleted at file.mlir:2:3"),
        (
            DELETES.replace("NAME", "y").replace("return %z", "return %x"),
            "file.mlir:4:3: %x is returned, though it was deleted at file.mlir:2:3",
        ),
        (
            DELETES.replace("NAME", "y").replace("  func", f'  "ptensor.delete"(%x) : ({T}) -> ()\n  func'),
            "file.mlir:4:3: %x is deleted again after it was deleted at file.mlir:2:3",
        ),
        (
            DELETES.replace("NAME", "y").replace("@main", "@gone")
            + f"func.func @main(%a: {T}) -> {T} {{\n  %b = func.call @gone(%a, %a) : ({T}, {T}) -> {T}\n"
            f"  func.return %b : {T}\n}}",
            "file.mlir:7:3: %a is given to @gone twice, which deletes its operand 0",
        ),
        (
            DELETES.replace("NAME", "y").replace("@main", "@gone")
            + f"func.func @main(%a: {T}, %b: {T}) -> {T} {{\n  %c = func.call @gone(%a, %b) : ({T}, {T}) -> {T}\n"
            f"  func.return %a : {T}\n}}",
            "file.mlir:8:3: %a is returned, though it was deleted at file.mlir:7:3",
        ),
        (DELETES.replace("NAME", "y").replace('delete"(%x) : (', 'delete"() : (').replace(f"({T}) -> ()", "() -> ()"),
         "file.mlir:2:3: ptensor.delete has 1 operand and no results, got 0 and 0"),
    ],
)  # fmt: skip
def test_what_was_deleted_is_not_used(text: str, message: str) -> None:
    with pytest.raises(TextError) as caught:
        programs_of(parse(text, "file.mlir"))
    assert str(caught.value) == message


def test_a_function_that_is_called_writes_to_what_it_is_given() -> None:
    text = f"""
    func.func @fill(%x: {T}) {{
      "ptensor.insert_slice"(%x) {{slice = 0 : i64, lhs = 7 : i64}} : ({T}) -> ()
      func.return
    }}
    func.func @main(%x: {T}) -> ({T}, {T}) {{
      %a = "ptensor.elementwise_unary_op"(%x) {{euop = "exp"}} : ({T}) -> {T}
      func.call @fill(%x) : ({T}) -> ()
      %b = "ptensor.elementwise_unary_op"(%x) {{euop = "exp"}} : ({T}) -> {T}
      func.return %a, %b : {T}, {T}
    }}
    """
    programs = programs_of(parse(text))
    for name in ("dead-code", "common-subexpressions", "inline-calls", "common-subexpressions", "dead-code"):
        programs = ON_PROGRAMS[name][0](programs)
        assert programs_of(parse(str(module_of_all(programs)))) == programs
        x = sr.asarray(torch.tensor([1.0, 2.0, 3.0]))
        one, two = runnable(inline_calls.inlined(programs["main"], programs)).run(x)
        torch.testing.assert_close(one.values, torch.tensor([1.0, 2.0, 3.0]).exp())
        torch.testing.assert_close(two.values, torch.tensor([7.0, 2.0, 3.0]).exp())


def test_the_command_runs_and_differentiates_programs_with_writes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, given = tmp_path / "written.mlir", tmp_path / "inputs.safetensors"
    file.write_text(WRITTEN)
    save_file(dict(zip("xv", (each.values for each in inputs()), strict=True)), given)
    right = "\n".join(str(sr.asarray(each)) for each in expected()) + "\n"
    for passes in ([], ["--pass", "explicit-writes"], ["--pass", "common-subexpressions"]):
        assert main([str(file), *passes, "--verify-each", "--run", str(given)]) == 0
        assert capsys.readouterr().out == right
    assert main([str(file), "--pass", "vjp", "--verify-each"]) == 0
    back = programs_of(parse(capsys.readouterr().out))["main_back"]
    assert len(back.results) == 2
