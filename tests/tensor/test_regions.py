"""device_region: where tensors are made for which nobody names a device; "meta" is the other device of each machine."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

import serrate as sr
from serrate.ops.record import TABLE

CPU, META = torch.device("cpu"), torch.device("meta")
MAKERS: dict[str, Callable[..., sr.Tensor]] = {
    "zeros": lambda **named: sr.zeros((2, sr.Ragged([1, 2])), **named),
    "ones": lambda **named: sr.ones(3, **named),
    "empty": lambda **named: sr.empty((2, 3), **named),
    "full": lambda **named: sr.full((2,), 7, **named),
    "arange": lambda **named: sr.arange(3, **named),
    "linspace": lambda **named: sr.linspace(0.0, 1.0, 3, **named),
    "eye": lambda **named: sr.eye(2, **named),
    "fft.fftfreq": lambda **named: sr.fft.fftfreq(4, **named),
    "fft.rfftfreq": lambda **named: sr.fft.rfftfreq(4, **named),
    "random.bits": lambda **named: sr.random.bits((2,), **named),
    "random.uniform": lambda **named: sr.random.uniform((2,), **named),
    "random.normal": lambda **named: sr.random.normal((2, sr.Ragged([0, 1])), **named),
    "random.exponential": lambda **named: sr.random.exponential((2,), **named),
    "random.randint": lambda **named: sr.random.randint((2,), 0, 5, **named),
    "ragged": lambda **named: sr.ragged([[1.0, 2.0], []], **named),
    "asarray": lambda **named: sr.asarray([1, 2], **named),
}
"""Each public function that takes `device=` and can be given no tensor."""
FOLLOWERS: dict[str, Callable[..., sr.Tensor]] = {
    "zeros_like": sr.zeros_like,
    "ones_like": sr.ones_like,
    "empty_like": sr.empty_like,
    "full_like": lambda x: sr.full_like(x, 2),
    "full": lambda x: sr.full((2,), sr.sum(x)),
    "random": sr.random.normal,
    "astype": lambda x: sr.astype(x, torch.float64),
    "asarray": sr.asarray,
    "asarray of a list": lambda x: sr.asarray([sr.sum(x), 1.0]),
    "ragged of rows": lambda x: sr.ragged([[x.values], []]),
    "operators": lambda x: x * 2 + 1,
    "ragged axis": lambda x: sr.mean(x, axis=1),
}
"""Functions whose results lie where their operand does."""


@pytest.mark.parametrize("name", MAKERS)
def test_what_is_made_inside_lies_on_the_device_of_the_region(name: str) -> None:
    make = MAKERS[name]
    with sr.device_region("meta"):
        assert make().device == META
        assert make(device="cpu").device == CPU
        assert make(device=None).device == META
    assert make().device == CPU
    with torch.device("meta"), sr.device_region("cpu"):
        assert make().device == CPU
    with sr.device_region("cpu"), torch.device("meta"):
        assert make().device == META


def test_each_function_that_takes_a_device_is_tested() -> None:
    taking = {
        name for name, op in TABLE.items() if "device" in op.signature.parameters and not op.name.endswith("like")
    }
    assert taking - {"astype"} == set(MAKERS) - {"ragged", "asarray"}


@pytest.mark.parametrize("name", FOLLOWERS)
def test_what_is_made_of_a_tensor_lies_where_it_does(name: str) -> None:
    x = sr.ragged([[1.0, 2.0], [3.0]])
    want = FOLLOWERS[name](x)
    with sr.device_region("meta"):
        got = FOLLOWERS[name](x)
    assert got.device == want.device == CPU
    assert got.shape == want.shape
    assert got.dtype == want.dtype


def test_memory_of_numpy_stays_where_it_is() -> None:
    array = np.arange(3.0)
    with sr.device_region("meta"):
        x = sr.asarray(array)
    array[0] = 5.0
    assert x.tolist() == [5.0, 1.0, 2.0]


def test_lengths_that_were_born_on_a_device_decide() -> None:
    offsets = torch.tensor([0, 1, 3]).to("meta")
    x = sr.from_offsets(torch.empty(3, device="meta"), offsets)
    with sr.device_region("cpu"):
        assert sr.zeros(x.shape).device == META


def test_functions_of_torch_know_only_contexts_of_torch() -> None:
    with sr.device_region("meta"):
        assert torch.zeros(2).device == CPU


def test_a_region_in_a_helper_is_in_force_for_what_the_helper_calls() -> None:
    def inner() -> sr.Tensor:
        return sr.zeros(2)

    def helper() -> sr.Tensor:
        with sr.device_region("meta"):
            return inner()

    assert (helper().device, inner().device) == (META, CPU)


def test_an_exception_ends_the_region() -> None:
    with pytest.raises(KeyError), sr.device_region("meta"):
        raise KeyError
    assert sr.zeros(2).device == CPU
    with sr.device_region("cpu"):
        pass


def test_regions_are_not_nested_whoever_begins_the_inner_one() -> None:
    @sr.device_region("cpu")
    def helper() -> sr.Tensor:
        return sr.zeros(2)

    with sr.device_region("meta"):
        for inner in (helper, lambda: sr.device_region("meta").__enter__()):
            with pytest.raises(RuntimeError, match="begins inside of the device region of meta"):
                inner()
        assert sr.zeros(2).device == META
        with torch.device("cpu"), pytest.raises(RuntimeError, match="cannot be nested"):
            helper()
    assert helper().device == CPU


def test_a_region_can_be_entered_again() -> None:
    region = sr.device_region("meta")
    for _ in range(2):
        with region:
            assert sr.zeros(2).device == META
    assert repr(region) == "sr.device_region('meta')"


@pytest.mark.parametrize("name", ["nowhere", "level_zero:gpu:1", ""])
def test_a_device_that_torch_does_not_know_is_named(name: str) -> None:
    with pytest.raises(RuntimeError, match=name or "empty"):
        sr.device_region(name)


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_a_device_that_is_not_there_fails_where_something_is_made() -> None:
    with sr.device_region("cuda:0"):
        with pytest.raises(AssertionError, match="CUDA"):
            sr.zeros(2)
        assert sr.zeros(2, device="cpu").device == CPU


def test_a_generator_leaves_its_region_in_force_until_it_goes_on() -> None:
    def batches() -> Iterator[sr.Tensor]:
        with sr.device_region("meta"):
            yield sr.zeros(2)
        yield sr.zeros(2)

    found = batches()
    assert next(found).device == META
    assert sr.zeros(2).device == META
    assert next(found).device == CPU
    assert sr.zeros(2).device == CPU
    closed = batches()
    next(closed)
    closed.close()
    assert sr.zeros(2).device == CPU


def test_a_region_that_another_generator_began_is_not_ended() -> None:
    def generator(device: str) -> Iterator[None]:
        with sr.device_region(device):
            yield

    first = generator("meta")
    next(first)
    with pytest.raises(RuntimeError, match="region of cpu begins inside of the device region of meta"):
        next(generator("cpu"))
    assert sr.zeros(2).device == META
    first.close()


def test_threads_have_regions_of_their_own() -> None:
    shared, barrier = sr.device_region("meta"), threading.Barrier(3)
    found: dict[str, Any] = {}

    def inside(name: str) -> None:
        with shared:
            barrier.wait(30)
            found[name] = sr.zeros(2).device
            barrier.wait(30)

    def outside() -> None:
        barrier.wait(30)
        found["outside"] = sr.zeros(2).device
        barrier.wait(30)

    threads = [threading.Thread(target=inside, args=(name,)) for name in ("one", "other")]
    threads.append(threading.Thread(target=outside))
    for each in threads:
        each.start()
    for each in threads:
        each.join(60)
    assert found == {"one": META, "other": META, "outside": CPU}
    assert sr.zeros(2).device == CPU


def test_a_thread_does_not_see_the_region_of_the_one_that_began_it() -> None:
    found: list[Any] = []
    with sr.device_region("meta"):
        thread = threading.Thread(target=lambda: found.append(sr.zeros(2).device))
        thread.start()
        thread.join(60)
    assert found == [CPU]


def test_tasks_have_regions_of_their_own() -> None:
    async def task(device: str, turn: asyncio.Event, other: asyncio.Event) -> torch.device:
        with sr.device_region(device):
            other.set()
            await turn.wait()
            return sr.zeros(2).device

    async def both() -> list[torch.device]:
        one, other = asyncio.Event(), asyncio.Event()
        return list(await asyncio.gather(task("meta", one, other), task("cpu", other, one)))

    assert asyncio.run(both()) == [META, CPU]


def test_a_region_ends_only_where_it_began() -> None:
    region = sr.device_region("meta")
    with pytest.raises(RuntimeError, match="region of meta ends in a thread or a task that did not enter it"):
        region.__exit__(None, None, None)


def test_a_default_device_that_is_set_inside_decides() -> None:
    try:
        torch.set_default_device("meta")
        with sr.device_region("cpu"):
            assert sr.zeros(2).device == CPU
            torch.set_default_device("meta")
            assert sr.zeros(2).device == META
    finally:
        torch.set_default_device(None)
    assert sr.zeros(2).device == CPU
