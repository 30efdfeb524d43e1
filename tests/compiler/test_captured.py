"""Captured tensors: what a function finds outside of its arguments is an input; what it returns unchanged is itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.compiler.harness import same
from torch import nn

import serrate as sr

L = [3, 0, 2]
WEIGHT = torch.tensor([1.0, 2.0])
FACTOR = 2.0


def rows(lengths: list[int] | None = None) -> sr.Tensor:
    lengths = L if lengths is None else lengths
    return sr.from_lengths(torch.arange(2.0 * sum(lengths)).view(-1, 2), lengths)


def with_a_global_tensor(x: Any) -> Any:
    return x * WEIGHT + FACTOR


def test_a_captured_tensor_is_an_input_and_its_new_elements_count():
    w = torch.tensor([1.0, 2.0])
    made, x = sr.jit(lambda x: x * w), rows()
    same(made(x), x * w)
    w += 1
    same(made(x), x * w)
    assert made.stats.traces == 1


def test_tensors_by_which_types_are_found_are_not_captured(tmp_path, monkeypatch):
    monkeypatch.setenv("SERRATE_CACHE_DIR", str(tmp_path))  # no type is known from an earlier process
    x = sr.from_lengths(torch.randn(5, 4, 3), L)
    stages = sr.jit(lambda x: x.transpose(1, 2) * 2).lower(x)
    assert not isinstance(stages.compiled, str)
    assert stages.compiled.captured == ()


def test_a_global_tensor_and_a_global_number_are_what_they_are_now(monkeypatch):
    made, x = sr.jit(with_a_global_tensor), rows()
    same(made(x), x * WEIGHT + 2.0)
    monkeypatch.setitem(globals(), "FACTOR", 3.0)
    same(made(x), x * WEIGHT + 3.0)
    monkeypatch.setitem(globals(), "WEIGHT", torch.tensor([5.0, 6.0]))
    same(made(x), x * torch.tensor([5.0, 6.0]) + 3.0)
    monkeypatch.setitem(globals(), "WEIGHT", torch.tensor([5, 6]))
    same(made(x), x * torch.tensor([5, 6]) + 3.0)


def test_a_closure_is_what_it_is_now():
    w, bias = torch.ones(2), 1.0

    def shifted(x: Any) -> Any:
        return x * w + bias

    made, x = sr.jit(shifted), rows()
    same(made(x), x + 1.0)
    w = torch.tensor([2.0, 3.0])
    same(made(x), x * w + 1.0)
    bias = 4.0
    same(made(x), x * w + 4.0)
    w = torch.tensor([2.0], dtype=torch.float64)
    same(made(x), x * w + 4.0)


def test_a_captured_ragged_tensor_shares_its_partition_or_is_guarded():
    x = rows()
    other = x._with(x.values + 1)
    made = sr.jit(lambda x: x + other)
    same(made(x), x + other)
    assert made(x).partitions[0] is x.partitions[0]
    same(made(rows()), rows() + other)
    with pytest.raises(ValueError, match=r"lengths|ragged|size"):
        made(rows([2, 1, 2]))


def test_gradients_reach_captured_tensors():
    w = torch.tensor([1.0, 2.0], requires_grad=True)
    made, x = sr.jit(lambda x: sr.sum(sr.exp(x * 0.1) * w)), rows()
    made(x).values.backward()
    got, w.grad = w.grad, None
    sr.sum(sr.exp(x * 0.1) * w).values.backward()
    torch.testing.assert_close(got, w.grad)


def test_a_captured_tensor_that_starts_to_need_gradients_has_them():
    w = torch.tensor([1.0, 2.0])
    made, x = sr.jit(lambda x: x * w), rows()
    assert not made(x).requires_grad
    w.requires_grad_()
    got = made(x)
    assert got.requires_grad
    got.values.sum().backward()
    torch.testing.assert_close(w.grad, x.values.sum(0))


def test_data_that_was_exchanged_counts():
    w = torch.nn.Parameter(torch.ones(2))
    made, x = sr.jit(lambda x: x * w), rows()
    same(made(x), x * w)
    w.data = torch.tensor([3.0, 4.0])
    same(made(x), x * w)
    w.data = torch.tensor([3.0, 4.0], dtype=torch.float64)
    same(made(x), x * w)
    w.data = torch.tensor([2.0])
    same(made(x), x * w)


def test_tensors_made_inside_are_constants():
    def made_inside(x: Any) -> Any:
        return x * torch.tensor([1.0, 2.0]) + sr.asarray([0.5, 1.5]) + torch.arange(2)

    made = sr.jit(made_inside)
    for lengths in (L, [1], []):
        same(made(rows(lengths)), made_inside(rows(lengths)))
    assert made.stats.traces == 1


def test_a_returned_argument_is_returned_as_itself():
    x, y = rows(), torch.rand(3)
    made = sr.jit(lambda x, y: (x, {"y": y}, [x + 1, y]))
    first, named, (_, again) = made(x, y)
    assert first is x
    assert named["y"] is y
    assert again is y


def test_a_returned_captured_tensor_is_returned_as_itself():
    w = torch.rand(2)
    made = sr.jit(lambda x: (x + w, w))
    assert made(rows())[1] is w


def test_a_function_that_computes_nothing():
    assert sr.jit(lambda x: None)(rows()) is None
    assert sr.jit(lambda x: 3)(rows()) == 3
    assert sr.jit(lambda: sr.zeros(2))().tolist() == [0.0, 0.0]
    assert sr.jit(lambda x: ())(rows()) == ()


def test_the_same_result_twice():
    def both(x: Any) -> Any:
        y = x + 1
        return y, y, [y]

    one, two, (three,) = sr.jit(both)(rows())
    assert one.tolist() == two.tolist() == three.tolist() == (rows() + 1).tolist()


def test_a_method_of_an_object_sees_its_own_tensors():
    class Scaler:
        def __init__(self, scale: float) -> None:
            self.scale = torch.tensor(scale)

        @sr.jit
        def run(self, x: Any) -> Any:
            return x * self.scale

    one, two, x = Scaler(2.0), Scaler(3.0), rows()
    same(one.run(x), x * 2.0)
    same(two.run(x), x * 3.0)
    same(one.run(x), x * 2.0)
    one.scale = torch.tensor(5.0)
    same(one.run(x), x * 5.0)


def test_a_compiled_function_inside_of_a_compiled_function():
    inner = sr.jit(lambda x: sr.softmax(x, axis=1))
    outer = sr.jit(lambda x: inner(x) * 2 + inner(x * 0.5))
    x = rows()
    same(outer(x), sr.softmax(x, axis=1) * 2 + sr.softmax(x * 0.5, axis=1))
    assert inner.stats.calls == 0


def test_what_is_made_of_numbers_inside_is_another_tensor_in_each_call():
    def function(x: Any) -> Any:
        made = sr.ragged([[1.0, 2.0], [], [3.0]])
        listed = sr.asarray([1.0, 2.0])
        made[0] = made[0] + 1
        return made, listed, x * listed

    compiled, x = sr.jit(function), rows()
    for each in (compiled(x), compiled(x)):
        for one, other in zip(each, function(x), strict=True):
            assert one.tolist() == other.tolist()
        each[0].values.fill_(9.0)
        each[1].values.fill_(9.0)
    assert (compiled.stats.traces, compiled.stats.eager_calls) == (1, 0)


def test_a_number_in_a_list_is_a_part_of_the_signature():
    compiled = sr.jit(lambda x, number: (sr.ragged([[number, 2.0 * number], []]), x * sr.asarray([number, 1.0])))
    for number in (1.0, 2.0, 3.0):
        made, scaled = compiled(rows(), number)
        assert made.tolist() == [[number, 2.0 * number], []]
        same(scaled, rows() * torch.tensor([number, 1.0]))


OF_A_PARAMETER: dict[str, Callable[[Any, Any], Any]] = {
    "T": lambda x, p: x @ p.T,
    "mT": lambda x, p: x @ p.mT,
    "H": lambda x, p: x @ p.H,
    "data": lambda x, p: x @ p.data,
    "real": lambda x, p: x + p.real[0],
    "a part alone": lambda x, p: p.T * 1,
    "returned": lambda x, p: p.data,
    "the norm of data": lambda x, p: x * p.data.norm(),
    "shape": lambda x, p: x * p.shape[0],
    "len": lambda x, p: x * len(p),
    "size": lambda x, p: x * p.size(0),
    "numel": lambda x, p: x * p.numel(),
    "nelement": lambda x, p: x * p.nelement(),
    "requires_grad": lambda x, p: x * 2 if p.requires_grad else x,
    "dtype": lambda x, p: x * 2 if p.dtype == torch.float32 else x,
    "to its dtype": lambda x, p: x.to(p.dtype),
    "grad": lambda x, p: x if p.grad is None else x + p.grad.sum(),
    "its version": lambda x, p: x * p._version,
    "a write to data": lambda x, p: (p.data.add_(1), x + p[0])[1],
}


def _exchanged(p: nn.Parameter) -> None:
    p.data = p.data.clone() * 2 + 1


def _written(p: nn.Parameter) -> None:
    with torch.no_grad():
        p.mul_(3)


def _longer(p: nn.Parameter) -> None:
    p.data = torch.cat([p.data, p.data[:1]])


def _of_other_numbers(p: nn.Parameter) -> None:
    p.data = p.data.double()


def _with_a_gradient(p: nn.Parameter) -> None:
    p.grad = torch.ones_like(p) if p.grad is None else p.grad * 3


CHANGES = [
    _exchanged, _written, _longer, _of_other_numbers, _with_a_gradient,
    lambda p: p.requires_grad_(not p.requires_grad),
]  # fmt: skip


@pytest.mark.parametrize("name", OF_A_PARAMETER)
def test_attributes_of_tensors_outside_are_what_they_are_now(name):
    for change in CHANGES:
        mine, theirs = (nn.Parameter(torch.tensor([[1.0, 2.0], [3.0, 4.0]])) for _ in range(2))
        made = sr.jit(lambda x: OF_A_PARAMETER[name](x, mine))  # noqa: B023
        for _ in range(3):
            x = torch.ones(2)
            try:
                want = OF_A_PARAMETER[name](x, theirs)
            except RuntimeError:  # torch multiplies no matrices of two dtypes
                break
            same(made(x), want)
            change(mine)
            change(theirs)


def test_a_parameter_that_is_frozen_and_thawed_again_is_two_traces():
    module = nn.Linear(2, 2)
    made = sr.jit(module)
    for step in range(6):
        module.requires_grad_(step % 2 == 0)
        assert made(torch.ones(3, 2)).requires_grad is (step % 2 == 0)
    assert made.stats.traces == 2


LISTS = [[1.0, 2.0], [], [3.0]]


def _written_to(x: Any) -> Any:
    made = sr.ragged(LISTS)
    made[0] = 5.0
    return made + x


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x + sr.ragged(LISTS),
        lambda x: sr.ragged([[1, 2], [3]]),
        lambda x: sr.ragged([[1, 2], [3]], dtype=torch.float64),
        lambda x: sr.sum(sr.ragged([[[1.0, 2.0]], [], [[3.0], [4.0]]]), axis=2),
        lambda x: x + sr.from_rows([torch.tensor([1.0, 2.0]), torch.tensor([]), torch.tensor([4.0])]),
        lambda x: sr.concat([x, sr.ragged([[9.0], [8.0], [7.0]])], axis=1),
        lambda x: x * sr.ragged([[2.0]]).tolist()[0][0],
        lambda x: x * sr.ragged([[2.0], [3.0]]).shape[0],
        lambda x: sr.ragged(LISTS).lengths[0] + 1,
        lambda x: x * sr.asarray(LISTS[0]).torch()[0],
        _written_to,
    ],
)
def test_tensors_of_python_s_lists_are_constants_and_other_ones_in_each_call(function):
    x = sr.ragged([[1.0, 2.0], [], [3.0]])
    made = sr.jit(function)
    for _ in range(3):
        got, want = made(x), function(x)
        same(got, want)
        (got.values if isinstance(got, sr.Tensor) else got).zero_()  # it is the caller's
    assert made.stats.eager_calls == 0


def test_a_list_that_has_changed_is_another_constant():
    made, x = sr.jit(lambda x: x * sr.sum(sr.ragged(LISTS))), sr.ragged([[1.0], []])
    same(made(x), x * 6.0)
    LISTS[1].append(4.0)
    try:
        same(made(x), x * 10.0)
    finally:
        LISTS[1].clear()
