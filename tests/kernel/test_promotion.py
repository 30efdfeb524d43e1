"""Operands of several dtypes: what is computed of them has the dtype and the values that eager operations give, by
`evaluate`, in the checking interpreter and compiled."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import pytest
import torch
from tests.kernel.harness import agree

import serrate as sr
from serrate.fusion import Fusion, TensorView
from serrate.fusion.binding import TORCH
from serrate.fusion.dtypes import COMPLEX, DTYPES, UNSIGNED, kind_of
from serrate.kernel import lower

NAMES = ("add", "multiply", "less", "divide", "equal", "bitwise_and")


def sample(dtype: str, seed: int) -> torch.Tensor:
    """Numbers of a dtype, its greatest one too, where that is a whole number."""
    numbers = [0, 1, 2, 3, 7, 100]
    if dtype not in ("bool", *UNSIGNED):
        numbers += [-1, -2, -100]
    made = torch.tensor(numbers, dtype=torch.int64).roll(seed)
    if kind_of(dtype) == "int":
        made = torch.cat([made, torch.tensor([100, 5])])
        return torch.cat(
            [made[:8].to(TORCH[dtype]), torch.full((1,), torch.iinfo(TORCH[dtype]).max, dtype=TORCH[dtype])]
        )
    made = made.to(TORCH[dtype])
    return torch.cat([made, made])[:9] * (0.5 if kind_of(dtype) == "float" else 1 - 2j if dtype in COMPLEX else True)


def eager(name: str, *operands: object) -> torch.Tensor | None:
    """What the eager operation gives; None if it refuses these dtypes."""
    try:
        return getattr(sr, name)(*operands).torch()
    except TypeError:
        return None


def compare(fusion: Fusion, given: Sequence[torch.Tensor], wanted: Sequence[torch.Tensor]) -> None:
    lowered = lower(fusion, fusion.outputs[0])
    agree(lowered, *given)
    for tensor, found, by_hand, want in zip(
        fusion.outputs, lowered(*given), fusion.evaluate(*given), wanted, strict=True
    ):
        assert found.dtype == by_hand.dtype == want.dtype, tensor.definition
        for made in (found, by_hand):
            torch.testing.assert_close(made, want, equal_nan=True, msg=lambda text, t=tensor: f"{t.definition}: {text}")


@pytest.mark.parametrize("left", DTYPES)
def test_two_tensors(left: str) -> None:
    fusion = Fusion()
    x, a = fusion.input("x", ["n"], left), sample(left, 0)
    inputs, wanted = [a], []
    for right in DTYPES:
        y, b = fusion.input(f"y_{right}", ["n"], right), sample(right, 1)
        inputs.append(b)
        for name in NAMES:
            want = eager(name, a, b)
            if want is not None:
                fusion.output(fusion.binary(name, x, y), f"{name}_{right}")
                wanted.append(want)
            elif "bool" not in (left, right) or name == "add":
                with pytest.raises(TypeError):
                    fusion.binary(name, x, y)
        if {"uint64"} < {left, right} and {left, right} & {"int8", "int16", "int32", "int64"}:
            continue
        choice = fusion.binary("equal", x, x)
        fusion.output(fusion.where(choice, x, y), f"where_{right}")
        wanted.append(sr.where(a == a, a, b).torch())
    compare(fusion, inputs, wanted)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_tensor_and_numbers(dtype: str) -> None:
    fusion = Fusion()
    x, a = fusion.input("x", ["n"], dtype), sample(dtype, 0)
    wanted = []
    numbers: list[complex] = [True, 3, 2.5, 1 - 2j]
    for (place, number), name in itertools.product(enumerate(numbers), NAMES):
        if dtype == "float16" and isinstance(number, complex):  # torch has no more than a sketch of complex32
            assert fusion.binary("add", x, number).dtype == "complex64"
            continue
        for turned in (False, True):
            want = eager(name, *((number, a) if turned else (a, number)))
            if want is not None:
                made = fusion.binary(name, *((number, x) if turned else (x, number)))
                fusion.output(made, f"{name}_{place}_{turned}")
                wanted.append(want)
            elif dtype != "bool":
                with pytest.raises((TypeError, OverflowError)):
                    fusion.binary(name, *((number, x) if turned else (x, number)))
    compare(fusion, [a], wanted)


def test_where_of_two_numbers() -> None:
    fusion = Fusion()
    condition = fusion.input("condition", ["n"], "bool")
    for left, right in ((1, 2), (1, 2.5), (True, False)):
        fusion.output(fusion.where(condition, left, right))
    given = torch.tensor([True, False])
    wanted = [torch.tensor([1, 2]), torch.tensor([1, 2.5]), torch.tensor([True, False])]
    compare(fusion, [given], wanted)


def test_concat() -> None:
    fusion = Fusion()
    x, y = fusion.input("x", [2], "int32"), fusion.input("y", [3], "float64")
    fusion.output(fusion.concat([x, y], 0), "z")
    given = torch.tensor([1, 2], dtype=torch.int32), torch.tensor([0.5, 1.5, 2.5], dtype=torch.float64)
    compare(fusion, given, [torch.cat(given)])


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int64", "uint64"])
def test_comparisons_with_numbers_that_the_dtype_does_not_hold(dtype: str) -> None:
    fusion = Fusion()
    x, a = fusion.input("x", ["n"], dtype), sample(dtype, 0)
    wanted: list[torch.Tensor] = []
    for name in ("less", "less_equal", "greater", "greater_equal", "equal", "not_equal"):
        for number in (-(2**70), 2**70):
            fusion.output(fusion.binary(name, x, number))
            fusion.output(fusion.binary(name, number, x))
            compared: Callable[[int, int], bool] = getattr(__import__("operator"), _OPERATORS[name])
            wanted += [torch.tensor([compared(each, number) for each in a.tolist()])]
            wanted += [torch.tensor([compared(number, each) for each in a.tolist()])]
    compare(fusion, [a], wanted)


_OPERATORS = {
    "less": "lt", "less_equal": "le", "greater": "gt", "greater_equal": "ge", "equal": "eq", "not_equal": "ne",
}  # fmt: skip


def test_casts_are_inserted_where_dtypes_differ_and_nowhere_else() -> None:
    fusion = Fusion()
    x, y = fusion.input("x", ["n"], "float16"), fusion.input("y", ["n"], "float16")
    assert _casts(x + y) == 0
    assert _casts(x + fusion.input("z", ["n"])) == 1
    assert _casts(x * 2.5) == 0
    assert _casts(fusion.input("w", ["n"], "int32") * 2.5) == 1


def _casts(tensor: TensorView) -> int:
    assert tensor.definition is not None
    return sum(x.definition is not None and x.definition.name == "cast" for x in tensor.definition.inputs)
