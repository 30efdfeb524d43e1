"""Decompositions, inverses and solutions of stacks of matrices: the array API's `linalg` extension, `sr.linalg`.

The matrices are the last two axes, which are uniform; axes before them may be ragged, and the result keeps them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from serrate.eager.stacks import LinAlgError, Stack, answer, filled, floating, stack
from serrate.ops import matrix_rules as rules
from serrate.ops.answers import refuse_out
from serrate.ops.record import Error, operation, ops, record
from serrate.ops.reductions import accumulating
from serrate.tensor import abstract
from serrate.tensor.broadcast import align, broadcast_shapes, lay_out, require_one_device, same_raggedness
from serrate.tensor.combine import zeroed
from serrate.tensor.layout import canonical
from serrate.tensor.structure import DENSE
from serrate.tensor.tensor import Tensor, as_tensor


class EighResult(NamedTuple):
    """What `sr.linalg.eigh` gives."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class QRResult(NamedTuple):
    """What `sr.linalg.qr` gives."""

    Q: Tensor
    R: Tensor


class SlogdetResult(NamedTuple):
    """What `sr.linalg.slogdet` gives."""

    sign: Tensor
    logabsdet: Tensor


class SVDResult(NamedTuple):
    """What `sr.linalg.svd` gives."""

    U: Tensor
    S: Tensor
    Vh: Tensor


# ---------------------------------------------------------------------------------------------------- one operand


def _square(name: str, x: Any) -> Stack:
    return stack(name, floating(name, x), square=True)


def _oblong(name: str, x: Any) -> Stack:
    return stack(name, floating(name, x))


@operation
def _det(x: Any, /) -> Tensor:
    given = _square("det", x)
    return given.result(torch.linalg.det(given.values))


@operation
def _slogdet(x: Any, /) -> SlogdetResult:
    given = _square("slogdet", x)
    return given.results(torch.linalg.slogdet(given.values), SlogdetResult)  # type: ignore[no-any-return]


def _inverses(given: Stack, name: str) -> torch.Tensor:
    made: torch.Tensor
    made, info = torch.linalg.inv_ex(given.values)  # inv itself waits for the device to learn whether all went well
    given.require(name, info, "singular")
    return made


@operation
def _inv(x: Any, /) -> Tensor:
    given = _square("inv", x)
    return given.result(_inverses(given, "inv"))


@operation
def _cholesky(x: Any, /, *, upper: bool = False) -> Tensor:
    given = _square("cholesky", x)
    made, info = torch.linalg.cholesky_ex(given.values, upper=upper)
    given.require("cholesky", info, "not positive-definite")
    return given.result(made)


@operation
def _eigh(x: Any, /) -> EighResult:
    given = _square("eigh", x)
    return given.results(torch.linalg.eigh(given.values), EighResult)  # type: ignore[no-any-return]


@operation
def _eigvalsh(x: Any, /) -> Tensor:
    given = _square("eigvalsh", x)
    return given.result(torch.linalg.eigvalsh(given.values))


@operation
def _qr(x: Any, /, *, mode: str = "reduced") -> QRResult:
    if mode not in ("reduced", "complete"):
        raise ValueError(f"mode of qr is 'reduced' or 'complete', got {mode!r}")
    given = _oblong("qr", x)
    given.require_smaller("qr")
    return given.results(torch.linalg.qr(given.values, mode), QRResult)  # type: ignore[no-any-return]


@operation
def _svd(x: Any, /, *, full_matrices: bool = True) -> SVDResult:
    given = _oblong("svd", x)
    given.require_smaller("svd")
    return given.results(torch.linalg.svd(given.values, full_matrices), SVDResult)  # type: ignore[no-any-return]


@operation
def _svdvals(x: Any, /) -> Tensor:
    given = _oblong("svdvals", x)
    given.require_smaller("svdvals")
    return given.result(torch.linalg.svdvals(given.values))


@operation
def _matrix_power(x: Any, n: int, /) -> Tensor:
    try:
        power = operator.index(n)
    except TypeError:
        raise TypeError(f"matrix_power takes an integer, got {n!r:.40}") from None
    given = _square("matrix_power", x)
    base = given.values if power >= 0 else _inverses(given, "matrix_power")
    return given.result(torch.linalg.matrix_power(base, abs(power)))


# ------------------------------------------------------------------------------------------------- with tolerances


def _tolerance(given: Stack, rtol: Any) -> Any:
    """`rtol`, by default the larger size of the matrices times the precision of the elements as they came."""
    return max(given.values.shape[-2:]) * torch.finfo(given.x.dtype).eps if rtol is None else rtol


@operation
def _matrix_rank(x: Any, /, *, rtol: Any = None) -> Tensor:
    given = _oblong("matrix_rank", x)
    sizes = given.result(torch.linalg.svdvals(given.values.detach()))
    tolerance = _tolerance(given, rtol)
    if isinstance(tolerance, (Tensor, torch.Tensor)):
        tolerance = as_tensor(tolerance)[..., None]
    return _count_above(sizes, tolerance)  # type: ignore[no-any-return]


def _count_above(sizes: Any, tolerance: Any) -> Any:
    least = ops.max(sizes, axis=-1, keepdims=True) * tolerance
    return ops.count_nonzero(ops.greater(sizes, least), axis=-1)


@operation
def _pinv(x: Any, /, *, rtol: Any = None) -> Tensor:
    given = _oblong("pinv", x)
    tolerance = _tolerance(given, rtol)
    if isinstance(tolerance, (Tensor, torch.Tensor)):
        one = given.result(given.values.new_empty(given.values.shape[: given.depth]))  # a number for each matrix
        tolerance = align(tolerance, one)
    return given.result(torch.linalg.pinv(given.values, rtol=tolerance))


def _matrix_rank_body(x: Any, /, *, rtol: Any = None) -> Any:
    tolerance = max(x.shape[-2:]) * torch.finfo(x.dtype).eps if rtol is None else rtol
    if isinstance(tolerance, Tensor):
        tolerance = ops.expand_dims(tolerance, axis=tolerance.ndim)
    return _count_above(ops["linalg.svdvals"](x), tolerance)


def _matrix_power_body(x: Any, n: int, /) -> Any:
    base = ops["linalg.inv"](accumulating(x)) if n < 0 else accumulating(x)
    made, left = None, abs(n)
    while left:
        if left % 2:
            made = base if made is None else made @ base
        left //= 2
        base = base @ base if left else base
    one = ops.eye(x.shape[-1], dtype=x.dtype, device=x.device)
    return ops.broadcast_to(one, x.shape) if made is None else ops.astype(made, x.dtype)


# --------------------------------------------------------------------------------------------------- two operands


@operation
def _solve(x1: Any, x2: Any, /) -> Tensor:
    left, right = _square("solve", x1), floating("solve", x2)
    require_one_device(left.x, right)
    vector = right.ndim == 1
    sides = stack("solve", right[:, None] if vector else right)
    if abstract.differ(sides.values.shape[-2], left.values.shape[-1]):
        raise ValueError(
            f"solve needs as many rows in x2 as x1 has, got shapes {left.x.shape} and {right.shape}; x2 is a vector "
            f"only if it has one axis"
        )
    made = _solved(left, sides)
    return made[..., 0] if vector else made


def _solved(left: Stack, sides: Stack) -> Tensor:
    """The solutions, the stacks stretched against each other."""
    dtype = torch.promote_types(left.values.dtype, sides.values.dtype)
    narrow = torch.promote_types(left.x.dtype, sides.x.dtype)
    a, b = (each.result(each.values).to(dtype) for each in (left, sides))  # the matrix is last in storage, too
    shape = broadcast_shapes(a.shape[:-2], b.shape[:-2])
    full = (*shape, a.shape[-1], b.shape[-1])
    structure, _, order = canonical(full)
    for each in (a, b):
        if each.is_ragged and same_raggedness(each.shape[:-2], shape):
            structure, order = each.structure, each.order
            break
    if structure is DENSE:
        return Tensor(_solutions(left, a.values, b.values).to(narrow), team=a.team)
    # One matrix for all rows stays one; its gradient has no part of undefined rows, since `zeroed` leaves them none.
    one = not a.is_ragged and a.ndim == 2
    matrices = a.values if one else filled(lay_out(a, structure, order), structure)
    made = _solutions(left, matrices, lay_out(b, structure, order))
    return Tensor(zeroed(made, structure).to(narrow), structure, order, a.team)


def _solutions(left: Stack, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Both with as many axes, so that torch takes neither for vectors; one matrix is factorized once for all sides."""
    most = max(a.ndim, b.ndim)
    a, b = a[(None,) * (most - a.ndim)], b[(None,) * (most - b.ndim)]
    size, outer = a.shape[-1], b.shape[:-2]
    made: torch.Tensor
    if a.shape[:-2].numel() == 1 != outer.numel():
        columns = b.movedim(-2, 0).reshape(size, outer.numel() * b.shape[-1])
        made, info = torch.linalg.solve_ex(a.reshape(size, size), columns)
        made = made.view(size, *outer, b.shape[-1]).movedim(0, -2)
    else:
        made, info = torch.linalg.solve_ex(a, b)
    left.require("solve", info, "singular")
    return made


def _answer_qr(A: Any = None, mode: str = "reduced", *, input: Any = None, out: Any = None) -> QRResult:
    refuse_out("qr", out)
    given = stack("qr", A if input is None else input)
    given.require_smaller("qr")
    q, r = torch.linalg.qr(given.values, mode)
    return QRResult(Tensor(q) if mode == "r" else given.result(q), given.result(r))  # without Q, torch's is empty


def _answer_solve(A: Any, B: Any, *, left: bool = True, out: Any = None) -> Tensor:
    """torch's: B is a stack of vectors too if it has the shape of A without its last axis."""
    refuse_out("solve", out)
    a, b = as_tensor(A), as_tensor(B)
    if not left:
        return _solve(a.mT, b.mT).mT
    if b.ndim > 1 and b.ndim == a.ndim - 1 and b.shape == a.shape[:-1]:
        return _solve(a, b[..., None])[..., 0]
    return _solve(a, b)


def _answer_inverse(A: Any = None, *, input: Any = None, out: Any = None) -> Tensor:
    refuse_out("inv", out)
    return _inv(A if input is None else input)


def _answer_cholesky(A: Any = None, upper: bool = False, *, input: Any = None, out: Any = None) -> Tensor:
    refuse_out("cholesky", out)
    return _cholesky(A if input is None else input, upper=upper)


# -------------------------------------------------------------------------------------------------------- records

_M = (
    "x[..., None, None] * torch.tensor([[1, 0.5], [0.5, -1]], dtype=x.dtype) "
    "+ torch.tensor([[4, 1], [1, 3]], dtype=x.dtype)"
)
"""Symmetric matrices with eigenvalues apart from each other and from 0, so that derivatives are stable."""
_TALL = "x[..., None, None] * torch.tensor([[1, 2], [0, 1], [1, 1]], dtype=x.dtype) + torch.eye(3, 2, dtype=x.dtype)"
_D = "sr.linalg.{}(sr.from_lengths(torch.tensor([[[4., 0.], [0., 9.]], [[1., 0.], [0., 1.]]]), [2, 0]))"
_RAGGED: Error = ("x", ValueError, r"axis 1 of shape \(3, Ragged\(\[3, 1, 2\]\), 2\) is ragged; the array API has no")
_VECTOR: Error = ("torch.ones(3)", ValueError, r"needs at least two axes, got shape \(3,\)")
_INTEGERS: Error = ("torch.ones(2, 2, dtype=torch.int64)", TypeError, "needs floating-point elements, got torch.int64")
_OBLONG: Error = ("torch.ones(3, 2)", ValueError, r"needs square matrices on the last two axes, got shape \(3, 2\)")
_SINGULAR: Error = ("torch.zeros(2, 2, 2)", LinAlgError, "matrix 0 of the stack, as it is packed, is")
_ANY_SHAPE = (_RAGGED, _VECTOR, _INTEGERS)


def _record(
    name: str,
    eager: Callable[..., Any],
    summary: str,
    gives: str,
    answers: Callable[..., Any],
    functions: tuple[Callable[..., Any], ...],
    *,
    call: str = "",
    samples: tuple[str, ...] = (_M,),
    errors: tuple[Error, ...] = (*_ANY_SHAPE, _OBLONG),
    **fields: Any,
) -> None:
    record(
        "decompositions",
        f"linalg.{name}",
        eager,
        answers,
        summary=summary,
        torch=functions,
        kinds=("float", "complex"),
        example=(call or f"{_D.format(name)}.tolist()", gives),
        samples=samples,
        errors=errors,
        **{"primitive": None if "body" in fields else "library"} | fields,
    )


_L, _T = torch.linalg, torch.Tensor
# fmt: off
_record("det", _det, "The determinant of each matrix; 1 of a 0 × 0 one.", "[[36.0, 1.0], []]",
        answer("det", _L.det), (_L.det, torch.det, _T.det),
        vjp=rules.det_vjp)
_record("slogdet", _slogdet, "The sign (or phase) and the logarithm of the absolute value of each determinant.",
        "[[1.0, 1.0], []]", answer("slogdet", _L.slogdet, SlogdetResult), (_L.slogdet, torch.slogdet, _T.slogdet),
        call=f"{_D.format('slogdet')}.sign.tolist()", vjp=rules.slogdet_vjp)
_record("inv", _inv, "The inverse of each matrix; a LinAlgError if one has none.",
        "[[[[0.25, 0.0], [0.0, 0.1111111119389534]], [[1.0, 0.0], [0.0, 1.0]]], []]",
        _answer_inverse, (_L.inv, torch.inverse, _T.inverse),
        vjp=rules.inv_vjp,
        errors=(*_ANY_SHAPE, _OBLONG, _SINGULAR))
_record("cholesky", _cholesky, "The triangular L with L Lᴴ (`upper`: U with Uᴴ U) equal to each positive-definite x.",
        "[[[[2.0, 0.0], [0.0, 3.0]], [[1.0, 0.0], [0.0, 1.0]]], []]",
        _answer_cholesky, (_L.cholesky, torch.cholesky, _T.cholesky), samples=(_M, f"{_M}, upper=True"),
        vjp=rules.cholesky_vjp,
        errors=(*_ANY_SHAPE, _OBLONG, ("-torch.eye(2)", LinAlgError, "the matrix is not positive-def")))
_record("eigh", _eigh, "Eigenvalues, ascending, and orthonormal eigenvectors, as columns, of Hermitian matrices.",
        "[[[4.0, 9.0], [1.0, 1.0]], []]", answer("eigh", _L.eigh, EighResult), (_L.eigh,),
        call=f"{_D.format('eigh')}.eigenvalues.tolist()", vjp=rules.eigh_vjp)
_record("eigvalsh", _eigvalsh, "The eigenvalues of Hermitian matrices, ascending.", "[[[4.0, 9.0], [1.0, 1.0]], []]",
        answer("eigvalsh", _L.eigvalsh), (_L.eigvalsh,), body=lambda x, /: ops["linalg.eigh"](x).eigenvalues)
_record("qr", _qr, "Q, with orthonormal columns, and the upper triangular R whose product is x.",
        "(2, Ragged([2, 0]), 2, 2)", _answer_qr, (_L.qr,),
        call=f"{_D.format('qr')}.R.shape", samples=(_TALL, f"{_M}, mode='complete'"), vjp=rules.qr_vjp,
        errors=(*_ANY_SHAPE, ("x, mode='r'", ValueError, "mode of qr is 'reduced' or 'complete', got 'r'")))
_record("svd", _svd, "U, the singular values S, descending, and Vh, with U diag(S) Vh = x.",
        "[[[9.0, 4.0], [1.0, 1.0]], []]", answer("svd", _L.svd, SVDResult), (_L.svd,),
        call=f"{_D.format('svd')}.S.tolist()", samples=(f"{_TALL}, full_matrices=False", _M), errors=_ANY_SHAPE,
        vjp=rules.svd_vjp)
_record("svdvals", _svdvals, "The singular values of each matrix, descending.", "[[[9.0, 4.0], [1.0, 1.0]], []]",
        answer("svdvals", _L.svdvals), (_L.svdvals,), samples=(_M, _TALL), errors=_ANY_SHAPE,
        body=lambda x, /: ops["linalg.svd"](x, full_matrices=False).S)
_record("matrix_power", _matrix_power, "Each matrix multiplied n times with itself; its inverse if n is negative.",
        "[[[[16.0, 0.0], [0.0, 81.0]], [[1.0, 0.0], [0.0, 1.0]]], []]", answer("matrix_power", _L.matrix_power),
        (_L.matrix_power, torch.matrix_power, _T.matrix_power), call=f"{_D.format('matrix_power')[:-1]}, 2).tolist()",
        samples=(f"{_M}, 3", f"{_M}, 0", f"{_M}, -2"), operands=("x",), body=_matrix_power_body,
        errors=(*((f"{text}, 2", kind, words) for text, kind, words in (*_ANY_SHAPE, _OBLONG)),
                ("torch.eye(2), 1.5", TypeError, "takes an integer, got 1.5")))
_record("matrix_rank", _matrix_rank, "How many singular values exceed `rtol` times the largest.", "[[2, 2], []]",
        answer("matrix_rank", _L.matrix_rank), (_L.matrix_rank,),
        samples=(_M, f"{_TALL}, rtol=0.5"), errors=_ANY_SHAPE, body=_matrix_rank_body,
        flat="the result is a number of singular values")
_record("pinv", _pinv, "The pseudo-inverse of each matrix; singular values up to `rtol` times the largest count as 0.",
        "[[[[0.25, 0.0], [0.0, 0.1111111119389534]], [[1.0, 0.0], [0.0, 1.0]]], []]",
        answer("pinv", _L.pinv), (_L.pinv,), samples=(_M, _TALL), errors=_ANY_SHAPE, vjp=rules.pinv_vjp)
_record("solve", _solve, "The x with x1 x = x2, for a vector x2 (one axis) or matrices; stacks stretch.",
        "[[[0.5, 1.0], [2.0, 9.0]], []]", _answer_solve, (_L.solve,),
        call=f"{_D.format('solve')[:-1]}, torch.tensor([2., 9.])).tolist()", vjp=rules.solve_vjp,
        samples=(f"{_M}, x[..., None, None] * torch.ones(2, 3, dtype=x.dtype)",
                 f"torch.tensor([[2, 1], [0, 1]], dtype=x.dtype), {_M}", f"{_M}, torch.ones(2, dtype=x.dtype)"),
        errors=(*((f"{text}, torch.ones(2)", kind, words) for text, kind, words in (*_ANY_SHAPE, _OBLONG)),
                ("torch.eye(2), torch.ones(3)", ValueError, "as many rows in x2 as x1 has"),
                ("torch.eye(2).expand(3, 2, 2), torch.ones(3, 2)", ValueError, "x2 is a vector only if it has one"),
                ("torch.zeros(2, 2), torch.ones(2)", LinAlgError, "is singular")))
# fmt: on
