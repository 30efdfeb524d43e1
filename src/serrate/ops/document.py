"""docs/operations.md, made from the table: `python -m serrate.ops.document > docs/operations.md`."""

from __future__ import annotations

import inspect

from serrate.ops import operators as _operators  # noqa: F401 (fills the table)
from serrate.ops.record import BY_TORCH, TABLE, Op

INTRODUCTION = """# Operations

Made from the table of operations; do not edit. Each works on any structure, without padding and without a loop over
rows. `torch.<name>`, the method `x.<name>()` and `sr.<name>` compute the same: `sr.*` has the array API's names,
defaults and results, the others have torch's. A number or a torch tensor may stand for an operand. In a signature, what
stands before `/` is given by position and what stands behind `*` by name. What begins with `x` is done by a tensor x
itself, what begins with `g` by the groups that `sr.group_by` gives, and `sr` has no function for either. `sr.linalg`
and `sr.fft` are the array API's extensions; the axes they work along are uniform, and others may be ragged.

```pycon
>>> import torch
>>> import serrate as sr
>>> x = sr.ragged([[1.0, -2.0], [], [3.0]])
>>> (sr.relu(x) * 2 + torch.tensor([[10.0], [20.0], [30.0]])).tolist()
[[12.0, 10.0], [], [36.0]]
>>> torch.nn.functional.relu(x).tolist()
[[1.0, 0.0], [], [3.0]]
```
"""

SYNTAX = {"Tensor.getitem": "x[key]", "Tensor.setitem": "x[key] = value", "Grouped.ungroup": "g.ungroup(y, /)"}
"""How operations are written that have no name in Python, or are given what the tensor itself knows."""


def page() -> str:
    """The whole page."""
    families: dict[str, list[Op]] = {}
    for op in TABLE.values():
        families.setdefault(op.family, []).append(op)
    parts = [INTRODUCTION]
    for family, ops in families.items():
        parts.append(
            f"## {family.capitalize()}\n\n| operation | gives | elements | is | derivative |\n|---|---|---|---|---|"
        )
        parts.append("\n".join(_row(op) for op in sorted(ops, key=lambda op: op.name)) + "\n")
    return "\n".join(parts)


def _row(op: Op) -> str:
    names = " ".join([f"`{_call(op)}`", *(f"`sr.{each}.{op.name}`" for each in op.also)])
    return f"| {names} | {op.summary} | {', '.join(op.kinds)} | {_kind(op)} | {_derivative(op)} |"


def _kind(op: Op) -> str:
    """What an operation is for a program: a primitive of some kind, or a composition of others."""
    return op.primitive.replace("_", " ") if op.primitive else "composition"


def _derivative(op: Op) -> str:
    """Where the derivative of an operation comes from, or why there is none."""
    if op.flat:
        return f"none: {op.flat}"
    if op.vjp is None:
        return "composition"
    return "torch's" if op.vjp == BY_TORCH else "rule"


def _call(op: Op) -> str:
    """How it is called: a function by its name and parameters, a method by those after the tensor."""
    if op.name in SYNTAX:
        return SYNTAX[op.name]
    plain = [p.replace(annotation=p.empty) for p in op.signature.parameters.values()]
    of = {"Tensor": "x", "Grouped": "g"}.get(op.home)
    shown = op.signature.replace(parameters=plain[0 if of is None else 1 :], return_annotation=inspect.Signature.empty)
    return f"sr.{op.name}{shown}" if of is None else f"{of}.{op.name.rpartition('.')[2]}{shown}"


if __name__ == "__main__":
    print(page(), end="")
