"""Operands on different devices in a trace: an error names them, and the lines of the program that made them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import serrate as sr
from serrate.errors import DeviceMismatchError

META = torch.device("meta")
X = sr.ragged([[1.0, 2.0], [], [3.0]])


def message(function: Callable[..., Any], *arguments: Any) -> str:
    """The error of a compiled function, which does not run eagerly meanwhile, and comes again in a second call."""
    compiled = sr.jit(function)
    with pytest.raises(DeviceMismatchError) as first:
        compiled(*arguments)
    with pytest.raises(DeviceMismatchError) as second:
        compiled(*arguments)
    assert str(first.value) == str(second.value)
    assert compiled.stats.eager_calls == 0
    return str(first.value)


def line_of(function: Callable[..., Any], number: int) -> str:
    return f"test_mismatches.py:{function.__code__.co_firstlineno + number}"


def test_both_values_are_named_with_the_lines_that_made_them() -> None:
    def function(x: sr.Tensor) -> sr.Tensor:
        scaled = sr.exp(x)
        with sr.device_region("meta"):
            shift = sr.ones(x.shape)
        return scaled + shift

    said = message(function, X)
    assert f"v0 on cpu (made by exp in {line_of(function, 1)})" in said
    assert f"v1 on meta (made by ones in {line_of(function, 3)})" in said
    assert said.startswith("add (")
    assert f"{line_of(function, 4)}: return scaled + shift)" in said
    assert ".to_device(device)" in said


def test_arguments_are_named_as_the_function_names_them() -> None:
    there = X.to("meta")
    said = message(lambda first, rest: first * rest["other"], X, {"other": there})
    assert "x0 on cpu (given as the argument first) and x1 on meta (given as the argument rest)" in said

    class Module(torch.nn.Module):
        def forward(self, x: Any, *others: Any, weights: Any) -> Any:
            return sr.where(others[0] > 0, x, weights)

    with pytest.raises(DeviceMismatchError) as error:
        sr.jit(Module())(X, X, weights=there)
    assert "x2 on meta (given as the argument weights)" in str(error.value)


def test_what_the_function_finds_outside_is_named() -> None:
    weight = torch.ones(1, device="meta")
    said = message(lambda x: x * weight, X)
    assert "x0 on cpu (given as the argument x) and captured0 on meta (found outside of the arguments)" in said


@pytest.mark.parametrize(
    "call",
    [
        lambda x, y: sr.concat([x, y]),
        lambda x, y: torch.cat([x.values, y.values]),
        lambda x, y: x.values + y.values,
        lambda x, y: torch.mul(x, y),
        lambda x, y: sr.matmul(x.values[None], y.values[:, None]),
        lambda x, y: sr.where(x > 0, y, y),
        lambda x, y: sr.take(x, sr.astype(y.values, torch.int64), axis=0),
    ],
)
def test_every_way_to_call_an_operation_names_its_operands(call: Callable[..., Any]) -> None:
    there = X.to("meta")
    with pytest.raises(RuntimeError):
        call(X, there)
    said = message(call, X, there)
    assert " on cpu (" in said
    assert " on meta (" in said


def test_a_mismatch_that_the_function_catches_is_the_other_branch() -> None:
    @sr.jit
    def function(x: sr.Tensor, y: sr.Tensor) -> sr.Tensor:
        try:
            return x + y
        except DeviceMismatchError:
            return x + 1

    assert function(X, X).tolist() == [[2.0, 4.0], [], [6.0]]
    assert function(X, X.to("meta")).tolist() == [[2.0, 3.0], [], [4.0]]


@pytest.mark.parametrize("write", ["copy_", "__setitem__"])
def test_writes_between_devices_are_left_to_torch(write: str) -> None:
    """torch copies elements of torch tensors between devices; a Tensor of Serrate takes those of its own device."""

    def function(x: sr.Tensor, y: torch.Tensor) -> Any:
        made = torch.zeros_like(x.values)
        made.copy_(y) if write == "copy_" else made.__setitem__(slice(None), y)
        return made

    compiled, there = sr.jit(function), X.to("meta")
    assert compiled(there, torch.ones(3)).device == function(there, torch.ones(3)).device == META
    assert "writes from one device to another" in compiled.lower(there, torch.ones(3)).reason

    @sr.jit
    def of_ours(x: sr.Tensor, y: sr.Tensor) -> sr.Tensor:
        return x.clone().copy_(y)

    with pytest.raises(DeviceMismatchError, match="x on meta and other on cpu"):
        of_ours(there, X)


def test_a_number_on_the_host_goes_anywhere() -> None:
    there = X.to("meta")
    compiled = sr.jit(lambda x, number: x * number)
    assert compiled(there, torch.tensor(2.0)).device == META
    assert compiled.stats.eager_calls == 0


def test_other_errors_of_a_function_with_two_devices_stay_what_they_are() -> None:
    def function(x: sr.Tensor, y: sr.Tensor) -> Any:
        return sr.reshape(x, (7, 7)), y

    with pytest.raises(ValueError, match="shape") as want:
        function(X, X.to("meta"))
    with pytest.raises(ValueError, match="shape") as got:
        sr.jit(function)(X, X.to("meta"))
    assert str(got.value) == str(want.value)
