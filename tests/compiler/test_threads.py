"""Threads: tracing is a matter of one thread, and a compiled function serves several at once."""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from tests.compiler.harness import same

import serrate as sr


def rows(lengths: list[int], seed: int = 0) -> sr.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return sr.from_lengths(torch.rand(sum(lengths), 4, generator=generator), lengths)


def block(x: Any) -> Any:
    return sr.sum(sr.softmax(sr.gelu(x) * 2, axis=1) * x, axis=1)


def at_once(count: int, run: Callable[[int], Any]) -> list[Any]:
    """What `run` gives for each number, in threads that start together."""
    gate = threading.Barrier(count)

    def start(number: int) -> Any:
        gate.wait()
        return run(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(start, range(count)))


def test_other_threads_stay_eager_while_one_traces():
    tracing, done = threading.Event(), threading.Event()
    x = rows([2, 0, 3])

    def slow(x: Any) -> Any:
        y = x + 1
        tracing.set()
        assert done.wait(30)
        return y * 2

    made = sr.jit(slow)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(made, x)
        assert tracing.wait(30)
        eager = x * 3
        assert type(eager) is sr.Tensor
        assert float(sr.sum(eager)) > 0  # which a traced tensor refuses
        assert torch.exp(torch.ones(2)).tolist()
        done.set()
        same(waiting.result(), (x + 1) * 2)


def test_threads_that_call_first_at_the_same_time_trace_once():
    runs = itertools.count()

    def counted(x: Any) -> Any:
        next(runs)
        time.sleep(0.05)
        return block(x)

    made = sr.jit(counted)
    batches = [rows([3, 0, number + 1], seed=number) for number in range(6)]
    for got, x in zip(at_once(6, lambda number: made(batches[number])), batches, strict=True):
        same(got, block(x))
    assert made.stats.traces == 1
    assert next(runs) == 1


def test_a_compiled_function_is_right_in_many_threads_with_batches_of_many_sizes():
    made = sr.jit(block)
    made(rows([1]))

    def run(number: int) -> None:
        for call in range(40):
            x = rows([(number * 7 + call * 3 + row) % 11 for row in range(1 + (number + call) % 9)], seed=call)
            same(made(x), block(x))

    at_once(6, run)
    assert made.stats.traces == 1


def test_gradients_in_many_threads():
    made = sr.jit(block)

    def run(number: int) -> None:
        for call in range(10):
            x, y = ((z := rows([number + 1, call, 2], seed=call))._with(z.values.requires_grad_()) for _ in range(2))
            sr.sum(made(x)).values.backward()
            sr.sum(block(y)).values.backward()
            torch.testing.assert_close(x.values.grad, y.values.grad, rtol=1e-4, atol=1e-6)

    at_once(4, run)


def test_different_signatures_at_the_same_time():
    made = sr.jit(block)
    dtypes = [torch.float32, torch.float64, torch.bfloat16, torch.float16]

    def run(number: int) -> Any:
        x = rows([3, 2])
        return made(x._with(x.values.to(dtypes[number])))

    for number, got in enumerate(at_once(4, run)):
        x = rows([3, 2])
        same(got, block(x._with(x.values.to(dtypes[number]))))
    assert made.stats.traces == 4


def test_different_functions_at_the_same_time():
    functions = [lambda x, k=k: sr.sum(sr.exp(x * k) + k, axis=1) for k in (0.25, 0.5, 0.75, 1.25)]
    for function, got in zip(
        functions, at_once(4, lambda number: sr.jit(functions[number])(rows([2, 1]))), strict=True
    ):
        same(got, function(rows([2, 1])))


def test_a_thread_that_a_traced_function_starts_is_eager():
    seen: list[Any] = []
    y = rows([2, 1])

    def starting(x: Any) -> Any:
        thread = threading.Thread(target=lambda: seen.append((y * 2).tolist()))
        thread.start()
        thread.join()
        return x + 1

    same(sr.jit(starting)(y), y + 1)
    assert seen[0] == (y * 2).tolist()


def test_a_copied_context_outside_of_a_trace_is_eager():
    x = rows([2, 1])
    sr.jit(block)(x)
    assert contextvars.copy_context().run(lambda: (x + 1).tolist()) == (x + 1).tolist()


def test_coroutines_call_compiled_functions():
    made = sr.jit(block)

    async def one(number: int) -> Any:
        await asyncio.sleep(0)
        return made(rows([number, 1]))

    async def many() -> list[Any]:
        return await asyncio.gather(*(one(number) for number in range(5)))

    for number, got in enumerate(asyncio.run(many())):
        same(got, block(rows([number, 1])))


def test_an_error_in_one_thread_is_no_matter_of_another():
    made = sr.jit(lambda x, y: x + y)
    made(rows([2, 1]), rows([2, 1]))

    def run(number: int) -> None:
        if number % 2:
            with pytest.raises(ValueError, match=r"lengths|ragged|size"):
                made(rows([2, 1]), rows([1, 2]))
        else:
            same(made(rows([2, 1]), rows([2, 1])), rows([2, 1]) * 2)

    at_once(6, run)


def test_results_of_one_call_are_not_overwritten_by_the_next():
    made = sr.jit(lambda x: (sr.exp(x), sr.sum(sr.softmax(x, axis=1) * 2, axis=1)))
    x, y = rows([3, 1]), rows([3, 1], seed=5)
    first = made(x)
    kept = [each.values.clone() for each in first]
    second = made(y)
    for one, before, other in zip(first, kept, second, strict=True):
        assert torch.equal(one.values, before)
        assert one.values.data_ptr() != other.values.data_ptr()
