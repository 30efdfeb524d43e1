"""Parts of programs as bytes: equal for equal parts, in every process, and different for all others."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time

import pytest
import torch

import serrate as sr
from serrate.ops.meta import meta
from serrate.ops.record import TABLE
from serrate.program.canonical import canonical
from serrate.program.inputs import Inputs
from serrate.program.types import TensorType

DIFFERENT = [
    (1, 1.0), (1, True), (0, False), (0.0, -0.0), ("1", 1), ((1,), [1]), (None, "None"), (1.0, 1 + 0j),
    (torch.float32, torch.float64), (slice(1, 2), (1, 2)), (torch.exp, torch.sin), ({"a": 1}, {"b": 1}),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_different_parts_are_different_bytes(one: object, other: object) -> None:
    assert canonical(one) != canonical(other)
    assert canonical(one) == canonical(one) is not None


def test_nan_is_itself() -> None:
    assert canonical(math.nan) == canonical(float("nan"))


def type_of(x: sr.Tensor) -> TensorType:
    return Inputs().type_of(x)


def test_all_that_is_known_of_a_partition_counts_though_expressions_compare_by_name() -> None:
    """Two programs have an input p0, and only in one of them all of its rows have the same length."""
    (ragged,) = type_of(sr.from_lengths(torch.zeros(6, 2), [3, 3])).partitions
    uniform = type(ragged)(*(getattr(ragged, name) if name != "uniform_length" else 3 for name in FIELDS))
    assert uniform == ragged
    assert canonical(uniform) != canonical(ragged)
    (born_on_a_device,) = type_of(sr.testing.device_born(sr.from_lengths(torch.zeros(6, 2), [3, 3]))).partitions
    assert canonical(born_on_a_device) != canonical(ragged)


FIELDS = (
    "kind", "operands", "components", "capacity", "host_born", "exact", "dtype", "device",
    "uniform_length", "bound", "same_lengths",
)  # fmt: skip


def test_the_same_in_every_process() -> None:
    program = (
        "import serrate as sr\n"
        "from serrate.program.canonical import canonical\n"
        "from serrate.program.inputs import Inputs\n"
        "print(canonical(Inputs().type_of(sr.ragged([[1.0], []]))).hex())"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True,
            env=os.environ | {"PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(found) == 1


def test_partitions_that_are_made_of_others_many_times_take_no_longer_each_time() -> None:
    """Each slice holds the one before several times: written out, twenty of them would fill the memory."""
    kind = type_of(sr.ragged([[1.0, 2.0, 3.0], []]))
    begin, sizes = time.monotonic(), []
    for _ in range(20):
        kind = meta(TABLE["Tensor.getitem"], (kind, (slice(None), slice(1, None))), {}).result
        sizes.append(len(canonical(kind) or b""))
    assert max(sizes) < 5000
    assert time.monotonic() - begin < 60
