"""`sr.jit`: a function over ragged tensors, traced once for each signature and run as a few fused kernels."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from serrate.errors import TracerError
from serrate.jit import parts, randomness
from serrate.jit.forms import is_cheap
from serrate.jit.gradients import Differentiable
from serrate.jit.hosting import GuardFailed, host_program
from serrate.jit.signature import Arguments, flat
from serrate.jit.steps import DRAWS, Cutter, Fused, Step
from serrate.jit.tracing import Trace
from serrate.passes import common_subexpressions, dead_code, vjp
from serrate.program.program import Program
from serrate.program.types import Value


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
    back: Program | None = None
    back_steps: tuple[Step, ...] = ()


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
        program = randomness.run(trace.run(self.function, arguments, named))
        program = common_subexpressions.run(program, lambda each: each.op not in DRAWS)
        program = dead_code.run(program, DRAWS)
        wanted = [value for value in program.inputs if trace.needs_gradient(value)]
        if wanted and torch.is_grad_enabled() and any(map(trace.needs_gradient, program.results)):
            return self._differentiable(trace, program, wanted, given)
        steps, run = self._written(trace, program, trace.plain, "")
        return Compiled(program, steps, run, tuple(trace.captured))

    def _differentiable(self, trace: Trace, program: Program, wanted: list[Value], given: Arguments) -> Compiled:
        """The function with its way back."""
        joint = vjp.joint(program, wanted, parts.by_torch, lambda op: op.implementations[-1].function)
        results = tuple(dict.fromkeys(v for v in program.results if v not in program.inputs))
        flat_program = replace(joint, forward=replace(joint.forward, outputs=results))
        halves = vjp.halves(flat_program, is_cheap, DRAWS)
        as_torch = [not value.type.axes for value in halves.forward.results]
        steps, forward = self._written(trace, halves.forward, as_torch, "")
        found = [not each.type.axes for each in halves.back.results]
        back_steps, back = self._written(trace, halves.back, found, "_back")
        inputs = program.inputs
        run = Differentiable(
            forward,
            back,
            results,
            tuple(number for number, value in enumerate(results) if value in joint.results),
            tuple(inputs.index(v) for v, each in zip(joint.wanted, joint.found, strict=True) if each is not None),
            self._eagerly(given, results, program),
            inputs,
            program.outputs,
            tuple(trace.plain),
        )
        return Compiled(halves.forward, steps, run, tuple(trace.captured), back=halves.back, back_steps=back_steps)

    def _eagerly(self, given: Arguments, results: tuple[Value, ...], program: Program) -> Callable[..., Any]:
        """From tensors, those of arguments and captured ones, to the results, by the function itself."""

        def run(*tensors: Any) -> list[Any]:
            arguments, named = given.rebuilt(tensors[: len(given.tensors)])
            made: dict[Value, Any] = {}
            _match(program.outputs, self.function(*arguments, **named), made)
            return [made[value] for value in results]

        return run

    def _written(
        self, trace: Trace, program: Program, plain: Sequence[bool], suffix: str
    ) -> tuple[tuple[Step, ...], Callable[..., Any]]:
        """A program as steps, and what runs them."""
        name = _plain(getattr(self.function, "__name__", "kernel")) + suffix
        steps = Cutter(program, name=name, partitions=frozenset(trace.partitions)).run()
        run = host_program(program, steps, plain, trace.partitions)
        self.stats.kernels += sum(len(step.planned.steps) for step in steps if isinstance(step, Fused))
        self.stats.library_calls += sum(not isinstance(step, Fused) for step in steps)
        return steps, run


def _match(outputs: Any, returned: Any, made: dict[Value, Any]) -> None:
    """Note down which value of the outputs is which tensor."""
    if isinstance(outputs, Value):
        made[outputs] = returned
    elif isinstance(outputs, dict):
        for name, part in outputs.items():
            _match(part, returned[name], made)
    elif isinstance(outputs, (tuple, list)):
        for part, each in zip(outputs, returned, strict=True):
            _match(part, each, made)


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
