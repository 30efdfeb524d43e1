"""What can be compiled: functions of any signature, methods of any kind, partials, objects, recursive functions."""

from __future__ import annotations

import copy
import functools
import pickle
from typing import Any

import pytest
import torch
from tests.compiler.harness import same
from torch import nn

import serrate as sr
from serrate.compiler import signature

X = sr.from_lengths(torch.arange(5.0), [3, 0, 2])


class Methods:
    factor = 2.0

    @classmethod
    @sr.jit
    def of_the_class(cls, x: Any) -> Any:
        return x * cls.factor

    @sr.jit
    @classmethod
    def of_the_class_too(cls, x: Any) -> Any:
        return x * cls.factor

    @staticmethod
    @sr.jit
    def of_nobody(x: Any) -> Any:
        return x * 3.0

    @sr.jit
    @staticmethod
    def of_nobody_too(x: Any) -> Any:
        return x * 3.0


@pytest.mark.parametrize("owner", [Methods, Methods()])
def test_class_methods_and_static_methods(owner, monkeypatch):
    for made in (owner.of_the_class, owner.of_the_class_too):
        same(made(X), X * 2.0)
    for made in (owner.of_nobody, owner.of_nobody_too):
        same(made(X), X * 3.0)
    monkeypatch.setattr(Methods, "factor", 5.0)
    same(owner.of_the_class(X), X * 5.0)
    same(owner.of_the_class_too(X), X * 5.0)


def test_a_method_of_a_class_with_slots():
    class Slotted:
        __slots__ = ("factor",)

        def __init__(self, factor: float) -> None:
            self.factor = factor

        @sr.jit
        def scaled(self, x: Any) -> Any:
            return x * self.factor

    one, two = Slotted(2.0), Slotted(3.0)
    same(one.scaled(X), X * 2.0)
    same(two.scaled(X), X * 3.0)
    one.factor = 7.0
    same(one.scaled(X), X * 7.0)


def test_defaults_more_arguments_and_names():
    def function(x: Any, y: Any = None, *more: Any, k: float = 2.0, **named: Any) -> Any:
        made = x * k
        for each in more:
            made = made + each
        for name in sorted(named):
            made = made * named[name]
        return made if y is None else made + y

    made = sr.jit(function)
    for given, named in (
        ((X,), {}), ((X, X), {}), ((X, X, X, 2), {}), ((X,), {"k": 3.0}), ((X,), {"z": X, "a": 2}),
        ((X,), {"a": 2, "z": X}), ((), {"x": X}), ((), {"y": X, "x": X}),
    ):  # fmt: skip
        same(made(*given, **named), function(*given, **named))
    assert made.stats.eager_calls == 0
    with pytest.raises(TypeError, match="x"):
        made()


def test_partials_bound_methods_and_callable_objects():
    class Object:
        def __init__(self) -> None:
            self.shift = torch.tensor(1.0)

        def __call__(self, x: Any) -> Any:
            return x + self.shift

        def method(self, x: Any) -> Any:
            return x - self.shift

    given, w = Object(), torch.tensor(3.0)
    partial = functools.partial(lambda x, w, k: x * w + k, w=w, k=1.0)
    for function in (given, given.method, partial):
        made = sr.jit(function)
        same(made(X), function(X))
        w += 1
        given.shift = given.shift + 1
        same(made(X), function(X))


def test_recursive_functions_and_compiled_ones_that_call_each_other():
    @sr.jit
    def power(x: Any, n: int) -> Any:
        return x if n == 0 else power(x * 1.5, n - 1)

    for n in (0, 1, 3):
        same(power(X, n), X * 1.5**n if n else X)

    @sr.jit
    def even(x: Any, n: int) -> Any:
        return x if n == 0 else odd(x + 1, n - 1)

    @sr.jit
    def odd(x: Any, n: int) -> Any:
        return even(x * 2, n - 1)

    same(even(X, 4), (((X + 1) * 2) + 1) * 2)
    assert odd.stats.calls == 0


def test_copies_and_pickles_of_compiled_modules():
    made = sr.jit(nn.Sequential(nn.Linear(2, 2)))
    x = sr.from_lengths(torch.rand(5, 2), [3, 0, 2])
    want = made(x)
    for other in (copy.deepcopy(made), pickle.loads(pickle.dumps(made)), copy.copy(made)):
        same(other(x), want)
    apart = copy.deepcopy(made)
    with torch.no_grad():
        apart.function[0].weight.mul_(2)
    assert not torch.equal(apart(x).values, want.values)
    same(made(x), want)


class Scaling:
    def __init__(self, scale: float = 2.0) -> None:
        self.scale = scale

    @sr.jit
    def scaled(self, x: Any) -> Any:
        return x * self.scale

    def __call__(self, x: Any) -> Any:
        return x * self.scale


class ScalingModule(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = 2.0

    @sr.jit
    def scaled(self, x: Any) -> Any:
        return x * self.scale


@pytest.mark.parametrize("kind", [Scaling, ScalingModule])
def test_a_copy_of_an_object_has_compiled_methods_of_its_own(kind):
    one = kind()
    same(one.scaled(X), X * 2.0)
    two = copy.copy(one)
    two.scale = 5.0
    three = copy.copy(two)
    three.scale = 7.0
    for _ in range(2):
        same(two.scaled(X), X * 5.0)
        same(three.scaled(X), X * 7.0)
        same(one.scaled(X), X * 2.0)
    assert one.scaled is one.scaled
    assert one.scaled.stats.traces == two.scaled.stats.traces == 1
    other = copy.deepcopy(one)
    other.scale = 9.0
    same(other.scaled(X), X * 9.0)


class Unhashable(Scaling):
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Unhashable)


class Equal(Scaling):
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Equal)

    def __hash__(self) -> int:
        return 1


class Slotted:
    __slots__ = ("scale",)

    def __init__(self, scale: float = 2.0) -> None:
        self.scale = scale

    def __call__(self, x: Any) -> Any:
        return x * self.scale


@pytest.mark.parametrize("kind", [Scaling, Unhashable, Equal, Slotted])
def test_callables_as_arguments_count_by_their_identity_and_by_what_they_hold(kind, monkeypatch):
    made = sr.jit(lambda x, call: call(x))
    one, two = kind(2.0), kind(3.0)
    same(made(X, one), X * 2.0)
    same(made(X, two), X * 3.0)
    one.scale = 4.0
    same(made(X, one), X * 4.0)
    same(made(X, two), X * 3.0)
    one.scale = 2.0
    same(made(X, one), X * 2.0)
    assert made.stats.traces == 3
    monkeypatch.setattr(signature, "_OTHERS", 2)
    for scale in (5.0, 6.0, 7.0, 8.0):
        same(made(X, kind(scale)), X * scale)
        one.scale = scale
        same(made(X, one), X * scale)


def test_bound_methods_as_arguments_are_one_signature():
    made, one = sr.jit(lambda x, call: call(x)), Slotted(2.0)
    for _ in range(3):
        same(made(X, one.__call__), X * 2.0)
    one.scale = 3.0
    same(made(X, one.__call__), X * 3.0)
    assert made.stats.traces == 2
