"""`sr.linalg` on ragged stacks, against torch on each matrix; torch's face, gradients, wrong calls."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import gradcheck, gradgradcheck

import serrate as sr
from serrate.errors import AxisError, DeviceMismatchError, RaggednessError

# ----------------------------------------------------------------------------------------------------------- ragged

LENGTHS = [2, 0, 3, 1]


def ragged(*features: int, dtype=torch.float64, shift: float = 4.0, seed: int = 0) -> sr.Tensor:
    """[4, r, *features], near a multiple of the identity."""
    made = torch.randn(6, *features, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    made = made + shift * torch.eye(*features[-2:], dtype=torch.float64)
    return sr.from_lengths((torch.complex(made, made.mT / 3) if dtype.is_complex else made).to(dtype), LENGTHS)


def symmetric(x: sr.Tensor) -> sr.Tensor:
    return x + sr.conj(x.mT) if x.is_complex() else x + x.mT


RAGGED = {
    "det": lambda x: x, "slogdet": lambda x: x, "inv": lambda x: x, "qr": lambda x: x, "svd": lambda x: x,
    "svdvals": lambda x: x, "pinv": lambda x: x, "matrix_rank": lambda x: x, "matrix_norm": lambda x: x,
    "cholesky": symmetric, "eigh": symmetric, "eigvalsh": symmetric, "diagonal": lambda x: x,
}  # fmt: skip
STRUCTURES = {
    "features": lambda x: x,
    "permuted": lambda x: x.permute_dims((0, 2, 1, 3, 4)),
    "a matrix axis stored before others": lambda x: (
        x.permute_dims((0, 1, 3, 4, 2)).contiguous().permute_dims((0, 4, 1, 2, 3))
    ),
    "transposed": lambda x: x.mT,
    "two levels": lambda x: sr.from_lengths(x.values, [[1, 0, 3], [2, 0, 3, 1]]),
    "int32 offsets": lambda x: sr.from_offsets(x.values, torch.tensor([0, 2, 2, 6], dtype=torch.int32)),
    "no rows": lambda x: sr.from_lengths(x.values[:0], []),
    "all rows empty": lambda x: sr.from_lengths(x.values[:0], [0, 0]),
}


def entries(x: sr.Tensor, own: int):
    """Every vector or matrix of the last axes, by its index."""
    if x.ndim == own:
        yield (), x.torch()
        return
    for i in range(len(x)):
        for index, found in entries(x[i], own):
            yield (i, *index), found


def parts(made):
    return made if isinstance(made, tuple) else (made,)


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("name", RAGGED)
def test_ragged_stacks_equal_torch_on_each_matrix(name, structure):
    for dtype in (torch.float64, torch.float32, torch.complex128):
        x = RAGGED[name](STRUCTURES[structure](ragged(3, 2, 2, dtype=dtype)))
        made = getattr(sr.linalg, name)(x)
        by_torch = getattr(torch.linalg, name)(x)
        for kind, part in enumerate(parts(made)):
            assert part.structure is x.structure
            own = part.ndim - (x.ndim - 2)
            found = dict(entries(part, own))
            for index, matrix in entries(x, 2):
                wanted = parts(getattr(torch.linalg, name)(matrix))[kind]
                torch.testing.assert_close(found.pop(index), wanted)
            assert not found
            torch.testing.assert_close(parts(by_torch)[kind].values, part.values)
            assert isinstance(parts(by_torch)[kind], sr.Tensor)
        assert getattr(by_torch, "_fields", None) == getattr(made, "_fields", None)


@pytest.mark.parametrize("structure", STRUCTURES)
def test_ragged_solutions_equal_torch_on_each_matrix(structure):
    x = STRUCTURES[structure](ragged(3, 2, 2))
    sides = STRUCTURES[structure](ragged(3, 2, 2, seed=1)) if structure != "transposed" else ragged(3, 2, 2, seed=1)
    for a, b in ((x, sides), (x, torch.ones(2).double()), (x, torch.ones(2, 3).double()), (ragged(2, 2)[0, 0], sides)):
        made = sr.linalg.solve(a, b)
        whole = next(each for each in (a, b) if each.ndim == x.ndim)
        assert made.structure is whole.structure
        matrices = dict(entries(a, 2)) if a.ndim == x.ndim else None
        right = dict(entries(b, 2)) if isinstance(b, sr.Tensor) else None
        found = dict(entries(made, 1 if b.ndim == 1 else 2))
        for index in dict(entries(whole, 2)):
            one = a.torch() if matrices is None else matrices[index]
            other = b if right is None else right[index]
            torch.testing.assert_close(found.pop(index), torch.linalg.solve(one, other))
        assert not found


def test_stacks_of_solve_stretch():
    x = ragged(2, 2)  # [4, r, 2, 2]
    per_row = torch.randn(4, 1, 2, 3, dtype=torch.float64)
    made = sr.linalg.solve(x, per_row)
    assert made.structure is x.structure
    inner = sr.from_lengths(ragged(2, 2, seed=2).values, [[1, 0, 2, 1], [3, 1, 0, 2]])  # [4, r, s, 2, 2]
    outer = sr.from_offsets(ragged(2, 2, seed=3).values[:4], inner.partitions[0])[:, :, None]  # [4, r, 1, 2, 2]
    both = sr.linalg.solve(outer, inner)
    assert both.partitions[1] is inner.partitions[1]
    for b in range(4):
        for i in range(LENGTHS[b]):
            torch.testing.assert_close(made[b, i].torch(), torch.linalg.solve(x[b, i].torch(), per_row[b, 0]))
        for i, row in enumerate(inner[b].rows()):
            torch.testing.assert_close(both[b, i].torch(), torch.linalg.solve(outer[b, i].torch(), row.torch()))


def test_one_matrix_is_factorized_once_for_all_rows(monkeypatch):
    seen = []
    real = torch.linalg.solve_ex
    monkeypatch.setattr(torch.linalg, "solve_ex", lambda a, b: seen.append(a.shape) or real(a, b))
    sr.linalg.solve(torch.eye(2).double(), ragged(2, 2))
    assert seen == [(2, 2)]


def test_other_functions_on_ragged_stacks():
    x, y = ragged(3, 3), ragged(3, 3, seed=1)
    for name, options in (("trace", {}), ("trace", {"offset": 1}), ("diagonal", {"offset": -1})):
        made = getattr(sr.linalg, name)(x, **options)
        assert made.structure is x.structure
        for (_, got), (_, matrix) in zip(entries(made, made.ndim - 2), entries(x, 2), strict=True):
            diagonal = torch.diagonal(matrix, options.get("offset", 0))
            torch.testing.assert_close(got, diagonal.sum() if name == "trace" else diagonal)
    made = sr.linalg.cross(x, y, axis=-2)
    assert made.structure is x.structure
    torch.testing.assert_close(made.values, torch.linalg.cross(x.values, y.values, dim=1))
    torch.testing.assert_close(
        sr.linalg.cross(x, torch.ones(4, 1, 1, 3).double()).values,
        torch.linalg.cross(x.values, torch.ones(6, 3, 3).double()),
    )
    for n in (3, 0, -2):
        torch.testing.assert_close(sr.linalg.matrix_power(x, n).values, torch.linalg.matrix_power(x.values, n))
    torch.testing.assert_close(
        sr.linalg.matrix_norm(x, ord="nuc", keepdims=True).values,
        torch.linalg.matrix_norm(x.values, "nuc", keepdim=True),
    )
    rows = sr.linalg.vector_norm(x, axis=(1, 2), ord=3)
    for b in range(4):
        torch.testing.assert_close(rows[b].torch(), torch.linalg.vector_norm(x[b].torch(), 3, dim=(0, 1)))


def test_tolerances_of_ragged_stacks():
    x = sr.from_lengths(torch.diag(torch.tensor([4.0, 2.0, 1.0])).expand(3, 3, 3), [2, 0, 1])
    rtol = sr.ragged([[0.1, 0.3], [], [0.6]])
    rtol = sr.from_offsets(rtol.values, x.partitions[0])
    assert sr.linalg.matrix_rank(x, rtol=rtol).tolist() == [[3, 2], [], [1]]
    assert sr.linalg.matrix_rank(x, rtol=torch.tensor([[0.3], [0.0], [0.6]])).tolist() == [[2, 2], [], [1]]
    made = sr.linalg.diagonal(sr.linalg.pinv(x, rtol=rtol))
    assert made.tolist() == [[[0.25, 0.5, 1.0], [0.25, 0.5, 0.0]], [], [[0.25, 0.0, 0.0]]]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_types_compute_in_float32(dtype):
    x = ragged(2, 2, dtype=dtype)
    assert sr.linalg.det(x).dtype == dtype
    torch.testing.assert_close(sr.linalg.inv(x).values, torch.linalg.inv(x.values.float()).to(dtype))
    torch.testing.assert_close(sr.linalg.svd(x).S.values, torch.linalg.svdvals(x.values.float()).to(dtype))
    close = torch.tensor([[1.0, 0.0], [0.0, 1e-3]])  # the noise of a half matrix is no rank
    assert sr.linalg.matrix_rank(close.to(dtype)).tolist() == 1
    assert sr.linalg.matrix_rank(close).tolist() == 2


def test_a_nan_stays_in_its_matrix():
    x = ragged(2, 2)
    values = x.values.clone()
    values[2] = float("nan")
    bad = x._with(values)
    for name in ("det", "inv", "qr", "slogdet", "matrix_norm", "trace"):
        for got, want in zip(parts(getattr(sr.linalg, name)(bad)), parts(getattr(sr.linalg, name)(x)), strict=True):
            keep = [0, 1, 3, 4, 5]
            torch.testing.assert_close(got.values[keep], want.values[keep])
    with pytest.raises(torch.linalg.LinAlgError):
        sr.linalg.svd(bad)


@pytest.mark.parametrize("undefined", [float("nan"), 0.0])
@pytest.mark.parametrize("name", ["det", "inv", "cholesky", "svd", "eigh", "qr", "pinv", "matrix_rank", "solve"])
def test_rows_past_the_last_offset_play_no_part(name, undefined):
    exact = symmetric(ragged(2, 2, shift=0)) + 9 * torch.eye(2) + 5 if name == "solve" else symmetric(ragged(2, 2))
    spare = sr.testing.device_born(exact, spare=3)
    found = []
    for x in (exact, spare):
        packed = x.values.detach().clone()
        packed[6:] = undefined
        weight = torch.eye(2, dtype=torch.float64, requires_grad=True)
        given_ = x._with(packed.requires_grad_())
        made = sr.linalg.solve(weight, given_) if name == "solve" else getattr(sr.linalg, name)(given_)
        first = parts(made)[0]
        found.append([first.values[:6]])
        if first.is_floating_point():
            steep = sr.log(first) if name == "solve" else first  # a slope that is infinite at 0
            sr.sum(sr.where(sr.isfinite(steep), steep, 0)).backward()
            found[-1] += [packed.grad[:6], weight.grad]
    for got, want in zip(found[1], found[0], strict=True):
        torch.testing.assert_close(got, want)


# -------------------------------------------------------------------------------------------------------- torch's face


def test_torch_functions_have_torchs_defaults_and_options():
    x = symmetric(ragged(3, 3))
    dense = sr.Tensor(x.values)
    for given_ in (x, dense):
        raw = given_.values
        same_values(torch.linalg.eigh(given_, "U").eigenvalues, torch.linalg.eigh(raw, "U").eigenvalues)
        same_values(torch.linalg.svd(given_, full_matrices=False).Vh, torch.linalg.svd(raw, full_matrices=False).Vh)
        same_values(torch.linalg.pinv(given_, hermitian=True), torch.linalg.pinv(raw, hermitian=True))
        same_values(
            torch.linalg.matrix_rank(given_, atol=5.0, rtol=0.0), torch.linalg.matrix_rank(raw, atol=5.0, rtol=0.0)
        )
        same_values(torch.linalg.cholesky(given_, upper=True), torch.linalg.cholesky(raw, upper=True))
        same_values(torch.linalg.matrix_power(given_, 2), raw @ raw)
        same_values(torch.inverse(given_), torch.inverse(raw))
        same_values(torch.det(given_), torch.det(raw))
        same_values(torch.linalg.qr(given_, "r").R, torch.linalg.qr(raw, "r").R)
        same_values(torch.linalg.solve(given_, raw[0], left=False), torch.linalg.solve(raw, raw[0], left=False))
        same_values(torch.linalg.matrix_norm(given_, 1, keepdim=True), torch.linalg.matrix_norm(raw, 1, keepdim=True))
        same_values(torch.linalg.cross(given_, given_[..., [2, 0, 1]]), torch.linalg.cross(raw, raw[..., [2, 0, 1]]))
        same_values(torch.cross(given_, given_[..., [2, 0, 1]], dim=-1), torch.linalg.cross(raw, raw[..., [2, 0, 1]]))
        same_values(torch.diagonal(given_, 1, -2, -1), torch.diagonal(raw, 1, -2, -1))
        same_values(torch.linalg.diagonal(given_, offset=-1), torch.linalg.diagonal(raw, offset=-1))
    assert isinstance(torch.linalg.det(dense), torch.Tensor)
    assert isinstance(torch.linalg.svd(dense).U, torch.Tensor)
    vectors = sr.from_offsets(torch.ones(6, 3).double(), x.partitions[0])
    same_values(torch.linalg.solve(x, vectors), torch.linalg.solve(x.values, vectors.values))
    with pytest.raises(AxisError, match=r"axis 1 of shape .* is ragged"):  # the standard's: matrices [r, 3]
        sr.linalg.solve(x, vectors)
    assert x.det().tolist() == torch.det(x).tolist()
    assert isinstance(dense.det(), sr.Tensor)
    same_values(x.diagonal(0, 2, 3), torch.diagonal(x.values, 0, 1, 2))
    moved = torch.linalg.matrix_norm(sr.from_lengths(torch.ones(2, 3, 4, 5), [2, 0]), dim=(2, 4), keepdim=True)
    assert moved.shape == (2, sr.Ragged([2, 0]), 1, 4, 1)
    same_values(torch.linalg.vector_norm(x, 3, (2, 3)), torch.linalg.vector_norm(x.values, 3, (1, 2)))
    for call in (torch.linalg.det, torch.linalg.inv, torch.linalg.cholesky, torch.linalg.matrix_norm):
        with pytest.raises(TypeError, match="out"):
            call(x, out=torch.ones(1))
    with pytest.raises(TypeError, match="needs dim"):
        torch.cross(x, x)


def same_values(got, want) -> None:
    torch.testing.assert_close(got if isinstance(got, torch.Tensor) else got.contiguous().values, want)


# ------------------------------------------------------------------------------------------------ gradients, errors


@pytest.mark.parametrize("name", ["det", "inv", "slogdet", "svdvals", "pinv", "qr", "matrix_norm", "trace", "diagonal"])
def test_derivatives_at_generic_matrices(name):
    x = ragged(2, 2)
    values = x.values.clone().requires_grad_()

    def run(v):
        return tuple(part.values for part in parts(getattr(sr.linalg, name)(x._with(v))))

    assert gradcheck(run, [values])
    assert gradgradcheck(run, [values])


def test_derivatives_of_solve():
    x, y = ragged(2, 2), ragged(2, 2, seed=4)
    for left, right in ((x, y), (x[0, 0], y), (x, y[0, 0])):
        leaves = [each.values.clone().requires_grad_() for each in (left, right)]

        def run(a, b, left=left, right=right):
            return sr.linalg.solve(left._with(a), right._with(b)).values

        assert gradcheck(run, leaves)
        assert gradgradcheck(run, leaves)


def test_empty_stacks_stay_in_the_graph():
    x = sr.from_lengths(torch.ones(0, 2, 2), [0, 0]).requires_grad_()
    for name in ("det", "inv", "svd", "qr", "eigh", "pinv", "matrix_norm", "trace", "diagonal"):
        sr.sum(parts(getattr(sr.linalg, name)(x))[0]).backward()
    y = torch.ones(3, 0, 2).requires_grad_()
    sr.sum(sr.linalg.matrix_norm(y, ord=-1)).backward()
    assert y.grad.shape == (3, 0, 2)


def test_what_is_wrong_is_said():
    x = ragged(2, 2)
    with pytest.raises(AxisError, match=r"det needs uniform axes, and axis 1 of shape .* is ragged"):
        sr.linalg.det(sr.ragged([[[1.0]], [[2.0]]], ragged_rank=1))
    with pytest.raises(AxisError, match=r"axis 3 of shape .* has ragged axes that depend on it"):
        sr.linalg.inv(x.permute_dims((1, 2, 3, 0)))
    with pytest.raises(torch.linalg.LinAlgError, match=r"inv: matrix 4 of the stack, as it is packed, is singular"):
        sr.linalg.inv(x._with(x.values * torch.tensor([1, 1, 1, 1, 0, 1]).view(-1, 1, 1)))
    with pytest.raises(torch.linalg.LinAlgError, match="inv: the matrix is singular"):
        sr.linalg.inv(torch.zeros(2, 2))
    with pytest.raises(torch.linalg.LinAlgError, match="matrix_power: the matrix is singular"):
        sr.linalg.matrix_power(torch.zeros(2, 2), -1)
    with pytest.raises(RaggednessError, match="different raggedness"):
        sr.linalg.solve(x, sr.from_lengths(x.values, [1, 1, 1, 3]))
    with pytest.raises(DeviceMismatchError):
        sr.linalg.solve(x, x.values.to("meta"))
    with pytest.raises(ValueError, match="do not broadcast"):
        sr.linalg.solve(torch.eye(2).expand(3, 2, 2), torch.ones(4, 2, 1))
    with pytest.raises(ValueError, match="does not broadcast"):
        sr.linalg.pinv(x, rtol=torch.ones(2, 4, 1))
    for name in ("det", "svd", "pinv", "matrix_rank", "vector_norm"):
        with pytest.raises(TypeError, match=r"needs floating-point elements, got torch.int32"):
            getattr(sr.linalg, name)(torch.ones(2, 2, dtype=torch.int32))
        with pytest.raises(TypeError, match=r"expected an sr.Tensor or a torch.Tensor, got ndarray"):
            getattr(sr.linalg, name)(np.ones((2, 2)))
    for axes in (-1, ((0, 0), (0, 0)), 3, ((5,), (0,))):
        with pytest.raises(ValueError, match=r"axes must|axis .* is out of range"):
            sr.linalg.tensordot(torch.ones(2, 2), torch.ones(2, 2), axes=axes)
    with pytest.raises(ValueError, match="the axes summed over do not go together"):
        sr.linalg.tensordot(torch.ones(2, 1), torch.ones(3, 4), axes=1)


@pytest.mark.parametrize("name", ["inv", "cholesky", "solve", "matrix_power"])
def test_under_vmap_and_without_elements(name):
    good = torch.eye(2).expand(3, 2, 2) * 4
    calls = {
        "inv": (sr.linalg.inv, torch.linalg.inv),
        "cholesky": (sr.linalg.cholesky, torch.linalg.cholesky),
        "solve": (lambda m: sr.linalg.solve(m, m[..., 0]), lambda m: torch.linalg.solve(m, m[..., 0])),
        "matrix_power": (lambda m: sr.linalg.matrix_power(m, -2), lambda m: torch.linalg.matrix_power(m, -2)),
    }
    ours, torchs = calls[name]
    made = torch.func.vmap(lambda m: ours(sr.asarray(m)).torch())(good)
    torch.testing.assert_close(made, torch.func.vmap(torchs)(good))
    with pytest.raises(torch.linalg.LinAlgError):
        torch.func.vmap(lambda m: ours(sr.asarray(m)).torch())(good * torch.tensor([1.0, 0.0, 1.0]).view(3, 1, 1))
    with FakeTensorMode():
        x = torch.eye(2)
        assert ours(sr.asarray(x)).shape == torchs(x).shape


def test_qr_of_torch_without_q():
    values = torch.randn(3, 3, 2, dtype=torch.float64)
    made = torch.linalg.qr(sr.from_lengths(values, [2, 0, 1]), mode="r")
    expected = torch.linalg.qr(values, mode="r")
    assert made.Q.shape == expected.Q.shape == (0,)
    assert made.R.shape == (3, sr.Ragged([2, 0, 1]), 2, 2)
    assert torch.equal(made.R.values, expected.R)
    dense = torch.linalg.qr(sr.asarray(values), mode="r")
    assert torch.equal(dense.R, expected.R)
    assert dense.Q.shape == (0,)
    for mode in ("reduced", "complete"):
        both = torch.linalg.qr(sr.from_lengths(values, [2, 0, 1]), mode)
        for part, whole in zip(both, torch.linalg.qr(values, mode), strict=True):
            assert torch.equal(part.values, whole)
