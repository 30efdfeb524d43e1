"""Calls between functions of one module: read, written, inlined and run; each is compared with calls of Python's."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from tests.compiler.harness import packed
from tests.compiler.programs import BATCHES, batch, drawn
from tests.dialects.traced import traced

import serrate as sr
from serrate.compiler.compiling import runnable
from serrate.dialects.from_text import programs_of
from serrate.dialects.pipeline import ON_PROGRAMS
from serrate.dialects.texts import TextError, parse
from serrate.dialects.to_text import module_of, module_of_all
from serrate.opt import main
from serrate.passes import inline_calls
from serrate.program.program import Instruction, Program, replaced
from serrate.program.types import Value

X = sr.from_lengths(torch.linspace(-1, 1, 6), [3, 0, 2, 1])
Y = sr.from_lengths(torch.linspace(0, 3, 5), [1, 4])


def head(x: sr.Tensor) -> sr.Tensor:
    return sr.softmax(x[:, :2] * 2.0, axis=1)


def function_of(python: object, *operands: object, name: str) -> str:
    """The text of a function that is traced, without the module around it."""
    lines = str(module_of(traced(python, *operands), name)).splitlines()  # type: ignore[arg-type]
    return "\n".join(lines[1:-1])


HEAD = function_of(head, X, name="head")
RAGGED = "!ptensor.ptensor<{} x @{} x f32>"
N, M = RAGGED.format("n0", "p0"), RAGGED.format("n1", "p1")
CUT_N, CUT_M = RAGGED.format("n0", "p2"), RAGGED.format("n1", "p3")
TWO = f"""
func.func @main(%x: {N}, %y: {M}) -> (!ptensor.ptensor<n0 x f32>, {CUT_M}) attributes {{ptensor.partitions = [
    #ptensor.partition<name = @p0, of = input("p0"), components = n0>,
    #ptensor.partition<name = @p1, of = input("p1"), components = n1>,
    #ptensor.partition<name = @p2, of = at_most(@p0, 2), components = n0>,
    #ptensor.partition<name = @p3, of = at_most(@p1, 2), components = n1>]}} {{
  %one = func.call @head(%x) : ({N}) -> {CUT_N}
  %two = func.call @head(%y) : ({M}) -> {CUT_M}
  %sum = "ptensor.reduce"(%one) {{rop = "sum", axis = 1}} : ({CUT_N}) -> !ptensor.ptensor<n0 x f32>
  func.return %sum, %two : !ptensor.ptensor<n0 x f32>, {CUT_M}
}}
"""


def read(text: str) -> dict[str, Program]:
    """The programs of a text, which is the same after it is read and written twice."""
    programs = programs_of(parse(text, "file.mlir"))
    again = str(module_of_all(programs))
    assert programs_of(parse(again)) == programs
    assert str(module_of_all(programs_of(parse(again)))) == again
    return programs


def ran(text: str, *given: sr.Tensor) -> list[sr.Tensor]:
    programs = read(text)
    made = runnable(inline_calls.inlined(programs["main"], programs)).run(*given)
    return list(made) if isinstance(made, tuple) else [made]


def test_a_function_that_is_called_twice_gives_what_pythons_gives() -> None:
    one, two = ran(HEAD + TWO, X, Y)
    torch.testing.assert_close(one.values, sr.sum(head(X), axis=1).values)
    torch.testing.assert_close(two.values, head(Y).values)
    assert two.shape == head(Y).shape
    programs = read(HEAD + TWO)
    assert [each.op for each in programs["main"].instructions] == ["@head", "@head", "sum"]
    inlined = inline_calls.run(programs)
    assert list(inlined) == ["main"]
    assert [each.op for each in inlined["main"].instructions] == [
        *["Tensor.getitem", "multiply", "softmax"] * 2, "sum",
    ]  # fmt: skip
    read(str(module_of_all(inlined)))  # the types are right, too


def test_calls_of_calls_and_functions_of_several_results() -> None:
    kind = "!ptensor.ptensor<{} x f32>"
    text = f"""
    func.func @pair(%a: {kind.format("n0")}, %b: {kind.format("n0")}) -> ({kind.format("n0")}, {kind.format("n0")}) {{
      %s = "ptensor.elementwise_binary_op"(%a, %b) {{ebop = "add"}}
        : ({kind.format("n0")}, {kind.format("n0")}) -> {kind.format("n0")}
      func.return %s, %a : {kind.format("n0")}, {kind.format("n0")}
    }}
    func.func @deep(%a: {kind.format("n0")}) -> {kind.format("n0")} {{
      %p, %q = func.call @pair(%a, %a) : ({kind.format("n0")}, {kind.format("n0")})
        -> ({kind.format("n0")}, {kind.format("n0")})
      %r, %s = func.call @pair(%p, %q) : ({kind.format("n0")}, {kind.format("n0")})
        -> ({kind.format("n0")}, {kind.format("n0")})
      func.return %r : {kind.format("n0")}
    }}
    func.func @main(%a: {kind.format("3")}) -> {kind.format("3")} {{
      %p = func.call @deep(%a) : ({kind.format("3")}) -> {kind.format("3")}
      func.return %p : {kind.format("3")}
    }}
    """
    (made,) = ran(text, sr.asarray(torch.tensor([1.0, 2.0, 4.0])))
    assert made.tolist() == [3.0, 6.0, 12.0]


def test_what_a_call_makes_may_have_any_name() -> None:
    chosen = function_of(lambda x: x[x > 0.0], X, name="chosen")
    kept = RAGGED.format("n0", "kept")
    text = f"""
    func.func @main(%x: {N}) -> {kept} attributes {{ptensor.partitions = [
        #ptensor.partition<name = @p0, of = input("p0"), components = n0>,
        #ptensor.partition<name = @kept, of = result("kept"), components = n0>]}} {{
      %y = func.call @chosen(%x) : ({N}) -> {kept}
      %z = "ptensor.elementwise_unary_op"(%y) {{euop = "exp"}} : ({kept}) -> {kept}
      func.return %z : {kept}
    }}
    """
    (result,) = ran(chosen + text, X)
    assert [len(row) for row in result.tolist()] == [sum(each > 0 for each in row) for row in X.tolist()]
    torch.testing.assert_close(result.values, X.values[X.values > 0].exp())
    with pytest.raises(TextError, match=r"result 0 of @chosen is .* the exact of the partition"):
        read(chosen + text.replace('result("kept")', 'result("kept"), exact = false'))


def test_sizes_that_a_function_finds_are_numbers_where_its_operands_are_known() -> None:
    head = "!ptensor.ptensor<sliced(size(n0), bounds(none, 5, none)) x f32>"
    text = f"""
    func.func @start(%x: !ptensor.ptensor<n0 x f32>) -> ({head}, {head}) {{
      %h = "ptensor.extract_slice"(%x) {{slice = #ptensor.term<slice(none, 5, none)>}}
        : (!ptensor.ptensor<n0 x f32>) -> {head}
      %o = "ptensor.create"() {{kind = "ones",
        shape = #ptensor.term<tuple(size(sliced(size(n0), bounds(none, 5, none))))>}} : () -> {head}
      func.return %h, %o : {head}, {head}
    }}
    func.func @main(%x: !ptensor.ptensor<3 x f32>, %y: !ptensor.ptensor<n0 x f32>)
      -> (!ptensor.ptensor<3 x f32>, !ptensor.ptensor<few x f32>) {{
      %a, %b = func.call @start(%x) : (!ptensor.ptensor<3 x f32>)
        -> (!ptensor.ptensor<3 x f32>, !ptensor.ptensor<3 x f32>)
      %c, %d = func.call @start(%y) : (!ptensor.ptensor<n0 x f32>)
        -> (!ptensor.ptensor<few x f32>, !ptensor.ptensor<few x f32>)
      %z = "ptensor.create"() {{kind = "ones", shape = #ptensor.term<tuple(size(few))>}}
        : () -> !ptensor.ptensor<few x f32>
      %s = "ptensor.elementwise_binary_op"(%c, %z) {{ebop = "add"}}
        : (!ptensor.ptensor<few x f32>, !ptensor.ptensor<few x f32>) -> !ptensor.ptensor<few x f32>
      func.return %b, %s : !ptensor.ptensor<3 x f32>, !ptensor.ptensor<few x f32>
    }}
    """
    for count in (2, 8):
        y = torch.rand(count)
        ones, more = ran(text, sr.asarray(torch.rand(3)), sr.asarray(y))
        assert ones.tolist() == [1.0] * 3
        torch.testing.assert_close(more.values, y[:5] + 1)


ONE = f"""
func.func @main(%x: {N}) -> {N} attributes {{ptensor.partitions = [
    #ptensor.partition<name = @p0, of = input("p0"), components = n0>]}} {{
  %y = func.call @one(%x) : ({N}) -> {N}
  func.return %y : {N}
}}
"""
SPLIT = ONE.replace("%y = func.call @one", "%y, %z = func.call @head").replace(f"> {N}\n", f"> ({N}, {N})\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (ONE, "3:3: there is no function @one in the module"),
        (
            ONE.replace("@one", "@main"),
            "3:3: a function may not call itself, and @main calls @main",
        ),
        (
            ONE + ONE.replace("@main", "@one").replace("call @one", "call @main"),
            "9:3: a function may not call itself, and @main calls @one calls @main",
        ),
        (
            HEAD + TWO.replace(f"@head(%x) : ({N})", f"@head(%x, %y) : ({N}, {M})"),
            "the call of @head has 2 operands, and the function 1",
        ),
        (
            HEAD + SPLIT,
            "the call of @head has 2 results, and the function 1",
        ),
        (HEAD + ONE.replace("@one", "@head").replace("f32", "f64"), "its dtype is torch.float64, and not"),
        (HEAD + ONE.replace("@one", "@head"), "result 0 of @head is !ptensor.ptensor<n0 x @p1 x f32> with"),
        (HEAD + ONE.replace("@one", "@head").replace("components = n0", "components = n0, exact = false"),
         "the exact of the partition p0 is False, and not True"),
    ],
)  # fmt: skip
def test_a_call_that_does_not_fit_is_named_with_its_place(text: str, message: str) -> None:
    with pytest.raises(TextError) as caught:
        programs_of(parse(text.lstrip("\n"), "file.mlir"))
    assert message in str(caught.value)
    assert str(caught.value).startswith("file.mlir:")


def test_sizes_of_a_function_that_are_equal_have_to_be_equal_where_it_is_called() -> None:
    text = """
    func.func @add(%a: !ptensor.ptensor<n0 x f32>, %b: !ptensor.ptensor<n1 x f32>) -> !ptensor.ptensor<n0 x f32>
      attributes {ptensor.guards = [#ptensor.term<equal(size(n0), size(n1))>]} {
      %s = "ptensor.elementwise_binary_op"(%a, %b) {ebop = "add"}
        : (!ptensor.ptensor<n0 x f32>, !ptensor.ptensor<n1 x f32>) -> !ptensor.ptensor<n0 x f32>
      func.return %s : !ptensor.ptensor<n0 x f32>
    }
    func.func @main(%a: !ptensor.ptensor<3 x f32>, %b: !ptensor.ptensor<n1 x f32>) -> !ptensor.ptensor<3 x f32>
      attributes {GUARDS} {
      %s = func.call @add(%a, %b) : (!ptensor.ptensor<3 x f32>, !ptensor.ptensor<n1 x f32>) -> !ptensor.ptensor<3 x f32>
      func.return %s : !ptensor.ptensor<3 x f32>
    }
    """
    with pytest.raises(TextError, match=r"file.mlir:10:7: @add needs the guard 3 == n1, which ptensor.guards does not"):
        read(text.replace("GUARDS", ""))
    said = text.replace("GUARDS", "ptensor.guards = [#ptensor.term<equal(3, size(n1))>]")
    one, other = torch.rand(3), torch.rand(3)
    (made,) = ran(said, sr.asarray(one), sr.asarray(other))
    torch.testing.assert_close(made.values, one + other)


def test_sizes_of_one_name_are_one_number() -> None:
    text = """
    func.func @both(%a: !ptensor.ptensor<n0 x f32>, %b: !ptensor.ptensor<n0 x f32>) {
      func.return
    }
    func.func @main(%a: !ptensor.ptensor<3 x f32>, %b: !ptensor.ptensor<4 x f32>) {
      func.call @both(%a, %A) : (!ptensor.ptensor<3 x f32>, !ptensor.ptensor<N x f32>) -> ()
      func.return
    }
    """
    read(text.replace("%A", "%a").replace("N x", "3 x"))
    with pytest.raises(TextError, match=r"operand 1 of @both .* a size is 4, and not n0, which is 3"):
        read(text.replace("%A", "%b").replace("N x", "4 x"))


def test_the_command_runs_and_differentiates_functions_that_call(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, inputs = tmp_path / "two.mlir", tmp_path / "inputs.safetensors"
    file.write_text(HEAD + TWO)
    save_file({"x": X.values, "p0": X.offsets[0], "y": Y.values, "p1": Y.offsets[0]}, inputs)
    shown = f"{sr.sum(head(X), axis=1)}\n{head(Y)}\n"
    for passes in ([], ["--pass", "inline-calls"], ["--pass", "dead-code", "--pass", "common-subexpressions"]):
        assert main([str(file), *passes, "--verify-each", "--run", str(inputs)]) == 0
        assert capsys.readouterr().out == shown
    assert main([str(file), "--pass", "vjp", "--verify-each"]) == 0
    programs = programs_of(parse(capsys.readouterr().out))
    assert list(programs) == ["main", "main_back"]
    assert [each.type for each in programs["main_back"].results] == [each.type for each in programs["main"].inputs]


def test_gradients_flow_through_calls_and_writes() -> None:
    kind = "!ptensor.ptensor<3 x f32>"
    text = f"""
    func.func @fill(%x: {kind}, %v: !ptensor.ptensor<f32>) {{
      "ptensor.insert_slice"(%x, %v) {{slice = 1 : i64}} : ({kind}, !ptensor.ptensor<f32>) -> ()
      func.return
    }}
    func.func @main(%x: {kind}, %v: !ptensor.ptensor<f32>) -> {kind} {{
      %y = "ptensor.elementwise_unary_op"(%x) {{euop = "exp"}} : ({kind}) -> {kind}
      %z = "ptensor.elementwise_binary_op"(%y, %x) {{ebop = "multiply"}} : ({kind}, {kind}) -> {kind}
      func.call @fill(%z, %v) : ({kind}, !ptensor.ptensor<f32>) -> ()
      %w = "ptensor.elementwise_binary_op"(%z, %x) {{ebop = "multiply"}} : ({kind}, {kind}) -> {kind}
      func.return %w : {kind}
    }}
    """
    both = ON_PROGRAMS["vjp"][0](read(text))
    x, v, g = torch.rand(3, requires_grad=True), torch.tensor(0.5, requires_grad=True), torch.rand(3)
    z = x.exp() * x
    right = torch.stack([z[0], v, z[2]]) * x
    given = [sr.asarray(each.detach()) for each in (x, v)]
    made, saved, keys = runnable(both["main"]).run(*given)
    torch.testing.assert_close(made.values, right.detach())
    assert keys == ()
    found = runnable(both["main_back"]).run(*saved, sr.asarray(g))
    for one, other in zip(found, torch.autograd.grad(right, (x, v), g), strict=True):
        torch.testing.assert_close(one.values, other)


@pytest.mark.parametrize("seed", range(30))
def test_random_programs_that_are_called(seed: int) -> None:
    """The function is traced for sizes that are not known, and is called with tensors of known sizes. What its results
    are then is what a trace for known sizes finds."""
    drawing = drawn(seed, most=8)
    given = batch(drawing, BATCHES[seed % len(BATCHES)])
    called, known = (traced(drawing.function(), *given, is_static=static) for static in (False, True))
    results = [Value(each.type, f"r{number}") for number, each in enumerate(known.results)]
    counted = iter(results)
    outputs = replaced(known.outputs, lambda part: next(counted) if isinstance(part, Value) else part)
    call = Instruction("@f", known.inputs, (), outputs)
    programs = {"f": called, "main": Program(known.inputs, (call,), outputs, known.guards)}
    text = str(module_of_all(programs))
    assert programs_of(parse(text)) == programs
    inlined = inline_calls.run(programs_of(parse(text)))["main"]
    assert [each.type for each in inlined.results] == [each.type for each in results]
    assert [each.op for each in inlined.instructions] == [each.op for each in called.instructions]
    with torch.no_grad():
        for one, other in zip(runnable(inlined).run(*given), drawing.function()(*given), strict=True):
            torch.testing.assert_close(packed(one), packed(other), equal_nan=True)
