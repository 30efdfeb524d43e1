"""Offsets that are computed and offsets that are results, evaluated and with kernels."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from tests.fusion.samples import LENGTHS, OFFSETS, each_length, nested, offsets_of, same, some, two_levels

import serrate as sr
from serrate.errors import ScheduleError
from serrate.fusion import Fusion, RaggedIterDomain, inject_offsets
from serrate.kernel import lower


@each_length
def test_offsets_of_extents(lengths: list[int]) -> None:
    fusion = Fusion()
    data, extents = fusion.input("x", ["n"]), fusion.input("extents", ["k"], "int64")
    rows = RaggedIterDomain.from_extents(extents, size="n")
    fusion.output(fusion.named(rows.raggedness.base_arrays[0]), "offsets")
    x = fusion.view_as_nested(data, fusion.named("offsets"))
    fusion.output(fusion.reduce("sum", x, [1]))
    a = some(sum(lengths))
    offsets, sums = fusion.evaluate(a, torch.tensor(lengths, dtype=torch.int64))
    assert offsets.tolist() == offsets_of(lengths).tolist()
    same(sums, torch.stack([row.sum() for row in a.split(lengths)]) if lengths else torch.empty(0))


@each_length
def test_injected_offsets(lengths: list[int]) -> None:
    fusion = Fusion()
    x = nested(fusion, 2)
    fusion.output(fusion.pad(x, 1, 1, 2), "padded")
    fusion.output(fusion.slice(x, 1, 2, None), "cut")
    fusion.output(fusion.reduce("sum", x, [1]), "sums")
    injected = inject_offsets(fusion)
    names = ["padded", "padded_offsets", "cut", "cut_offsets", "sums"]
    assert [tensor.name for tensor in injected.outputs] == names
    a = some(sum(lengths), 2)
    with sr.testing.forbid_sync():
        got = dict(zip(names, injected.evaluate(a, offsets_of(lengths)), strict=True))
    assert got["padded_offsets"].tolist() == offsets_of([length + 3 for length in lengths]).tolist()
    assert got["cut_offsets"].tolist() == offsets_of([max(length - 2, 0) for length in lengths]).tolist()
    for before, name in zip(fusion.evaluate(a, offsets_of(lengths)), ["padded", "cut", "sums"], strict=True):
        assert torch.equal(got[name], before)


def test_injected_offsets_of_two_ragged_axes() -> None:
    fusion = Fusion()
    fusion.output(fusion.unary("negative", two_levels(fusion)), "y")
    injected = inject_offsets(fusion)
    assert [tensor.name for tensor in injected.outputs] == ["y", "y_offsets", "y_offsets1"]
    outer, inner = offsets_of([1, 2]), offsets_of([2, 0, 1])
    got = injected.evaluate(outer, inner, some(3))
    assert [got[1].tolist(), got[2].tolist()] == [outer.tolist(), inner.tolist()]


# With kernels


def test_injected_offsets_come_with_the_outputs_of_a_kernel() -> None:
    fusion = Fusion()
    fusion.output(fusion.pad(nested(fusion, 6), 1, 1, 2), "y")
    injected = inject_offsets(fusion)
    lowered = lower(injected, injected.outputs[0])
    x = some(8, 6)
    with sr.testing.forbid_sync():
        values, offsets = lowered(x, OFFSETS)
    assert offsets.tolist() == [0, 6, 9, 16, 20]
    assert torch.equal(values, torch.cat([F.pad(row, [0, 0, 1, 2]) for row in x.split(LENGTHS)]))


def test_rows_by_their_extents() -> None:
    fusion = Fusion()
    data, extents = fusion.input("x", ["n"]), fusion.input("extents", ["k"], "int64")
    rows = RaggedIterDomain.from_extents(extents, size="n")
    x = fusion.view_as_nested(data, fusion.named(rows.raggedness.base_arrays[0]))
    lowered = lower(fusion, fusion.output(fusion.reduce("sum", x, [1]), "y"))
    a = some(8)
    same(lowered(a, torch.tensor(LENGTHS))[0], torch.stack([row.sum() for row in a.split(LENGTHS)]))


def test_rows_by_extents_that_are_computed() -> None:
    """Offsets are needed before the kernel that would compute the extents."""
    fusion = Fusion()
    data, extents = fusion.input("x", ["n"]), fusion.input("extents", ["k"], "int64")
    x = fusion.view_as_nested(data, fusion.offsets_of_extents(extents * 2))
    y = fusion.output(fusion.reduce("sum", x, [1]), "y")
    assert fusion.evaluate(torch.ones(8), torch.tensor([1, 0, 3]))[0].tolist() == [2, 0, 6]
    with pytest.raises(ScheduleError, match="before the kernel runs; make it an input"):
        lower(fusion, y)


def test_nothing_but_offsets() -> None:
    fusion = Fusion()
    offsets = fusion.offsets_of_extents(fusion.input("extents", ["k"], "int64"))
    y = fusion.output(offsets)
    assert fusion.evaluate(torch.tensor([1, 2]))[0].tolist() == [0, 1, 3]
    with pytest.raises(ScheduleError, match="no output that a kernel could store"):
        lower(fusion, y)
    named = fusion.output(offsets, "y")  # a copy of them, which a kernel makes
    assert [result.tolist() for result in lower(fusion, named)(torch.tensor([1, 2]))] == [[0, 1, 3]] * 2


def test_offsets_are_written_to_what_is_given() -> None:
    fusion = Fusion()
    fusion.output(nested(fusion, 6) * 2.0, "y")
    injected = inject_offsets(fusion)
    out = [torch.zeros(8, 6), torch.zeros(5, dtype=torch.int64)]
    lower(injected, injected.outputs[0])(some(8, 6), OFFSETS, out=out)
    assert torch.equal(out[1], OFFSETS)
