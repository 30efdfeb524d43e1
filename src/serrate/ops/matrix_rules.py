"""Derivatives of inverses, determinants, solutions and decompositions of matrices, as programs over operations.

Xᴴ is the conjugate transpose of X. The rules hold where the results are smooth: eigenvalues and singular values apart
from each other where vectors have a gradient, matrices of full rank where it says so.
"""

from __future__ import annotations

from typing import Any

import torch

from serrate.ops.record import ops
from serrate.ops.rules import conjugate, in_dtype, reduced_to

# ---------------------------------------------------------------------------------------------------------- pieces


def _adjoint(x: Any) -> Any:
    """Xᴴ."""
    return conjugate(ops.matrix_transpose(x))


def _beside(numbers: Any, axes: int = 2) -> Any:
    """Numbers, one for each matrix, or for each of its rows, with axes of size 1 behind them."""
    for _ in range(axes):
        numbers = ops.expand_dims(numbers, axis=numbers.ndim)
    return numbers


def _along_rows(numbers: Any) -> Any:
    """Numbers for the columns of each matrix, one axis of size 1 before them."""
    return ops.expand_dims(numbers, axis=numbers.ndim - 1)


def _eye(x: Any) -> Any:
    """Where the diagonal of each matrix is."""
    return ops.eye(x.shape[-2], x.shape[-1], dtype=torch.bool, device=x.device)


def _above(x: Any) -> Any:
    """What stands above the diagonal of each matrix, 0 elsewhere."""
    above = ops.triu(ops.ones(x.shape[-2:], dtype=torch.bool, device=x.device), k=1)
    return ops.where(above, x, 0)


def _hermitian(x: Any) -> Any:
    """The Hermitian matrix with the upper triangle of x, of whose diagonal the real part counts."""
    above = _above(x)
    diagonal = ops.astype(ops.real(x), x.dtype) if x.is_complex() else x
    return above + _adjoint(above) + ops.where(_eye(x), diagonal, 0)


# ----------------------------------------------------------------------------------- determinants, inverses, solutions


def det_vjp(g: Any, out: Any, x: Any) -> Any:
    """The cofactors; of a singular matrix, to half of the digits, those of a regular one beside it."""
    regular = ops.where(_beside(_is_singular(out, x)), x + _step(x), x) if x.shape[-1] else x
    return _beside(g * conjugate(ops["linalg.det"](regular))) * _adjoint(ops["linalg.inv"](regular))


def _is_singular(det: Any, x: Any) -> Any:
    """Whether matrices are singular as far as their digits tell. It depends on the processor whether the determinant of
    such a matrix is rounded to 0."""
    zero = ops.equal(det, 0)
    inverse = ops["linalg.inv"](ops.where(_beside(zero), x + _step(x), x))
    condition = ops.max(ops.abs(x), axis=(-2, -1)) * ops.max(ops.abs(inverse), axis=(-2, -1))
    return ops.logical_or(zero, ops.greater(condition, torch.finfo(x.dtype).eps ** -0.75))


def _step(x: Any) -> Any:
    """From each matrix to another one beside it, in a direction in which no matrix that one meets stays singular."""
    size = x.shape[-1]
    numbers = ops.arange(1, size * size + 1, dtype=torch.float64, device=x.device)
    direction = ops.reshape(ops.astype(ops.cos(numbers * numbers), x.dtype), (size, size))
    greatest = ops["Tensor.detach"](ops.max(ops.abs(x), axis=(-2, -1), keepdims=True))
    return direction * (ops.where(ops.equal(greatest, 0), 1, greatest) * torch.finfo(x.dtype).eps ** 0.5)


def slogdet_vjp(g: Any, out: Any, x: Any) -> Any:
    """Of real matrices the sign is constant, that of complex ones turns."""
    by_sign, by_size = g
    if x.is_complex() and by_sign is not None:
        turn = ops.astype(ops.imag(conjugate(out.sign) * by_sign), x.dtype) * 1j
        by_size = turn if by_size is None else turn + by_size
    return None if by_size is None else _beside(by_size) * _adjoint(ops["linalg.inv"](x))


def inv_vjp(g: Any, out: Any, x: Any) -> Any:
    """-Xᴴ g Xᴴ of the inverse X."""
    return -(_adjoint(out) @ g @ _adjoint(out))


def solve_vjp(g: Any, out: Any, x1: Any, x2: Any) -> tuple[Any, Any]:
    """The gradient of the right sides is a solution itself; that of the matrices its product with what was found."""
    solve = ops["linalg.solve"]
    if x2.ndim == 1:
        by_sides = ops.squeeze(solve(_adjoint(x1), _beside(g, 1)), axis=g.ndim)
        by_matrix = -_beside(by_sides, 1) * _along_rows(conjugate(out))
    else:
        by_sides = solve(_adjoint(x1), g)
        # One matrix for all sides has the sum over all of them, which is part of the product.
        by_matrix = -ops.einsum(f"...ij,...kj->{'...' if x1.ndim > 2 else ''}ik", by_sides, conjugate(out))
    return reduced_to(by_matrix, x1), reduced_to(by_sides, x2)


def pinv_vjp(g: Any, out: Any, x: Any, **_: Any) -> Any:
    """By Golub and Pereyra, for matrices whose rank does not change."""
    back, across = _adjoint(g), _adjoint(out)
    turned = back @ out
    beside = turned @ across
    return beside - _adjoint(out @ turned) - x @ out @ beside + across @ out @ (back - turned @ x)


# --------------------------------------------------------------------------------------------------- decompositions


def cholesky_vjp(g: Any, out: Any, x: Any, *, upper: bool) -> Any:
    """L⁻ᴴ P L⁻¹ for the P that has half of the lower triangle of Lᴴ g on both sides of its diagonal."""
    lower, g = (_adjoint(out), _adjoint(g)) if upper else (out, g)
    solve, across = ops["linalg.solve"], _adjoint(lower)
    product = across @ g
    above = _above(_adjoint(product))
    half = (above + _adjoint(above) + ops.where(_eye(x), product, 0)) * 0.5
    return _adjoint(solve(across, _adjoint(solve(across, half))))


def eigh_vjp(g: Any, out: Any, x: Any) -> Any:
    """What the values pass back stands on the diagonal, and what the vectors do beside it."""
    by_values, by_vectors = g
    values, vectors = out
    inner = 0 if by_values is None else ops.where(_eye(x), _beside(in_dtype(by_values, x.dtype), 1), 0)
    if by_vectors is not None:
        apart = ops.where(_eye(x), 1, _along_rows(values) - _beside(values, 1))
        turn = ops.where(_eye(x), 0, (_adjoint(vectors) @ by_vectors) / apart)
        inner = inner + (turn + _adjoint(turn)) * 0.5
    return vectors @ inner @ _adjoint(vectors)


def qr_vjp(g: Any, out: Any, x: Any, *, mode: str) -> Any:
    """Of matrices that are wider than high, the first columns decide about Q, and the others only about R."""
    (by_q, by_r), (q, r) = g, out
    rows, columns = x.shape[-2:]
    if rows > columns and mode == "complete":
        raise NotImplementedError(f"the last {rows - columns} columns of Q have no derivative; use mode='reduced'")
    if rows >= columns:
        return _qr_vjp(by_q, by_r, q, r)
    others = None if by_r is None else by_r[..., rows:]
    if others is not None:
        more = x[..., rows:] @ _adjoint(others)
        by_q = more if by_q is None else by_q + more
    first = _qr_vjp(by_q, None if by_r is None else by_r[..., :rows], q, r[..., :rows])
    return ops.concat([first, ops.zeros_like(x[..., rows:]) if others is None else q @ others], axis=-1)


def _qr_vjp(by_q: Any, by_r: Any, q: Any, r: Any) -> Any:
    """The gradient of matrices that are not wider than high, of full rank."""
    inner = 0 if by_r is None else by_r @ _adjoint(r)
    inner = inner if by_q is None else inner - _adjoint(q) @ by_q
    made = q @ _hermitian(inner)
    made = made if by_q is None else made + by_q
    return _adjoint(ops["linalg.solve"](r, _adjoint(made)))  # made R⁻ᴴ


def svd_vjp(g: Any, out: Any, x: Any, *, full_matrices: bool) -> Any:
    """By the singular values on the diagonal, by the vectors beside it, and by what they have outside of x's range."""
    (by_u, by_s, by_v), (u, s, v) = g, out
    size = min(x.shape[-2:])
    if full_matrices and x.shape[-2] != x.shape[-1]:  # the vectors beyond the singular values have no derivative
        u, v = u[..., :size], v[..., :size, :]
        by_u = None if by_u is None else by_u[..., :size]
        by_v = None if by_v is None else by_v[..., :size, :]
    s = in_dtype(s, x.dtype)
    eye = ops.eye(size, dtype=torch.bool, device=x.device)
    squares = ops.where(eye, 1, ops.square(_along_rows(s)) - ops.square(_beside(s, 1)))
    inner = 0 if by_s is None else ops.where(eye, _beside(in_dtype(by_s, x.dtype), 1), 0)
    outside = 0
    if by_u is not None:
        turn = _adjoint(u) @ by_u
        inner = inner + _skew(turn) / squares * _along_rows(s)
        if x.is_complex():
            inner = inner + ops.where(eye, _skew(turn) * 0.5 / _beside(s, 1), 0)
        if x.shape[-2] > size:
            outside = outside + ((by_u - u @ turn) / _along_rows(s)) @ v
    if by_v is not None:
        turn = by_v @ _adjoint(v)
        inner = inner + _beside(s, 1) * _skew(_adjoint(turn)) / squares
        if x.shape[-1] > size:
            outside = outside + u @ ((by_v - turn @ v) / _beside(s, 1))
    return u @ inner @ v + outside


def _skew(x: Any) -> Any:
    """X - Xᴴ."""
    return x - _adjoint(x)
