"""Compiling and running: progress, compilers at the same time, memory of intermediates, and the bytes that move."""

from __future__ import annotations

import io
import random
import sys
import threading
import time

import numpy as np
import pytest
import torch
from tests.compiler.harness import same

import serrate as sr
from serrate.compiler import progress
from serrate.runtime import toolchain
from serrate.schedule import planned


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_one_line_on_a_terminal_if_compiling_takes_over_a_second(monkeypatch):
    assert progress.PATIENCE == 1.0
    monkeypatch.setattr(progress, "PATIENCE", 0.05)
    monkeypatch.setattr(sys, "stderr", Terminal())

    @sr.jit
    def slowly(x):
        time.sleep(0.3)
        return x + 1

    x = sr.ragged([[1.0], []])
    slowly(x)
    text = sys.stderr.getvalue()
    assert text.startswith("serrate: compiling slowly …")
    assert text.endswith(" s\n")
    assert text.count("\n") == 1
    slowly(x)
    assert sys.stderr.getvalue() == text, "a call that compiles nothing says nothing"


def test_nothing_is_said_if_it_is_quick_or_nobody_looks(monkeypatch):
    x = sr.ragged([[1.0], []])
    monkeypatch.setattr(sys, "stderr", Terminal())
    sr.jit(lambda x: x + 2)(x)
    assert sys.stderr.getvalue() == ""
    monkeypatch.setattr(progress, "PATIENCE", 0.01)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    sr.jit(lambda x: (time.sleep(0.1), x + 3)[1])(x)
    assert sys.stderr.getvalue() == ""


def test_the_line_ends_if_compiling_fails(monkeypatch):
    monkeypatch.setattr(progress, "PATIENCE", 0.01)
    monkeypatch.setattr(sys, "stderr", Terminal())

    def failing(x):
        time.sleep(0.1)
        raise KeyError("mine")

    with pytest.raises(KeyError):
        sr.jit(failing)(sr.ragged([[1.0]]))
    assert sys.stderr.getvalue().endswith(" s\n")


def test_independent_kernels_compile_at_the_same_time(monkeypatch):
    """Two kernels of one function: neither compiler ends before the other has begun."""
    gate, compile_together, groups = threading.Barrier(2, timeout=60), planned.compile_together, []

    def together(group):
        groups.append(group)
        gate.wait()
        compile_together(group)

    monkeypatch.setattr(planned, "compile_together", together)
    made = sr.jit(lambda x, d: (sr.sum(sr.exp(x * 1.37), axis=1), d * 3.71))
    x, d = sr.from_lengths(torch.rand(5), [3, 0, 2]), torch.rand(4, 3)
    same(made(x, d), (sr.sum(sr.exp(x * 1.37), axis=1), d * 3.71))
    assert len(groups) == 2


@pytest.mark.skipif(sr.memory.stats().limit == 0, reason="the allocator is switched off")
def test_memory_of_intermediates_and_results_is_used_again():
    """Values of 4 MB and more come from memory that earlier calls have left, those between kernels too."""

    def function(x, ids):
        far = sr.take(sr.sum(x, axis=1), ids, axis=0)
        return sr.sum(sr.exp(x) @ torch.eye(64) + sr.expand_dims(far, axis=1), axis=2)

    lengths = [2000] * 10
    x, ids = sr.from_lengths(torch.rand(20_000, 64), lengths), torch.arange(10).flip(0)
    made = sr.jit(function)
    want = function(x, ids)
    for _ in range(3):
        got = made(x, ids)
    before = sr.memory.stats()
    for _ in range(5):
        got = made(x, ids)
    after = sr.memory.stats()
    assert after.mapped == before.mapped
    assert after.reused >= before.reused + 5
    assert sr.memory.stats().in_use == before.in_use
    torch.testing.assert_close(got.values, want.values, rtol=1e-4, atol=1e-3)


def test_stats_count_the_bytes_that_move_and_the_least_that_must():
    x = sr.from_lengths(torch.rand(1000, 8), [250] * 4)
    made = sr.jit(lambda x: sr.gelu(x) * x + 1)
    made(x)
    made(x)
    assert made.stats.bytes_moved == made.stats.least_bytes == 2 * x.values.nbytes
    cut = sr.jit(lambda x: sr.exp(x) @ torch.eye(8) * 2)
    cut(x)
    assert cut.stats.library_calls == 1
    assert cut.stats.bytes_moved == cut.stats.least_bytes == 4 * x.values.nbytes


def test_an_empty_row_costs_its_offset_and_no_more():
    """Rows without entries add the bytes of their offsets, and of what is stored for them, to those that move."""
    values, counted = torch.rand(600, 4), {}
    for empty in (0, 5000):
        made = sr.jit(lambda x: sr.softmax(x, axis=1))
        made(sr.from_lengths(values, [200, *[0] * empty, 400]))
        counted[empty] = made.stats.bytes_moved
    assert counted[5000] - counted[0] == 5000 * 8
    assert counted[0] == 2 * values.nbytes + 3 * 8


def test_kernels_are_not_compiled_again_for_another_function_of_the_same_kernels():
    x = sr.from_lengths(torch.rand(5, 7), [2, 0, 3])
    for number in range(2):
        made = sr.jit(lambda x: sr.tanh(x) * 1.2346 + x)
        before = toolchain.counts()
        made(x)
        assert (toolchain.counts() == before) is bool(number)


class Counter:
    def __init__(self) -> None:
        self.calls, self.is_even, self.last, self.seen = 0, True, None, []

    def step(self, x):
        self.calls += 1
        self.seen.append(self.calls)
        self.is_even = not self.is_even
        self.last = x * self.calls
        return x + self.calls if self.is_even else x - self.calls


def appended(x, made):
    made.append(x * 2)
    return x


def entered(x, made):
    made["twice"] = x * 2
    return made.pop("x") + x


def test_what_a_function_changes_besides_tensors_is_changed_in_each_call():
    x = sr.ragged([[1.0, 2.0], [], [3.0]])
    eager, compiled = Counter(), Counter()
    step = sr.jit(compiled.step)
    for _ in range(6):
        assert step(x).tolist() == eager.step(x).tolist()
        assert (compiled.calls, compiled.is_even, compiled.seen) == (eager.calls, eager.is_even, eager.seen)
        assert compiled.last.tolist() == eager.last.tolist()
    for function, kept in ((appended, list), (entered, dict)):
        made = sr.jit(function)
        for _ in range(3):
            one, other = (kept() if kept is list else {"x": x} for _ in range(2))
            assert made(x, one).tolist() == function(x, other).tolist()
            assert len(one) == len(other) == 1
        assert made.stats.eager_calls == 3
        assert "changes a container" in made.lower(x, [] if kept is list else {"x": x}).reason


def seeded(x):
    torch.manual_seed(3)
    return x * torch.rand(2)


def seeded_keys(x):
    sr.random.seed(3)
    return sr.dropout(x, 0.5)


def seeded_apart(x):
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return x * torch.rand(2)


def drawn_by_python(x):
    return x * random.random() + float(np.random.rand())


@pytest.mark.parametrize("function", [seeded, seeded_keys, seeded_apart, drawn_by_python])
def test_generators_that_a_function_seeds_or_draws_from_itself_are_as_in_eager_code(function):
    x, found = torch.ones(2), []
    compiled = sr.jit(function)
    try:
        for run in (function, compiled):
            for seed in (torch.manual_seed, random.seed, np.random.seed):
                seed(7)
            results = [sr.asarray(run(x)).tolist() for _ in range(3)]
            found.append((results, torch.rand(2).tolist(), random.random(), float(np.random.rand())))
            sr.random.seed(None)
    finally:
        sr.random.seed(None)
    assert found[0] == found[1]
    assert "random numbers" in compiled.lower(x).reason
