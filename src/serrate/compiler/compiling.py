"""Compiling: from the arguments of one call to what runs all calls of the same signature."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch

from serrate.compiler.containers import Made, held_by, parts_of
from serrate.compiler.gradients import Differentiable
from serrate.compiler.hosting import Note, host_program
from serrate.compiler.measures import symbols_of
from serrate.compiler.numbers import DTYPES, Limit, traced_number
from serrate.compiler.signature import Arguments, Place
from serrate.compiler.tracing import Trace
from serrate.compiler.ways_back import WaysBack
from serrate.eager import philox
from serrate.lowering.forms import is_recomputed
from serrate.lowering.keys import DRAW, OF_TORCH
from serrate.ops.record import TABLE
from serrate.passes import common_subexpressions, dead_code, explicit_keys, explicit_writes, fold_constants, vjp
from serrate.passes.lower_ptensor import DRAWS, Cutter, Fused, Step
from serrate.program.devices import require_device
from serrate.program.guards import Guard
from serrate.program.partitions import Expression
from serrate.program.program import Instruction, Program
from serrate.program.sizes import Polynomial
from serrate.program.types import RaggedAxis, Value
from serrate.schedule import compile_plans
from serrate.tensor.partition import Partition
from serrate.tensor.tensor import Tensor


@dataclass(frozen=True)
class Stage:
    """A program, how it is cut, and what runs it."""

    program: Program
    steps: tuple[Step, ...]
    run: Callable[..., Any]
    text: str
    """The host program."""

    @property
    def kernels(self) -> int:
        """How many kernels it has."""
        return sum(len(step.planned.steps) for step in self.steps if isinstance(step, Fused))

    @property
    def library_calls(self) -> int:
        """How many library calls it has; draws of keys do not count."""
        calls = [step for step in self.steps if not isinstance(step, Fused)]
        return sum(step.instruction.op != DRAW for step in calls)


@dataclass(frozen=True)
class Compiled:
    """A function for one signature."""

    traced: Program
    """What was traced, before any pass."""
    forward: Stage
    back: Stage | None
    """The way back, if an argument needs a gradient."""
    run: Callable[..., Any]
    """From the tensors, the loose numbers and the captured tensors to what the function returns, and what it writes."""
    captured: tuple[Any, ...]
    writes: tuple[int, ...]
    """The arguments that the function writes to, and then the captured tensors, which are counted behind them; what
    they hold afterwards comes behind what it returns."""
    plain: tuple[bool, ...]
    """For each value that is returned whether as a torch tensor."""
    limits: Mapping[int, Limit] = field(default_factory=dict)
    """What loose numbers must be, by their places."""
    recomputed: tuple[str, ...] = ()
    """The operations that the way back computes again."""

    draws: bool = field(init=False)
    """Whether a call draws random numbers, perhaps before it finds that it has to be made eagerly."""
    asked: tuple[torch.Tensor, ...] = ()
    """Further tensors that the function asked for facts, such as their shapes."""

    watched: tuple[Any, ...] = field(init=False)
    """What each captured tensor, and each that was asked for facts, was like when it was traced."""

    def __post_init__(self) -> None:
        packed = [each.values if isinstance(each, Tensor) else each for each in self.captured]
        known = set(map(id, packed))
        others = [each for each in self.asked if id(each) not in known]
        seen = tuple(
            (each, values.dtype, values.shape, values.requires_grad)
            for each, values in zip((*self.captured, *others), (*packed, *others), strict=True)
        )
        object.__setattr__(self, "watched", seen)
        draws = any(step.op in DRAWS for step in self.forward.program.instructions)
        object.__setattr__(self, "draws", draws)


def compiled(
    function: Callable[..., Any],
    given: Arguments,
    *,
    is_static: bool,
    loose: frozenset[Place],
    name: str,
    note: Note,
    may_seed: bool = False,
) -> Compiled:
    """A function for the signature of some arguments.

    If the sizes of first axes are `static` they are numbers; `loose` numbers are inputs. `note` is told of the first
    launch of each fusion. A function that `may_seed` generators of random numbers is watched for that.
    """
    trace = Trace(is_static=is_static)
    tensors, numbers = [], []
    for number, tensor in enumerate(given.tensors):
        shaped = loose_features(given, loose, number)
        made = trace.argument(tensor, f"x{number}", tensor.requires_grad and torch.is_grad_enabled(), shaped)
        place = _place_of(given, number)
        trace.pins.update((symbol, place) for axis in shaped for symbol in symbols_of(made.value.type.features[axis]))
        tensors.append(made)
    places = [place for place, each in enumerate(given.variables) if not isinstance(each, tuple)]
    for place, each in zip(places, given.numbers, strict=True):
        numbers.append(traced_number(trace, type(each), place) if (place, -1) in loose else each)
    arguments, named = given.rebuilt(tensors, numbers)
    before, generators = held_by((arguments, named)), _Generators() if may_seed else None
    traced = trace.run(function, arguments, named)
    if held_by((arguments, named)) != before:
        raise NotImplementedError("the function changes a container that it is given, and not only tensors in it")
    if torch.is_grad_enabled() and any(each.requires_grad for each in trace.written_outside()):
        raise NotImplementedError("a tensor outside of the arguments that has a history is written to")
    if generators is not None and generators.have_changed():
        generators.restore()
        raise NotImplementedError("the function seeds a generator of random numbers, or draws from one of Python's")
    program = explicit_keys.run(traced)
    program = common_subexpressions.run(program, lambda each: each.op not in DRAWS)
    program = dead_code.run(program, DRAWS)
    program, constants = fold_constants.run(program, DRAWS, _evaluated)
    trace.captured += constants
    wanted = [value for value in program.inputs if trace.needs_gradient(value)]
    maker = _Maker(trace, name, given, function, note, loose)
    if wanted and torch.is_grad_enabled() and any(map(trace.needs_gradient, program.results)):
        return maker.differentiable(traced, program, wanted)
    steps = maker.steps(program)
    compile_plans(step.planned for step in steps if isinstance(step, Fused))
    forward = maker.stage(program, steps, trace.plain, program.guards)
    captured, plain = tuple(trace.captured), tuple(trace.plain)
    return Compiled(
        traced, forward, None, forward.run, captured, maker.writes(), plain, trace.limits, asked=trace.facts()
    )


class _Generators:
    """The generators of random numbers as they were: torch's, Serrate's, Python's and numpy's. A program draws from the
    first two, in each call; a trace draws from none."""

    def __init__(self) -> None:
        self.keys, self.python, self.numpy = philox.state(), random.getstate(), np.random.get_state()

    def have_changed(self) -> bool:
        """Whether one of them was seeded or drawn from."""
        now = _Generators()
        same_numpy = all(np.array_equal(one, other) for one, other in zip(self.numpy, now.numpy, strict=True))
        same_keys = self.keys[1:] == now.keys[1:] and torch.equal(self.keys[0], now.keys[0])
        return not (same_numpy and same_keys and self.python == now.python)

    def restore(self) -> None:
        """Let them be as they were."""
        philox.restore(self.keys)
        random.setstate(self.python)
        np.random.set_state(self.numpy)


def runnable(program: Program, name: str = "program") -> Stage:
    """A program with what runs it, for tensors of Serrate's class; all that it gives is of that class, too.

    A program with tensors on a device that this machine does not have is a ValueError.
    """
    values = (*program.inputs, *(value for each in program.instructions for value in each.results))
    for device in dict.fromkeys(value.type.device for value in values):
        require_device(device)
    program = explicit_keys.run(explicit_writes.run(program))
    steps = Cutter(program, kernel_devices(), name).run()
    compile_plans(step.planned for step in steps if isinstance(step, Fused))
    plain = [False] * len(program.results)
    run, text = host_program(program, steps, plain, {}, lambda *_: None, program.guards)
    return Stage(program, steps, run, text)


def kernel_devices() -> frozenset[str]:
    """The types of the devices that kernels can be made for here."""
    return frozenset({"cpu", "cuda"} if torch.cuda.is_available() and find_spec("cuda.core") else {"cpu"})


def _run_of(
    program: Program, *, name: str, partitions: Mapping[Expression, Partition], note: Note
) -> Callable[..., Any]:
    """What runs a way back from some of the results of a function."""
    steps = Cutter(program, kernel_devices(), f"{name}_back", frozenset(partitions)).run()
    compile_plans(step.planned for step in steps if isinstance(step, Fused))
    return host_program(program, steps, _plain(program), partitions, note)[0]


def _evaluated(instruction: Instruction) -> Any:
    """What an instruction without operands gives."""
    made = TABLE[instruction.op].function(*instruction.arguments, **dict(instruction.named))
    return made.values if isinstance(made, Tensor) else made


def _place_of(given: Arguments, number: int) -> int:
    """The place of the shape of a tensor among the variables."""
    return [place for place, each in enumerate(given.variables) if isinstance(each, tuple)][number]


def loose_features(given: Arguments, loose: frozenset[Place], number: int) -> frozenset[int]:
    """The axes of a tensor whose sizes are loose, counted as `Inputs.type_of` counts them."""
    place = _place_of(given, number)
    found = [(which, axis) for which, axis in loose if axis >= 0 and which == place]
    return frozenset(
        axis for which, axis in found if given.variables[which][axis] > 1
    )  # 0 and 1 have programs of their own


def loose_inputs(given: Arguments, loose: frozenset[Place], limits: Mapping[int, Limit]) -> list[torch.Tensor] | None:
    """The loose numbers, as a program is given them; None if it is not right for one of them."""
    places = [place for place, each in enumerate(given.variables) if not isinstance(each, tuple)]
    found = [pair for pair in zip(places, given.numbers, strict=True) if (pair[0], -1) in loose]
    if not all(limits[place].admits(number) for place, number in found):
        return None
    return [torch.tensor(number, dtype=DTYPES[type(number)], device="cpu") for _, number in found]


class _Maker:
    def __init__(
        self,
        trace: Trace,
        name: str,
        given: Arguments,
        function: Callable[..., Any],
        note: Note,
        loose: frozenset[Place],
    ) -> None:
        self.trace, self.name, self.given, self.function, self.note = trace, name, given, function, note
        self.loose = loose

    def writes(self) -> tuple[int, ...]:
        """The arguments, and the captured tensors behind them, that are written to."""
        count = len(self.given.tensors)
        others = len(self.trace.given) - len(self.trace.captured) - count
        return tuple(number if number < count else number - others for number in self.trace.written)

    def steps(self, program: Program, suffix: str = "") -> tuple[Step, ...]:
        """A program, cut."""
        return self.cutter(program, suffix).run()

    def cutter(self, program: Program, suffix: str = "") -> Cutter:
        """What cuts a program."""
        return Cutter(program, kernel_devices(), self.name + suffix, partitions=frozenset(self.trace.partitions))

    def stage(
        self, program: Program, steps: tuple[Step, ...], plain: Sequence[bool], guards: Sequence[Guard] = ()
    ) -> Stage:
        """A program, written, once its kernels are compiled."""
        run, text = host_program(program, steps, plain, self.trace.partitions, self.note, guards)
        return Stage(program, steps, run, text)

    def differentiable(self, traced: Program, program: Program, wanted: list[Value]) -> Compiled:
        """The function with its way back."""
        trace, inputs = self.trace, program.inputs
        joint = vjp.joint(program, wanted, lambda op: op.implementations[-1].function)
        results = tuple(dict.fromkeys(v for v in program.results if v not in inputs))
        sizes = tuple(dict.fromkeys(sizes_in(program.outputs)))
        joint = replace(joint, forward=replace(joint.forward, outputs=(results, sizes)))
        halves = vjp.halves(joint, is_recomputed, DRAWS, self.cutter(joint.forward).given_to_calls())
        there, again = self.steps(halves.forward), self.steps(halves.back, "_back")
        compile_plans(step.planned for step in (*there, *again) if isinstance(step, Fused))
        # What rules of derivatives take for equal follows from what the function itself does.
        forward = self.stage(halves.forward, there, _plain(halves.forward), program.guards)
        back = self.stage(halves.back, again, _plain(halves.back))
        plain = tuple(trace.plain)
        part = partial(_run_of, name=self.name, partitions=trace.partitions, note=self.note)
        run = Differentiable(
            forward.run,
            WaysBack(joint, results, inputs, halves.saved, back.run, part),
            results,
            tuple(number for number, value in enumerate(results) if value in joint.results),
            self._eagerly(results, program),
            inputs,
            program.outputs,
            plain,
            sizes,
            tuple(trace.written),
            any(step.op in OF_TORCH for step in program.instructions),
        )
        captured, writes = tuple(trace.captured), self.writes()
        return Compiled(
            traced, forward, back, run, captured, writes, plain, trace.limits, halves.recomputed, trace.facts()
        )

    def _eagerly(self, results: tuple[Value, ...], program: Program) -> Callable[..., Any]:
        """From tensors, those of arguments and captured ones, to the results, by the function itself."""
        given, count = self.given.without_tensors(), len(self.given.tensors)
        places = [place for place, each in enumerate(given.variables) if not isinstance(each, tuple)]
        is_loose = [(place, -1) in self.loose for place in places]
        function, written = self.function, tuple(self.trace.written)
        # The captured tensors are found by the function itself; gradients reach them as they are.

        def run(*tensors: Any) -> list[Any]:
            differing = iter(tensors[count:])
            numbers = [
                type(each)(next(differing).item()) if loose else each
                for each, loose in zip(given.numbers, is_loose, strict=True)
            ]
            arguments, named = given.rebuilt(tensors[:count], numbers)
            made: dict[Value, Any] = {}
            outputs = program.outputs[0] if written else program.outputs
            _match(outputs, function(*arguments, **named), made)
            for number, value in zip(written, program.outputs[1] if written else (), strict=True):
                made[value] = tensors[number]  # captured ones are written to by the function itself
            return [made[value] for value in results]

        return run


def sizes_in(outputs: Any) -> Iterator[Polynomial | Expression | RaggedAxis]:
    """The sizes and partitions among the outputs of a program."""
    if isinstance(outputs, (Polynomial, Expression, RaggedAxis)):
        yield outputs
    elif isinstance(outputs, (tuple, list, dict)):
        for part in outputs.values() if isinstance(outputs, dict) else outputs:
            yield from sizes_in(part)


def _plain(program: Program) -> list[bool]:
    """For each result whether it is dense, and leaves the host program as a torch tensor."""
    return [not value.type.axes for value in program.results]


def _match(outputs: Any, returned: Any, made: dict[Value, Any]) -> None:
    """Note down which value of the outputs is which tensor."""
    if isinstance(outputs, Value):
        made[outputs] = returned
    elif isinstance(outputs, Made):
        found = parts_of(returned)
        assert found is not None
        for part, each in zip(outputs[1:], found.parts, strict=True):
            _match(part, each, made)
    elif isinstance(outputs, dict):
        for name, part in outputs.items():
            _match(part, returned[name], made)
    elif isinstance(outputs, (tuple, list)):
        for part, each in zip(outputs, returned, strict=True):
            _match(part, each, made)
