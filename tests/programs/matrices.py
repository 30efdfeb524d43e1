"""Steps along uniform axes: matrices, decompositions and Fourier transforms, whatever stands before them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from tests.programs.broadcast import kind_of
from tests.programs.mapped import Axis, Lengths, Mapped, cells, parents
from tests.programs.operands import small
from tests.programs.program import Draw, Environment, Step, generator
from tests.programs.verdicts import Refused, Undecided

Function = Callable[..., Any]


def outer_and_inner(x: Mapped, count: int) -> tuple[tuple[Axis, ...], torch.Tensor]:
    """The axes before the last ones, and all elements as a stack [cells, *last sizes]."""
    sizes = [n for n in x.axes[x.ndim - count :] if isinstance(n, int)]
    outer = x.axes[: x.ndim - count]
    return outer, x.flat.reshape(len(cells(outer)), *sizes)


def stack_of(outer: tuple[Axis, ...], made: torch.Tensor) -> Mapped:
    made = made.resolve_conj()
    return Mapped.of((*outer, *made.shape[1:]), made.reshape(-1))


def floating(x: Mapped) -> bool:
    return x.dtype in (torch.float64, torch.float32, torch.complex64, torch.complex128) and len(x.indices) <= 30


def square(name: str) -> str:
    """An expression that makes a well-conditioned 2 × 2 matrix of each element."""
    parts = [f"torch.tensor({part}, dtype={name}.dtype)" for part in ([[1, 0.5], [0.5, -1]], [[9, 1], [1, 6]])]
    return f"({name}[..., None, None] * {parts[0]} + {parts[1]})"


def as_square(x: Mapped) -> tuple[tuple[Axis, ...], torch.Tensor]:
    one, two = torch.tensor([[1, 0.5], [0.5, -1]], dtype=x.dtype), torch.tensor([[9, 1], [1, 6]], dtype=x.dtype)
    return x.axes, x.flat[:, None, None] * one + two


# The functions of square matrices; of decompositions that are not unique, what is.
SQUARE: dict[str, tuple[str, Function]] = {
    "det": ("{0}", torch.linalg.det),
    "inv": ("{0}", torch.linalg.inv),
    "matrix_rank": ("{0}", torch.linalg.matrix_rank),
    "pinv": ("{0}", torch.linalg.pinv),
    "slogdet": ("{0}[1]", lambda m: torch.linalg.slogdet(m)[1]),
    "svdvals": ("{0}", torch.linalg.svdvals),
    "trace": ("{0}", lambda m: m.diagonal(dim1=-2, dim2=-1).sum(-1)),
    "matrix_norm": ("{0}", torch.linalg.matrix_norm),
    "diagonal": ("{0}.clone()", lambda m: m.diagonal(dim1=-2, dim2=-1)),
}
SYMMETRIC: dict[str, tuple[str, Function]] = {
    "cholesky": ("{0}", torch.linalg.cholesky),
    "eigvalsh": ("{0}", torch.linalg.eigvalsh),
    "eigh": ("{0}[0]", lambda m: torch.linalg.eigh(m)[0]),
}
REBUILT: dict[str, str] = {
    "qr": "(lambda d: d[0] @ d[1])({0})",
    "svd": "(lambda d: d[0] @ (d[1][..., None] * d[2]))({0})",
}


@generator(3)
def decomposition(draw: Draw) -> Step | None:
    name = draw.tensor(lambda x: floating(x) and x.ndim < 5)
    if name is None or name in draw.program.plain:
        return None
    kind = draw.choice([*SQUARE, *SYMMETRIC, *REBUILT, "matrix_power", "solve", "cross"])
    if kind in SYMMETRIC and draw.grad and draw[name].dtype.is_complex:
        return None  # such a matrix is not Hermitian, and torch spreads the gradient of one triangle over both
    if kind == "matrix_power":
        n = draw.choice((0, 1, 2, 3, -1))
        words, reference = f"sr.linalg.matrix_power({square(name)}, {n})", lambda m: torch.linalg.matrix_power(m, n)
    elif kind == "solve":
        words = f"sr.linalg.solve({square(name)}, {square(name)} * 2)"
        reference = lambda m: torch.linalg.solve(m, m * 2)  # noqa: E731
    elif kind in REBUILT:
        words, reference = REBUILT[kind].format(f"sr.linalg.{kind}({square(name)})"), lambda m: m
    elif kind == "cross":
        vector = f"{name}[..., None] * torch.tensor([1, 2, 3], dtype={name}.dtype)"
        words = f"sr.linalg.cross({vector}, torch.tensor([1, 0, 2], dtype={name}.dtype))"
        reference = lambda m: _crossed(m)  # noqa: E731
    else:
        shown, reference = (SQUARE | SYMMETRIC)[kind]
        words = shown.format(f"sr.linalg.{kind}({square(name)})")

    def oracle(env: Environment) -> Mapped:
        outer, matrices = as_square(env[name])
        if kind in SYMMETRIC and matrices.is_complex():
            matrices = torch.tril(matrices) + torch.tril(matrices, -1).mT.conj()
            matrices = matrices - 1j * torch.diag_embed(matrices.diagonal(dim1=-2, dim2=-1).imag)
        try:
            return stack_of(outer, reference(matrices))
        except torch.linalg.LinAlgError:  # singular, or nearly so: whoever rounds otherwise may find a result
            raise Undecided from None

    return Step(f"linalg.{kind}", words, oracle, (name,), (draw.name(),))


def _crossed(matrices: torch.Tensor) -> torch.Tensor:
    """The cross product, from the element that each matrix was made of."""
    element = matrices[:, 0, 0] - 9
    vectors = element[:, None] * torch.tensor([1, 2, 3], dtype=element.dtype)
    return torch.linalg.cross(vectors, torch.tensor([1, 0, 2], dtype=element.dtype).expand_as(vectors))


# ------------------------------------------------------------------------------------------------------ Fourier

COMPLEX_IN = ("fft", "ifft", "hfft", "irfft")
REAL_IN = ("rfft", "ihfft")


@generator(3)
def fourier(draw: Draw) -> Step | None:
    def fits(x: Mapped) -> bool:
        return floating(x) and bool(_axes(x))

    name = draw.tensor(fits)
    if name is None or name in draw.program.plain:
        return None
    x = draw[name]
    axis = draw.choice(_axes(x))
    norm = draw.choice(("backward", "ortho", "forward"))
    several = [f"{f}n" for f in ("fft", "ifft", "rfft", "irfft")]
    function = draw.choice([*COMPLEX_IN, *REAL_IN, *several, "fftshift", "ifftshift"])
    if kind_of(x.dtype) == 3 and function in ("rfft", "ihfft", "rfftn"):
        function = "fft"
    if function.endswith("shift"):
        words = f"sr.fft.{function}({name}, axes={axis})"
        reference: Function = lambda v: getattr(torch.fft, function)(v, dim=-1)  # noqa: E731
    elif function.endswith("n"):
        words = f"sr.fft.{function}({name}, axes=({axis},), norm={norm!r})"
        reference = lambda v: getattr(torch.fft, function)(v, dim=(-1,), norm=norm)  # noqa: E731
    else:
        count = draw.choice((None, None, 1, 2, 3))
        words = f"sr.fft.{function}({name}, axis={axis}, norm={norm!r}{'' if count is None else f', n={count}'})"
        reference = lambda v: getattr(torch.fft, function)(v, n=count, dim=-1, norm=norm)  # noqa: E731
    size = x.axes[axis]
    if function in ("hfft", "irfft", "irfftn") and size == 1:
        return None  # of one point the default size is 0

    def oracle(env: Environment) -> Mapped:
        x = env[name]
        order = [a for a in range(x.ndim) if a != axis] + [axis]
        outer, rows = outer_and_inner(x.permuted(order), 1)
        full = rows if rows.shape[0] else rows.new_zeros(1, rows.shape[1])  # torch transforms no empty stacks
        made = stack_of(outer, reference(full)[: rows.shape[0]])
        back = list(range(x.ndim - 1))
        back.insert(axis, x.ndim - 1)
        return made.permuted(back).copied()

    return Step(f"fft.{function}", words, oracle, (name,), (draw.name(),))


def _axes(x: Mapped) -> list[int]:
    """Axes that a transform works along: uniform, with something in them, and no parents."""
    return [
        a
        for a, axis in enumerate(x.axes)
        if isinstance(axis, int) and axis > 0 and all(a not in parents(other) for other in x.axes)
    ]


@generator(0.5)
def refused_axis(draw: Draw) -> Step | None:
    """Transforms and matrices along axes that are ragged, or that ragged ones depend on, are refused."""
    name = draw.tensor(lambda x: floating(x) and x.is_ragged)
    if name is None:
        return None
    x = draw[name]
    bad = [a for a, axis in enumerate(x.axes) if isinstance(axis, Lengths) or any(a in parents(b) for b in x.axes)]
    axis = draw.choice(bad)
    function = draw.choice(("fft", "ifft"))

    def oracle(env: Environment) -> Mapped:
        raise Refused(ValueError)

    return Step(f"fft.{function}", f"sr.fft.{function}({name}, axis={axis})", oracle, (name,), (draw.name(),))


@generator(1)
def dense_matrices(draw: Draw) -> Step | None:
    """The norm and the trace of the last two axes of what is there, where they are uniform."""

    def fits(x: Mapped) -> bool:
        last = range(x.ndim - 2, x.ndim)
        free = x.ndim >= 2 and all(isinstance(x.axes[a], int) for a in last)
        return floating(x) and free and all(not set(parents(axis)) & set(last) for axis in x.axes)

    name = draw.tensor(fits)
    if name is None or name in draw.program.plain or not small(draw[name].axes):
        return None
    function = draw.choice(("matrix_norm", "trace", "diagonal"))
    offset = draw.integer(-1, 1)
    order = draw.choice(("fro", float("inf"), -float("inf"), 1, -1))
    if function == "matrix_norm":
        words = f"sr.linalg.matrix_norm({name}, ord={order!r})"
    else:
        words = f"sr.linalg.{function}({name}, offset={offset})" + (".clone()" if function == "diagonal" else "")

    def oracle(env: Environment) -> Mapped:
        outer, matrices = outer_and_inner(env[name], 2)
        if function == "matrix_norm":
            if 0 in matrices.shape[1:]:
                return stack_of(outer, matrices.new_zeros(matrices.shape[0]).abs())
            return stack_of(outer, torch.linalg.matrix_norm(matrices, order))
        diagonal = matrices.diagonal(offset, dim1=-2, dim2=-1)
        return stack_of(outer, diagonal if function == "diagonal" else diagonal.sum(-1))

    return Step(f"linalg.{function}", words, oracle, (name,), (draw.name(),))
