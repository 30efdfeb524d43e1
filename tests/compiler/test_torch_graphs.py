"""The graphs of torch.compile around compiled functions: one operator for a call, and what still ends a graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from tests.compiler.torch_compiled import (
    BACKENDS,
    BATCHES,
    EACH_BACKEND,
    FUNCTIONS,
    LAYER,
    check,
    close,
    one_graph,
    packed,
    rows,
    run,
    traced,
)  # fmt: skip
from torch._dynamo.utils import counters
from torch.utils.checkpoint import checkpoint

import serrate as sr


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch.compiler.reset()
    counters.clear()
    yield
    torch.compiler.reset()


class Recorder:
    """A backend that keeps the graphs that it is given, and runs them as they are."""

    def __init__(self) -> None:
        self.graphs: list[Any] = []

    def __call__(self, graph: Any, inputs: Any) -> Callable[..., Any]:
        self.graphs.append(graph)
        return graph.forward

    def calls(self) -> list[str]:
        """The names of the operators of Serrate in the only graph."""
        (graph,) = self.graphs
        return [str(each.target) for each in graph.graph.nodes if str(each.target).startswith("serrate.")]


def test_a_call_is_one_operator_of_the_only_graph():
    recorder, made = Recorder(), sr.jit(FUNCTIONS["a library call"])
    compiled = traced(lambda x: made(x * 2) + 1, recorder)
    for lengths in BATCHES:
        check(compiled, lambda x: sr.gelu(LAYER(x * 2)) + 1, rows(lengths), params=tuple(LAYER.parameters()))
    assert recorder.calls() == ["serrate.compiled.default"]
    assert made.stats.calls == len(BATCHES)
    one_graph()


def test_the_way_back_is_one_operator_too_and_computes_no_product_again():
    from functorch.compile import make_boxed_func
    from torch._dynamo.backends.common import aot_autograd

    there, back = Recorder(), Recorder()

    def recording(recorder: Recorder) -> Callable[..., Any]:
        return lambda graph, inputs: make_boxed_func(recorder(graph, inputs))

    made = sr.jit(FUNCTIONS["a library call"])
    compiled = traced(
        lambda x: made(x * 2) + 1, aot_autograd(fw_compiler=recording(there), bw_compiler=recording(back))
    )
    check(compiled, lambda x: sr.gelu(LAYER(x * 2)) + 1, rows(BATCHES[0]), params=tuple(LAYER.parameters()))
    assert there.calls() == ["serrate.compiled.default"]
    assert back.calls() == ["serrate.compiled_back.default"]
    assert products(compiled) == products(lambda x: sr.gelu(LAYER(x * 2)) + 1) == 3


def products(function: Callable[..., Any]) -> int:
    """How many matrix products a call and its way back take."""
    x = rows(BATCHES[0])
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        run(function, (x,), tuple(LAYER.parameters()))
    return sum(each.count for each in profile.key_averages() if each.key in ("aten::mm", "aten::addmm", "aten::bmm"))


def wiping(graph: Any, _: Any) -> Callable[..., Any]:
    """A graph that runs as it is, and loses each tensor that nothing in it reads any more, as the memory of such a
    tensor is used again."""
    from functorch.compile import make_boxed_func

    *nodes, output = graph.graph.nodes
    last = {each: node for node in graph.graph.nodes for each in node.all_input_nodes}

    def storage(value: Any) -> int:
        return value.untyped_storage()._cdata if isinstance(value, torch.Tensor) else 0

    def run(*given: Any) -> Any:
        left, known, own = iter(given), {}, []
        for node in nodes:
            arguments = torch.fx.node.map_arg(node.args, known.__getitem__)
            if node.op == "placeholder":
                known[node] = next(left)
            else:
                known[node] = node.target(*arguments, **node.kwargs)
                own.append(node)
            for each in [each for each in own if last.get(each) is node]:
                own.remove(each)
                value = known.pop(each)
                if isinstance(value, torch.Tensor) and storage(value) not in set(map(storage, known.values())):
                    value.detach().numpy().fill(-1)
        return torch.fx.node.map_arg(output.args[0], known.__getitem__)

    return make_boxed_func(run)


@pytest.mark.parametrize(
    "function", [*FUNCTIONS.values(), lambda x: sr.attention(x, x, x), lambda x: torch.special.i1(x.values)]
)
def test_nothing_is_kept_that_a_graph_writes_to_again(function):
    from torch._dynamo.backends.common import aot_autograd

    made = sr.jit(function)

    def of(run: Callable[..., Any]) -> Callable[..., Any]:
        return lambda x: [each + 1 for each in packed(run(x * 2))]

    compiled = traced(of(made), aot_autograd(fw_compiler=wiping, bw_compiler=wiping))
    for lengths in BATCHES[:2]:
        check(compiled, of(function), rows(lengths), params=tuple(LAYER.parameters()))


def test_two_calls_that_draw_are_not_taken_for_one():
    made = sr.jit(FUNCTIONS["dropout"])
    for backend in BACKENDS[1:]:
        compiled = traced(lambda x: (made(x), made(x)), backend)
        check(compiled, lambda x: (FUNCTIONS["dropout"](x), FUNCTIONS["dropout"](x)), rows(BATCHES[0]))


@pytest.mark.parametrize("backend", EACH_BACKEND[1:])
def test_a_checkpoint_draws_the_same_numbers_again(backend):
    made = sr.jit(lambda values: sr.dropout(values, 0.5).torch() * values)
    compiled = traced(lambda x: checkpoint(lambda y: made(y) * 2, x, use_reentrant=False), backend)
    x = torch.ones(50, 6, requires_grad=True)
    result = compiled(x)
    result.sum().backward()
    assert torch.equal(result != 0, x.grad != 0)
    assert 0 < (result != 0).float().mean() < 1


def test_the_operators_keep_torch_s_rules():
    recorded: list[tuple[Any, ...]] = []
    functions: list[Any] = []

    def keep(graph: Any, inputs: Any) -> Callable[..., Any]:
        class Keeping(torch.fx.Interpreter):
            def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
                if str(target).startswith("serrate."):
                    recorded.append((target, args))
                return super().call_function(target, args, kwargs)

        return Keeping(graph).run

    for name in ("rows", "a library call", "dropout", "a slice", "a mask"):
        functions.append(sr.jit(FUNCTIONS[name]))  # Its operators find it as long as it is kept.
        traced(lambda x, made=functions[-1]: made(x), keep)(rows(BATCHES[0]))
    assert len(recorded) == 6
    rules = ("test_schema", "test_autograd_registration", "test_faketensor")
    for target, given in recorded:
        torch.library.opcheck(target, given, test_utils=rules)


# -------------------------------------------------------------------------------------------- what breaks a graph


def writes(x: Any) -> Any:
    x[0] = x[0] * 2
    return x * 1


IDS = torch.arange(12) % 3


def grouped(lengths: list[int]) -> sr.Tensor:
    return sr.group_by(rows(lengths).values, IDS[: sum(lengths)], 3)


REFUSED: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "it writes to its arguments": (writes, rows),
    "only a device knows the lengths": (lambda x: sr.exp(x), lambda lengths: sr.testing.device_born(rows(lengths))),
    "an argument is a result of group_by": (lambda x: x * 2, grouped),
    "a result of group_by goes in or out": (lambda x: sr.group_by(x.values, IDS[: x.values.shape[0]], 3), rows),
    "it returns a object": (lambda x: (x, THING), rows),
}
THING = object()


@pytest.mark.parametrize("reason", REFUSED)
def test_calls_that_no_operator_stands_for_run_between_graphs_and_say_why(reason):
    function, batch = REFUSED[reason]
    made = sr.jit(lambda x: function(x))
    with torch.no_grad():
        compiled = traced(lambda x: made(x), "eager", fullgraph=False)
        for lengths in BATCHES:
            close(compiled(batch(lengths)), function(batch(lengths)))
        with pytest.raises(torch._dynamo.exc.Unsupported, match=reason):
            traced(lambda x: made(x), "eager")(batch(BATCHES[0]))


def test_an_error_of_the_function_is_raised_as_it_is_and_named_where_no_graph_may_end():
    def function(x: Any) -> Any:
        raise KeyError("mine")

    made = sr.jit(function)
    with pytest.raises(KeyError, match="mine"):
        traced(lambda x: made(x * 2), "eager", fullgraph=False)(rows(BATCHES[0]))
    with pytest.raises(torch._dynamo.exc.Unsupported, match="KeyError: 'mine'"):
        traced(lambda x: made(x * 2), "eager")(rows(BATCHES[0]))


@pytest.mark.parametrize("backend", EACH_BACKEND)
def test_rows_that_do_not_fit_are_an_error_of_the_call(backend):
    made = sr.jit(lambda x, y: x + y)
    compiled = traced(lambda x, y: made(x, y) * 2, backend)
    check(compiled, lambda x, y: (x + y) * 2, rows([3, 0, 2]), rows([3, 0, 2]))
    with pytest.raises(sr.errors.RaggednessError, match="different raggedness"):
        compiled(rows([3, 2]), rows([2, 3]))
    check(compiled, lambda x, y: (x + y) * 2, rows([1, 4]), rows([1, 4]))
    one_graph()


def test_transforms_of_torch_func_see_the_function_itself():
    made = sr.jit(lambda x: torch.exp(x))
    compiled = traced(lambda x: torch.func.vmap(made)(x) * 2, "eager", fullgraph=False)
    x = torch.rand(3, 4)
    torch.testing.assert_close(compiled(x), torch.exp(x) * 2)


def test_other_lengths_where_graphs_may_end():
    made = sr.jit(FUNCTIONS["rows"])
    compiled = torch.compile(lambda x: made(x) * 2, backend="eager")
    for lengths in (*BATCHES, [1], [0], []):
        check(compiled, lambda x: FUNCTIONS["rows"](x) * 2, rows(lengths))


def test_second_derivatives_are_an_error():
    made = sr.jit(lambda x: sr.exp(x))
    x = rows(BATCHES[0])
    total = traced(lambda x: made(x) * 1, "eager")(x).values.square().sum()
    (gradient,) = torch.autograd.grad(total, x.values, create_graph=True)
    with pytest.raises(RuntimeError, match="second derivatives of a compiled function"):
        gradient.sum().backward()


def test_what_a_graph_writes_before_and_after_a_call():
    buffer = torch.zeros(6)
    made = sr.jit(lambda x: sr.exp(x) + buffer)

    def outer(x: Any) -> Any:
        buffer.add_(1)
        values = x.values * 2
        result = made(x._with(values)).values
        values.mul_(0)
        result.add_(1)
        return result + values

    for backend in BACKENDS:
        buffer.zero_()
        compiled = traced(outer, backend)
        for count, lengths in enumerate(BATCHES[:3], 1):
            x = rows(lengths).detach()
            torch.testing.assert_close(compiled(x), torch.exp(x.values * 2) + count + 1)
        assert buffer.tolist() == [3.0] * 6
        torch.compiler.reset()


@pytest.mark.parametrize("backend", EACH_BACKEND)
def test_the_new_raggedness_of_one_call_is_that_of_the_next(backend):
    cut, weights = sr.jit(FUNCTIONS["a slice"]), sr.jit(FUNCTIONS["rows"])
    compiled = traced(lambda x: weights(cut(x)), backend)
    for lengths in BATCHES:
        check(compiled, lambda x: FUNCTIONS["rows"](FUNCTIONS["a slice"](x)), rows(lengths))
    one_graph()
