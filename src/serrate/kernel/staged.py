"""Kernels of a fusion that computes extents of its own ragged axes: one for each of its stages, run in their order."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

import torch

from serrate.fusion.binding import bind, compute_offsets
from serrate.fusion.fusion import Fusion
from serrate.fusion.stages import stages_of
from serrate.fusion.view import TensorView
from serrate.kernel.jobs import stored_outputs
from serrate.kernel.lower import lower


@dataclass(frozen=True)
class Staged:
    """The stages of a fusion, and for each what computes it: a kernel, or where it has nothing but offsets, torch. Call
    it with the inputs of the fusion; it returns the outputs."""

    fusion: Fusion
    steps: tuple[tuple[Fusion, Callable[..., list[torch.Tensor]]], ...]

    def __call__(self, *inputs: torch.Tensor) -> list[torch.Tensor]:
        if len(inputs) != len(self.fusion.inputs):
            names = ", ".join(tensor.name for tensor in self.fusion.inputs)
            raise TypeError(f"the fusion has {len(self.fusion.inputs)} inputs ({names}), got {len(inputs)}")
        known = dict(zip((tensor.name for tensor in self.fusion.inputs), inputs, strict=True))
        for stage, compute in self.steps:
            results = compute(*(known[tensor.name] for tensor in stage.inputs))
            known.update(zip((tensor.name for tensor in stage.outputs), results, strict=True))
        return [known[tensor.name] for tensor in self.fusion.outputs]


def _offsets_alone(stage: Fusion) -> Callable[..., list[torch.Tensor]]:
    """What computes a stage whose outputs are all offsets."""

    def compute(*inputs: torch.Tensor) -> list[torch.Tensor]:
        run = bind(stage, inputs)
        compute_offsets(stage, run)
        return [run.arrays[tensor.name] for tensor in stage.outputs]

    return compute


def lower_stages(
    fusion: Fusion,
    schedule: Callable[[Fusion], TensorView] | None = None,
    *,
    stored: Collection[str] = (),
    name: str = "kernel",
    target: str = "cpp",
) -> Staged:
    """A kernel for each stage of a fusion (see `fusion.stages_of`). `schedule` is given each stage, schedules it,
    and returns its reference; if there is none, that is the last output of the stage, as it is. Tensors named in
    `stored` are stored by one stage for the next, where one kernel cannot do all.

    >>> import torch
    >>> from serrate.fusion import Fusion
    >>> from serrate.kernel import lower_stages
    >>> fusion = Fusion()
    >>> x, halves = fusion.input("x", ["n"]), fusion.input("halves", ["k"], "int64")
    >>> rows = fusion.view_as_nested(x, fusion.offsets_of_extents(halves * 2))
    >>> y = fusion.output(fusion.reduce("sum", rows, [1]), "y")
    >>> lower_stages(fusion)(torch.arange(8.0), torch.tensor([1, 0, 3]))
    [tensor([ 1.,  0., 27.])]
    """
    steps: list[tuple[Fusion, Callable[..., list[torch.Tensor]]]] = []
    for number, stage in enumerate(stages_of(fusion, stored)):
        outputs = stored_outputs(stage)
        if not outputs:
            steps.append((stage, _offsets_alone(stage)))
            continue
        reference = outputs[-1] if schedule is None else schedule(stage)
        steps.append((stage, lower(stage, reference, name=f"{name}{number}", target=target)))
    return Staged(fusion, tuple(steps))
