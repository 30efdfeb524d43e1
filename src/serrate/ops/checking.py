"""Checking: whether the results of an instruction have the types that its operation gives for its operands.

The types are found by the rule that a tracer follows (`serrate.ops.meta`), so that no second one could say otherwise.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import torch

from serrate.eager.precision import casting
from serrate.ops.effects import writes
from serrate.ops.meta import Typed, call_name, typed
from serrate.ops.record import TABLE
from serrate.ops.remembering import answer_to, question, remember
from serrate.program.abstract import mapped
from serrate.program.canonical import canonical
from serrate.program.guards import Guard, Known
from serrate.program.partitions import Expression
from serrate.program.program import Instruction, values_in
from serrate.program.substitution import Substitution
from serrate.program.types import TensorType


def has_rule(instruction: Instruction) -> bool:
    """Whether the types of an instruction's results are found here.

    They follow from a record, so that what calls a function of its own has none, and its implementation has to run on
    tensors without elements: for devices that this torch was not built for it cannot.
    """
    if instruction.op not in TABLE or instruction.function is not None:
        return False
    values = (*instruction.operands, *instruction.results)
    return all(_is_known(value.type.device.type) for value in values)


@cache
def _is_known(device: str) -> bool:
    """Whether this torch was built for devices of a kind."""
    if device in ("cpu", "meta"):
        return True
    if device == "cuda":
        return torch.version.cuda is not None or torch.version.hip is not None
    is_available = getattr(getattr(torch, device, None), "is_available", None)
    return is_available is not None and bool(is_available())


def found_types(instruction: Instruction, guards: tuple[Guard, ...], program: int | None) -> Typed:
    """What an instruction of a record gives, with types in the place of tensors, and the guards that this needs.

    Other instructions of the same operands and attributes are answered by what was found for the first.
    """
    if instruction.autocast is not None:
        with casting(dict(instruction.autocast)):
            return found_types(replace(instruction, autocast=None), guards, program)
    op, options = TABLE[instruction.op], dict(instruction.named)
    given = instruction.arguments
    bound = op.signature.bind(*given, **options).arguments if op.decides else {}
    by_elements = any(True for name in op.decides for _ in values_in(bound.get(name)))
    asked = None if by_elements else question("result", op.name, None, given, options, guards)
    found: Typed | None = answer_to(asked, program)
    if found is None:
        call = call_name(op, given, options)
        found = typed(op.name, call, op.implementations[-1].function, given, options, program, guards)
        remember(asked, found)
    return Typed(None, found.guards) if writes(instruction) else found


def types_in(given: object) -> list[TensorType]:
    """The types in a result, from left to right."""
    found: list[TensorType] = []
    mapped(given, lambda part: found.append(part) if isinstance(part, TensorType) else None)
    return found


class Comparison:
    """Compares types, with what the guards of a program say taken for equal."""

    def __init__(self, guards: tuple[Guard, ...]) -> None:
        known = Known(guards)
        self._same = Substitution({each: known.size(size) for each, size in known.sizes.items()})
        found = sorted(known.partitions, key=lambda each: known.partition(each).depth)
        for each in found:  # a partition comes after those that it is made of
            self._same.partitions[each] = self._same.partition(known.partition(each))

    def same(self, one: TensorType, other: TensorType) -> bool:
        """Whether both types say the same.

        Not compared are the names of sizes and partitions that guards say to be equal, and the program that a type was
        made for. Everything else is: what a partition was made of, and what is known of its lengths, too.
        """
        said = canonical(replace(one, program=None))
        if said is not None and said == canonical(replace(other, program=None)):
            return True
        mine, theirs = (
            replace(self._same, partitions=dict(self._same.partitions)).type(each) for each in (one, other)
        )  # apart, since equal partitions of which other things are known would become one
        return mine == theirs and all(map(_same_knowledge, mine.partitions, theirs.partitions))


def _same_knowledge(one: Expression, other: Expression) -> bool:
    """Whether the same is known of the lengths of two partitions that are equal."""
    names = ("components", "capacity", "uniform_length", "bound", "same_lengths")
    return all(getattr(one, name) == getattr(other, name) for name in names)
