"""Fusions that compute the extents of their own ragged axes: counts become offsets, and these rows, without waiting."""

from __future__ import annotations

import pytest
import torch
from tests.fusion.samples import same, some
from tests.kernel.harness import check

import serrate as sr
from serrate.errors import RaggednessError, ScheduleError
from serrate.fusion import Fusion, ParallelType, RaggedIterDomain, TensorView, inject_offsets, stages_of, symbol
from serrate.kernel import Lowered, lower, lower_stages

WIDTH = 3


def experts() -> Fusion:
    """The seed's mixture of experts. Which expert each token goes to is given, with the order of tokens by expert; how
    many go to each expert is counted here, and tokens become rows of so many: [experts, tokens of one, 3]."""
    fusion = Fusion()
    tokens, routing = fusion.input("tokens", ["n", WIDTH]), fusion.input("routing", ["n"], "int64")
    order, numbers = fusion.input("order", ["n"], "int64"), fusion.input("numbers", ["e"], "int64")
    chosen = fusion.binary("equal", fusion.broadcast(routing, [False, True]), numbers)  # [n, e]
    counts = fusion.reduce("sum", fusion.cast(chosen, "int64"), [0])
    rows = fusion.view_as_nested(fusion.gather(tokens, order), fusion.offsets_of_extents(counts))
    fusion.output(fusion.unary("exp", rows), "activated")
    fusion.output(fusion.reduce("sum", rows, [1]), "sums")
    return fusion


def inputs_of(routing: list[int], count: int) -> list[torch.Tensor]:
    chosen = torch.tensor(routing, dtype=torch.int64)
    return [some(len(routing), WIDTH), chosen, chosen.argsort(stable=True), torch.arange(count)]


def schedule(stage: Fusion) -> TensorView:
    """Tokens are counted expert by expert; one loop over experts is the outermost of both stages."""
    reference = stage.outputs[-1]
    return reference if reference.name == "sums" else reference.reorder([1, 0])


def on_threads(stage: Fusion) -> TensorView:
    return schedule(stage).parallelize(0, ParallelType.Thread)


ROUTINGS = {
    "mixed": ([2, 0, 2, 2, 0, 3], 5),
    "one expert": ([0, 0, 0], 1),
    "all to the last": ([3, 3], 4),
    "no tokens": ([], 3),
    "no experts": ([], 0),
}
each_routing = pytest.mark.parametrize(("routing", "count"), ROUTINGS.values(), ids=ROUTINGS)


def by_expert(tokens: torch.Tensor, routing: list[int], count: int) -> list[torch.Tensor]:
    """The tokens of each expert, found one by one."""
    return [tokens[[at for at, chosen in enumerate(routing) if chosen == expert]] for expert in range(count)]


@each_routing
def test_evaluate(routing: list[int], count: int) -> None:
    inputs = inputs_of(routing, count)
    activated, sums = experts().evaluate(*inputs)
    rows = by_expert(inputs[0], routing, count)
    same(activated, torch.cat([*rows, torch.empty(0, WIDTH)]).exp())
    same(sums, torch.stack([row.sum(0) for row in rows]) if rows else torch.empty(0, WIDTH))


@each_routing
def test_stages_in_the_interpreter_and_compiled(routing: list[int], count: int) -> None:
    fusion = inject_offsets(experts())
    inputs = inputs_of(routing, count)
    staged = lower_stages(fusion, schedule)
    assert [[tensor.name for tensor in stage.outputs] for stage, _ in staged.steps] == [
        ["t7"],
        ["activated", "activated_offsets", "sums"],
    ]
    with sr.testing.forbid_sync():
        activated, offsets, sums = staged(*inputs)
    rows = by_expert(inputs[0], routing, count)
    assert offsets.tolist() == [sum(map(len, rows[:at])) for at in range(count + 1)]
    same(activated, torch.cat([*rows, torch.empty(0, WIDTH)]).exp())
    same(sums, torch.stack([row.sum(0) for row in rows]) if rows else torch.empty(0, WIDTH))
    counted = torch.tensor([len(row) for row in rows], dtype=torch.int64)
    without = lower_stages(experts(), on_threads)
    for (_, kernel), given in zip(without.steps, (inputs, [*inputs, counted]), strict=True):
        assert isinstance(kernel, Lowered)
        check(kernel, given)


def test_nothing_waits_for_a_device() -> None:
    """Tensors without elements have no numbers that the host could read: all is known by their shapes."""
    staged = lower_stages(inject_offsets(experts()), schedule, target="cuda")
    inputs = [given.to("meta") for given in inputs_of([1, 0, 1], 2)]
    counts = torch.empty(2, dtype=torch.int64, device="meta")
    for (stage, kernel), given in zip(staged.steps, (inputs, [*inputs, counts]), strict=True):
        assert isinstance(kernel, Lowered)
        buffers = kernel.buffers(given)
        assert {buffer.device.type for buffer in buffers.values()} == {"meta"}
        if stage is staged.steps[-1][0]:
            assert buffers["activated"].shape == (3, WIDTH)


def test_extents_of_extents() -> None:
    """Sums of rows are the extents of other rows, and sums of those the extents of still others: three stages."""
    fusion = Fusion()
    first, second, third = (fusion.input(name, [f"n{name}"], "int64") for name in "xyz")
    rows = fusion.view_as_nested(second, fusion.offsets_of_extents(first + 1))
    sums = fusion.reduce("sum", rows, [1])
    outer = fusion.view_as_nested(third, fusion.offsets_of_extents(sums))
    fusion.output(fusion.reduce("sum", outer, [1]), "out")
    fusion.output(sums * 2, "doubled")
    inputs = [torch.tensor([1, 0, 2]), torch.tensor([1, 2, 0, 1, 1, 1]), torch.arange(6)]
    want = [[0 + 1 + 2, 0, 3 + 4 + 5], [6, 0, 6]]
    assert [result.tolist() for result in fusion.evaluate(*inputs)] == want
    made = stages_of(fusion)
    assert [[tensor.name for tensor in stage.outputs] for stage in made] == [["t3"], ["doubled", "t6"], ["out"]]
    assert [result.tolist() for result in lower_stages(fusion)(*inputs)] == want


def test_offsets_that_only_axes_name() -> None:
    """The nested tensor reads no tensor of offsets: its ragged axis says where they are."""
    fusion = Fusion()
    x, halves = fusion.input("x", ["n"]), fusion.input("halves", ["k"], "int64")
    rows = RaggedIterDomain.from_extents(halves * 2, size="n", longest=4)
    fusion.output(fusion.reduce("sum", fusion.view_as_nested(x, rows.raggedness), [1]), "y")
    first, second = stages_of(fusion)
    assert [tensor.name for tensor in first.outputs] == ["t2"]
    assert [str(tensor) for tensor in second.inputs] == [
        "x[iS_i{n}] float32",
        "halves[iS_i{k}] int64",
        "t2[iS_i{k}] int64",
    ]
    staged = lower_stages(fusion)
    assert staged(torch.arange(6.0), torch.tensor([1, 0, 2]))[0].tolist() == [1, 0, 14]
    with pytest.raises(RaggednessError, match="no row of t3 may be longer than 4 = 4, but that of component 2 has 6"):
        staged(torch.arange(8.0), torch.tensor([1, 0, 3]))


def test_extents_are_inputs_of_the_next_stage_without_what_they_reduced() -> None:
    assert str(stages_of(experts())[1].inputs[-1]) == "t7[iS_i{e}] int64"


def test_the_whole_listing_with_routing_inside() -> None:
    """The expert of a token is the one of its best score. What is counted reduces tokens, and routing reduces scores
    inside of that, so that the routing is stored."""
    fusion = Fusion()
    scores, numbers = fusion.input("scores", ["n", 4]), fusion.input("numbers", [4], "int64")
    routing = fusion.reduce("argmax", scores, [1])
    chosen = fusion.binary("equal", fusion.broadcast(routing, [False, True]), numbers)
    counts = fusion.reduce("sum", fusion.cast(chosen, "int64"), [0])
    tokens, order = fusion.input("tokens", ["n", WIDTH]), fusion.input("order", ["n"], "int64")
    rows = fusion.view_as_nested(fusion.gather(tokens, order), fusion.offsets_of_extents(counts))
    fusion.output(fusion.reduce("sum", rows, [1]), "sums")
    staged = lower_stages(fusion, stored=[routing.name])
    assert [[tensor.name for tensor in stage.outputs] for stage, _ in staged.steps] == [["t2"], ["t6"], ["sums"]]
    given = some(9, 4)
    best = [row.index(max(row)) for row in given.tolist()]
    inputs = [given, torch.arange(4), some(9, WIDTH, seed=1), torch.tensor(best).argsort(stable=True)]
    want = torch.stack([row.sum(0) for row in by_expert(inputs[2], best, 4)])
    same(fusion.evaluate(*inputs)[0], want)
    same(staged(*inputs)[0], want)


@pytest.mark.parametrize("stored", [["t2"], ["t3"], ["t2", "t3"]], ids=str)
def test_what_is_stored_may_be_ragged(stored: list[str]) -> None:
    fusion = Fusion()
    x = fusion.view_as_nested(fusion.input("x", ["n"]), fusion.input("offsets", [symbol("k") + 1], "int64"))
    squares = x * x
    total = fusion.reduce("sum", squares, [1])
    fusion.output(squares - fusion.broadcast(total, [False, True]), "y")
    assert [x.name, squares.name, total.name] == ["t2", "t3", "t4"]
    inputs = [torch.arange(6.0), torch.tensor([0, 2, 2, 6])]
    staged = lower_stages(fusion, stored=stored)
    assert len(staged.steps) == len(stored) + 1
    want = torch.cat([row * row - (row * row).sum() for row in inputs[0].split([2, 0, 4])])
    same(staged(*inputs)[0], want)


def test_a_fusion_without_computed_extents_has_one_stage() -> None:
    fusion = Fusion()
    fusion.output(fusion.input("x", ["n"]) * 2.0, "y")
    assert stages_of(fusion) == (fusion,)
    assert lower_stages(fusion)(torch.ones(2))[0].tolist() == [2, 2]


def test_a_stage_of_nothing_but_offsets() -> None:
    fusion = Fusion()
    fusion.output(fusion.offsets_of_extents(fusion.input("halves", ["k"], "int64") * 2))
    assert lower_stages(fusion)(torch.tensor([1, 0, 3]))[0].tolist() == [0, 2, 2, 8]


def test_extents_that_do_not_add_up() -> None:
    """The offsets that come out of the first stage are checked as given ones are."""
    fusion = Fusion()
    x, halves = fusion.input("x", ["n"]), fusion.input("halves", ["k"], "int64")
    fusion.output(fusion.reduce("sum", fusion.view_as_nested(x, fusion.offsets_of_extents(halves * 2)), [1]), "y")
    staged = lower_stages(fusion)
    for wrong in ([1, 1], [3, 2], [-1, 5]):
        with pytest.raises(RaggednessError):
            staged(torch.ones(8), torch.tensor(wrong))
    assert staged(torch.ones(8), torch.tensor([1, 3]))[0].tolist() == [2, 6]
    with pytest.raises(TypeError, match=r"the fusion has 2 inputs \(x, halves\), got 1"):
        staged(torch.ones(8))


def test_one_kernel_cannot_do_it() -> None:
    fusion = experts()
    with pytest.raises(ScheduleError, match=r"needs t7\[.*\] int64 before the kernel runs; make it an input"):
        lower(fusion, fusion.outputs[0])
