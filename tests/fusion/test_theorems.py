"""The theorems of the loop layer, proven by z3 for symbolic extents; the walk rules on the axis table as it is.

Where z3 does not see by itself what a quotient is, it is told by `divided`, whose conditions are proven first.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
import z3
from tests.fusion.translation import Translation, counterexample, divided, inside, proven, unique

from serrate.fusion import IterDomain, RaggedIterDomain
from serrate.fusion.raggedness import Pieces, Stored
from serrate.fusion.scalar import Scalar, ceildiv, load, symbol

Given = Sequence[z3.BoolRef]


def test_quotient_and_remainder_are_unique() -> None:
    """`unique` holds: with k the difference of two quotients, n·k lies between −n and n, so that k is 0."""
    x, n, q, r, k, product = z3.Ints("x n q r k product")
    conditions, result = unique(x, n, q, r)
    difference = q - x / n
    assert proven(n * difference == x % n - r, conditions)
    apart = [z3.Implies(k >= 1, n * k >= n), z3.Implies(k <= -1, n * k <= -n)]
    assert proven(z3.And(apart), [n > 0])
    apart = [z3.Implies(difference >= 1, product >= n), z3.Implies(difference <= -1, product <= -n)]
    assert proven(result, [*conditions, product == x % n - r, *apart, x % n >= 0, x % n < n])


# The divisibility seed


def test_theorem_1_split() -> None:
    i0, i1, i2, n0, n1, n2 = z3.Ints("i0 i1 i2 n0 n1 n2")
    split = [i0 == i1 * n2 + i2, n1 * n2 >= n0]
    assert proven(inside(i1, n1), [*split, inside(i0, n0), inside(i2, n2)])
    assert counterexample(inside(i1, n1), [*split, n0 > 0, n1 > 0, n2 > 0, inside(i0, n0)]) is not None


def test_theorem_2_merge() -> None:
    i2, n0, n1 = z3.Ints("i2 n0 n1")
    assert proven(inside(i2 / n1, n0) == inside(i2, n0 * n1), [n0 >= 0, n1 > 0])


def test_theorem_3_resize() -> None:
    i0, left, right, n0 = z3.Ints("i0 left right n0")
    claim = z3.Implies(inside(i0, n0), inside(i0 + left, n0 + left + right))
    assert proven(claim, [left >= 0, right >= 0])
    assert counterexample(claim, [left < 0, right >= 0]) is not None
    assert counterexample(claim, [left >= 0, right < 0]) is not None


@pytest.mark.parametrize("kind", ["xor", "shift"])
def test_theorem_4_swizzle(kind: str) -> None:
    x, y = symbol("x"), symbol("y")
    step = IterDomain.swizzle(IterDomain(8), IterDomain(8), kind)[0].definition
    assert step is not None
    assert step.inputs[0].extent == step.outputs[0].extent
    assert step.forward((x, y), _nowhere)[0] is x
    assert step.backward((x, y), _nowhere)[0] is x


def _nowhere(axis: IterDomain) -> Scalar:
    raise AssertionError(f"the index of {axis} should not be needed")


def test_theorem_5_divisible_split_and_merge_commute() -> None:
    """Split then merge, and merge then split, for N₂ = d·N: the same extents and the same indices."""
    i, j, n, n1, d = z3.Ints("i j n n1 d")
    given = [n > 0, d > 0, n1 >= 0, inside(i, n1 * d), inside(j, n)]
    first = i / d, i % d * n + j
    known = divided(i * n + j, n * d, *first, given)
    second = (i * n + j) / (n * d), (i * n + j) % (n * d)
    assert proven(z3.And(first[0] == second[0], first[1] == second[1]), [*given, known])
    extent = divided(n1 * (n * d) + (n - 1), n, n1 * d, n - 1, given)
    assert proven((n1 * (n * d) + (n - 1)) / n == n1 * d, [*given, extent])


def test_theorem_5_indivisible_split_and_merge_do_not() -> None:
    """N₂ = d·N − holes: at the first hole, split-then-merge is at (0, N₂) and merge-then-split at (1, 0)."""
    n, n1, n2, d, holes = z3.Ints("n n1 n2 d holes")
    given = [n2 == d * n - holes, holes > 0, holes < n, n2 > 0, n1 > 0]
    assert proven(d > 0, given)
    i, j = d - 1, n - holes
    assert proven(z3.And(inside(i, n1 * d), inside(j, n)), [*given, d > 0])
    first = divided(i, d, z3.IntVal(0), i, [*given, d > 0])
    assert proven(z3.And(i / d == 0, i % d * n + j == n2), [*given, first])
    second = divided(i * n + j, n2, z3.IntVal(1), z3.IntVal(0), given)
    assert proven(z3.And((i * n + j) / n2 == 1, (i * n + j) % n2 == 0), [*given, second])


def test_figure_2_needs_two_predicates_of_three() -> None:
    """15 split by 6, its halves 3 by 2 and 6 by 4: i0 < 15 and i2 < 6 imply i1 < 3; i0 < 15 alone implies no other."""
    i3, i4, i5, i6 = z3.Ints("i3 i4 i5 i6")
    i1, i2 = i3 * 2 + i4, i5 * 4 + i6
    i0 = i1 * 6 + i2
    loops = [inside(i3, 2), inside(i4, 2), inside(i5, 2), inside(i6, 4)]
    assert proven(i1 < 3, [*loops, i0 < 15, i2 < 6])
    assert counterexample(i2 < 6, [*loops, i0 < 15]) is not None


# Identities of LOOPS


def test_nested_division() -> None:
    i, a, b = z3.Ints("i a b")
    given = [a > 0, b > 0]
    known = divided(i, a * b, i / a / b, i / a % b * a + i % a, given)
    assert proven(i / a / b == i / (a * b), [*given, known])


def test_nested_ceiling_division() -> None:
    n, a, b = z3.Ints("n a b")
    given = [n >= 0, a > 0, b > 0]
    inner = (n + a - 1) / a
    outer = (inner + b - 1) / b
    remainder = n + a * b - 1 - outer * (a * b)
    # ⌈⌈N/a⌉/b⌉ = m says (m − 1)·b < ⌈N/a⌉ ≤ m·b, and ⌈N/a⌉ = k says (k − 1)·a < N ≤ k·a.
    steps = [(inner - 1) * a < n, n <= inner * a, (outer - 1) * b < inner, inner <= outer * b]
    assert proven(z3.And(steps), given)
    scaled = [inner * a <= outer * b * a, (inner - 1 - (outer - 1) * b) * a >= 0]
    assert proven(z3.And(scaled), [*given, *steps])
    known = divided(n + a * b - 1, a * b, outer, remainder, [*given, *steps, *scaled])
    assert proven(outer == (n + a * b - 1) / (a * b), [*given, known])


def test_split_of_its_own_index() -> None:
    o, f, j = z3.Ints("o f j")
    given = [inside(j, f)]
    known = divided(o * f + j, f, o, j, given)
    assert proven(z3.And((o * f + j) / f == o, (o * f + j) % f == j), [*given, known])


def test_quotient_below_a_bound() -> None:
    i, d, bound = z3.Ints("i d bound")
    assert proven((i / d < bound) == (i < bound * d), [d > 0])


def test_indivisible_split_is_a_divisible_split_of_a_resize() -> None:
    """Extents and indices; the holes are those that Resize adds."""
    n, f, o, j, i = z3.Ints("n f o j i")
    tiles = (n + f - 1) / f
    holes = tiles * f - n
    given = [n >= 0, f > 0]
    resized = n + 0 + holes
    assert proven(z3.And(holes >= 0, holes < f), given)
    exact = divided(tiles * f, f, tiles, z3.IntVal(0), given)
    assert proven(z3.And(resized % f == 0, resized / f == tiles), [*given, exact])
    index = o * f + j
    loops = [inside(o, tiles), inside(j, f)]
    assert proven(inside(index, resized), [*given, *loops])  # DivisibleSplit makes no holes
    assert proven(inside(index - 0, n) == (index < n), [*given, *loops])  # Resize(0, holes) makes them all
    assert proven(z3.And(inside(i / f, tiles), inside(i % f, f)), [*given, inside(i, n)])


def test_the_api_agrees_on_indivisible_splits() -> None:
    for extent, factor in itertools.product(range(20), range(1, 7)):
        outer, inner = IterDomain.split(IterDomain(extent), factor)
        holes = outer.extent.value * factor - extent
        wide, narrow = IterDomain.split(IterDomain.resize(IterDomain(extent), 0, holes), factor)
        assert wide.definition is not None
        assert not wide.definition.makes_holes
        assert (wide.extent, narrow.extent) == (outer.extent, inner.extent)


# Ragged rules


def offsets(count: int) -> tuple[list[z3.ExprRef], list[z3.ExprRef], list[z3.BoolRef]]:
    """(extents, offsets, what is known of them) of `count` components."""
    extents = list(z3.Ints(" ".join(f"e{c}" for c in range(count))))
    starts = list(itertools.accumulate(extents, initial=z3.IntVal(0)))
    return extents, starts, [extent >= 0 for extent in extents]


def test_a_flat_index_in_bounds_may_be_past_its_row() -> None:
    extents, starts, known = offsets(3)
    r = z3.Int("r")
    flat = starts[1] + r
    model = counterexample(r < extents[1], [*known, inside(flat, starts[3]), r >= 0])
    assert model is not None
    assert model.eval(r).as_long() >= model.eval(extents[1]).as_long()


def _stored(name: str = "off", size: str = "n") -> tuple[IterDomain, RaggedIterDomain]:
    component = IterDomain("k")
    return component, RaggedIterDomain.of(Stored(name, symbol("k"), symbol(size)), component=component)


def test_combine_and_merge_commute() -> None:
    """Combine(C, Merge(R, h)) = Merge(Combine(C, R), h), extents and indices, there and back."""
    component, rows = _stored()
    feature = IterDomain("h")
    merged = IterDomain.merge(rows, feature)
    one = IterDomain.combine(component, merged)
    flat = IterDomain.combine(component, rows)
    other = IterDomain.merge(flat, feature)
    assert one.extent == other.extent
    c, r, b, i = (symbol(name) for name in "crbi")
    translate = Translation({"off": z3.Int("k")})
    at = {component: c}

    def forward(axis: IterDomain, *indices: Scalar) -> Scalar:
        assert axis.definition is not None
        return axis.definition.forward(indices, at.__getitem__)[0]

    def backward(axis: IterDomain, index: Scalar) -> tuple[Scalar, ...]:
        assert axis.definition is not None
        return axis.definition.backward((index,), at.__getitem__)

    first = forward(one, c, forward(merged, r, b))
    second = forward(other, forward(flat, c, r), b)
    assert proven(translate(first) == translate(second))

    found, row_and_feature = backward(one, i)
    at[component] = found
    first_back = (found, *backward(merged, row_and_feature))
    position, place = backward(other, i)
    second_back = (*backward(flat, position), place)
    x, h, start = translate(i), translate(symbol("h")), translate(load("off", found))
    total = translate(load("off", symbol("k")))
    given = [h > 0, inside(x, total * h), *translate.facts]
    known = divided(x - start * h, h, x / h - start, x % h, given)
    pairs = zip(first_back, second_back, strict=True)
    equal = z3.And([translate(left) == translate(right) for left, right in pairs])
    assert proven(equal, [*given, known, *translate.facts])


def _tiles(extents: Sequence[z3.ExprRef], f: z3.ExprRef) -> list[z3.ExprRef]:
    return list(itertools.accumulate([(extent + f - 1) / f for extent in extents], initial=z3.IntVal(0)))


@pytest.mark.parametrize("last", range(4))
def test_combine_and_split_commute_if_all_but_the_last_extent_divide(last: int) -> None:
    """t = tile_off[c] + r / f and j = r mod f, against t = (off[c] + r) / f and j = (off[c] + r) mod f."""
    extents, starts, known = offsets(4)
    f, r = z3.Ints("f r")
    pieces = list(z3.Ints("d0 d1 d2 d3"))
    given = [*known, f > 0, extents[last] > 0]
    given += [extent == f * d for extent, d in zip(extents[:last], pieces, strict=False)]
    given += [extent == 0 for extent in extents[last + 1 :]]
    given += [divided(extents[c] + f - 1, f, pieces[c], f - 1, given) for c in range(last)]
    tiles = _tiles(extents, f)
    assert proven(z3.And([f * tiles[c] == starts[c] for c in range(last + 1)]), given)
    given += [f * tiles[c] == starts[c] for c in range(last + 1)]
    for c in range(last + 1):
        row = [*given, inside(r, extents[c])]
        same = divided(starts[c] + r, f, tiles[c] + r / f, r % f, row)
        claim = z3.And((starts[c] + r) / f == tiles[c] + r / f, (starts[c] + r) % f == r % f)
        assert proven(claim, [*row, same])


def test_combine_and_split_commute_only_if_all_but_the_last_extent_divide() -> None:
    """Where the two agree on the first element of every row, f divides every extent but the last that is not 0."""
    extents, starts, known = offsets(4)
    f = z3.Int("f")
    tiles = _tiles(extents, f)
    agree = [z3.Implies(extents[c] > 0, z3.And(starts[c] / f == tiles[c], starts[c] % f == 0)) for c in range(4)]
    for c in range(4):
        for later in range(c + 1, 4):
            between = [extents[number] == 0 for number in range(c + 1, later)]
            given = [*known, f > 0, *agree, *between, extents[c] > 0, extents[later] > 0]
            quotient = starts[later] / f - starts[c] / f
            given.append(divided(extents[c], f, quotient, z3.IntVal(0), given))
            assert proven(extents[c] % f == 0, given)


def test_launch_bound() -> None:
    """(N + K·(f − 1)) // f ≥ Σ⌈e/f⌉, by induction on K; the bound is the one that Pieces gives."""
    f, total, count, tiles, e = z3.Ints("f n k tiles e")

    def holds(tiles: z3.ExprRef, total: z3.ExprRef, count: z3.ExprRef) -> z3.BoolRef:
        return f * tiles <= total + count * (f - 1)

    assert proven(holds(z3.IntVal(0), z3.IntVal(0), z3.IntVal(0)), [f > 0])
    one_more = (e + f - 1) / f
    rounded = f * one_more <= e + (f - 1)
    assert proven(rounded, [f > 0, e >= 0])
    assert proven(
        holds(tiles + one_more, total + e, count + 1), [f * one_more <= e + (f - 1), holds(tiles, total, count)]
    )
    bound = Translation()(Pieces(Stored("off", symbol("k"), symbol("n")), symbol("f")).total_bound)
    assert proven(tiles <= bound, [f > 0, holds(tiles, total, count)])


def test_guarding_only_the_divisor_lets_an_empty_row_into_the_next() -> None:
    """Merge(A, R) backward with max(e[c], 1) for e[c]: m = 0 of an empty c passes a < Na, and i is in c + 1."""
    extents, starts, known = offsets(3)
    m, outer = z3.Ints("m outer")
    guarded = z3.If(extents[1] > 0, extents[1], 1)
    a, r = m / guarded, m % guarded
    given = [*known, m >= 0, outer > 0, inside(a, outer), inside(starts[1] + r, starts[3])]
    model = counterexample(r < extents[1], given)
    assert model is not None
    assert model.eval(extents[1]).as_long() == 0
    assert proven(r < extents[1], [*given, m < outer * extents[1]])  # predicating m itself is enough


def test_ceiling_division_is_the_extent_of_a_split() -> None:
    translate = Translation()
    n, f = symbol("n"), symbol("f")
    tiles, size, factor = translate(ceildiv(n, f)), translate(n), translate(f)
    assert proven(z3.And(tiles * factor >= size, (tiles - 1) * factor < size), [factor > 0])
