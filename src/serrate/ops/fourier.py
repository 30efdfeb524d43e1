"""Fourier transforms along uniform axes: the array API's `fft` extension, `sr.fft`.

Axes that are not transformed may be ragged, and the result keeps them. A row of a ragged axis has a length, and so a
spectrum, of its own, for which the standard has no meaning: along a ragged axis a transform is refused.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from serrate.eager.precision import ACCUMULATE, widened
from serrate.eager.stacks import dimensions, floating
from serrate.errors import AxisError
from serrate.ops import fourier_rules as rules
from serrate.ops.answers import refuse_out
from serrate.ops.record import Error, operation, record
from serrate.tensor import abstract
from serrate.tensor.tensor import Tensor, as_tensor

_NORMS = ("backward", "ortho", "forward")
_INSTEAD = {"rfft": "fft", "rfftn": "fftn", "ihfft": "ifft"}
"""Those that take real numbers only, and what takes complex ones."""
_HALF_IN = ("irfft", "hfft", "irfftn")
"""Those whose result along the last transformed axis has, by default, 2 (m − 1) entries for m given."""


def _checked(name: str, x: Any, norm: str) -> Tensor:
    tensor = floating(f"fft.{name}", x)
    if name in _INSTEAD and tensor.is_complex():
        raise TypeError(f"fft.{name} transforms real numbers, got {tensor.dtype}; use fft.{_INSTEAD[name]}")
    if norm not in _NORMS:
        raise ValueError(f"norm is one of {_NORMS}, got {norm!r}")
    return tensor


def _points(n: Any) -> int:
    try:
        return operator.index(n)
    except TypeError:
        raise TypeError(f"the number of points is an integer, got {n!r:.40}") from None


def _require_points(name: str, x: Tensor, axes: Sequence[int], sizes: Sequence[Any] | None) -> None:
    """A ValueError unless every axis has, or is given, at least one point; torch's -1 stands for what there is."""
    for place, axis in enumerate(axes):
        given = -1 if sizes is None or sizes[place] is None else _points(sizes[place])
        have = x.shape[axis]
        assert isinstance(have, int)
        count = have if given == -1 else given
        if name in _HALF_IN and place == len(axes) - 1 and given == -1:
            count = 2 * (have - 1)
        if count < 1:
            raise ValueError(f"fft.{name} needs at least one point along axis {axis} of shape {x.shape}, got {count}")


def _transformed(
    x: Tensor, dims: Sequence[int], transform: Callable[[torch.Tensor], torch.Tensor], points: int | None = None
) -> Tensor:
    """The transform of x's values along `dims`; half types in float32, and real results back in what came.

    `points` is how many points the last of `dims` has, if the result has only half of them and one more.
    """
    values = widened(x.values)
    empty = [d for d, size in enumerate(values.shape) if size == 0 and d not in dims]
    if empty:  # MKL refuses a batch of none: transform one, and take none of it
        values = F.pad(values, [k for d in reversed(range(values.ndim)) for k in (0, int(d in empty))])
    made = transform(values).resolve_conj()  # torch conjugates late; numpy and DLPack take no such tensors
    for d in empty:
        made = made.narrow(d, 0, 0)
    if points is not None and not abstract.is_known(points):
        _, stop, step = abstract.sliced(slice(None, None, 2), points + 1)
        made = abstract.resized(made, dims[-1], stop // step)
    return x._with(made.to(x.dtype) if x.dtype in ACCUMULATE and made.is_floating_point() else made)


# ------------------------------------------------------------------------------------------------------ transforms


def _along(name: str) -> Callable[..., Tensor]:
    """The transform of that name along one axis."""
    function = getattr(torch.fft, name)

    @operation
    def transform(x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
        tensor = _checked(name, x, norm)
        axes = [tensor._axis(axis)] if tensor.ndim else _no_axis(name)
        (dim,) = dimensions(f"fft.{name}", tensor, axes)
        if n is not None and _points(n) < 1:
            raise ValueError(
                f"fft.{name} needs at least one point along axis {axes[0]} of shape {tensor.shape}, got {n}"
            )
        _require_points(name, tensor, axes, [n])
        points = (tensor.values.shape[dim] if n is None else n) if name in _INSTEAD else None
        return _transformed(tensor, [dim], lambda values: function(values, n, dim, norm), points)

    return transform


def _no_axis(name: str) -> list[int]:
    raise AxisError(f"fft.{name} needs at least one axis, got a 0-d tensor")


def _over(name: str) -> Callable[..., Tensor]:
    """The transform of that name over several axes."""
    function = getattr(torch.fft, name)

    @operation
    def transform(
        x: Any, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str = "backward"
    ) -> Tensor:
        tensor = _checked(name, x, norm)
        chosen = rules.chosen_axes(name, tensor, s, axes)
        dims = dimensions(f"fft.{name}", tensor, chosen)
        _require_points(name, tensor, chosen, s)
        points = (tensor.values.shape[dims[-1]] if s is None else s[-1]) if name in _INSTEAD else None
        return _transformed(tensor, dims, lambda values: function(values, s, dims, norm), points)

    return transform


# ----------------------------------------------------------------------------------------- frequencies and shifts


def _frequencies(name: str) -> Callable[..., Tensor]:
    function = getattr(torch.fft, name)

    @operation
    def frequencies(n: int, /, *, d: float = 1.0, dtype: torch.dtype | None = None, device: Any = None) -> Tensor:
        if _points(n) < 1:
            raise ValueError(f"fft.{name} needs at least one point, got n = {n}")
        if dtype is not None and not dtype.is_floating_point:
            raise TypeError(f"frequencies are real floating-point numbers, got dtype {dtype}")
        return Tensor(function(n, d, dtype=dtype, device=device))

    return frequencies


def _shift(name: str) -> Callable[..., Tensor]:
    function = getattr(torch.fft, name)

    @operation
    def shift(x: Any, /, *, axes: int | Sequence[int] | None = None) -> Tensor:
        return _shifted(name, function, floating(f"fft.{name}", x), axes)

    return shift


def _shifted(name: str, function: Callable[..., torch.Tensor], x: Tensor, axes: Any) -> Tensor:
    given = range(x.ndim) if axes is None else (axes,) if isinstance(axes, int) else axes
    dims = dimensions(f"fft.{name}", x, [x._axis(a) for a in given])
    return x._with(function(x.values, dims)) if dims else x._with(x.values.clone())


# --------------------------------------------------------------------------------------------------- torch's faces


def _as_torch_takes_it(x: Any) -> Tensor:
    """torch transforms integers too, as the default float."""
    tensor = as_tensor(x)
    exact = not (tensor.is_floating_point() or tensor.is_complex())
    return tensor.to(torch.get_default_dtype()) if exact else tensor


def _answer_along(eager: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def handler(input: Any, n: Any = None, dim: int = -1, norm: str | None = None, *, out: Any = None) -> Tensor:
        _refuse_out(out)
        return eager(_as_torch_takes_it(input), n=n, axis=dim, norm=norm or "backward")

    return handler


def _answer_over(eager: Callable[..., Tensor], default: Any = None) -> Callable[..., Tensor]:
    def handler(input: Any, s: Any = None, dim: Any = default, norm: str | None = None, *, out: Any = None) -> Tensor:
        _refuse_out(out)
        sizes, axes = ((given,) if isinstance(given, int) else given for given in (s, dim))
        return eager(_as_torch_takes_it(input), s=sizes, axes=axes, norm=norm or "backward")

    return handler


def _answer_shift(name: str) -> Callable[..., Tensor]:
    function = getattr(torch.fft, name)
    return lambda input, dim=None: _shifted(name, function, as_tensor(input), dim)


def _refuse_out(out: Any) -> None:
    refuse_out("fft", out)


# -------------------------------------------------------------------------------------------------------- records

_X = "x[..., None] * torch.tensor([2, -1, 3, 1], dtype=x.dtype)"
_XX = "x[..., None, None] * torch.tensor([[2, -1, 3], [1, 4, 2]], dtype=x.dtype)"
_RAGGED = r" of shape \(3, Ragged\(\[3, 1, 2\]\), 2\) is ragged; the array API has no meaning"
_ALONG: tuple[Error, ...] = (
    ("x, axis=1", AxisError, "axis 1" + _RAGGED),
    ("x, axis=0", AxisError, "axis 0 of shape .* has ragged axes that depend on it"),
    ("x, axis=3", AxisError, "axis 3 is out of range"),
    ("torch.tensor(1.)", AxisError, "needs at least one axis, got a 0-d tensor"),
    ("x, n=0", ValueError, "needs at least one point along axis 2"),
    ("x, n=1.5", TypeError, "the number of points is an integer, got 1.5"),
    ("x, norm='none'", ValueError, "norm is one of .* got 'none'"),
    ("x.to(torch.int64)", TypeError, "needs floating-point elements, got torch.int64; the array API"),
)
_OVER: tuple[Error, ...] = (
    ("x", AxisError, "axis 0 of shape .* has ragged axes that depend on it"),
    ("x, axes=(1, 2)", AxisError, "axis 1" + _RAGGED),
    ("x, axes=(2, 2)", ValueError, "an axis is named twice"),
    ("x, axes=(2,), s=(3, 3)", ValueError, "s has 2 sizes for 1 axes"),
    ("x, s=(1, 2, 3, 4)", AxisError, "s has 4 sizes for a tensor of 3 axes"),
    ("x, axes=(2,), s=(0,)", ValueError, "needs at least one point along axis 2"),
    ("x.to(torch.int64), axes=(2,)", TypeError, "needs floating-point elements, got torch.int64"),
)
_COMPLEX: Error = ("x.to(torch.complex64), {}", TypeError, "transforms real numbers, got torch.complex64")


def _record(
    name: str,
    eager: Callable[..., Any],
    answer: Callable[..., Any] | None,
    summary: str,
    gives: str,
    *,
    options: str = "",
    is_complex: bool = False,
    **fields: Any,
) -> None:
    """A record whose example shows the absolute values where the result `is_complex`."""
    call = f"sr.fft.{name}(sr.ragged([[[1., 0.]], []], ragged_rank=1){options})"
    call = f"sr.abs({call}).tolist()" if is_complex else f"{call}.tolist()"
    function = (getattr(torch.fft, name),)
    fields = {"torch": function, "example": (call, gives)} | fields
    record("fourier", f"fft.{name}", eager, answer, summary=summary, **fields)


def _transform(name: str, eager: Callable[..., Any], over: bool, summary: str, gives: str, **meaning: Any) -> None:
    real, half = name in _INSTEAD, name in _HALF_IN
    errors = (*(_OVER if over else _ALONG), (_COMPLEX[0].format("axes=(2,)" if over else "axis=2"), *_COMPLEX[1:]))
    one = f"{_XX}, axes=(-2, -1)" if over else _X
    other = f"{_XX}, axes=(-1,), s=(4,), norm='forward'" if over else f"{_X}, n=3, norm='ortho'"
    third = f"{_XX}, axes=(-1, -2), s=(2, -1), norm='ortho'" if over else f"{_XX}, n=5, axis=-2, norm='forward'"
    _record(
        name, eager, _answer_over(eager) if over else _answer_along(eager), summary, gives,
        spellings={getattr(torch.fft, f"{name[:-1]}2"): _answer_over(eager, (-2, -1))} if over else {},
        options=", axes=(2,)" if over else "",
        kinds=("float",) if real else ("float", "complex"),
        is_complex=not half,
        samples=(one, other, third),
        errors=errors if real else errors[:-1],
        **{"primitive": None if "body" in meaning else "library"} | meaning,
    )  # fmt: skip


# fmt: off
_transform("fft", _along("fft"), False, "The discrete Fourier transform along `axis`, cut or filled with 0 to `n`.",
           "[[[1.0, 1.0]], []]",
           vjp=rules.fft_vjp("ifft"))
_transform("ifft", _along("ifft"), False, "The inverse of fft.", "[[[0.5, 0.5]], []]",
           vjp=rules.fft_vjp("fft"))
_transform("rfft", _along("rfft"), False, "fft of real numbers, without the half that mirrors the other.",
           "[[[1.0, 1.0]], []]",
           vjp=rules.rfft_vjp)
_transform("irfft", _along("irfft"), False, "The inverse of rfft: real, with `n` entries, by default an even number.",
           "[[[0.5, 0.5]], []]",
           vjp=rules.irfft_vjp)
_transform("hfft", _along("hfft"), False, "The real fft of half a signal whose other half mirrors it, conjugated.",
           "[[[1.0, 1.0]], []]",
           body=rules.hfft_body)
_transform("ihfft", _along("ihfft"), False, "The inverse of hfft.", "[[[0.5, 0.5]], []]",
           body=rules.ihfft_body)
_transform("fftn", _over("fftn"), True, "fft over several axes, each cut or filled with 0 to its size in `s`.",
           "[[[1.0, 1.0]], []]",
           body=rules.over_body("fftn", "fft"))
_transform("ifftn", _over("ifftn"), True, "The inverse of fftn.", "[[[0.5, 0.5]], []]",
           body=rules.over_body("ifftn", "ifft"))
_transform("rfftn", _over("rfftn"), True, "fftn of real numbers, without the half that mirrors along the last axis.",
           "[[[1.0, 1.0]], []]",
           body=rules.over_body("rfftn", "fft"))
_transform("irfftn", _over("irfftn"), True, "The inverse of rfftn: real.", "[[[0.5, 0.5]], []]",
           body=rules.over_body("irfftn", "ifft"))
for _name, _summary, _gives, _body in (
    ("fftfreq", "The frequencies of fft of n points at distance `d`.", "[0.0, 0.25, -0.5, -0.25]", rules.fftfreq_body),
    ("rfftfreq", "The frequencies of rfft of n points at distance `d`.", "[0.0, 0.25, 0.5]", rules.rfftfreq_body),
):
    _record(_name, _frequencies(_name), None, _summary, "", torch=(), kinds=("float",), body=_body, operands=(),
            flat="the result is made of numbers alone", samples=("4", "5, d=0.5", "1, dtype=torch.float64"),
            example=(f"sr.fft.{_name}(4).tolist()", _gives),
            errors=(("0", ValueError, "needs at least one point, got n = 0"),
                    ("2.5", TypeError, "the number of points is an integer"),
                    ("4, dtype=torch.int64", TypeError, "frequencies are real floating-point numbers")))
for _name, _summary, _sign in (
    ("fftshift", "Frequency 0 in the middle of `axes`, by default all.", 1),
    ("ifftshift", "The inverse of fftshift.", -1),
):
    _record(_name, _shift(_name), _answer_shift(_name), _summary, "[[[0.0, 1.0]], []]", options=", axes=2",
            kinds=("float", "complex"), body=rules.shift_body(_sign),
            samples=(f"{_X}, axes=-1", f"{_XX}, axes=(-2, -1)"),
            errors=(("x", AxisError, "axis 0 of shape .* has ragged axes"),
                    ("x, axes=1", AxisError, "axis 1" + _RAGGED),
                    ("x.to(torch.int64), axes=2", TypeError, "needs floating-point elements")))
# fmt: on
