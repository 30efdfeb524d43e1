"""Modules of the host dialect, run operation by operation: what each process of a team does, with its runtime.

Everything runs eagerly, kernels included: this is for programs of teams, which the compiler does not run. A function
without teams is a program (`from_host`) and runs compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from xdsl.dialects.arith import AddiOp, MuliOp
from xdsl.dialects.arith import ConstantOp as NumberOp
from xdsl.dialects.builtin import DYNAMIC_INDEX, ArrayAttr, IntegerAttr, StringAttr, i64
from xdsl.dialects.builtin import TensorType as BuiltinTensor
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Operation, SSAValue

from serrate.dialects import host, region
from serrate.dialects.calls import CallOp as FunctionCallOp
from serrate.dialects.calls import names_of
from serrate.dialects.dist_to_runtime import TEAM
from serrate.dialects.distributing import HELD
from serrate.dialects.from_text import REFUSALS, term_of
from serrate.dialects.layouts import NAMES, Layout
from serrate.dialects.objects import CannotRead, Scope
from serrate.dialects.texts import Module, TextError
from serrate.ops.record import TABLE
from serrate.program.program import values_in
from serrate.team.runtime import Cut, TeamRuntime
from serrate.tensor.tensor import Tensor

Values = dict[SSAValue, Any]


class Machine:
    """One process, which runs functions of a module.

    >>> from serrate.dialects import dist_to_runtime, lower_ptensor
    >>> from serrate.dialects.running import Machine
    >>> from serrate.dialects.texts import parse
    >>> from serrate.team.runtime import SingleProcess
    >>> text = '''
    ... func.func @main() -> !ptensor.ptensor<3 x i64, team = 7> {
    ...   %x = "ptensor.arange"() {start = 3 : i64, team = 7 : i64} : () -> !ptensor.ptensor<3 x i64, team = 7>
    ...   func.return %x : !ptensor.ptensor<3 x i64, team = 7>
    ... }
    ... '''
    >>> module = dist_to_runtime.run(lower_ptensor.run(parse(text)))
    >>> Machine(module, SingleProcess()).call("main")[0].tolist()
    [0, 1, 2]
    """

    def __init__(self, module: Module, team: TeamRuntime) -> None:
        self.module, self.team = module, team
        self.functions = {each.sym_name.data: each for each in module.module.ops if isinstance(each, FuncOp)}
        self._open: list[str] = []
        """The functions that run, each called by the one before."""

    def call(self, name: str, *arguments: Any) -> list[Any]:
        """What a function returns: tensors, devices by their names, and numbers."""
        block = self._block_of(name)
        if len(arguments) != len(block.args):
            raise ValueError(f"@{name} takes {len(block.args)} values, got {len(arguments)}")
        if name in self._open:
            raise CannotRead(f"a function may not call itself, and @{name} does")
        self._open.append(name)
        try:
            made = self._block(block, dict(zip(block.args, arguments, strict=True)))
            self._check_parts(name, made)
            return made
        finally:
            self._open.pop()

    def _block_of(self, name: str) -> Block:
        """The operations of a function."""
        function = self.functions[name]
        if len(function.body.blocks) != 1:
            count = len(function.body.blocks)
            raise TextError(f"@{name} is one block of operations, got {count}", self.module.where(function))
        return function.body.block

    def _check_parts(self, name: str, made: Sequence[Any]) -> None:
        """Refuse results that are not the parts which their team says that this process has."""
        kinds = self.functions[name].function_type.outputs
        for at, part in enumerate(made):
            numbers = [
                each for each, kind in zip(made[at + 1 : at + 3], kinds.data[at + 1 :], strict=False) if kind == i64
            ]
            if not isinstance(part, Tensor) or len(numbers) < 2:
                continue
            team, gid = numbers
            place = self.module.where(self._block_of(name).last_op or self.functions[name])
            try:
                wanted = tuple(self.team.local_shape(team, gid))
            except LookupError as error:
                raise TextError(f"result {at} of @{name} has a number that means nothing: {error}", place) from error
            found = tuple(part.values.shape)
            if wanted != found:
                raise TextError(
                    f"result {at} of @{name} has the shape {found}, and its team {team} says {wanted}: the inputs are "
                    f"not of the sizes that the module was made for",
                    place,
                )

    def arguments(self, name: str, given: Mapping[str, torch.Tensor]) -> list[Any]:
        """What a function takes, for values by the names of its tensors: a team gets to know each tensor, of which this
        process has all."""
        made: list[Any] = []
        numbers = place = 0
        said = self.functions[name].attributes.get(HELD)
        held = list(said.data) if isinstance(said, ArrayAttr) else []
        names = names_of(self.functions[name].attributes.get("host.names"))
        whole: Layout | None = None
        for each in self._block_of(name).args:
            hint = names[place] if place < len(names) else each.name_hint or f"unnamed{place}"
            numbers = 0 if isinstance(each.type, BuiltinTensor) else numbers + (each.type == i64)
            if isinstance(each.type, BuiltinTensor):
                if hint not in given:
                    there = ", ".join(given) or "none"
                    raise ValueError(
                        f"{hint!r}, the values of an input, is missing among the inputs; there are {there}"
                    )
                found = held[place] if place < len(held) else None
                whole, place = found if isinstance(found, Layout) else None, place + 1
                _check_input(hint, each.type, whole, given[hint])
                made.append(Tensor(given[hint]))
            elif isinstance(each.type, host.Device):
                made.append(each.type.data)
            elif numbers == 1:  # behind the team stands the number of the tensor
                made.append((whole.data.detail("team") if whole is not None else None) or 0)
            else:
                tensors = [part for part in made if isinstance(part, Tensor)]
                if not tensors:
                    raise ValueError(f"@{name} takes the number of a tensor before any tensor: {each.type}")
                made.append(self.team.init_dtensor(made[-1], tuple(tensors[-1].values.shape)))
        return made

    def _block(self, block: Block, values: Values) -> list[Any]:
        """Run a block, and return what it gives at its end."""
        for operation in block.ops:
            if isinstance(operation, (ReturnOp, host.YieldOp, region.YieldOp)):
                return [values[each] for each in operation.operands]
            run = _RUN.get(type(operation))
            if run is None:
                raise TextError(f"{operation.name} cannot be run: it has to be lowered", self.module.where(operation))
            freed = next((each for each in operation.operands if each not in values), None)
            if freed is not None:
                name = f"%{freed.name_hint or freed.index}"
                raise TextError(
                    f"{_called(operation)} reads {name}, whose memory was given back", self.module.where(operation)
                )
            try:
                made = run(self, operation, values)
            except TextError:  # of an operation inside
                raise
            except RecursionError as error:
                raise TextError("too many functions call each other here", self.module.where(operation)) from error
            except REFUSALS as error:
                said = str(error) if isinstance(error, CannotRead) else f"{_called(operation)} cannot be run: {error}"
                raise TextError(said, self.module.where(operation)) from error
            if len(made) != len(operation.results):
                raise TextError(
                    f"{_called(operation)} gives {len(made)} values, and the text {len(operation.results)}",
                    self.module.where(operation),
                )
            values.update(zip(operation.results, made, strict=True))
        return []

    def called(self, operation: host.CallOp, values: Values) -> Sequence[Any]:
        """A call of the runtime, of an operation or of torch."""
        operands = [values[each] for each in operation.given]
        said = {name: term_of(each) for name, each in operation.attributes.items()}
        callee = str(said["callee"])
        if callee.startswith(TEAM):
            asked = _ASKED.get(callee.removeprefix(TEAM))
            if asked is None:
                raise CannotRead(f"a team has no {callee}; there are {', '.join(f'{TEAM}{each}' for each in _ASKED)}")
            return asked(self.team, *operands, **_kind(operation))
        scope = Scope(operands=operands)
        arguments = scope.read(said["arguments"]) if "arguments" in said else tuple(operands)
        named = scope.read(said["named"]) if "named" in said else {}
        if "function" not in said and callee not in TABLE:
            raise CannotRead(f"there is no operation {callee}, and the call names no function of its own")
        function = scope.read(said["function"]) if "function" in said else TABLE[callee].function
        if "function" in said:
            arguments = tuple(each.torch() if isinstance(each, Tensor) else each for each in arguments)
        made = function(*arguments, **named)
        is_one = len(operation.results) == 1 or isinstance(made, (Tensor, torch.Tensor))
        given = [made] if is_one else list(made if isinstance(made, tuple) else values_in(made))
        return [Tensor(each) if isinstance(each, torch.Tensor) else each for each in given]

    def inside(self, operation: host.FusedOp | region.DeviceRegionOp, values: Values) -> Sequence[Any]:
        """What kernels compute, or what stands in a region."""
        block = operation.body.block
        given = [values[each] for each in operation.operands]
        return self._block(block, values | dict(zip(block.args, given, strict=True)))


def _check_input(name: str, kind: BuiltinTensor[Any], whole: Layout | None, values: torch.Tensor) -> None:
    """Refuse values that are not of the type of an input, of which this process has the whole."""
    if isinstance(kind.encoding, Layout):
        raise ValueError(f"the input {name} is {kind}, and beside tensors of teams every input has a known shape")
    sizes = tuple(kind.get_shape()) if whole is None else whole.data.dimensions
    shape = tuple(values.shape)
    fits = len(sizes) == len(shape) and all(a in (DYNAMIC_INDEX, b) for a, b in zip(sizes, shape, strict=True))
    if not fits or values.dtype != getattr(torch, NAMES[kind.element_type]):
        shown = kind if whole is None else whole
        raise ValueError(f"the input {name} is {shown}, got values {values.dtype} of shape {shape}")


def _called(operation: Operation) -> str:
    """What an operation is in a message."""
    callee = operation.attributes.get("callee")
    return callee.data if isinstance(callee, StringAttr) else operation.name


def _allocated(machine: Machine, operation: host.AllocOp, values: Values) -> Sequence[Any]:
    kind = operation.tensor.type
    assert isinstance(kind, BuiltinTensor)
    sizes = iter([values[each] for each in operation.sizes])
    shape = [next(sizes) if size == DYNAMIC_INDEX else size for size in kind.get_shape()]
    return [Tensor(torch.empty(shape, dtype=getattr(torch, NAMES[kind.element_type])))]


def _freed(machine: Machine, operation: host.FreeOp, values: Values) -> Sequence[Any]:
    del values[operation.tensor]
    return []


def _number(machine: Machine, operation: NumberOp, values: Values) -> Sequence[Any]:
    if not isinstance(operation.value, IntegerAttr):
        raise CannotRead(f"a whole number is expected, got {operation.value}")
    return [operation.value.value.data]


def _device(machine: Machine, operation: host.ConstantOp, values: Values) -> Sequence[Any]:
    kind = operation.made.type
    return [kind.data if isinstance(kind, host.Device) else None]


def _kind(operation: Operation) -> Mapping[str, str]:
    kind = operation.attributes.get("kind")
    return {"kind": kind.data} if isinstance(kind, StringAttr) else {}


_RUN: dict[type[Operation], Callable[[Machine, Any, Values], Sequence[Any]]] = {
    host.CallOp: Machine.called,
    host.FusedOp: Machine.inside,
    region.DeviceRegionOp: Machine.inside,
    host.AllocOp: _allocated,
    host.FreeOp: _freed,
    host.ConstantOp: _device,
    host.StartOp: lambda machine, operation, values: [operation.device],
    host.WaitOp: lambda machine, operation, values: [],
    NumberOp: _number,
    AddiOp: lambda machine, operation, values: [values[operation.lhs] + values[operation.rhs]],
    MuliOp: lambda machine, operation, values: [values[operation.lhs] * values[operation.rhs]],
    FunctionCallOp: lambda machine, operation, values: machine.call(
        operation.called, *(values[each] for each in operation.operands)
    ),
}


# ---------------------------------------------------------------------------------------------------- teams' calls


def _cuts(numbers: Sequence[int]) -> tuple[Cut, ...]:
    return tuple(Cut(*numbers[at : at + 3]) for at in range(0, len(numbers), 3))


def _copied(team: TeamRuntime, number: int, source: int, target: int, given: Tensor, to: Tensor) -> Sequence[Any]:
    team.copy(number, source, target, given.values, to.values)
    return []


def _finished(team: TeamRuntime, number: int, gid: int, part: Tensor, kind: str) -> Sequence[Any]:
    team.finalize_reduce(number, gid, part.values, kind)
    return []


def _forgotten(team: TeamRuntime, number: int, gid: int) -> Sequence[Any]:
    team.fini_dtensor(number, gid)
    return []


_ASKED: dict[str, Callable[..., Sequence[Any]]] = {
    "init_dtensor": lambda team, number, *shape: [team.init_dtensor(number, shape)],
    "fini_dtensor": _forgotten,
    "init_view": lambda team, number, gid, *cuts: [team.init_view(number, gid, _cuts(cuts))],
    "local_shape": lambda team, number, gid: team.local_shape(number, gid),
    "local_slice": lambda team, number, gid: [each for cut in team.local_slice(number, gid) for each in cut],
    "copy": _copied,
    "finalize_reduce": _finished,
    "exchange": lambda team, number, part, counts: [
        Tensor(each) for each in team.exchange(number, part.values, counts.values)
    ],
}
