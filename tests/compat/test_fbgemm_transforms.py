"""FBGEMM's functions under torch's transforms are compared with finite differences, and with a call for each line."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.autograd import forward_ad

from serrate.compat import fbgemm

pytestmark = pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")

OFFSETS, LENGTHS, FLAT = torch.tensor([0, 2, 2, 5]), torch.tensor([2, 0, 3]), torch.tensor([0, 2, 2, 5, 5])
generator = torch.Generator().manual_seed(0)
VALUES = torch.randn(5, 3, dtype=torch.float64, generator=generator)
DENSE = torch.randn(3, 4, 3, dtype=torch.float64, generator=generator)
MATRICES = torch.randn(3, 3, 2, dtype=torch.float64, generator=generator)

Function = Callable[[torch.Tensor], torch.Tensor]

FUNCTIONS: dict[str, Function] = {
    "jagged_to_padded_dense": lambda v: fbgemm.jagged_to_padded_dense(v, [OFFSETS], [4], -1.0),
    "jagged_2d_to_dense": lambda v: fbgemm.jagged_2d_to_dense(v, OFFSETS, 2),
    "jagged_1d_to_dense": lambda v: fbgemm.jagged_1d_to_dense(v[:, 0].contiguous(), OFFSETS, 4, 0),
    "dense_to_jagged": lambda v: fbgemm.dense_to_jagged(v.sum() * DENSE, [OFFSETS], 5)[0],
    "jagged_dense_elementwise_add": lambda v: fbgemm.jagged_dense_elementwise_add(v, [OFFSETS], DENSE),
    "jagged_dense_elementwise_add_jagged_output": lambda v: fbgemm.jagged_dense_elementwise_add_jagged_output(
        v, [OFFSETS], v.sum() * DENSE
    )[0],
    "jagged_dense_dense_elementwise_add_jagged_output": lambda v: (
        fbgemm.jagged_dense_dense_elementwise_add_jagged_output(v, [OFFSETS], v.sum() * DENSE, DENSE)[0]
    ),
    "jagged_dense_elementwise_mul": lambda v: fbgemm.jagged_dense_elementwise_mul(v, [OFFSETS], v.sum() * DENSE)[0],
    "jagged_dense_bmm": lambda v: fbgemm.jagged_dense_bmm(v, OFFSETS, v.sum() * MATRICES, 4)[0],
    "jagged_jagged_bmm": lambda v: fbgemm.jagged_jagged_bmm(v, v.sin(), OFFSETS, 2),
    "batched_dense_vec_jagged_2d_mul": lambda v: fbgemm.batched_dense_vec_jagged_2d_mul(
        v.sum() * DENSE[:, :, 0], v, OFFSETS
    ),
    "jagged_softmax": lambda v: fbgemm.jagged_softmax(v, OFFSETS, 2)[0],
    "jagged_index_select": lambda v: fbgemm.jagged_index_select(v, LENGTHS, torch.tensor([2, 0, 2]))[0],
    "jagged_slice": lambda v: fbgemm.jagged_slice(v[:, 0].contiguous(), LENGTHS, torch.tensor([1, 0, 0]), 2)[0],
    "masked_select_jagged_1d": lambda v: fbgemm.masked_select_jagged_1d(
        v[:, 0].contiguous(), LENGTHS, torch.tensor([True, False, True, True, False])
    )[0],
    "segment_sum_csr": lambda v: fbgemm.segment_sum_csr(3, OFFSETS, v.reshape(-1)),
    "pack_segments": lambda v: fbgemm.pack_segments(v, LENGTHS, 2),
    "permute_2D_sparse_data": lambda v: fbgemm.permute_2D_sparse_data(
        torch.tensor([1, 0]), torch.tensor([[2], [3]]), torch.arange(5), v[:, 0].contiguous()
    )[2],
    "keyed_jagged_index_select_dim1": lambda v: fbgemm.keyed_jagged_index_select_dim1(
        v[:, 0].contiguous(), FLAT.diff(), FLAT, torch.tensor([1, 0]), 2, v[:, 1].contiguous()
    )[-1],
    "stacked_jagged_2d_to_dense": lambda v: fbgemm.stacked_jagged_2d_to_dense(v, torch.tensor([[2, 3]]), [0, 5], [3])[
        0
    ],
    "stacked_jagged_1d_to_dense": lambda v: fbgemm.stacked_jagged_1d_to_dense(
        v[:, 0].contiguous(), torch.tensor([[2, 3]]), [0, 5], [3], 0
    )[0],
}

TANGENT = torch.randn(5, 3, dtype=torch.float64, generator=generator)


def total(function: Function) -> Function:
    return lambda v: function(v).square().sum()


def differences(function: Function) -> torch.Tensor:
    """Return the derivative along the tangent."""
    step = 1e-6
    return (function(VALUES + step * TANGENT) - function(VALUES - step * TANGENT)) / (2 * step)


def close(one: torch.Tensor, other: torch.Tensor) -> None:
    torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_func_grad(name: str) -> None:
    gradient = torch.func.grad(total(FUNCTIONS[name]))
    close((gradient(VALUES) * TANGENT).sum(), differences(total(FUNCTIONS[name])))
    close(torch.func.grad(lambda v: (gradient(v) * TANGENT).sum())(VALUES), differences(gradient))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_forward_mode(name: str) -> None:
    function, want = FUNCTIONS[name], differences(FUNCTIONS[name])
    close(torch.func.jvp(function, (VALUES,), (TANGENT,))[1], want)
    with forward_ad.dual_level():
        made = forward_ad.unpack_dual(function(forward_ad.make_dual(VALUES, TANGENT)))
    assert made.tangent is not None
    close(made.tangent, want)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_vmap(name: str) -> None:
    lines = torch.stack([VALUES, 2 * VALUES, TANGENT])
    function = FUNCTIONS[name]
    close(torch.func.vmap(function)(lines), torch.stack([function(line) for line in lines]))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_of_a_plain_call_follow_tangents_and_lines(name: str) -> None:
    """The call runs outside of the transform; its gradient gets a dual tensor, or one line of several."""
    leaf = VALUES.clone().requires_grad_()
    out = FUNCTIONS[name](leaf)
    lines = torch.stack([torch.randn(out.shape, dtype=out.dtype, generator=generator) for _ in range(2)])

    def back(given: torch.Tensor) -> torch.Tensor:
        return torch.autograd.grad(out, [leaf], given, retain_graph=True)[0]

    with forward_ad.dual_level():
        made = forward_ad.unpack_dual(back(forward_ad.make_dual(*lines)))
    assert made.tangent is not None
    close(made.primal, back(lines[0]))
    close(made.tangent, back(lines[1]))
    close(torch.func.vmap(back)(lines), torch.stack([back(line) for line in lines]))


@pytest.mark.filterwarnings("ignore")  # torch warns about each C++ call that it cannot trace.
@pytest.mark.parametrize("name", FUNCTIONS)
def test_compile_with_sizes_that_vary(name: str) -> None:
    function = FUNCTIONS[name]
    torch.compiler.reset()
    close(torch.compile(function, backend="eager", dynamic=True)(VALUES), function(VALUES))
