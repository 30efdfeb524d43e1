"""Products and softmax of packed rows are compared with FBGEMM's and with torch's for each component."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from tests.compat.jagged_rows import offsets_of
from torch.autograd import gradcheck, gradgradcheck

import serrate as sr
from serrate.compat import fbgemm
from serrate.compat.fbgemm import batched_products, levels
from serrate.errors import RaggednessError
from serrate.tensor.partition import Partition

pytestmark = pytest.mark.usefixtures("way")

pytest.importorskip("fbgemm_gpu")
theirs = torch.ops.fbgemm
LENGTHS = ([3, 0, 5, 1], [2, 2, 2], [0, 0], [7], [])


def spans(offsets: torch.Tensor, most: int) -> list[slice]:
    return [slice(a, min(b, a + most)) for a, b in pairwise(offsets.tolist())]


def softmax(values: torch.Tensor, offsets: torch.Tensor, most: int) -> torch.Tensor:
    out = torch.zeros_like(values)
    for span in spans(offsets, most):
        out[span] = torch.softmax(values[span].double(), 0).to(values.dtype)
    return out


def dense_bmm(x: torch.Tensor, offsets: torch.Tensor, y: torch.Tensor, most: int) -> torch.Tensor:
    out = x.new_zeros(x.shape[0], y.shape[2])
    for b, span in enumerate(spans(offsets, most)):
        out[span] = _wide(x[span], y[b]).to(x.dtype)
    return out


def jagged_bmm(x: torch.Tensor, y: torch.Tensor, offsets: torch.Tensor, most: int) -> torch.Tensor:
    made = [_wide(x[span].mT, y[span]).to(x.dtype) for span in spans(offsets, most)]
    return torch.stack(made) if made else x.new_zeros(0, x.shape[1], y.shape[1])


def vec_mul(v: torch.Tensor, a: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    batch = offsets.numel() - 1
    heads = v.shape[0] // batch if batch else 1
    size = a.shape[1] // heads
    out = a.new_zeros(batch * heads, size)
    for b, span in enumerate(spans(offsets, v.shape[1])):
        for h in range(heads):
            row = b * heads + h
            part = a[span, h * size : (h + 1) * size]
            out[row] = _wide(v[row : row + 1, : part.shape[0]], part)[0].to(a.dtype)
    return out


def _wide(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    wide = torch.float64 if x.is_floating_point() else x.dtype
    return x.to(wide) @ y.to(wide)


def close(ours: torch.Tensor, expected: torch.Tensor) -> None:
    assert ours.dtype == expected.dtype
    torch.testing.assert_close(ours, expected, equal_nan=True)


# ---------------------------------------------------------------------------------------- results equal FBGEMM's


@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
@pytest.mark.parametrize("most", [0, 1, 3, 9])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("spare", [0, 2])
def test_like_fbgemm(lengths: list[int], most: int, dtype: torch.dtype, spare: int) -> None:
    torch.manual_seed(0)
    (offsets,) = offsets_of(lengths, dtype=dtype)
    x, z = torch.randn(sum(lengths) + spare, 4), torch.randn(sum(lengths) + spare, 3)
    y = torch.randn(len(lengths), 4, 5)
    made, returned = fbgemm.jagged_dense_bmm(x, offsets, y, most)
    close(made, theirs.jagged_dense_bmm(x, offsets, y, most)[0])
    assert returned is offsets
    close(fbgemm.jagged_jagged_bmm(x, z, offsets, most), theirs.jagged_jagged_bmm(x, z, offsets, most))
    made, returned = fbgemm.jagged_softmax(x, offsets, most)
    assert returned is offsets
    known = softmax(torch.ones_like(x), offsets, most) > 0
    close(made[known], theirs.jagged_softmax(x, offsets, most)[0][known])
    assert not made[~known].any()
    for heads in (1, 2):
        v = torch.randn(len(lengths) * heads, max(most, 1))
        close(
            fbgemm.batched_dense_vec_jagged_2d_mul(v, x, offsets),
            theirs.batched_dense_vec_jagged_2d_mul(v, x, offsets),
        )


@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
@pytest.mark.parametrize("most", [0, 2, 9])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("spare", [0, 3])
def test_row_by_row(lengths: list[int], most: int, dtype: torch.dtype, spare: int) -> None:
    torch.manual_seed(1)
    (offsets,) = offsets_of(lengths)
    rows = sum(lengths) + spare
    for features in (0, 1, 6):
        x, z = torch.randn(rows, features).to(dtype), torch.randn(rows, 3).to(dtype)
        y = torch.randn(len(lengths), features, 5).to(dtype)
        close(fbgemm.jagged_dense_bmm(x, offsets, y, most)[0], dense_bmm(x, offsets, y, most))
        close(fbgemm.jagged_jagged_bmm(x, z, offsets, most), jagged_bmm(x, z, offsets, most))
        close(fbgemm.jagged_softmax(x, offsets, most)[0], softmax(x, offsets, most))
        v = torch.randn(len(lengths) * (features // 2 or 1), most).to(dtype)
        close(fbgemm.batched_dense_vec_jagged_2d_mul(v, x, offsets), vec_mul(v, x, offsets))


def test_integers() -> None:
    (offsets,) = offsets_of([2, 0, 3])
    x, y = torch.arange(10).view(5, 2), torch.arange(12).view(3, 2, 2)
    close(fbgemm.jagged_dense_bmm(x, offsets, y, 2)[0], dense_bmm(x, offsets, y, 2))
    close(fbgemm.jagged_jagged_bmm(x, x, offsets, 2), jagged_bmm(x, x, offsets, 2))
    v = torch.arange(6).view(3, 2)
    close(fbgemm.batched_dense_vec_jagged_2d_mul(v, x, offsets), vec_mul(v, x, offsets))
    with pytest.raises(TypeError, match=r"values must be floating-point, got torch\.int64"):
        fbgemm.jagged_softmax(x, offsets, 2)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_accumulates_in_float32(dtype: torch.dtype) -> None:
    """A sum of ones that is kept in half would stop at 2048, and one in bfloat16 at 256."""
    (offsets,) = offsets_of([8192, 3])
    ones = torch.ones(8195, 2, dtype=dtype)
    assert fbgemm.jagged_jagged_bmm(ones, ones, offsets, 8192)[0, 0, 0] == 8192
    assert fbgemm.batched_dense_vec_jagged_2d_mul(torch.ones(2, 8192, dtype=dtype), ones, offsets)[0, 0] == 8192
    made = fbgemm.jagged_softmax(ones, offsets, 8192)[0]
    assert made[0, 0] == 2.0**-13


def test_many_classes() -> None:
    """The lengths fall into several length classes, and are past the sizes for which padding is faster."""
    torch.manual_seed(2)
    lengths = torch.randint(0, 90, (60,)).tolist()
    (offsets,) = offsets_of(lengths)
    x, z = torch.randn(sum(lengths), 16, dtype=torch.float64), torch.randn(sum(lengths), 8, dtype=torch.float64)
    y = torch.randn(60, 16, 8, dtype=torch.float64)
    for most in (20, 90):
        close(fbgemm.jagged_dense_bmm(x, offsets, y, most)[0], dense_bmm(x, offsets, y, most))
        close(fbgemm.jagged_jagged_bmm(x, z, offsets, most), jagged_bmm(x, z, offsets, most))
        close(fbgemm.jagged_softmax(x, offsets, most)[0], softmax(x, offsets, most))


def test_softmax_of_any_features() -> None:
    (offsets,) = offsets_of([2, 0, 3])
    for features in ((), (2,), (2, 3)):
        values = torch.randn(5, *features)
        close(fbgemm.jagged_softmax(values, offsets, 2)[0], softmax(values, offsets, 2))


def test_nothing_leaks() -> None:
    """NaN and infinities of one component, or of rows that are cut off, do not reach other rows."""
    (offsets,) = offsets_of([2, 3, 1])
    x = torch.ones(7, 2)
    x[1] = float("inf")
    x[4] = float("nan")
    x[6] = float("nan")
    y = torch.ones(3, 2, 2)
    y[2] = float("nan")
    for most in (1, 2, 3):
        close(fbgemm.jagged_softmax(x, offsets, most)[0], softmax(x, offsets, most))
        close(fbgemm.jagged_dense_bmm(x, offsets, y, most)[0], dense_bmm(x, offsets, y, most))
        close(fbgemm.jagged_jagged_bmm(x, x, offsets, most), jagged_bmm(x, x, offsets, most))
        v = torch.ones(3, most)
        close(fbgemm.batched_dense_vec_jagged_2d_mul(v, x, offsets), vec_mul(v, x, offsets))
    low = torch.full((6, 2), -float("inf"))
    low[0] = 1.0
    close(fbgemm.jagged_softmax(low, offsets, 3)[0], softmax(low, offsets, 3))


def test_layouts() -> None:
    (offsets,) = offsets_of([2, 0, 3])
    x, y = torch.randn(4, 5).T, torch.randn(6, 4, 3).permute(2, 1, 0)
    close(fbgemm.jagged_dense_bmm(x, offsets, y, 3)[0], dense_bmm(x, offsets, y, 3))
    close(fbgemm.jagged_jagged_bmm(x, x, offsets, 2), jagged_bmm(x, x, offsets, 2))
    close(fbgemm.jagged_softmax(x, offsets, 3)[0], softmax(x, offsets, 3))
    v = torch.randn(3, 6).T
    close(fbgemm.batched_dense_vec_jagged_2d_mul(v, x, offsets), vec_mul(v, x, offsets))


# ---------------------------------------------------------------------------------------------------- gradients


@pytest.mark.parametrize("most", [2, 5])
@pytest.mark.parametrize("spare", [0, 1])
def test_gradients(most: int, spare: int) -> None:
    torch.manual_seed(3)
    (offsets,) = offsets_of([3, 0, 4])
    x, z = (torch.randn(7 + spare, 2, dtype=torch.float64, requires_grad=True) for _ in range(2))
    y = torch.randn(3, 2, 3, dtype=torch.float64, requires_grad=True)
    v, w = (torch.randn(3 * h, most, dtype=torch.float64, requires_grad=True) for h in (1, 2))
    calls: list[tuple[Any, tuple[torch.Tensor, ...]]] = [
        (lambda x, y: fbgemm.jagged_dense_bmm(x, offsets, y, most)[0], (x, y)),
        (lambda x, z: fbgemm.jagged_jagged_bmm(x, z, offsets, most), (x, z)),
        (lambda x: fbgemm.jagged_softmax(x, offsets, most)[0], (x,)),
        (lambda v, x: fbgemm.batched_dense_vec_jagged_2d_mul(v, x, offsets), (v, x)),
        (lambda v, x: fbgemm.batched_dense_vec_jagged_2d_mul(v, x, offsets), (w, x)),
    ]
    for function, given in calls:
        assert gradcheck(function, given, fast_mode=True)
        assert gradgradcheck(function, given, fast_mode=True)


def test_gradients_like_fbgemm() -> None:
    torch.manual_seed(4)
    (offsets,) = offsets_of([3, 0, 4])
    x, z = (torch.randn(7, 4, requires_grad=True) for _ in range(2))
    y, v = torch.randn(3, 4, 3, requires_grad=True), torch.randn(6, 4, requires_grad=True)
    for name, given, leaves in (
        ("jagged_dense_bmm", (x, offsets, y, 4), (x, y)),
        ("jagged_jagged_bmm", (x, z, offsets, 4), (x, z)),
        ("jagged_softmax", (x, offsets, 4), (x,)),
        ("batched_dense_vec_jagged_2d_mul", (v, x, offsets), (v, x)),
    ):
        made = [getattr(where, name)(*given) for where in (fbgemm, theirs)]
        results = [m if isinstance(m, torch.Tensor) else m[0] for m in made]
        seed = torch.randn_like(results[0])
        for ours, other in zip(*(torch.autograd.grad(r, leaves, seed) for r in results), strict=True):
            torch.testing.assert_close(ours, other, rtol=1e-4, atol=1e-5)


# ----------------------------------------------------------------------------------- lengths that only a device knows


@pytest.mark.parametrize("most", [0, 2, 9])
@pytest.mark.parametrize("spare", [0, 2])
def test_without_host_lengths(most: int, spare: int, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(5)
    (offsets,) = offsets_of([3, 0, 4])
    x, z = (torch.randn(7 + spare, 4, dtype=torch.float64) for _ in range(2))
    y, v = torch.randn(3, 4, 3, dtype=torch.float64), torch.randn(6, most, dtype=torch.float64)

    def born_there(given: torch.Tensor, values: torch.Tensor, rows: int, name: str) -> Partition:
        return levels._device_level(given, rows, name, None)

    monkeypatch.setattr(batched_products, "level_of", born_there)
    with sr.testing.forbid_sync():
        made = fbgemm.jagged_dense_bmm(x, offsets, y, most)[0]
        squares = fbgemm.jagged_jagged_bmm(x, z, offsets, most)
        soft = fbgemm.jagged_softmax(x, offsets, most)[0]
        sums = fbgemm.batched_dense_vec_jagged_2d_mul(v, x, offsets)
    close(made, dense_bmm(x, offsets, y, most))
    close(squares, jagged_bmm(x, z, offsets, most))
    close(soft, softmax(x, offsets, most))
    close(sums, vec_mul(v, x, offsets))


@pytest.mark.parametrize("bad", [[1, 2], [0, 2, 1], [0, 9]])
def test_bad_offsets_on_a_device(bad: list[int]) -> None:
    with pytest.raises(RaggednessError, match="x must start with 0, never decrease and end with at most 3"):
        levels._device_level(torch.tensor(bad), 3, "x", None)


# --------------------------------------------------------------------------------------------------- wrong calls

GOOD = torch.tensor([0, 2, 3])
X = torch.ones(3, 4)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: fbgemm.jagged_softmax(X, GOOD, -1), RaggednessError, "max_L must be 0 or more, got -1"),
        (lambda: fbgemm.jagged_softmax(X, GOOD + 1, 2), RaggednessError, "x_offsets must start with 0"),
        (lambda: fbgemm.jagged_softmax(X[:2], GOOD, 2), RaggednessError, "x_offsets must end with at most 2"),
        (
            lambda: fbgemm.jagged_softmax(X, [0, 2, 3], 2),
            TypeError,
            "x_offsets must be a tensor of offsets, got a list",
        ),
        (lambda: fbgemm.jagged_dense_bmm(X[0], GOOD, torch.ones(2, 4, 1), 2), ValueError, "x_values must have 2 axes"),
        (lambda: fbgemm.jagged_dense_bmm(X, GOOD, torch.ones(2, 4), 2), ValueError, "y must have 3 axes"),
        (lambda: fbgemm.jagged_dense_bmm(X, GOOD, torch.ones(3, 4, 1), 2), RaggednessError, "with B = 2 and K = 4"),
        (lambda: fbgemm.jagged_dense_bmm(X, GOOD, torch.ones(2, 1, 1), 2), RaggednessError, "with B = 2 and K = 4"),
        (lambda: fbgemm.jagged_jagged_bmm(X, X[:2], GOOD, 2), RaggednessError, "as many rows as x_values"),
        (lambda: fbgemm.batched_dense_vec_jagged_2d_mul(X, X, GOOD), RaggednessError, "an H that divides 4"),
        (lambda: fbgemm.batched_dense_vec_jagged_2d_mul(X[:0], X, GOOD), RaggednessError, "an H that divides 4"),
        (lambda: fbgemm.batched_dense_vec_jagged_2d_mul(X[0], X, GOOD), ValueError, "v must have 2 axes"),
        (
            lambda: fbgemm.batched_dense_vec_jagged_2d_mul(torch.ones(6, 2), X, GOOD),
            RaggednessError,
            r"v must be \[B·H, L\] with B = 2",
        ),
    ],
)
def test_wrong_calls(call: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call()
