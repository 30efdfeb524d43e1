"""Modules as programs: what was read is checked against the records, and is the program that was written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from xdsl.dialects.builtin import ArrayAttr, FileLineColLoc, IntegerAttr, StringAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, SSAValue

from serrate.dialects import host, own
from serrate.dialects.attributes import PartitionAttr, PTensor, TermAttr
from serrate.dialects.calls import ABOUT, CallOp, names_of
from serrate.dialects.deleting import Deleting
from serrate.dialects.objects import FALSE, NONE, TRUE, CannotRead, CannotWrite, Scope
from serrate.dialects.ptensor import ABOUT_CALLS, PTensorOperation, form_in, record_of
from serrate.dialects.terms import Node, Term, text_of
from serrate.dialects.texts import Module, TextError
from serrate.dialects.to_text import takes_any_number, usual_form
from serrate.ops.checking import Comparison, found_types, has_rule, types_in
from serrate.ops.record import TABLE
from serrate.ops.recording import Names
from serrate.passes.inline_calls import CannotInline, Inliner
from serrate.passes.matching import Matching, Mismatch
from serrate.program.guards import Guard, Known
from serrate.program.inputs import Inputs
from serrate.program.program import Instruction, Program
from serrate.program.types import TensorType, Value

REFUSALS = (TypeError, ValueError, LookupError, AttributeError, RuntimeError, ArithmeticError, AssertionError)
"""Errors by which an operation refuses operands and attributes that it does not take."""


def only_functions(module: Module) -> None:
    """Refuse a module that has something else than functions."""
    for each in module.module.ops:
        if not isinstance(each, FuncOp):
            raise TextError(f"a module has functions, and no {each.name}", module.where(each))


def programs_of(module: Module) -> dict[str, Program]:
    """The programs of all functions of a module, by their names."""
    only_functions(module)
    functions = Functions(module)
    return {name: functions.program(name) for name in functions.there}


def program_of(module: Module, name: str = "") -> Program:
    """The program that a module stands for: its function of this name, or the only one that it has.

    >>> import serrate as sr
    >>> from serrate.dialects.from_text import program_of
    >>> from serrate.dialects.texts import parse
    >>> text = '''
    ... func.func @main(%x: !ptensor.ptensor<3 x f32>) -> !ptensor.ptensor<3 x f32> {
    ...   %y = "ptensor.elementwise_unary_op"(%x) {euop = "exp"}
    ...     : (!ptensor.ptensor<3 x f32>) -> !ptensor.ptensor<3 x f32>
    ...   func.return %y : !ptensor.ptensor<3 x f32>
    ... }
    ... '''
    >>> print(program_of(parse(text)))
    program(x: float32[3] on cpu):
      y: float32[3] on cpu = exp(x)
      return y
    """
    functions = Functions(module)
    found = [each for each in functions.there if not name or each == name]
    if len(found) != 1:
        there = ", ".join(f"@{each}" for each in functions.there) or "none"
        wanted = f"the function @{name}" if name else "one function"
        raise TextError(f"{wanted} is expected in the module, there are: {there}", module.where(module.module))
    return functions.program(found[0])


class Functions:
    """The functions of a module, each read when it is first asked for, perhaps by one that calls it."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.there = {each.sym_name.data: each for each in module.module.ops if isinstance(each, FuncOp)}
        self.programs: dict[str, Program] = {}
        self.deleted: dict[str, set[int]] = {}
        """The inputs that each function deletes, by their places."""
        self._open: list[str] = []

    def program(self, name: str) -> Program:
        """The program of a function."""
        if name not in self.programs:
            if name in self._open:
                way = " calls ".join(f"@{each}" for each in (*self._open[self._open.index(name) :], name))
                raise CannotRead(f"a function may not call itself, and {way}")
            self._open.append(name)
            try:
                self.programs[name] = self.reader(self.there[name]).program()
            except RecursionError as error:
                message = f"@{name} is called by a function that is called by others, and these are too many"
                raise TextError(message, self.module.where(self.there[name])) from error
            self._open.pop()
        return self.programs[name]

    def reader(self, function: FuncOp) -> Reader:
        """What reads a function."""
        return Reader(self, function)


class Reader:
    """What reads one function as a program."""

    ABOUT = ABOUT
    """What the attributes begin with that say what is known of the whole function."""

    def __init__(self, functions: Functions, function: FuncOp) -> None:
        self.functions, self.module, self.function = functions, functions.module, function
        self.scope = Scope(program=Inputs().program)
        self.values: dict[SSAValue, Value] = {}
        self.names: set[str] = set()
        self.deleting = Deleting(functions.deleted)
        self.at: Operation = function
        """What is read, where a mistake is reported."""

    def program(self) -> Program:
        """The program."""
        function = self.function
        try:
            if len(function.body.blocks) != 1:
                raise CannotRead(f"a program is one block of operations, got {len(function.body.blocks)}")
            for each in self._listed("partitions"):
                if not isinstance(each, PartitionAttr):
                    raise CannotRead(f"a partition is expected, got {each}")
                self.scope.declare(dict(each.data))
            self.guards = guards = tuple(map(self._guard, self._listed("guards")))
            try:
                self.comparison, self.matching = Comparison(guards), Matching(known=Known(guards))
            except TypeError as error:  # two sizes that are never equal
                raise CannotRead(f"the guards cannot hold: {error}") from error
            block = function.body.block
            inputs = self._inputs(block)
            self._note(inputs)
            instructions = []
            for instruction in self._instructions(block):
                self._check_types(instruction)
                self._note(instruction.results)
                self.deleting.check(instruction, self.module.where(self.at))
                instructions.append(instruction)
            self.at = last = block.last_op or function
            if not isinstance(last, ReturnOp):
                raise CannotRead("a program ends with what it returns: func.return")
            given = self._returned(last)
            self.deleting.check_returned(given)
            outputs = self._structure(self._about("outputs"), given)
        except (CannotRead, CannotWrite) as error:
            raise TextError(str(error), self.module.where(self.at)) from error
        freed = self.deleting.deleted
        self.functions.deleted[function.sym_name.data] = {place for place, each in enumerate(inputs) if each in freed}
        return Program(inputs, tuple(instructions), outputs, guards)

    def _inputs(self, block: Block) -> tuple[Value, ...]:
        """The values that the function takes."""
        return self._named(block.args, self._about("names"))

    def _instructions(self, block: Block) -> Iterator[Instruction]:
        """The instructions of a block, up to what it returns."""
        for operation in block.ops:
            if operation is not block.last_op and operation.name != f"ptensor.{own.CHECKED}":
                self.at = operation
                yield self._instruction(operation)

    def _returned(self, last: ReturnOp) -> list[Value]:
        """The values that the function returns."""
        return [self.values[each] for each in last.arguments]

    def _about(self, name: str) -> Attribute | None:
        return self.function.attributes.get(self.ABOUT + name)

    def _listed(self, name: str) -> tuple[Attribute, ...]:
        found = self._about(name)
        if found is None:
            return ()
        if not isinstance(found, ArrayAttr):
            raise CannotRead(f"{self.ABOUT}{name} is a list, got {found}")
        return tuple(found.data)

    def _guard(self, attribute: Attribute) -> Guard:
        term = attribute.data if isinstance(attribute, TermAttr) else None
        if not isinstance(term, Node) or term.head != "equal" or len(term.parts) != 2:
            raise CannotRead(f"a guard is equal(one, other), got {attribute}")
        return Guard(*map(self.scope.read, term.parts))

    def _named(self, made: Any, names: Attribute | None) -> tuple[Value, ...]:
        """The values of arguments or results, with their names."""
        given = names_of(names)
        if given and len(given) != len(made):
            raise CannotRead(f"{len(given)} names are given for {len(made)} values")
        values = []
        for number, each in enumerate(made):
            kind = self.scope.type_read(self._type_of(each))
            name = given[number] if given else each.name_hint or f"unnamed{len(self.values)}"
            while name in self.names:
                name += "x"
            self.names.add(name)
            self.values[each] = Value(kind, name)
            values.append(self.values[each])
        return tuple(values)

    def _tensors(self, values: Sequence[SSAValue]) -> Sequence[SSAValue]:
        """Those values that stand for values of a program."""
        return values

    def _type_of(self, value: SSAValue) -> PTensor:
        """The type of a value."""
        return own.type_given(value)

    def _structure(self, attribute: Attribute | None, values: list[Value]) -> Any:
        """Values as they stand together."""
        if attribute is None:
            return values[0] if len(values) == 1 else tuple(values)
        return self._read(attribute, values)

    def _read(self, attribute: Attribute, operands: list[Value]) -> Any:
        self.scope.operands = operands
        return self.scope.read(term_of(attribute))

    # ------------------------------------------------------------------------------------------------ instructions

    def _call(self, operation: CallOp) -> Instruction:
        """The instruction that a call of another function is, whose results have the types that the function gives."""
        name, operands = operation.called, [self.values[each] for each in self._tensors(operation.operands)]
        self.functions.program(name)
        inliner = Inliner(self.functions.programs, Names(list(self.names)), self.guards, self.scope.program)
        try:
            _, found = inliner.call(name, operands)
        except CannotInline as error:
            raise CannotRead(str(error)) from error
        except REFUSALS as error:
            raise CannotRead(f"@{name} does not take these operands: {error}") from error
        results = list(self._named(self._tensors(operation.results), operation.about("names")))
        for number, (value, right) in enumerate(zip(results, found, strict=True)):
            try:  # A size or a partition that no type has before this one is what the function gives.
                self.matching.match(value.type, right.type)
            except Mismatch as error:
                said = f"is {self._shown(right.type)}, and the text says {self._shown(value.type)}"
                raise CannotRead(f"result {number} of @{name} {said}: {error}") from error
        result = self._structure(operation.about("results"), results)
        return Instruction(f"@{name}", tuple(operands), (), result, where=_line(operation))

    def _instruction(self, operation: Operation) -> Instruction:
        """The instruction that an operation stands for."""
        if isinstance(operation, CallOp):
            return self._call(operation)
        if not isinstance(operation, (PTensorOperation, host.CallOp)):
            raise CannotRead(f"an operation of the ptensor dialect is expected, got {operation.name}")
        name = operation.op_class.name if isinstance(operation, PTensorOperation) else "call"
        if name == own.FROM_DLPACK:
            raise CannotRead(
                f"{operation.name} takes the address of memory, which no program holds; let the function have the "
                f"tensor as an input"
            )
        attributes = dict(operation.attributes)
        about = {each: attributes.pop(each, None) for each in ABOUT_CALLS}
        operands = [self.values[each] for each in operation.operands]
        results = list(self._named(operation.results, about["names"]))
        if name in own.CALLED:
            if attributes:
                raise CannotRead(f"{operation.name} has no attribute {next(iter(attributes))}")
            result = self._structure(None, results)
            return own.instruction_of(name, operands, list(operation.operands), result, _line(operation))
        function = None if about["function"] is None else self._read(about["function"], operands)
        if not isinstance(operation, PTensorOperation) or name == "call":
            op, arguments, named = self._called(operation, attributes, operands)
        else:
            if operation.op_class.is_creation:
                _check_team(attributes.pop("team", None), results)
            op, arguments, named = self._classed(operation, attributes, operands, about["form"])
        if function is None and op not in TABLE:
            raise CannotRead(f"there is no operation {op}, and the call names no function of its own")
        region = "" if about["region"] is None else str(self._read(about["region"], []))
        autocast = None if about["autocast"] is None else self._read(about["autocast"], [])
        result = self._structure(about["results"], results)
        return Instruction(op, arguments, named, result, function, region, _line(operation), autocast)

    def _note(self, values: tuple[Value, ...]) -> None:
        """From now on, sizes and partitions of these values are no new ones."""
        for kind in (each.type for each in values):
            self.matching.keep(kind)

    def _check_types(self, instruction: Instruction) -> None:
        """Refuse results of other types than the operation gives for its operands."""
        if not has_rule(instruction):
            return
        guards = self.guards
        try:
            found = found_types(instruction, guards, self.scope.program)
        except REFUSALS as error:
            raise CannotRead(f"{instruction.op} does not take these operands: {error}") from error
        if len(found.guards) > len(guards):
            sides = ", ".join(text_of(self.scope.written(side)) for side in found.guards[len(guards)].sides)
            raise CannotRead(f"{instruction.op} needs the guard equal({sides}), which ptensor.guards does not have")
        # How results stand together is not compared: a text may say it in fewer words than the operation gives it.
        types = types_in(found.result)
        if len(types) != len(instruction.results):
            raise CannotRead(f"{instruction.op} has {len(types)} results, and the text {len(instruction.results)}")
        for number, (value, right) in enumerate(zip(instruction.results, types, strict=True)):
            # Whether results are of the team of the operands is checked before (`checks`).
            if not self.comparison.same(replace(value.type, team=None), replace(right, team=None)):
                which = f"result {number}" if len(types) > 1 else "the result"
                raise CannotRead(
                    f"{which} of {instruction.op} is {self._shown(right)}, and the text says {self._shown(value.type)}"
                )

    def _shown(self, kind: TensorType) -> str:
        """A type as a text has it, with the declarations of partitions that the text does not have."""
        names = set(self.scope.declared)
        shown = str(self.scope.type_written(kind))
        new = {name: each for name, each in self.scope.declared.items() if name not in names}
        shown += "".join(f" with {PartitionAttr(self.scope.declaration(each))}" for each in new.values())
        for name, each in new.items():
            del self.scope.declared[name], self.scope.partitions[each]
        return shown

    def _called(
        self, operation: Operation, attributes: dict[str, Attribute], operands: list[Value]
    ) -> tuple[str, tuple[Any, ...], tuple[tuple[str, Any], ...]]:
        callee = attributes.get("callee")
        if not isinstance(callee, (StringAttr, TermAttr)):
            raise CannotRead('a call says what it calls: callee = "name"')
        given, named = attributes.get("arguments"), attributes.get("named")
        options = {} if named is None else self._read(named, operands)
        arguments = tuple(operands[: len(operands) - _count(named)]) if given is None else self._read(given, operands)
        if not isinstance(arguments, tuple) or not isinstance(options, dict):
            raise CannotRead("the arguments of a call are a tuple, and a dict of named ones")
        return str(callee.data), arguments, tuple(options.items())

    def _classed(
        self,
        operation: PTensorOperation,
        attributes: dict[str, Attribute],
        operands: list[Value],
        form: Attribute | None,
    ) -> tuple[str, tuple[Any, ...], tuple[tuple[str, Any], ...]]:
        of = operation.op_class
        kind = attributes.pop(of.kind) if of.kind else StringAttr("")
        op = record_of(of.name, kind.data if isinstance(kind, StringAttr) else "")
        if op is None:
            raise CannotRead(f"{operation.name} is no operation of a program, since no record belongs to its class")
        written = form_in(of.name, op)
        names = {written.names.get(name, name): name for name in op.signature.parameters}
        unknown = [name for name in attributes if name not in names]
        if unknown:
            raise CannotRead(
                f"{operation.name} of {op.name} has no attribute {unknown[0]}; there are {', '.join(names)}"
            )
        nested = sum(map(_count, attributes.values()))
        direct = len(operands) - nested
        if takes_any_number(op):
            options = tuple((names[name], self._read(each, operands)) for name, each in attributes.items())
            return op.name, tuple(operands[:direct]), options
        shown = usual_form(op, written, set(attributes), direct)
        if form is not None:
            if not isinstance(form, ArrayAttr):
                raise CannotRead(f"the form of a call is a list of names, got {form}")
            shown = [each.data for each in form.data if isinstance(each, StringAttr)]
        given: dict[str, Any] = {names[name]: self._read(each, operands) for name, each in attributes.items()}
        asked = {each.removesuffix("=") for each in shown}
        waiting = [names[name] for name in of.operands if names.get(name) in asked and names[name] not in given]
        if len(waiting) != direct or set(given) | set(waiting) != asked:
            raise CannotRead(
                f"{operation.name} has {direct} operands and the attributes {', '.join(attributes) or 'none'}, which "
                f"are not the arguments {', '.join(shown) or 'none'}"
            )
        given |= zip(waiting, operands, strict=False)
        arguments = tuple(given[each] for each in shown if not each.endswith("="))
        named = tuple((each[:-1], given[each[:-1]]) for each in shown if each.endswith("="))
        return op.name, arguments, named


def _check_team(said: Attribute | None, results: list[Value]) -> None:
    """Refuse a creation that names another team than the type of what it creates."""
    team = None if said is None else term_of(said)
    for each in results:
        if each.type.team != (None if team == NONE else team):
            raise CannotRead(f"a tensor of the team {team} is created, and its type is {each.type}")


def _line(operation: Operation) -> str:
    """The line of the user's program that an operation comes from."""
    where = operation.location
    return f"{where.filename.data}:{where.line.data}" if isinstance(where, FileLineColLoc) else ""


def _count(given: Attribute | Term | None) -> int:
    """How many operands a part refers to."""
    if isinstance(given, TermAttr):
        return _count(given.data)
    if not isinstance(given, Node):
        return 0
    return (given.head == "operand") + sum(map(_count, given.parts))


def term_of(attribute: Attribute) -> Term:
    """An attribute as a term."""
    if isinstance(attribute, TermAttr):
        return attribute.data
    if isinstance(attribute, IntegerAttr):
        if getattr(attribute.type, "bitwidth", 0) == 1:
            return TRUE if attribute.value.data else FALSE
        return int(attribute.value.data)
    if isinstance(attribute, StringAttr):
        return attribute.data
    raise CannotRead(f"a constant is expected, got {attribute}")
