"""Memory that kernels ask for while they run, and what happens when there is none."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from tests.runtime.harness import SOURCE, run_program

from serrate.fusion.scalar import Scalar, const, less, load, symbol
from serrate.fusion.types import ParallelType
from serrate.kernel import cpp
from serrate.kernel.ir import Allocate, Buffer, For, If, Kernel, Memory, Statement, Store
from serrate.kernel.signatures import signature
from serrate.runtime.compiler import compile

n, k, m, i, j, c = map(symbol, ("n", "k", "m", "i", "j", "c"))
# More elements than there are addresses, then numbers of which the bytes, as a number of 64 bits, are few.
TOO_MANY = [2**58, 2**61, 2**62, 2**63 - 1, -1]


def reversed_row(row: Scalar, wanted: Scalar) -> tuple[Statement, ...]:
    """y[row] = x[row] backwards, by way of memory of which `wanted` elements are asked for."""
    return (
        Allocate(Buffer("kept", "float32", wanted, Memory.SCRATCH)),
        For(i, n, (Store("kept", i, load("x", row * n + i, "float32")),), "position"),
        For(j, n, (Store("y", row * n + j, load("kept", n - 1 - j, "float32")),), "position"),
    )


def by_rows(parallel: ParallelType, guarded: bool = False) -> Kernel:
    wanted = Buffer("wanted", "int64", k)
    x, y = Buffer("x", "float32", k * n), Buffer("y", "float32", k * n, written=True)
    body = reversed_row(c, load("wanted", c, "int64"))
    body = (If(less(const(0), n), body),) if guarded else body
    return Kernel("reverse_rows", (x, wanted, y), (k, n), (For(c, k, body, "row", parallel),))


def whole() -> Kernel:
    x, y = Buffer("x", "float32", n), Buffer("y", "float32", n, written=True)
    return Kernel("reverse", (x, y), (n, m), reversed_row(const(0), m))


@pytest.mark.parametrize("too_many", TOO_MANY)
def test_outside_loops(too_many: int) -> None:
    run = compile(cpp.source([whole()])).function(signature(whole()))
    x, y = torch.arange(7.0), torch.zeros(7)
    for _ in range(2):
        with pytest.raises(MemoryError, match="reverse: no memory"):
            run(x, y, 7, too_many)
        assert y.eq(0).all()
    run(x, y, 7, 7)
    assert torch.equal(y, x.flip(0))


@pytest.mark.parametrize("guarded", [False, True])
@pytest.mark.parametrize("parallel", [ParallelType.Thread, ParallelType.Serial])
def test_rows_that_ask_for_too_much(parallel: ParallelType, guarded: bool) -> None:
    kernel = by_rows(parallel, guarded)
    run = compile(cpp.source([kernel])).function(signature(kernel))
    x, y = torch.randn(300, 5), torch.zeros(300, 5)
    wanted = torch.full([300], 5)
    wanted[::3] = 2**58
    with pytest.raises(MemoryError, match="reverse_rows"):
        run(x, wanted, y, 300, 5)
    there = wanted == 5
    assert torch.equal(y[there], x[there].flip(1))
    assert y[~there].eq(0).all()
    run(x, torch.full([300], 5), y, 300, 5)
    assert torch.equal(y, x.flip(1))


def test_no_elements_are_not_too_many() -> None:
    """A thread that has asked for nothing yet gets memory of no elements, and goes on."""
    y = symbol("y")
    kernel = Kernel(
        "nothing",
        (Buffer("y", "float32", const(1), written=True),),
        (m,),
        (
            Allocate(Buffer("kept", "float32", m, Memory.SCRATCH)),
            For(y, m, (Store("kept", y, const(0.0, "float32")),), "position"),
            Store("y", const(0), const(1.0, "float32")),
        ),
    )
    result = torch.zeros(1)
    with ThreadPoolExecutor(1) as fresh:
        fresh.submit(compile(cpp.source([kernel])).function(signature(kernel)), result, 0).result()
    assert result.item() == 1


def test_threads_learn_of_their_shortages() -> None:
    """Calls of several threads at once: whoever lacked memory raises."""
    kernel = by_rows(ParallelType.Serial)
    run = compile(cpp.source([kernel])).function(signature(kernel))

    def call(wanted: int) -> bool:
        x, y = torch.randn(20, 50), torch.zeros(20, 50)
        try:
            run(x, torch.full([20], wanted), y, 20, 50)
        except MemoryError:
            return True
        assert torch.equal(y, x.flip(1))
        return False

    with ThreadPoolExecutor(4) as threads:
        raised = list(threads.map(call, [50, 2**58] * 200))
    assert all(raised[1::2])


def test_kernels_without_scratch_have_no_count() -> None:
    def symbols(source: str) -> str:
        command = ["nm", "-D", compile(source).path]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert "shortages" in symbols(cpp.source([whole()]))
    assert "shortages" not in symbols(SOURCE)
    assert compile(SOURCE)._shortages() is None


def test_limited_memory() -> None:
    program = """
        import resource
        import torch
        from tests.kernel.golden_kernels import GOLDENS

        softmax = GOLDENS["softmax_by_component"]()
        rows = 2**18  # 64 MB
        x, y = torch.randn(rows + 3, 64), torch.zeros(rows + 3, 64)
        offsets = torch.tensor([0, 3, 3, rows + 3])
        small = torch.tensor([0, 3, 3])
        inputs = {"x": x, "offsets": offsets}
        given = [inputs[tensor.name] for tensor in softmax.fusion.inputs]
        short = [{"x": x[:3], "offsets": small}[tensor.name] for tensor in softmax.fusion.inputs]
        softmax(*short)  # threads are there before memory is short

        pages = int(open("/proc/self/statm").read().split()[0])
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        # Room for what the test itself computes, and not for the 64 MB that the kernel keeps.
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 2**25, hard))
        try:
            softmax(*given, out=y)
        except MemoryError as error:
            assert "softmax_by_component" in str(error), error
        else:
            raise AssertionError("no error")
        assert y[3:].eq(0).all()
        assert torch.allclose(softmax(*short)[0], x[:3].softmax(0), atol=1e-6)

        resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
        softmax(*given, out=y)
        assert torch.allclose(y[3:], x[3:].softmax(0), rtol=1e-4)
        """
    run_program(program, OMP_NUM_THREADS="2")
