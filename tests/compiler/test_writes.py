"""Writes: a compiled function that writes to its arguments, or to views of them, leaves what eager code leaves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.compiler.harness import same, shared_alike

import serrate as sr

L = [3, 0, 2]


def rows(*features: int, seed: int = 0) -> sr.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return sr.from_lengths(torch.rand(sum(L), *features, generator=generator), L)


def in_place_sum(x: Any, y: Any) -> Any:
    x += y
    return x * 2


def item_assignment(x: Any, y: Any) -> Any:
    x[:, :1] = y[:, :1] * 3
    return None


def a_row(x: Any, y: Any) -> Any:
    x[0] = 7.0
    return sr.sum(x, axis=1)


def a_feature(x: Any, y: Any) -> Any:
    x[..., 0] = sr.exp(y[..., 1])


def through_a_row(x: Any, y: Any) -> Any:
    row = x[0]
    row *= 2
    return row + 1


def through_flat(x: Any, y: Any) -> Any:
    x.flat()[:] = 0.5
    return x + y


def through_the_transpose(x: Any, y: Any) -> Any:
    view = x.mT
    view += 1
    return x * y


def through_a_permutation(x: Any, y: Any) -> Any:
    sr.permute_dims(x, (0, 2, 1)).copy_(sr.permute_dims(y, (0, 2, 1)) * 2)


def twice(x: Any, y: Any) -> Any:
    x *= 2
    before = x + y
    x -= 1
    return before, x * 1


def through_a_view_made_before(x: Any, y: Any) -> Any:
    view = sr.expand_dims(x, axis=1)
    x *= 3
    return view + 1


def two_arguments(x: Any, y: Any) -> Any:
    x += 1
    y *= x
    return x - y


def copied(x: Any, y: Any) -> Any:
    x.copy_(sr.tanh(y))
    return x


def zeroed(x: Any, y: Any) -> Any:
    torch.relu_(x) if False else x.copy_(x * 0)
    return y + x


def only_a_temporary(x: Any, y: Any) -> Any:
    z = x * 1
    z += y
    z[:, :1] = 0.0
    return z


WRITES: list[Callable[..., Any]] = [
    in_place_sum, item_assignment, a_row, a_feature, through_a_row, through_flat, through_the_transpose,
    through_a_permutation, twice, through_a_view_made_before, two_arguments, copied, zeroed, only_a_temporary,
]  # fmt: skip


@pytest.mark.parametrize("function", WRITES, ids=lambda function: function.__name__)
def test_writes_reach_the_arguments_as_in_eager_code(function):
    mine, theirs = (rows(2), rows(2, seed=1)), (rows(2), rows(2, seed=1))
    mine, theirs = (mine[0], mine[0]._with(mine[1].values)), (theirs[0], theirs[0]._with(theirs[1].values))
    made = sr.jit(function)
    for _ in range(3):
        got, want = made(*mine), function(*theirs)
        same(got, want)
        for one, other in zip(mine, theirs, strict=True):
            torch.testing.assert_close(one.values, other.values)
        shared_alike(got, want, mine)
    assert made.stats.traces == 1
    assert made.stats.eager_calls == 0


@pytest.mark.parametrize("function", [in_place_sum, item_assignment, copied, twice])
def test_writes_keep_the_memory_of_the_argument(function):
    x, y = rows(2), rows(2)
    y = x._with(y.values)
    at, version = x.values.data_ptr(), x.values._version
    sr.jit(function)(x, y)
    assert x.values.data_ptr() == at
    assert x.values._version > version


def test_an_argument_that_is_written_to_and_returned_is_returned_as_itself():
    x = rows(2)
    made = sr.jit(copied)
    assert made(x, x._with(x.values.clone())) is x


def test_a_written_torch_tensor_is_written_to():
    def counted(x: Any, counts: Any) -> Any:
        counts += sr.sum(x, axis=(0, 1)).torch()
        return x * 2

    x, mine, theirs = rows(2), torch.zeros(2), torch.zeros(2)
    made = sr.jit(counted)
    for _ in range(3):
        same(made(x, mine), counted(x, theirs))
        torch.testing.assert_close(mine, theirs)


def test_in_place_functions_of_torch_tensors_write():
    def scaled(x: Any, scale: Any) -> Any:
        scale.mul_(2)
        return x * scale

    x, mine, theirs = rows(2), torch.ones(2), torch.ones(2)
    same(sr.jit(scaled)(x, mine), scaled(x, theirs))
    assert mine.tolist() == theirs.tolist() == [2.0, 2.0]


def test_nothing_is_written_if_the_call_raises():
    def failing(x: Any, y: Any) -> Any:
        x += 1
        return x + y

    made, x = sr.jit(failing), rows(2)
    made(x, x._with(x.values.clone()))
    before = x.values.clone()
    with pytest.raises(ValueError, match=r"ragged|size|lengths"):
        made(x, sr.from_lengths(torch.rand(5, 2), [2, 1, 2]))
    assert x.values.tolist() == before.tolist()


def test_nothing_is_written_if_the_trace_raises():
    def failing(x: Any) -> Any:
        x += 1
        raise KeyError("mine")

    x = rows(2)
    before = x.values.clone()
    with pytest.raises(KeyError):
        sr.jit(failing)(x)
    assert x.values.tolist() == before.tolist()


def test_aliased_arguments_that_are_written_to_are_refused():
    x = rows(2)
    made = sr.jit(in_place_sum)
    with pytest.raises(ValueError, match="shares its memory"):
        made(x, x)
    with pytest.raises(ValueError, match="clone"):
        made(x, x._with(x.values))
    before = x.values.clone()
    with pytest.raises(ValueError, match="clone"):
        made(x, x._with(x.values.view_as(x.values)))
    assert x.values.tolist() == before.tolist()
    made(x, x._with(before * 2))


def test_aliased_arguments_that_are_only_read_are_fine():
    x = rows(2)
    same(sr.jit(lambda x, y: x + y)(x, x), x + x)


def test_parts_of_one_memory_are_refused_where_one_is_written_to():
    base = torch.rand(10, 2)
    before = base.clone()
    x = sr.from_lengths(base[:5], L)
    with pytest.raises(ValueError, match="clone"):
        sr.jit(in_place_sum)(x, x._with(base[5:]))
    assert torch.equal(base, before)


def test_raggedness_of_a_written_argument_stays():
    x = rows(2)
    before = x.partitions[0]
    sr.jit(item_assignment)(x, x._with(x.values.clone()))
    assert x.partitions[0] is before


def test_a_write_that_changes_nothing_else_but_other_lengths_works_with_them():
    made = sr.jit(in_place_sum)
    for lengths in ([1, 2], [], [0], [4, 0, 0, 1]):
        x = sr.from_lengths(torch.ones(sum(lengths), 2), lengths)
        made(x, x._with(torch.full((sum(lengths), 2), 2.0)))
        assert x.values.tolist() == [[3.0, 3.0]] * sum(lengths)
    assert made.stats.traces == 1


def test_a_write_to_an_argument_that_needs_gradients_is_as_in_eager_code():
    leaf = rows(2).values.requires_grad_()
    x = sr.from_lengths(leaf, L)
    with pytest.raises(RuntimeError, match="leaf"):
        in_place_sum(x, x._with(torch.ones(5, 2)))
    with pytest.raises(RuntimeError, match="leaf"):
        sr.jit(in_place_sum)(x, x._with(torch.ones(5, 2)))


def test_whether_a_result_aliases_its_argument_has_one_answer():
    """A returned argument is itself; a view of an argument that is returned is written to as documented."""
    x = rows(2)
    made = sr.jit(lambda x: (x, x.mT, sr.expand_dims(x, axis=0)))
    itself, *views = made(x)
    assert itself is x
    answers = {view.values.untyped_storage().data_ptr() == x.values.untyped_storage().data_ptr() for view in views}
    assert len(answers) == 1
