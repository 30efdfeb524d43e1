"""What a number of a call depends on: the sizes and the arrays of offsets that decide about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from serrate.fusion.axes import IterDomain
from serrate.fusion.domain import history
from serrate.fusion.raggedness import Raggedness
from serrate.fusion.scalar import Scalar


def arrays_read(expression: Scalar) -> list[str]:
    """The arrays that an expression looks at."""
    return list(dict.fromkeys(str(node.value) for node in expression.walk() if node.op in ("load", "search")))


def symbols_in(value: Any) -> list[Scalar]:
    """The sizes that occur in raggedness, each once."""
    if isinstance(value, Scalar):
        return sorted(value.symbols, key=lambda symbol: str(symbol.value))
    if isinstance(value, Raggedness):
        parts: Iterable[Any] = (getattr(value, field.name) for field in fields(value))  # type: ignore[arg-type]
    else:
        parts = value if isinstance(value, tuple) else ()
    return list(dict.fromkeys(symbol for part in parts for symbol in symbols_in(part)))


def rows_of(axis: IterDomain) -> tuple[list[str], list[Scalar]]:
    """The arrays and sizes that decide how many indices an axis has that was made of rows."""
    axes = [axis, *(x for step in history([axis]) for x in (*step.inputs, *step.outputs))]
    found = [x.raggedness for x in axes if hasattr(x, "raggedness")]
    extents = [x.extent for x in axes if not x.is_ragged]
    bases = [base for raggedness in found for base in raggedness.base_arrays]
    bases += [name for extent in extents for name in arrays_read(extent)]
    return list(dict.fromkeys(bases)), list(dict.fromkeys(s for part in (*found, *extents) for s in symbols_in(part)))
