"""torch.compile: the same results and gradients as without it for batches of any shape, and which graphs it makes.

Batches change in rows, entries and lengths from call to call, down to one row, one entry and none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.ops.calls import kind_of, tensors
from tests.ops.matrix import arguments, result_of
from tests.ops.samples import elements
from torch import nn

import serrate as sr
from serrate.errors import AxisError, RaggednessError
from serrate.ops.record import TABLE, Op

pytestmark = pytest.mark.filterwarnings(
    "ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning"  # which torch's compiler looks for itself
)

SHAPES = [[3, 1, 2], [2, 4], [5, 0, 1, 1], [1], [0, 0], []]
SIZES = [None, True]  # of torch.compile(dynamic=…)
WAYS = [("eager", None), pytest.param("aot_eager", True, marks=pytest.mark.slow)]  # backend and sizes
MORE = [("eager", True), ("aot_eager", None)]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def batch(lengths: list[int], width: int = 2, dtype: torch.dtype = torch.float64) -> sr.Tensor:
    x = sr.from_lengths(elements(sum(lengths), (width,), dtype, len(lengths)), lengths)
    return x.requires_grad_() if x.is_floating_point() else x


def graphs() -> tuple[int, int]:
    """How many graphs were made since the counters were cleared, and how often one was ended."""
    from torch._dynamo.utils import counters

    return counters["stats"]["unique_graphs"], sum(counters["graph_break"].values())


def clear() -> None:
    from torch._dynamo.utils import counters

    counters.clear()


def close(got: Any, want: Any) -> None:
    """The same values, shapes and types, nested alike."""
    assert type(got) is type(want)
    if isinstance(want, sr.Tensor):
        assert got.shape == want.shape
        assert got.order == want.order
    for one, other in zip(tensors(got), tensors(want), strict=True):
        torch.testing.assert_close(one, other, equal_nan=True, rtol=1e-9, atol=1e-12)
        assert one.requires_grad == other.requires_grad


def error_of(function: Callable[..., Any], *given: Any) -> str:
    """What a call that is refused says; "" if it is not."""
    try:
        function(*given)
    except (AxisError, IndexError, TypeError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def same_results_and_gradients(compiled: Callable[..., Any], function: Callable[..., Any], *given: Any) -> None:
    """One call of both, on the same operands, and the gradients of all that ask for one; or the same error."""
    want_error = error_of(function, *given)
    if want_error:
        assert error_of(compiled, *given) == want_error
        return
    leaves = [x for x in tensors(given) if x.requires_grad]
    found = []
    for each in (compiled, function):
        torch.manual_seed(0)
        made = each(*given)
        asked = [out for out in tensors(made) if out.requires_grad]
        total = sum((out * out.conj()).real.sum() for out in asked)
        back = torch.autograd.grad(total, leaves, allow_unused=True) if asked and leaves else []
        found.append((made, back))
    (got, got_back), (want, want_back) = found
    close(got, want)
    for one, other in zip(got_back, want_back, strict=True):
        assert (one is None) == (other is None)
        if other is not None:
            torch.testing.assert_close(one, other, equal_nan=True, rtol=1e-8, atol=1e-10)


# ------------------------------------------------------------------------------------------------------- programs


def in_place(x: sr.Tensor) -> sr.Tensor:
    y = x * 2
    y[:, :1] = 7.0
    y += 1
    return y * y


PROGRAMS: dict[str, Callable[[sr.Tensor], Any]] = {
    "a slice": lambda x: x[:, :2] * 2,
    "rows reversed": lambda x: x[:, ::-1] + 1,
    "the last entries": lambda x: sr.mean((x + 1)[:, -2:], axis=1),
    "the greatest two": lambda x: sr.topk(x * 2, 2, axis=1),
    "sorted": lambda x: sr.sort(x * 2, axis=1) * 2,
    "padded to a size": lambda x: (x * 2).to_dense(max_lengths=3) * 2,
    "padded": lambda x: (x * 2).to_dense() * 2,
    "padded and back": lambda x: sr.from_dense(x.to_dense(max_lengths=6), like=x),
    "softmax": lambda x: sr.softmax(x * 2, axis=1) * 2,
    "torch's softmax": lambda x: torch.softmax(x * 2, 1) * 2,
    "less the mean": lambda x: x - sr.mean(x, axis=1, keepdims=True),
    "sums on three faces": lambda x: (sr.sum(x, axis=1), torch.sum(x, -1), x.sum(1)),
    "products of rows": lambda x: (x * 2) @ x.mT,
    "a product with weights": lambda x: (x * 2) @ torch.ones(2, 3, dtype=torch.float64),
    "attention": lambda x: sr.attention(x * 2, x, x + 1, causal=True) * 2,
    "a mask": lambda x: (x * 2)[x > 0.5] * 2,
    "in place": in_place,
    "joined": lambda x: sr.concat([x * 2, x], axis=1) * 2,
    "scans": lambda x: sr.cumulative_sum(x * 2, axis=1) * 2,
    "groups": lambda x: sr.group_by(x * 2, sr.positions(x, 1) % 2, 2) * 2,
    "numbers from the left": lambda x: 1 - 2**x / 3,
    "shape, size and length": lambda x: x * len(x) + x.shape[-1] + x.ndim + x.numel(),
    "lengths": lambda x: x * x.lengths[0].sum() + x.offsets[0][-1],
    "made inside": lambda x: sr.from_lengths(x.values * 2, x.lengths[0]) * 2,
    "rows one by one": lambda x: [row * 2 for row in x],
    "a branch on data": lambda x: x * 2 if bool((x.values > -9).all()) else x,
    "a tree": lambda x: {"a": x * 2, "b": (x.mT, [x * 3])},
}


def unnested(made: Any) -> Any:
    return list(made.values()) if isinstance(made, dict) else made


def check_program(name: str, backend: str, dynamic: bool | None) -> None:
    def function(x: sr.Tensor) -> Any:
        return unnested(PROGRAMS[name](x))

    compiled = torch.compile(function, backend=backend, dynamic=dynamic)
    for lengths in [*SHAPES, [4, 4, 4], [3, 1, 2]]:
        same_results_and_gradients(compiled, function, batch(lengths))
    same_results_and_gradients(compiled, function, sr.testing.device_born(batch([3, 1])))
    same_results_and_gradients(compiled, function, batch([2, 2, 2]).mT)


@pytest.mark.parametrize(("backend", "dynamic"), WAYS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_on_batches_of_any_shape(name, backend, dynamic):
    check_program(name, backend, dynamic)


@pytest.mark.slow
@pytest.mark.parametrize(("backend", "dynamic"), MORE)
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_with_other_backends_and_sizes(name, backend, dynamic):
    check_program(name, backend, dynamic)


def test_operands_that_share_structure_and_others():
    """A graph for operands of one structure is not taken for others: equal lengths meet, different ones raise."""
    x = batch([3, 1, 2])
    pairs = [
        (x, x._with(batch([3, 1, 2]).values * 0 + 3).detach()),
        (x, batch([3, 1, 2])),
        (x, torch.ones(2, dtype=torch.float64)),
        (x, torch.ones(3, 1, 2, dtype=torch.float64)),
        (x.mT, x.mT),
        (x.mT, batch([3, 1, 2]).mT),
        (x, x.detach()),
        (sr.asarray(torch.ones(6, 2)), sr.asarray(torch.ones(6, 2))),
        (batch([2, 2, 2]), batch([2, 2, 2])),
        (sr.testing.device_born(x), x),
        (x, torch.tensor(2.0, dtype=torch.float64)),
        (x, 3),
    ]
    for dynamic in SIZES:
        torch.compiler.reset()

        def function(a: Any, b: Any) -> Any:
            return sr.add(sr.multiply(a, 2), b)

        compiled = torch.compile(function, backend="aot_eager", dynamic=dynamic)
        for i in (0, 1, 0, 8, 2, 3, 0, 4, 5, 6, 7, 1, 9, 10, 11, 0):
            same_results_and_gradients(compiled, function, *pairs[i])
        with pytest.raises(RaggednessError, match=r"Ragged\(\[3, 1, 2\]\) and Ragged\(\[1, 3, 2\]\)"):
            compiled(x, batch([1, 3, 2]))
        same_results_and_gradients(compiled, function, *pairs[0])


# --------------------------------------------------------------------------------------------------------- models


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: sr.Tensor) -> sr.Tensor:
        h = self.before(x)
        x = x + sr.attention(self.query(h), self.key(h), self.value(h), causal=True)
        return x + self.down(F.gelu(self.up(self.after(x))))


class Classifier(nn.Module):
    """A transformer as one would write it: embeddings, blocks of attention, a mean over the last entries, a head."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(20, width), nn.Embedding(16, width)
        self.blocks = nn.ModuleList([Block(width), Block(width)])
        self.head = nn.Linear(width, 3)

    def forward(self, ids: sr.Tensor) -> torch.Tensor:
        x = self.words(ids) + self.places(sr.positions(ids, 1))
        for block in self.blocks:
            x = block(x)
        return self.head(sr.mean(x[:, -2:], axis=1).torch())


def sentences(lengths: list[int]) -> sr.Tensor:
    generator = torch.Generator().manual_seed(sum(lengths))
    return sr.from_lengths(torch.randint(0, 20, (sum(lengths),), generator=generator), lengths)


def encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(4, 2, 8, 0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[list[int]], sr.Tensor]]] = {
    "classifier": (Classifier, sentences),
    "torch's encoder": (encoder, lambda lengths: batch(lengths, 4)),
}


def eval_then_train(name: str, backend: str, dynamic: bool | None) -> None:
    make, batches = MODELS[name]
    torch.manual_seed(0)
    model = make().double()
    compiled = torch.compile(model, backend=backend, dynamic=dynamic)
    params = list(model.parameters())

    def total(out: Any) -> torch.Tensor:
        return tensors(out)[0].square().sum()

    for training in (False, True, False, True):
        model.train(training)
        for lengths in ([3, 1, 2], [2, 4], [5, 1, 1, 1], [1], [7, 2, 2]):
            x = batches(lengths)
            if not training:
                with torch.no_grad():
                    torch.testing.assert_close(total(compiled(x)), total(model(x)))
                continue
            got, want = (torch.autograd.grad(total(each(x)), params) for each in (compiled, model))
            for one, other in zip(got, want, strict=True):
                torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize(("backend", "dynamic"), WAYS)
@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_evaluated_and_then_trained(name, backend, dynamic):
    eval_then_train(name, backend, dynamic)


@pytest.mark.slow
@pytest.mark.parametrize(("backend", "dynamic"), MORE)
@pytest.mark.parametrize("name", MODELS)
def test_a_model_with_other_backends_and_sizes(name, backend, dynamic):
    eval_then_train(name, backend, dynamic)


# --------------------------------------------------------------------------------------------------------- graphs


def rows_alone() -> nn.Module:
    return nn.Sequential(nn.Embedding(20, 8), nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Softmax(-1)).double()


def test_what_takes_packed_values_alone_is_one_graph_for_every_batch():
    clear()
    model = rows_alone()
    compiled = torch.compile(model, backend="eager", fullgraph=True, dynamic=True)
    for lengths in ([3, 1, 2], [2, 4], [5, 0, 1, 1], [7], [2, 2, 2, 2, 9]):
        close(compiled(sentences(lengths)), model(sentences(lengths)))
    assert graphs() == (1, 0)


def test_without_dynamic_sizes_a_second_batch_makes_them_so():
    clear()
    model = rows_alone()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    for lengths in ([3, 1, 2], [2, 5], [5, 0, 1, 3], [7, 3], [2, 2, 2, 2, 9]):
        close(compiled(sentences(lengths)), model(sentences(lengths)))
    assert graphs() == (2, 0)


def test_an_operation_on_rows_ends_one_graph_and_is_never_compiled_again():
    clear()
    block = Block(4).double()
    compiled = torch.compile(block, backend="eager", dynamic=True)
    for lengths in ([3, 1, 2], [2, 4], [5, 1, 1], [7], [2, 2, 2, 2, 9]):
        close(compiled(batch(lengths, 4)), block(batch(lengths, 4)))
    assert graphs() == (2, 1)


def test_two_operands_of_one_structure_need_no_graph_for_each_batch():
    clear()
    compiled = torch.compile(lambda x, y: sr.exp(x) * y + x, backend="eager", fullgraph=True, dynamic=True)
    for lengths in ([3, 1, 2], [2, 4], [5, 0, 1, 1], [7], [2, 2, 2, 2, 9]):
        x = batch(lengths)
        compiled(x, x * 2)
    assert graphs() == (1, 0)


def test_importing_serrate_does_not_import_the_compiler():
    import subprocess
    import sys

    program = "import sys, serrate; assert 'torch._dynamo' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


# ---------------------------------------------------------------------------------------------------- every operation

UNDEFINED = ("empty", "empty_like")


def check_operation(op: Op, backend: str, dynamic: bool | None) -> None:
    """Each sample on batches of several shapes, as one compiled function."""
    dtype = torch.complex128 if op.name == "imag" else kind_of(op)
    for text in op.samples:
        torch.compiler.reset()

        def function(*args: Any, op: Op = op, **options: Any) -> Any:
            return result_of(op, args, options)

        compiled = torch.compile(function, backend=backend, dynamic=dynamic)
        for lengths in SHAPES:
            found: list[tuple[Any, Any]] = []
            for each in (function, compiled):
                x = batch(lengths, dtype=dtype)
                torch.manual_seed(0)
                try:
                    args, options = arguments(text, x)
                    made = each(*args, **options)
                except (ValueError, IndexError) as error:  # some samples need rows
                    found.append((type(error), None))
                    continue
                asked = [out for out in tensors(made) if out.requires_grad]
                if asked:
                    sum((out * out.conj()).real.sum() for out in asked).backward()
                found.append((made, x.values.grad))
            (want, want_back), (got, got_back) = found
            if isinstance(want, type):
                assert got is want, (op.name, text, lengths)
                continue
            close(got, want)
            assert (got_back is None) == (want_back is None)
            if want_back is not None:
                torch.testing.assert_close(got_back, want_back, equal_nan=True)


@pytest.mark.slow
@pytest.mark.parametrize("dynamic", SIZES)
@pytest.mark.parametrize("name", [name for name in TABLE if name not in UNDEFINED])
def test_every_operation(name, dynamic):
    check_operation(TABLE[name], "eager", dynamic)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in TABLE if name not in UNDEFINED])
def test_every_operation_differentiated_ahead_of_time(name):
    check_operation(TABLE[name], "aot_eager", True)


# ------------------------------------------------------------------------------------------------- torch's compiler


@pytest.mark.slow
@pytest.mark.parametrize("dynamic", SIZES)
@pytest.mark.parametrize("name", MODELS)
def test_models_by_torch_s_compiler(name, dynamic):
    eval_then_train(name, "inductor", dynamic)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["a slice", "rows reversed", "the greatest two", "padded to a size", "attention", "in place"]
)
def test_programs_by_torch_s_compiler(name):
    function = PROGRAMS[name]
    compiled = torch.compile(function, dynamic=True)
    for lengths in SHAPES:
        same_results_and_gradients(compiled, function, batch(lengths))
