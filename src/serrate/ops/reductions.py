"""Reductions over any set of axes: sum, mean, var, any, norm and their kin; `eager/reducing.py` computes them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from serrate.eager.precision import ACCUMULATE
from serrate.eager.reducing import (
    AxisLike,
    extreme_values,
    logsumexp_values,
    mean_values,
    norm_values,
    product_values,
    reduction,
    root,
    sum_values,
    total,
    var_values,
)
from serrate.eager.unsigned import summed, summed_by_torch
from serrate.errors import AxisError
from serrate.ops.record import ALL, NUMERIC, Form, Kind, operation, ops, record, torch_names, written
from serrate.ops.rules import conjugate, in_dtype
from serrate.tensor.structure import Ragged
from serrate.tensor.tensor import Tensor, as_tensor

if TYPE_CHECKING:
    from serrate.fusion.monoids import Monoid


@operation
def _sum(x: Any, /, *, axis: AxisLike = None, dtype: torch.dtype | None = None, keepdims: bool = False) -> Tensor:
    return total(x, axis, dtype, keepdims)


@operation
def _prod(x: Any, /, *, axis: AxisLike = None, dtype: torch.dtype | None = None, keepdims: bool = False) -> Tensor:
    call = reduction(x if dtype is None else as_tensor(x).to(dtype), axis)
    made = product_values(call, call.x.values)
    return call.finish(made.to(summed(call.x.dtype, made.dtype) if dtype is None else dtype), keepdims)


@operation
def _mean(x: Any, /, *, axis: AxisLike = None, keepdims: bool = False) -> Tensor:
    call = reduction(x, axis)
    return call.finish(mean_values(call, call.x.values), keepdims)


@operation
def _var(x: Any, /, *, axis: AxisLike = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    call = reduction(x, axis)
    return call.finish(var_values(call, call.x.values, correction), keepdims)


@operation
def _std(x: Any, /, *, axis: AxisLike = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    call = reduction(x, axis)
    return call.finish(root(var_values(call, call.x.values, correction)), keepdims)


@operation
def _any(x: Any, /, *, axis: AxisLike = None, keepdims: bool = False) -> Tensor:
    call = reduction(x, axis)
    return call.finish(extreme_values(call, call.x.values != 0, largest=True), keepdims)


@operation
def _all(x: Any, /, *, axis: AxisLike = None, keepdims: bool = False) -> Tensor:
    call = reduction(x, axis)
    return call.finish(extreme_values(call, call.x.values != 0, largest=False), keepdims)


@operation
def _count_nonzero(x: Any, /, *, axis: AxisLike = None, keepdims: bool = False) -> Tensor:
    call = reduction(x, axis)
    return call.finish(sum_values(call, call.x.values != 0), keepdims)


@operation
def _logsumexp(x: Any, /, *, axis: AxisLike = None, keepdims: bool = False) -> Tensor:
    call = reduction(x, axis)
    if not call.x.is_floating_point():
        raise TypeError(f"logsumexp needs floating-point elements, got {call.x.dtype}")
    return call.finish(logsumexp_values(call, call.x.values), keepdims)


@operation
def _norm(x: Any, /, *, axis: AxisLike = None, keepdims: bool = False, ord: float = 2) -> Tensor:
    call = reduction(x, axis)
    return call.finish(norm_values(call, call.x.values, ord), keepdims)


def _answer_norm(
    input: Any, p: Any = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None, **options: Any
) -> Tensor:
    order, axis = options.pop("ord", p), options.pop("axis", dim)
    if order in ("fro", None):
        order = 2
    if options.pop("out", None) is not None or isinstance(order, str):
        raise TypeError(f"norm of an sr.Tensor takes a number as its order and no out, got {order!r}")
    return _norm(input if dtype is None else input.to(dtype), axis=axis, keepdims=keepdim, ord=order)


def reduces(
    name: str,
    eager: Callable[..., Tensor],
    function: Callable[..., Any],
    summary: str,
    given: str,
    gives: str,
    kinds: tuple[Kind, ...],
    sums: bool = False,
    others: tuple[str, ...] = (),
    answers: dict[Callable[..., Any], Callable[..., Any]] | None = None,
    body: Callable[..., Any] | None = None,
    vjp: Callable[..., Any] | None = None,
    flat: str = "",
    monoid: Monoid | None = None,
    dialect: Form | None = None,
    **defaults: Any,
) -> None:
    """Define a reduction, which is a monoid unless it has a body: one that kernels know, or the `monoid` given.

    `sums`: torch's function sums integers in another dtype than the array API's. `answers` are functions of torch that
    take other arguments than its reductions do.
    """
    record(
        "reductions",
        name,
        eager,
        _answer(eager, defaults, sums),
        summary=summary,
        torch=(function, *torch_names(name, *others)),
        spellings=answers,
        kinds=kinds,
        primitive="monoid" if body is None else None,
        body=body,
        vjp=vjp,
        flat=flat,
        dialect=dialect,
        example=(f"sr.{name}(sr.ragged({given}), axis=1).tolist()", gives),
        samples=("x, axis=1", "x, axis=0", "x, axis=-1, keepdims=True", "x"),
        errors=(
            ("x, axis=5", AxisError, "axis 5 is out of range"),
            ("None, axis=1", TypeError, "expected an sr.Tensor"),
        ),
    )

    if monoid is not None:
        from serrate.fusion import monoids

        monoids.enter(monoid)


def _answer(eager: Callable[..., Tensor], defaults: dict[str, Any], sums: bool) -> Callable[..., Tensor]:
    """torch's spelling: dim or axis, keepdim or keepdims, torch's own defaults."""

    def handler(input: Any, dim: Any = None, *rest: Any, **options: Any) -> Tensor:
        options = defaults | options
        if "correction" in defaults and isinstance(dim, bool):  # torch.var(x, unbiased)
            rest, dim = (dim, *rest), None
        if "correction" in defaults and rest:  # torch.var(x, dim, unbiased, keepdim)
            options["unbiased"], *rest = rest  # type: ignore[assignment]
        keepdim = options.pop("keepdim", rest[0] if rest else False)
        axis = options.pop("axis", dim)
        keep = options.pop("keepdims", keepdim)
        if "unbiased" in options:
            options["correction"] = 1 if options.pop("unbiased") else 0
        if options.pop("out", None) is not None:
            raise TypeError(f"{eager.__name__}(out=…) is not defined for sr.Tensor")
        if sums and options.get("dtype") is None:
            options["dtype"] = summed_by_torch(input)
        return eager(input, axis=axis if axis != () else None, keepdims=keep, **options)

    return handler


# ------------------------------------------------------------------------------------------- bodies and derivatives


def axes_of(x: Any, axis: AxisLike) -> tuple[int, ...]:
    """The axes that `axis` names, counted from the first."""
    if axis is None:
        return tuple(range(x.ndim))
    given = axis if isinstance(axis, Sequence) else (axis,)
    return tuple(each % x.ndim for each in given)


def accumulating(x: Any) -> Any:
    """x in the dtype that sums of its elements are kept in."""
    return ops.astype(x, ACCUMULATE[x.dtype]) if x.dtype in ACCUMULATE else x


def count(x: Any, axis: AxisLike) -> Any:
    """How many elements of x each result of a reduction has: a number if no axis is ragged or has ragged ones on it."""
    sizes = [x.shape[axis] for axis in axes_of(x, axis)]
    if x.is_ragged and not (all(isinstance(n, int) for n in sizes) and _are_features(x, axis)):
        return ops.sum(ops.ones_like(x, dtype=torch.int64), axis=axis)
    return math.prod(sizes)


def _are_features(x: Any, axis: AxisLike) -> bool:
    """Whether no ragged axis depends on one of the axes."""
    parents = {parent for size in x.shape if isinstance(size, Ragged) for parent in size.parents}
    return not parents & set(axes_of(x, axis))


def _kept(made: Any, x: Any, axis: AxisLike, keepdims: bool) -> Any:
    """A result with axes of size 1 in the place of those that are gone, if they are to be kept."""
    for each in sorted(axes_of(x, axis)) if keepdims else ():
        made = ops.expand_dims(made, axis=each)
    return made


def _dropped(gradient: Any, x: Any, axis: AxisLike, keepdims: bool) -> Any:
    """The gradient of a result without the axes of size 1 that were kept."""
    return ops.squeeze(gradient, axis=axes_of(x, axis)) if keepdims else gradient


def _mean_body(x: Any, /, *, axis: AxisLike = None, keepdims: bool = False) -> Any:
    made = ops.sum(accumulating(x), axis=axis) / count(x, axis)
    return _kept(ops.astype(made, x.dtype), x, axis, keepdims)


def _mean_vjp(g: Any, out: Any, x: Any, *, axis: AxisLike, keepdims: bool) -> Any:
    """Each element has its share of the gradient."""
    many = count(x, axis)
    wide = accumulating(_dropped(g, x, axis, keepdims))
    share = wide / (ops.astype(many, wide.dtype) if isinstance(many, Tensor) else many)
    return in_dtype(ops.expand_like(share, x, axis=axis), x.dtype)


def _var_body(x: Any, /, *, axis: AxisLike = None, correction: float = 0.0, keepdims: bool = False) -> Any:
    centred = _centred(accumulating(x), axis)
    made = ops.sum(centred * centred, axis=axis) / _left(x, axis, correction)
    return _kept(ops.astype(made, x.dtype), x, axis, keepdims)


def _centred(x: Any, axis: AxisLike) -> Any:
    """Elements less their mean."""
    once = x - ops.expand_like(ops.mean(x, axis=axis), x, axis=axis)
    return once - ops.expand_like(ops.mean(once, axis=axis), x, axis=axis)  # the first mean is rounded


def _left(x: Any, axis: AxisLike, correction: float) -> Any:
    """How many elements each result has, less a correction."""
    many = count(x, axis)
    if isinstance(many, int):
        return max(many - correction, 0.0)
    return ops.astype(ops.maximum(many - float(correction), 0.0), ACCUMULATE.get(x.dtype, x.dtype))


def _var_vjp(g: Any, out: Any, x: Any, *, axis: AxisLike, correction: float, keepdims: bool) -> Any:
    """The mean changes with each element, but moves the squares of distances from it by 0 in all: this is left out,
    since shares may be infinite."""
    shares = 2 * accumulating(_dropped(g, x, axis, keepdims)) / _left(x, axis, correction)
    centred = _centred(accumulating(x), axis)
    return in_dtype(ops.expand_like(shares, centred, axis=axis) * centred, x.dtype)


def _std_body(x: Any, /, *, axis: AxisLike = None, correction: float = 0.0, keepdims: bool = False) -> Any:
    return square_root(ops.var(x, axis=axis, correction=correction, keepdims=keepdims))


def square_root(x: Any, order: float = 2) -> Any:
    """The root of each element; its derivative at 0, where there is none, is 0, as in torch."""
    zero = ops.equal(x, 0)
    positive = ops.where(zero, 1, x)
    return ops.where(zero, 0, ops.sqrt(positive) if order == 2 else ops.pow(positive, 1 / order))


def _count_nonzero_body(x: Any, /, *, axis: AxisLike = None, keepdims: bool = False) -> Any:
    return ops.sum(ops.not_equal(x, 0), axis=axis, keepdims=keepdims)


def _logsumexp_body(x: Any, /, *, axis: AxisLike = None, keepdims: bool = False) -> Any:
    wide = accumulating(x)
    top = ops["Tensor.detach"](ops.max(wide, axis=axis))
    top = ops.where(ops.isfinite(top), top, 0)
    total = ops.sum(ops.exp(wide - ops.expand_like(top, wide, axis=axis)), axis=axis)
    return _kept(ops.astype(ops.log(total) + top, x.dtype), x, axis, keepdims)


def _norm_body(x: Any, /, *, axis: AxisLike = None, keepdims: bool = False, ord: float = 2) -> Any:
    wide = accumulating(x)
    if ord == 2:
        squares = ops.square(ops.real(wide)) + ops.square(ops.imag(wide)) if x.is_complex() else wide * wide
        made = square_root(ops.sum(squares, axis=axis))
    else:
        made = _norm_of_sizes(ops.abs(wide), axis, ord)
    dtype = made.dtype if x.is_complex() else x.dtype
    return _kept(ops.astype(made, dtype), x, axis, keepdims)


def _norm_of_sizes(sizes: Any, axis: AxisLike, ord: float) -> Any:
    """The norm of absolute values."""
    if ord == 0:
        return ops.sum(ops.astype(ops.not_equal(sizes, 0), sizes.dtype), axis=axis)
    if ord == 1:
        return ops.sum(sizes, axis=axis)
    if abs(ord) == math.inf:
        made, many = (ops.max if ord > 0 else ops.min)(sizes, axis=axis), count(sizes, axis)
        if isinstance(many, int):
            return ops.zeros_like(made) if many == 0 else made
        return ops.where(ops.equal(many, 0), 0, made)
    if ord >= 2:
        return square_root(ops.sum(ops.pow(sizes, ord), axis=axis), ord)
    zero = ops.equal(sizes, 0)  # at which the derivative, where there is none, is 0, as in torch
    powers = ops.where(zero, 0.0 if ord > 0 else math.inf, ops.pow(ops.where(zero, 1, sizes), ord))
    return square_root(ops.sum(powers, axis=axis), ord)


def _sum_vjp(g: Any, out: Any, x: Any, *, axis: AxisLike, keepdims: bool, **_: Any) -> Any:
    return in_dtype(ops.expand_like(_dropped(g, x, axis, keepdims), x, axis=axis), x.dtype)


def _prod_vjp(g: Any, out: Any, x: Any, *, axis: AxisLike, keepdims: bool, **_: Any) -> Any:
    """The product of the other elements, written so that its derivative is right at 0 too."""

    def beside(each: Any) -> Any:
        return ops.expand_like(each, x, axis=axis)

    zero = ops.equal(x, 0)
    zeros, rest = ops.sum(zero, axis=axis), ops.prod(ops.where(zero, 1, x), axis=axis)
    vanishing = ops.sum(ops.where(zero, x, 0), axis=axis)
    factor = conjugate(product_of_others(x, beside(zeros), beside(rest), beside(vanishing)))
    return in_dtype(beside(_dropped(g, x, axis, keepdims)) * factor, x.dtype)


def product_of_others(x: Any, zeros: Any, rest: Any, vanishing: Any) -> Any:
    """For each factor the product of the others, given how many of all are 0, and the product of those that are not.

    `vanishing` is the sum of those that are 0: its value is 0, its derivative is not. It stands for the one 0 that
    there is, or for the other one of two.
    """
    zero = ops.equal(x, 0)
    of_zero = ops.where(ops.equal(zeros, 1), rest, ops.where(ops.equal(zeros, 2), rest * (vanishing - x), 0))
    others = rest / ops.where(zero, 1, x)
    of_others = ops.where(ops.equal(zeros, 0), others, ops.where(ops.equal(zeros, 1), others * vanishing, 0))
    return ops.where(zero, of_zero, of_others)


def extreme_vjp(g: Any, out: Any, x: Any, *, axis: AxisLike, keepdims: bool) -> Any:
    """The rule of max and min: elements that are equal to the result share its gradient."""
    chosen = ops.expand_like(_dropped(out, x, axis, keepdims), x, axis=axis)
    has = ops.logical_or(ops.equal(x, chosen), ops.logical_and(ops.isnan(x), ops.isnan(chosen)))
    shares = ops.astype(has, x.dtype)
    shares = shares / ops.expand_like(ops.sum(shares, axis=axis), x, axis=axis)
    return ops.expand_like(_dropped(g, x, axis, keepdims), x, axis=axis) * shares


def _logsumexp_vjp(g: Any, out: Any, x: Any, *, axis: AxisLike, keepdims: bool) -> Any:
    beside = ops.expand_like(_dropped(out, x, axis, keepdims), x, axis=axis)
    finite = ops.where(ops.isfinite(beside), beside, 0)
    return ops.expand_like(_dropped(g, x, axis, keepdims), x, axis=axis) * ops.exp(x - finite)


# fmt: off
_TRUTH = "the result is a truth value"
reduces("sum", _sum, torch.sum, "The sum along `axis`; 0 of nothing. Integers sum in int64, unsigned ones in uint64.",
        "[[1, 2], [], [3]]", "[3, 0, 3]", ALL, sums=True, vjp=_sum_vjp, dialect=written("reduce", "sum", x="rhs"))
reduces("prod", _prod, torch.prod, "The product along `axis`; 1 of nothing.",
        "[[2, 3], [], [4]]", "[6, 1, 4]", NUMERIC, sums=True, vjp=_prod_vjp, dialect=written("reduce", "prod", x="rhs"))
reduces("mean", _mean, torch.mean, "The mean along `axis`; NaN of nothing.",
        "[[1., 2.], [3.]]", "[1.5, 3.0]", ("float", "complex"), body=_mean_body, vjp=_mean_vjp,
        dialect=written("reduce", "mean", x="rhs"))
reduces("var", _var, torch.var, "The variance along `axis`, divided by count - correction; NaN of nothing.",
        "[[1., 3.], [3.]]", "[1.0, 0.0]", ("float",), body=_var_body, vjp=_var_vjp, correction=1,
        dialect=written("reduce", "var", x="rhs"))
reduces("std", _std, torch.std, "The standard deviation along `axis`; NaN of nothing.",
        "[[1., 3.], [3.]]", "[1.0, 0.0]", ("float",), body=_std_body, correction=1,
        dialect=written("reduce", "std", x="rhs"))
reduces("any", _any, torch.any, "Whether any along `axis` is not 0; False of nothing.",
        "[[0, 2], [], [0]]", "[True, False, False]", ALL, flat=_TRUTH, dialect=written("test", "any", x="rhs"))
reduces("all", _all, torch.all, "Whether all along `axis` are not 0; True of nothing.",
        "[[0, 2], [], [1]]", "[False, True, True]", ALL, flat=_TRUTH, dialect=written("test", "all", x="rhs"))
reduces("count_nonzero", _count_nonzero, torch.count_nonzero, "How many along `axis` are not 0.",
        "[[0, 2], [], [1]]", "[1, 0, 1]", ALL, body=_count_nonzero_body, flat="the result is a number of elements")
reduces("logsumexp", _logsumexp, torch.logsumexp, "log(sum(exp(x))) along `axis`, without overflow; -inf of nothing.",
        "[[0.], []]", "[0.0, -inf]", ("float",), body=_logsumexp_body, vjp=_logsumexp_vjp)
reduces("norm", _norm, torch.norm, "The `ord`-norm along `axis`, (sum |x|^ord)^(1/ord); 0 of nothing.",
        "[[3., -4.], []]", "[5.0, 0.0]", ("float", "complex"), body=_norm_body,
        answers=dict.fromkeys(torch_names("norm"), _answer_norm))
# fmt: on
