"""Running lowered kernels in tests: through the checking interpreter, against `evaluate`."""

from __future__ import annotations

import numpy as np
import torch

from serrate.fusion.binding import bind, compute_offsets
from serrate.fusion.element_lists import ElementList, coordinates_of
from serrate.fusion.reference import in_memory
from serrate.kernel import Lowered
from serrate.kernel.check import run
from serrate.kernel.parameters import faults

EPS = {torch.float16: 2**-10, torch.bfloat16: 2**-7, torch.float32: 2**-23, torch.float64: 2**-52}


def as_numpy(tensor: torch.Tensor) -> np.ndarray:
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).reshape(-1).numpy()


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
    made, sizes = lowered.arguments(inputs)
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
    unread = {t for t in tensors if not any(u.definition is not None and t in u.definition.inputs for u in tensors)}
    if "gather" not in kinds:
        assert not faulted
        return False
    try:
        lowered.fusion.evaluate(*inputs)
        refused = False
    except IndexError:
        refused = True
    assert refused == faulted or (refused and (kinds & {"resize", "select"} or unread - {*lowered.fusion.outputs})), (
        f"reported: {faulted}, wrong: {refused}"
    )
    return refused


def compare(lowered: Lowered, inputs: list[torch.Tensor], results: dict[str, torch.Tensor]) -> None:
    """Every element of every output against `evaluate`."""
    valid = valid_positions(lowered, inputs)
    for tensor, expected in zip(lowered.fusion.outputs, lowered.fusion.evaluate(*inputs), strict=True):
        where = torch.from_numpy(valid[tensor.name])
        got, want = results[tensor.name].reshape(-1)[where], expected.reshape(-1)[where]
        if want.is_floating_point():
            # Sums of a few hundred terms of magnitude 1, computed in another order.
            tolerance = 400 * EPS[expected.dtype]
            assert torch.allclose(got.double(), want.double(), rtol=tolerance, atol=tolerance, equal_nan=True), (
                tensor.name, got, want,
            )  # fmt: skip
        else:
            assert torch.equal(got.to(want.dtype), want), (tensor.name, got, want)
