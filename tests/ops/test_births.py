"""Where lengths were born, on the host or on a device, decides nothing about a result but who waits for whom."""

from __future__ import annotations

import pytest
import torch
from tests.ops.matrix import arguments, result_of
from tests.ops.samples import DTYPES, sample

import serrate as sr
from serrate.ops.record import TABLE, Op

OPS = list(TABLE.values())
UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)
NAMES = {"rows": 2, "empty rows": 0, "permuted": 0, "two levels": 2, "product": 2}  # and how many rows are undefined


def given(name: str, dtype: torch.dtype) -> sr.Tensor:
    return sample(name, torch.int64).to(dtype) if dtype in UNSIGNED else sample(name, dtype)


def outcome(op: Op, text: str, x: sr.Tensor) -> list[torch.dtype] | type[Exception]:
    """The dtypes of all tensors that a call gives, or what it raises."""
    try:
        args, options = arguments(text, x)
        made = result_of(op, args, options)
        sr.testing.raise_deferred()
    except (TypeError, ValueError, IndexError, RuntimeError) as error:
        return type(error)
    listed = made if isinstance(made, tuple | list) else [made]
    return [part.dtype for part in listed if isinstance(part, sr.Tensor)]


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_the_dtype_does_not_depend_on_where_lengths_were_born(op):
    ran = 0
    for kind in op.kinds:
        for dtype in (*DTYPES[kind], *(UNSIGNED if kind == "int" else ())):
            for name, spare in NAMES.items():
                x = given(name, dtype)
                born = sr.testing.device_born(x, spare=spare)
                for text in op.samples:
                    if op.name == "bincount" and "axis" in text and "minlength" not in text:
                        continue  # refused: how many bins there are, the host does not know
                    want = outcome(op, text, x)
                    ran += isinstance(want, list)
                    assert outcome(op, text, born) == want, (op.name, text, dtype, name)
    assert ran


@pytest.mark.parametrize("dtype", [d for kind in DTYPES.values() for d in kind] + list(UNSIGNED))
def test_the_dtype_of_what_comes_back_does_not_depend_on_the_keys(dtype):
    """One key for each row, or an axis of keys; dense rows and ragged ones."""
    exact = not (dtype.is_floating_point or dtype.is_complex)
    keys = torch.tensor([1, 0, 1, -1])
    rows = torch.tensor([1, 2, 3, 4]).to(dtype)
    for by in (keys, keys[:, None], keys[:, None].expand(-1, 2)):
        ragged = sr.from_lengths(rows, [3, 1])
        for x, given in ((rows, by), (ragged, sr.from_lengths(by, [3, 1]))):
            grouped = sr.group_by(x, given, 2)
            assert grouped.dtype == dtype
            back = grouped.ungroup(grouped)
            assert back.dtype == (torch.int64 if exact else dtype)
            copies = by.shape[1] if by.ndim > 1 else 1
            want = (
                torch.tensor([1, 2, 3, 0]).to(dtype) if dtype == torch.bool else torch.tensor([1, 2, 3, 0])
            ) * copies
            assert back.values.to(torch.complex64).tolist() == want.to(torch.complex64).tolist()


def test_bools_stay_bools():
    x = sr.testing.device_born(sr.ragged([[True, False], [True]]), spare=2)
    assert sr.topk(x, 1, axis=1).values.dtype == torch.bool
    assert sr.diff(x, axis=1).dtype == torch.bool
    assert sr.diff(x, axis=1).tolist() == [[True], []]
