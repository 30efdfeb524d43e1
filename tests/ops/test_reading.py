"""Operands are read once: what a call converts to a Tensor or to a Python number, it converts one time."""

from __future__ import annotations

import operator
import sys
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np
import pytest
import torch
from tests.ops.matrix import arguments
from tests.ops.samples import DTYPES, elements, sample

import serrate as sr
from serrate.ops.record import TABLE, Op
from serrate.tensor import promotion
from serrate.tensor.broadcast import plain_number
from serrate.tensor.tensor import as_tensor

OPS = list(TABLE.values())
X = sample("features", torch.float32)


def conversions(call: Callable[[], Any]) -> Counter[tuple[str, int]]:
    """How often a call reads each object that is neither a Tensor nor a Python number, and how often it promotes."""
    found: Counter[tuple[str, int]] = Counter()
    kept: list[Any] = []  # so that no two objects have one id

    def watch(frame: FrameType, event: str, _: Any) -> None:
        if event != "call":
            return
        given = frame.f_locals.get("given")
        to_tensor = frame.f_code is as_tensor.__code__ and not isinstance(given, sr.Tensor)
        if to_tensor or (frame.f_code is plain_number.__code__ and isinstance(given, np.generic)):
            kept.append(given)
            found[frame.f_code.co_name, id(given)] += 1
        elif frame.f_code is promotion.together.__code__:
            found["together", 0] += 1

    sys.setprofile(watch)
    try:
        call()
    finally:
        sys.setprofile(None)
    return found


def operands(given: Any) -> Counter[int]:
    """How often each torch tensor is an operand."""
    if isinstance(given, (tuple, list)):
        return sum((operands(part) for part in given), Counter[int]())
    return Counter([id(given)] if isinstance(given, torch.Tensor) else [])


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_an_operand_becomes_a_tensor_once(op: Op) -> None:
    for text in op.samples:
        for x in (sample("features", DTYPES[op.kinds[0]][0]), elements(3, (2,), DTYPES[op.kinds[0]][0])):
            try:
                args, options = arguments(text, x)
                op.function(*args, **options)
            except (AttributeError, TypeError, ValueError):
                continue  # what the sample asks of x, or the operation itself, is for ragged tensors
            given = operands((*args, *options.values()))
            found = conversions(lambda args=args, options=options: op.function(*args, **options))
            assert all(count <= given[which] for (name, which), count in found.items() if which in given), text
            assert found["together", 0] <= 1, text


CALLS: dict[str, Callable[[Any], Any]] = {
    **{f"sr.{name}": getattr(sr, name) for name in ("add", "divide", "pow", "atan2", "maximum", "less", "logaddexp")},
    "operator +": operator.add,
    "operator >": operator.gt,
    "torch.add": torch.add,
    "torch.div": torch.div,
    "method": lambda x, y: x.mul(y),
    "where": lambda x, y: sr.where(x > 0, x, y),
    "clip": lambda x, y: sr.clip(x, y),
    "full_like": lambda x, y: sr.full_like(x, y),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("other", [np.float32(2), torch.ones(2), torch.ones((), dtype=torch.float64)], ids=str)
def test_the_other_operand_is_read_once(name: str, other: Any) -> None:
    if isinstance(other, torch.Tensor) and name == "full_like":
        other = torch.ones(())
    found = conversions(lambda: CALLS[name](X, other))
    assert max(found.values(), default=1) == 1, found


def test_reading_twice_is_found() -> None:
    given, number = torch.ones(2), np.float32(2)
    assert conversions(lambda: (as_tensor(given), as_tensor(given)))["as_tensor", id(given)] == 2
    assert conversions(lambda: (plain_number(number), plain_number(number)))["plain_number", id(number)] == 2
    assert conversions(lambda: as_tensor(X)) == Counter()
