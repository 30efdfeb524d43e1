"""`sr.jit`: a function over ragged tensors, traced once for each signature and run as a few fused kernels."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from serrate.errors import TracerError
from serrate.jit.hosting import GuardFailed, host_program
from serrate.jit.signature import Arguments, flat
from serrate.jit.steps import DRAWS, Cutter, Fused, Step
from serrate.jit.tracing import Trace
from serrate.passes import common_subexpressions, dead_code
from serrate.program.program import Program


@dataclass
class Stats:
    """What a compiled function did up to now."""

    traces: int = 0
    """How often it was traced."""
    kernels: int = 0
    """How many kernels its programs have."""
    library_calls: int = 0
    """How many library calls its programs have."""
    eager_calls: int = 0
    """How many calls ran eagerly, since the function asks for what no type says."""


@dataclass(frozen=True)
class Compiled:
    """A function for one signature: its program, how it is cut, and what runs it."""

    program: Program | None
    steps: tuple[Step, ...]
    run: Callable[..., Any] | None
    """None if the function runs eagerly."""
    captured: tuple[Any, ...]
    reason: str = ""
    """Why it runs eagerly."""


@dataclass
class Jitted:
    """A compiled function. Call it as the function itself."""

    function: Callable[..., Any]
    stats: Stats = field(default_factory=Stats)

    def __post_init__(self) -> None:
        self._known: dict[Any, Compiled] = {}
        self._sized: set[Any] = set()  # signatures for which sizes are a part of the signature
        functools.update_wrapper(self, self.function)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        given = flat(arguments, named)
        found = self._known.get(given.key)
        if found is None:
            found = self._compiled(given)
        if found.run is None and given.key in self._sized:
            key = (given.key, given.sizes)
            found = self._known.get(key) or self._compiled(given)
        if found.run is None:
            self.stats.eager_calls += 1
            return self.function(*arguments, **named)
        try:
            return found.run(*given.tensors, *found.captured)
        except GuardFailed:
            return self.function(*arguments, **named)

    def _compiled(self, given: Arguments) -> Compiled:
        """The function for a signature. If it asks for a size that no type knows, each size is a signature of its own;
        if it asks for more than that, it runs eagerly."""
        if given.key not in self._known:
            try:
                self._known[given.key] = self._traced(given, is_static=False)
                return self._known[given.key]
            except TracerError:
                raise
            except (TypeError, ValueError, LookupError, AttributeError) as error:
                self._known[given.key] = Compiled(None, (), None, (), str(error))
                self._sized.add(given.key)
        key = (given.key, given.sizes)
        try:
            self._known[key] = self._traced(given, is_static=True)
        except TracerError:
            raise
        except (TypeError, ValueError, LookupError, AttributeError) as error:
            self._known[key] = Compiled(None, (), None, (), str(error))
        return self._known[key]

    def _traced(self, given: Arguments, is_static: bool) -> Compiled:
        self.stats.traces += 1
        trace = Trace(is_static=is_static)
        stand_ins = [
            trace.argument(tensor, name, tensor.requires_grad and torch.is_grad_enabled())
            for tensor, name in zip(given.tensors, given.names, strict=True)
        ]
        arguments, named = given.rebuilt(stand_ins)
        program = trace.run(self.function, arguments, named)
        program = common_subexpressions.run(program, lambda each: each.op not in DRAWS)
        program = dead_code.run(program, DRAWS)
        name = _plain(getattr(self.function, "__name__", "kernel"))
        steps = Cutter(program, name=name, partitions=frozenset(trace.partitions)).run()
        run = host_program(program, steps, trace.plain, trace.partitions)
        self.stats.kernels += sum(len(step.planned.steps) for step in steps if isinstance(step, Fused))
        self.stats.library_calls += sum(not isinstance(step, Fused) for step in steps)
        return Compiled(program, steps, run, tuple(trace.captured))


def _plain(name: str) -> str:
    return name if name.isidentifier() else "kernel"


def jit(function: Callable[..., Any]) -> Jitted:
    """The function, compiled: traced once for each signature of its arguments, and run as a few fused kernels.

    >>> import serrate as sr
    >>> @sr.jit
    ... def scaled(x):
    ...     return sr.softmax(x, axis=1) * 2
    >>> scaled(sr.ragged([[0., 0.], [], [7.]])).tolist()
    [[1.0, 1.0], [], [2.0]]
    """
    return Jitted(function)
