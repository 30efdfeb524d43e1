"""Random programs on the GPU: those of the CPU, with tensors, lengths and undefined rows on the device."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from tests.programs.search import search
from tests.programs.shrinking import failure_of

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.mark.parametrize("first", range(0, 400, 100))
def test_programs(first: int) -> None:
    counts: Counter[str] = Counter()
    for found in search(range(first, first + 100), counts, "cuda"):
        if failure_of(found.program, found.born, "cuda") is None:
            continue  # libraries of CUDA make the host wait when they are used for the first time
        pytest.fail(found.report(), pytrace=False)
    assert counts["device-born done"] > 75
