"""The passes of `serrate-opt` by their names: those of the compiler, on programs, and those of the host dialect."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from xdsl.dialects.func import FuncOp

from serrate.dialects import coalesce_regions, dist_to_runtime, lower_ptensor, region_to_runtime
from serrate.dialects.from_host import HostFunctions, is_lowered, is_of_teams
from serrate.dialects.from_text import only_functions, programs_of
from serrate.dialects.texts import Module, TextError
from serrate.dialects.to_text import module_of_all
from serrate.passes import common_subexpressions, dead_code, explicit_keys, explicit_writes, inline_calls, vjp
from serrate.passes.lower_ptensor import DRAWS
from serrate.program.program import Program

Programs = dict[str, Program]


@dataclass(frozen=True)
class Pass:
    """A pass on modules."""

    run: Callable[[Module], Module]
    words: str
    """What it does."""


def check(module: Module) -> None:
    """Refuse a module of other things than functions, or whose functions stand for no program. What is lowered over
    teams is found wrong only when it runs."""
    only_functions(module)
    functions = HostFunctions(module)
    for name in functions.there:
        if not is_of_teams(module, name):
            functions.program(name)


def _on_programs(name: str, run: Callable[[Programs], Programs]) -> Callable[[Module], Module]:
    """A pass on the programs of a module."""

    def on_module(module: Module) -> Module:
        lowered = [each for each in module.module.ops if isinstance(each, FuncOp) and is_lowered(each)]
        if lowered:
            raise TextError(f"{name} runs before lower-ptensor", module.where(lowered[0]))
        return module_of_all(run(programs_of(module)))

    return on_module


def _each(run: Callable[[Program], Program]) -> Callable[[Programs], Programs]:
    return lambda programs: {name: run(program) for name, program in programs.items()}


def _with_ways_back(programs: Programs) -> Programs:
    """Each program gives what its way back reads, behind its results, and the way back stands behind it."""
    made: Programs = {}
    for name, program in inline_calls.run(programs).items():
        program = explicit_keys.run(explicit_writes.run(program))
        wanted = [each for each in program.inputs if each.type.dtype.is_floating_point or each.type.dtype.is_complex]
        if not wanted:
            raise ValueError(f"@{name} has no input that gradients could be asked for")
        joint = vjp.joint(program, wanted, lambda op: op.implementations[-1].function)
        halves = vjp.halves(joint, lambda _: False, DRAWS, frozenset())
        made |= {name: halves.forward, f"{name}_back": halves.back}
    return made


ON_PROGRAMS: dict[str, tuple[Callable[[Programs], Programs], str]] = {
    common_subexpressions.NAME: (
        _each(lambda program: common_subexpressions.run(program, lambda each: each.op not in DRAWS)),
        "what is computed twice is computed once",
    ),
    dead_code.NAME: (_each(lambda program: dead_code.run(program, DRAWS)), "what nobody reads is left out"),
    explicit_keys.NAME: (_each(explicit_keys.run), "random numbers are made of keys, which the program draws"),
    explicit_writes.NAME: (_each(explicit_writes.run), "each write makes a new value, and deletions are left out"),
    inline_calls.NAME: (inline_calls.run, "functions that no other calls have what they call inside of them"),
    vjp.NAME: (_with_ways_back, "each function gets a second one, which gives the gradients of its inputs"),
}
"""The passes on programs by their names, with what they do."""
PASSES: dict[str, Pass] = {
    **{name: Pass(_on_programs(name, run), words) for name, (run, words) in ON_PROGRAMS.items()},
    lower_ptensor.NAME: Pass(
        lower_ptensor.run, "programs become kernels, library calls, regions of devices and calls of teams"
    ),
    f"{lower_ptensor.NAME}{{ignore-team}}": Pass(
        partial(lower_ptensor.run, ignore_team=True), "the same, of tensors that lie in one process"
    ),
    coalesce_regions.NAME: Pass(coalesce_regions.run, "regions of one device, one behind the other, become one"),
    region_to_runtime.NAME: Pass(region_to_runtime.run, "regions become switches to streams of devices"),
    dist_to_runtime.NAME: Pass(
        dist_to_runtime.run, "operations on tensors of teams become calls of the runtime of teams"
    ),
}
"""The passes by their names, in the order in which they usually run."""
