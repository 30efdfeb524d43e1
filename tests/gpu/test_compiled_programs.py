"""Random programs, compiled for the GPU: they give what eager code gives there, with gradients."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from tests.compiler.harness import close, leaves, packed
from tests.compiler.programs import BATCHES, batch, drawn

import serrate as sr

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_random_programs(first: int) -> None:
    counts: Counter[str] = Counter()
    for seed in range(first, first + 50):
        program = drawn(seed, most=12)
        compiled = sr.jit(program.function())
        for kind in BATCHES:
            given = [each.to("cuda") for each in batch(program, kind)]
            with torch.no_grad():
                got, want = compiled(*given), program.function()(*given)
            for one, other in zip(leaves(got), leaves(want), strict=True):
                close(packed(one), packed(other), 10.0)
        counts["kernels"] += compiled.stats.kernels
        counts["library calls"] += compiled.stats.library_calls
    print(dict(counts))
    assert counts["kernels"] > counts["library calls"]
