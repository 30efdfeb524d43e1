"""What a step carries from the axes it takes to those it makes: iter type, rfactor flag, name, bound, parallel type."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from serrate.fusion import Fusion, IterDomain, IterType, ParallelType, RaggedIterDomain, symbol
from serrate.fusion.axes import ragged
from serrate.fusion.raggedness import Listed, Raggedness, Stored, listed
from serrate.fusion.scalar import const
from serrate.fusion.transforms import cover

Step = Callable[[Sequence[IterDomain]], Sequence[IterDomain]]

REGULAR: dict[str, Step] = {
    "split": lambda axes: IterDomain.split(axes[0], 2),
    "outer split": lambda axes: IterDomain.split(axes[0], 2, inner_split=False),
    "merge": lambda axes: [IterDomain.merge(axes[0], axes[1])],
    "resize": lambda axes: [IterDomain.resize(axes[0], 1, -2)],
    "swizzle": lambda axes: IterDomain.swizzle(axes[0], axes[1], "shift"),
    "partition": lambda axes: IterDomain.partition(axes[0], listed((2, 3, 3))),
    "clone": lambda axes: [axes[0].clone()],
}
RAGGED: dict[str, Step] = {
    "split": lambda axes: IterDomain.split(axes[1], 2),
    "outer split": lambda axes: IterDomain.split(axes[1], 2, inner_split=False),
    "merge with a regular axis": lambda axes: [IterDomain.merge(axes[1], axes[2])],
    "merge of a regular axis": lambda axes: [IterDomain.merge(axes[2], axes[1])],
    "merge of two": lambda axes: [IterDomain.merge(axes[1], axes[3])],
    "combine": lambda axes: [IterDomain.combine(axes[0], axes[1])],
    "merge as combine": lambda axes: [IterDomain.merge(axes[0], axes[1])],
    "resize": lambda axes: [IterDomain.resize(axes[1], 1, -2)],
    "cover": lambda axes: [cover(axes[1])],
    "clone": lambda axes: [axes[1].clone()],
}
RAGGEDNESS: dict[str, Raggedness] = {"listed": listed((3, 0, 4)), "stored": Stored("o", const(3), symbol("n"))}
each_type = pytest.mark.parametrize("iter_type", [IterType.Iteration, IterType.Reduction])
each_flag = pytest.mark.parametrize("flag", [False, True])


def regular_axes(iter_type: IterType, flag: bool) -> list[IterDomain]:
    return [IterDomain(8, iter_type=iter_type, is_rfactor_domain=flag, name=name) for name in "ab"]


def ragged_axes(raggedness: Raggedness, iter_type: IterType, flag: bool) -> list[IterDomain]:
    """A component axis, rows of it, a regular axis, and other rows of the same component axis."""
    component, other = (IterDomain(n, iter_type=iter_type, is_rfactor_domain=flag, name=f"a{n}") for n in (3, 5))
    rows = [
        RaggedIterDomain.of(each, component=component, iter_type=iter_type, is_rfactor_domain=flag, name=name)
        for each, name in ((raggedness, "r"), (listed((1, 2, 3)), "s"))
    ]
    return [component, rows[0], other, rows[1]]


def check(made: Sequence[IterDomain], iter_type: IterType, flag: bool) -> None:
    for axis in made:
        assert (axis.iter_type, axis.is_rfactor_domain) == (iter_type, flag), axis
        assert axis.name, axis
        assert axis.parallel_type == ParallelType.Serial
        assert not any(node.op in ("load", "search") for node in axis.bound.walk()), axis.bound
        if axis.is_ragged and isinstance(ragged(axis).raggedness, Listed):
            for domain in ragged(axis).nested_domains:
                assert (domain.iter_type, domain.is_rfactor_domain) == (iter_type, flag)


def cannot(step: str, iter_type: IterType) -> bool:
    return step == "resize" and iter_type == IterType.Reduction


@each_flag
@each_type
@pytest.mark.parametrize("step", REGULAR)
def test_regular_axes(step: str, iter_type: IterType, flag: bool) -> None:
    if not cannot(step, iter_type):
        check(REGULAR[step](regular_axes(iter_type, flag)), iter_type, flag)


@each_flag
@each_type
@pytest.mark.parametrize("kind", RAGGEDNESS)
@pytest.mark.parametrize("step", RAGGED)
def test_ragged_axes(step: str, kind: str, iter_type: IterType, flag: bool) -> None:
    if not cannot(step, iter_type):
        check(RAGGED[step](ragged_axes(RAGGEDNESS[kind], iter_type, flag)), iter_type, flag)


@pytest.mark.parametrize("kind", RAGGEDNESS)
@pytest.mark.parametrize("step", RAGGED)
def test_one_rfactor_axis_is_enough(step: str, kind: str) -> None:
    axes = ragged_axes(RAGGEDNESS[kind], IterType.Iteration, False)
    axes[1].is_rfactor_domain = True
    check(RAGGED[step](axes), IterType.Iteration, True)


@pytest.mark.parametrize("step", RAGGED)
def test_how_a_loop_is_run_is_said_of_what_comes_out(step: str) -> None:
    axes = ragged_axes(RAGGEDNESS["stored"], IterType.Iteration, False)
    for axis in axes:
        axis.parallelize(ParallelType.TIDx)
    check(RAGGED[step](axes), IterType.Iteration, False)


@pytest.mark.parametrize("step", RAGGED)
def test_the_bound_of_what_has_an_extent_that_is_data(step: str) -> None:
    """A selected row is as long as the data says, and the host knows only that it is not longer than all of them."""
    fusion = Fusion()
    offsets = fusion.input("o", [4], "int64")
    selected = fusion.view_as_nested(fusion.input("x", ["n"]), offsets).select(0, 1).domain.logical[0]
    for raggedness in RAGGEDNESS.values():
        component, rows, _, others = ragged_axes(raggedness, IterType.Iteration, False)
        check(RAGGED[step]([component, rows, selected, others]), IterType.Iteration, False)


def test_components_follow_what_is_said_of_the_ragged_axis() -> None:
    given = [IterDomain(3), IterDomain(5)]
    rows = RaggedIterDomain(given)
    rows.parallelize(ParallelType.BIDx)
    rows.iter_type = IterType.Reduction
    assert rows.nested_domains == tuple(given)
    assert [(domain.parallel_type, domain.iter_type) for domain in given] == [
        (ParallelType.BIDx, IterType.Reduction)
    ] * 2


def test_an_axis_is_a_component_of_one_ragged_axis_only() -> None:
    given = [IterDomain(3), IterDomain(5)]
    first, second = RaggedIterDomain(given), RaggedIterDomain(given)
    first.parallelize(ParallelType.BIDx)
    assert not set(first.nested_domains) & set(second.nested_domains)
    assert [domain.parallel_type for domain in second.nested_domains] == [ParallelType.Serial] * 2
