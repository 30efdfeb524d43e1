"""The gradient rules of products, evaluated as written, against autograd."""

from __future__ import annotations

import pytest
import torch
from tests.ops.samples import elements

import serrate as sr
from serrate.ops.record import TABLE

PRODUCTS = {
    "matmul": [
        ("x", "x[0].torch().mT @ x[0].torch()"),
        ("x", "sr.matrix_transpose(x)"),
        ("sr.matrix_transpose(x)", "x"),
    ],
    "outer": [("x[..., 0]", "x[..., 1]")],
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_the_rule_of_products_equals_autograd(name):
    """The operands as text, in which x is [2, r, 2] with the lengths 3 and 2."""
    op = TABLE[name]
    for texts in PRODUCTS[name]:
        x = sr.from_lengths(elements(5, (2,), torch.float64), [3, 2])
        given = [eval(text, {"x": x, "sr": sr}) for text in texts]
        packed = [v.values if isinstance(v, sr.Tensor) else v for v in given]
        leaf = [v.clone().requires_grad_() for v in packed]
        placed = [v._with(p) if isinstance(v, sr.Tensor) else p for v, p in zip(given, leaf, strict=True)]
        out = op.function(*placed)
        g = out._with(elements(out.values.shape[0], tuple(out.values.shape[1:]), torch.float64, seed=7))
        want = torch.autograd.grad(out.values, leaf, g.values)
        names = [n for n, p in op.signature.parameters.items() if p.kind is p.POSITIONAL_ONLY]
        scope = {n: each.function for n, each in TABLE.items()} | dict(zip(names, given, strict=False))
        got = eval(op.gradient, scope | {"g": g, "out": out.detach()})
        for mine, theirs, where in zip(got, want, given, strict=True):
            if isinstance(where, sr.Tensor):
                assert mine.shape == where.shape
                assert mine.order == where.order
            stretched = mine.values.ndim - theirs.ndim  # a stretched operand's gradient is summed, as everywhere
            torch.testing.assert_close(mine.values.sum(list(range(stretched))) if stretched else mine.values, theirs)
