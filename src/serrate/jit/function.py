"""`sr.jit`: a function over ragged tensors, traced once for each signature and run as a few fused kernels."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from serrate.jit.hosting import GuardFailed, Unwritable, host_program
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


@dataclass(frozen=True)
class Compiled:
    """A function for one signature: its program, how it is cut, and what runs it."""

    program: Program
    steps: tuple[Step, ...]
    run: Callable[..., Any]
    captured: tuple[Any, ...]


@dataclass
class Jitted:
    """A compiled function. Call it as the function itself."""

    function: Callable[..., Any]
    stats: Stats = field(default_factory=Stats)

    def __post_init__(self) -> None:
        self._known: dict[Any, Compiled] = {}
        functools.update_wrapper(self, self.function)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        given = flat(arguments, named)
        found = self._known.get(given.key)
        if found is None:
            found = self._known[given.key] = self._compiled(given)
        try:
            return found.run(*given.tensors, *found.captured)
        except GuardFailed:
            return self.function(*arguments, **named)

    def _compiled(self, given: Arguments) -> Compiled:
        self.stats.traces += 1
        trace = Trace()
        stand_ins = [
            trace.argument(tensor, name, tensor.requires_grad and torch.is_grad_enabled())
            for tensor, name in zip(given.tensors, given.names, strict=True)
        ]
        arguments, named = given.rebuilt(stand_ins)
        program = trace.run(self.function, arguments, named)
        program = common_subexpressions.run(program, lambda each: each.op not in DRAWS)
        program = dead_code.run(program, DRAWS)
        cutter = Cutter(program, name=_plain(getattr(self.function, "__name__", "kernel")))
        steps = cutter.run()
        while True:
            try:
                run = host_program(program, steps, trace.plain)
                break
            except Unwritable:
                raise
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
