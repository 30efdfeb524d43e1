"""What holds the tensors that a compiled function takes and gives: trees of any kind, shapes and constants."""

from __future__ import annotations

import collections
import dataclasses
import enum
import functools
import types
from typing import Any

import pytest
import torch
from tests.compiler.harness import agree_with_gradients, same
from torch.utils import _pytree as pytree

import serrate as sr
from serrate.errors import TracerError


def rows(seed: int = 0) -> sr.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return sr.from_lengths(torch.rand(5, 2, generator=generator), [3, 0, 2])


@dataclasses.dataclass
class Batch:
    x: Any
    scale: float = 2.0
    name: str = "batch"


@dataclasses.dataclass(frozen=True)
class Frozen:
    x: Any
    y: Any = None


class Node:
    def __init__(self, left: Any, right: Any, label: str) -> None:
        self.left, self.right, self.label = left, right, label


pytree.register_pytree_node(Node, lambda n: ([n.left, n.right], n.label), lambda parts, label: Node(*parts, label))


def test_a_dataclass_is_taken_apart_and_put_together():
    def function(given: Batch) -> Batch:
        return Batch(given.x * given.scale, 0.0, given.name + "!")

    made = sr.jit(function)
    for given in (Batch(rows()), Batch(rows(1)), Batch(rows(2), 3.0), Batch(rows(2), 4.0), Batch(rows(), name="other")):
        got, want = made(given), function(given)
        assert type(got) is Batch
        same(got.x, want.x)
        assert got.name == want.name
    given.x = rows(7)
    same(made(given).x, function(given).x)
    assert made.stats.eager_calls == 0
    assert made.stats.traces == 3  # the first, one without the number, one for the name


def test_a_frozen_dataclass_keeps_its_gradients():
    leaf = rows().values.requires_grad_()
    got = sr.jit(lambda given: Frozen(given.x * 2, {"y": given.y}))(Frozen(sr.from_lengths(leaf, [3, 0, 2]), rows(1)))
    assert isinstance(got, Frozen)
    sr.sum(got.x).values.backward()
    torch.testing.assert_close(leaf.grad, torch.full((5, 2), 2.0))


@pytest.mark.parametrize("kind", [collections.OrderedDict, lambda d: collections.defaultdict(list, d)])
def test_dicts_of_other_classes_keep_class_order_and_elements(kind):
    def function(given: Any) -> Any:
        made = type(given)() if not isinstance(given, collections.defaultdict) else collections.defaultdict(list)
        for name in reversed(list(given)):
            made[name] = given[name] + 1
        return made

    made, given = sr.jit(function), kind({"a": rows(), "b": rows(1)})
    same(made(given), function(given))
    given["a"] = rows(3)
    same(made(given), function(given))
    assert made.stats.traces == 1


def test_what_is_registered_as_a_tree_with_torch():
    made = sr.jit(lambda node: Node(node.right + 1, [node.left], node.label))
    got = made(Node(rows(), rows(1), "left"))
    assert type(got) is Node
    same(got.left, rows(1) + 1)
    same(got.right, [rows()])
    assert made(Node(rows(2), rows(3), "left")).label == "left"
    assert made.stats.traces == 1
    assert made(Node(rows(2), rows(3), "other")).label == "other"


def test_nested_containers_of_all_kinds_with_gradients():
    Named = collections.namedtuple("Named", ["first", "second"])

    def function(x: Any, y: Any) -> Any:
        made = sr.exp(x) * y
        return {"a": Named(made, [x, (made + 1,)]), "b": collections.OrderedDict(c=made * 2, d=None), "e": (), "f": []}

    got = sr.jit(function)(rows(), rows()._with(rows(1).values))
    assert isinstance(got["a"], Named)
    assert isinstance(got["b"], collections.OrderedDict)
    agree_with_gradients(function, rows(), rows()._with(rows(1).values))


def test_constants_of_all_kinds_come_as_they_are():
    class Color(enum.Enum):
        RED = 1

    constants = (1, 2.5, None, "text", b"bytes", True, torch.float64, torch.device("cpu"), Color.RED, range(3), 1j, ...)
    got = sr.jit(lambda x: (x * 1, constants, {"set": {1, 2}}))(rows())
    assert got[1] == constants
    assert got[2] == {"set": {1, 2}}


@pytest.mark.parametrize("needs", [False, True])
def test_shapes_sizes_and_partitions_that_are_returned_are_those_of_the_call(needs):
    def function(x: Any) -> Any:
        return x * 2, x.shape, x.shape[0] * 2 + 1, {"n": x.values.shape[0]}, x.partitions[0]

    made = sr.jit(function)
    for lengths in ([3, 0, 2], [1], [4, 4, 4, 4]):
        x = sr.from_lengths(torch.rand(sum(lengths), 2).requires_grad_(needs), lengths)
        got, want = made(x), function(x)
        same(got[0], want[0])
        assert got[1:4] == want[1:4]
        assert repr(got[1]) == repr(want[1])
        assert got[4] is x.partitions[0]
    assert made.stats.traces == 1


def test_objects_sets_and_enums_that_are_arguments_count_by_what_they_hold():
    class Options:
        def __init__(self) -> None:
            self.scale, self.inner = 2.0, types.SimpleNamespace(shift=torch.tensor(1.0))

    class Slotted:
        __slots__ = ("k",)

    def function(x: Any, options: Any, names: set[str], slotted: Any) -> Any:
        return x * options.scale + options.inner.shift + len(names) + slotted.k

    made, options, names, slotted = sr.jit(function), Options(), {"a"}, Slotted()
    slotted.k = 1
    for change in range(5):
        if change == 1:
            options.scale = 3.0
        elif change == 2:
            options.inner.shift = torch.tensor(5.0)
        elif change == 3:
            names.add("b")
        elif change == 4:
            slotted.k = 4
        same(made(rows(), options, names, slotted), function(rows(), options, names, slotted))
    assert made.stats.eager_calls == 0


def test_iterators_are_read_by_the_function_itself():
    made = sr.jit(lambda parts: sum(parts, 0))
    for _ in range(2):
        same(made(x for x in [rows(), rows()]), 0 + rows() + rows())
    assert made.stats.eager_calls == 2
    assert "once" in made.lower(iter([rows()])).reason


def test_what_would_hide_tensors_is_refused():
    class Hidden:
        def __init__(self, x: Any) -> None:
            self.x = x

    def generates(x: Any) -> Any:
        yield x * 2

    with pytest.raises(TracerError, match=r"Hidden.*dataclasses"):
        sr.jit(lambda x: Hidden(x * 2))(rows())
    with pytest.raises(TracerError, match=r"generator.*list or a tuple"):
        sr.jit(generates)(rows())
    with pytest.raises(TracerError, match=r"map.*list or a tuple"):
        sr.jit(lambda x: map(sr.exp, [x]))(rows())


def test_tensors_that_torch_made_inside_are_other_ones_in_each_call():
    made = sr.jit(lambda x: (torch.zeros(3), torch.arange(2), sr.ones(2), x * 1))
    first = made(rows())
    for each in first:
        each += 1
    zeros, numbers, ones, _ = made(rows())
    assert (zeros.tolist(), numbers.tolist(), ones.tolist()) == ([0.0] * 3, [0, 1], [1.0, 1.0])


def test_a_dict_of_another_order_is_another_signature_and_names_are_kept():
    made = sr.jit(lambda given: given["a"] - given["b"])
    same(made({"a": rows(), "b": rows() * 2}), rows() - rows() * 2)
    same(made({"b": rows(), "a": rows() * 2}), rows() * 2 - rows())


def test_names_in_dicts_are_told_from_equal_ones_of_other_kinds():
    def described(given: Any) -> Any:
        return [each * 2 for each in given.values()], [type(name).__name__ for name in given]

    for kind in (dict, collections.OrderedDict):
        made = sr.jit(described)
        for name in (1, True, 1.0):
            assert made(kind({name: rows()}))[1] == [type(name).__name__]


def test_attributes_that_exchange_their_names_are_noticed():
    class Options:
        def __init__(self) -> None:
            self.a = 3.0

    def scaled(x: Any, options: Any) -> Any:
        return x * getattr(options, "a", 1.0) + getattr(options, "b", 0.0)

    options, x = Options(), rows()
    captured = sr.jit(lambda x: scaled(x, options))
    made = sr.jit(scaled)
    for run in (captured, lambda x: made(x, options)):
        same(run(x), x * 3.0)
    del options.a
    options.b = 3.0  # type: ignore[attr-defined]
    for run in (captured, lambda x: made(x, options)):
        same(run(x), x + 3.0)


@dataclasses.dataclass
class Doubled:
    x: Any
    scale: float = 1.0

    def __post_init__(self) -> None:
        self.twice = self.x * 2
        self.count = 3.0 * self.scale

    @functools.cached_property
    def thrice(self) -> Any:
        return self.x * 3


def test_attributes_of_a_dataclass_that_are_no_fields_count():
    def function(given: Doubled) -> Any:
        return given.twice * given.count + given.thrice

    made = sr.jit(function)
    for seed in range(3):
        given = Doubled(rows(seed))
        _ = given.thrice
        same(made(given), function(Doubled(rows(seed))))
    given.count = 9.0
    same(made(given), given.twice * 9.0 + given.x * 3)
    given.thrice = rows(6)
    same(made(given), given.twice * 9.0 + rows(6))
    assert made.stats.eager_calls == 0
    same(made(Doubled(rows(7))), function(Doubled(rows(7))))


class Dict(dict[str, Any]):
    scale: Any


class List(list[Any]):
    scale: Any


class Tuple(tuple[Any, ...]):
    scale: Any


@pytest.mark.parametrize("kind", [Dict, List, Tuple])
def test_attributes_of_dicts_lists_and_tuples_of_other_classes_count(kind):
    def function(given: Any) -> Any:
        assert type(given) is kind
        return (given["a"] if kind is Dict else given[0]) * given.scale

    def of(seed: int, scale: Any) -> Any:
        given = kind({"a": rows(seed)} if kind is Dict else [rows(seed)])
        given.scale = scale
        return given

    made, captured = sr.jit(function), of(0, 2.0)
    outside = sr.jit(lambda x: function(captured) + x)
    for seed, scale in enumerate((2.0, 3.0, 4.0, torch.tensor(5.0), torch.tensor(6.0))):
        same(made(of(seed, scale)), function(of(seed, scale)))
        captured.scale = scale
        same(outside(rows(1)), function(captured) + rows(1))
    assert made.stats.eager_calls == 0
    got, want = sr.jit(lambda given: given)(of(0, 2.0)), of(0, 2.0)
    assert type(got) is kind
    assert got.scale == want.scale


def test_what_makes_the_missing_entries_of_a_dict_counts():
    def function(given: Any) -> Any:
        return given["a"] * given["b"]

    def ones() -> float:
        return 1.0

    made = sr.jit(function)
    for seed, factory in enumerate((ones, lambda: 2.0, ones)):
        given = collections.defaultdict(factory, a=rows(seed))
        same(made(given), rows(seed) * factory())
    captured = collections.defaultdict(ones)
    outside = sr.jit(lambda x: x * captured.default_factory())
    same(outside(rows()), rows())
    captured.default_factory = lambda: 3.0
    same(outside(rows()), rows() * 3.0)


def test_attributes_that_are_the_entries_of_a_dict_are_exchanged_with_them():
    class Attributes(dict[str, Any]):
        def __init__(self, **named: Any) -> None:
            super().__init__(**named)
            self.__dict__ = self

    made = sr.jit(lambda given: given.x * given["scale"])
    for seed in range(3):
        same(made(Attributes(x=rows(seed), scale=2.0)), rows(seed) * 2.0)
