"""Bodies: every one, run eagerly, gives what the implementation made of torch's operations gives, in every cell."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from tests.ops.matrix import arguments, cells
from tests.ops.samples import sample
from tests.ops.test_derivatives_movement import PROGRAMS

import serrate as sr
from serrate.ops.call import TRACER, call
from serrate.ops.derivatives import run_body
from serrate.ops.record import TABLE, Op, ops

WITH_BODY = [op for op in TABLE.values() if op.body is not None]
# How many times the precision of a dtype a body may differ by: it rounds after each of its operations.
TOLERANCE = {torch.float16: 8e-3, torch.bfloat16: 6e-2, torch.float32: 2e-5, torch.complex64: 4e-5}
# Cells in which torch's own kernel is wrong, with the reason.
WRONG_IN_TORCH = {
    ("gelu", "NaN and inf", dtype): "vectors of inf give NaN, single elements do not"
    for dtype in (torch.float16, torch.bfloat16, torch.float32)
} | {
    ("diff", "NaN and inf", dtype): "vectors are multiplied by 1 before they are subtracted, so that parts become NaN"
    for dtype in (torch.complex64, torch.complex128)
}


# Operations whose results have elements that are undefined: only shapes and dtypes are compared.
UNDEFINED = ("empty", "empty_like")


def tensors(result: Any) -> list[sr.Tensor]:
    """The tensors of a result, in order."""
    if isinstance(result, (tuple, list)):
        return [part for each in result for part in tensors(each)]
    if isinstance(result, dict):
        return tensors(list(result.values()))
    return [result] if isinstance(result, sr.Tensor) else []


def same(op: Op, structure: str, dtype: torch.dtype, text: str) -> None:
    """One sample of an operation by its body and by its last implementation."""
    args, options = arguments(text, sample(structure, dtype))
    torch.manual_seed(0)
    want = tensors(op.implementations[-1].function(*args, **options))
    torch.manual_seed(0)
    got = tensors(run_body(op, args, options))
    assert len(got) == len(want)
    for mine, theirs in zip(got, want, strict=True):
        where = f"{op.name}({text}) of {structure}, {dtype}"
        assert mine.shape == theirs.shape, where
        assert mine.dtype == theirs.dtype, where
        if op.name in UNDEFINED:
            continue
        near = TOLERANCE.get(mine.dtype, 1e-9)
        torch.testing.assert_close(
            mine.contiguous().values, theirs.contiguous().values, rtol=near, atol=near, equal_nan=True, msg=where
        )


@pytest.mark.parametrize("op", WITH_BODY, ids=lambda op: op.name)
def test_every_body_gives_what_the_implementation_gives(op: Op) -> None:
    ran = 0
    for cell in cells(op):
        if not cell.absent and (op.name, cell.structure, cell.dtype) not in WRONG_IN_TORCH:
            for text in op.samples:
                same(op, cell.structure, cell.dtype, text)
                ran += 1
    assert ran


class OnBodies:
    """A tracer that runs every operation that has a body by its body, down to primitives."""

    def __init__(self) -> None:
        self.primitives: list[Op] = []

    def __call__(self, op: Op, arguments: tuple[Any, ...], named: dict[str, Any], spelling: Any) -> Any:
        assert spelling is None
        if op.body is not None and not op.writes:
            return run_body(op, arguments, named)
        self.primitives.append(op)
        token = TRACER.set(None)
        try:
            return call(op, arguments, named)
        finally:
            TRACER.reset(token)


@pytest.mark.filterwarnings("ignore:Casting complex values to real")
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_with_every_attribute_run_on_bodies(name: str) -> None:
    function, *operands = PROGRAMS[name]
    given = [each if isinstance(each, sr.Tensor) else sr.asarray(each) for each in operands]
    want = tensors(function(*given))
    tracer = OnBodies()
    token = TRACER.set(tracer)
    try:
        got = tensors(function(*given))
    finally:
        TRACER.reset(token)
    assert tracer.primitives
    assert len(got) == len(want)
    for mine, theirs in zip(got, want, strict=True):
        assert (mine.shape, mine.dtype) == (theirs.shape, theirs.dtype)
        laid = sr.zeros_like(theirs) + mine
        torch.testing.assert_close(laid.values, theirs.values, equal_nan=True)


@pytest.mark.parametrize("dtype", [None, torch.float32, torch.float64, torch.complex64, torch.int64, torch.uint8])
def test_ranges_and_matrices_by_their_bodies(dtype: torch.dtype | None) -> None:
    cases = [("linspace", (0, 9, num), {"endpoint": end}) for num in (0, 1, 2, 7, 10) for end in (True, False)]
    cases += [
        ("linspace", (9.5, 0.25, 5), {}),
        ("eye", (3, 5), {"k": 2}),
        ("eye", (0,), {}),
        ("eye", (4, 2), {"k": -3}),
    ]
    cases += [(name, ((2, sr.Ragged([2, 0]), 3),), {}) for name in ("zeros", "ones")]
    for name, args, options in cases:
        want = TABLE[name].function(*args, dtype=dtype, **options)
        got = run_body(TABLE[name], args, {"dtype": dtype, **options})
        assert (got.shape, got.dtype) == (want.shape, want.dtype)
        torch.testing.assert_close(got.values, want.values, msg=f"{name}{args} {options}")


def test_a_wrong_body_is_found() -> None:
    wrong = dataclasses.replace(TABLE["silu"], body=lambda x: x * ops.sigmoid(-x))
    with pytest.raises(AssertionError, match="silu"):
        same(wrong, "features", torch.float64, "x")


def test_records_have_a_body_or_are_primitives() -> None:
    fields = {f.name: getattr(TABLE["exp"], f.name) for f in dataclasses.fields(Op) if f.init}
    with pytest.raises(ValueError, match="has a body, and is a primitive too"):
        Op(**fields | {"body": lambda x: x})
    with pytest.raises(ValueError, match="has a derivative, and a reason why it has none"):
        Op(**fields | {"flat": "no reason"})


def test_programs_find_operations_by_name() -> None:
    x = sr.ragged([[1.0, 4.0], []])
    assert ops.sqrt(x).tolist() == [[1.0, 2.0], []]
    assert ops["linalg.vector_norm"](x, axis=1).tolist() == sr.linalg.vector_norm(x, axis=1).tolist()
    with pytest.raises(AttributeError, match="there is no operation square_root"):
        _ = ops.square_root
