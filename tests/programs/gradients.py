"""Gradients of whole programs: random cotangents of every tensor at the end, back to every leaf, once and twice."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from tests.programs.program import Program, Step
from tests.programs.reading import Difference, difference, storage

import serrate as sr


@dataclass(frozen=True)
class Gradients:
    """What the oracle says: of each leaf, once and, where it was asked for, twice."""

    first: tuple[torch.Tensor, ...]
    second: tuple[torch.Tensor, ...] | None


def compare_gradients(program: Program, names: dict[str, Any]) -> None:
    """A Difference unless the gradients of all leaves are those of the oracle, undefined rows being NaN throughout."""
    with torch.device("cpu"):
        _compare_all(program, names)


def _compare_all(program: Program, names: dict[str, Any]) -> None:
    wanted = [n for n, m in program.environment.items() if m.flat.requires_grad]
    if not program.leaves or not wanted:
        return
    cotangents = _cotangents(program, wanted)
    twice = program.seed % 4 == 0
    if program.gradients is None:
        program.gradients = _by_oracle(program, wanted, cotangents, twice)
    outputs = [n for n in wanted if _tensor(names[n]).values.requires_grad]
    have = [_tensor(names[n]).values for n in outputs]
    given = [_scattered(_tensor(names[n]), cotangents[n]) for n in outputs]
    leaves = [_tensor(names[name]).values for name in program.leaves]
    counts = [want.numel() for want in program.gradients.first]
    second = None
    try:
        first = _defined(_grad(have, leaves, given, twice), leaves, counts)
        if program.gradients.second is not None:
            second = _defined(_again(program, first, leaves), leaves, counts)
    except Exception as error:
        # The gradient of attention reads its result, so nothing may be written to that, either.
        attends = any(isinstance(s, Step) and s.operation == "attention" for s in program.statements)
        if (program.overwrites or attends) and "modified by an inplace operation" in str(error):
            return
        raise Difference(f"gradient: {type(error).__name__}: {error}") from None
    _compare("gradient", program, first, program.gradients.first)
    if second is not None and program.gradients.second is not None:
        _compare("second gradient", program, second, program.gradients.second)


def _by_oracle(program: Program, wanted: Sequence[str], cotangents: dict[str, torch.Tensor], twice: bool) -> Gradients:
    leaves = list(program.leaves.values())
    counts = [leaf.numel() for leaf in leaves]
    flats = [program.environment[n].flat for n in wanted]
    first = _defined(_grad(flats, leaves, [cotangents[n] for n in wanted], twice), leaves, counts)
    second = None
    if twice and all(bool(torch.isfinite(g).all()) for g in first):
        second = tuple(_defined(_again(program, first, leaves), leaves, counts))
    return Gradients(tuple(first), second)


def _grad(
    outputs: Sequence[torch.Tensor], leaves: Sequence[torch.Tensor], given: Sequence[torch.Tensor], twice: bool
) -> Sequence[torch.Tensor | None]:
    if not outputs:
        return [None] * len(leaves)
    # Where torch lacks a derivative, the next run of the program asks the same graph again.
    return torch.autograd.grad(outputs, leaves, given, allow_unused=True, create_graph=twice, retain_graph=True)


def _again(
    program: Program, first: Sequence[torch.Tensor], leaves: Sequence[torch.Tensor]
) -> Sequence[torch.Tensor | None]:
    """The gradient of a random combination of the gradients."""
    numbers = random.Random(program.seed + 1)
    total = torch.zeros((), dtype=torch.float64)
    for gradient in first:
        weights = torch.tensor([round(numbers.uniform(-1, 1), 3) for _ in range(gradient.numel())], dtype=torch.float64)
        total = total + (gradient * weights).sum()
    if not total.requires_grad:
        return [None] * len(leaves)
    return torch.autograd.grad(total, leaves, allow_unused=True, retain_graph=True)


def _defined(
    found: Sequence[torch.Tensor | None], leaves: Sequence[torch.Tensor], counts: Sequence[int]
) -> list[torch.Tensor]:
    """The defined part of each gradient, packed; 0 where there is none."""
    made = zip(found, leaves, counts, strict=True)
    return [torch.zeros(n, dtype=v.dtype) if g is None else g.reshape(-1)[:n].cpu() for g, v, n in made]


def _compare(what: str, program: Program, found: Sequence[torch.Tensor], wanted: Sequence[torch.Tensor]) -> None:
    for name, got, want in zip(program.leaves, found, wanted, strict=True):
        got, want = got.detach(), want.detach()
        got = torch.where(torch.isfinite(want), got, want)
        try:
            difference(got, want, [(k,) for k in range(want.numel())], least_precision(program))
        except Difference as wrong:
            raise Difference(f"{what} of {name}, packed: {wrong}") from None


def least_precision(program: Program) -> torch.dtype:
    """The least precise of the dtypes that a gradient may have come through."""
    met = {flat.dtype for outcome in program.outcomes for _, _, flat in outcome.after}
    ranked = (torch.bfloat16, torch.float16, torch.complex64, torch.float32)
    return next((dtype for dtype in ranked if dtype in met), torch.float64)


def _tensor(x: Any) -> sr.Tensor:
    return x if isinstance(x, sr.Tensor) else sr.Tensor(x)


def _cotangents(program: Program, names: Sequence[str]) -> dict[str, torch.Tensor]:
    """A random number for each element of each tensor; 0 where the element is not finite."""
    numbers = random.Random(program.seed)
    made = {}
    for name in names:
        flat = program.environment[name].flat.detach()
        weights = [
            complex(round(numbers.uniform(-1, 1), 3), round(numbers.uniform(-1, 1), 3)) for _ in range(flat.numel())
        ]
        given = torch.tensor(weights, dtype=torch.complex128)
        made[name] = (given if flat.is_complex() else given.real).to(flat.dtype) * torch.isfinite(flat)
    return made


def _scattered(x: sr.Tensor, cotangent: torch.Tensor) -> torch.Tensor:
    """A cotangent in storage order; NaN in undefined rows, whose gradients nobody may read."""
    _, _, places = storage(x)
    made = torch.full((x.values.numel(),), float("nan"), dtype=x.values.dtype)
    made[torch.tensor(places, dtype=torch.int64)] = cotangent
    return made.reshape(x.values.shape).to(x.device)
