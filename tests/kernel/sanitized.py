"""Random kernels compiled with sanitizers and run: `python -m tests.kernel.sanitized SEED COUNT FLAGS...`.

The process needs the library of the address sanitizer preloaded, so that the memory of tensors is watched too. Instead
of a seed, "address" or "arithmetic" names a mistake, which a kernel written by hand then makes.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import torch
from tests.kernel.random_cases import accepted, run_compiled

from serrate.fusion.scalar import load, symbol
from serrate.kernel import cpp, states
from serrate.kernel.ir import Buffer, For, Kernel, Store
from serrate.kernel.signatures import signature
from serrate.runtime.compiler import compile


def run_wrong(mistake: str, flags: Sequence[str]) -> None:
    """A copy of 5 elements that reads a sixth, or that divides its index by 0."""
    n, d, shift, i = map(symbol, ("n", "d", "shift", "i"))
    x, y = Buffer("x", "float32", n), Buffer("y", "float32", n, written=True)
    copy = For(i, n, (Store("y", i, load("x", i // d + shift, "float32")),), "position")
    kernel = Kernel("copy", (x, y), (n, d, shift), (copy,))
    call = compile(cpp.source([kernel]), flags=flags).function(signature(kernel))
    divisor, moved = (1, 1) if mistake == "address" else (0, 0)
    call(torch.ones(5), torch.ones(5), 5, divisor, moved)


def main(what: str, count: str, *flags: str) -> None:
    """Run them, and say how many."""
    torch.set_num_threads(1)
    states.BLOCK = 3  # so short that small tensors have several
    options = ("-O1", *flags)
    if what.isdigit():
        run_compiled(accepted("cpp", int(count), int(what)), options)
    else:
        run_wrong(what, options)
    print(f"{count} kernels")


if __name__ == "__main__":
    main(*sys.argv[1:])
