"""Programs as modules: one function, whose operations are the instructions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import Parameter
from typing import Any

import torch
from xdsl.dialects.builtin import ArrayAttr, BoolAttr, FileLineColLoc, IntAttr, IntegerAttr, ModuleOp, StringAttr, i64
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from serrate.dialects import own
from serrate.dialects.attributes import PartitionAttr, TermAttr
from serrate.dialects.calls import ABOUT, CallOp
from serrate.dialects.objects import FALSE, TRUE, CannotWrite, Scope
from serrate.dialects.ptensor import CLASSES, FURTHER, OPERATIONS
from serrate.dialects.terms import Node, Term, quoted
from serrate.dialects.texts import Module
from serrate.ops.record import TABLE, Form, Op
from serrate.program.program import Instruction, Program, values_in
from serrate.program.types import Value


def module_of(program: Program, name: str = "main") -> Module:
    """The module of a program. `CannotWrite` is raised for what has no text, such as a function of the user's.

    >>> import serrate as sr
    >>> from serrate.dialects.to_text import module_of
    >>> from serrate.program.inputs import Inputs
    >>> from serrate.program.program import Instruction, Program
    >>> from serrate.program.types import Value
    >>> kind = Inputs().type_of(sr.ragged([[1., 2.], []]))
    >>> x, y = Value(kind, "x"), Value(kind, "y")
    >>> module = module_of(Program((x,), (Instruction("exp", (x,), (), y),), y))
    >>> print(str(module).splitlines()[2].strip().partition(" -> ")[0])
    %y = "ptensor.elementwise_unary_op"(%x) {euop = "exp"} : (!ptensor.ptensor<n0 x @p0 x f32>)
    """
    return module_of_all({name: program})


def module_of_all(programs: Mapping[str, Program]) -> Module:
    """The module of several programs, each a function of its name."""
    return Module(ModuleOp([Writer(program).function(name) for name, program in programs.items()]))


class Writer:
    """What writes one program."""

    def __init__(self, program: Program) -> None:
        self.program, self.scope, self.ranked = program, Scope(), own.ranked_inputs(program)
        self.standing: dict[Value, SSAValue] = {}

    def function(self, name: str) -> FuncOp:
        """The function that the program is."""
        program = self.program
        block = Block(arg_types=list(map(self._input_type, program.inputs)))
        attributes: dict[str, Attribute] = self._name(program.inputs, block.args)
        for instruction in program.instructions:
            block.add_op(self._operation(instruction))
        given = list(values_in(program.outputs))
        block.add_op(ReturnOp(*(self._standing(each) for each in given)))
        types = [self._standing(each).type for each in given]
        made = FuncOp(name, ([arg.type for arg in block.args], types), Region(block))
        made.attributes |= {ABOUT + key: each for key, each in (attributes | self._about()).items()}
        return made

    def _about(self) -> dict[str, Attribute]:
        """What is said of the whole program: how its outputs stand together, guards, and partitions, once all that
        names partitions is written."""
        made: dict[str, Attribute] = {}
        scope, outputs = self.scope, self.program.outputs
        structure = self._structure(outputs, list(values_in(outputs)))
        if structure is not None:
            made["outputs"] = structure
        guards = [TermAttr(Node("equal", (scope.written(g.one), scope.written(g.other)))) for g in self.program.guards]
        if guards:
            made["guards"] = ArrayAttr(guards)
        if scope.declared:
            declared = [PartitionAttr(scope.declaration(each)) for each in scope.declared.values()]
            made["partitions"] = ArrayAttr(declared)
        return made

    def _input_type(self, value: Value) -> Attribute:
        """The type of an input: a builtin one, if the program makes a tensor of it."""
        if value in self.ranked:
            return own.ranked_type(value.type, self.ranked[value])
        return self.scope.type_written(value.type)

    def _standing(self, value: Value) -> SSAValue:
        if value not in self.standing:
            raise CannotWrite(f"nothing makes the value {value.name}")
        return self.standing[value]

    def _name(self, values: tuple[Value, ...], made: Any) -> dict[str, Attribute]:
        """Let values have the names of the program; those that MLIR's values cannot have stand in an attribute."""
        names = [str(each.name) for each in values]
        self.standing.update(zip(values, made, strict=True))
        if not all(isinstance(each.name, str) for each in values):
            raise CannotWrite(f"a value is called by something else than a text: {values[0].name!r:.60}")
        if not all(SSAValue.is_valid_name(name) and SSAValue.extract_valid_name(name) == name for name in names):
            return {"names": ArrayAttr([StringAttr(name) for name in names])}
        for name, each in zip(names, made, strict=True):
            each.name_hint = name
        return {}

    def _structure(self, parts: Any, values: list[Value]) -> Attribute | None:
        """How values stand together; None for one value, and for a tuple of several."""
        if isinstance(parts, Value) or (type(parts) is tuple and len(parts) > 1 and list(parts) == values):
            return None
        counted = iter(range(len(values)))
        return TermAttr(self._placed(parts, lambda _: next(counted)))

    def _placed(self, part: Any, place: Callable[[Value], int]) -> Term:
        """Arguments or results, in which values are places."""
        scope = self.scope
        before, scope.place = scope.place, place
        try:
            return scope.written(part)
        finally:
            scope.place = before

    # -------------------------------------------------------------------------------------------------- operations

    def _operation(self, instruction: Instruction) -> Any:
        """The operation of an instruction."""
        if instruction.op.startswith("@"):
            return self._call(instruction)
        if instruction.op in own.CLASSES:
            return self._own(instruction)
        op = TABLE.get(instruction.op)
        operands: list[Value] = []
        parts = None
        if op is not None and op.dialect is not None and instruction.function is None:
            parts = self._classed(op, instruction, operands)
        if parts is None:
            operands.clear()
            parts = "call", self._called(instruction, operands)
        name, attributes = parts
        results = list(instruction.results)
        structure = self._structure(instruction.result, results)
        if structure is not None:
            attributes["results"] = structure
        attributes |= self._of_call(instruction)
        made = OPERATIONS[name].create(
            operands=[self._standing(each) for each in operands],
            result_types=[self.scope.type_written(each.type) for each in results],
            attributes=attributes,
        )
        made.attributes |= self._name(instruction.results, made.results)
        return placed_at(made, instruction.where)

    def _of_call(self, instruction: Instruction) -> dict[str, Attribute]:
        """The operation of the user's that a call is a part of, and where autocast is on."""
        made: dict[str, Attribute] = {}
        if instruction.region:
            made["region"] = attribute_of(instruction.region)
        if instruction.autocast is not None:
            made["autocast"] = attribute_of(self.scope.written(instruction.autocast))
        return made

    def _own(self, instruction: Instruction) -> Any:
        """An operation that no record stands behind."""
        name, results = own.CLASSES[instruction.op], instruction.results
        types = [own.result_type_of(name, self.scope.type_written(each.type)) for each in results]
        operands = [self._standing(each) for each in instruction.operands]
        made = OPERATIONS[name].create(operands=operands, result_types=types)
        made.attributes |= self._name(results, made.results)
        return placed_at(made, instruction.where)

    def _call(self, instruction: Instruction) -> Any:
        """A call of another function of the module."""
        results = list(instruction.results)
        operands = [self._standing(each) for each in instruction.operands]
        if len(operands) != len(instruction.arguments) or instruction.named or instruction.autocast is not None:
            raise CannotWrite(f"a call of a function is given values alone, got {instruction}")
        made = CallOp.of(instruction.op[1:], operands, [self.scope.type_written(each.type) for each in results])
        attributes = self._name(instruction.results, made.results)
        structure = self._structure(instruction.result, results)
        if structure is not None:
            attributes["results"] = structure
        made.attributes |= {ABOUT + key: each for key, each in attributes.items()}
        return placed_at(made, instruction.where)

    def _called(self, instruction: Instruction, operands: list[Value]) -> dict[str, Attribute]:
        """A call by name, with all arguments as they were given."""
        place = _placing(operands)
        made: dict[str, Attribute] = {"callee": attribute_of(instruction.op)}
        arguments = tuple(instruction.arguments)
        if not arguments or list(arguments) != list(values_in(arguments)):
            made["arguments"] = TermAttr(self._placed(arguments, place))
        else:
            operands += arguments
        if instruction.named:
            made["named"] = TermAttr(self._placed(dict(instruction.named), place))
        if instruction.function is not None:
            made["function"] = TermAttr(self.scope.function_written(instruction.function))
        return made

    def _classed(
        self, op: Op, instruction: Instruction, operands: list[Value]
    ) -> tuple[str, dict[str, Attribute]] | None:
        """An operation of a class, whose attributes have the class's names; None for calls that only a call can say."""
        form = _form(op, instruction)
        parameters = op.signature.parameters
        if any(each.kind is Parameter.VAR_KEYWORD for each in parameters.values()):
            return None
        if takes_any_number(op):
            if not all(type(each) is Value for each in instruction.arguments):
                return None
            operands += instruction.arguments
            place = _placing(operands)
            options = ((form.names.get(name, name), self._placed(part, place)) for name, part in instruction.named)
            return form.of, {name: attribute_of(term) for name, term in options}
        given = [*zip(parameters, instruction.arguments, strict=False), *instruction.named]
        if len(instruction.arguments) > len(parameters):
            return None
        each_class = CLASSES[form.of]
        if not each_class.is_creation and {"device", "team"}.intersection(name for name, _ in given):
            return None  # only creations say where their results are
        names = {name: form.names.get(name, name) for name, _ in given}
        direct = {
            names[name]: part for name, part in given if names[name] in each_class.operands and type(part) is Value
        }
        operands += [direct[name] for name in each_class.operands if name in direct]
        place, attributes = _placing(operands), dict[str, Attribute]()
        if form.kind:
            attributes[each_class.kind] = attribute_of(form.kind)
        for name, part in given:
            if names[name] not in direct:
                attributes[names[name]] = attribute_of(self._placed(part, place))
        if CLASSES[form.of].is_creation and instruction.results[0].type.team is not None:
            attributes["team"] = attribute_of(instruction.results[0].type.team)
        shown = given_form([name for name, _ in given], len(instruction.arguments))
        if shown != usual_form(op, form, set(attributes), len(direct)):
            attributes["form"] = ArrayAttr([StringAttr(each) for each in shown])
        return form.of, attributes


def placed_at(operation: Operation, where: str) -> Operation:
    """An operation with the line of the user's program that it comes from."""
    file, _, line = where.rpartition(":")
    if file and line.isdigit():
        operation.location = FileLineColLoc(StringAttr(file), IntAttr(int(line)), IntAttr(0))
    return operation


def takes_any_number(op: Op) -> bool:
    """Whether an operation takes any number of operands, as `meshgrid` does, and everything else by name."""
    return any(each.kind is Parameter.VAR_POSITIONAL for each in op.signature.parameters.values())


def given_form(names: list[str], count: int) -> list[str]:
    """How arguments were given: the first `count` by position, all others by name, which ends with `=` then."""
    return [name if number < count else f"{name}=" for number, name in enumerate(names)]


def _form(op: Op, instruction: Instruction) -> Form:
    """How a call of a record is written that belongs to a class."""
    for name, form in FURTHER.values():
        last = instruction.arguments[-1] if instruction.arguments else None
        if op.name == name and not instruction.named and isinstance(last, Value) and last.type.dtype is torch.bool:
            return form
    assert op.dialect is not None
    return op.dialect


def usual_form(op: Op, form: Form, attributes: set[str], direct: int) -> list[str]:
    """How arguments are given where nothing says so: operands, and what has no name in Python, by position, all others
    by name."""
    parameters = op.signature.parameters
    shown = {form.names.get(name, name): name for name in parameters}
    waiting = [name for name in CLASSES[form.of].operands if name not in attributes][:direct]
    given = [name for ours, name in shown.items() if ours in attributes or ours in waiting]
    position = [name for name in given if name in op.operands or parameters[name].kind is Parameter.POSITIONAL_ONLY]
    return [*position, *(f"{name}=" for name in given if name not in position)]


def _placing(operands: list[Value]) -> Callable[[Value], int]:
    """What gives each value a place among the operands, which grow by it."""

    def place(value: Value) -> int:
        operands.append(value)
        return len(operands) - 1

    return place


def attribute_of(term: Term) -> Attribute:
    """A term as an attribute: one of MLIR's own where there is one."""
    if term in (TRUE, FALSE):
        return BoolAttr.from_bool(term == TRUE)
    if type(term) is int and -(2**63) <= term < 2**63:
        return IntegerAttr(term, i64)
    if isinstance(term, str) and quoted(term) == f'"{term}"':
        return StringAttr(term)
    return TermAttr(term)
