"""Running plans in tests: every kernel in the checking interpreter, and all of them compiled, against `evaluate`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from tests.kernel.harness import EPS, check

from serrate.kernel import cpp
from serrate.kernel.signatures import signature
from serrate.runtime.compiler import compile
from serrate.schedule import Planned


def check_steps(planned: Planned, inputs: Sequence[torch.Tensor]) -> None:
    """Each kernel in the checking interpreter, with what those before it store, as `evaluate` says."""
    known = {tensor.name: given for tensor, given in zip(planned.fusion.inputs, inputs, strict=True)}
    for step in planned.steps:
        given = [known[name] for name in step.inputs]
        check(step.lowered, given)
        known.update(zip(step.outputs, step.lowered.fusion.evaluate(*given), strict=True))


def check_run(planned: Planned, inputs: Sequence[torch.Tensor]) -> None:
    """The function of a plan, compiled, against what its fusion means."""
    results, wanted = planned.prepared()(*inputs), planned.fusion.evaluate(*inputs)
    for tensor, got, want in zip(planned.fusion.outputs, results, wanted, strict=True):
        assert got.shape == want.shape, (tensor, got.shape, want.shape)
        if not want.is_floating_point():
            assert torch.equal(got.to(want.dtype), want), (tensor, got, want)
            continue
        tolerance = 400 * EPS[want.dtype]
        assert torch.allclose(got.double(), want.double(), rtol=tolerance, atol=tolerance, equal_nan=True), (
            tensor, got, want,
        )  # fmt: skip


def agree(planned: Planned, inputs: Sequence[torch.Tensor]) -> None:
    """A plan in the interpreter, and compiled."""
    check_steps(planned, inputs)
    check_run(planned, inputs)


def compile_all(plans: Sequence[Planned]) -> None:
    """Compile the kernels of some plans into one library, optimized little: what they mean is the same."""
    kernels = [kernel for planned in plans for step in planned.steps for kernel in step.kernels]
    named = [replace(kernel.kernel, name=f"kernel{number}") for number, kernel in enumerate(kernels)]
    library = compile(cpp.source(named), flags=("-O1",))
    for lowered, kernel in zip(kernels, named, strict=True):
        lowered._variants[False, False] = library.function(signature(kernel))
