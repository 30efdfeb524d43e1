"""Regions and moves where the other device has elements: what comes back is what the CPU computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import serrate as sr
from serrate.errors import DeviceMismatchError

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

LENGTHS = [3, 0, 1, 2]


def rows(values: torch.Tensor) -> sr.Tensor:
    return sr.from_lengths(values, LENGTHS)


def there_and_back(x: Any) -> Any:
    there = x.to_device("cuda") * 2
    with sr.device_region("cuda"):
        there = sr.cumulative_sum(sr.exp(there), axis=1) + sr.arange(4)
    return there.to_device("cpu"), sr.softmax(x, axis=1)


def on_the_host(x: Any) -> Any:
    there = sr.cumulative_sum(sr.exp(x * 2), axis=1) + sr.arange(4)
    return there, sr.softmax(x, axis=1)


@pytest.mark.parametrize("wrap", [lambda function: function, sr.jit], ids=["eager", "compiled"])
def test_gradients_pass_moves_in_both_directions(wrap: Callable[..., Any]) -> None:
    values = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
    found = []
    for function in (wrap(there_and_back), on_the_host):
        given = values.clone().requires_grad_()
        made = function(rows(given))
        (gradient,) = torch.autograd.grad(sum(each.values.sin().sum() for each in made), given)
        found.append([*(each.values for each in made), gradient])
    for one, other in zip(*found, strict=True):
        assert one.device == other.device == torch.device("cpu")
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def test_a_moved_tensor_is_no_eager_call() -> None:
    compiled = sr.jit(there_and_back)
    compiled(rows(torch.randn(6, 4)))
    compiled(sr.from_lengths(torch.randn(3, 4), [1, 2]))
    assert (compiled.stats.traces, compiled.stats.eager_calls) == (1, 0)


@pytest.mark.parametrize("context", [sr.device_region, torch.device])
@pytest.mark.parametrize("device", ["cuda", "cuda:0"])
def test_each_device_has_a_program(context: Callable[..., Any], device: str) -> None:
    compiled = sr.jit(lambda x: (sr.ones(x.shape), sr.random.uniform((3,)), sr.ragged([[1.0], []])))
    x = rows(torch.randn(6, 4))
    for _ in range(2):
        assert {each.device.type for each in compiled(x)} == {"cpu"}
        with context(device):
            assert {str(each.device) for each in compiled(x)} == {"cuda:0"}
    assert (compiled.stats.traces, compiled.stats.eager_calls) == (2, 0)


def test_random_numbers_are_the_same_on_both_devices() -> None:
    key = sr.random.Key(3)
    with sr.device_region("cuda"):
        there = sr.random.uniform((100,), key=key)
    assert there.is_cuda
    torch.testing.assert_close(there.values.cpu(), sr.random.uniform((100,), key=key).values)


@pytest.mark.parametrize("wrap", [lambda function: function, sr.jit], ids=["eager", "compiled"])
@pytest.mark.parametrize(
    "call",
    [
        lambda x, y: x + y,
        lambda x, y: torch.add(x, y),
        lambda x, y: sr.matmul(x, y.values[:4].mT[:, :2]),
        lambda x, y: sr.concat([x, y]),
    ],
)
def test_a_mismatch_names_both_devices(wrap: Callable[..., Any], call: Callable[..., Any]) -> None:
    x = rows(torch.randn(6, 4))
    with pytest.raises(DeviceMismatchError, match=r"different devices: .* on cpu.* and .* on cuda:0"):
        wrap(call)(x, x.cuda())


@pytest.mark.parametrize(
    "call", [lambda x, y: torch.nn.functional.linear(x.values, y.values), lambda x, y: torch.mm(x.values, y.values.mT)]
)
def test_functions_of_torch_in_a_trace_name_both_devices(call: Callable[..., Any]) -> None:
    x = rows(torch.randn(6, 4))
    with pytest.raises(RuntimeError):
        call(x, x.cuda())
    with pytest.raises(DeviceMismatchError, match=r"different devices: .* on cpu .* and .* on cuda:0"):
        sr.jit(call)(x, x.cuda())


def test_a_stream_is_left_to_eager_code() -> None:
    stream = torch.cuda.Stream()
    compiled = sr.jit(lambda x: x.to_device("cuda", stream=stream) * 2)
    x = rows(torch.randn(6, 4)).cuda()
    got = compiled(x)
    torch.cuda.synchronize()
    torch.testing.assert_close(got.values, x.values * 2)
