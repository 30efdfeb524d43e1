"""Equations of einsum: the labels that they give to axes, and the gradient of an einsum, which is an einsum itself."""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any

from serrate.ops.record import ops
from serrate.ops.rules import conjugate, in_dtype, ragged_as
from serrate.tensor.structure import Ragged

Labels = tuple[str, ...]


def batch_labels(count: int, most: int) -> Labels:
    """Labels of `count` batch axes, aligned at the right of `most`."""
    return tuple(f"batch{i}" for i in range(most - count, most))


def parse(equation: str, tensors: Sequence[Any]) -> tuple[list[Labels], list[str]]:
    """The labels of each operand and of the result; "..." stands for the axes not named, aligned at the right."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(tensors):
        raise ValueError(f"einsum {equation!r} names {len(terms)} operands, got {len(tensors)}")
    most, inputs = 0, []
    for term, x in zip(terms, tensors, strict=True):
        named = len(term.replace("...", ""))
        if named > x.ndim or (named != x.ndim and "..." not in term):
            raise ValueError(f"einsum {equation!r} names {named} axes of an operand of shape {x.shape}")
        most = max(most, x.ndim - named)
        inputs.append((term, x.ndim - named))

    def expand(term: str, rest: int) -> Labels:
        before, dots, after = term.partition("...")
        return (*before, *(batch_labels(rest, most) if dots else ()), *after)

    made = [expand(term, rest) for term, rest in inputs]
    if not arrow:
        seen = [label for labels in made for label in labels if len(label) == 1]
        right = ("..." if most else "") + "".join(sorted(label for label in set(seen) if seen.count(label) == 1))
    out = list(expand(right, most))
    unknown = [label for label in out if not any(label in labels for labels in made)]
    if unknown or len(set(out)) < len(out):
        raise ValueError(f"the result of einsum {equation!r} must name axes of operands, each once")
    return made, out


def _equation(inputs: Sequence[Sequence[str]], out: Sequence[str]) -> str:
    """The text of an equation between labels."""
    known = dict.fromkeys(label for labels in inputs for label in labels)
    letters = dict(zip(known, string.ascii_letters, strict=False))
    terms = ["".join(letters[label] for label in labels) for labels in (*inputs, out)]
    return f"{','.join(terms[:-1])}->{terms[-1]}"


def einsum_vjp(g: Any, out: Any, operands: Sequence[Any], *, equation: str) -> list[Any]:
    """The gradient of each operand: an einsum of the result's gradient and the other operands."""
    inputs, kept = parse(equation, operands)
    parents = _summed_parents(operands, inputs, kept)
    if parents:  # Such a sum is one of whole rows, position by position: it is taken back by itself.
        kept = [*parents, *kept]
        before = ops.einsum(_equation(inputs, kept), *operands)
        g = ops.expand_like(g, before, axis=tuple(range(len(parents))))
    return [_gradient(g, kept, operands, inputs, number) for number in range(len(operands))]


def _summed_parents(operands: Sequence[Any], inputs: Sequence[Labels], kept: Sequence[str]) -> list[str]:
    """The labels that are summed over though the result has a ragged axis that depends on them."""
    found: dict[str, None] = {}
    for x, labels in zip(operands, inputs, strict=True):
        for label, size in zip(labels, x.shape, strict=True):
            if isinstance(size, Ragged) and label in kept:
                found |= {labels[p]: None for p in size.parents if labels[p] not in kept}
    return list(found)


def _gradient(g: Any, kept: Sequence[str], operands: Sequence[Any], inputs: Sequence[Labels], number: int) -> Any:
    """The gradient of one operand, or None if it has none."""
    x, labels = operands[number], inputs[number]
    if not (x.is_floating_point() or x.is_complex()):
        return None
    others = [each for each in range(len(operands)) if each != number]
    sources = [g, *(conjugate(operands[each]) for each in others)]
    named = [tuple(kept), *(inputs[each] for each in others)]
    own: list[str] = []
    for axis, label in enumerate(
        labels
    ):  # A label that stands twice is that of a diagonal, outside of which there is 0.
        own.append(f"{label} at {axis}" if label in own else label)
        if own[-1] != label:
            sources.append(ops.eye(x.shape[axis], dtype=g.dtype, device=g.device))
            named.append((label, own[-1]))
    sizes = {label: set[Any]() for label in own}
    for source, given in zip(sources, named, strict=True):
        for label, size in zip(given, source.shape, strict=True):
            sizes.setdefault(label, set()).add(1 if size == 1 else None)
    # What nothing else has, or has with size 1 alone, is the same everywhere along the axis.
    alone = [axis for axis, label in enumerate(own) if not sizes[label] or (x.shape[axis] != 1 and sizes[label] == {1})]
    stretched = [axis for axis, label in enumerate(own) if x.shape[axis] == 1 and None in sizes[label]]
    parents = {p for size in x.shape if isinstance(size, Ragged) for p in size.parents}
    later = [axis for axis in stretched if axis in parents]  # The ragged axes on it are summed by position.
    target = [axis for axis in range(x.ndim) if axis not in alone and (axis not in stretched or axis in later)]
    made = ops.einsum(_equation(named, [own[axis] for axis in target]), *sources)
    if later:
        made = ops.sum(made, axis=tuple(target.index(axis) for axis in later), keepdims=True)
    left = [axis for axis in range(x.ndim) if axis not in alone]
    for place, axis in enumerate(left):
        if axis not in target:
            made = ops.expand_dims(made, axis=place)
    if later:
        made = ragged_as(made, ops.sum(x, axis=tuple(alone)) if alone else x)
    return in_dtype(ops.expand_like(made, x, axis=tuple(alone)) if alone else made, x.dtype)
