"""Averages as sums that are divided: a kernel then has no number of elements to count, for each lane and each step.

A mean is a sum by the number of elements, where that is a constant or the length of a row. A variance is the mean of
the squared distances from the mean, which takes one more walk of the elements, and no division in any of them.
"""

from __future__ import annotations

from math import prod

from serrate.fusion.fusion import Fusion
from serrate.fusion.shapes import parents_of
from serrate.fusion.view import TensorView

FLOATS = ("float32", "float64")
"""A sum of numbers of half precision may be beyond its dtype, should it be stored."""


def without_averages(fusion: Fusion) -> Fusion:
    """A fusion that computes the same, of sums where that is possible; its tensors keep their names.

    >>> from serrate.fusion import Fusion
    >>> fusion = Fusion()
    >>> y = fusion.output(fusion.reduce("mean", fusion.input("x", ["n", 8]), [1]), "y")
    >>> print(without_averages(fusion))
    inputs:
      x[iS_i{n}, iS_d{8}] float32
    t2[iS_i{n}, rS_d{8}] float32 = sum(x, (1,), False)
    y[iS_i{n}] float32 = divide(t2, 8)
    outputs: y
    """
    if not any(_is_average(tensor) for tensor in fusion.tensors):
        return fusion
    made = fusion.clone()
    for tensor in [tensor for tensor in made.tensors if _is_average(tensor)]:
        _rewrite(made, tensor)
    return made


def _is_average(tensor: TensorView) -> bool:
    operation = tensor.definition
    if operation is None or operation.name not in ("mean", "var") or operation.kind != "reduce":
        return False
    if tensor.is_scheduled or tensor.domain.own_allocation is not None:
        return False
    return operation.inputs[0].dtype in FLOATS and _is_counted(operation.inputs[0], operation.options[0])


def _is_counted(x: TensorView, gone: tuple[int, ...]) -> bool:
    """Whether the number of elements is a constant, or that times the length of a row: of rows whose component is not
    reduced with them, or without them."""
    axes = x.domain.kept
    ragged = [at for at in gone if axes[at].is_ragged]
    if len(ragged) > 1 or not all(axes[at].extent.is_const for at in gone if at not in ragged):
        return False
    reduced = {axes[at] for at in gone}
    return not any(axis.is_ragged and reduced.intersection(parents_of(axis, axes)) for axis in axes)


def _rewrite(fusion: Fusion, tensor: TensorView) -> None:
    """Compute a tensor, an average, of a sum that is made in its place."""
    operation = tensor.definition
    assert operation is not None
    (x,), (gone, keepdims) = operation.inputs, operation.options

    def make() -> TensorView:
        if operation.name == "mean":
            return _mean(fusion, x, gone, keepdims)
        distances = x - _mean(fusion, x, gone, True)
        return _mean(fusion, distances * distances, gone, keepdims)

    fusion.compute_by(tensor, make)


def _mean(fusion: Fusion, x: TensorView, gone: tuple[int, ...], keepdims: bool) -> TensorView:
    total, axes = fusion.reduce("sum", x, gone, keepdims), x.domain.kept
    ragged = [at for at in gone if axes[at].is_ragged]
    count = prod(int(axes[at].extent.value) for at in gone if at not in ragged)
    if not ragged:
        return total / count
    parents = [axes.index(axis) for axis in parents_of(axes[ragged[0]], axes)]
    lengths = fusion.cast(fusion.row_lengths(x, ragged[0]), x.dtype)
    kept = [at for at in range(len(axes)) if keepdims or at not in gone]
    lengths = fusion.broadcast(lengths, [at not in parents for at in kept])
    return total / (lengths * count if count != 1 else lengths)
