"""How fusions and their tensors are drawn: `serrate.viz`, which stands above this layer, tells when it is imported."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

DRAWN: dict[str, Callable[[Any], Any]] = {}
"""For a "fusion" and for a "tensor" what draws it."""


def drawn(what: str, each: Any) -> Any:
    """A drawing of a fusion or a tensor, or an error that says what to import."""
    if what not in DRAWN:
        raise RuntimeError(f"nothing is known of drawing a {what} yet; import serrate.viz first")
    return DRAWN[what](each)
