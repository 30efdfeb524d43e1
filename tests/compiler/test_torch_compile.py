"""torch.compile around compiled functions: each call is one operator in the graph, there and on the way back.

Expected results are those of the same function without any compiler.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters
from torch.utils.checkpoint import checkpoint

import serrate as sr
from serrate.tensor.structure import Structure

BATCHES = [[3, 0, 2], [1, 4], [2, 2, 2, 1], [7, 0]]
BACKENDS = ["eager", "aot_eager", "inductor"]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch.compiler.reset()
    counters.clear()
    yield
    torch.compiler.reset()


def rows(lengths: list[int], width: int = 6, dtype: torch.dtype = torch.float32) -> sr.Tensor:
    generator = torch.Generator().manual_seed(sum(lengths))
    values = torch.randn(sum(lengths), width, dtype=dtype, generator=generator)
    return sr.from_lengths(values.requires_grad_(), lengths)


def packed(given: Any) -> list[torch.Tensor]:
    """The torch tensors in arguments or results."""
    if isinstance(given, (sr.Tensor, torch.Tensor)):
        return [given.values if isinstance(given, sr.Tensor) else given]
    parts = given.values() if isinstance(given, dict) else given if isinstance(given, (tuple, list)) else ()
    return [each for part in parts for each in packed(part)]


def run(function: Callable[..., Any], given: tuple[Any, ...], params: tuple[torch.Tensor, ...] = ()) -> tuple[Any, Any]:
    """What a function gives, and the gradients of what it is given and of the parameters."""
    torch.manual_seed(0)
    result = function(*given)
    leaves = [each for each in (*packed(given), *params) if each.requires_grad]
    total = [each.square().sum() for each in packed(result) if each.requires_grad]
    return result, torch.autograd.grad(sum(total), leaves, allow_unused=True) if total and leaves else ()


def check(
    compiled: Callable[..., Any], function: Callable[..., Any], *given: Any, params: tuple[torch.Tensor, ...] = ()
) -> None:
    """Both give the same, with the same gradients."""
    (got, got_back), (want, want_back) = run(compiled, given, params), run(function, given, params)
    close(got, want)
    for one, other in zip(got_back, want_back, strict=True):
        assert (one is None) == (other is None)
        if other is not None:
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def close(got: Any, want: Any) -> None:
    assert type(got) is type(want)
    if isinstance(want, (sr.Tensor, torch.Tensor)):
        assert got.shape == want.shape
        (one,), (other,) = packed(got), packed(want)
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
        assert one.requires_grad == other.requires_grad
        if isinstance(want, sr.Tensor):
            assert got.tolist() == (got + 0).tolist()  # what comes out can be computed with
    elif isinstance(want, (tuple, list)):
        for one, other in zip(got, want, strict=True):
            close(one, other)
    elif isinstance(want, dict):
        assert list(got) == list(want)
        for name in want:
            close(got[name], want[name])
    else:
        assert got == want


def traced(function: Callable[..., Any], backend: Any, *, fullgraph: bool = True) -> Callable[..., Any]:
    return torch.compile(function, backend=backend, fullgraph=fullgraph, dynamic=True)


def one_graph() -> None:
    """All calls since the start of the test took one graph."""
    assert counters["stats"]["unique_graphs"] == 1
    assert not counters["graph_break"]


# ------------------------------------------------------------------------------------------------------- functions

torch.manual_seed(0)
LAYER = nn.Linear(6, 6)


class Pair(NamedTuple):
    one: Any
    other: Any


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "rows": lambda x: sr.softmax(sr.gelu(x), axis=1),
    "dense and several results": lambda x: (sr.sum(x * x, axis=1), sr.exp(x), sr.sum(x, axis=1).torch()),
    "arguments as results": lambda x: [x, x * 2, x],
    "a dict, numbers and None": lambda x: {"a": (x + 1, None, 3), "b": x.values.mean(0)},
    "a library call": lambda x: sr.gelu(LAYER(x)),
    "a captured parameter alone": lambda x: (LAYER.weight * 2, x * LAYER.bias),
    "dropout": lambda x: sr.dropout(x, 0.5) * x,
    "a slice": lambda x: x[:, :2] * 2,
    "a mask": lambda x: (x * 2)[sr.sum(x, axis=2) > 0],
    "scores": lambda x: x @ x.mT,
    "padded": lambda x: x.to_dense(),
    "without gradients": lambda x: sr.argmax(x, axis=1),
    "cut gradients": lambda x: (x.detach() * 2, x * 3),
}
SOME = ["rows", "dense and several results", "a library call", "dropout", "a slice"]


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


@pytest.mark.parametrize("backend", BACKENDS[:2])
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


@pytest.mark.parametrize("backend", BACKENDS)
def test_float64(backend):
    check_function("rows", backend, torch.float64)


# ------------------------------------------------------------------------------------------------------- arguments


@pytest.mark.parametrize("backend", BACKENDS)
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


@pytest.mark.parametrize("backend", BACKENDS)
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


# ---------------------------------------------------------------------------------------------------------- graphs


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


@pytest.mark.parametrize("backend", BACKENDS[1:])
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


REFUSED: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "it writes to its arguments": (writes, rows),
    "only a device knows the lengths": (lambda x: sr.exp(x), lambda lengths: sr.testing.device_born(rows(lengths))),
    "it returns a object": (lambda x: (x, THING), rows),
}
THING = object()


@pytest.mark.parametrize("reason", REFUSED)
def test_calls_that_no_operator_stands_for_run_between_graphs_and_say_why(reason):
    function, batch = REFUSED[reason]
    made = sr.jit(lambda x: function(x))
    with torch.no_grad():
        compiled = traced(lambda x: made(x * 1), "eager", fullgraph=False)
        for lengths in BATCHES:
            close(compiled(batch(lengths)), function(batch(lengths) * 1))
        with pytest.raises(torch._dynamo.exc.Unsupported, match=reason):
            traced(lambda x: made(x * 1), "eager")(batch(BATCHES[0]))


def test_an_error_of_the_function_is_raised_as_it_is_and_named_where_no_graph_may_end():
    def function(x: Any) -> Any:
        raise KeyError("mine")

    made = sr.jit(function)
    with pytest.raises(KeyError, match="mine"):
        traced(lambda x: made(x * 2), "eager", fullgraph=False)(rows(BATCHES[0]))
    with pytest.raises(torch._dynamo.exc.Unsupported, match="KeyError: 'mine'"):
        traced(lambda x: made(x * 2), "eager")(rows(BATCHES[0]))


@pytest.mark.parametrize("backend", BACKENDS)
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
