"""Gradients of whole programs: random cotangents of every tensor at the end, back to every leaf."""

from __future__ import annotations

import random
from typing import Any

import torch
from tests.programs.program import Program
from tests.programs.reading import Difference, difference, storage

import serrate as sr


def compare_gradients(program: Program, names: dict[str, Any]) -> None:
    """A Difference unless the gradients of all leaves are those of the oracle, undefined rows being NaN throughout."""
    leaves = program.leaves
    wanted = {n: m for n, m in program.environment.items() if m.flat.requires_grad}
    if not leaves or not wanted:
        return
    cotangents = _cotangents(program)
    if program.gradients is None:
        flats = [m.flat for m in wanted.values()]
        given = [cotangents[n] for n in wanted]
        found = torch.autograd.grad(flats, list(leaves.values()), given, allow_unused=True)
        program.gradients = [torch.zeros_like(v) if g is None else g for v, g in zip(leaves.values(), found, strict=True)]
    outputs = {n: x.values for n in wanted if (x := _tensor(names[n])).values.requires_grad}
    values = [_tensor(names[name]).values for name in leaves]
    given = [_scattered(_tensor(names[n]), cotangents[n]) for n in outputs]
    try:
        have = torch.autograd.grad(list(outputs.values()), values, given, allow_unused=True) if outputs else ()
    except Exception as error:
        if program.overwrites and "modified by an inplace operation" in str(error):
            return
        raise Difference(f"gradient: {type(error).__name__}: {error}") from None
    for name, want, got in zip(leaves, program.gradients, have or [None] * len(values), strict=True):
        got = torch.zeros_like(want) if got is None else got.reshape(-1)[: want.numel()]
        got = torch.where(torch.isfinite(want), got, want)
        try:
            difference(got, want, [(k,) for k in range(want.numel())])
        except Difference as wrong:
            raise Difference(f"gradient of {name}, packed: {wrong}") from None


def _tensor(x: Any) -> sr.Tensor:
    return x if isinstance(x, sr.Tensor) else sr.Tensor(x)


def _cotangents(program: Program) -> dict[str, torch.Tensor]:
    """A random number for each element of each tensor; 0 where the element is not finite."""
    numbers = random.Random(program.seed)
    made = {}
    for name, x in program.environment.items():
        weights = [complex(round(numbers.uniform(-1, 1), 3), round(numbers.uniform(-1, 1), 3)) for _ in x.indices]
        flat = x.flat.detach()
        if flat.is_complex():
            made[name] = torch.tensor(weights, dtype=flat.dtype) * torch.isfinite(flat)
        elif flat.is_floating_point():
            made[name] = torch.tensor([w.real for w in weights], dtype=flat.dtype) * torch.isfinite(flat)
    return made


def _scattered(x: sr.Tensor, cotangent: torch.Tensor) -> torch.Tensor:
    """A cotangent in storage order; NaN in undefined rows, whose gradients nobody may read."""
    _, _, places = storage(x)
    made = torch.full((x.values.numel(),), float("nan"), dtype=x.values.dtype)
    made[torch.tensor(places, dtype=torch.int64)] = cotangent
    return made.reshape(x.values.shape)
