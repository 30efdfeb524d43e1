"""Fusions that must become few kernels do, and these are right: norms, softmax, padding, and their gradients."""

from __future__ import annotations

import pytest
from tests.schedule.required import REQUIRED, inputs_of
from tests.schedule.running import agree

from serrate.schedule import plan

BATCHES = {
    "mixed": ([3, 0, 5, 1, 2, 4], [2, 0, 3, 1]),
    "all empty": ([0, 0], [1, 1]),
    "no rows": ([], []),
    "one row": ([7], [1]),
    "long": ([70, 2, 129], [2, 1]),
}


@pytest.mark.parametrize("name", REQUIRED)
def test_so_few_kernels(name: str) -> None:
    required = REQUIRED[name]
    planned = plan(required.make(), name=name)
    assert len(planned.steps) <= required.kernels, str(planned)


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("name", REQUIRED)
def test_they_are_right(name: str, batch: str) -> None:
    fusion = REQUIRED[name].make()
    agree(plan(fusion, name=name), inputs_of(fusion, *BATCHES[batch]))


@pytest.mark.parametrize("features", [1, 16, 40])
@pytest.mark.parametrize("name", REQUIRED)
def test_they_are_right_for_other_numbers_of_features(name: str, features: int) -> None:
    fusion = REQUIRED[name].make(features)
    agree(plan(fusion, name=name), inputs_of(fusion, *BATCHES["mixed"]))
