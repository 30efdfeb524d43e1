"""Running lowered kernels in tests: through the checking interpreter, against `evaluate`."""

from __future__ import annotations

import numpy as np
import torch

from serrate.fusion.binding import bind, compute_offsets
from serrate.fusion.element_lists import ElementList, coordinates_of
from serrate.fusion.reference import in_memory
from serrate.fusion.strides import span
from serrate.kernel import Lowered
from serrate.kernel.check import run
from serrate.kernel.parameters import faults

NVCC = ["nvcc", "-cubin", "-arch=sm_90", "-std=c++17", "-Xcicc", "-O0", "-Xptxas", "-O0"]
"""Compiles CUDA sources without optimizing them, which takes half the time: whether they compile is the question."""

EPS = {
    torch.float16: 2**-10, torch.bfloat16: 2**-7, torch.float32: 2**-23, torch.float64: 2**-52,
    torch.complex64: 2**-23, torch.complex128: 2**-52,
}  # fmt: skip


def as_numpy(tensor: torch.Tensor) -> np.ndarray:
    """The memory of a tensor, from its first element to its last."""
    flat = tensor.as_strided((span(tensor),), (1,))
    return (flat.float() if tensor.dtype == torch.bfloat16 else flat).numpy()


def valid_positions(lowered: Lowered, inputs: list[torch.Tensor]) -> dict[str, np.ndarray]:
    """Where each output has elements; the others are holes."""
    run_ = bind(lowered.fusion, inputs)
    for tensor, given in zip(lowered.fusion.inputs, inputs, strict=True):
        run_.arrays.setdefault(tensor.name, given)
    compute_offsets(lowered.fusion, run_)
    found = {}
    for tensor in lowered.fusion.outputs:
        coordinates = coordinates_of(run_, tensor.domain.kept)
        elements = ElementList(coordinates, torch.ones(len(coordinates)))
        found[tensor.name] = in_memory(run_, tensor, elements)[1].reshape(-1).numpy()
    return found


def check(lowered: Lowered, inputs: list[torch.Tensor], seed: int = 0) -> None:
    """The kernel in the checking interpreter: no violation, and what `evaluate` says."""
    try:
        made, sizes = lowered.arguments(inputs)
    except IndexError:  # of places, which are found before the kernel runs
        assert is_refused(lowered, inputs, faulted=True)
        return
    written = {buffer.name for buffer in lowered.kernel.buffers if buffer.written}
    outputs = {tensor.name for tensor in lowered.fusion.outputs}
    arrays = {name: as_numpy(t) for name, t in made.items() if name not in written & outputs}
    fill = {t.name: t.fill for t in lowered.fusion.outputs if t.fill is not None}
    results = run(lowered.kernel, arrays, sizes, valid=valid_positions(lowered, inputs), fill=fill, seed=seed)
    if is_refused(lowered, inputs, any(results[name][0] for name in faults(lowered.kernel.body))):
        return
    compare(lowered, inputs, {n: torch.from_numpy(np.array(r)) for n, r in results.items()})


def agree(lowered: Lowered, *inputs: torch.Tensor) -> None:
    """The kernel in the checking interpreter and, for the CPU, compiled."""
    check(lowered, list(inputs))
    if lowered.target.name == "cpp":
        results = dict(zip((t.name for t in lowered.fusion.outputs), lowered(*inputs), strict=True))
        compare(lowered, list(inputs), results)


def is_refused(lowered: Lowered, inputs: list[torch.Tensor], faulted: bool) -> bool:
    """Whether `evaluate` finds an index out of range. So must the kernel, unless no output reads the index."""
    tensors = lowered.fusion.tensors
    kinds = {tensor.definition.kind for tensor in tensors if tensor.definition is not None}
    names = {tensor.definition.name for tensor in tensors if tensor.definition is not None}
    if not names & {"gather", "order_of_indices"}:
        assert not faulted
        return False
    try:
        lowered.fusion.evaluate(*inputs)
        refused = False
    except IndexError:
        refused = True
    unread = bool(kinds & {"resize", "select", "pad_rows"} or "expand" in names)  # which may leave nothing
    assert refused == faulted or (refused and unread), f"reported: {faulted}, wrong: {refused}"
    return refused


def compare(lowered: Lowered, inputs: list[torch.Tensor], results: dict[str, torch.Tensor]) -> None:
    """Every element of every output against `evaluate`."""
    valid = valid_positions(lowered, inputs)
    for tensor, expected in zip(lowered.fusion.outputs, lowered.fusion.evaluate(*inputs), strict=True):
        where = torch.from_numpy(valid[tensor.name])
        got, want = results[tensor.name].reshape(-1)[where], expected.reshape(-1)[where]
        # Sums of a few hundred terms of magnitude 1, computed in another order.
        tolerance = 400 * EPS.get(expected.dtype, 0)
        if want.is_complex():
            near = torch.isclose(*(x.to(torch.complex128) for x in (got, want)), rtol=tolerance, atol=tolerance)
            # Which part of a quotient by 0 is NaN and which is infinite differs between C and torch.
            same = near | (~want.isfinite() & ~got.isfinite())
        elif want.is_floating_point():
            same = torch.isclose(got.double(), want.double(), rtol=tolerance, atol=tolerance, equal_nan=True)
        else:
            same = got.to(want.dtype) == want
        wrong = (~same).nonzero()[:, 0].tolist()
        first = ", ".join(f"{got[at].item()} instead of {want[at].item()} at {at}" for at in wrong[:5])
        assert not wrong, f"{tensor.name}: {len(wrong)} of {len(want)} elements are wrong: {first}"
