"""Planned: the kernels of a fusion, in their order, why there are so many, and the function that calls them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import prod
from typing import Any

import torch

from serrate.fusion.analysis import evaluate
from serrate.fusion.binding import TORCH, bind, compute_offsets
from serrate.fusion.fusion import Fusion
from serrate.fusion.stages import needed_for, part_of
from serrate.kernel import Lowered, compile_together
from serrate.kernel.generated import GeneratedFunction
from serrate.schedule.averages import without_averages
from serrate.schedule.grid import Grid
from serrate.schedule.lengths import ByLength
from serrate.schedule.loops import Parameters
from serrate.schedule.online import with_online_sums, with_reciprocals
from serrate.schedule.segments import PlannedKernel, Segmenter

Run = Callable[..., tuple[torch.Tensor, ...]]


@dataclass(frozen=True)
class Step:
    """One kernel: what it reads and stores, by the names of tensors, and how it was scheduled."""

    lowered: Lowered
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    scheduler: str
    parameters: Parameters | Grid
    reference: str
    by_length: ByLength | None = None
    """The kernels that a call takes in its place where rows are short, or one of them is a large part of all."""

    @property
    def kernels(self) -> list[Lowered]:
        """The kernel, and those that may take its place."""
        return [self.lowered] if self.by_length is None else self.by_length.kernels

    def __str__(self) -> str:
        stored = ", ".join(self.outputs)
        text = f"{self.lowered.kernel.name}: {stored} by {self.scheduler} along {self.reference}; {self.parameters}"
        others = [kernel.kernel.name for kernel in self.kernels[1:]]
        return f"{text}; or {' or '.join(others)}" if others else text

    def prepared(self, device: torch.device | str | None) -> Callable[..., list[torch.Tensor]]:
        """The function that calls the kernel that is right for the lengths of rows."""
        devices = [self.lowered.target.device if device is None else device] * len(self.inputs)
        return self.lowered.prepared(devices) if self.by_length is None else self.by_length.prepared(devices)


@dataclass(frozen=True)
class Planned:
    """The kernels of a fusion, made but not compiled; `prepared` compiles them and gives a function that runs them."""

    fusion: Fusion
    steps: tuple[Step, ...]
    cuts: tuple[tuple[str, str], ...]
    """The tensors that one kernel stores for another, each with the reason why one kernel could not do both."""
    kept: tuple[tuple[str, str], ...]
    """The tensors whose values a kernel keeps for several phases, each with the place; all else that several phases
    read is computed again, or read again from the inputs."""
    offsets: tuple[str, ...] = ()
    """The outputs that are offsets, where they are not made by the only kernel: torch makes them in the end."""

    def __str__(self) -> str:
        count = len(self.steps)
        lines = [f"{count} kernel{'s' * (count != 1)}", *(f"  {step}" for step in self.steps)]
        lines += [f"cut at {name}: {reason}" for name, reason in self.cuts]
        lines += [f"kept: {name}, in {place}" for name, place in self.kept]
        return "\n".join(lines)

    def prepared(self, device: torch.device | str | None = None) -> Run:
        """A function of tensors, in the order of the fusion's inputs, that returns a tuple of its outputs.

        Tensors must have the dtypes and ranks of the inputs, and lie contiguously on `device`, which is that of the
        target if it is not given; the function does not ask. That shapes and offsets fit each other it checks.
        """
        compile_plans([self])
        made = GeneratedFunction("planned kernels", {})
        names = {tensor.name: f"x{number}" for number, tensor in enumerate(self.fusion.inputs)}
        inputs, results = list(names.values()), [tensor.name for tensor in self.fusion.outputs]
        rest = part_of(self.fusion, [name for name, _ in self.cuts], self.offsets)
        later = [*(step.inputs for step in self.steps), tuple(tensor.name for tensor in rest.inputs)]
        for number, step in enumerate(self.steps):
            call = made.meaning("kernel", step.prepared(device))
            arguments = ", ".join(names[name] for name in step.inputs)
            stored = {name: f"y{number}_{place}" for place, name in enumerate(step.outputs)}
            made.line(f"{', '.join(stored.values())}, = {call}({arguments})")
            names |= stored
            needed = {*results, *(name for read in later[number + 1 :] for name in read)}
            done = [name for name in {*step.inputs, *step.outputs} - needed if names[name] not in inputs]
            if done:  # its memory is there for the next kernels
                made.line(f"del {', '.join(sorted(names[name] for name in done))}")
        if self.offsets:
            call = made.meaning("offsets", _offsets_alone(rest))
            arguments = ", ".join(names[tensor.name] for tensor in rest.inputs)
            names |= {name: f"offsets{place}" for place, name in enumerate(self.offsets)}
            made.line(f"{', '.join(names[name] for name in self.offsets)}, = {call}({arguments})")
        made.line(f"return ({''.join(f'{names[name]}, ' for name in results)})")
        return made.function(inputs)

    def moved_bytes(self, *inputs: torch.Tensor) -> int:
        """The bytes that all kernels read or write for these inputs, each tensor once for each kernel."""
        sizes = bind(self.fusion, inputs).sizes
        return sum(int(evaluate(step.lowered.moved_bytes, sizes)) for step in self.steps)

    def least_bytes(self, *inputs: torch.Tensor) -> int:
        """The bytes that no kernels could do without: inputs that are read and outputs, each once."""
        run = bind(self.fusion, inputs)
        compute_offsets(self.fusion, run)
        needed = needed_for(self.fusion, self.fusion.outputs)
        total = sum(x.nbytes for tensor, x in zip(self.fusion.inputs, inputs, strict=True) if tensor in needed)
        for tensor in self.fusion.outputs:
            shape = [run.capacity(axis) for axis in tensor.domain.allocation]
            total += prod(shape) * TORCH[tensor.dtype].itemsize
        return total


def compile_plans(plans: Iterable[Planned]) -> None:
    """Compile all kernels of some plans that are not compiled yet: those of one step by one run of the compiler, which
    is less work than several, and the steps at the same time."""
    steps = [step for planned in plans for step in planned.steps]
    groups = [[kernel for kernel in step.kernels if not kernel.is_compiled] for step in steps]
    groups = [group for group in groups if group]
    if len(groups) == 1:
        compile_together(groups[0])
    elif groups:
        with ThreadPoolExecutor(len(groups)) as pool:
            list(pool.map(compile_together, groups))


def _offsets_alone(part: Fusion) -> Callable[..., list[torch.Tensor]]:
    """What computes outputs that are all offsets."""

    def compute(*inputs: torch.Tensor) -> list[torch.Tensor]:
        run = bind(part, inputs)
        compute_offsets(part, run)
        return [run.arrays[tensor.name] for tensor in part.outputs]

    return compute


def plan(fusion: Fusion, target: str = "cpp", name: str = "kernel") -> Planned:
    """The kernels of a fusion: which there are, how they are scheduled, and why there is more than one, if there is.

    Nothing is compiled, and the fusion is left as it is. What no kernel can compute is a `CannotSchedule`.

    >>> import torch
    >>> from serrate.fusion import Fusion
    >>> from serrate.schedule import plan
    >>> fusion = Fusion()
    >>> x = fusion.input("x", ["n", 8])
    >>> y = fusion.output(fusion.unary("gelu", x) * x + 1, "y")
    >>> planned = plan(fusion, name="activation")
    >>> print(planned)
    1 kernel
      activation: y by pointwise along y; loops (0·1), parts 64, lanes 16, threads
    >>> planned.prepared()(torch.zeros(2, 8))[0][0]
    tensor([1., 1., 1., 1., 1., 1., 1., 1.])
    """
    rewritten = without_averages(fusion)
    if target == "cuda":
        rewritten = with_online_sums(with_reciprocals(rewritten))
    segmenter = Segmenter(rewritten, name, target)
    kernels = segmenter.run()
    outputs = [tensor.name for tensor in fusion.outputs]
    stored = {name for kernel in kernels for name in kernel.results}
    alone = len(kernels) == 1 and not segmenter.cuts
    offsets = () if alone else tuple(name for name in outputs if name not in stored)
    steps = tuple(map(_step, kernels))
    kept = tuple(pair for kernel in kernels for pair in kernel.scheduled.kept)
    return Planned(fusion, steps, tuple(segmenter.cuts.items()), kept, offsets)


def _step(kernel: PlannedKernel) -> Step:
    scheduled = kernel.scheduled
    own = scheduled.lowered.fusion
    return Step(
        scheduled.lowered,
        _names(own.inputs),
        _names(own.outputs),
        scheduled.way.scheduler.name,
        scheduled.parameters,
        scheduled.way.structure.reference.name,
        scheduled.by_length(),
    )


def _names(tensors: Sequence[Any]) -> tuple[str, ...]:
    return tuple(tensor.name for tensor in tensors)
