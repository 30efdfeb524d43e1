"""Constructors as operations: Tensors stand for torch's tensors among their operands, and a call is seen once."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import serrate as sr
from serrate.ops.call import TRACER
from serrate.ops.record import TABLE

VALUES = torch.arange(5)
PADDED = torch.tensor([[0, 1], [2, 9], [3, 4]])
CALLS: dict[str, tuple[str, tuple[Any, ...], dict[str, Any]]] = {
    "lengths": ("from_lengths", (VALUES, [2, 1, 2]), {}),
    "levels of lengths": ("from_lengths", (VALUES, [[2, 0], [3, 2]]), {}),
    "offsets": ("from_offsets", (VALUES, [0, 2, 3, 5]), {}),
    "levels of offsets": ("from_offsets", (VALUES, [[0, 2, 2], [0, 3, 5]]), {}),
    "row ids": ("from_row_ids", (VALUES, [0, 0, 1, 2, 2], 3), {}),
    "a view": ("view_as_nested", (VALUES, [0, 2, 3, 5]), {}),
    "a view with cuts of its own": ("view_as_nested", (PADDED, [[0, 1, 2], [0, 0, 2], [0, 2, 2]], 1), {}),
    "lengths of padded rows": ("from_dense", (PADDED,), {"lengths": [2, 1, 2]}),
    "offsets of padded rows": ("from_dense", (PADDED,), {"offsets": [0, 2, 3, 5]}),
    "a mask of padded rows": ("from_dense", (PADDED,), {"mask": (PADDED < 9).tolist()}),
}


def changed(given: Any, make: Any) -> Any:
    """Arguments with tensors in the place of vectors and tables of numbers; a list of levels stays a list."""
    if isinstance(given, torch.Tensor):
        return make(given)
    if not isinstance(given, list):
        return given
    level = isinstance(given[0], list) and len(given) == 2
    return [changed(part, make) for part in given] if level else make(torch.tensor(given))


@pytest.mark.parametrize("name", CALLS)
def test_dense_tensors_say_what_lists_and_torch_tensors_say(name):
    operation, arguments, named = CALLS[name]
    function = getattr(sr, operation)
    want = function(*arguments, **named)
    for make in (lambda t: t, sr.asarray):
        given = [changed(part, make) for part in arguments]
        got = function(*given, **{key: changed(part, make) for key, part in named.items()})
        assert got.shape == want.shape
        assert got.tolist() == want.tolist()


@pytest.mark.parametrize("operation", ["from_lengths", "from_offsets", "from_row_ids", "view_as_nested"])
def test_ragged_tensors_are_no_numbers_of_rows(operation):
    more = (2,) if operation == "from_row_ids" else ()
    with pytest.raises(TypeError, match="only a dense tensor is a torch tensor"):
        getattr(sr, operation)(VALUES, sr.ragged([[2], [1, 2]]), *more)


def test_a_tracer_sees_what_the_caller_calls_and_nothing_inside():
    seen: list[str] = []

    def tracer(op: Any, arguments: Any, named: Any, spelling: Any) -> Any:
        seen.append(op.name)
        return op.implementations[-1].function(*arguments, **named)

    token = TRACER.set(tracer)
    try:
        x = sr.from_lengths(VALUES, [2, 1, 2])
        sr.positions(x)
        sr.from_dense(PADDED, like=x)
        sr.view_as_nested(VALUES, [0, 5])
        sr.from_product(VALUES, *[sr.Partition.from_lengths(n) for n in ([1], [5])])
    finally:
        TRACER.reset(token)
    assert seen == ["from_lengths", "positions", "from_dense", "view_as_nested", "from_product"]


@pytest.mark.parametrize("name", [op.name for op in TABLE.values() if op.family == "construction"])
def test_the_public_function_has_the_signature_of_the_plain_one(name):
    op = TABLE[name]
    assert op.function is getattr(sr, name)
    assert op.function.__doc__ == op.implementations[-1].function.__doc__
    assert op.function._torchdynamo_disable


@pytest.mark.parametrize("spare", [0, 1, 4])
def test_a_mask_may_have_more_room_than_a_product_of_the_host(spare):
    p, q = sr.Partition.from_lengths([0, 1, 2]), sr.Partition.from_lengths([2, 3, 2])
    x = sr.from_product(torch.arange(7.0), p, q)
    mask = sr.testing.device_born(x > 1, spare)
    mask.values[7:] = True
    assert x[mask].tolist() == [[], [[2.0]], [[3.0, 4.0], [5.0, 6.0]]]
