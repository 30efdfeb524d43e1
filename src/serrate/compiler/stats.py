"""What a compiled function did: traces, compilers, kernels, bytes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Stats:
    """What a compiled function did up to now.

    >>> import serrate as sr
    >>> double = sr.jit(lambda x: x * 2)
    >>> _ = double(sr.ragged([[1.0], []])), double(sr.ragged([[1.0, 2.0], [], [3.0]]))
    >>> double.stats.traces, double.stats.kernels, double.stats.library_calls
    (1, 1, 0)
    """

    calls: int = 0
    """How often it was called."""
    traces: int = 0
    """How often the function itself ran to be traced."""
    compiles: int = 0
    """How often a compiler ran."""
    disk_hits: int = 0
    """How many compiled kernels were found on disk."""
    kernels: int = 0
    """How many kernels its programs have, those of the ways back among them."""
    library_calls: int = 0
    """How many library calls its programs have."""
    eager_calls: int = 0
    """How many calls ran eagerly."""
    bytes_moved: int = 0
    """The bytes that kernels read and wrote when each of them was launched first."""
    least_bytes: int = 0
    """The bytes that no kernels could have done without there: what they are given and give, each once."""
