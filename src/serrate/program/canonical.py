"""Parts of programs as bytes that are the same in every process: equal bytes mean equal parts.

An expression of a partition is written as a digest of all that is known of it, since it may hold others many times.
"""

from __future__ import annotations

import pickle
from dataclasses import fields
from hashlib import sha256
from io import BytesIO
from typing import Any

from serrate.program.partitions import Expression

_DIGEST = "_digest"
"""Where an expression keeps its digest."""


def canonical(parts: Any) -> bytes | None:
    """The parts as bytes; None if something in them has no name in another process, as a local function has none.

    >>> canonical(("sum", 1)) == canonical(("sum", 1)), canonical(("sum", 1)) == canonical(("sum", 1.0))
    (True, False)
    >>> canonical(lambda x: x) is None
    True
    """
    try:
        return _written(parts)
    except (pickle.PicklingError, AttributeError, TypeError, RecursionError):
        return None


def _written(parts: Any) -> bytes:
    file = BytesIO()
    pickler = _Pickler(file, 5)
    pickler.fast = True  # equal things are written alike, whether they are the same object or not
    pickler.dump(parts)
    return file.getvalue()


class _Pickler(pickle.Pickler):
    def reducer_override(self, part: Any) -> Any:
        """The digest of an expression; everything else as it is."""
        return (bytes, (_digest(part),)) if type(part) is Expression else NotImplemented


def _digest(expression: Expression) -> bytes:
    kept = vars(expression)
    if _DIGEST not in kept:
        said = _written(tuple(getattr(expression, each.name) for each in fields(expression)))
        object.__setattr__(expression, _DIGEST, sha256(said).digest())
    found: bytes = kept[_DIGEST]
    return found
