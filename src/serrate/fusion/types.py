"""What an axis is for, and how its loop is run."""

from __future__ import annotations

from enum import Enum


class IterType(Enum):
    """What an axis does in its tensor."""

    Iteration = "i"
    Reduction = "r"  # walked to compute the tensor, not part of the result
    Broadcast = "b"  # of extent 1, stands for any


class ParallelType(Enum):
    """How the loop over an axis is run. On CUDA by blocks and threads, on the CPU by threads; `Simd` (CPU) and
    `Vectorize` (CUDA) are the lanes of one instruction; `DIDx` are the ranks of a team of processes; `Bulk` (CUDA) is a
    dimension of a box that the copy engine copies to shared memory."""

    Serial = "S"
    BIDx = "blockIdx.x"
    BIDy = "blockIdx.y"
    BIDz = "blockIdx.z"
    TIDx = "threadIdx.x"
    TIDy = "threadIdx.y"
    TIDz = "threadIdx.z"
    Vectorize = "V"
    Unroll = "U"
    Thread = "T"
    Simd = "L"
    DIDx = "D"
    Bulk = "B"

    @property
    def is_block(self) -> bool:
        return self.name.startswith("BID")

    @property
    def is_thread(self) -> bool:
        return self.name.startswith("TID")

    @property
    def is_lanes(self) -> bool:
        """Whether it stands for the lanes of one instruction, whose number must be a constant."""
        return self in (ParallelType.Vectorize, ParallelType.Simd)


class Memory(Enum):
    """Where a tensor or a buffer lives."""

    GLOBAL = "global"
    SHARED = "shared"  # of a block; a stack buffer of the thread on the CPU
    REGISTER = "register"  # of a thread
    SCRATCH = "scratch"  # of a thread, as large as is known only when the kernel runs
