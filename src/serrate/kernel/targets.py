"""Targets: what a kernel can be made for, one record each. A new target is a new entry of TARGETS.

A record says what the target can run, how its kernels are written, and how they are compiled and called. Lowering and
calling read its fields and never ask for its name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from serrate.errors import ScheduleError
from serrate.fusion.types import ParallelType
from serrate.fusion.view import TensorView
from serrate.kernel import cpp, cuda
from serrate.kernel.ir import Kernel
from serrate.kernel.signatures import signature


@dataclass(frozen=True)
class Target:
    """What a kernel is made for."""

    name: str
    """The name that `lower` takes."""
    parallel_types: frozenset[ParallelType]
    """How loops can be run."""
    lanes: ParallelType
    """Which of these types stands for the lanes of one instruction."""
    state_loops: ParallelType
    """How the loops over the state of a reduction are run, which has a constant number of elements."""
    threads_per_block: int
    """How many threads a block has at most."""
    bytes_kept: int
    """How many bytes a value that each thread keeps may have, to be held in registers or on the stack."""
    scratch: bool
    """Whether a thread has memory for more than that, and for as much as is known only when the kernel runs."""
    prefetch: bool
    """Whether the kernel fetches early what it will read soon."""
    narrow_indices: bool
    """Whether indices of 32 bits are faster, so that a variant with these is called where they suffice."""
    wide_accesses: bool
    """Whether lanes load and store adjacent elements at once, so that a variant that does is called where the buffers
    are aligned."""
    source: Callable[[Kernel], str]
    """Prints the source of a kernel."""
    compile: Callable[[Kernel], Callable[..., None]]
    """Compiles a kernel. The function that it returns takes the buffers and then the sizes, and launches the kernel."""
    host_lengths: bool = False
    """Whether the host can read lengths that are data without waiting, and lay out memory by them."""


def _cpp_source(kernel: Kernel) -> str:
    return cpp.source([kernel])


def _compile_cpp(kernel: Kernel) -> Callable[..., None]:
    from serrate.runtime import compiler

    return compiler.compile(_cpp_source(kernel)).function(signature(kernel))


def _compile_cuda(kernel: Kernel) -> Callable[..., None]:
    from serrate.runtime import cuda_compiler  # needs cuda.core, which only machines with a GPU have

    return cuda_compiler.compile(cuda.source(kernel), signature(kernel), f"{kernel.launch}\n{kernel.sizes}")


_EVERYWHERE = frozenset({ParallelType.Serial, ParallelType.Unroll})

CPP = Target(
    name="cpp",
    parallel_types=_EVERYWHERE | {ParallelType.Thread, ParallelType.Simd},
    lanes=ParallelType.Simd,
    state_loops=ParallelType.Simd,
    threads_per_block=1,
    bytes_kept=2**14,
    scratch=True,
    prefetch=True,
    narrow_indices=False,
    wide_accesses=False,
    source=_cpp_source,
    compile=_compile_cpp,
    host_lengths=True,
)

CUDA = Target(
    name="cuda",
    parallel_types=_EVERYWHERE
    | {ParallelType.Vectorize}
    | {kind for kind in ParallelType if kind.is_block or kind.is_thread},
    lanes=ParallelType.Vectorize,
    state_loops=ParallelType.Unroll,
    threads_per_block=cuda.THREADS_PER_BLOCK,
    bytes_kept=2**14,
    scratch=False,
    prefetch=False,
    narrow_indices=True,
    wide_accesses=True,
    source=cuda.source,
    compile=_compile_cuda,
)

TARGETS: dict[str, Target] = {target.name: target for target in (CPP, CUDA)}
"""All targets by their names."""


def target_named(name: str, reference: TensorView) -> Target:
    """The target of this name, for a kernel under the loops of a reference tensor."""
    if name not in TARGETS:
        known = " or ".join(map(repr, TARGETS))
        raise ScheduleError(f"{reference}: the target must be {known}, got {name!r}")
    return TARGETS[name]
