"""torch.compile around compiled functions: the same results and gradients, and one graph for batches of any lengths.

Expected results are those of the same function without any compiler.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from tests.compiler.torch_compiled import (
    BATCHES,
    EACH_BACKEND,
    FUNCTIONS,
    LAYER,
    Pair,
    check,
    one_graph,
    rows,
    run,
    traced,
)  # fmt: skip
from torch import nn
from torch._dynamo.utils import counters

import serrate as sr
from serrate.tensor.structure import Structure


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch.compiler.reset()
    counters.clear()
    yield
    torch.compiler.reset()


SOME = ["rows", "dropout"]


def check_function(name: str, backend: str, dtype: torch.dtype = torch.float32) -> None:
    function = FUNCTIONS[name]
    made = sr.jit(function)

    def outer(x: sr.Tensor) -> Any:
        return made(x * 2)

    compiled = traced(outer, backend)
    for lengths in BATCHES:
        check(compiled, lambda x: function(x * 2), rows(lengths, dtype=dtype), params=tuple(LAYER.parameters()))
    one_graph()
    assert made.stats.traces == 1
    assert made.stats.eager_calls == 0


@pytest.mark.parametrize("backend", EACH_BACKEND[:2])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_and_gradients_are_those_of_the_function_and_no_batch_makes_another_graph(name, backend):
    check_function(name, backend)


@pytest.mark.parametrize("name", SOME)
def test_the_same_by_torch_s_compiler(name):
    check_function(name, "inductor")


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name not in SOME])
def test_more_by_torch_s_compiler(name):
    check_function(name, "inductor")


@pytest.mark.parametrize("backend", EACH_BACKEND)
def test_float64(backend):
    check_function("rows", backend, torch.float64)


# ------------------------------------------------------------------------------------------------------- arguments


@pytest.mark.parametrize("backend", EACH_BACKEND)
def test_torch_tensors_and_tensors_that_the_graph_makes(backend):
    made, dense = sr.jit(FUNCTIONS["rows"]), sr.jit(lambda x, y: torch.nn.functional.gelu(x) * y)

    def of(one: Callable[..., Any], other: Callable[..., Any]) -> Callable[..., Any]:
        def outer(values: torch.Tensor, x: sr.Tensor) -> Any:
            return one(x._with(values * 2)).values + other(values, values + 1)

        return outer

    compiled = traced(of(made, dense), backend)
    for lengths in BATCHES:
        x = rows(lengths)
        check(compiled, of(made.function, dense.function), torch.rand(sum(lengths), 6).requires_grad_(), x.detach())
    one_graph()


def test_arguments_in_containers_by_name_and_with_constants():
    def function(pair: Pair, *, parts: dict[str, Any], which: slice, power: float) -> Any:
        return (pair.one + parts["list"][0])[:, which] * power - (pair.other[:, which] if parts["flag"] else 0)

    def of(run: Callable[..., Any]) -> Callable[..., Any]:
        return lambda x: run(Pair(x, x * 2), parts={"list": [x + 1], "flag": True}, which=slice(1, 3), power=1.5)

    compiled = traced(of(sr.jit(function)), "aot_eager")
    for lengths in BATCHES:
        check(compiled, of(function), rows(lengths))
    one_graph()


def test_nested_rows():
    def function(x: Any) -> Any:
        return sr.sum(x, axis=2), sr.exp(x)

    made = sr.jit(function)
    compiled = traced(lambda x: made(x), "aot_eager")
    for nested in ([[[1.0, 2.0], [3.0]], [[4.0, 5.0, 6.0], [7.0]]], [[[1.0], [], [4.0]], [[5.0], []], [[6.0]], []]):
        x = sr.ragged(nested)
        check(compiled, function, x._with(x.values.requires_grad_()))
    one_graph()


def test_uniform_axes_outside_of_a_ragged_one():
    made = sr.jit(lambda x: sr.softmax(sr.gelu(x), axis=2))
    compiled = traced(lambda x: made(x), "aot_eager")
    for count in (2, 4, 5):
        cut = sr.Ragged([1, 3, 2] * count, (0, 1))
        x = sr.Tensor(torch.rand(6 * count, 5).requires_grad_(), Structure((count, 3, cut)))
        check(compiled, lambda x: sr.softmax(sr.gelu(x), axis=2), x)
    one_graph()


def test_a_python_number_is_a_constant_of_the_graph():
    made = sr.jit(lambda x, factor: x * factor)
    compiled = traced(lambda x, factor: made(x, factor), "eager")
    for factor in (2.0, 3.0, 2.0):
        for lengths in BATCHES[:2]:
            check(lambda x, factor=factor: compiled(x, factor), lambda x, factor=factor: x * factor, rows(lengths))
    assert counters["stats"]["unique_graphs"] == 2


def test_int32_offsets_and_declared_lengths_stay_what_they_are():
    made = sr.jit(lambda x: x * 2)
    compiled = traced(lambda x: made(x), "eager")
    x = sr.from_offsets(torch.rand(4, 3), torch.tensor([0, 3, 4], dtype=torch.int32))
    assert compiled(x).partitions[0].dtype == torch.int32
    assert compiled(x).structure is x.structure


# --------------------------------------------------------------------------------------------------------- modules


class Block(nn.Module):
    def __init__(self, dropout: float = 0.5) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(6), nn.Linear(6, 8), nn.Linear(8, 6)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("scale", torch.tensor(0.5))

    def forward(self, x: Any) -> Any:
        y = self.dropout(self.down(torch.nn.functional.gelu(self.up(self.norm(x)))))
        return sr.softmax(x + y * self.scale, axis=1)


def check_module(compiled: Callable[..., Any], module: nn.Module) -> None:
    params = tuple(each for each in module.parameters() if each.requires_grad)
    for lengths in BATCHES[:3]:
        check(compiled, lambda x: module(x) * 3, rows(lengths), params=params)


@pytest.mark.parametrize("backend", EACH_BACKEND)
def test_a_module_gives_gradients_to_its_parameters(backend):
    module = Block()
    made = sr.jit(module)
    check_module(traced(lambda x: made(x) * 3, backend), module)
    one_graph()


def test_what_changes_outside_of_a_function_is_noticed():
    module = Block()
    made = sr.jit(module)
    compiled = traced(lambda x: made(x) * 3, "aot_eager")
    for change in (
        lambda: None,
        module.eval,
        module.train,
        lambda: setattr(module, "up", copy.deepcopy(module.up)),
        lambda: setattr(module.norm, "bias", nn.Parameter(torch.ones(6))),
        lambda: module.up.requires_grad_(False),
    ):
        change()
        check_module(compiled, module)
    assert not counters["graph_break"]


def test_numbers_of_closures_that_change_are_noticed_for_each_function():
    factors = [2.0, 3.0]

    def one(x: Any) -> Any:
        return x * factors[0]

    def other(x: Any) -> Any:
        return x + factors[1]

    first, second = sr.jit(one), sr.jit(other)
    compiled = traced(lambda x: second(first(x)), "eager")
    for place, value in ((0, 2.0), (1, 5.0), (0, 7.0)):
        factors[place] = value
        for lengths in BATCHES[:2]:
            check(compiled, lambda x: other(one(x)), rows(lengths))
    assert counters["stats"]["unique_graphs"] == 3


def test_methods_and_a_decorated_forward():
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.rand(6))

        @sr.jit
        def scaled(self, x: Any) -> Any:
            return sr.gelu(x * self.weight)

        @sr.jit
        def forward(self, x: Any) -> Any:
            return x * self.weight

    def check_one(module: Any) -> None:
        compiled = traced(lambda x: module.scaled(module(x)), "aot_eager")
        weight = module.weight
        for lengths in BATCHES[:3]:
            check(compiled, lambda x: sr.gelu(x * weight * weight), rows(lengths), params=(weight,))

    one, other = Outer(), Outer()
    check_one(one)
    check_one(other)
    assert counters["stats"]["unique_graphs"] == 2
    assert list(one.state_dict()) == ["weight"]


def test_gradients_under_autocast():
    module = Block(0.0)
    made = sr.jit(module)

    def of(run: Callable[..., Any]) -> Callable[..., Any]:
        def outer(x: Any) -> Any:
            with torch.autocast("cpu", torch.bfloat16):
                return run(x) * 3

        return outer

    compiled = traced(of(made), "aot_eager")
    for lengths in BATCHES[:2]:
        (got, got_back), (want, want_back) = (
            run(each, (rows(lengths),), tuple(module.parameters())) for each in (compiled, of(module))
        )
        assert got.dtype == want.dtype
        torch.testing.assert_close(got.values, want.values, rtol=2e-2, atol=2e-2)
        for one, two in zip(got_back, want_back, strict=True):
            assert one.dtype == two.dtype
            torch.testing.assert_close(one, two, rtol=5e-2, atol=5e-2)
    one_graph()
