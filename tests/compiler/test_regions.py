"""Devices in traces: regions, contexts of torch, and to_device.

"meta" is the other device of each machine; where elements matter, the program is looked at and not run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import pytest
import torch
from tests.dialects.traced import differentiated, traced

import serrate as sr

CPU, META = torch.device("cpu"), torch.device("meta")
X = sr.ragged([[1.0, 2.0], [], [3.0]])


@contextmanager
def as_default(device: str) -> Iterator[None]:
    torch.set_default_device(device)
    try:
        yield
    finally:
        torch.set_default_device(None)


CONTEXTS: dict[str, Callable[[str], AbstractContextManager[Any]]] = {
    "region": sr.device_region,
    "torch.device": torch.device,
    "default": as_default,
}
FUNCTIONS: dict[str, Callable[[sr.Tensor], Any]] = {
    "zeros": lambda x: (sr.zeros(x.shape), sr.zeros((2, 3))),
    "ones": lambda x: sr.ones(x.shape) * 2,
    "empty": lambda x: sr.empty(3),
    "full": lambda x: sr.full(x.shape, 4),
    "ranges": lambda x: (sr.arange(3), sr.linspace(0.0, 1.0, 4), sr.eye(2)),
    "fft": lambda x: (sr.fft.fftfreq(4), sr.fft.rfftfreq(4)),
    "random": lambda x: (sr.random.normal(x.shape), sr.random.randint((2,), 0, 5), sr.random.bits((2,))),
    "ragged": lambda x: sr.ragged([[1.0, 2.0], []]),
    "asarray": lambda x: sr.asarray([1, 2]),
}


def devices(returned: Any) -> list[torch.device]:
    return [each.device for each in (returned if isinstance(returned, tuple) else (returned,))]


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_call_makes_its_tensors_where_eager_code_does(name: str, context: str) -> None:
    """Whichever device comes first, each of them has a program of its own."""
    function, inside = FUNCTIONS[name], CONTEXTS[context]
    for order in ((None, "meta", None, "meta"), ("meta", None, "meta", None)):
        compiled = sr.jit(function)
        for device in order:
            with nullcontext() if device is None else inside(device):
                got, want = devices(compiled(X)), devices(function(X))
            assert got == want == [CPU if device is None else META] * len(want)
        assert (compiled.stats.traces, compiled.stats.eager_calls) == (2, 0)


def test_what_is_known_of_results_is_told_apart_by_where_they_are_made() -> None:
    """Lists of values go where torch makes tensors of them, and such a call has no device that would tell."""
    for order in ((None, "meta"), ("meta", None)):
        compiled = sr.jit(lambda x: sr.from_lengths([1.0, 2.0], [1, 1]))
        for device in order:
            with nullcontext() if device is None else torch.device(device):
                want = sr.from_lengths([1.0, 2.0], [1, 1]).device
                assert compiled(X).device == want
                assert f" on {want} = from_lengths" in compiled.lower(X).program


@pytest.mark.parametrize("context", CONTEXTS)
def test_operands_stay_where_they_are_and_numbers_that_change_too(context: str) -> None:
    compiled = sr.jit(lambda x, factor: (x * factor, sr.softmax(x, axis=1), sr.arange(2)))
    for factor in (2.0, 3.0, 4.0):
        with CONTEXTS[context]("meta"):
            scaled, weights, made = compiled(X, factor)
        assert made.device == META
        torch.testing.assert_close(scaled.values, X.values * factor)
        torch.testing.assert_close(weights.values, sr.softmax(X, axis=1).values)
    assert compiled.stats.eager_calls == 0


@pytest.mark.parametrize("context", CONTEXTS)
def test_random_numbers_of_operands_are_those_of_eager_code(context: str) -> None:
    def noisy(x: sr.Tensor) -> Any:
        return x + sr.random.normal(x), sr.dropout(x, 0.5), sr.random.uniform((3,))

    torch.manual_seed(0)
    with CONTEXTS[context]("meta"):
        got = sr.jit(noisy)(X)
    torch.manual_seed(0)
    with CONTEXTS[context]("meta"):
        want = noisy(X)
    for one, other in zip(got[:2], want[:2], strict=True):
        torch.testing.assert_close(one.values, other.values)
    assert got[2].device == want[2].device == META


@pytest.mark.parametrize("context", CONTEXTS)
def test_gradients_are_those_of_eager_code(context: str) -> None:
    def function(x: sr.Tensor) -> sr.Tensor:
        return sr.cumulative_sum(sr.exp(x) * x, axis=1) + sr.sort(x, axis=1)

    compiled, found = sr.jit(function), []
    for each in (compiled, function):
        values = X.values.clone().requires_grad_()
        x = sr.from_lengths(values, [2, 0, 1])
        with CONTEXTS[context]("meta"):
            made = each(x).values.sin().sum()
            found.append(torch.autograd.grad(made, values)[0])
    torch.testing.assert_close(found[0], found[1])
    assert compiled.stats.eager_calls == 0


@pytest.mark.parametrize("context", CONTEXTS)
def test_a_way_back_inside_of_a_region_makes_what_it_needs_where_it_was(context: str) -> None:
    def function(x: sr.Tensor) -> sr.Tensor:
        places = sr.arange(x.shape[0])[:, None] + sr.zeros(x.shape)
        return sr.sort(x * places + sr.random.normal(x.shape), axis=1) * sr.exp(x * places)

    found = []
    for each in (sr.jit(function), function):
        torch.manual_seed(0)
        values = X.values.clone().requires_grad_()
        made = each(sr.from_lengths(values, [2, 0, 1])).values.sum()
        with CONTEXTS[context]("meta"):
            found.append(torch.autograd.grad(made, values)[0])
    torch.testing.assert_close(found[0], found[1])


def test_the_innermost_of_a_region_and_a_context_decides() -> None:
    compiled = sr.jit(lambda x: sr.zeros(x.shape))
    with sr.device_region("meta"), torch.device("cpu"):
        assert compiled(X).device == CPU
    with torch.device("meta"), sr.device_region("cpu"):
        assert compiled(X).device == CPU
    with torch.device("cpu"), sr.device_region("meta"):
        assert compiled(X).device == META
    assert compiled.stats.traces == 2


# ------------------------------------------------------------------------------------- regions inside of the function


def test_a_region_inside_gives_the_device_to_types_and_instructions() -> None:
    def helper(shape: Any) -> sr.Tensor:
        return sr.ones(shape) + sr.random.uniform(shape)

    def function(x: sr.Tensor) -> Any:
        before = sr.zeros((2,))
        with sr.device_region("meta"):
            made = helper(x.shape)
        return before, made, sr.zeros((2,))

    program = traced(function, X)
    lines = [str(each) for each in program.instructions]
    assert [value.type.device for value in program.results] == [CPU, META, CPU]
    assert [("device=meta" in line) for line in lines] == [False, True, True, False, False]
    assert devices(sr.jit(function)(X)) == [CPU, META, CPU]


def test_an_exception_that_the_function_catches_ends_the_region() -> None:
    @sr.jit
    def function(x: sr.Tensor) -> Any:
        try:
            with sr.device_region("meta"):
                made = sr.ones(2)
                raise KeyError
        except KeyError:
            return made, sr.ones(2)

    assert devices(function(X)) == [META, CPU]


def test_an_exception_that_leaves_the_function_ends_its_region() -> None:
    @sr.jit
    def function(x: sr.Tensor) -> Any:
        with sr.device_region("meta"):
            raise KeyError

    for _ in range(2):
        with pytest.raises(KeyError):
            function(X)
        assert sr.zeros(2).device == CPU


def test_regions_are_not_nested_across_a_compiled_function() -> None:
    @sr.jit
    def function(x: sr.Tensor) -> sr.Tensor:
        with sr.device_region("cpu"):
            return sr.ones(x.shape)

    assert function(X).device == CPU
    for _ in range(2):
        with sr.device_region("meta"), pytest.raises(RuntimeError, match="cpu begins inside of the device region of m"):
            function(X)
    assert function(X).device == CPU


def test_a_region_that_the_function_finds_outside_is_a_part_of_its_signature() -> None:
    region = [sr.device_region("meta")]

    @sr.jit
    def function(x: sr.Tensor) -> sr.Tensor:
        with region[0]:
            return sr.ones(x.shape)

    assert function(X).device == META
    region[0] = sr.device_region("cpu")
    assert function(X).device == CPU


def test_a_compiled_function_inside_of_a_region_of_another_one_is_a_part_of_it() -> None:
    inner = sr.jit(lambda x: sr.ones(x.shape))
    assert inner(X).device == CPU

    @sr.jit
    def outer(x: sr.Tensor) -> Any:
        with sr.device_region("meta"):
            made = inner(x)
        return made, inner(x)

    assert devices(outer(X)) == [META, CPU]


def test_threads_call_one_function_in_regions_of_their_own() -> None:
    compiled, barrier = sr.jit(lambda x: sr.ones(x.shape)), threading.Barrier(2)
    found: dict[str, set[str]] = {"meta": set(), "cpu": set()}

    def calls(device: str) -> None:
        with sr.device_region(device):
            barrier.wait(30)
            for _ in range(20):
                found[device].add(str(compiled(X).device))

    threads = [threading.Thread(target=calls, args=(device,)) for device in found]
    for each in threads:
        each.start()
    for each in threads:
        each.join(120)
    assert found == {"meta": {"meta"}, "cpu": {"cpu"}}


@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize("context", ["region", "torch.device"])
def test_graphs_of_torch_compile_follow_regions_around_them(context: str, fullgraph: bool) -> None:
    compiled = sr.jit(lambda x: (x * 2, sr.ones(3)))
    torch._dynamo.reset()
    outer = torch.compile(lambda x: compiled(x)[1], backend="eager", fullgraph=fullgraph)
    values = torch.ones(3)
    for device in (None, "meta", None, "meta"):
        with nullcontext() if device is None else CONTEXTS[context](device):
            assert outer(values).device == (CPU if device is None else META)


def test_a_region_inside_of_what_torch_compiles_ends_its_graph() -> None:
    compiled = sr.jit(lambda x: (x * 2, sr.ones(3)))

    def outer(x: torch.Tensor) -> Any:
        with sr.device_region("meta"):
            made = compiled(x + 1)[1]
        return made, compiled(x)[1], sr.zeros(2)

    torch._dynamo.reset()
    assert devices(torch.compile(outer, backend="eager")(torch.ones(3))) == [META, CPU, CPU]
    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported):
        torch.compile(outer, backend="eager", fullgraph=True)(torch.ones(3))
    assert sr.zeros(2).device == CPU


# --------------------------------------------------------------------------------------------------------- to_device


def test_to_device_is_an_operation_whose_result_is_elsewhere() -> None:
    def function(x: sr.Tensor) -> Any:
        there = x.to_device("meta")
        return sr.sum(there * 2, axis=1), x + 1

    program = traced(function, X)
    assert program.instructions[0].op == "Tensor.to"
    assert [value.type.device for value in program.results] == [META, CPU]
    compiled = sr.jit(function)
    got, want = compiled(X), function(X)
    assert [each.shape for each in got] == [each.shape for each in want]
    assert devices(got) == devices(want) == [META, CPU]
    torch.testing.assert_close(got[1].values, want[1].values)
    assert compiled.stats.eager_calls == 0


def test_gradients_go_back_to_the_device_that_the_operand_came_from() -> None:
    """The way back of a program for a device that this machine need not have."""
    x = sr.ragged([[1.0, 2.0], []]).requires_grad_()
    forward, back = differentiated(traced(lambda x: sr.exp(x.to_device("cuda:1")).to_device("cpu"), x))
    moved = [str(each.result.type.device) for each in forward.instructions]
    assert moved == ["cuda:1", "cuda:1", "cpu"]
    assert [str(value.type.device) for value in back.results] == ["cpu"]
    products = [each for each in back.instructions if each.op == "multiply"]
    assert [str(each.result.type.device) for each in products] == ["cuda:1"]


def test_gradients_of_what_stays_pass_a_move_to_another_device() -> None:
    def function(x: sr.Tensor) -> Any:
        return sr.exp(x).to_device("cpu") * 2, x.to_device("meta")

    found = []
    for each in (sr.jit(function), function):
        values = X.values.clone().requires_grad_()
        kept, there = each(sr.from_lengths(values, [2, 0, 1]))
        assert there.requires_grad
        found.append(torch.autograd.grad(kept.values.sum(), values)[0])
    torch.testing.assert_close(found[0], found[1])


def test_a_stream_is_no_part_of_a_program() -> None:
    compiled = sr.jit(lambda x: x.to_device("cpu", stream=1))
    with pytest.raises(ValueError, match="stream orders copies between CUDA devices, got cpu and cpu"):
        compiled(X)
    assert "streams" in compiled.lower(X).reason


def test_a_device_that_torch_does_not_know_is_the_error_of_eager_code() -> None:
    compiled = sr.jit(lambda x: x.to_device("level_zero:gpu:1"))
    with pytest.raises(RuntimeError, match="level_zero:gpu:1"):
        compiled(X)
