"""lower-ptensor: a program cut into what fused kernels compute and what libraries are called for.

An operation becomes part of a kernel if it has a form there, or if each operation of its body does. All that needs no
result of a library call is one region, what needs one of the first calls the next region, and so on, so that no region
waits for itself. A region is not cut yet: how many kernels it takes is the segmenter's to say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

from serrate.lowering.forms import apply, form_of, has_body, is_cheap
from serrate.lowering.fusing import Fusing, NotFused
from serrate.lowering.keys import DRAW, OF_TORCH
from serrate.ops.derivatives import run_body
from serrate.ops.record import TABLE
from serrate.ops.recording import Names, NotRecorded, record_calls
from serrate.passes import inject_offsets
from serrate.program.guards import Known
from serrate.program.partitions import Expression
from serrate.program.program import Instruction, Program, replaced
from serrate.program.types import Value
from serrate.schedule import CannotSchedule, Planned, stored_plan

NAME = "lower-ptensor"
DRAWS = frozenset({DRAW, "random.shuffle"}) | OF_TORCH
"""Operations of which each call gives something else."""
VIEWS = ("permute_dims", "expand_dims", "squeeze")
"""Operations whose eager implementation gives a view: alone, they are no kernel."""


@dataclass(frozen=True)
class Fused:
    """What kernels compute: instructions, the fusion that they are, and how it is scheduled."""

    instructions: tuple[Instruction, ...]
    fusing: Fusing
    planned: Planned
    makers: tuple[Instruction, ...] = ()
    """The instructions that make rows which no tensor outside has, in their order."""

    @property
    def results(self) -> tuple[Value, ...]:
        """The values that are stored."""
        return tuple(self.fusing.outputs)


@dataclass(frozen=True)
class Called:
    """What a library, or Serrate's own eager implementation, computes."""

    instruction: Instruction
    reason: str
    """Why no kernel computes it."""


Step = Fused | Called

TARGETS = {"cpu": "cpp", "cuda": "cuda"}
"""What kernels are made for, by the types of devices."""


@dataclass
class Cutter:
    """The steps of one program. What turns out not to be a kernel becomes a call, and the program is cut again."""

    program: Program
    devices: frozenset[str] = frozenset(TARGETS)
    """The types of the devices that kernels are made for."""
    name: str = "kernel"
    partitions: frozenset[Expression] = frozenset()
    """The partitions that are the same in each call."""
    refused: dict[str, str] = field(default_factory=dict)
    """The users' operations, by region, that no kernel computes, and why."""

    def run(self) -> tuple[Step, ...]:
        """The steps, in an order in which each has what it needs."""
        whole = self._begun()
        while True:
            parts = [part for instruction in whole for part in self._parts(instruction)]
            try:
                return self._steps(parts)
            except _Refusal as refusal:
                self.refused[refusal.region] = refusal.reason

    def given_to_calls(self) -> frozenset[Value]:
        """The values that libraries are called with, as far as instructions tell: kernels have to store these."""
        calls = [each for each in self._begun() if self._parts(each) and each.region in self.refused]
        return frozenset(value for each in calls for value in each.operands)

    def _begun(self) -> list[Instruction]:
        """The instructions with their regions, none of them taken apart yet."""
        whole = self._with_regions()
        given = (*self.program.inputs, *(value for each in whole for value in each.results))
        self._names = Names([str(value.name) for value in given])
        self._expanded: dict[str, tuple[Instruction, ...]] = {}
        return whole

    def _with_regions(self) -> list[Instruction]:
        counts: dict[str, int] = {}
        made = []
        for instruction in self.program.instructions:
            number = counts[instruction.op] = counts.get(instruction.op, 0) + 1
            made.append(replace(instruction, region=f"{instruction.op}#{number}"))
        return made

    # ------------------------------------------------------------------------------------------- taking apart

    def _parts(self, instruction: Instruction) -> tuple[Instruction, ...]:
        """The instruction, or those of its body if kernels know all of them."""
        if instruction.region in self.refused:
            return (instruction,)
        if instruction.region not in self._expanded:
            self._expanded[instruction.region] = self._taken_apart(instruction)
        return self._expanded[instruction.region]

    def _taken_apart(self, instruction: Instruction) -> tuple[Instruction, ...]:
        devices = {value.type.device for value in (*instruction.operands, *instruction.results)}
        if len(devices) > 1 or not all(device.type in self.devices for device in devices):
            there = ", ".join(sorted(map(str, devices)))
            self.refused[instruction.region] = (
                f"one device computes a kernel, a {_listed(self.devices)}, and its tensors are on {there}"
            )
            return (instruction,)
        try:
            return self._expand(instruction)
        except (NotRecorded, NotFused, TypeError) as error:
            self.refused[instruction.region] = str(error)
            return (instruction,)

    def _expand(self, instruction: Instruction) -> tuple[Instruction, ...]:
        """The instruction, if it has a form, else those of its body, to any depth."""
        if form_of(instruction) is not None:
            return (instruction,)
        op = TABLE.get(instruction.op)
        if op is None or instruction.function is not None or not has_body(op):
            is_whole = instruction.op == instruction.region.partition("#")[0]
            raise NotFused("it is a library call" if is_whole else f"{instruction.op}, a part of it, is a library call")
        found = record_calls(
            lambda *arguments, **named: run_body(op, arguments, named),
            instruction.arguments,
            dict(instruction.named),
            self._names,
            guards=self.program.guards,
            title=instruction.op,
            memo=("body", instruction.op),
        )
        if not isinstance(found.result, Value) or found.guards != self.program.guards:
            raise NotFused(f"the body of {instruction.op} gives several tensors, or needs to know that sizes are equal")
        inner = [replace(part, region=instruction.region, where=instruction.where) for part in found.instructions]
        parts = _renamed(inner, found.result, instruction)
        return tuple(each for part in parts for each in self._expand(part))

    # ------------------------------------------------------------------------------------------------- regions

    def _steps(self, parts: list[Instruction]) -> tuple[Step, ...]:
        depths = self._depths(parts)
        first = [
            part for part in parts if part.region in self.refused and not part.operands and id(part) not in self._late
        ]
        regions: dict[int, list[Instruction]] = {}
        calls: dict[int, list[Instruction]] = {}
        for part, at in zip(parts, depths, strict=True):
            if part in first:
                continue
            (calls if part.region in self.refused else regions).setdefault(at, []).append(part)
        steps: list[Step] = [Called(call, self.refused[call.region]) for call in first]
        for at in range(max([0, *regions, *calls]) + 1):
            inside = regions.get(at, [])
            steps += self._fused(inside, self._needed(inside, parts))
            steps += [Called(call, self.refused[call.region]) for call in calls.get(at, [])]
        known = {each for value in self.program.inputs for each in value.type.partitions} | self.partitions
        try:
            return tuple(inject_offsets.run(steps, known))
        except inject_offsets.NoOffsets as error:
            raise _Refusal(error.region, str(error)) from error

    def _depths(self, parts: list[Instruction]) -> list[int]:
        """For each instruction how many calls, one behind the other, come before it.

        What costs next to nothing is computed where it is read first, so that no kernel stores it for a later one. So
        is what follows from tensors that are read there anyway, such as the averages of a norm on its way back.
        """
        depth: dict[Value, int] = {}
        found = []
        drawn = 0
        self._late: set[int] = set()  # draws behind one that reads a tensor, which wait for it
        for part in parts:
            at = max((depth.get(value, 0) for value in part.operands), default=0)
            if part.op in DRAWS:
                at = drawn = max(at, drawn)
                if part.operands or self._late:
                    self._late.add(id(part))
            waits = bool(part.operands) or id(part) in self._late
            depth.update(dict.fromkeys(part.results, at + (part.region in self.refused and waits)))
            found.append(at)
        called = [part for part in parts if part.region in self.refused]
        stored = {*self.program.inputs, *(value for part in called for value in (*part.operands, *part.results))}
        left = Counter(value for part in parts for value in part.operands)
        read: dict[Value, int] = dict.fromkeys(self.program.results, -1)
        read_at: set[tuple[Value, int]] = set()

        def is_there(value: Value, at: int) -> bool:
            """Whether a value is at hand where an instruction is computed later, if that is the last to ask for it."""
            if value in stored:
                return (value, at) in read_at
            return left[value] == 1 and read.get(value, at) >= at

        for place in reversed(range(len(parts))):
            part = parts[place]
            first = min((read.get(value, -1) for value in part.results), default=-1)
            if (
                part.region not in self.refused
                and first > found[place]
                and (is_cheap(part) or all(is_there(value, first) for value in part.operands))
            ):
                found[place] = first
            for value in part.operands:
                read[value] = min(read.get(value, found[place]), found[place])
                read_at.add((value, found[place]))
                left[value] -= 1
        return found

    def _needed(self, inside: list[Instruction], parts: list[Instruction]) -> list[Value]:
        """The values of a region that are read outside of it."""
        mine = {id(part) for part in inside}
        read = {value for part in parts if id(part) not in mine for value in part.operands} | set(self.program.results)
        return [value for part in inside for value in part.results if value in read]

    def _fused(self, inside: list[Instruction], needed: list[Value]) -> list[Step]:
        """The fusions of a region, one for each set of instructions that have values or rows in common."""
        made: list[Step] = []
        for group in _groups(inside):
            results = {value for part in group for value in part.results}
            wanted = [value for value in needed if value in results]
            if not wanted:
                continue
            if all(part.op in VIEWS for part in group):
                made += [Called(part, "a view moves no elements") for part in group]
                continue
            fusing = self._fusing(group, wanted)
            try:
                planned = stored_plan(fusing.fusion, fusing.target, self.name)
            except CannotSchedule as error:
                raise _Refusal(self._region_of(group, error), str(error)) from error
            made.append(Fused(tuple(group), fusing, planned))
        return made

    def _fusing(self, group: list[Instruction], wanted: list[Value]) -> Fusing:
        device = next(value.type.device.type for part in group for value in part.results)
        fusing = Fusing(Known(self.program.guards), TARGETS[device])
        for part in group:
            try:
                apply(fusing, part)
            except NotFused as error:
                raise _Refusal(part.region, str(error)) from error
        makers = {value: part for part in group for value in part.results}
        for value in wanted:
            try:
                fusing.store(value)
            except (NotFused, ValueError, TypeError) as error:
                raise _Refusal(makers[value].region, str(error)) from error
        fusing.bind_sizes()
        return fusing

    def _region_of(self, group: list[Instruction], error: CannotSchedule) -> str:
        """The user's operation that stands in the way; the last one, if nobody knows."""
        name = getattr(error.tensor, "name", None)
        for part in group:
            if any(str(value.name) == name for value in part.results):
                return part.region
        return group[-1].region


def _listed(names: Collection[str]) -> str:
    return " or ".join(sorted(names)) or "none"


class _Refusal(Exception):
    def __init__(self, region: str, reason: str) -> None:
        super().__init__(f"{region}: {reason}")
        self.region, self.reason = region, reason


def _renamed(made: list[Instruction], result: Value, instruction: Instruction) -> tuple[Instruction, ...]:
    """The instructions of a body, the last of which makes the value that the whole operation did."""
    wanted = instruction.result
    if result.type != wanted.type:
        raise NotFused(f"its body gives {result.type}, and the operation {wanted.type}")
    for place, part in enumerate(made):
        if part.result == result:
            own = replace(part, result=wanted)

            def renamed(each: Any) -> Any:
                return wanted if isinstance(each, Value) and each == result else each

            rest = [
                replace(
                    later,
                    arguments=replaced(later.arguments, renamed),
                    named=tuple((name, replaced(each, renamed)) for name, each in later.named),
                )
                for later in made[place + 1 :]
            ]
            return (*made[:place], own, *rest)
    return (*made, Instruction("Tensor.detach", (result,), (), wanted, region=instruction.region))


def _groups(inside: list[Instruction]) -> list[list[Instruction]]:
    """The instructions in groups that share no value, each in their order."""
    root: dict[object, object] = {}

    def find(node: object) -> object:
        while root.setdefault(node, node) is not node:
            node = root[node]
        return node

    for part in inside:
        for value in (*part.operands, *part.results):
            root[find(value)] = find(id(part))
    groups: dict[object, list[Instruction]] = {}
    for part in inside:
        groups.setdefault(find(id(part)), []).append(part)
    return list(groups.values())
