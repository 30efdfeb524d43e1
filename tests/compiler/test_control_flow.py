"""Python's control flow on what a trace does not know, in all its forms; and sizes, which can be computed with."""

from __future__ import annotations

import contextlib
import inspect
import math
import numbers
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tests.compiler.harness import same

import serrate as sr
from serrate.errors import TracerError

X = sr.from_lengths(torch.tensor([1.0, 2.0, 3.0, -4.0, 0.5]), [2, 0, 3])


def matched_element(x: Any) -> Any:
    match sr.sum(x):
        case 3.0:
            return x
    return -x


def matched_size(x: Any) -> Any:
    match x.shape[0]:
        case 7:
            return x
    return -x


def matched_shape(x: Any) -> Any:
    match x.shape:
        case (7, _):
            return x
    return -x


def unpacked(x: Any) -> Any:
    first, *_ = x
    return first


def while_size(x: Any) -> Any:
    count = 0
    while count < x.shape[0]:
        count += 1
    return x * count


OF_ELEMENTS: list[Callable[..., Any]] = [
    matched_element, unpacked,
    lambda x: x if sr.any(x > 0) else -x,
    lambda x: x if not sr.any(x > 0) else -x,
    lambda x: x if x.values.sum() > 1 else -x,
    lambda x: x if 0 < sr.sum(x) < 3 else -x,
    lambda x: x if sr.sum(x) in (1.0, 2.0) else -x,
    lambda x: [x for each in x if each],
    lambda x: dict(enumerate(x)),
    lambda x: list(zip(x, x, strict=True)),
    lambda x: sorted(x.values),
    lambda x: max(x.values),
    lambda x: min(x.values, key=lambda each: each),
    lambda x: sum(x.values),
    lambda x: any(x.values > 0),
    lambda x: all(x.values > 0),
    lambda x: list(x.values),
    lambda x: next(iter(x)),
    lambda x: list(reversed(x)),
    lambda x: x * int(sr.sum(x)),
    lambda x: x * float(sr.sum(x)),
    lambda x: x * complex(sr.sum(x)),
    lambda x: x * math.sqrt(sr.sum(x)),
    lambda x: f"{sr.sum(x).item():.2f}",
    lambda x: x * x.values.sum().item(),
    lambda x: x * x.values.tolist()[0],
    lambda x: [1, 2, 3][sr.argmax(x.flat())] * x,
    lambda x: range(sr.argmax(x.flat())),
    lambda x: x if torch.equal(x.values, x.values) else -x,
    lambda x: x if torch.allclose(x.values, x.values) else -x,
    lambda x: x if x.values.equal(x.values) else -x,
    lambda x: x if torch.is_nonzero(x.values.sum()) else -x,
    lambda x: x if x.values.grad_fn is None else -x,
]  # fmt: skip
OF_SIZES: list[Callable[..., Any]] = [
    matched_size, matched_shape, while_size,
    lambda x: x if x.shape[0] else -x,
    lambda x: x if not x.shape[0] else -x,
    lambda x: x if x.shape[0] == 3 else -x,
    lambda x: x if x.shape[0] != 3 else -x,
    lambda x: x if 1 < x.shape[0] <= 9 else -x,
    lambda x: x if x.shape[0] >= x.values.shape[0] else -x,
    lambda x: x if x.shape[0] in (3, 4) else -x,
    lambda x: x if x.shape[0] == 1 else -x,
    lambda x: x if 3 in x.shape else -x,
    lambda x: x * max(x.shape[0], 2),
    lambda x: x * min(2, x.shape[0]),
    lambda x: x * sorted([x.shape[0], 2])[0],
    lambda x: [x for _ in range(x.shape[0])],
    lambda x: x * int(x.shape[0]),
    lambda x: x * float(x.shape[0]),
    lambda x: x * math.sqrt(x.shape[0]),
    lambda x: x * (x.shape[0] // 2),
    lambda x: x * (10 // x.shape[0]),
    lambda x: x * (x.shape[0] % 2),
    lambda x: x * (10 % x.shape[0]),
    lambda x: x * x.shape[0] ** 2,
    lambda x: x * 2 ** x.shape[0],
    lambda x: x * divmod(x.shape[0], 2)[0],
    lambda x: x * round(x.shape[0]),
    lambda x: x * (x.shape[0] << 1),
    lambda x: x * (x.shape[0] & 1),
    lambda x: {x.shape[0]: x},
    lambda x: [x, x, x][x.shape[0] - 3],
    lambda x: f"{x.shape[0]:3d}",
    lambda x: x * math.sqrt(x.shape[0] * 0.5),
    lambda x: x if x.shape[0] * 0.5 > 1 else -x,
]  # fmt: skip


@pytest.mark.parametrize("function", [*OF_ELEMENTS, *OF_SIZES], ids=lambda each: inspect.getsource(each).strip()[:60])
def test_what_a_trace_does_not_know_is_refused_at_the_line_of_the_user(function):
    made = sr.jit(function)
    with pytest.raises(TracerError) as found:
        made(X)
    text = str(found.value)
    lines, first = inspect.getsourcelines(function)
    places = range(first, first + len(lines))
    assert any(f"test_control_flow.py:{place}" in text for place in places), text
    assert "; " in text, "it says what to use instead"
    assert "Traced" not in text


COMPUTED: list[Callable[..., Any]] = [
    lambda x: sr.sum(x, axis=1) / x.shape[0],
    lambda x: sr.sum(x) / (x.shape[0] * 0.5 + 1) - 2.5 / x.shape[0],
    lambda x: x * x.shape[0] - x.shape[0] * x + (x.shape[0] - 1.5) * x,
    lambda x: x.values.mean() * x.values.shape[0] / x.numel(),
    lambda x: sr.divide(x, x.values.shape[0]) + (1 - x.values.shape[0]),
    lambda x: sr.arange(x.shape[0]) + sr.zeros(x.shape[0]) + sr.full(x.shape[0], 2.0),
    lambda x: (x.shape[0] + 1, 2 * x.shape[0], -x.shape[0], x.shape[0] - x.values.shape[0], abs(x.shape[0])),
    lambda x: x + sum([x.shape[0], 2]) * 0.25,
    lambda x: sr.astype(x, torch.int32) * x.shape[0],
    lambda x: x[: x.shape[0] - 1],
    lambda x: x if x.shape[0] == x.shape[0] and x.ndim == 2 else -x,
]


@pytest.mark.parametrize("function", COMPUTED, ids=range(len(COMPUTED)))
def test_sizes_can_be_computed_with(function):
    made = sr.jit(function)
    for lengths in ([2, 0, 3], [5], [1, 1, 1, 1]):
        x = sr.from_lengths(torch.rand(sum(lengths)), lengths)
        same(made(x), function(x))
    assert made.stats.eager_calls == 0
    assert made.stats.traces == 1


def test_a_first_axis_of_a_dense_tensor_is_one_or_is_not():
    made = sr.jit(lambda d: d * 2 if d.shape[0] == 1 else d - 1)
    for count in (3, 1, 4, 0, 1):
        same(made(torch.ones(count, 2)), torch.full((count, 2), 2.0 if count == 1 else 0.0))
    assert made.stats.traces == 2


def test_a_division_by_the_size_of_an_empty_batch_is_the_error_of_python():
    made = sr.jit(lambda x: sr.sum(x, axis=1) * (1.0 / x.shape[0]))
    same(made(X), sr.sum(X, axis=1) * (1.0 / 3))
    with pytest.raises(ZeroDivisionError):
        made(X[:0])


def test_branches_on_what_a_type_knows_are_taken():
    def function(x: Any, flag: bool, mode: str, names: Any) -> Any:
        assert x.ndim == 2
        match mode:
            case "double" if flag:
                x = x * 2
            case "double":
                x = x * 3
        for name in names:
            x = x + len(name)
        return x if x.dtype is torch.float32 else -x

    made = sr.jit(function)
    for given in ((True, "double", ["a"]), (False, "double", []), (True, "none", ("bb", "c"))):
        same(made(X, *given), function(X, *given))
    with pytest.raises(AssertionError):
        made(X.flat(), True, "none", ())


def test_an_error_that_the_function_itself_catches_is_as_in_eager_code():
    def function(x: Any) -> Any:
        try:
            return x + torch.ones(7, 7, 7)
        except ValueError:
            return x * 2

    same(sr.jit(function)(X), function(X))


# ------------------------------------------------------------------------------------------------------- numbers


def outcome(run: Callable[..., Any], *given: Any) -> Any:
    """What a call gives as a list, with its dtype, or the error that it raises."""
    try:
        got = run(*given)
    except OverflowError as error:
        return str(error)
    return got.tolist(), got.dtype


def test_whole_numbers_that_a_dtype_does_not_hold_are_those_of_eager_code():
    x = sr.astype(X * 0 + 3, torch.uint8)
    for function in (lambda x, n: x + n, lambda x, n: x < n, lambda x, n: sr.where(x > 1, x, n)):
        made = sr.jit(function)
        for number in (3, 7, 255, 256, -1, 2**40, 2**70):
            assert outcome(made, x, number) == outcome(function, x, number)
        assert made.stats.traces == 2


def test_long_numbers_and_divisions_by_zero_are_those_of_python():
    made = sr.jit(lambda x, n: x * (n * n * n) + 1.0 / -(5 - n))
    for number in (3, 7, 2**40, 8):
        same(made(X, number), X * (number * number * number) + 1.0 / (number - 5))
    with pytest.raises(ZeroDivisionError):
        made(X, 5)
    inverse = sr.jit(lambda x, n: x * (1.0 / n))
    for number in (2.0, 4.0, 8.0):
        same(inverse(X, number), X * (1.0 / number))
    with pytest.raises(ZeroDivisionError):
        inverse(X, 0.0)
    assert inverse.stats.traces == 2


def by_class(x, n):
    return x * n if isinstance(n, (int, float)) else x + 1000


def by_text(x, n):
    return x * {"2.0": 2, "3.0": 3, "4.0": 4}[str(n)] + len(f"{n} {n!r}") + n.is_integer()


def by_caught_int(x, n):
    try:
        return x * int(n)
    except Exception:
        return x * 0


def by_abstract_class(x, n):
    return x * n if isinstance(n, numbers.Real) else x


@pytest.mark.parametrize("function", [by_class, by_text, by_caught_int, by_abstract_class])
def test_what_asks_for_a_number_that_changes_is_told(function):
    made, x = sr.jit(function), sr.ragged([[1.0, 2.0], [], [3.0]])
    for number in (2.0, 3.0, 4.0):
        assert made(x, number).tolist() == function(x, number).tolist()


def caught_error(x):
    try:
        return x / float(sr.sum(x))
    except Exception:
        return x


def suppressed_error(x):
    with contextlib.suppress(TypeError):
        return x * int(x.shape[0])
    return x


@pytest.mark.parametrize(
    "function",
    [
        caught_error,
        suppressed_error,
        lambda x: x * 2 if x.shape[0] > 1.5 else x,
        lambda x: x * 2 if x.shape[0] <= math.inf else x,
        lambda x: x * 2 if x.shape[0] >= np.int64(2) else x,
        lambda x: x * len(f"{x.shape[0]}"),
        lambda x: x * len(str(x.shape[0])),
        lambda x: x * 2 if x.shape[1] == sr.ragged([[1.0, 2.0], [], [3.0]]).shape[1] else x,
    ],
)
def test_what_only_a_call_knows_is_an_error_also_where_the_function_catches_it(function):
    x = sr.ragged([[1.0, 2.0], [], [3.0]])
    with pytest.raises(sr.errors.TracerError):
        sr.jit(function)(x)


def test_two_arguments_whose_rows_are_compared_are_refused_unless_they_share_them():
    function = sr.jit(lambda x, y: x * 2 if x.shape[1] == y.shape[1] else x * 3)
    x = sr.ragged([[1.0, 2.0], [], [3.0]])
    assert function(x, x + 1).tolist() == [[2.0, 4.0], [], [6.0]]
    with pytest.raises(sr.errors.TracerError, match="whether the rows of two tensors have the same lengths"):
        function(x, sr.ragged([[1.0, 2.0], [], [3.0]]))


def test_a_size_that_is_compared_with_a_tensor_gives_a_tensor():
    x = sr.ragged([[1.0, 2.0], [], [3.0]])
    function = sr.jit(lambda x, t: (x.shape[0] > t, x.shape[0] == t, t <= x.shape[0]))
    numbers = torch.arange(5)
    for got, want in zip(function(x, numbers), (numbers < 3, numbers == 3, numbers <= 3), strict=True):
        assert got.tolist() == want.tolist()


def inverse_or_nothing(x):
    try:
        return torch.linalg.cholesky(x)
    except RuntimeError:
        return x * 0


def quotient_or_nothing(x, n, m):
    try:
        return x * (1 / (n - m))
    except ZeroDivisionError:
        return x * 0


def test_errors_of_a_call_that_the_function_catches_take_its_other_branch():
    function = sr.jit(inverse_or_nothing)
    for x in (torch.eye(3), -torch.eye(3), torch.eye(3) * 4):
        torch.testing.assert_close(function(x), inverse_or_nothing(x))
    quotient, x = sr.jit(quotient_or_nothing), sr.ragged([[1.0, 2.0], [], [3.0]])
    for n, m in ((2.0, 1.0), (3.0, 5.0), (4.0, 4.0), (7.0, 3.0)):
        assert quotient(x, n, m).tolist() == quotient_or_nothing(x, n, m).tolist()


@pytest.mark.parametrize(
    "function",
    [
        lambda x, n: x * n if type(n) is int else x,
        lambda x, n: x * n if type(n) == int else x,  # noqa: E721
        lambda x, n: x * n if type(n) in (int, complex) else x,
        lambda x, n: x * n if isinstance(n, int) else x,
        lambda x, n: x if type(n) is not int else x * n,
        lambda x, n: next(x * each for each in (n, 2) if type(each) is int),
    ],
)
def test_the_class_of_a_number_that_changes_is_its_own(function):
    x = sr.ragged([[1.0, 2.0], [], [3.0]])
    made = sr.jit(function)
    for number in (1, 2, 3, 2.5, 3.5, 4):
        assert made(x, number).tolist() == function(x, number).tolist()


def test_a_class_of_no_number_pins_no_number():
    def function(x: Any, n: float) -> Any:
        return x * n if type(x) is not list and float("1") else x

    made, x = sr.jit(function), sr.ragged([[1.0, 2.0], [], [3.0]])
    for number in (1.0, 2.0, 3.0, 4.0):
        assert made(x, number).tolist() == function(x, number).tolist()
    assert made.stats.traces == 2


def _scattered(x: Any) -> Any:
    rows = x.values.shape[0]
    places = torch.arange(rows) % 3
    return torch.zeros(3, dtype=x.dtype).scatter_add(0, places, x.values), torch.zeros(rows, 2).sum(1) + x.values


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.div(x.values, x.values.shape[0]),
        lambda x: torch.zeros(x.shape[0]) + sr.sum(x, axis=1).torch(),
        lambda x: x * torch.arange(x.shape[0])[0],
        lambda x: torch.zeros(x.values.shape[0], 6, dtype=torch.float64),
        lambda x: torch.full((x.values.shape[0], 2), 3.0),
        lambda x: torch.ones(*x.values.shape) + torch.zeros(x.values.shape),
        lambda x: torch.linspace(0, 1, x.values.shape[0]),
        lambda x: torch.tril(torch.ones(x.shape[0], x.shape[0])),
        lambda x: torch.ones(1).expand(x.values.shape[0]) * x.values,
        lambda x: torch.ones(2).repeat(x.values.shape[0], 1) * x.values[:, None],
        lambda x: torch.randn(x.values.shape[0], 2),
        lambda x: x.values[torch.randperm(x.values.shape[0])],
        lambda x: x * 2 if isinstance(x.values.shape[0], int) else x,
        _scattered,
    ],
)
def test_functions_of_torch_take_sizes_that_differ_from_call_to_call(function):
    made = sr.jit(function)
    for lengths in ([2, 0, 3], [4, 1], [3]):
        given = [sr.from_lengths(torch.arange(1.0 * sum(lengths)).requires_grad_(), lengths) for _ in range(2)]
        results = []
        for each, x in zip((made, function), given, strict=True):
            torch.manual_seed(0)
            results.append(each(x))
        same(*results)
    assert made.stats.traces <= 2, "one row is a case of its own"
    assert made.stats.eager_calls == 0
