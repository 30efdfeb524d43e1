"""Types: `meta` gives exactly the type of what eager code gives, host-born and device-born, and says what it assumes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from tests.ops.matrix import absent
from tests.ops.samples import DTYPES, NAMES, sample
from tests.ops.typing import check_sample, typed

import serrate as sr
from serrate.ops.record import TABLE, Op
from serrate.program.inputs import Inputs
from serrate.program.types import TensorType

OPS = list(TABLE.values())
BIRTHS: dict[str, Callable[[sr.Tensor], sr.Tensor]] = {
    "host-born": lambda x: x,
    "device-born": sr.testing.device_born,
    "device-born with room": lambda x: sr.testing.device_born(x, spare=2),
}
REFUSED = {"Tensor.rows", "unstack", "split"}
"""Operations that give as many results as an axis has entries, which a type does not know."""


def check(op: Op, dtype: torch.dtype, births: tuple[str, ...]) -> int:
    """Every sample on every structure: one type for all structures that differ in lengths and elements alone."""
    checked = 0
    for birth in births:
        kinds: dict[TensorType, list[sr.Tensor]] = {}
        for name in NAMES:
            if not absent(op, name, dtype):
                x = BIRTHS[birth](sample(name, dtype))
                kinds.setdefault(Inputs().type_of(x), []).append(x)
        for kind, tensors in kinds.items():
            for text in op.samples:
                checked += check_text(op, text, kind, tensors)
    return checked


def check_text(op: Op, text: str, kind: TensorType, tensors: list[sr.Tensor]) -> int:
    try:
        found = typed(op, text, kind)
    except (TypeError, ValueError) as error:
        if "does not say how many" in str(error):
            assert op.name in REFUSED
            return 0
        for x in tensors:  # what eager code refuses, too
            with pytest.raises(type(error)):
                check_sample(op, text, kind, None, x)
        return 0
    for x in tensors:
        check_sample(op, text, kind, found, x)
    return len(tensors)


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_the_type_is_that_of_the_eager_result(op: Op) -> None:
    assert check(op, DTYPES[op.kinds[0]][0], tuple(BIRTHS)) or op.name in REFUSED


@pytest.mark.slow
@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_the_type_is_that_of_the_eager_result_for_every_dtype(op: Op) -> None:
    for kind in op.kinds:
        for dtype in DTYPES[kind]:
            check(op, dtype, tuple(BIRTHS))
