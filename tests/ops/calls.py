"""A sample of the table as a function of torch tensors: what transforms of torch take, and what it gives as tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from tests.ops.matrix import absent, arguments, result_of
from tests.ops.samples import sample

import serrate as sr
from serrate.ops.record import Op


def is_inexact(given: Any) -> bool:
    """Whether it has elements that one can differentiate by."""
    return isinstance(given, (torch.Tensor, sr.Tensor)) and (given.is_floating_point() or given.is_complex())


def tensors(given: Any) -> list[torch.Tensor]:
    """The values of all tensors in a result, or in arguments, in order."""
    if isinstance(given, sr.Tensor):
        return [given.values]
    if isinstance(given, torch.Tensor):
        return [given]
    return [t for part in given for t in tensors(part)] if isinstance(given, (list, tuple)) else []


@dataclass
class Call:
    """One sample of an operation on one structure, as a function of the values of its inexact operands."""

    op: Op
    structure: str
    text: str
    args: tuple[Any, ...]
    options: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.op.name}({self.text}) of {self.structure}"

    @property
    def operands(self) -> list[torch.Tensor]:
        """The values of the inexact operands, in double precision."""
        found = [t for t in tensors((self.args, tuple(self.options.values()))) if is_inexact(t)]
        return [t.to(torch.complex128 if t.is_complex() else torch.float64) for t in found]

    def __call__(self, *operands: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The results for other values of those operands; random ones are drawn alike in each call."""
        torch.manual_seed(0)
        given = iter(operands)
        args = replaced(self.args, given)
        options = {name: replaced(value, given) for name, value in self.options.items()}
        return tuple(tensors(result_of(self.op, args, options)))

    @property
    def smooth(self) -> Callable[..., tuple[torch.Tensor, ...]] | None:
        """The same with only the results that have a derivative; None if none has."""
        made = self(*(x.clone().requires_grad_() for x in self.operands))
        kept = [i for i, out in enumerate(made) if out.requires_grad]
        return (lambda *operands: tuple(self(*operands)[i] for i in kept)) if kept else None


def with_values(x: sr.Tensor, values: torch.Tensor) -> sr.Tensor:
    """The same tensor around other values; groups keep the way back of their rows."""
    if isinstance(x, sr.Grouped):
        return sr.Grouped(values, x.structure, x.order, x.team, route=x.route)
    return x._with(values)


def replaced(given: Any, operands: Iterator[torch.Tensor]) -> Any:
    """Arguments with other values in the place of those of inexact tensors, in order."""
    if is_inexact(given):
        values = next(operands)
        return with_values(given, values) if isinstance(given, sr.Tensor) else values
    return type(given)(replaced(part, operands) for part in given) if type(given) in (list, tuple) else given


def calls(op: Op, structures: list[str], dtype: torch.dtype = torch.float64) -> Iterator[Call]:
    """Its samples on elements of `dtype`, or on integers if it takes no floats."""
    for structure in structures:
        if absent(op, structure, dtype):
            continue
        for text in op.samples:
            args, options = arguments(text, sample(structure, dtype))
            call = Call(op, structure, text, args, options)
            if call.operands:
                yield call


def kind_of(op: Op) -> torch.dtype:
    """The widest floats if it takes any, else integers."""
    return torch.float64 if "float" in op.kinds else torch.int64
