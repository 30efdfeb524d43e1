"""Lowered kernels on the GPU: the goldens and random ones, against `evaluate`."""

from __future__ import annotations

from random import Random

import pytest
import torch
from tests.kernel.golden_kernels import GOLDENS, inputs
from tests.kernel.harness import compare
from tests.kernel.random_schedules import draw, schedule

from serrate.errors import RaggednessError, ScheduleError
from serrate.kernel import Lowered

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
CUDA = [name for name in GOLDENS if GOLDENS[name]().target == "cuda"]
LENGTHS = ([3, 0, 5, 1], [], [0, 0], [17] * 5, [300, 0, 1, 40])


def run(lowered: Lowered, given: list[torch.Tensor]) -> None:
    """The kernel on the device, twice: as `evaluate` says, and the same each time."""
    on_device = [tensor.cuda() for tensor in given]
    first = [tensor.cpu() for tensor in lowered(*on_device)]
    second = [tensor.cpu() for tensor in lowered(*on_device)]
    sizes = {t.name: e.numel() for t, e in zip(lowered.fusion.outputs, lowered.fusion.evaluate(*given), strict=True)}
    names = [tensor.name for tensor in lowered.fusion.outputs]
    # What follows the last row of an over-allocated result is undefined.
    compare(lowered, given, {n: r.reshape(-1)[: sizes[n]] for n, r in zip(names, first, strict=True)})
    compare(lowered, given, {n: r.reshape(-1)[: sizes[n]] for n, r in zip(names, second, strict=True)})


@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
@pytest.mark.parametrize("name", CUDA)
def test_golden(name: str, lengths: list[int]) -> None:
    lowered = GOLDENS[name]()
    run(lowered, inputs(lowered, lengths))


@pytest.mark.parametrize("seed", range(100))
def test_random(seed: int) -> None:
    random = Random(seed)
    while True:
        case = draw(random, "cuda")
        try:
            schedule(case, random)
            lowered = case.lower()
        except (ScheduleError, RaggednessError):
            continue
        break
    try:
        run(lowered, case.program.inputs)
    except ScheduleError:  # lanes that do not divide what they are taken from, known only now
        pytest.skip("refused when called")
