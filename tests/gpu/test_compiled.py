"""Compiled functions of tensors on the GPU: kernels compute them, and give what eager code gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import serrate as sr

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "softmax": lambda x: sr.softmax(x, axis=1) * 2,
    "norm": lambda x: torch.nn.functional.gelu(sr.layer_norm(x)) + sr.full_like(x, 1.0),
    "sums": lambda x: (sr.sum(x, axis=1), sr.mean(x, axis=(0, 1))),
    "padding": lambda x: x.to_dense(),
}


@pytest.mark.parametrize("born", ["host", "device"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_kernels_compute_functions_of_cuda_tensors(name: str, born: str) -> None:
    function = FUNCTIONS[name]
    values = torch.randn(6, 4, generator=torch.Generator().manual_seed(0)).cuda()
    lengths = torch.tensor([3, 0, 1, 2])
    x = sr.from_lengths(values.requires_grad_(), lengths.tolist() if born == "host" else lengths.cuda())
    compiled = sr.jit(function)
    got, want = compiled(x), function(x)
    got, want = (each if isinstance(each, tuple) else (each,) for each in (got, want))
    for one, other in zip(got, want, strict=True):
        assert one.shape == other.shape
        torch.testing.assert_close(one.values, other.values)
    found = [torch.autograd.grad(sum(each.values.sin().sum() for each in side), values)[0] for side in (got, want)]
    torch.testing.assert_close(found[0], found[1])
    assert compiled.stats.kernels > 0
    assert compiled.stats.library_calls == 0
