"""What a traced function cannot ask: each question is a TracerError with the user's line and what to do instead."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.compiler.harness import agree, agree_with_gradients

import serrate as sr
from serrate.errors import TracerError

X = sr.from_lengths(torch.tensor([[1.0, 2.0], [3.0, -4.0], [0.5, 0.25]]), [2, 0, 1])


def branch_on_an_element(x: Any) -> Any:
    total = sr.sum(x)
    if total > 0:  # here
        return x
    return -x


def loop_until(x: Any) -> Any:
    while sr.max(x) < 100:  # here
        x = x * 2
    return x


def item(x: Any) -> Any:
    return x * sr.sum(x).item()  # here


def as_float(x: Any) -> Any:
    return x * float(sr.sum(x))  # here


def as_int(x: Any) -> Any:
    return x[: int(sr.sum(x))]  # here


def as_list(x: Any) -> Any:
    return x.tolist()  # here


def over_rows(x: Any) -> Any:
    return [row * 2 for row in x]  # here


def length(x: Any) -> Any:
    return x / len(x)  # here


def branch_on_batch_size(x: Any) -> Any:
    if x.shape[0] > 2:  # here
        return x
    return -x


def a_range_of_the_batch(x: Any) -> Any:
    return [x * number for number in range(x.shape[0])]  # here


def the_longest(x: Any) -> Any:
    return x * x.max_lengths[0]  # here


def membership(x: Any) -> Any:
    return x if 3 in x else -x  # here


def conjunction(x: Any) -> Any:
    return x if sr.any(x > 1) and sr.all(x > 0) else -x  # here


def to_numpy(x: Any) -> Any:
    return x.values.numpy()  # here


def backward_inside(x: Any) -> Any:
    sr.sum(x).backward()  # here
    return x


def the_gradient(x: Any) -> Any:
    return x.grad  # here


def needs_gradients_inside(x: Any) -> Any:
    return (x * 2).requires_grad_()  # here


def to_arrow(x: Any) -> Any:
    return x.to_arrow()  # here


def assertion(x: Any) -> Any:
    assert sr.all(sr.isfinite(x))  # here
    return x


def helper(x: Any) -> Any:
    return branch_on_an_element(x)


REFUSED: dict[Callable[..., Any], str] = {
    branch_on_an_element: "sr.where",
    loop_until: "sr.where",
    item: "item",
    as_float: "0-d tensor",
    as_int: "tensor",
    as_list: "outside",
    over_rows: "operations",
    length: r"x\.shape\[0\]",
    branch_on_batch_size: "static=|sr.where",
    a_range_of_the_batch: "operations",
    the_longest: "to_dense",
    membership: r"sr\.any",
    conjunction: "logical_and|sr.where",
    to_numpy: "outside",
    backward_inside: "outside|returns",
    the_gradient: "outside",
    needs_gradients_inside: "outside",
    to_arrow: "outside",
    assertion: "sr.where|outside",
}


@pytest.mark.parametrize("function", REFUSED, ids=lambda function: function.__name__)
def test_what_only_elements_or_sizes_tell_is_refused_at_the_line_of_the_user_with_what_to_use_instead(function):
    with pytest.raises(TracerError, match=REFUSED[function]) as found:
        sr.jit(function)(X)
    lines, first = inspect.getsourcelines(function)
    place = first + next(number for number, line in enumerate(lines) if "# here" in line)
    assert f"test_tracer_errors.py:{place}" in str(found.value)
    assert lines[place - first].strip() in str(found.value)


def test_a_tracer_error_is_a_type_error_and_comes_with_each_call():
    made = sr.jit(branch_on_an_element)
    for _ in range(2):
        with pytest.raises(TypeError):
            made(X)


def test_the_line_is_that_of_the_function_that_asks_not_of_its_caller():
    with pytest.raises(TracerError) as found:
        sr.jit(helper)(X)
    lines, first = inspect.getsourcelines(branch_on_an_element)
    assert f"test_tracer_errors.py:{first + 2}" in str(found.value)
    assert len(lines) == 5


def test_after_an_error_everything_is_eager_again():
    with pytest.raises(TracerError):
        sr.jit(branch_on_an_element)(X)
    assert bool(sr.sum(X) > 0)
    assert branch_on_an_element(X) is X
    assert sr.jit(lambda x: x + 1)(X).tolist() == (X + 1).tolist()


def test_an_error_of_the_function_itself_is_raised_as_it_is():
    def broken(x: Any) -> Any:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        sr.jit(broken)(X)
    assert (X + 1).tolist() == [[[2.0, 3.0], [4.0, -3.0]], [], [[1.5, 1.25]]]


def test_a_tensor_that_outlives_its_trace_is_refused():
    holder: Any = torch.zeros(1)  # what a function gives a tensor as an attribute is not undone

    def keeping(x: Any) -> Any:
        holder.kept = x * 2
        return x + 1

    sr.jit(keeping)(X)
    with pytest.raises(TracerError, match="after its trace"):
        holder.kept + 1


def test_questions_that_types_answer_are_answered():
    def asking(x: Any) -> Any:
        assert x.ndim == x.dim() == 3
        assert x.dtype == torch.float32
        assert x.device.type == "cpu"
        assert x.is_ragged
        assert x.is_floating_point()
        assert not x.is_complex()
        assert x.shape[2] == x.size(2) == 2
        assert isinstance(x.shape[1], sr.Ragged)
        assert isinstance(x, sr.Tensor)
        assert x is not None
        assert (x == None) is False  # noqa: E711
        return x * x.shape[2]

    agree(asking, X)


def test_detach_stops_gradients():
    agree_with_gradients(lambda x: x.detach() * x, X)
    got = sr.jit(lambda x: x.detach() * 2)(X._with(X.values.clone().requires_grad_()))
    assert not got.requires_grad


def test_values_and_offsets_and_lengths_of_a_traced_tensor_are_tensors():
    def parts(x: Any) -> Any:
        return x.values * 2, x.offsets[0] + 1, x.lengths[0] * 2, x.cu_seqlens()

    made = sr.jit(parts)
    for x in (X, sr.from_lengths(torch.rand(4, 2), [0, 4]), X):
        for one, other in zip(made(x), parts(x), strict=True):
            assert type(one) is type(other)
            assert one.dtype == other.dtype
            assert one.tolist() == other.tolist()
    assert made.stats.traces == 1


def test_values_carry_gradients():
    agree_with_gradients(lambda x: torch.exp(x.values).sum(0), X)


def test_torch_gives_the_tensor_inside_of_a_dense_one():
    def inside(x: Any) -> Any:
        return torch.exp(sr.sum(x, axis=1).torch())

    agree(inside, X)
    with pytest.raises(TypeError, match="only a dense tensor"):
        sr.jit(lambda x: x.torch())(X)


def test_printing_inside_of_a_traced_function_shows_types(capsys):
    def printing(x: Any) -> Any:
        print(x, f"{x}")
        return x + 1

    made = sr.jit(printing)
    made(X)
    made(X)
    text = capsys.readouterr().out
    assert text.count("float32") == 2  # at the trace, not at each call
