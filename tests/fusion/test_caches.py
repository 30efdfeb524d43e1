"""Tensors in between: rfactor, and caches."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from tests.fusion.programs import sums
from tests.fusion.samples import same, some
from tests.kernel.harness import check

from serrate.fusion import Fusion, IterDomain
from serrate.kernel import lower


@pytest.mark.parametrize("factor", [4, 5])
@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "any", "all"])
def test_rfactor_of_each_reduction(name: str, factor: int) -> None:
    y, inputs, want = sums(name)
    partial = y.split(1, factor).rfactor(2)
    assert partial.ndim == 2
    assert [axis.is_reduction for axis in partial.loop] == [False, True, False]
    same(y.fusion.evaluate(*inputs)[0], want)
    lowered = lower(y.fusion, partial)
    check(lowered, inputs)
    same(lowered(*inputs)[0], want)


def test_rfactor_of_what_others_read() -> None:
    fusion = Fusion()
    total = fusion.reduce("sum", fusion.input("x", [3, 4]), [1])
    fusion.output(total * 2.0, "y")
    total.split(1, 2).rfactor(1)
    x = some(3, 4)
    same(fusion.evaluate(x)[0], x.sum(1) * 2)


def test_a_cache_leaves_the_layout_to_the_output() -> None:
    fusion = Fusion()
    y = fusion.output(-fusion.input("x", [6]), "y")
    y.set_allocation_domain(IterDomain.split(y.domain.logical[0], 4), fill=2.0)
    x = some(6)
    want = F.pad(-x, [0, 2], value=2.0).reshape(2, 4)
    y.cache_before()
    assert torch.equal(fusion.evaluate(x)[0], want)
    lowered = lower(fusion, y)
    check(lowered, [x])
    assert torch.equal(lowered(x)[0], want)
