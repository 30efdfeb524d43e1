"""Softmax of packed rows by compiled functions, against torch's of each row in float64; wrong arguments give None."""

from __future__ import annotations

import math

import pytest
import torch
from tests.native.mutants import mutant
from tests.native.packed import INTS, ROWS, offsets_of

import serrate as sr
from serrate.native import row_softmax as library

t = torch.tensor

pytestmark = pytest.mark.skipif(not library.is_there(), reason="needs a C++ compiler")

FLOATS = [torch.float32, torch.float64]
WIDTHS = [0, 1, 2, 3, 7, 16, 33, 63, 64, 65, 128, 130]
LENGTHS = {**ROWS, "edges": [63, 64, 65, 0, 127, 128, 129, 1, 2], "giant": [3, 0, 5_000, 1]}


def drawn(rows: int, width: int, dtype: torch.dtype) -> torch.Tensor:
    draw = torch.Generator().manual_seed(rows * 1_000 + width)
    return (4 * torch.randn(rows, width, generator=draw, dtype=torch.float64)).to(dtype)


def by_rows(values: torch.Tensor, lengths: list[int], log: bool) -> torch.Tensor:
    """torch's own of each row, in float64; rows behind the last one are 0."""
    function = torch.log_softmax if log else torch.softmax
    rows = values.double().split([*lengths, len(values) - sum(lengths)])
    return torch.cat([*(function(row, 0) for row in rows[:-1]), rows[-1] * 0])


def check(lengths: list[int], width: int, dtype: torch.dtype, ints: torch.dtype = torch.int64, spare: int = 0) -> None:
    values, offsets = drawn(sum(lengths) + spare, width, dtype), offsets_of(lengths, ints)
    largest = float(values.abs().max()) if values.numel() else 1.0
    for log in (False, True):
        leaf = values.double().requires_grad_()
        want = by_rows(leaf, lengths, log)
        made = library.softmax(values, offsets, log)
        assert made is not None
        assert made.dtype == dtype
        error = (made.double() - want.detach()).abs()
        # A difference of values is rounded to a unit of the largest; exp makes a relative error of that.
        unit = torch.finfo(dtype).eps * (4 + 4 * largest)
        assert bool((error <= unit * (largest if log else want.detach())).all()), (width, log)
        given = drawn(len(values), width, dtype).flip(0)
        (back,) = torch.autograd.grad(want, leaf, given.double())
        found = library.gradient(given, want.detach().to(dtype), offsets, log)
        assert found is not None
        room = 32 * unit * (1 + given.abs().sum(0).max() if given.numel() else 1)
        assert bool(((found.double() - back).abs() <= room).all()), (width, log)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("kind", LENGTHS)
def test_softmax_and_gradient_of_each_row(dtype: torch.dtype, kind: str) -> None:
    for width in WIDTHS:
        check(LENGTHS[kind], width, dtype)
    for ints in INTS:
        check(LENGTHS[kind], 3, dtype, ints, spare=2)


@pytest.mark.parametrize("dtype", FLOATS)
def test_rows_longer_than_a_piece(dtype: torch.dtype) -> None:
    check([5, 300_000, 1], 1, dtype)
    check([2, 7_000], 40, dtype)
    check([9_000, 3], 65, dtype)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("log", [False, True])
def test_the_same_bits_for_any_number_of_threads(dtype: torch.dtype, log: bool) -> None:
    before = torch.get_num_threads()
    for lengths, width in (([400_000, 3, 600_000], 3), ([40] * 3_000, 64), ([70_000], 70)):
        values, offsets = drawn(sum(lengths), width, dtype), offsets_of(lengths)
        found = []
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            found.append([library.softmax(values, offsets, log), library.gradient(values, values, offsets, log)])
        torch.set_num_threads(before)
        for one in found[1:]:
            assert all(torch.equal(a, b) for a, b in zip(one, found[0], strict=True) if a is not None and b is not None)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("width", [1, 3, 64, 100])
def test_nan_and_inf_stay_in_their_row_and_column(dtype: torch.dtype, width: int) -> None:
    lengths = [3, 70, 2, 0, 5]
    values, offsets = drawn(sum(lengths), width, dtype), offsets_of(lengths)
    values[1, 0], values[4, -1], values[74, 0] = math.nan, math.inf, -math.inf
    values[75:, -1] = -math.inf
    for log in (False, True):
        made, want = library.softmax(values, offsets, log), by_rows(values, lengths, log)
        assert made is not None
        torch.testing.assert_close(made.double(), want, rtol=1e-5, atol=1e-5, equal_nan=True)


def check_log_sums(values: torch.Tensor, lengths: list[int], rtol: float) -> None:
    made = library.log_sums(values, offsets_of(lengths))
    assert made is not None
    want = torch.stack([torch.logsumexp(row, 0) for row in values.double().split(lengths)])
    torch.testing.assert_close(made.double(), want, rtol=rtol, atol=rtol, equal_nan=True)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("kind", [kind for kind in LENGTHS if LENGTHS[kind]])
def test_logarithms_of_sums(dtype: torch.dtype, kind: str) -> None:
    for width in WIDTHS:
        check_log_sums(drawn(sum(LENGTHS[kind]), width, dtype), LENGTHS[kind], 8 * torch.finfo(dtype).eps)
    spare = drawn(sum(LENGTHS[kind]) + 2, 3, dtype)
    found = library.log_sums(spare[:-2], offsets_of(LENGTHS[kind])), library.log_sums(spare, offsets_of(LENGTHS[kind]))
    assert found[0] is not None
    assert found[1] is not None
    assert torch.equal(*found)


@pytest.mark.parametrize("dtype", FLOATS)
def test_logarithms_of_sums_of_long_rows(dtype: torch.dtype) -> None:
    for lengths, width in (([5, 300_000, 1], 1), ([2, 7_000], 40), ([9_000, 3], 65)):
        check_log_sums(drawn(sum(lengths), width, dtype), lengths, 8 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("width", [1, 3, 64, 100])
def test_logarithms_of_sums_of_nan_and_inf(width: int) -> None:
    lengths = [3, 70, 2, 0, 5, 4]
    values = drawn(sum(lengths), width, torch.float32)
    values[1, 0], values[4, -1], values[74, 0] = math.nan, math.inf, -math.inf
    values[75:80, -1] = -math.inf
    values[80:, 0] = t([-math.inf, math.nan, -math.inf, math.inf])
    check_log_sums(values, lengths, 1e-6)


@pytest.mark.parametrize("columns", [1, 3])
def test_numbers_that_exp_alone_would_not_take(columns: int) -> None:
    large = t([[1e4], [1e4 - 1], [-1e4], [0.0], [-1e30], [3e38]], dtype=torch.float32).expand(-1, columns)
    values = torch.cat([large, drawn(700, columns, torch.float32)])
    made = library.softmax(values, t([0, 3, 6, 706]), False)
    assert made is not None
    torch.testing.assert_close(made.double(), by_rows(values, [3, 3, 700], False), rtol=1e-5, atol=1e-12)
    for count in (50, 706):
        made = library.softmax(values[:count], t([0, count]), False)
        assert made is not None
        torch.testing.assert_close(made.double(), by_rows(values[:count], [count], False), rtol=1e-5, atol=1e-12)


def test_exp_of_every_size() -> None:
    """Relative errors, and subnormal results, of one column next to 0."""
    for dtype, least in ((torch.float32, -110.0), (torch.float64, -760.0)):
        far = torch.linspace(least, 0, 50_001, dtype=torch.float64).to(dtype)
        values = torch.stack([torch.zeros_like(far), far], 1).reshape(-1, 1)
        made = library.softmax(values, torch.arange(0, 2 * len(far) + 1, 2), False)
        assert made is not None
        want = torch.softmax(torch.stack([torch.zeros_like(far), far], 1).double(), 1)[:, 1]
        tiny = torch.finfo(dtype).tiny * torch.finfo(dtype).eps
        room = 4 * torch.finfo(dtype).eps * want + 2 * tiny
        assert bool(((made[1::2, 0].double() - want).abs() <= room).all())


def test_derivatives_to_the_second() -> None:
    for lengths, features in (([3, 0, 1, 4], ()), ([2, 3], (2,)), ([70], ())):
        values = drawn(sum(lengths), max(math.prod(features), 1), torch.float64).view(-1, *features).requires_grad_()
        for function in (sr.softmax, sr.log_softmax):

            def call(v: torch.Tensor, function: object = function, lengths: list[int] = lengths) -> torch.Tensor:
                return function(sr.from_lengths(v, lengths), axis=1).values  # type: ignore[operator,no-any-return]

            assert torch.autograd.gradcheck(call, (values,))
            assert torch.autograd.gradgradcheck(call, (values,))


@pytest.mark.parametrize("offsets", [[1, 4], [0, 2, 1, 3], [0, 9], [0, -1, 3], [-1, 3]])
def test_wrong_offsets(offsets: list[int]) -> None:
    values = torch.ones(3, 2)
    assert library.softmax(values, t(offsets), False) is None
    assert library.gradient(values, values, t(offsets), True) is None
    assert library.log_sums(values, t(offsets)) is None


def test_memory_in_any_order() -> None:
    values = drawn(2, 12, torch.float32).T
    made = library.softmax(values, t([0, 5, 12]), False)
    assert made is not None
    torch.testing.assert_close(made.double(), by_rows(values, [5, 7], False), rtol=1e-6, atol=0)


def test_other_dtypes_and_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    assert library.softmax(torch.ones(2, dtype=torch.float16), t([0, 2]), False) is None
    assert library.gradient(torch.ones(2), torch.ones(2).double(), t([0, 2]), False) is None
    x = sr.from_lengths(drawn(6, 2, torch.float32), [4, 2])
    with_compiler = sr.softmax(x, axis=1)
    monkeypatch.setattr(library, "_library", lambda: None)
    assert library.softmax(x.values, x.offsets[0], False) is None
    torch.testing.assert_close(sr.softmax(x, axis=1).values, with_compiler.values)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("line[j] > found[j] ? line[j] : found[j]", "line[j]"),  # the last instead of the greatest
        ("top = given[v] > top ? given[v] : top", "top = given[v]"),  # the same in one short column
        ("top = given > top ? given : top", "top = given"),  # the same in one long column
        ("total += combined", "total = combined"),  # without all but the last part of one column
        ("return top - top == 0 ? top : T(0); }", "return top; }"),  # with infinities taken from infinities
        ("Form::kTop ? -std::numeric_limits<T>::infinity() : T(0)", "T(0)"),  # with terms where there is no element
        ("return y * (x - sum); }", "return y * x; }"),  # without what the sum takes away
        ("line[j] = combine(line[j], line[j + half])", "line[j] = line[j]"),  # columns that are not put together
        ("if (lines.rest && count < kPiece)", "if (lines.rest && count < 0)"),  # without the last rows
        ("p + step < pieces; p += 2 * step", "p + step < pieces; p += 4 * step"),  # without some pieces
    ],
)
def test_mistakes_are_found(right: str, wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"{form}_{number}" for form in library._FORMS for number in library._FLOATS.values()]
    broken = mutant("row_softmax.cpp", names, right, wrong)
    monkeypatch.setattr(library, "_library", lambda: broken)
    with pytest.raises(AssertionError):  # noqa: PT012  any of them may find it
        test_softmax_and_gradient_of_each_row(torch.float32, "edges")
        test_rows_longer_than_a_piece(torch.float32)
        test_logarithms_of_sums_of_nan_and_inf(64)
        test_numbers_that_exp_alone_would_not_take(1)
        test_numbers_that_exp_alone_would_not_take(3)
