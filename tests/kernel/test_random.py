"""Random fusions under random schedules: every accepted kernel computes what `evaluate` says and breaks no rule of the
checking interpreter; every refusal names an axis.

A few hundred for each target are drawn by default. With the slow tests they are more than 5,000 in the interpreter,
2,500 compiled, 300 of them by a compiler that checks addresses and arithmetic, and 400 sources for CUDA.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.kernel.harness import NVCC, check
from tests.kernel.random_cases import accepted, expect_axis, lowered_or_refused, run_compiled
from tests.kernel.random_schedules import draw

from serrate.errors import ScheduleError
from serrate.kernel import states
from serrate.kernel.source import complex_functions, prelude
from serrate.runtime.toolchain import compiler

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = 5 * settings().max_examples  # of each target; 300 by default
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
each_target = pytest.mark.parametrize("target", ["cpp", "cuda"])


def seeds(default: int, slow: int) -> pytest.MarkDecorator:
    """So many seeds that are always tried, and so many more."""
    more = [pytest.param(seed, marks=pytest.mark.slow) for seed in range(default, default + slow)]
    return pytest.mark.parametrize("seed", [*range(default), *more])


@pytest.fixture(autouse=True)
def short_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums by blocks so short that small tensors have several."""
    monkeypatch.setattr(states, "BLOCK", 3)


def try_one(random: Random, target: str) -> str:
    """Whether a random case was accepted and is right, or refused."""
    case = draw(random, target)
    lowered = None
    try:
        lowered = lowered_or_refused(case, random)
        if lowered is None:
            return "refused"
        check(lowered, case.program.inputs, seed=random.randrange(1000))
        return "accepted"
    except ScheduleError as error:  # what is divisible is known only now
        expect_axis(str(error))
        return "refused"
    except Exception as error:
        error.add_note(f"{case}\n{lowered and lowered.kernel}")
        raise


@each_target
def test_in_the_interpreter(target: str) -> None:
    """Drawn by hypothesis, which shrinks what fails."""
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
        counts[try_one(random, target)] += 1

    one()
    # A GPU refuses more: states and kept values have a constant number of elements there.
    assert counts["accepted"] >= {"cpp": 0.5, "cuda": 0.3}[target] * counts.total()


@pytest.mark.slow
@pytest.mark.parametrize("piece", range(6))
@each_target
def test_many_in_the_interpreter(target: str, piece: int) -> None:
    """500 accepted cases in each piece, each of a seed of its own."""
    accepted, seed = 0, piece * 1_000_000
    while accepted < 500:
        try:
            accepted += try_one(Random(seed), target) == "accepted"
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
        seed += 1


@seeds(default=3, slow=22)
def test_compiled(seed: int) -> None:
    # Optimized little: the sources are many, and what they mean is the same.
    run_compiled(accepted("cpp", 100, seed), flags=("-O1",))


def asan() -> str | None:
    """The library that checks addresses, which must be loaded before all others; None where there is none."""
    done = subprocess.run([*compiler(), "-print-file-name=libasan.so"], capture_output=True, text=True, check=False)
    path = done.stdout.strip()
    return path if done.returncode == 0 and Path(path).is_absolute() else None


def run_sanitized(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A program in a process in which addresses are checked."""
    library = asan()
    if library is None:
        pytest.skip("the compiler has no library that checks addresses")
    environment = os.environ | {
        "LD_PRELOAD": library,
        "ASAN_OPTIONS": "detect_leaks=0",  # what Python itself never frees
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]),
    }
    command = [sys.executable, *program.split(), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=environment)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 103))
def test_sanitized(seed: int) -> None:
    """No address outside of a tensor or of what a kernel allocates, and no undefined arithmetic."""
    done = run_sanitized("-m tests.kernel.sanitized", str(seed), "100", *SANITIZERS)
    assert done.returncode == 0, done.stdout + done.stderr[-10000:]
    assert done.stdout.endswith("100 kernels\n")


@pytest.mark.slow
@pytest.mark.parametrize("mistake", ["address", "arithmetic"])
def test_a_mistake_is_found_by_sanitizers(mistake: str) -> None:
    done = run_sanitized("-m tests.kernel.sanitized", mistake, "1", *SANITIZERS)
    assert done.returncode != 0
    assert {"address": "heap-buffer-overflow", "arithmetic": "runtime error"}[mistake] in done.stderr


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
@seeds(default=1, slow=3)
def test_cuda_sources_compile(seed: int, tmp_path: Path) -> None:
    kernels = [lowered for _, lowered in accepted("cuda", 100, seed)]
    shared = [prelude("prelude.cuh"), *complex_functions(lowered.kernel for lowered in kernels)]
    sources = [lowered.source for lowered in kernels]
    for part in shared:
        sources = [source.replace(part, "") for source in sources]
    headers = "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n"
    path = tmp_path / "kernels.cu"
    path.write_text("\n".join([headers, *shared, *sources]))
    command = [*NVCC, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr + done.stdout
