"""Reductions over any set of axes: sum, mean, var, any, norm and their kin; `eager/reducing.py` computes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

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
from serrate.ops.record import ALL, NUMERIC, Kind, operation, record, torch_names
from serrate.tensor.tensor import Tensor, as_tensor


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
    gradient: str,
    kinds: tuple[Kind, ...],
    sums: bool = False,
    others: tuple[str, ...] = (),
    answers: dict[Callable[..., Any], Callable[..., Any]] | None = None,
    **defaults: Any,
) -> None:
    """Define a reduction.

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
        gradient=gradient,
        example=(f"sr.{name}(sr.ragged({given}), axis=1).tolist()", gives),
        samples=("x, axis=1", "x, axis=0", "x, axis=-1, keepdims=True", "x"),
        errors=(
            ("x, axis=5", AxisError, "axis 5 is out of range"),
            ("None, axis=1", TypeError, "expected an sr.Tensor"),
        ),
    )


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


# fmt: off
reduces("sum", _sum, torch.sum, "The sum along `axis`; 0 of nothing. Integers sum in int64, unsigned ones in uint64.",
        "[[1, 2], [], [3]]", "[3, 0, 3]", "spread(g)", ALL, sums=True)
reduces("prod", _prod, torch.prod, "The product along `axis`; 1 of nothing.",
        "[[2, 3], [], [4]]", "[6, 1, 4]", "spread(g * out) / x", NUMERIC, sums=True)
reduces("mean", _mean, torch.mean, "The mean along `axis`; NaN of nothing.",
        "[[1., 2.], [3.]]", "[1.5, 3.0]", "spread(g / count)", ("float", "complex"))
reduces("var", _var, torch.var, "The variance along `axis`, divided by count - correction; NaN of nothing.",
        "[[1., 3.], [3.]]", "[1.0, 0.0]", "2 * spread(g / (count - correction)) * (x - spread(mean(x)))", ("float",),
        correction=1)
reduces("std", _std, torch.std, "The standard deviation along `axis`; NaN of nothing.",
        "[[1., 3.], [3.]]", "[1.0, 0.0]", "spread(g / ((count - correction) * out)) * (x - spread(mean(x)))",
        ("float",), correction=1)
reduces("any", _any, torch.any, "Whether any along `axis` is not 0; False of nothing.",
        "[[0, 2], [], [0]]", "[True, False, False]", "", ALL)
reduces("all", _all, torch.all, "Whether all along `axis` are not 0; True of nothing.",
        "[[0, 2], [], [1]]", "[False, True, True]", "", ALL)
reduces("count_nonzero", _count_nonzero, torch.count_nonzero, "How many along `axis` are not 0.",
        "[[0, 2], [], [1]]", "[1, 0, 1]", "", ALL)
reduces("logsumexp", _logsumexp, torch.logsumexp, "log(sum(exp(x))) along `axis`, without overflow; -inf of nothing.",
        "[[0.], []]", "[0.0, -inf]", "spread(g) * exp(x - spread(out))", ("float",))
reduces("norm", _norm, torch.norm, "The `ord`-norm along `axis`, (sum |x|^ord)^(1/ord); 0 of nothing.",
        "[[3., -4.], []]", "[5.0, 0.0]", "spread(g / out) * x", ("float", "complex"),
        answers=dict.fromkeys(torch_names("norm"), _answer_norm))
# fmt: on
