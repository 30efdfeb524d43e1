"""Programs of all groups of operations of the ptensor dialect, and their texts: `python -m tests.dialects.groups`.

The texts lie in `goldens`: of each group the programs as they are traced, and what lower-ptensor makes of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from tests.dialects.traced import traced

import serrate as sr
from serrate.dialects import lower_ptensor
from serrate.dialects.texts import parse
from serrate.dialects.to_text import module_of_all
from serrate.program.program import Program

GOLDENS = Path(__file__).parent / "goldens"
R = sr.from_lengths(torch.linspace(-1, 1, 12).view(6, 2), [3, 0, 2, 1])
V = sr.from_lengths(torch.linspace(-1, 1, 6), [3, 0, 2, 1])
N = sr.from_lengths(torch.arange(6), [3, 0, 2, 1])
M = sr.from_lengths(torch.arange(6) % 2 == 0, [3, 0, 2, 1])
D = sr.asarray(torch.linspace(-1, 1, 12).view(3, 4))
E = sr.asarray(torch.linspace(-1, 1, 12).view(4, 3))
I = sr.asarray(torch.tensor([2, 0]))  # noqa: E741
U = sr.asarray(torch.tensor([3, 1, 3, 2]))

F = sr.asarray(torch.linspace(-1, 1, 6))
K = sr.asarray(torch.tensor([2, 0, 2]))
OFFSETS = torch.tensor([0, 3, 3, 5, 6])
NUMBERS = sr.from_lengths(torch.tensor([2, 0, 0, 0]), [2, 0, 1, 1])

Case = tuple[str, Callable[..., Any], tuple[Any, ...]]


def inserted(x: Any) -> Any:
    """A tensor that is written to."""
    y = x * 1
    y[:, :, 0] = 0.0
    return y


GROUPS: dict[str, list[Case]] = {
    "creation": [
        ("arange", lambda: sr.arange(2, 32, 3), ()),
        ("create", lambda: (sr.zeros((2, 3)), sr.full((4,), 7)), ()),
        ("create_like", lambda x: (sr.zeros_like(x), sr.full_like(x, 2.0)), (R,)),
        ("eye", lambda: sr.eye(3, 4, k=1), ()),
        ("linspace", lambda: sr.linspace(0.0, 1.0, 5), ()),
        ("meshgrid", lambda a, b: sr.meshgrid(a, b), (I, U)),
        ("extract_triangle", lambda x: (sr.tril(x), sr.triu(x, k=1)), (D,)),
    ],
    "types": [
        ("cast", lambda x: sr.astype(x, torch.float64), (R,)),
        ("broadcast", lambda x: sr.broadcast_to(x, (2, 3, 4)), (D,)),
    ],
    "indexing": [
        ("extract_slice", lambda x: x[:, :2], (R,)),
        ("extract_slice_by_numbers", lambda x, i: x[i], (R, I)),
        ("insert_slice", inserted, (R,)),
        ("gather", lambda x, i: sr.gather(x, i, axis=1), (V, NUMBERS)),
    ],
    "manipulation": [
        ("concat", lambda x, y: sr.concat([x, y], axis=1), (R, R)),
        ("stack", lambda x, y: sr.stack([x, y], axis=0), (D, D)),
        ("expand_dims", lambda x: sr.expand_dims(x, axis=1), (D,)),
        ("flip", lambda x: sr.flip(x, axis=1), (R,)),
        ("permute_dims", lambda x: sr.permute_dims(x, (1, 0)), (D,)),
        ("reshape", lambda x: sr.reshape(x, (2, 6)), (D,)),
        ("roll", lambda x: sr.roll(x, 1, axis=1), (R,)),
        ("squeeze", lambda x: sr.squeeze(sr.sum(x, axis=1, keepdims=True), axis=1), (D,)),
    ],
    "elementwise": [
        ("elementwise_unary_op", lambda x: sr.exp(x), (R,)),
        ("elementwise_unary_test", lambda x: sr.isnan(x), (R,)),
        ("elementwise_binary_op", lambda x, y: x + y * 2, (R, R)),
        ("elementwise_binary_test", lambda x, y: sr.greater(x, y), (R, R)),
    ],
    "linear_algebra": [
        ("matmul", lambda x, y: sr.matmul(x, y), (D, E)),
        ("matrix_transpose", lambda x: sr.matrix_transpose(x), (D,)),
        ("vecdot", lambda x, y: sr.vecdot(x, y, axis=-1), (R, R)),
        ("tensor_dot", lambda x, y: sr.tensordot(x, y, axes=1), (D, E)),
    ],
    "searching": [
        ("find_index", lambda x: sr.argmax(x, axis=1), (V,)),
        ("nonzero", lambda x: sr.nonzero(x), (D,)),
        ("where", lambda m, x, y: sr.where(m, x, y), (M, V, V)),
    ],
    "sets": [
        ("unique_all", lambda x: tuple(sr.unique_all(x)), (U,)),
        ("unique_counts", lambda x: tuple(sr.unique_counts(x)), (U,)),
        ("unique_inverse", lambda x: tuple(sr.unique_inverse(x)), (U,)),
        ("unique_values", lambda x: sr.unique_values(x), (U,)),
    ],
    "sorting": [
        ("sort", lambda x: sr.sort(x, axis=1, descending=True), (V,)),
        ("argsort", lambda x: sr.argsort(x, axis=1), (V,)),
    ],
    "reductions": [
        ("reduce", lambda x: (sr.sum(x, axis=1), sr.var(x, axis=1, correction=1)), (R,)),
        ("test", lambda m: (sr.any(m, axis=1), sr.all(m, axis=1)), (M,)),
    ],
    "ragged": [
        ("as_nested", lambda x, o: sr.from_offsets(x, o), (F, OFFSETS)),
        ("flatten", lambda x: x.flat(), (R,)),
        ("to_dense", lambda x: x.to_dense(), (R,)),
        ("scan", lambda x: sr.cumulative_sum(x, axis=1), (V,)),
        ("attention", lambda x: sr.attention(x, x, x), (R,)),
        ("group_by", lambda x, k: sr.group_by(x, k, 3), (D, K)),
        ("ungroup", lambda x, k: (g := sr.group_by(x, k, 3)).ungroup(g * 2), (D, K)),
        ("from_dense", lambda x, y: sr.from_dense(x.to_dense() * 2, like=y), (R, R)),
        ("call", lambda x: sr.softmax(x, axis=1), (V,)),
    ],
}


def programs(group: str) -> dict[str, Program]:
    """The programs of a group; sizes of dense tensors are numbers."""
    made = {}
    for name, function, operands in GROUPS[group]:
        program = traced(function, *operands, is_static=True)
        made[name] = replace(program, instructions=tuple(replace(each, where="") for each in program.instructions))
    return made


def texts(group: str) -> dict[str, str]:
    """The texts of a group by the names of their files."""
    text = str(module_of_all(programs(group)))
    return {f"{group}.mlir": text, f"{group}.lowered.mlir": str(lower_ptensor.run(parse(text)))}


def main() -> None:
    """Write the texts anew."""
    for group in GROUPS:
        for name, text in texts(group).items():
            (GOLDENS / name).write_text(text)


if __name__ == "__main__":
    main()
