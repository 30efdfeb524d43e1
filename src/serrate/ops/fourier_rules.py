"""Bodies of Fourier transforms along several axes, shifts and frequencies, and the rules of derivatives.

Along one axis a transform is a product with a matrix, so the way back is the transform in the other direction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from serrate.errors import AxisError
from serrate.ops.record import ops
from serrate.ops.rules import conjugate, in_dtype

_TURNED = {"backward": "forward", "ortho": "ortho", "forward": "backward"}
"""The norm with which the other direction undoes the phases of a transform, and is scaled as the transform is."""


def _resized(g: Any, x: Any, axis: int) -> Any:
    """A gradient, cut or filled with 0 along an axis to the size of the operand, which was filled or cut."""
    axis, have = axis % x.ndim, g.shape[axis]
    if have > x.shape[axis]:
        return g[(*[slice(None)] * axis, slice(0, x.shape[axis]))]
    if have < x.shape[axis]:
        missing = (*g.shape[:axis], x.shape[axis] - have, *g.shape[axis + 1 :])
        return ops.concat([g, ops.zeros(missing, dtype=g.dtype, device=g.device)], axis=axis)
    return g


def fft_vjp(other: str) -> Callable[..., Any]:
    """The rule of fft or ifft: the `other` one with the phases turned back."""

    def vjp(g: Any, out: Any, x: Any, *, n: int | None, axis: int, norm: str) -> Any:
        made = ops[f"fft.{other}"](g, axis=axis, norm=_TURNED[norm])
        return in_dtype(_resized(made, x, axis), x.dtype)

    return vjp


def rfft_vjp(g: Any, out: Any, x: Any, *, n: int | None, axis: int, norm: str) -> Any:
    """What was left out of the spectrum has the gradient 0."""
    made = ops["fft.ifft"](g, n=x.shape[axis] if n is None else n, axis=axis, norm=_TURNED[norm])
    return in_dtype(_resized(ops.real(made), x, axis), x.dtype)


def irfft_vjp(g: Any, out: Any, x: Any, *, n: int | None, axis: int, norm: str) -> Any:
    """Frequencies that also stand for those that mirror them count twice."""
    size, spectrum = out.shape[axis], ops["fft.rfft"](g, axis=axis, norm=_TURNED[norm])
    number = ops.arange(size // 2 + 1, device=g.device)
    once = ops.logical_or(ops.equal(number, 0), ops.equal(2 * number, size))
    times = ops.astype(ops.where(once, 1, 2), spectrum.dtype)
    behind = [1] * (x.ndim - 1 - axis % x.ndim)
    return in_dtype(_resized(spectrum * ops.reshape(times, (size // 2 + 1, *behind)), x, axis), x.dtype)


def hfft_body(x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Any:
    """Of the conjugate the inverse transform, scaled as the transform is."""
    return ops["fft.irfft"](conjugate(x), n=n, axis=axis, norm=_TURNED[norm])


def ihfft_body(x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Any:
    """The conjugate of the transform, scaled as the inverse is."""
    return ops.conj(ops["fft.rfft"](x, n=n, axis=axis, norm=_TURNED[norm]))


def chosen_axes(name: str, x: Any, s: Sequence[int] | None, axes: Sequence[int] | None) -> list[int]:
    """The axes to transform: those named, else the last as many as `s` has sizes, else all."""
    if axes is not None:
        chosen = [x._axis(a) for a in axes]
    else:
        chosen = list(range(x.ndim if s is None else len(s)))
        if len(chosen) > x.ndim:
            raise AxisError(f"fft.{name}: s has {len(chosen)} sizes for a tensor of {x.ndim} axes, shape {x.shape}")
        chosen = [x.ndim - len(chosen) + i for i in chosen]
    if len(set(chosen)) < len(chosen):
        raise ValueError(f"an axis is named twice in {tuple(axes or ())}")
    if s is not None and len(s) != len(chosen):
        raise ValueError(f"fft.{name}: s has {len(s)} sizes for {len(chosen)} axes")
    if not chosen and name not in ("fftn", "ifftn"):
        raise AxisError(f"fft.{name} needs at least one axis to transform, got none of shape {x.shape}")
    return chosen


def over_body(name: str, each: str) -> Callable[..., Any]:
    """A transform over several axes: `each` along all axes but the last, and its own form along the last."""
    own = name[:-1]

    def body(
        x: Any, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str = "backward"
    ) -> Any:
        chosen = chosen_axes(name, x, s, axes)
        sizes = [None if size == -1 else size for size in ([-1] * len(chosen) if s is None else s)]
        steps = [(each, axis, size) for axis, size in zip(chosen, sizes, strict=True)]
        if steps:
            steps[-1] = (own, *steps[-1][1:])
        made = ops.astype(x, torch.promote_types(x.dtype, torch.complex64)) if not steps else x
        for transform, axis, size in reversed(steps) if own == "rfft" else steps:  # real numbers before complex ones
            made = ops[f"fft.{transform}"](made, n=size, axis=axis, norm=norm)
        return made if made.is_complex() else in_dtype(made, ops.real(x).dtype)

    return body


def shift_body(sign: int) -> Callable[..., Any]:
    """Axes rolled by half of their sizes, to the right or to the left."""

    def body(x: Any, /, *, axes: int | Sequence[int] | None = None) -> Any:
        chosen = list(range(x.ndim)) if axes is None else [axes] if isinstance(axes, int) else list(axes)
        return ops.roll(x, [sign * (x.shape[axis] // 2) for axis in chosen], axis=chosen) if chosen else ops.positive(x)

    return body


def fftfreq_body(n: int, /, *, d: float = 1.0, dtype: torch.dtype | None = None, device: Any = None) -> Any:
    """Numbers from 0, those of the second half less by n, in units of 1 / (n d)."""
    number = ops.arange(n, dtype=dtype or torch.get_default_dtype(), device=device)
    return ops.where(number > (n - 1) // 2, number - n, number) * (1 / (n * d))


def rfftfreq_body(n: int, /, *, d: float = 1.0, dtype: torch.dtype | None = None, device: Any = None) -> Any:
    """Numbers from 0 in units of 1 / (n d)."""
    return ops.arange(n // 2 + 1, dtype=dtype or torch.get_default_dtype(), device=device) * (1 / (n * d))
