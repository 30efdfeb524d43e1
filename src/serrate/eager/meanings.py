"""What the array API means where torch means something else: special floating-point values and complex parts.

These functions take torch tensors of one dtype, and numbers after the first operand. Where torch's function has a
derivative, so has ours.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from serrate.tensor import host


def _by_parts(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """`function` of the real and of the imaginary part. torch multiplies by 1 + 0j, which turns inf into NaN."""

    def call(first: torch.Tensor, *others: Any) -> torch.Tensor:
        if not first.is_complex():
            return function(first, *others)
        tensors = [v for v in (first, *others) if isinstance(v, torch.Tensor)]
        device = next((v.device for v in tensors if v.ndim), first.device)
        parts = [torch.view_as_real(_complex(v, first.dtype, device)) for v in (first, *others)]
        return torch.view_as_complex(function(*parts))

    return call


def _complex(value: Any, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    if not isinstance(value, torch.Tensor):
        return torch.full((), value, dtype=dtype, device=device)
    return value.to(device, non_blocking=True).resolve_conj()


add = _by_parts(torch.add)
subtract = _by_parts(torch.sub)
negative = _by_parts(torch.neg)
round = _by_parts(torch.round)


def acos(x: torch.Tensor) -> torch.Tensor:
    """π/2 - asin(x). torch's acos in double precision loses the sign of an imaginary part that is 0."""
    if x.dtype != torch.complex128:
        return torch.acos(x)
    found = torch.asin(x)
    return torch.complex(math.pi / 2 - found.real, -found.imag)


def expm1(x: torch.Tensor) -> torch.Tensor:
    """exp(x) - 1, also of complex numbers that are infinite or NaN, for which torch always gives NaN."""
    return _beyond(x, torch.expm1, lambda infinite: subtract(torch.exp(infinite), 1.0), 0.0)


def log1p(x: torch.Tensor) -> torch.Tensor:
    """log(1 + x), also of complex numbers that are infinite or NaN, for which torch always gives NaN."""
    return _beyond(x, torch.log1p, lambda infinite: torch.log(add(infinite, 1.0)), 1.0)


def _beyond(
    x: torch.Tensor,
    function: Callable[[torch.Tensor], torch.Tensor],
    other: Callable[[torch.Tensor], torch.Tensor],
    harmless: float,
) -> torch.Tensor:
    """`function` of finite complex numbers, `other` of all others; each is given `harmless` for the rest."""
    if not x.is_complex() or _is_finite(x):
        return function(x)
    finite = torch.isfinite(x)
    return torch.where(finite, function(torch.where(finite, x, harmless)), other(torch.where(finite, harmless, x)))


def _is_finite(x: torch.Tensor) -> bool:
    """Whether all elements are known to be finite. Their sum tells, which is the fastest way to look at all."""
    if not host.is_at_hand(x):
        return False
    total = x.detach().sum()
    return bool(torch.isfinite(total))


def _has_nan(x: torch.Tensor) -> bool:
    """Whether an element may be NaN. The sum tells."""
    return not host.is_at_hand(x) or bool(x.detach().sum().isnan())


def sign(x: torch.Tensor) -> torch.Tensor:
    """The sign, which is NaN for NaN; torch gives 0."""
    if x.is_complex():
        return torch.where(torch.isnan(x), complex(math.nan, math.nan), torch.sgn(x))
    made = torch.sign(x)
    return torch.where(torch.isnan(x), math.nan, made) if x.is_floating_point() and _has_nan(x) else made


def floor_divide(x1: torch.Tensor, x2: Any) -> torch.Tensor:
    """floor(x1 / x2), also for an infinite operand, for which Python and torch give NaN or -1."""
    if not x1.is_floating_point():
        return torch.floor_divide(x1, x2)
    made = torch.div(x1, x2, rounding_mode="floor")
    if isinstance(x2, torch.Tensor):
        if not _has_nan(made) and _is_finite(x2):
            return made
        x2 = x2.detach()
        infinite = torch.isinf(x1) | torch.isinf(x2)
    else:
        if not _has_nan(made) and math.isfinite(x2):
            return made
        infinite = torch.isinf(x1) | math.isinf(x2)
    return torch.where(infinite, torch.true_divide(x1.detach(), x2), made)


def remainder(x1: torch.Tensor, x2: Any) -> torch.Tensor:
    """Python's `%`: exact for numbers of any size, with the sign of x2, even if it is 0."""
    made = torch.remainder(x1, x2)
    if not made.is_floating_point():
        return made
    if made.device.type == "cpu" and _has_nan(made):
        made = _worn_down(x1, x2)
    if host.is_constant(made):
        return made.copysign_(x2.to(made.device, non_blocking=True) if isinstance(x2, torch.Tensor) else x2)
    # -0.0 + 0.0 is 0.0, and its gradient, unlike that of copysign, is that of any other number.
    below = x2 < 0
    if isinstance(below, torch.Tensor):
        return torch.where(below.to(made.device, non_blocking=True), -(0.0 - made), made + 0.0)
    return -(0.0 - made) if below else made + 0.0


def _worn_down(x1: torch.Tensor, x2: Any) -> torch.Tensor:
    """The remainder where torch's fmod on the host gives NaN, since the dtype does not hold the quotient.

    The remainder by a multiple of x2 has the same remainder by x2, so the quotient is made smaller in steps. A
    remainder of 0 may have any sign.
    """
    if x1.dtype != torch.float64:
        divisor = x2 if isinstance(x2, torch.Tensor) else torch.full((), x2, dtype=x1.dtype)
        left = torch.fmod(x1.to(torch.float64), divisor.to(torch.float64)).to(x1.dtype)
    else:
        large = (x2.detach() if isinstance(x2, torch.Tensor) else x2) * _STEP
        left = torch.fmod(torch.fmod(torch.fmod(x1, large * _STEP), large), x2)
    return torch.where((left != 0) & ((left < 0) != (x2 < 0)), left + x2, left)


_STEP = 2.0**700


def pow(x1: torch.Tensor, x2: Any) -> torch.Tensor:
    """x1 ** x2. For the numbers 0.5 and -0.5 torch takes square roots, which are others for -0.0 and -inf."""
    if isinstance(x2, torch.Tensor) or x2 not in (0.5, -0.5) or not x1.is_floating_point():
        return torch.pow(x1, x2)
    return torch.where(torch.isneginf(x1), math.inf if x2 > 0 else 0.0, torch.pow(x1 + 0.0, x2))
