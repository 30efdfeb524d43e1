"""Random numbers that are a function of (seed, call, place of the element): `sr.random`.

The place of an element is its index in canonical packed storage. However the work is split, over chunks, devices or
processes, an element gets the same number, and so does a call with the same `key`.

Without a key a call takes its number from torch's CPU generator, as `torch.rand` does: `torch.manual_seed` makes a
program repeatable, saved generator states resume it, and non-reentrant activation checkpointing, which restores that
generator, sees the same dropout when it computes again. After `sr.random.seed(n)` calls are numbered 0, 1, 2, …
whatever torch draws in between; nothing restores that count, so drawing without a key during a backward pass is then an
error.

>>> import torch, serrate as sr
>>> _ = torch.manual_seed(0)
>>> x = sr.random.normal((3, sr.Ragged([2, 0, 1]), 4))
>>> x.shape
(3, Ragged([2, 0, 1]), 4)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from serrate.eager import philox
from serrate.eager.philox import Key, next_key, seed
from serrate.ops.creation import beside, form, like
from serrate.ops.record import ALL, operation, ops, record
from serrate.ops.shuffling import shuffle
from serrate.tensor import host
from serrate.tensor.tensor import Tensor, as_tensor

__all__ = ["Key", "bernoulli", "bits", "exponential", "normal", "randint", "seed", "shuffle", "uniform"]


# ---------------------------------------------------------------------------------------------------------- new tensors

Maker = Callable[[Key, int, int, torch.dtype, torch.device], torch.Tensor]
_FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def _drawn(make: Maker, shape_or_like: Any, dtype: Any, device: Any, key: Key | None, allowed: Any = _FLOATS) -> Tensor:
    """A tensor of this shape, or like this tensor, around the elements that `make` gives."""
    if isinstance(shape_or_like, (Tensor, torch.Tensor)):
        model = as_tensor(shape_or_like)
        place = model.device if device is None else torch.empty(0, device=device).device
        _require(dtype := model.dtype if dtype is None else dtype, allowed)
        made = make(next_key(key), 0, model.values.numel(), dtype, place)
        return beside(model, made.view(model.values.shape))
    sizes, structure, order, place = form(shape_or_like, device)
    _require(dtype := torch.get_default_dtype() if dtype is None else dtype, allowed)
    return Tensor(make(next_key(key), 0, math.prod(sizes), dtype, place).view(sizes), structure, order)


def _require(dtype: Any, allowed: tuple[torch.dtype, ...]) -> None:
    if dtype not in allowed:
        raise TypeError(f"dtype must be one of {', '.join(map(str, allowed))}, got {dtype}")


@operation
def bits(shape_or_like: Any, *, width: int = 32, device: Any = None, key: Key | None = None) -> Tensor:
    """Random bits for each element, as int64: 32 of them, the numbers 0 … 2³² - 1, or with width=64 all that it has.

    >>> import serrate as sr
    >>> sr.random.bits((2, sr.Ragged([3, 1])), key=sr.random.Key(0)).shape
    (2, Ragged([3, 1]))
    """
    if width not in (32, 64):
        raise ValueError(f"width must be 32 or 64, got {width!r:.40}")

    def make(key: Key, start: int, count: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        if width == 64:
            return philox.wide_words(key, start, count, device)
        return philox.unsigned(philox.words(key, start, count, device))

    return _drawn(make, shape_or_like, torch.int64, device, key, (torch.int64,))


@operation
def uniform(
    shape_or_like: Any,
    low: float = 0.0,
    high: float = 1.0,
    *,
    dtype: torch.dtype | None = None,
    device: Any = None,
    key: Key | None = None,
) -> Tensor:
    """Numbers spread evenly over low ≤ u < high, in a shape that may be ragged or the shape of a tensor.

    >>> import serrate as sr
    >>> sr.random.uniform((2, sr.Ragged([3, 1])), key=sr.random.Key(0)).shape
    (2, Ragged([3, 1]))
    """
    if not -math.inf < low <= high < math.inf:
        raise ValueError(f"uniform needs low ≤ high, both finite, got {low} and {high}")

    def make(key: Key, start: int, count: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        made = philox.uniform_values(key, start, count, dtype, device)
        if (low, high) == (0, 1):
            return made
        made = made.mul_(high - low).add_(low)
        return made.masked_fill_(made >= high, low)  # rounded up to what is not included

    return _drawn(make, shape_or_like, dtype, device, key)


@operation
def normal(
    shape_or_like: Any,
    mean: float = 0.0,
    std: float = 1.0,
    *,
    dtype: torch.dtype | None = None,
    device: Any = None,
    key: Key | None = None,
) -> Tensor:
    """Numbers of the normal distribution, in a shape that may be ragged or the shape of a tensor.

    >>> import serrate as sr
    >>> sr.random.normal(sr.ragged([[1.0, 2.0], []]), key=sr.random.Key(0)).shape
    (2, Ragged([2, 0]))
    """
    if not std >= 0:
        raise ValueError(f"normal needs a standard deviation of 0 or more, got {std}")

    def make(*call: Any) -> torch.Tensor:
        made = philox.normal_values(*call)
        return made if (mean, std) == (0, 1) else made.mul_(std).add_(mean)

    return _drawn(make, shape_or_like, dtype, device, key)


@operation
def exponential(
    shape_or_like: Any,
    rate: float = 1.0,
    *,
    dtype: torch.dtype | None = None,
    device: Any = None,
    key: Key | None = None,
) -> Tensor:
    """Waiting times between events of this rate: positive numbers with mean 1 / rate.

    >>> import serrate as sr
    >>> bool((sr.random.exponential((9,), rate=2.0, key=sr.random.Key(0)) > 0).values.all())
    True
    """
    if not 0 < rate < math.inf:
        raise ValueError(f"exponential needs a positive rate, got {rate}")

    def make(*call: Any) -> torch.Tensor:
        made = philox.exponential_values(*call)
        return made if rate == 1 else made.div_(rate)

    return _drawn(make, shape_or_like, dtype, device, key)


@operation
def randint(
    shape_or_like: Any,
    low: int,
    high: int,
    *,
    dtype: torch.dtype | None = None,
    device: Any = None,
    key: Key | None = None,
) -> Tensor:
    """Integers low ≤ i < high, all as likely up to (high - low) / 2⁶³; int64 unless a dtype or a tensor says otherwise.

    >>> import serrate as sr
    >>> sr.random.randint((5,), 3, 4).tolist()
    [3, 3, 3, 3, 3]
    """
    kind = dtype
    if kind is None:
        kind = shape_or_like.dtype if isinstance(shape_or_like, (Tensor, torch.Tensor)) else torch.int64
    _require(kind, _INTEGERS)
    limits = torch.iinfo(kind)
    if not limits.min <= low < high <= limits.max + 1 or high - low >= 2**63:
        raise ValueError(f"randint needs low < high, at most 2⁶³ apart and within {kind}, got {low} and {high}")

    def make(key: Key, start: int, count: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        bits = philox.wide_words(key, start, count, device) & (2**63 - 1)
        return bits.remainder_(high - low).add_(low).to(dtype)

    return _drawn(make, shape_or_like, kind, device, key, _INTEGERS)


@operation
def bernoulli(p: Any, /, *, dtype: torch.dtype | None = None, key: Key | None = None) -> Tensor:
    """1 with the probability each element of `p` gives, else 0; in p's dtype unless another is given.

    >>> import serrate as sr
    >>> sr.random.bernoulli(sr.ragged([[0.0, 1.0], [1.0]])).tolist()
    [[0.0, 1.0], [1.0]]
    """
    chances = as_tensor(p)
    if not chances.is_floating_point():
        raise TypeError(f"bernoulli needs floating-point probabilities, got {chances.dtype}")
    flat = chances.values.detach().reshape(-1)
    bad = ~((flat >= 0) & (flat <= 1))
    if not chances.structure.is_exact:  # what lies past the last offset is anything
        width = max(math.prod(chances.values.shape[1:]), 1)
        places = torch.arange(flat.numel(), device=flat.device)
        bad &= places < chances.structure.defined_cells(chances.structure.whole) * width
    fault = host.first_fault(bad)
    if not host.is_mapped(fault):
        host.defer(
            fault,
            lambda i: ValueError(f"probabilities must be between 0 and 1, but packed element {i} is {float(flat[i])}"),
        )
    draws = philox.unsigned(philox.words(next_key(key), 0, flat.numel(), flat.device))
    made = draws.to(torch.float64).mul_(2.0**-32) < flat
    return chances._with(made.view(chances.values.shape).to(chances.dtype if dtype is None else dtype))


# -------------------------------------------------------------------------------------------------------- torch's calls


def _answer_bernoulli(input: Any, p: float | None = None, *, generator: None = None, out: None = None) -> Tensor:
    if generator is not None or out is not None:
        raise TypeError("bernoulli of an sr.Tensor takes neither generator nor out")
    if p is None:
        return bernoulli(input)
    return bernoulli(input._with(torch.full_like(input.values, p, dtype=torch.float64)), dtype=input.dtype)


def _answer_randint_like(input: Any, low: int, high: int | None = None, **options: Any) -> Tensor:
    first, last = (0, low) if high is None else (low, high)
    return like(randint)(input, first, last, **options)


# ----------------------------------------------------------------------------------------------- bodies and derivatives


def _dtype(shape_or_like: Any, dtype: torch.dtype | None) -> torch.dtype:
    """The dtype of what is drawn."""
    if dtype is not None:
        return dtype
    return shape_or_like.dtype if isinstance(shape_or_like, (Tensor, torch.Tensor)) else torch.get_default_dtype()


def _uniform_body(
    shape_or_like: Any,
    low: float = 0.0,
    high: float = 1.0,
    *,
    dtype: torch.dtype | None = None,
    device: Any = None,
    key: Key | None = None,
) -> Any:
    kind = _dtype(shape_or_like, dtype)
    digits = philox.DIGITS[kind]
    drawn = ops["random.bits"](shape_or_like, width=32 if digits < 32 else 64, device=device, key=key)
    made = ops.astype(ops.bitwise_and(drawn, 2**digits - 1), kind) * 2.0**-digits
    if (low, high) == (0, 1):
        return made
    made = made * (high - low) + low
    return ops.where(made >= high, low, made)


def _exponential_body(
    shape_or_like: Any,
    rate: float = 1.0,
    *,
    dtype: torch.dtype | None = None,
    device: Any = None,
    key: Key | None = None,
) -> Any:
    kind = _dtype(shape_or_like, dtype)
    if kind == torch.float64:
        drawn = ops["random.bits"](shape_or_like, width=64, device=device, key=key)
        positive = (ops.astype(ops.bitwise_and(drawn, 2**53 - 1), kind) + 0.5) * 2.0**-53
    else:
        drawn = ops["random.bits"](shape_or_like, device=device, key=key)
        positive = (ops.astype(drawn, torch.float32) + 0.5) * 2.0**-32
    made = ops.clip(-ops.log(positive), min=torch.finfo(positive.dtype).eps / 2)
    return ops.astype(made, kind) / rate


def _randint_body(
    shape_or_like: Any,
    low: int,
    high: int,
    *,
    dtype: torch.dtype | None = None,
    device: Any = None,
    key: Key | None = None,
) -> Any:
    is_model = isinstance(shape_or_like, (Tensor, torch.Tensor))
    kind = _dtype(shape_or_like, dtype if dtype is not None or is_model else torch.int64)
    drawn = ops["random.bits"](shape_or_like, width=64, device=device, key=key)
    return ops.astype(ops.remainder(ops.bitwise_and(drawn, 2**63 - 1), high - low) + low, kind)


def _bernoulli_body(p: Any, /, *, dtype: torch.dtype | None = None, key: Key | None = None) -> Any:
    draws = ops.astype(ops["random.bits"](p, key=key), torch.float64) * 2.0**-32
    return ops.astype(draws < p, p.dtype if dtype is None else dtype)


def _record(name: str, function: Callable[..., Any], summary: str, samples: tuple[str, ...], **fields: Any) -> None:
    usual: dict[str, Any] = {"torch": (), "kinds": ("float",)}
    fields = usual | {"answer": None, "operands": (), "example": ("", "")} | fields
    record("random", f"random.{name}", function, fields.pop("answer"), summary=summary, samples=samples, **fields)


_KEY = "key=sr.random.Key(1)"
_DRAWN = "the result does not depend on elements"


# fmt: off
_record("bits", bits, "32 or 64 random bits, as int64.", (f"x, {_KEY}", f"x, width=64, {_KEY}"), kinds=ALL,
        primitive="random_bits", flat=_DRAWN, errors=(("x, width=8", ValueError, "width must be 32 or 64"),))
_record("uniform", uniform, "Numbers spread evenly over low ≤ u < high.", (f"x, {_KEY}", f"x, 2.0, 3.0, {_KEY}"),
        spellings={torch.rand_like: like(uniform)}, body=_uniform_body, flat=_DRAWN,
        errors=(("x, 2.0, 1.0", ValueError, "uniform needs low ≤ high"), ("x, dtype=torch.int64", TypeError, "one of")))
_record("normal", normal, "Numbers of the normal distribution.", (f"x, {_KEY}", f"x, 2.0, 3.0, {_KEY}"),
        spellings={torch.randn_like: like(normal)}, primitive="random_bits", flat=_DRAWN,
        errors=(("x, 0.0, -1.0", ValueError, "a standard deviation of 0 or more"),))
_record("exponential", exponential, "Waiting times between events of a rate.", (f"x, {_KEY}", f"x, 2.0, {_KEY}"),
        body=_exponential_body, flat=_DRAWN,
        errors=(("x, 0.0", ValueError, "exponential needs a positive rate"),))
_record("randint", randint, "Integers low ≤ i < high.", (f"x, 1, 9, {_KEY}",), kinds=("int",),
        spellings={torch.randint_like: _answer_randint_like}, body=_randint_body, flat=_DRAWN,
        errors=(("x, 1, 9", TypeError, "dtype must be one of"),
                ("x.to(torch.int64), 3, 3", ValueError, "randint needs low < high")))
_record("bernoulli", bernoulli, "1 with the probability each element gives, else 0.",
        (f"sr.sigmoid(x), {_KEY}",), operands=("p",), body=_bernoulli_body, flat="the result is 0 or 1",
        torch=(torch.bernoulli, torch.Tensor.bernoulli), answer=_answer_bernoulli,
        errors=(("x.to(torch.int64)", TypeError, "floating-point probabilities"),
                ("x * 0 + 2", ValueError, "probabilities must be between 0 and 1")))
# fmt: on
