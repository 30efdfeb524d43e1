"""Offsets that operations make of others: what they are, what the host knows of them, and that nothing waits."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from random import Random

import pytest
import torch
from tests.fusion.samples import offsets_of, some
from tests.kernel.harness import agree

from serrate.fusion import Fusion, IterDomain, RaggedIterDomain, TensorView, const
from serrate.fusion.analysis import evaluate
from serrate.fusion.derived_raggedness import Composed, Interleaved, Joined, Longest, Sliced, Stacked
from serrate.fusion.raggedness import Raggedness, Stored, listed
from serrate.kernel import lower

Lengths = Sequence[int]
KINDS: dict[str, tuple[Callable[[Raggedness, Raggedness], Raggedness], Callable[[Lengths, Lengths], list[int]]]] = {
    "the first two": (lambda a, b: Sliced(a, None, 2), lambda a, b: [len(range(n)[:2]) for n in a]),
    "the last two": (lambda a, b: Sliced(a, -2, None), lambda a, b: [len(range(n)[-2:]) for n in a]),
    "a part": (lambda a, b: Sliced(a, 1, 3), lambda a, b: [len(range(n)[1:3]) for n in a]),
    "a part from the end": (lambda a, b: Sliced(a, -3, -1), lambda a, b: [len(range(n)[-3:-1]) for n in a]),
    "a part from both ends": (lambda a, b: Sliced(a, -2, 1), lambda a, b: [len(range(n)[-2:1]) for n in a]),
    "joined": (Joined, lambda a, b: [m + n for m, n in zip(a, b, strict=True)]),
    "stacked": (Stacked, lambda a, b: [*a, *b]),
    "composed": (Composed, lambda a, b: [sum(b[s:e]) for s, e in _pairs(a)]),
    "interleaved": (
        lambda a, b: Interleaved(Composed(a, b), Composed(a, Sliced(b, None, 1))),
        lambda a, b: [length for s, e in _pairs(a) for length in (*b[s:e], *(min(n, 1) for n in b[s:e]))],
    ),
    "longest": (lambda a, b: Longest(a), lambda a, b: [max(a, default=0)]),
}
every_kind = pytest.mark.parametrize("kind", KINDS)


def _pairs(lengths: Lengths) -> list[tuple[int, int]]:
    offsets = offsets_of(lengths).tolist()
    return list(itertools.pairwise(offsets))


def two(kind: str, random: Random) -> tuple[list[int], list[int]]:
    """Lengths of two raggednesses; those of what is composed are as many as there are rows."""
    left = [random.choice([0, 1, 2, 3, 6]) for _ in range(random.randint(0, 5))]
    count = sum(left) if kind in ("composed", "interleaved") else len(left)
    return left, [random.randint(0, 4) for _ in range(count)]


def parts(rows: Raggedness) -> list[Raggedness]:
    """A raggedness with all that it is made of."""
    made = [getattr(rows, name, None) for name in ("base", "left", "right")]
    return [rows, *(part for one in made if isinstance(one, Raggedness) for part in parts(one))]


@every_kind
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_extents_offsets_and_bounds(kind: str, dtype: torch.dtype) -> None:
    make, lengths = KINDS[kind]
    for seed in range(60):
        random = Random(seed)
        left, right = two(kind, random)
        arrays = {"a": offsets_of(left).to(dtype), "b": offsets_of(right).to(dtype)}
        tight = random.random() < 0.5
        made = make(
            Stored("a", const(len(left)), const(sum(left)), const(max(left, default=0)) if tight else None),
            Stored("b", const(len(right)), const(sum(right)), const(max(right, default=0)) if tight else None),
        )
        want = lengths(left, right)
        offsets = made.offsets(arrays, {})
        assert offsets.tolist() == offsets_of(want).tolist()
        read = {part.array: part.offsets(arrays, {}).tolist() for part in parts(made)}
        assert evaluate(made.count, {}) == len(want)
        assert [evaluate(made.extent_at(const(c)), {}, read) for c in range(len(want))] == want
        assert [evaluate(made.offset_at(const(c)), {}, read) for c in range(len(want))] == offsets[:-1].tolist()
        assert evaluate(made.total, {}, read) == sum(want)
        assert evaluate(made.total_bound, {}) >= sum(want)
        assert evaluate(made.longest_bound, {}) >= max(want, default=0)


@every_kind
def test_nothing_looks_at_the_offsets(kind: str) -> None:
    """Offsets without elements stand for those on a device: whoever read one would fail."""
    stored = [Stored(name, const(4), const(9)) for name in "ab"]
    arrays = {name: torch.empty(5, dtype=torch.int64, device="meta") for name in "ab"}
    made = KINDS[kind][0](*stored)
    assert made.offsets(arrays, {}).shape == (evaluate(made.count, {}) + 1,)


@every_kind
def test_names_tell_offsets_apart(kind: str) -> None:
    a, b = (Stored(name, const(4), const(9)) for name in "ab")
    others = [make(a, b) for make, _ in KINDS.values()] + [make(b, a) for make, _ in KINDS.values()]
    others += [make(make(a, b), b) for make, _ in KINDS.values()]
    names = [other.array for other in dict.fromkeys(others)]
    assert len(set(names)) == len(names)
    assert all(name.isidentifier() for name in names)


STEPS: dict[str, Callable[[Fusion, TensorView], TensorView]] = {
    "slice": lambda fusion, x: fusion.slice(x, 1, -2, None),
    "slice from both ends": lambda fusion, x: fusion.slice(x, 1, 1, -1),
    "joined": lambda fusion, x: fusion.concat([x, x * 2], 1),
    "stacked": lambda fusion, x: fusion.concat([x, x * 2], 0),
    "dense": lambda fusion, x: fusion.to_dense(x),
    "flat": lambda fusion, x: fusion.flatten(x, 0, 1),
    "lengths": lambda fusion, x: fusion.row_lengths(x, 1),
    "features": lambda fusion, x: fusion.flatten(x, 1, 2),
    "permuted": lambda fusion, x: fusion.permute(x, [0, 2, 1]),
}


@pytest.mark.parametrize("step", STEPS)
def test_rows_whose_extents_are_written_down(step: str) -> None:
    lengths = (3, 0, 4, 1)
    fusion, other = Fusion(), Fusion()
    rows = RaggedIterDomain.of(listed(lengths), name="r")
    x = fusion.input("x", [IterDomain(4, name="c"), rows, IterDomain(2, name="d")])
    y = fusion.output(STEPS[step](fusion, x), "y")
    offsets = other.input("offsets", [5], "int64")
    z = other.input("x", [8, 2])
    other.output(STEPS[step](other, other.view_as_nested(z, offsets)), "y")
    values = some(8, 2)
    assert torch.equal(fusion.evaluate(values)[0], other.evaluate(offsets_of(lengths), values)[0])
    agree(lower(fusion, y), values)
