"""Operands on different devices: the error of eager code names them as the operation's parameters are named."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import serrate as sr
from serrate.errors import DeviceMismatchError, OffsetsDeviceError

X = sr.ragged([[1.0, 2.0], [], [3.0]])
THERE = X.to("meta")


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: sr.add(X, THERE), "add has operands on different devices: x1 on cpu and x2 on meta"),
        (lambda: THERE * X, "multiply has operands on different devices: x1 on meta and x2 on cpu"),
        (
            lambda: sr.where(X > 0, THERE, THERE),
            "where has operands on different devices: condition on cpu and x1 on meta",
        ),
        (lambda: sr.concat([X, X, THERE]), "concat has operands on different devices: arrays[0] on cpu and arrays[2]"),
        (lambda: torch.add(X, THERE), "add has operands on different devices: operand 1 on cpu and operand 2 on meta"),
        (lambda: torch.add(X, other=THERE), "operand 1 on cpu and other on meta"),
        (lambda: sr.matmul(torch.ones(2, 2), torch.ones(2, 2, device="meta")), "x1 on cpu and x2 on meta"),
        (lambda: sr.take(X, torch.tensor([0], device="meta"), axis=0), "x on cpu and indices on meta"),
    ],
)
def test_both_operands_are_named_with_their_devices(call: Callable[[], object], said: str) -> None:
    with pytest.raises(DeviceMismatchError) as error:
        call()
    assert said in str(error.value)
    assert str(error.value).endswith("; move one of them with .to_device(device)")


def test_an_operation_inside_of_another_is_named_as_the_caller_knows_it() -> None:
    """A loss calls operations of its own; what the user called has the names that the user gave."""
    with pytest.raises(DeviceMismatchError, match=r"^mse_loss has operands on different devices: "):
        sr.mse_loss(X, THERE)


def test_numbers_on_the_host_go_anywhere() -> None:
    assert (THERE * torch.tensor(2.0)).device == (torch.tensor(2.0) * THERE).device == torch.device("meta")
    with pytest.raises(DeviceMismatchError, match="x1 on meta and x2 on cpu"):
        sr.add(THERE, torch.ones(1))


def test_offsets_elsewhere_keep_their_own_error() -> None:
    with pytest.raises(OffsetsDeviceError, match="lie on meta, values on cpu"):
        sr.from_offsets(torch.zeros(3), torch.tensor([0, 1, 3]).to("meta"))
