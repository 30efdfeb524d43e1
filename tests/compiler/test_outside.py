"""What a function finds outside of its arguments is what it is now: globals of helpers, attributes, hooks, defaults."""

from __future__ import annotations

import array
import collections
import contextvars
import functools
import gc
import importlib
import operator
import sys
import types
import weakref
from typing import Any

import pytest
import torch
from tests.compiler.harness import same
from torch import nn

import serrate as sr
from serrate.compiler import naming

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


# -------------------------------------------------------------------------------------- what was not there before


class Scaling:
    def run(self, x: Any) -> Any:
        return x * self.scale if hasattr(self, "scale") else x

    def by_default(self, x: Any) -> Any:
        return x * getattr(self, "scale", 1.0)

    def by_attempt(self, x: Any) -> Any:
        try:
            return x * self.scale
        except AttributeError:
            return x

    def by_question(self, x: Any) -> Any:
        return x + 1 if hasattr(self, "scale") else x


@pytest.mark.parametrize("name", ["run", "by_default", "by_attempt", "by_question"])
@pytest.mark.parametrize("place", ["object", "class", "class below"])
def test_an_attribute_that_comes_and_goes_is_noticed(name, place):
    class Above(Scaling):
        pass

    class Below(Above):
        scale: float

    given = Below()
    holder: Any = {"object": given, "class": Above, "class below": Below}[place]
    made = [sr.jit(getattr(given, name)), sr.jit(lambda x: getattr(given, name)(x))]
    as_argument = sr.jit(lambda x, call: call(x))

    def check() -> None:
        for run in made:
            same(run(X), getattr(given, name)(X))
        same(as_argument(X, getattr(given, name)), getattr(given, name)(X))

    check()
    for scale in (5.0, torch.tensor(7.0), 5.0):
        holder.scale = scale
        check()
        del holder.scale
        check()


def test_an_attribute_that_is_none_is_told_from_none_at_all():
    given: Any = types.SimpleNamespace()
    made = sr.jit(lambda x: x * (2.0 if getattr(given, "scale", 1.0) is None else 1.0))
    same(made(X), X)
    given.scale = None
    same(made(X), X * 2.0)


def test_an_attribute_of_an_object_that_comes_to_stand_before_one_of_its_class_is_noticed():
    class Model:
        scale = 2.0

        def run(self, x: Any) -> Any:
            return self.scaled(x)

        def scaled(self, x: Any) -> Any:
            return x * self.scale

    class Inherited(Model):
        pass

    model: Any = Inherited()
    made = sr.jit(model.run)
    same(made(X), X * 2.0)
    Inherited.scale = 3.0
    same(made(X), X * 3.0)
    model.scale = 4.0
    same(made(X), X * 4.0)
    model.scaled = lambda x: x - 1
    same(made(X), X - 1)
    del model.scaled, model.scale
    same(made(X), X * 3.0)


@pytest.mark.parametrize("which", ["0", "0.1"])
def test_a_forward_that_is_exchanged_in_a_module_is_noticed(which):
    module = nn.Sequential(nn.Sequential(nn.Linear(2, 2), nn.GELU()))
    made, around = sr.jit(module), sr.jit(lambda x: module(x) * 2)
    same(made(X), module(X))
    same(around(X), module(X) * 2)
    part: Any = module.get_submodule(which)
    part.forward = lambda x: x + 1
    same(made(X), module(X))
    same(around(X), module(X) * 2)
    del part.forward
    same(made(X), module(X))


def test_attributes_that_a_module_reads_by_names_that_nobody_sees_count():
    class Asking(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.options_0 = types.SimpleNamespace(scale=2.0)

        def forward(self, x: Any) -> Any:
            number = sum(name.startswith("options") for name in vars(self)) - 1
            return x * getattr(self, f"options_{number}").scale

    module: Any = Asking()
    made, as_argument = sr.jit(module), sr.jit(lambda run, x: run(x))

    def check() -> None:
        same(made(X), module(X))
        same(as_argument(module, X), module(X))

    check()
    module.options_0.scale = 3.0
    check()
    module.options_1 = types.SimpleNamespace(scale=4.0)
    check()
    del module.options_1
    check()


def test_modules_that_exchange_their_names_are_noticed():
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(2, 2), nn.Linear(2, 2)

        def forward(self, x: Any) -> Any:
            return self.first(x) * 2 if hasattr(self, "first") else self.third(x) * 3

    module: Any = Named()
    made = sr.jit(module)
    same(made(X), module(X))
    kept = module._modules
    first, second = kept.pop("first"), kept.pop("second")
    kept["third"], kept["second"] = first, second
    same(made(X), module(X))


def test_a_global_that_comes_to_stand_before_a_builtin_is_noticed():
    scope: dict[str, Any] = {}
    exec("def counted(x): return x * len('abc')", scope)
    made = sr.jit(scope["counted"])
    same(made(X), X * 3)
    scope["len"] = lambda _: 7
    same(made(X), X * 7)
    del scope["len"]
    same(made(X), X * 3)
    assert made.stats.traces == 2


# ------------------------------------------------------------------------------------ what is called without a name

SCALES = {"scale": 2.0}


def scale_now() -> float:
    return SCALES["scale"]


class Implicit:
    def __init__(self) -> None:
        self.made = scale_now()

    def __getitem__(self, key: str) -> float:
        return scale_now()

    def __len__(self) -> int:
        return int(scale_now())

    def __iter__(self) -> Any:
        return iter([scale_now()])

    def __contains__(self, item: Any) -> bool:
        return scale_now() > 2

    def __enter__(self) -> float:
        return scale_now()

    def __exit__(self, *_: object) -> None:
        return None

    def __add__(self, other: Any) -> Any:
        return other + scale_now()

    def __eq__(self, other: object) -> bool:
        return scale_now() == other

    def __hash__(self) -> int:
        return 1


IMPLICIT = Implicit()


def by_enter(x: Any) -> Any:
    with IMPLICIT as scale:
        return x * scale


def by_match(x: Any) -> Any:
    match POINT:
        case Point(scale=2.0):
            return x * 2
        case Point(_, shift):
            return x + shift
    raise AssertionError


class Point:
    __match_args__ = ("first", "shift")

    def __init__(self) -> None:
        self.first, self.shift, self.scale = 1.0, 3.0, 2.0


POINT = Point()


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * IMPLICIT["scale"],
        lambda x: x * len(IMPLICIT),
        lambda x: sum([x * each for each in IMPLICIT], x),
        lambda x: x * 2 if 1 in IMPLICIT else x,
        by_enter,
        lambda x: IMPLICIT + x,
        lambda x: x * 2 if IMPLICIT == 2.0 else x,
        lambda x: x * Implicit().made,
        lambda x: x * (lambda kind: kind())(Implicit).made,
    ],
    ids=["getitem", "len", "iter", "contains", "enter", "add", "eq", "init", "class"],
)
def test_what_methods_that_nobody_names_find_outside_counts(function, monkeypatch):
    monkeypatch.setitem(SCALES, "scale", 2.0)
    made = sr.jit(function)
    same(made(X), function(X))
    for scale in (5.0, 2.0):
        SCALES["scale"] = scale
        same(made(X), function(X))
    assert (made.stats.traces, made.stats.eager_calls) == (2, 0)


def test_attributes_that_a_pattern_names_count(monkeypatch):
    made = sr.jit(by_match)
    same(made(X), by_match(X))
    for name, value in (("scale", 1.0), ("shift", 5.0), ("shift", torch.tensor(6.0)), ("scale", 2.0)):
        monkeypatch.setattr(POINT, name, value)
        same(made(X), by_match(X))


@pytest.fixture
def package(tmp_path, monkeypatch) -> types.ModuleType:
    (tmp_path / "of_the_user").mkdir()
    (tmp_path / "of_the_user" / "__init__.py").write_text("scale = 2.0\n")
    (tmp_path / "of_the_user" / "inner.py").write_text(
        "shift = 1.0\ndef relative(x):\n    from . import scale\n    from .inner import shift\n"
        "    return x * scale + shift\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("of_the_user", "of_the_user.inner"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    importlib.import_module("of_the_user.inner")
    return importlib.import_module("of_the_user")


def by_import(x: Any) -> Any:
    import of_the_user
    import of_the_user.inner as renamed

    return x * of_the_user.scale + renamed.shift


def by_import_of_names(x: Any) -> Any:
    from of_the_user import scale
    from of_the_user.inner import shift

    return x * scale + shift


@pytest.mark.parametrize("name", ["by_import", "by_import_of_names", "relative"])
def test_what_a_function_imports_counts(package, name):
    function = package.inner.relative if name == "relative" else globals()[name]
    made = sr.jit(function)
    for scale, shift in ((2.0, 1.0), (3.0, 1.0), (3.0, 4.0)):
        package.scale, package.inner.shift = scale, shift
        same(made(X), X * scale + shift)
    assert (made.stats.traces, made.stats.eager_calls) == (3, 0)


def test_of_installed_packages_modules_and_what_functions_name_nearby_are_seen(package, tmp_path, monkeypatch):
    monkeypatch.setattr(naming, "_INSTALLED", (str(tmp_path),))
    naming._is_installed.cache_clear()
    text = (
        "from torch import nn\nclass Block(nn.Module):\n    def __init__(self, inner):\n        super().__init__()\n"
        "        self.inner, self.scale = inner, 2.0\n    def forward(self, x):\n"
        "        return self.inner(x) * self.scale\n"
    )
    exec(text, vars(package))
    innermost = module = package.Block(nn.Identity())
    for _ in range(10):
        module = package.Block(module)
    made, relative = sr.jit(module), sr.jit(lambda x: package.inner.relative(x))
    same(made(X), X * 2.0**11)
    same(relative(X), X * 2.0 + 1.0)
    innermost.scale, package.scale = 4.0, 3.0
    same(made(X), X * 2.0**12)
    same(relative(X), X * 3.0 + 1.0)
    naming._is_installed.cache_clear()


@functools.lru_cache
def cached(kind: str) -> float:
    return SCALES[kind]


READ = operator.attrgetter("options.hidden")
OWNER = types.SimpleNamespace(options=types.SimpleNamespace(hidden=2.0))


def test_helpers_that_libraries_wrap_are_followed(monkeypatch):
    monkeypatch.setitem(SCALES, "scale", 2.0)
    by_cache, by_getter = sr.jit(lambda x: x * cached("scale")), sr.jit(lambda x: x * READ(OWNER))
    cached.cache_clear()
    same(by_cache(X), X * 2.0)
    same(by_getter(X), X * 2.0)
    SCALES["scale"] = 3.0
    cached.cache_clear()
    same(by_cache(X), X * 3.0)
    monkeypatch.setattr(OWNER.options, "hidden", 4.0)
    same(by_getter(X), X * 4.0)


def test_properties_that_keep_their_value_are_followed(monkeypatch):
    class Cached:
        @functools.cached_property
        def scale(self) -> float:
            return scale_now()

        half = functools.partialmethod(lambda self, factor: factor * scale_now(), 0.5)

    monkeypatch.setitem(SCALES, "scale", 2.0)
    given = Cached()
    made, halved = sr.jit(lambda x: x * given.scale), sr.jit(lambda x: x * given.half())
    same(made(X), X * 2.0)
    same(halved(X), X)
    SCALES["scale"] = 6.0
    same(halved(X), X * 3.0)
    same(made(X), X * 2.0)
    del given.scale
    same(made(X), X * 6.0)


# --------------------------------------------------------------------------------------------------------- how deep


def h0(x: Any) -> Any:
    return x * SCALES["scale"]


def h1(x: Any) -> Any:
    return h0(x)


def h2(x: Any) -> Any:
    return h1(x)


def h3(x: Any) -> Any:
    return h2(x)


def h4(x: Any) -> Any:
    return h3(x)


def h5(x: Any) -> Any:
    return h4(x)


def h6(x: Any) -> Any:
    return h5(x)


def h7(x: Any) -> Any:
    return h6(x)


def test_a_chain_of_helpers_is_followed_to_its_end(monkeypatch):
    monkeypatch.setitem(SCALES, "scale", 2.0)
    made = sr.jit(lambda x: h7(x))
    same(made(X), X * 2.0)
    SCALES["scale"] = 3.0
    same(made(X), X * 3.0)


def test_a_chain_of_objects_and_of_closures_is_followed_to_its_end():
    inner: Any = types.SimpleNamespace(scale=2.0)
    model = inner
    for _ in range(10):
        model = types.SimpleNamespace(inner=model)

    def found(given: Any) -> Any:
        return found(given.inner) if hasattr(given, "inner") else given

    def wrapped(function: Any, times: int) -> Any:
        return wrapped(lambda x: function(x), times - 1) if times else function

    made = sr.jit(wrapped(lambda x: x * found(model).scale, 10))
    same(made(X), X * 2.0)
    inner.scale = 3.0
    same(made(X), X * 3.0)


# ------------------------------------------------------------------------------------------------ what is exchanged


def test_defaults_and_code_that_are_exchanged_are_noticed():
    def scaled(x: Any, scale: float = 2.0, *, shift: float = 0.0) -> Any:
        return x * scale + shift

    def other(x: Any, scale: float = 2.0, *, shift: float = 0.0) -> Any:
        return x - scale - shift

    made, around = sr.jit(scaled), sr.jit(lambda x: scaled(x))

    def check() -> None:
        same(made(X), scaled(X))
        same(around(X), scaled(X))

    check()
    scaled.__defaults__ = (5.0,)
    check()
    assert scaled.__kwdefaults__ is not None
    scaled.__kwdefaults__["shift"] = 3.0
    check()
    scaled.__kwdefaults__ = {"shift": 4.0}
    check()
    scaled.__code__ = other.__code__
    check()


def test_another_class_of_an_object_is_noticed():
    class First:
        def scaled(self, x: Any) -> Any:
            return x * 2

    class Second(First):
        def scaled(self, x: Any) -> Any:
            return x * 3

    given, module = First(), Scaled().eval()
    made, around = sr.jit(lambda x: given.scaled(x)), sr.jit(module)
    same(made(X), X * 2)
    same(around(X), module(X))
    given.__class__ = Second
    module.__class__ = type("Other", (Scaled,), {"forward": lambda self, x: x * 7})
    same(made(X), X * 3)
    same(around(X), X * 7)


@pytest.mark.parametrize("kind", [collections.deque, types.MappingProxyType, collections.UserList])
def test_containers_of_the_standard_library_that_change_are_noticed(kind):
    entries: Any = {0: 2.0} if kind is types.MappingProxyType else [2.0]
    given = kind(entries)
    made = sr.jit(lambda x: x * given[0] + len(given))
    same(made(X), X * 2.0 + 1)
    (entries if kind is types.MappingProxyType else given)[0] = 3.0
    same(made(X), X * 3.0 + 1)


@pytest.mark.parametrize("given", [bytearray(b"ab"), array.array("d", [2.0, 3.0])], ids=["bytes", "array"])
def test_arrays_of_the_standard_library_count_by_their_elements(given):
    made, as_argument = sr.jit(lambda x: x * given[0]), sr.jit(lambda x, given: x * given[0])
    for value in (2, 5, 2):
        given[0] = value
        same(made(X), X * given[0])
        same(as_argument(X, given), X * given[0])
    assert made.stats.traces == as_argument.stats.traces == 2


def test_what_a_context_holds_and_functions_that_are_registered_count():
    scale: contextvars.ContextVar[float] = contextvars.ContextVar("scale", default=2.0)

    @functools.singledispatch
    def chosen(given: Any) -> float:
        return 3.0

    made, choosing = sr.jit(lambda x: x * scale.get()), sr.jit(lambda x: x * chosen(1))
    same(made(X), X * 2.0)
    same(choosing(X), X * 3.0)
    token = scale.set(5.0)
    chosen.register(int)(lambda given: 7.0)
    same(made(X), X * 5.0)
    same(choosing(X), X * 7.0)
    scale.reset(token)
    same(made(X), X * 2.0)


def test_a_long_list_that_becomes_longer_is_noticed():
    given = [1.0] * 1000
    made = sr.jit(lambda x: x * len(given))
    same(made(X), X * 1000)
    given.append(1.0)
    same(made(X), X * 1001)


def test_attributes_of_modules_of_torch_that_are_no_plain_values_count():
    layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True, dropout=0.0)
    x, channels = torch.rand(2, 3, 4), torch.rand(1, 2, 9)
    made = sr.jit(layer)
    torch.testing.assert_close(made(x), layer(x))
    layer.activation = torch.tanh
    layer.activation_relu_or_gelu = 0
    torch.testing.assert_close(made(x), layer(x))
    layer.activation = nn.functional.silu
    torch.testing.assert_close(made(x), layer(x))
    conv = nn.Conv1d(2, 2, 3)
    convolved = sr.jit(conv)
    torch.testing.assert_close(convolved(channels), conv(channels))
    conv.dilation = (2,)
    torch.testing.assert_close(convolved(channels), conv(channels))


# ---------------------------------------------------------------------------------------------------------- hooks


def test_what_a_hook_finds_outside_counts(monkeypatch):
    monkeypatch.setitem(SCALES, "scale", 2.0)
    factor, module = 3.0, nn.Sequential(nn.Linear(2, 2))
    module[0].register_forward_hook(lambda module, given, made: made * factor * scale_now())
    module[0].register_forward_pre_hook(lambda module, given: (given[0] + factor,))
    made = sr.jit(module)
    same(made(X), module(X))
    factor = 5.0
    same(made(X), module(X))
    SCALES["scale"] = 7.0
    same(made(X), module(X))


@pytest.mark.parametrize("register", ["register_full_backward_hook", "register_full_backward_pre_hook"])
def test_modules_with_backward_hooks_inside_run_eagerly(register):
    module, seen = nn.Sequential(nn.Linear(2, 2), nn.GELU()), []
    made, as_argument = sr.jit(module), sr.jit(lambda run, x: run(x))
    same(made(X), module(X))
    x = torch.rand(3, 2, requires_grad=True)
    hook = getattr(module[0], register)(lambda *given: seen.append(1))
    made(x).sum().backward()
    assert len(seen) == 1
    as_argument(module, x).sum().backward()
    assert len(seen) == 2
    assert "backward hooks" in made.lower(x).reason
    assert "backward hooks" in as_argument.lower(module, x).reason
    hook.remove()
    assert made.lower(X).reason == ""
    same(made(X), module(X))


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
