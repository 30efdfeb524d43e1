"""Targets: what a kernel can be made for, one record each. A new target is a new entry of TARGETS.

A record says what the target can run, how its kernels are written, and how they are compiled and called. Lowering and
calling read its fields and never ask for its name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from serrate.errors import ScheduleError
from serrate.fusion.types import ParallelType
from serrate.fusion.view import TensorView
from serrate.kernel import cpp, cuda
from serrate.kernel.ir import BlockReduce, GridReduce, Kernel
from serrate.kernel.signatures import signature
from serrate.runtime.signature import Compiled


@dataclass(frozen=True)
class BoxLimits:
    """What a copy engine asks of a box that it copies."""

    dimensions: int
    """How many dimensions the tensor has at most."""
    extent: int
    """How many elements a box has at most along each of them."""
    bytes: int
    """What the bytes between neighbours are a multiple of, along all dimensions but the last, and what the bytes of a
    box along the last."""


@dataclass(frozen=True)
class Limits:
    """How much of what a target has at most. A schedule that asks for more is refused, and the limit is named."""

    threads_per_block: int
    block: tuple[int, int, int]
    """Threads of a block along x, y and z."""
    grid: tuple[int, int, int]
    """Blocks of a launch along x, y and z."""
    shared_bytes: int
    """Memory that the threads of a block share."""
    kept_bytes: int
    """Memory for one value that each thread keeps, in registers or on the stack."""
    box: BoxLimits | None = None
    """Of what a copy engine copies; None if there is none."""


@dataclass(frozen=True)
class Target:
    """What a kernel is made for."""

    name: str
    """The name that `lower` takes."""
    device: str
    """The type of the devices that its tensors lie on, as torch calls it."""
    parallel_types: frozenset[ParallelType]
    """How loops can be run."""
    lanes: ParallelType
    """Which of these types stands for the lanes of one instruction."""
    state_loops: ParallelType
    """How the loops over the state of a reduction are run, which has a constant number of elements."""
    limits: Limits
    """How much there is of what a schedule asks for."""
    scratch: bool
    """Whether a thread has memory for more than that, and for as much as is known only when the kernel runs."""
    prefetch: bool
    """Whether the kernel fetches early what it will read soon."""
    narrow_indices: bool
    """Whether indices of 32 bits are faster, so that a variant with these is called where they suffice."""
    wide_accesses: bool
    """Whether lanes load and store adjacent elements at once, so that a variant that does is called where the buffers
    are aligned."""
    reduction_bytes: Callable[[Kernel, BlockReduce | GridReduce], int]
    """How much of a block's shared memory a reduction takes."""
    source: Callable[[Kernel], str]
    """Prints the source of a kernel."""
    compile_together: Callable[[Sequence[Kernel]], tuple[Compiled, ...]]
    """Compiles kernels of different names by one run of the compiler."""

    def __reduce__(self) -> tuple[Callable[[str], Target], tuple[str]]:
        return _entry, (self.name,)

    def compile(self, kernel: Kernel) -> Compiled:
        """The compiled kernel, a function that takes the buffers and then the sizes, and launches the kernel."""
        return self.compile_together([kernel])[0]


def _cpp_source(kernel: Kernel) -> str:
    return cpp.source([kernel])


def _compile_cpp(kernels: Sequence[Kernel]) -> tuple[Compiled, ...]:
    from serrate.runtime import compiler

    library = compiler.compile(cpp.source(kernels))
    return tuple(library.function(signature(kernel)) for kernel in kernels)


def _compile_cuda(kernels: Sequence[Kernel]) -> tuple[Compiled, ...]:
    from serrate.runtime import cuda_compiler  # needs cuda.core, which only machines with a GPU have

    text = cuda.source(*kernels)
    return tuple(cuda_compiler.compile(text, signature(kernel)) for kernel in kernels)


_EVERYWHERE = frozenset({ParallelType.Serial, ParallelType.Unroll, ParallelType.DIDx})

CPP = Target(
    name="cpp",
    device="cpu",
    parallel_types=_EVERYWHERE | {ParallelType.Thread, ParallelType.Simd},
    lanes=ParallelType.Simd,
    state_loops=ParallelType.Simd,
    limits=Limits(threads_per_block=1, block=(1, 1, 1), grid=(1, 1, 1), shared_bytes=2**20, kept_bytes=2**14),
    scratch=True,
    prefetch=True,
    narrow_indices=False,
    wide_accesses=False,
    reduction_bytes=lambda kernel, reduction: 0,  # there are none
    source=_cpp_source,
    compile_together=_compile_cpp,
)

CUDA = Target(
    name="cuda",
    device="cuda",
    parallel_types=_EVERYWHERE
    | {ParallelType.Vectorize}
    | {kind for kind in ParallelType if kind.is_block or kind.is_thread},
    lanes=ParallelType.Vectorize,
    state_loops=ParallelType.Unroll,
    limits=Limits(
        threads_per_block=cuda.THREADS_PER_BLOCK,
        block=(1024, 1024, 64),
        grid=(2**31 - 1, 65_535, 65_535),
        shared_bytes=48 * 1024,  # what every device has without being asked
        kept_bytes=2**14,
        box=BoxLimits(dimensions=5, extent=256, bytes=16),  # of the tensor memory accelerator, compute capability 9.0
    ),
    scratch=False,
    prefetch=False,
    narrow_indices=True,
    wide_accesses=True,
    reduction_bytes=cuda.reduction_bytes,
    source=cuda.source,
    compile_together=_compile_cuda,
)

TARGETS: dict[str, Target] = {target.name: target for target in (CPP, CUDA)}
"""All targets by their names."""


def _entry(name: str) -> Target:
    return TARGETS[name]


def target_named(name: str, reference: TensorView) -> Target:
    """The target of this name, for a kernel under the loops of a reference tensor."""
    if name not in TARGETS:
        known = " or ".join(map(repr, TARGETS))
        raise ScheduleError(f"{reference}: the target must be {known}, got {name!r}")
    return TARGETS[name]
