"""Wrapped: modules that communicate in each call, before and after their `forward`, as those of DDP and FSDP do.

Their hooks have to run in each call, so that only the `forward` inside of them is compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from serrate.compiler.function import Jitted
from serrate.compiler.lowered import Lowered
from serrate.compiler.outside import communicates


class Wrapped(Jitted):
    """A compiled module that communicates: its hooks run in each call, around its compiled `forward`."""

    def __init__(self, function: torch.nn.Module, static: Iterable[str] = ()) -> None:
        super().__init__(function, static)
        inner = getattr(function, "module", function)
        while communicates(inner) and isinstance(getattr(inner, "module", None), torch.nn.Module):
            inner = inner.module
        self._module: torch.nn.Module = inner
        self._forward = Jitted(inner.forward, static)
        self.stats = self._forward.stats

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """What the module gives for these arguments."""
        with _instead(self._module, self._forward):
            return self.function(*arguments, **named)

    def lower(self, *arguments: Any, **named: Any) -> Lowered:
        """The stages of its `forward`, as texts. Parameters that are spread over processes are those of one of them."""
        return self._forward.lower(*arguments, **named)


def compiled(function: Callable[..., Any], static: Iterable[str]) -> Jitted:
    """The compiled function, or module."""
    if isinstance(function, torch.nn.Module) and communicates(function):
        return Wrapped(function, static)
    return Jitted(function, static)


@contextmanager
def _instead(module: torch.nn.Module, forward: Callable[..., Any]) -> Iterator[None]:
    """Have another `forward` for a module, while one call lasts."""
    own = vars(module)
    before = own.get("forward")
    own["forward"] = forward
    try:
        yield
    finally:
        if before is None:
            own.pop("forward", None)
        else:
            own["forward"] = before
