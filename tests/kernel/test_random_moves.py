"""Random moves of elements: copies of a fusion are the fusion, and every move is drawn."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
import torch
from tests.kernel.random_fusions import Program, Value, move_elements
from tests.kernel.random_layouts import layout

from serrate.errors import RaggednessError, ScheduleError
from serrate.kernel import lower


def drawn(seed: int) -> Program:
    """A random fusion that moves elements."""
    random = Random(seed)
    axes, as_view = layout(random)
    made = Program(random, axes, "float32", False, as_view, None, "int64")
    made.start()
    move_elements(made, Value(made.input([True] * len(axes))))
    return made


def test_every_move_is_drawn() -> None:
    """Often enough for the tests of random fusions to find what is wrong with it."""
    names = Counter(t.definition.name for seed in range(150) for t in drawn(seed).fusion.tensors if t.definition)
    wanted = ["pad", "slice", "concat", "select", "to_dense", "from_dense", "gather", "permute", "flatten", "unflatten"]
    assert all(names[name] >= 3 for name in [*wanted, "squeeze", "expand", "positions", "row_lengths"]), names


@pytest.mark.parametrize("seed", range(60))
def test_copies_of_a_fusion(seed: int) -> None:
    """Equal, and they compute the same by the same kernel."""
    made = drawn(seed)
    fusion, reference = made.fusion, made.reference
    copy = fusion.clone()
    assert copy == fusion
    assert hash(copy) == hash(fusion)
    try:
        results = fusion.evaluate(*made.inputs)
    except IndexError:  # some indices are out of range
        with pytest.raises(IndexError):
            copy.evaluate(*made.inputs)
        results = []
    for one, other in zip(results, copy.evaluate(*made.inputs) if results else [], strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)
    try:
        kernel = lower(fusion, reference).kernel
    except (ScheduleError, RaggednessError):
        return
    assert str(lower(copy, copy.named(reference.name)).kernel) == str(kernel)
