"""Lowered kernels called as a user calls them, on the device of their target, against `evaluate`."""

from __future__ import annotations

import torch
from tests.kernel.harness import compare, is_refused

import serrate as sr
from serrate.kernel import Lowered


def run(lowered: Lowered, given: list[torch.Tensor]) -> None:
    """The kernel, twice: each time as `evaluate` says. What is given lies on the CPU."""
    on_device = [tensor.to(lowered.target.device) for tensor in given]
    names = [tensor.name for tensor in lowered.fusion.outputs]
    for results in [called(lowered, on_device) for _ in range(2)]:
        if is_refused(lowered, given, faulted=results is None) or results is None:
            continue
        sizes = [expected.numel() for expected in lowered.fusion.evaluate(*given)]
        # What follows the last row of an over-allocated result is undefined.
        cut = [result.reshape(-1)[:size] for result, size in zip(results, sizes, strict=True)]
        compare(lowered, given, dict(zip(names, cut, strict=True)))


def called(lowered: Lowered, on_device: list[torch.Tensor]) -> list[torch.Tensor] | None:
    """What a call gives, on the CPU; None if it reports an index out of range, then or later."""
    outputs: list[torch.Tensor] | None
    try:
        outputs = [tensor.cpu() for tensor in lowered(*on_device)]
    except IndexError:  # the CPU reports at once
        return None
    while True:  # there may be several
        try:
            sr.testing.raise_deferred()
        except IndexError:
            outputs = None
        else:
            return outputs
