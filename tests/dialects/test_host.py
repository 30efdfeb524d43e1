"""lower-ptensor: what becomes of every record and of random programs, which run as before."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from tests.compiler.harness import packed
from tests.compiler.programs import BATCHES, batch, drawn
from tests.compiler.test_every_operation import samples_of
from tests.dialects.groups import GOLDENS, GROUPS, texts
from tests.dialects.test_round_trips import UNTRACED
from tests.dialects.traced import differentiated, traced
from tests.ops.samples import DTYPES
from xdsl.ir import Operation

import serrate as sr
from serrate.compiler.compiling import runnable
from serrate.dialects import lower_ptensor
from serrate.dialects.attributes import PTensor
from serrate.dialects.from_host import is_of_teams, program_read
from serrate.dialects.from_text import programs_of
from serrate.dialects.pipeline import check
from serrate.dialects.ptensor import CLASSES, OPERATIONS
from serrate.dialects.texts import Module, TextError, parse
from serrate.dialects.to_text import module_of
from serrate.ops.record import TABLE
from serrate.program.program import Program
from serrate.program.types import Value


def lowered(program: Program) -> Module:
    """A program after lower-ptensor: nothing of ptensor is left, and its text is a module with the same text."""
    module = lower_ptensor.run(module_of(program))
    text = str(module)
    again = parse(text)
    assert str(again) == text
    for each in again.module.walk():
        assert_lowered(each)
    return again


def assert_lowered(operation: Operation) -> None:
    assert operation.name.partition(".")[0] in ("builtin", "func", "arith", "host", "region", "dist")
    inside = [arg.type for part in operation.regions for block in part.blocks for arg in block.args]
    for kind in (*inside, *(each.type for each in operation.results)):
        assert not isinstance(kind, PTensor)


@pytest.mark.parametrize("name", TABLE)
def test_nothing_of_ptensor_is_left_of_any_record(name: str) -> None:
    op, count = TABLE[name], 0
    for _, function, operands in samples_of(op, ["features"], DTYPES[op.kinds[0]][0]):
        try:
            program = traced(function, *operands)
        except UNTRACED:
            try:
                program = traced(function, *operands, is_static=True)
            except UNTRACED:  # it runs eagerly
                continue
        count += 1
        read = program_read(lowered(program), "main")
        assert [each.type for each in read.inputs] == [each.type for each in program.inputs]
        assert [each.type for each in read.results] == [each.type for each in program.results]
    assert count or name in ("split", "Grouped.ungroup")


@pytest.mark.parametrize("seed", range(12))
def test_random_programs_run_as_before(seed: int) -> None:
    drawing = drawn(seed, most=10)
    given = batch(drawing, BATCHES[seed % len(BATCHES)])
    program = traced(drawing.function(), *given)
    read = program_read(lowered(program), "main")
    with torch.no_grad():
        for one, other in zip(runnable(read).run(*given), drawing.function()(*given), strict=True):
            torch.testing.assert_close(packed(one), packed(other), equal_nan=True)
    if any(each.type.dtype.is_floating_point for each in program.inputs):
        for half in differentiated(program):
            lowered(half)


@pytest.mark.parametrize("group", GROUPS)
def test_goldens(group: str) -> None:
    for name, text in texts(group).items():
        assert (GOLDENS / name).read_text() == text, f"{name} is not what is written now; `make goldens` writes it anew"


CALLED = {"insert_slice", "ungroup"}
"""Classes whose operations a traced program has as calls: of functions that write to nothing, and of a method."""


def test_goldens_have_every_class_that_a_record_belongs_to() -> None:
    goldens = "".join((GOLDENS / f"{group}.mlir").read_text() for group in GROUPS)
    written = {name for name in CLASSES if f'"ptensor.{name}"' in goldens}
    assert written | CALLED >= {op.dialect.of for op in TABLE.values() if op.dialect is not None}
    assert set(OPERATIONS) == set(CLASSES)


MISTAKES = {
    "the block of host.fused has values of the types tensor<2xf32>, and is given none": """
        %0 = "host.fused"() ({
        ^bb0(%x: tensor<2xf32>):
          "host.yield"(%x) : (tensor<2xf32>) -> ()
        }) : () -> tensor<2xf32>""",
    "host.fused has results of the types tensor<2xf32>, and its block yields none": """
        %0 = "host.fused"() ({
          "host.yield"() : () -> ()
        }) : () -> tensor<2xf32>""",
    "host.fused holds calls, got host.alloc": """
        "host.fused"() ({
          %0 = "host.alloc"() : () -> tensor<2xf32>
          "host.yield"() : () -> ()
        }) : () -> ()""",
    'a call says what it calls: callee = "name"': '%0 = "host.call"() : () -> tensor<2xf32>',
    'a start names its device: device = "name"': '%0 = "host.start"() : () -> !host.stream',
    'a region names its device: device = "name"': """
        "region.device_region"() ({
          "region.yield"() : () -> ()
        }) : () -> ()""",
    "a region of the device b stands inside of a region of a; regions are never nested": """
        region.device_region("a") {
          region.device_region("b") {
          }
        }""",
    "dist.init_dtensor has the operands team, *shape, got 0": '%0 = "dist.init_dtensor"() : () -> i64',
    "dist.local_slice has the results *slice, got 2": """
        %t = arith.constant 1 : i64
        %0, %1 = "dist.local_slice"(%t, %t) : (i64, i64) -> (index, index)""",
    "dist.finalize_reduce has no kind None; there are sum, prod, max, min, any, all": """
        %t = arith.constant 1 : i64
        %x = "host.alloc"() : () -> tensor<2xf32>
        "dist.finalize_reduce"(%t, %t, %x) : (i64, i64, tensor<2xf32>) -> ()""",
    "dist.fini_dtensor has the operands team, dtensor_id; number 1 has the type index": """
        %t = arith.constant 1 : i64
        %i = arith.constant 1 : index
        "dist.fini_dtensor"(%t, %i) : (i64, index) -> ()""",
}


@pytest.mark.parametrize("message", MISTAKES)
def test_mistakes_are_found_where_they_are(message: str) -> None:
    with pytest.raises(TextError) as found:
        parse(f"func.func @f() {{\n{MISTAKES[message]}\nfunc.return\n}}", "f.mlir")
    assert message in str(found.value)
    assert str(found.value).startswith("f.mlir:")


def test_a_layout_is_that_of_its_tensor() -> None:
    text = "func.func @f(%x: tensor<2xf32, #host.layout<n0 x @p0 x 8 x f32>>) {\n"
    partitions = '{host.partitions = [#ptensor.partition<name = @p0, of = input("p0"), components = n0>]}'
    call = '"host.call"(%x) {callee = "exp"} : (tensor<2xf32, #host.layout<n0 x @p0 x 8 x f32>>) -> ()\nfunc.return\n}'
    with pytest.raises(TextError, match=r"a tensor of this layout is tensor<\?x8xf32, .*, got tensor<2xf32"):
        program_read(parse(text.replace("{\n", f"attributes {partitions} {{\n") + call), "f")


def test_what_is_lowered_is_not_lowered_again() -> None:
    module = lowered(traced(lambda x: x + 1, torch.ones(3)))
    with pytest.raises(TextError, match="is lowered already"):
        lower_ptensor.run(module)


TEXTS = {
    "f.mlir:1:1: a module of functions is expected, and the text is empty": "// nothing\n",
    "f.mlir:2:1: the module has another function @f already": "func.func @f() { func.return }\n" * 2,
    "f.mlir:2:3: host.call reads %y, which is made behind it": """func.func @f(%x: tensor<2xf32>) {
  "host.call"(%y) {callee = "exp"} : (tensor<2xf32>) -> ()
  %y = "host.call"(%x) {callee = "exp"} : (tensor<2xf32>) -> tensor<2xf32>
  func.return
}""",
    "f.mlir:4:5: host.call reads %z, which is made behind it": """func.func @f(%x: tensor<2xf32>) -> tensor<2xf32> {
  %y = "host.fused"(%x) ({
  ^bb0(%a: tensor<2xf32>):
    %b = "host.call"(%z) {callee = "exp"} : (tensor<2xf32>) -> tensor<2xf32>
    %z = "host.call"(%a) {callee = "exp"} : (tensor<2xf32>) -> tensor<2xf32>
    "host.yield"(%b) : (tensor<2xf32>) -> ()
  }) : (tensor<2xf32>) -> tensor<2xf32>
  func.return %y : tensor<2xf32>
}""",
}


TEXTS["f.mlir:1:18: result 'made' at position 0 does not verify: tensor"] = (
    'func.func @f() { %d = "host.constant"() : () -> tensor<2xf32>\nfunc.return }'
)


@pytest.mark.parametrize("message", TEXTS)
def test_texts_that_are_no_modules(message: str) -> None:
    with pytest.raises(TextError, match=message):
        parse(TEXTS[message], "f.mlir")


@pytest.mark.parametrize("kind", ["!ptensor.ptensor<2 x f32>", "tensor<2xf32>"])
def test_a_call_of_what_there_is_not(kind: str) -> None:
    name = "ptensor.call" if "ptensor" in kind else "host.call"
    text = f'func.func @f(%x: {kind}) {{\n"{name}"(%x) {{callee = "exponential"}} : ({kind}) -> ()\nfunc.return\n}}'
    with pytest.raises(TextError, match=r"f.mlir:2:1: there is no operation exponential, and the call names no"):
        program_read(parse(text, "f.mlir"), "f")


def test_a_function_without_a_body_is_no_program() -> None:
    declared = "func.func private @g(tensor<2xf32>) -> tensor<2xf32>"
    text = f"{declared}\nfunc.func @f(%x: tensor<2xf32>) {{\nfunc.call @g(%x) : (tensor<2xf32>) -> tensor<2xf32>\n"
    module = parse(text.replace("\nfunc.call", "\n%y = func.call") + "func.return\n}", "f.mlir")
    assert not is_of_teams(module, "f")
    with pytest.raises(TextError, match=r"f.mlir:1:1: a program is one block of operations, got 0"):
        program_read(module, "f")


def test_something_else_than_functions_is_refused_beside_lowered_ones() -> None:
    text = "%c = arith.constant 1 : i64\nfunc.func @f(%x: tensor<2xf32>) { func.return }"
    with pytest.raises(TextError, match=r"f.mlir:1:1: a module has functions, and no arith.constant"):
        check(parse(text, "f.mlir"))


@pytest.mark.parametrize("function", [lambda x: x, lambda x: (x, x), lambda x: None])
def test_what_gives_its_argument_or_nothing_is_read_again(function: Callable[[sr.Tensor], object]) -> None:
    program = traced(function, sr.ragged([[1.0], [], [2.0, 3.0]]))
    assert program_read(lowered(program), "main") == program


def test_names_that_no_value_may_have_are_kept() -> None:
    value = Value(traced(lambda x: x, torch.ones(3)).inputs[0].type, "x-1 of all")
    program = Program((value,), (), value)
    assert program_read(lowered(program), "main").inputs == (value,)


def test_functions_that_call_each_other_too_often() -> None:
    kind = "!ptensor.ptensor<2 x f32>"
    called = "\n".join(
        f"func.func @f{each}(%x: {kind}) -> {kind} {{\n%y = func.call @f{each + 1}(%x) : ({kind}) -> {kind}\n"
        f"func.return %y : {kind}\n}}"
        for each in range(1000)
    )
    module = parse(f"{called}\nfunc.func @f1000(%x: {kind}) -> {kind} {{\nfunc.return %x : {kind}\n}}", "f.mlir")
    with pytest.raises(TextError, match=r"f.mlir:\d+:1: @f\d+ is called by a function that is called by others"):
        programs_of(module)
