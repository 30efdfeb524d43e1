"""Random fusions under random schedules: every accepted kernel computes what `evaluate` says and breaks no rule of the
checking interpreter; every refusal names an axis."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from random import Random

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st
from tests.kernel.harness import check, compare, is_refused
from tests.kernel.random_schedules import Case, draw, schedule

from serrate.errors import RaggednessError, ScheduleError
from serrate.kernel import Lowered, cpp, states
from serrate.kernel.signatures import signature
from serrate.kernel.source import complex_functions, prelude
from serrate.runtime.compiler import compile

EXAMPLES = 15 * settings().max_examples  # of each target; 900 by default
AXIS = re.compile(r"[irb](S|[VUTL]|blockIdx\.[xyz]|threadIdx\.[xyz])\w*\{")  # as an axis is printed


@pytest.fixture(autouse=True)
def short_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums by blocks so short that small tensors have several."""
    monkeypatch.setattr(states, "BLOCK", 3)


def expect_axis(message: str) -> None:
    assert AXIS.search(message), f"a refusal that names no axis: {message}"


def lowered_or_refused(case: Case, random: Random, name: str = "kernel") -> Lowered | None:
    """The kernel of a case that is now scheduled; None if the schedule was refused."""
    try:
        schedule(case, random)
        return case.lower(name)
    except (ScheduleError, RaggednessError) as error:
        expect_axis(str(error))
        return None


@pytest.mark.parametrize("target", ["cpp", "cuda"])
def test_in_the_interpreter(target: str) -> None:
    counts: Counter[str] = Counter()

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.reuse, Phase.generate, Phase.shrink],
        report_multiple_bugs=False,
    )
    @given(st.randoms(use_true_random=False))
    def one(random: Random) -> None:
        case = draw(random, target)
        lowered = lowered_or_refused(case, random)
        note(str(case))
        if lowered is None:
            counts["refused"] += 1
            return
        note(str(lowered.kernel))
        try:
            check(lowered, case.program.inputs, seed=random.randrange(1000))
            counts["accepted"] += 1
        except ScheduleError as error:  # what is divisible is known only now
            expect_axis(str(error))
            counts["refused"] += 1

    one()
    assert counts["accepted"] >= 0.5 * counts.total()


def accepted(target: str, count: int, seed: int) -> list[tuple[Case, Lowered]]:
    """So many cases whose schedules are accepted."""
    found: list[tuple[Case, Lowered]] = []
    random = Random(seed)
    while len(found) < count:
        case = draw(random, target)
        lowered = lowered_or_refused(case, random, f"kernel{len(found)}")
        if lowered is not None:
            found.append((case, lowered))
    return found


def run_compiled(case: Case, lowered: Lowered) -> None:
    """The compiled kernel against `evaluate`; where holes are filled, the whole memory."""
    inputs = case.program.inputs
    try:
        outputs = lowered(*inputs)
    except ScheduleError as error:
        expect_axis(str(error))
        return
    except IndexError:
        assert is_refused(lowered, inputs, faulted=True)
        return
    if is_refused(lowered, inputs, faulted=False):
        return
    names = [tensor.name for tensor in lowered.fusion.outputs]
    compare(lowered, inputs, dict(zip(names, outputs, strict=True)))
    for tensor, got, want in zip(lowered.fusion.outputs, outputs, lowered.fusion.evaluate(*inputs), strict=True):
        if tensor.fill is not None:
            wide = torch.complex128 if want.is_complex() else torch.float64
            assert torch.allclose(got.to(wide), want.to(wide), rtol=0.05, atol=0.05, equal_nan=True)


@pytest.mark.parametrize("seed", [*range(8), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(8, 40))])
def test_compiled(seed: int) -> None:
    cases = accepted("cpp", 100, seed)
    # Optimized little: the sources are many, and what they mean is the same.
    library = compile(cpp.source([lowered.kernel for _, lowered in cases]), flags=("-O1",))
    for case, lowered in cases:
        try:
            lowered._variants[False, False] = library.function(signature(lowered.kernel))  # one library for all
            run_compiled(case, lowered)
        except Exception as error:
            error.add_note(f"{case}\n{lowered.kernel}")
            raise


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
def test_cuda_sources_compile(tmp_path: Path) -> None:
    kernels = [lowered for _, lowered in accepted("cuda", 160, 0)]
    shared = [prelude("prelude.cuh"), *complex_functions(lowered.kernel for lowered in kernels)]
    assert len(shared) == 2, "no kernel has complex numbers"
    sources = [lowered.source.replace(shared[0], "").replace(shared[1], "") for lowered in kernels]
    headers = "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n"
    path = tmp_path / "kernels.cu"
    path.write_text("\n".join([headers, *shared, *sources]))
    command = ["nvcc", "-cubin", "-arch=sm_90", "-std=c++17", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr + done.stdout
