"""What a function finds outside of its arguments is what it is now: globals of helpers, attributes, hooks, defaults."""

from __future__ import annotations

import functools
import gc
import types
import weakref
from typing import Any

import pytest
import torch
from tests.compiler.harness import same
from torch import nn

import serrate as sr

X = sr.from_lengths(torch.arange(10.0).view(5, 2), [3, 0, 2])
FACTOR = 2.0
OPTIONS = {"scale": 2.0, "names": ["a"]}
LATER: Any


def helper(x: Any) -> Any:
    return x * FACTOR


def by_a_helper(x: Any) -> Any:
    return helper(x) + 1


def by_a_lambda_inside(x: Any) -> Any:
    return (lambda y: y * FACTOR)(x)


def by_a_comprehension(x: Any) -> Any:
    return sum([x * FACTOR for _ in range(2)], x)


def by_a_dict(x: Any) -> Any:
    return x * OPTIONS["scale"] + len(OPTIONS["names"])


@pytest.mark.parametrize("function", [by_a_helper, by_a_lambda_inside, by_a_comprehension])
def test_a_global_that_inner_functions_and_helpers_name_is_what_it_is_now(function, monkeypatch):
    made = sr.jit(function)
    same(made(X), function(X))
    monkeypatch.setitem(globals(), "FACTOR", 5.0)
    same(made(X), function(X))
    monkeypatch.setitem(globals(), "FACTOR", torch.tensor([1.0, 3.0]))
    same(made(X), function(X))
    monkeypatch.setitem(globals(), "FACTOR", 2.0)
    same(made(X), function(X))
    assert made.stats.traces == 3


def test_a_helper_that_is_exchanged_is_noticed(monkeypatch):
    made = sr.jit(by_a_helper)
    same(made(X), X * 2.0 + 1)
    monkeypatch.setitem(globals(), "helper", lambda x: x - 1)
    same(made(X), X - 1 + 1)


def test_a_global_that_is_defined_after_the_function_is_noticed():
    scope = {"sr": sr, "torch": torch}
    exec("@sr.jit\ndef late(x): return x * W + C\nW, C = torch.tensor(2.0), 1.0\n", scope)
    late: Any = scope["late"]
    same(late(X), X * 2.0 + 1.0)
    scope["C"] = 4.0
    same(late(X), X * 2.0 + 4.0)
    scope["W"] = torch.tensor(7.0)
    same(late(X), X * 7.0 + 4.0)


def test_entries_of_dicts_and_lists_count(monkeypatch):
    monkeypatch.setitem(globals(), "OPTIONS", {"scale": 2.0, "names": ["a"]})
    made = sr.jit(by_a_dict)
    same(made(X), by_a_dict(X))
    OPTIONS["scale"] = 3.0
    same(made(X), X * 3.0 + 1)
    OPTIONS["names"].append("b")
    same(made(X), X * 3.0 + 2)


def test_attributes_of_attributes_of_an_object_count():
    class Model:
        offset = 1.0

        def __init__(self) -> None:
            self.options = types.SimpleNamespace(scale=2.0)
            self.calls = 0

        @sr.jit
        def run(self, x: Any) -> Any:
            return self.shifted(x * self.options.scale)

        def shifted(self, x: Any) -> Any:
            return x + self.offset

    model = Model()
    same(model.run(X), X * 2.0 + 1.0)
    model.calls += 1  # which no function names
    same(model.run(X), X * 2.0 + 1.0)
    assert model.run.stats.traces == 1
    model.options.scale = 3.0
    same(model.run(X), X * 3.0 + 1.0)
    Model.offset = 5.0
    same(model.run(X), X * 3.0 + 5.0)
    model.offset = 7.0
    same(model.run(X), X * 3.0 + 7.0)


def test_defaults_partials_wrappers_and_callable_objects():
    scale = 1.0

    def scaled(x: Any, shift: float, weights: Any = (), *, power: int = 1) -> Any:
        return x * scale**power + shift + len(weights)

    scaled.__defaults__ = ([],)

    @functools.wraps(scaled)
    def wrapped(*arguments: Any) -> Any:
        return scaled(*arguments) + 1

    class Callable:
        def __init__(self) -> None:
            self.shift = 1.0

        def __call__(self, x: Any) -> Any:
            return scaled(x, self.shift)

    functions = [functools.partial(scaled, shift=1.0), lambda x: wrapped(x, 2.0), Callable()]
    made = [sr.jit(each) for each in functions]
    for change in range(4):
        if change == 1:
            scale = 4.0
        elif change == 2:
            scaled.__defaults__[0].append(1)
        elif change == 3:
            functions[2].shift = 9.0  # type: ignore[attr-defined]
        for one, function in zip(made, functions, strict=True):
            same(one(X), function(X))


# ------------------------------------------------------------------------------------------------------- modules


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.alpha = 2.0
        self.inner = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5))
        self.mode = {"shift": 1.0}

    def forward(self, x: Any) -> Any:
        return self.inner(x * self.alpha) + self.mode["shift"]


def test_attributes_of_modules_count():
    module = Scaled()
    made = sr.jit(module)

    def check() -> None:
        for run in (made, module):
            torch.manual_seed(0)
            got.append(run(X))
        same(got.pop(), got.pop())

    got: list[Any] = []
    check()
    module.alpha = 3.0
    check()
    module.inner[1].p = 0.25
    check()
    module.mode["shift"] = 2.0
    check()
    assert made.stats.traces == 4


def test_hooks_that_come_and_go_count():
    module = nn.Sequential(nn.Linear(2, 2))
    made = sr.jit(module)
    plain = made(X)
    hook = module[0].register_forward_hook(lambda *given: given[2] * 2)
    same(made(X), module(X))
    with pytest.raises(AssertionError):
        same(made(X), plain)
    hook.remove()
    same(made(X), plain)


def test_the_part_of_a_module_is_made_again_only_when_its_parameters_or_attributes_change(monkeypatch):
    module = Scaled().eval()
    made, looks = sr.jit(module), []
    look = type(made._outside)._looked
    monkeypatch.setattr(type(made._outside), "_looked", lambda self: looks.append(self) or look(self))
    for _ in range(3):
        made(X)
    assert len(looks) == 1
    with torch.no_grad():
        module.inner[0].weight.mul_(2)
    made(X)
    assert len(looks) == 1
    module.inner[0].weight = nn.Parameter(torch.ones(2, 2))
    same(made(X), module(X))
    assert len(looks) == 2


def test_a_module_and_a_function_as_arguments():
    first, second = nn.Linear(2, 2), nn.Linear(2, 2)
    made = sr.jit(lambda model, x, after: after(model(x)))
    same(made(first, X, torch.exp), sr.exp(first(X)))
    same(made(second, X, torch.sin), sr.sin(second(X)))
    model = Scaled().eval()
    same(made(model, X, torch.exp), sr.exp(model(X)))
    model.alpha = 0.5
    same(made(model, X, torch.exp), sr.exp(model(X)))
    model.train()
    torch.manual_seed(1)
    got = made(model, X, torch.exp)
    torch.manual_seed(1)
    same(got, sr.exp(model(X)))


def test_one_parameter_of_two_modules_has_the_gradient_of_both():
    pairs = []
    for run in (lambda f: f, sr.jit):
        torch.manual_seed(0)
        module = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
        module[1].weight = module[0].weight
        out = run(module)(X)
        sr.sum(out * out).values.backward()
        pairs.append((out, [each.grad for each in module.parameters()]))
    same(pairs[1], pairs[0])


# ------------------------------------------------------------------------------------------------------- memory


def test_nothing_that_is_given_or_made_is_kept_by_a_compiled_function():
    made = sr.jit(lambda x: sr.softmax(x, axis=1) * x)

    def called() -> list[weakref.ref[Any]]:
        x = sr.from_lengths(torch.rand(5, 2).requires_grad_(), [3, 0, 2])
        got = made(x)
        sr.sum(got).values.backward()
        return [weakref.ref(each) for each in (x, x.values, got, got.values)]

    kept = called()
    gc.collect()
    assert [each() for each in kept] == [None] * 4


def test_a_compiled_function_goes_with_what_it_captured():
    def called() -> list[weakref.ref[Any]]:
        w = torch.rand(2)
        made = sr.jit(lambda x: x * w)
        made(X)
        return [weakref.ref(made), weakref.ref(w)]

    kept = called()
    gc.collect()
    assert [each() for each in kept] == [None, None]
