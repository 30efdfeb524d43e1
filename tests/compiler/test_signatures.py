"""Signatures: what makes another program, what does not, and the guards of a program that is there."""

from __future__ import annotations

import dataclasses
import math
import random
from typing import Any

import numpy as np
import pytest
import torch
from tests.compiler.harness import agree, compiled, same

import serrate as sr

L = [3, 0, 2]


def rows(lengths: Any = None, *features: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> sr.Tensor:
    lengths = L if lengths is None else lengths
    total = sum(lengths[-1]) if lengths and isinstance(lengths[0], list) else sum(lengths)
    generator = torch.Generator().manual_seed(seed)
    values = torch.rand(total, *features, generator=generator, dtype=torch.float64) * 8
    return sr.from_lengths(values.to(dtype), lengths)


def traces(function: Any, *calls: tuple[Any, ...]) -> int:
    """How often a compiled function was traced by these calls, each of which it must get right."""
    made = compiled(function)
    for given in calls:
        same(made(*given), function(*given))
    assert made.stats.eager_calls == 0
    return made.stats.traces


def block(x: Any) -> Any:
    return sr.softmax(x * 0.5, axis=1) + 1


# ------------------------------------------------------------------------------------------- never a part of it


def test_a_thousand_calls_of_fresh_lengths_and_batch_sizes_are_one_trace_and_no_compiler_after_the_first():
    made = compiled(lambda x, w: sr.sum(sr.gelu(x + w), axis=1))
    w, chosen = torch.rand(4), random.Random(0)
    made(rows(L, 4), w)
    after_first = made.stats.compiles
    for call in range(1000):
        lengths = [chosen.choice([0, 1, 2, chosen.randint(0, 30)]) for _ in range(chosen.randint(0, 12))]
        x = rows(lengths, 4, seed=call)
        got = made(x, w)
        if call % 50 == 0:
            same(got, sr.sum(sr.gelu(x + w), axis=1))
    assert made.stats.traces == 1
    assert made.stats.compiles == after_first
    assert made.stats.calls == 1001
    assert made.stats.eager_calls == 0


@pytest.mark.parametrize("lengths", [[], [0], [0, 0], [1], [5], [1, 1, 1], [2, 2], [0, 700, 0]])
def test_lengths_and_batch_size_are_no_part_of_a_signature(lengths):
    assert traces(block, (rows(),), (rows(lengths),)) == 1
    assert traces(block, (rows(lengths),), (rows(),)) == 1


def test_lengths_of_inner_levels_are_no_part_of_a_signature():
    def means(x: Any) -> Any:
        return sr.mean(sr.sum(x, axis=2), axis=1)

    assert (
        traces(means, (rows([[2, 1], [3, 0, 2]]),), (rows([[0], []]),), (rows([[1, 1, 4], [1, 0, 0, 2, 9, 1]]),)) == 1
    )


def test_the_first_axis_of_a_dense_tensor_is_no_part_of_a_signature():
    def shifted(x: Any, g: Any) -> Any:
        return x + sr.expand_dims(g, axis=1)

    calls = [(rows([2] * count, 4), torch.rand(count, 4)) for count in (3, 5, 0, 2, 9)]
    assert traces(shifted, *calls) == 1


def test_a_batch_of_one_in_a_dense_operand_is_a_second_signature():
    def shifted(x: Any, g: Any) -> Any:
        return x + sr.expand_dims(g, axis=1)

    first, one = (rows([2, 3, 1], 4), torch.rand(3, 4)), (rows([2], 4), torch.rand(1, 4))
    stretched = (rows([2, 3, 1], 4), torch.rand(1, 4))
    assert traces(shifted, first, one, first, one) == 2
    assert traces(shifted, first, stretched) == 2
    assert traces(shifted, stretched, first, one) == 2


def test_a_batch_of_one_in_a_ragged_operand_is_no_second_signature():
    assert traces(block, (rows([2, 1]),), (rows([4]),), (rows([0]),)) == 1


# ------------------------------------------------------------------------------------------------- a part of it


@pytest.mark.parametrize(
    "other",
    [
        rows(dtype=torch.float64),
        rows(dtype=torch.bfloat16),
        rows(L, 4),
        rows([[2, 0, 1], [1, 2, 0]]),
        sr.from_offsets(torch.rand(5), torch.tensor([0, 3, 3, 5], dtype=torch.int32)),
        sr.testing.device_born(rows()),
        sr.testing.device_born(rows(), spare=3),
    ],
    ids=["dtype", "half", "rank", "levels", "dtype of offsets", "device-born", "spare"],
)
def test_dtype_rank_levels_offsets_and_birth_are_parts_of_a_signature(other):
    made = compiled(block)
    for x in (rows(), other, rows(), other):
        same(made(x), block(x))
    assert made.stats.traces == 2


def test_the_order_of_axes_is_a_part_of_a_signature():
    def doubled(x: Any) -> Any:
        return sr.sum(x * 2, axis=-1)

    x = rows(L, 3)
    assert traces(doubled, (x,), (x.mT,), (x,), (x.mT,)) == 2


def test_values_that_are_not_contiguous_are_right():
    x = sr.from_lengths(torch.rand(4, 5).T, L)
    assert not x.values.is_contiguous()
    assert traces(block, (rows(L, 4),), (x,), (rows(L, 4),)) <= 2
    y = sr.from_lengths(torch.rand(5, 8)[:, ::2], L)
    assert traces(block, (rows(L, 4),), (y,)) <= 2
    z = sr.from_lengths(torch.rand(1, 4).expand(5, 4), L)
    assert traces(block, (z,), (rows(L, 4),)) <= 2


def test_axes_of_size_one_are_a_part_of_a_signature():
    def added(x: Any, y: Any) -> Any:
        return x + y

    x, y = rows(L, 4), rows(L, 1)
    assert traces(added, (x, x), (x, x._with(y.values)), (x, x)) == 2


def test_whether_partitions_are_shared_is_a_part_of_a_signature():
    def added(x: Any, y: Any) -> Any:
        return x + y

    x = rows()
    made = compiled(added)
    same(made(x, x._with(x.values * 2)), added(x, x * 2))
    other = rows()
    same(made(x, other), x + other)
    assert made.stats.traces == 2
    same(made(x, rows()), x * 2)
    assert made.stats.traces == 2


def test_grad_mode_and_which_inputs_need_gradients_are_parts_of_a_signature():
    made = compiled(lambda x, y: x * y)
    x = rows()
    y = x._with(x.values.clone())
    x_needs, y_needs = (x._with(x.values.clone().requires_grad_()) for _ in range(2))
    assert not made(x, y).requires_grad
    assert made(x_needs, y).requires_grad
    assert made(x, y_needs).requires_grad
    with torch.no_grad():
        assert not made(x_needs, y).requires_grad
    with torch.inference_mode():
        assert not made(x_needs, y).requires_grad
    same(made(x, y), x * y)


def test_whether_a_dense_argument_needs_gradients_is_a_part_of_a_signature():
    made, x, plain = compiled(lambda x, w: x * w), rows(L, 4), torch.rand(4)
    for _ in range(2):
        leaf = plain.clone().requires_grad_()
        assert not made(x, plain).requires_grad
        got = made(x, leaf)
        assert got.requires_grad
        sr.sum(got).values.backward()
        torch.testing.assert_close(leaf.grad, x.values.sum(0))
    assert made.stats.traces == 2


def test_the_default_dtype_is_a_part_of_a_signature():
    def halves(x: Any) -> Any:
        return x / 2

    made, x = compiled(halves), rows(dtype=torch.int64)
    assert made(x).dtype == torch.float32
    torch.set_default_dtype(torch.float64)
    try:
        same(made(x), halves(x))
        assert made(x).dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    assert made(x).dtype == torch.float32


def test_keyword_constants_are_parts_of_a_signature():
    def reduced(x: Any, *, axis: int, how: str = "sum", flags: Any = (True, None)) -> Any:
        made = sr.sum(x, axis=axis) if how == "sum" else sr.max(x, axis=axis)
        return made + 1 if flags[0] else made

    made, x = compiled(reduced), rows([2, 1, 4], 3)
    for named in (
        {"axis": 1},
        {"axis": 2},
        {"axis": 1, "how": "max"},
        {"axis": 1, "flags": (False, None)},
        {"axis": 1},
    ):
        same(made(x, **named), reduced(x, **named))
    assert made.stats.eager_calls == 0


def test_a_keyword_is_told_from_another_of_the_same_value():
    def chosen(x: Any, *, a: Any = None, b: Any = None) -> Any:
        return x + 1 if a is not None else x - 1 if b is not None else x

    made, x = compiled(chosen), rows()
    for named in ({"a": True}, {"b": True}, {}, {"a": 1}, {"b": 1.0}, {"b": None, "a": None}):
        same(made(x, **named), chosen(x, **named))


def test_true_one_and_one_point_zero_are_different_constants():
    def times(x: Any, factor: Any) -> Any:
        return x * factor

    made, x = compiled(times), rows(dtype=torch.int64)
    for factor in (True, 1, 1.0, True, 2, 2.0, 0.0, -0.0, float("nan"), 1 + 0j):
        same(made(x, factor), times(x, factor))


# --------------------------------------------------------------------------------- numbers and sizes that change


def test_a_number_that_changes_becomes_an_input_after_one_retrace():
    def scaled(x: Any, factor: float) -> Any:
        return x * factor + 1

    made, x = compiled(scaled), rows()
    for call in range(50):
        same(made(x, call * 0.37), scaled(x, call * 0.37))
    assert made.stats.traces == 2
    assert made.stats.compiles + made.stats.disk_hits <= 2


@pytest.mark.parametrize("dtype", [torch.int32, torch.float16, torch.float32, torch.float64, torch.uint8])
def test_numbers_that_are_inputs_promote_as_python_numbers_do(dtype):
    def scaled(x: Any, whole: int, part: float) -> Any:
        return x * whole, x + part, (x * whole) * part, whole + x, part / (x + 1), whole * part * x, x**whole

    made, x = compiled(scaled), rows(dtype=dtype)
    for whole, part in ((2, 0.5), (3, 1.5), (1, -2.25), (0, 3.0)):
        same(made(x, whole, part), scaled(x, whole, part))
    assert made.stats.traces <= 3


def test_whole_numbers_that_are_axes_sizes_or_bounds_stay_parts_of_a_signature():
    def cut(x: Any, axis: int, start: int) -> Any:
        return sr.sum(x, axis=axis), x[:, start:]

    made, x = compiled(cut), rows([4, 0, 3], 3)
    for axis, start in ((1, 0), (2, 1), (1, 2), (2, -1), (-1, 1)):
        same(made(x, axis, start), cut(x, axis, start))
    assert made.stats.eager_calls == 0


def test_a_branch_on_a_number_takes_the_branch_of_the_call():
    def chosen(x: Any, number: int) -> Any:
        return x + 1 if number > 2 else x - 1

    made, x = compiled(chosen), rows()
    for number in (1, 2, 3, 4, 0, 7):
        same(made(x, number), chosen(x, number))


def test_a_static_size_that_changes_retraces_once_and_is_dynamic_from_then_on():
    def normed(x: Any) -> Any:
        return sr.layer_norm(sr.gelu(x), axis=-1)

    made = compiled(normed)
    for size in (4, 6, 9, 16, 33):
        x = rows(L, size)
        same(made(x), normed(x))
    assert made.stats.traces == 2


def test_static_names_arguments_to_specialise_on():
    def powers(x: Any, count: int, factor: float = 1.0) -> Any:
        for _ in range(count):
            x = x * factor
        return x

    made, x = sr.jit(powers, static=["count"]), rows()
    for count, factor in ((2, 0.5), (3, 0.5), (2, 0.25), (2, 0.125), (0, 1.0)):
        same(made(x, count, factor), powers(x, count, factor))
        same(made(x, count=count, factor=factor), powers(x, count, factor))


def test_static_refuses_names_that_are_no_parameters():
    with pytest.raises(TypeError, match="depth"):
        sr.jit(lambda x: x, static=["depth"])
    with pytest.raises(TypeError, match="list of names"):
        sr.jit(lambda x: x, static="x")


def test_jit_is_a_decorator_with_and_without_options():
    @sr.jit
    def one(x: Any) -> Any:
        """Adds one."""
        return x + 1

    @sr.jit(static=["n"])
    def more(x: Any, n: int) -> Any:
        return x + n

    assert one.__name__ == "one"
    assert one.__doc__ == "Adds one."
    assert one(sr.ragged([[1], []])).tolist() == [[2], []]
    assert more(sr.ragged([[1], []]), 2).tolist() == [[3], []]
    with pytest.raises(TypeError, match="function"):
        sr.jit(3)


# -------------------------------------------------------------------------------------------------------- guards


def test_different_raggedness_raises_the_error_that_eager_code_raises():
    def added(x: Any, y: Any) -> Any:
        return x + y

    made = compiled(added)
    x = rows([2, 3])
    same(made(x, rows([2, 3])), x + rows([2, 3]))
    with pytest.raises(sr.errors.RaggednessError) as eager:
        added(x, rows([3, 2]))
    with pytest.raises(sr.errors.RaggednessError) as found:
        made(x, rows([3, 2]))
    assert str(found.value) == str(eager.value)
    with pytest.raises(ValueError, match="axis 0 has size 2 and 3"):
        made(x, rows([2, 3, 1]))
    same(made(x, rows([2, 3], seed=4)), x + rows([2, 3], seed=4))
    with pytest.raises(sr.errors.RaggednessError):
        compiled(added)(x, rows([3, 2]))


def test_a_dense_first_axis_is_checked_against_the_batch():
    def shifted(x: Any, g: Any) -> Any:
        return x + sr.expand_dims(g, axis=1)

    made = compiled(shifted)
    same(made(rows([2, 3], 4), torch.ones(2, 4)), rows([2, 3], 4) + 1)
    for wrong in (3, 4, 0):
        with pytest.raises(ValueError, match=r"broadcast|size|axis") as eager:
            shifted(rows([2, 3], 4), torch.ones(wrong, 4))
        with pytest.raises(type(eager.value)) as found:
            made(rows([2, 3], 4), torch.ones(wrong, 4))
        assert str(found.value) == str(eager.value)
    same(made(rows([2, 3, 1], 4), torch.ones(3, 4)), rows([2, 3, 1], 4) + 1)


def test_a_guard_that_was_found_equal_is_remembered():
    made = compiled(lambda x, y: x + y)
    x, y = rows([2, 3]), rows([2, 3])
    made(x, y)
    assert x.partitions[0].same_as(y.partitions[0])
    assert made(x, y).partitions[0] is x.partitions[0]


def test_results_have_the_partitions_of_the_arguments():
    made = compiled(lambda x: {"double": x * 2, "sum": sr.sum(x, axis=2), "pair": [x + 1, (x, 3, "text", None)]})
    x = rows(L, 3)
    got = made(x)
    assert got["double"].partitions[0] is x.partitions[0]
    assert got["sum"].partitions[0] is x.partitions[0]
    assert got["pair"][1][0] is x
    assert got["pair"][1][1:] == (3, "text", None)


def test_trees_of_arguments_keep_their_form():
    from collections import namedtuple

    Pair = namedtuple("Pair", ["first", "second"])

    def swapped(given: Any) -> Any:
        return {"a": Pair(given["y"][1] + 1, given["x"] * 2), "b": [given["y"][0]]}

    x, y = rows(), torch.rand(3)
    given = {"x": x, "y": (y, x)}
    got = agree(swapped, given)(given)
    assert isinstance(got["a"], Pair)
    assert got["b"][0] is y


def test_sizes_and_lengths_can_be_computed_with():
    def centred(x: Any) -> Any:
        count = sr.astype(x.lengths[0], x.dtype) if isinstance(x.lengths[0], sr.Tensor) else x.lengths[0].to(x.dtype)
        return sr.sum(x, axis=1) / (count + 1), x.shape[0] * 2 + 1, sr.zeros((x.shape[0], 3))

    made = compiled(centred)
    for lengths in (L, [4, 4, 1, 0, 0], []):
        same(made(rows(lengths)), centred(rows(lengths)))
    assert made.stats.traces == 1


def test_bad_arguments_raise_what_the_function_raises():
    made = compiled(lambda x, axis=1: sr.sum(x, axis=axis))
    with pytest.raises(TypeError):
        made()
    with pytest.raises(TypeError):
        made(rows(), bogus=1)
    with pytest.raises((ValueError, IndexError), match="axis 5"):
        made(rows(), axis=5)
    assert made(rows()).shape == (3,)


def test_a_text_is_told_from_the_name_of_an_argument() -> None:
    def chosen(*modes: str, x: sr.Tensor | None = None, mode: str = "") -> sr.Tensor:
        assert x is not None
        return x * len(modes) + len(mode)

    compiled, x = sr.jit(chosen), sr.ragged([[1.0, 2.0], [3.0]])
    assert compiled("mode", "four", x=x).tolist() == [[2.0, 4.0], [6.0]]
    assert compiled(mode="four", x=x).tolist() == [[4.0, 4.0], [4.0]]


def test_a_parameter_is_told_from_a_tensor_of_the_same_sizes() -> None:
    shifted = sr.jit(lambda table, x: x + table.sum(0))
    x = sr.from_lengths(torch.zeros(3, 2), [1, 2])
    for table in (torch.nn.Parameter(torch.ones(8, 2), requires_grad=False), torch.ones(9, 2), torch.ones(7, 2)):
        assert shifted(x=x, table=table).values.tolist() == [[len(table)] * 2] * 3
    assert (shifted.stats.traces, shifted.stats.eager_calls) == (2, 0)


def test_a_size_of_one_means_something_of_its_own_after_others_changed():
    y = torch.rand(2, 7)
    assert traces(lambda x: x * 2, *((torch.rand(2, size),) for size in (3, 5, 1, 7, 0, 1))) == 4
    assert traces(lambda x: x + y, *((torch.rand(2, size),) for size in (7, 1, 7, 1))) == 2
    assert traces(lambda x: sr.softmax(x, axis=1) * 2, *((rows(L, size),) for size in (3, 5, 1, 7, 0, 1))) == 4


def test_another_rank_is_another_signature_after_sizes_became_inputs():
    def doubled(x: Any) -> Any:
        return x * 2

    shapes = [(2, 3, 4), (2, 3, 5), (2, 3), (2, 3, 6), (2,), (2, 4)]
    traces(doubled, *((torch.rand(shape),) for shape in shapes))
    traces(doubled, *((sr.asarray(torch.rand(shape)),) for shape in shapes))
    traces(doubled, *((rows(L, *shape[1:]),) for shape in shapes))


@pytest.mark.parametrize(
    "values",
    [
        [0.0, -0.0, 0, False],
        [(1,), (1.0,), (True,)],
        [range(0, 3, 2), range(0, 4, 2)],
        [{1: 2}, {1.0: 2}, {True: 2}, {1: 2.0}],
        [np.arange(2), np.arange(2.0), np.arange(1, 3)],
    ],
    ids=["zeros", "ones", "ranges", "names", "arrays"],
)
def test_static_arguments_are_told_from_equal_ones_of_other_kinds(values):
    def described(x: Any, s: Any) -> Any:
        return x * 2, str(s)

    made, x = sr.jit(described, static=["s"]), rows()
    for each in values * 2:
        assert made(x, each)[1] == str(each)
        assert made(x, s=each)[1] == str(each)
    assert made.stats.traces <= 2 * len(values)


def test_static_arguments_that_are_changed_in_place_are_other_ones():
    class Options:
        def __init__(self) -> None:
            self.scale = 2.0

    def scaled(x: Any, s: Any) -> Any:
        scale = s.scale if isinstance(s, Options) else s() if callable(s) else s["scale"] if type(s) is dict else s[0]
        return x * scale

    factor = 2.0
    made, x = sr.jit(scaled, static=["s"]), rows()
    options, entries, names, array = Options(), [2.0], {"scale": 2.0}, np.array([2.0, 3.0])
    for each in (options, entries, names, array, lambda: factor):
        same(made(x, each), x * 2.0)
    options.scale = entries[0] = names["scale"] = array[0] = factor = 5.0
    for each in (options, entries, names, array):
        same(made(x, each), x * 5.0)


def test_equal_static_tuples_lists_and_frozen_dataclasses_are_one_signature():
    @dataclasses.dataclass(frozen=True)
    class Options:
        scale: float
        shape: tuple[int, ...] = (1, 2)

    @dataclasses.dataclass(frozen=True, slots=True)
    class Slotted:
        scale: float

    made, x = sr.jit(lambda x, s: x * len(str(s)), static=["s"]), rows()
    for values in (
        [(1, "a"), (1, "a")],
        [[1, 2], [1, 2]],
        [{"a": (1,)}, {"a": (1,)}],
        [Options(2.0), Options(2.0)],
        [Slotted(2.0), Slotted(2.0)],
        [Options(3.0, (2,)), Options(3.0, (2,))],
    ):
        before = made.stats.traces
        for each in values:
            same(made(x, each), x * len(str(each)))
        assert made.stats.traces == before + 1


def test_arrays_of_numpy_count_by_their_elements():
    array = np.array([1.0, 2.0])
    by_argument, by_global = sr.jit(lambda x, a: x * float(a[0])), sr.jit(lambda x: x * float(array[0]))
    x = rows()
    for value in (1.0, 5.0, 1.0):
        array[0] = value
        same(by_argument(x, array), x * value)
        same(by_argument(x, array.copy()), x * value)
        same(by_global(x), x * value)
    assert (by_argument.stats.traces, by_global.stats.traces) == (2, 2)


def test_large_arrays_of_numpy_make_a_function_run_eagerly():
    array = np.ones(100_000)
    by_argument, by_global = sr.jit(lambda x, a: x * float(a[0])), sr.jit(lambda x: x * float(array[0]))
    x = rows()
    for value in (1.0, 5.0):
        array[0] = value
        same(by_argument(x, array), x * value)
        same(by_global(x), x * value)
    assert "800000 bytes" in by_argument.lower(x, array).reason
    assert "800000 bytes" in by_global.lower(x).reason


@pytest.mark.parametrize("sizes", [(3, 5, 1, 7, 0, 1), (1, 3, 5, 1), (5, 3, 0, 1)])
def test_an_axis_of_size_one_can_be_squeezed_after_other_sizes_became_inputs(sizes):
    squeezed = sr.jit(lambda x: x.squeeze(1))
    for size in sizes:
        x = torch.randn(2, size)
        torch.testing.assert_close(squeezed(x), x.squeeze(1))


def _halves(x: Any) -> Any:
    half = x.shape[-1] // 2
    return x.values[:, :half] * x.values[:, half:]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * 2 if x.shape[-1] == 4 else x * 3,
        lambda x: x / math.sqrt(x.shape[-1]),
        lambda x: x * x.shape[-1] ** -0.5,
        lambda x: sum(x.values[:, at] for at in range(x.shape[-1])),
        lambda x: {f"of {x.shape[-1]}": x},
        lambda x: x.values.view(-1, 2, x.shape[-1] // 2).transpose(0, 1),
        _halves,
    ],
)
def test_the_size_of_a_feature_that_a_function_asks_for_stays_a_part_of_the_signature(function):
    made = sr.jit(function)
    for size in (4, 6, 8, 4, 6):
        x = sr.from_lengths(torch.rand(3, size), [2, 0, 1])
        same(made(x), function(x))
    assert made.stats.eager_calls == 0
    assert made.stats.traces == 4  # for the second size twice


def test_sizes_of_two_features_that_are_compared_stay_parts_of_a_signature():
    made = sr.jit(lambda x, y: x @ y.T if x.shape[1] == y.shape[1] else x * 2)
    for one, other in ((4, 4), (5, 5), (6, 7), (7, 7)):
        x, y = torch.rand(3, one), torch.rand(2, other)
        same(made(x, y), made.function(x, y))
