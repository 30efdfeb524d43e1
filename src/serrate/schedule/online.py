"""Sums of exponentials in one walk: softmax then walks its rows twice, and not three times.

The sum of exp(x - max(x)) needs the greatest element first. A monoid of two numbers, the greatest element so far and
the sum relative to it, finds both in one walk, at the price of a few multiplications: where memory is what a kernel
waits for, as on a GPU, that is cheaper than to read every row once more.
"""

from __future__ import annotations

from serrate.fusion.fusion import Fusion
from serrate.fusion.view import TensorView
from serrate.kernel.jobs import is_reduction

FLOATS = ("float32", "float64")


def with_online_sums(fusion: Fusion) -> Fusion:
    """A fusion that computes the same, with such sums where it has sums relative to a maximum.

    >>> from serrate.fusion import Fusion
    >>> fusion = Fusion()
    >>> x = fusion.input("x", ["n", 8])
    >>> exponentials = fusion.unary("exp", x - fusion.reduce("max", x, [1], keepdims=True))
    >>> y = fusion.output(exponentials / fusion.reduce("sum", exponentials, [1], keepdims=True), "y")
    >>> print(with_online_sums(fusion))
    inputs:
      x[iS_i{n}, iS_d{8}] float32
    t1[iS_i{n}, rS_d{8}] float32 = max(x, (1,), True)
    t2[iS_i{n}, iS_d{8}] float32 = subtract(x, t1)
    t3[iS_i{n}, iS_d{8}] float32 = exp(t2)
    t4[iS_i{n}, rS_d{8}] float32 = relative_exp_sum(x, (1,), True)
    y[iS_i{n}, iS_d{8}] float32 = divide(t3, t4)
    outputs: y
    """
    found = [(tensor, elements_of(tensor)) for tensor in fusion.tensors]
    if not any(elements for _, elements in found):
        return fusion
    made = fusion.clone()
    for tensor, elements in found:
        if elements is not None:
            own, x = made.named(tensor.name), made.named(elements.name)
            assert own.definition is not None
            gone, keepdims = own.definition.options
            made.compute_by(own, lambda x=x, gone=gone, keepdims=keepdims: made.reduce(  # type: ignore[misc]
                "relative_exp_sum", x, gone, keepdims
            ))  # fmt: skip
    return made


def with_reciprocals(fusion: Fusion) -> Fusion:
    """A fusion in which what is divided by such a sum is multiplied by its reciprocal, of which there is one for each
    row. These sums are 1 or more, so that it loses no more than the last bit."""
    found = [tensor for tensor in fusion.tensors if _sum_below(tensor) is not None]
    if not found:
        return fusion
    made = fusion.clone()
    for tensor in found:
        own = made.named(tensor.name)
        assert own.definition is not None
        numerator, divisor = own.definition.inputs

        def make(numerator: TensorView = numerator, divisor: TensorView = divisor) -> TensorView:
            return made.binary("multiply", numerator, _inverse(made, divisor, numerator))

        made.compute_by(own, make)
    return made


def _inverse(fusion: Fusion, divisor: TensorView, like: TensorView) -> TensorView:
    """The reciprocal of what is broadcast, broadcast as it is."""
    operation = divisor.definition
    assert operation is not None
    if operation.name == "broadcast":
        return fusion.broadcast(_inverse(fusion, operation.inputs[0], like), list(operation.options))
    if operation.name == "expand":
        return fusion.expand(_inverse(fusion, operation.inputs[0], like), like)
    return fusion.unary("reciprocal", divisor)


def _sum_below(tensor: TensorView) -> TensorView | None:
    """The sum of exponentials relative to their maximum that a tensor is divided by; None if it is not."""
    if not _is(tensor, "divide") or tensor.is_scheduled or tensor.dtype not in FLOATS:
        return None
    assert tensor.definition is not None
    if len(tensor.definition.inputs) != 2:  # one of them is a number
        return None
    _, divisor = tensor.definition.inputs
    while divisor.definition is not None:
        if is_reduction(divisor):
            return divisor if _is(divisor, "relative_exp_sum") or elements_of(divisor) is not None else None
        if divisor.definition.name not in ("broadcast", "expand"):
            return None
        (divisor,) = divisor.definition.inputs
    return None


def elements_of(tensor: TensorView) -> TensorView | None:
    """The x of a sum of exp(x - max(x)) over the same axes; None if a tensor is no such sum."""
    if not is_reduction(tensor) or not _is(tensor, "sum") or tensor.is_scheduled or tensor.dtype not in FLOATS:
        return None
    assert tensor.definition is not None
    (exponentials,), (gone, _) = tensor.definition.inputs, tensor.definition.options
    if not _is(exponentials, "exp"):
        return None
    assert exponentials.definition is not None
    (distances,) = exponentials.definition.inputs
    if not _is(distances, "subtract"):
        return None
    assert distances.definition is not None
    x, greatest = distances.definition.inputs
    if not isinstance(x, TensorView) or not isinstance(greatest, TensorView) or x.dtype != tensor.dtype:
        return None
    kept = [None if at in gone else at for at in range(x.ndim)]
    return x if _places(greatest, x, tuple(gone)) == kept else None


def _places(tensor: TensorView, x: TensorView, gone: tuple[int, ...]) -> list[int | None] | None:
    """For each axis of the maximum of x over some axes, which is broadcast, the axis of x that it is; None for one that
    is new. None if a tensor is something else."""
    operation = tensor.definition
    if operation is None:
        return None
    if operation.name == "max" and operation.kind == "reduce":
        if operation.inputs[0] is not x or tuple(operation.options[0]) != gone:
            return None
        keepdims = operation.options[1]
        return [None if at in gone else at for at in range(x.ndim) if keepdims or at not in gone]
    if operation.name not in ("broadcast", "expand"):
        return None
    before = _places(operation.inputs[0], x, gone)
    if before is None:
        return None
    if operation.name == "expand":
        return [None] * (tensor.ndim - len(before)) + before
    rest = iter(before)
    return [None if is_new else next(rest) for is_new in operation.options]


def _is(tensor: TensorView, name: str) -> bool:
    return tensor.definition is not None and tensor.definition.name == name
