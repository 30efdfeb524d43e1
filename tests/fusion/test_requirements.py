"""What a call must fulfil: numbers of components, extents and bounds of rows, for `evaluate` and for kernels alike.

Ragged axes are built at random, with sizes that are wrong by one here and there, and the oracle says in plain Python
which calls are right. What is right runs in the checking interpreter, which would find a read past the offsets.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
import torch
from tests.fusion.brute_force import Axes
from tests.fusion.random_axes import Tape, random_axes
from tests.fusion.samples import offsets_of
from tests.kernel.harness import check

from serrate.errors import RaggednessError
from serrate.fusion import Fusion, IterDomain, RaggedIterDomain, binding, symbol
from serrate.fusion.raggedness import listed
from serrate.fusion.requirements import requirements_of_axes
from serrate.kernel import lower
from serrate.kernel import lowered as lowered_module
from serrate.kernel.check import run
from serrate.tensor import host

Call = Callable[[Fusion, list[torch.Tensor]], Any]


def evaluated(fusion: Fusion, inputs: list[torch.Tensor]) -> Any:
    return fusion.evaluate(*inputs)


def called(fusion: Fusion, inputs: list[torch.Tensor]) -> Any:
    return lower(fusion, fusion.outputs[0])(*inputs)


each_way = pytest.mark.parametrize("call", [evaluated, called])


def rows_with(offsets: Any, fusion: Fusion, **options: Any) -> Fusion:
    """y = 2 x over [k, r] with these offsets; an input w has the size k."""
    k = IterDomain("k", name="c")
    fusion.input("w", ["k"])
    rows = RaggedIterDomain.from_offsets(offsets, size="n", component=k, name="r", **options)
    fusion.output(fusion.input("x", [k, rows]) * 2.0, "y")
    return fusion


def by_offsets(count: int, lengths: list[int], **options: Any) -> tuple[Fusion, list[torch.Tensor]]:
    fusion = Fusion()
    offsets = fusion.input("o", ["m"], "int64")
    inputs = [offsets_of(lengths), torch.ones(count), torch.ones(sum(lengths))]
    return rows_with(offsets, fusion, **options), inputs


@each_way
@pytest.mark.parametrize("count", [0, 2, 4])
def test_offsets_of_another_number_of_components(call: Call, count: int) -> None:
    fusion, inputs = by_offsets(count, [2, 0, 1])
    with pytest.raises(RaggednessError, match=r"iS_r\{\[o\]\} has m - 1 components, but its component axis iS_c\{k\}"):
        call(fusion, inputs)


@each_way
@pytest.mark.parametrize("count", [0, 1, 3])
def test_listed_extents_with_a_component_axis_of_another_size(call: Call, count: int) -> None:
    fusion = Fusion()
    k = IterDomain("k", name="c")
    rows = RaggedIterDomain([IterDomain(3), IterDomain(1)], component=k, name="r")
    fusion.input("w", ["k"])
    fusion.output(fusion.input("x", [k, rows]) * 2.0, "y")
    with pytest.raises(RaggednessError, match=r"iS_r\{\[3, 1\]\} has 2 components, but its component axis iS_c\{k\}"):
        call(fusion, [torch.ones(count), torch.ones(4)])
    assert torch.equal(call(fusion, [torch.ones(2), torch.ones(4)])[0], torch.full((4,), 2.0))


@each_way
def test_a_component_axis_whose_size_no_input_has(call: Call) -> None:
    fusion = Fusion()
    offsets = fusion.input("o", ["m"], "int64")
    rows = RaggedIterDomain.from_offsets(offsets, size="n", component=IterDomain("k", name="c"), name="r")
    assert rows.component is not None
    fusion.output(fusion.input("x", [rows.component, rows]) * 2.0, "y")
    with pytest.raises(ValueError, match=r"no input says what k is|the size k, which no input has"):
        call(fusion, [offsets_of([2, 1]), torch.ones(3)])


@each_way
def test_an_array_that_is_only_named_has_an_entry_for_each_component(call: Call) -> None:
    fusion = Fusion()
    fusion.input("o", ["m"], "int64")
    rows_with("o", fusion, count="k")
    assert call(fusion, [offsets_of([2, 1]), torch.ones(2), torch.ones(3)])[0].tolist() == [2, 2, 2]
    for count in (1, 3):
        with pytest.raises(RaggednessError, match=rf"o must have k \+ 1 = {count + 1} entries, got 3"):
            call(fusion, [offsets_of([2, 1]), torch.ones(count), torch.ones(3)])


@each_way
def test_inner_offsets_of_another_number_than_the_rows_of_the_outer(call: Call) -> None:
    fusion = Fusion()
    outer, inner = (fusion.input(name, [symbol(size) + 1], "int64") for name, size in (("outer", "k"), ("inner", "m")))
    components = IterDomain("k", name="c")
    rows = RaggedIterDomain.from_offsets(outer, size="n", component=components, name="r")
    items = RaggedIterDomain.from_offsets(inner, size="l", component=IterDomain.combine(components, rows), name="s")
    fusion.input("w", ["n"])
    fusion.output(fusion.input("x", [components, rows, items]) * 2.0, "y")
    right = [offsets_of([1, 2]), offsets_of([1, 0, 2]), torch.ones(3), torch.ones(3)]
    assert call(fusion, right)[0].tolist() == [2, 2, 2]
    with pytest.raises(RaggednessError, match=r"iS_s\{\[inner\]\} has m components, but its component axis iS_cr\{n\}"):
        call(fusion, [right[0], offsets_of([1, 2]), *right[2:]])


@each_way
def test_a_symbolic_extent_below_zero(call: Call) -> None:
    fusion = Fusion()
    n = symbol("n")
    k = IterDomain(2, name="c")
    rows = RaggedIterDomain([IterDomain(n), IterDomain(n - 3)], component=k, name="r")
    fusion.input("w", ["n"])
    fusion.output(fusion.input("x", [k, rows]) * 2.0, "y")
    assert len(call(fusion, [torch.ones(3), torch.ones(3)])[0]) == 3
    with pytest.raises(RaggednessError, match=r"the extent n - 3 of component 1 of .* is below 0"):
        call(fusion, [torch.ones(2), torch.ones(1)])


@each_way
def test_a_slice_of_more_than_there_is(call: Call) -> None:
    fusion = Fusion()
    fusion.output(fusion.slice(fusion.input("x", ["n"]), 0, 2, -1), "y")
    assert call(fusion, [torch.arange(4.0)])[0].tolist() == [2]
    assert call(fusion, [torch.arange(3.0)])[0].tolist() == []
    assert call(fusion, [torch.arange(2.0)])[0].tolist() == []
    assert call(fusion, [torch.arange(0.0)])[0].tolist() == []


# Bounds of rows


@each_way
@pytest.mark.parametrize("longest", [0, 3, symbol("b")], ids=str)
def test_rows_longer_than_was_said(call: Call, longest: Any) -> None:
    fusion = Fusion()
    offsets = fusion.input("o", ["m"], "int64")
    fusion.input("v", ["b"])
    rows_with(offsets, fusion, longest=longest)
    inputs = [offsets_of([2, 4, 0, 5]), torch.ones(3), torch.ones(4), torch.ones(11)]
    bound = longest if isinstance(longest, int) else 3
    first, length = (0, 2) if bound == 0 else (1, 4)
    text = rf"no row of o may be longer than {longest} = {bound}, but that of component {first} has {length} entries"
    with pytest.raises(RaggednessError, match=text):
        call(fusion, inputs)
    inputs[0], inputs[3] = offsets_of([0, 0, 0, 0]), torch.ones(0)
    assert call(fusion, inputs)[0].tolist() == []


def test_nothing_waits_for_the_lengths_of_rows_on_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    fusion, _ = by_offsets(2, [], longest=3)
    deferred: list[torch.Tensor] = []
    monkeypatch.setattr(host, "defer", lambda verdict, error: deferred.append(verdict))
    offsets, w, x = (torch.zeros(3, dtype=torch.int64), torch.zeros(2), torch.zeros(9))
    lower(fusion, fusion.outputs[0], target="cuda").buffers([t.to("meta") for t in (offsets, w, x)])
    assert [verdict.device.type for verdict in deferred] == ["meta"]


def test_the_verdict_of_rows_on_a_device_names_the_first_that_is_too_long() -> None:
    """What a device would compute, computed here: the error is that of offsets on the host."""
    fusion, inputs = by_offsets(3, [2, 5, 4], longest=3)
    rows = binding.stored_raggedness(fusion)[0]

    class Elsewhere:
        """Offsets that say they are on a device."""

        device = torch.device("cuda")

        def diff(self) -> torch.Tensor:
            return inputs[0].diff()

        def __getitem__(self, at: int) -> torch.Tensor:
            return inputs[0][at]

    with pytest.raises(RaggednessError, match="but that of component 1 has 5 entries"):
        binding._check_longest(rows, Elsewhere(), binding.bind(fusion, inputs))  # type: ignore[arg-type]


def test_rows_that_are_too_long_lead_nowhere_until_the_error_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    """The result by position has room for three; the checking interpreter finds no address beyond that."""
    monkeypatch.setattr(lowered_module, "check_offsets", lambda *_: None)  # as of offsets on a device
    monkeypatch.setattr(binding, "_check_longest", lambda *_: None)
    fusion = Fusion()
    offsets = fusion.input("o", [symbol("k") + 1], "int64")
    rows = RaggedIterDomain.from_offsets(offsets, size="n", longest=3).raggedness
    y = fusion.output(fusion.reduce("sum", fusion.view_as_nested(fusion.input("x", ["n"]), rows), [0]), "y")
    inputs = [offsets_of([2, 5]), torch.arange(7.0)]
    made = lower(fusion, y)
    arrays = {name: tensor.numpy() for name, tensor in made.buffers(inputs).items() if name != "y"}
    assert run(made.kernel, arrays, {"k": 2, "n": 7})["y"].tolist() == [0 + 2, 1 + 3, 4]


# Rows that do not fill what they are cut from


@each_way
@pytest.mark.parametrize("room", [0, 2])
def test_rows_of_rows_that_do_not_fill_them(call: Call, room: int) -> None:
    """There are offsets for as many inner rows as the outer ones have room for, and not for fewer."""
    fusion = Fusion()
    outer, inner = (fusion.input(name, [symbol(size) + 1], "int64") for name, size in (("outer", "k"), ("inner", "m")))
    rows = fusion.view_as_nested(fusion.input("x", ["n"]), inner)
    fusion.output(fusion.reduce("sum", fusion.view_as_nested(rows, outer, exact=False), [1, 2]), "y")
    given = [offsets_of([1, 2]), offsets_of([1, 0, 2] + [1] * room), torch.ones(3 + room)]
    assert call(fusion, given)[0].tolist() == [1, 2]
    with pytest.raises(RaggednessError, match="outer must not exceed m"):
        call(fusion, [given[0], offsets_of([1, 2]), torch.ones(3)])


@each_way
def test_fewer_inner_rows_than_the_outer_ones_have_room_for(call: Call) -> None:
    """How many rows the outer ones have is data, which may be on a device: the room for them is what counts."""
    fusion = Fusion()
    outer, inner = (fusion.input(name, [symbol(size) + 1], "int64") for name, size in (("outer", "k"), ("inner", "m")))
    components = IterDomain("k", name="c")
    rows = RaggedIterDomain.from_offsets(outer, size="n", exact=False, component=components, name="r")
    items = RaggedIterDomain.from_offsets(inner, size="l", component=IterDomain.combine(components, rows), name="s")
    fusion.input("w", ["n"])
    fusion.output(fusion.input("x", [components, rows, items]) * 2.0, "y")
    given = [offsets_of([1, 2]), offsets_of([1, 0, 2]), torch.ones(3), torch.ones(3)]
    assert call(fusion, given)[0].tolist() == [2, 2, 2]
    with pytest.raises(RaggednessError, match=r"iS_s\{\[inner\]\} has m components, but its component axis iS_cr"):
        call(fusion, [*given[:2], torch.ones(4), given[3]])


@each_way
def test_listed_rows_in_an_axis_without_room_for_them(call: Call) -> None:
    fusion = Fusion()
    fusion.output(fusion.reduce("sum", fusion.view_as_nested(fusion.input("x", ["n"]), listed((2, 3))), [1]), "y")
    assert call(fusion, [torch.ones(7)])[0].tolist() == [2, 3]
    with pytest.raises(RaggednessError, match=r"iS_i\{n\} cannot be cut into rows of 5 indices together"):
        call(fusion, [torch.ones(4)])


# At random


def test_random_graphs_of_axes_require_what_is_so() -> None:
    """What is required of a graph of axes holds of its numbers; and if a number of components that has a name were
    another one, something would not hold."""
    asked = 0
    for seed in range(3000):
        axes = random_axes(Tape(Random(seed).randbytes(72)), allow_cover=True)
        required = requirements_of_axes([*axes.logical, *axes.leaves])
        arrays = {name: torch.tensor(offsets) for name, offsets in axes.arrays.items()}
        run = binding.Run(dict(axes.sizes), arrays)
        if any(axis.is_ragged and _is_data(Axes.component(axis)) for axis in axes.logical):
            continue  # there are fewer inner rows than the outer ones have room for, which is refused
        assert all(each.holds(run) for each in required), [each.message for each in required if not each.holds(run)]
        for name in _counts(axes):
            for by in (-1, 1):
                asked += 1
                wrong = binding.Run({**axes.sizes, name: axes.sizes[name] + by}, arrays)
                assert not all(each.holds(wrong) for each in required), name
    assert asked > 500


def _is_data(axis: IterDomain) -> bool:
    return axis.bound != axis.extent


def _counts(axes: Axes) -> list[str]:
    """Names of numbers of components, where the component axis has another name for it."""
    rows = [axis for axis in axes.logical if isinstance(axis, RaggedIterDomain)]
    named = [axis.raggedness.count for axis in rows if axis.raggedness.count != Axes.component(axis).extent]
    return [str(count.value) for count in named if count.op == "symbol"]


@pytest.mark.parametrize("seed", range(60))
def test_random_ragged_axes_with_wrong_sizes(seed: int) -> None:
    random = Random(seed)
    lengths = [random.randint(0, 3) for _ in range(random.randint(0, 4))]
    count = len(lengths) + random.choice([0, 0, 0, -1, 1])
    longest = random.choice([None, None, max(lengths, default=0), max(lengths, default=0) - 1])
    if count < 0 or (longest is not None and longest < 0):
        return
    kind = random.choice(["offsets", "listed", "listed by numbers"])
    fusion, k = Fusion(), IterDomain("k", name="c")
    inputs = [torch.ones(count)]
    fusion.input("w", ["k"])
    if kind == "offsets":
        offsets = fusion.input("o", ["m"], random.choice(["int32", "int64"]))
        inputs.append(offsets_of(lengths).to(getattr(torch, offsets.dtype)))
        rows = RaggedIterDomain.from_offsets(offsets, size="n", longest=longest, component=k, name="r")
    else:
        longest = None
        if kind == "listed by numbers":
            k = IterDomain(count, name="c")
        try:
            rows = RaggedIterDomain.of(listed(tuple(lengths)), component=k, name="r")
        except RaggednessError:
            assert kind == "listed by numbers"
            assert count != len(lengths)
            return
    x = fusion.input("x", [k, rows])
    y = fusion.output(x * 2.0 if random.random() < 0.5 else fusion.reduce("sum", x, [1]), "y")
    inputs.append(torch.arange(float(sum(lengths))))
    is_right = count == len(lengths) and (longest is None or longest >= max(lengths, default=0))
    if is_right:
        check(lower(fusion, y), inputs)
        return
    for call in (evaluated, called):
        with pytest.raises(RaggednessError):
            call(fusion, inputs)
