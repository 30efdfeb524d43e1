"""Sizes: one normal form for equal polynomials, and the way back from the number that stands for a size."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serrate.program.points import POINTS, SCALES, Point, Scale
from serrate.program.sizes import Polynomial, Size, Symbol, is_said, replaced, symbol

B, N, M = symbol("size", "B"), symbol("size", "N"), symbol("size", "M")


@st.composite
def sizes(draw: st.DrawFn) -> Size:
    """A sum of at most two products of symbols with small coefficients, and a number."""
    made: Size = draw(st.integers(0, 50))
    for _ in range(draw(st.integers(0, 2))):
        term: Size = draw(st.integers(1, 30))
        for each in draw(st.lists(st.sampled_from([B, N, M]), min_size=1, max_size=2)):
            term = each * term
        made = made + term
    return made


def at(size: Size, values: dict[Size, int]) -> int:
    numbers = {each.terms[0][0][0]: number for each, number in values.items() if isinstance(each, Polynomial)}
    made = replaced(size, lambda each: numbers[each])
    assert isinstance(made, int)
    return made


@given(sizes(), sizes(), st.integers(0, 9), st.integers(0, 9), st.integers(0, 9))
def test_arithmetic_is_that_of_numbers(one: Size, other: Size, b: int, n: int, m: int) -> None:
    values = {B: b, N: n, M: m}
    assert at(one + other, values) == at(one, values) + at(other, values)
    assert at(one * other, values) == at(one, values) * at(other, values)


@given(sizes(), sizes(), sizes())
def test_equal_polynomials_are_equal_values(a: Size, b: Size, c: Size) -> None:
    assert (a + b) * c == c * b + a * c
    assert hash((a + b) * c) == hash(c * b + a * c)
    assert a + B + -1 * B == a


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("which", range(POINTS))
@given(size=sizes())
def test_the_size_is_read_off_its_number(size: Size, scale: Scale, which: int) -> None:
    point = Point({}, which, scale)
    for each in (B, N, M):
        point.number(each)
    assert point.size(point.number(size)) == size


TERMS = [B, N, M, B * N, 5 * B, 3 * N * M, 100 * M]


@given(st.sampled_from(TERMS), st.sampled_from(TERMS), st.integers(1, 60), st.integers(1, 255), st.integers(-2, 2))
def test_the_size_of_what_eager_code_makes_of_numbers_is_read_off(
    one: Size, other: Size, few: int, many: int, near: int
) -> None:
    point = Point({})
    a, b = point.number(one), point.number(other)
    assert point.size(a * b) == one * other
    assert point.size(a * 2 + many) == one * 2 + many
    assert point.size(a * few + b + near) == one * few + other + near


def test_a_symbol_that_equals_another_size_is_replaced_by_it() -> None:
    point = Point({N.terms[0][0][0]: 2 * B + 1})
    assert point.number(N) == 2 * point.number(B) + 1
    assert point.size(point.number(N) * 3) == 6 * B + 3


def test_later_symbols_have_smaller_numbers() -> None:
    point = Point({})
    numbers = [point.number(symbol("size", f"n{i}")) for i in range(50)]
    assert numbers == sorted(numbers, reverse=True)


def test_large_numbers_of_operands_are_numbers_and_no_type_says_others() -> None:
    point = Point({})
    number = point.number(B)
    assert point.size(point.number(30_000_001)) == 30_000_001
    assert point.size(50_257) == 50_257
    odd = point.size(number // 2 + 3_000_000)
    assert not is_said(odd)
    assert point.number(odd) == number // 2 + 3_000_000
    assert point.size(2 * point.number(odd)) == 2 * odd


def test_numbers_that_are_known_are_read_as_themselves() -> None:
    point = Point({})
    number = point.number(symbol("longest", "p0")) + 1
    assert str(point.size(number)) == "longest(p0) + 1"
    assert number in point.guessed
    plain = Point({}, plain=frozenset(point.guessed))
    plain.number(symbol("longest", "p0"))
    assert plain.size(number) == number


def test_numbers_below_0_are_counted_from_the_end() -> None:
    point = Point({})
    assert point.size(-point.number(2 * B)) == -2 * B
    assert point.size(-3) == -3


@pytest.mark.parametrize("scale", SCALES)
def test_no_sum_of_two_numbers_is_nearly_twice_a_third(scale: Scale) -> None:
    """Of the primes for the first twenty symbols, no two have a sum that is nearly twice a third."""
    for primes in scale.primes:
        numbers = [primes[i] for i in range(20)]
        sums = [(a, b, c) for a in numbers for b in numbers for c in numbers if a < b and abs(a + b - 2 * c) <= 2]
        assert not sums


def test_texts() -> None:
    assert str(2 * B * N + 3) == "2·B·N + 3"
    assert str(symbol("longest", "p0")) == "longest(p0)"
    assert str(Symbol("size", ("B",))) == "B"
