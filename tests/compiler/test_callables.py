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
