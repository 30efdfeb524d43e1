"""Random fusions under random schedules, lowered and run: what is accepted, and that a refusal names an axis."""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random

import torch
from tests.kernel.harness import compare, is_refused
from tests.kernel.random_schedules import Case, draw, schedule

from serrate.errors import RaggednessError, ScheduleError
from serrate.kernel import Lowered, cpp
from serrate.kernel.signatures import signature
from serrate.runtime.compiler import compile

AXIS = re.compile(r"[irb](S|[VUTL]|blockIdx\.[xyz]|threadIdx\.[xyz])\w*\{")  # as an axis is printed


def expect_axis(message: str) -> None:
    assert AXIS.search(message), f"a refusal that names no axis: {message}"


def lowered_or_refused(case: Case, random: Random, name: str = "kernel") -> Lowered | None:
    """The kernel of a case that is now scheduled; None if the schedule was refused."""
    try:
        schedule(case, random)
        return case.lower(name)
    except (ScheduleError, RaggednessError) as error:
        expect_axis(str(error))
        return None


def accepted(target: str, count: int, seed: int) -> list[tuple[Case, Lowered]]:
    """So many cases whose schedules are accepted."""
    found: list[tuple[Case, Lowered]] = []
    random = Random(seed)
    while len(found) < count:
        case = draw(random, target)
        lowered = lowered_or_refused(case, random, f"kernel{len(found)}")
        if lowered is not None:
            found.append((case, lowered))
    return found


def run_compiled(cases: Sequence[tuple[Case, Lowered]], flags: Sequence[str]) -> None:
    """The kernels, in one library, against `evaluate`."""
    library = compile(cpp.source([lowered.kernel for _, lowered in cases]), flags=flags)
    for case, lowered in cases:
        try:
            lowered._variants[False, False] = library.function(signature(lowered.kernel))
            _run(case, lowered)
        except Exception as error:
            error.add_note(f"{case}\n{lowered.kernel}")
            raise


def _run(case: Case, lowered: Lowered) -> None:
    """Where holes are filled, the whole memory is compared."""
    inputs = case.program.inputs
    try:
        outputs = lowered(*inputs)
    except ScheduleError as error:  # what is divisible is known only now
        expect_axis(str(error))
        return
    except IndexError:
        assert is_refused(lowered, inputs, faulted=True)
        return
    if is_refused(lowered, inputs, faulted=False):
        return
    names = [tensor.name for tensor in lowered.fusion.outputs]
    compare(lowered, inputs, dict(zip(names, outputs, strict=True)))
    for tensor, got, want in zip(lowered.fusion.outputs, outputs, lowered.fusion.evaluate(*inputs), strict=True):
        if tensor.fill is not None:
            assert torch.allclose(got.double(), want.double(), rtol=0.05, atol=0.05, equal_nan=True)
