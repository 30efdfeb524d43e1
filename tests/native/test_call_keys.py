"""Keys of calls: equal where the signatures of compiled functions for the same arguments are equal, and only there."""

from __future__ import annotations

import itertools
import sys
from random import Random
from typing import Any

import pytest
import torch

import serrate as sr
from serrate.compiler import function
from serrate.compiler.signature import Arguments, Unsupported, signature_of
from serrate.native.call_keys import KeyOf, key_function


@pytest.fixture(scope="module")
def key_of() -> KeyOf:
    made = key_function(signature_of)
    if made is None:
        pytest.skip("Python has no headers here, or torch hands out no exchange functions")
    return made


def pool() -> list[Any]:
    """Arguments that differ in one respect from others among them."""
    lengths, values = [2, 0, 3], torch.arange(20.0).reshape(5, 4)
    x = sr.from_lengths(values, lengths)
    dense = torch.arange(12.0).reshape(3, 4)
    ragged = [
        x,
        x * 2,  # shares the partition
        sr.from_lengths(values, lengths),
        sr.from_lengths(values[:4], [1, 3]),
        sr.from_lengths(values[:, :3], lengths),
        sr.from_lengths(values[:, :1], lengths),
        sr.from_lengths(values.double(), lengths),
        sr.from_lengths(values.clone().requires_grad_(), lengths),
        sr.from_offsets(values, torch.tensor([0, 2, 2, 5], dtype=torch.int32)),
        sr.testing.device_born(x),
        sr.moveaxis(x, 2, 1),
        sr.ragged([[[1.0], []], [[2.0, 3.0]]]),
        sr.asarray(dense),
        sr.asarray(dense.T),
        sr.asarray(dense[:1]),
    ]
    torches = [
        dense,
        dense[:2],
        dense[:1],
        dense[:0],
        dense[:, :3],
        dense[:, ::2],
        dense.to(torch.bfloat16),
        dense.to(torch.complex64).conj(),
        dense.clone().requires_grad_(),
        torch.nn.Parameter(dense),
        torch.nn.Parameter(dense[:2]),
        torch.nn.Parameter(dense[:2], requires_grad=False),
        torch.tensor(1.0),
        torch.tensor(1),
        torch.tensor(True),
        torch.ones(1),
        torch.ones(0),
        torch.ones(2, dtype=torch.uint16),
        torch.empty(3, 4, device="meta"),
    ]
    constants = [0, 1, True, False, 1.0, 0.0, -0.0, float("nan"), 2**40, 2**70, "a", b"a", None, ..., torch.float32,
                 torch.device("cpu"), torch.device("meta"), 1j, slice(1, 2), {"a": 1}, {1}, sr.ragged]  # fmt: skip
    nested = [[], (), [x], (x,), [dense, [1]], [[dense], 1], [[dense, 1]], [dense, 1], (dense, (1,))]
    return [*ragged, *torches, *constants, *nested]


def signature(arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """What decides about the program, by the code that the keys stand in for."""
    seen = Arguments(arguments, named, frozenset())
    return tuple(seen.skeleton), tuple(seen.variables)


def test_keys_are_equal_where_signatures_are(key_of: KeyOf) -> None:
    given = [(each,) for each in pool()]
    keys, signatures = [], []
    for arguments in given:
        made = key_of(arguments, {})
        keys.append(None if made is None else made[0])
        signatures.append(signature(arguments, {}))
    assert sum(key is None for key in keys) <= 8, "few kinds of arguments are left to Python"
    for one, other in itertools.product(range(len(given)), repeat=2):
        if keys[one] is not None and keys[other] is not None:
            equal = signatures[one] == signatures[other]
            assert (keys[one] == keys[other]) is equal, (given[one], given[other])
            assert not equal or hash(keys[one]) == hash(keys[other])


def test_keys_of_several_arguments_tell_which_share_partitions_and_what_stands_where(key_of: KeyOf) -> None:
    random, things = Random(0), pool()
    seen: dict[Any, Any] = {}
    for _ in range(3000):
        some = random.sample(things, random.randint(0, 3))
        arguments = tuple(random.choice(some) for _ in range(random.randint(0, 4))) if some else ()
        named = {name: random.choice(some) for name in random.sample("abc", random.randint(0, 2))} if some else {}
        made = key_of(arguments, named)
        if made is not None:
            assert seen.setdefault(made[0], signature(arguments, named)) == signature(arguments, named)
            found = Arguments(arguments, named, frozenset()).tensors
            assert [id(each) for each in made[1]] == [id(each) for each in found]
    assert len(set(map(repr, seen.values()))) == len(seen) > 1000  # other keys are other signatures


@pytest.mark.parametrize(
    "given",
    [object(), torch.ones(3).to_sparse(), 2**70, {"a": 1}, torch.nn.Linear(1, 1), [[object()]]],
    ids=["object", "sparse", "long number", "dict", "module", "inside"],
)
def test_what_it_does_not_know_is_left_to_python(key_of: KeyOf, given: Any) -> None:
    assert key_of((torch.ones(3), given), {}) is None
    assert key_of((torch.ones(3),), {"given": given}) is None


def test_deep_and_long_arguments_are_left_to_python(key_of: KeyOf) -> None:
    deep: Any = 1
    for _ in range(1000):
        deep = [deep]
    assert key_of((deep,), {}) is None
    assert key_of((list(range(10_000)),), {}) is None
    assert key_of(("a",) * 1000, {}) is None
    assert key_of((torch.ones(1),) * 1000, {}) is None
    assert key_of(tuple(sr.ragged([[1.0]]) for _ in range(50)), {}) is None


def test_it_keeps_nothing_and_gives_nothing_away(key_of: KeyOf) -> None:
    x, dense, text = sr.ragged([[1.0], [2.0, 3.0]]), torch.ones(3), "a text of its own"
    given = ((x, dense, text, [dense, 2]), {"name": x})
    watched = [x, dense, text, x.values, x.structure, x.order, True, None, "name"]
    before = [sys.getrefcount(each) for each in watched]
    for _ in range(10_000):
        key_of(*given)
        key_of((x, dense, text, object()), {})
    after = [sys.getrefcount(each) for each in watched]
    assert all(abs(late - early) < 100 for early, late in zip(before, after, strict=True)), (before, after)


def test_wrong_arguments_of_its_own_are_an_error(key_of: KeyOf) -> None:
    with pytest.raises(TypeError, match="a tuple of arguments and a dict"):
        key_of([1], {})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a tuple of arguments and a dict"):
        key_of((1,))  # type: ignore[call-arg]


def test_compiled_functions_do_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(function, "_key_function", lambda: None)
    double = sr.jit(lambda x, factor: x * factor)
    for lengths in ([1, 2], [3], [0, 0, 4]):
        x = sr.from_lengths(torch.randn(sum(lengths)), lengths)
        torch.testing.assert_close(double(x, 2.0).values, x.values * 2.0)
    assert double.stats.traces == 1
    assert not double._known


def test_programs_that_are_known_by_their_key_are_found_and_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(function, "_KNOWN", 3)
    scaled = sr.jit(lambda x, name: x * len(name))
    x = sr.ragged([[1.0, 2.0], [], [3.0]])
    for count in (*range(1, 8), *range(1, 8)):
        assert scaled(x, "a" * count).tolist() == [[1.0 * count, 2.0 * count], [], [3.0 * count]]
        assert len(scaled._known) <= 3
    assert scaled.stats.traces == 7


def test_an_iterator_that_no_program_takes_has_no_key(key_of: KeyOf) -> None:
    with pytest.raises(Unsupported):
        Arguments((iter([1]),), {}, frozenset())
    assert key_of((iter([1]),), {}) is None
