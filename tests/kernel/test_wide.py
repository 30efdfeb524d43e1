"""Wide accesses: where lanes load and store at once, where they must not, and for which addresses."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
import torch
from tests.kernel.harness import check
from tests.kernel.printed_kernels import N, buffer, f32

from serrate.errors import ScheduleError
from serrate.fusion import Fusion, ParallelType, TensorView, symbol
from serrate.fusion.binding import TORCH
from serrate.fusion.scalar import Scalar, compare, const, less, load, where
from serrate.kernel import Kernel, Lowered, cuda, lower
from serrate.kernel.ir import For, If, Let, Statement, Store, rewrite, walk
from serrate.kernel.lanes import Wide
from serrate.kernel.signatures import signature
from serrate.kernel.source import prelude
from serrate.kernel.wide import alignments, widened
from serrate.runtime.signature import Compiled

P = ParallelType
i, lane, v = map(symbol, ["i", "lane", "v"])
OFFSETS = torch.tensor([0, 3, 3, 7, 8])


def wide_accesses(kernel: Kernel) -> list[str]:
    """What is loaded and stored widely, in their order."""
    found = [statement for statement in walk(kernel.body) if isinstance(statement, Wide)]
    stores = [statement.body[0] for statement in found]
    assert all(isinstance(store, Store) for store in stores)
    return [
        f"{'store' if isinstance(store, Store) and store.buffer == copy.parameter else 'load'} {copy.parameter}"
        for store, copy in zip(stores, found, strict=True)
    ]


def checked(lowered: Lowered, inputs: list[torch.Tensor]) -> None:
    """The wide kernel computes what `evaluate` says, and every wide access begins at a multiple of its lanes: those
    that do not store out of bounds first, which the interpreter refuses."""

    def change(statement: Statement) -> tuple[Statement, ...]:
        if not isinstance(statement, Wide):
            return (statement,)
        dtype = next(b.dtype for b in lowered.kernel.buffers if b.written)
        written = next(b.name for b in lowered.kernel.buffers if b.written)
        trap = Store(written, const(10**9), const(0, dtype))
        return If(compare("not_equal", statement.base % statement.extent, 0), (trap,)), statement

    check(replace(lowered, kernel=replace(lowered.wide, body=rewrite(lowered.wide.body, change))), inputs)


def values(shape: list[int], dtype: str) -> torch.Tensor:
    made = torch.randn(shape, generator=torch.Generator().manual_seed(0)) * 4
    return made > 0 if dtype == "bool" else made.to(TORCH[dtype])


# Schedules: a fusion, its inputs, and what is wide


def flat(dtype: str = "float32", lanes: int = 4) -> tuple[Fusion, TensorView]:
    """x + x over one axis of a size that is known when called."""
    fusion = Fusion()
    x = fusion.input("x", ["n"], dtype)
    y = fusion.output(fusion.copy(x) if dtype == "bool" else x + x, "y").vectorize(0, lanes)
    return fusion, y.split(0, 8).parallelize(0, P.BIDx).parallelize(1, P.TIDx)


def rows(fusion: Fusion, width: int | str = 8) -> TensorView:
    return fusion.view_as_nested(fusion.input("x", ["n", width]), fusion.input("offsets", [symbol("k") + 1], "int64"))


def scaled(flat: bool, width: int = 8) -> Lowered:
    """x[c, r, d] · w[c, d], by component or over all values."""
    fusion = Fusion()
    x, w = rows(fusion, width), fusion.broadcast(fusion.input("w", ["k", width]), [False, True, False])
    y = fusion.output(x * w, "y")
    y = y.combine(0).merge(0).vectorize(0, 4) if flat else y.vectorize(2, 4)
    return lower(fusion, y.parallelize(0, P.BIDx), target="cuda")


def softmax(kept: bool) -> Lowered:
    fusion = Fusion()
    exponentials = fusion.unary("exp", fusion.input("x", ["n", 16]))
    y = fusion.output(exponentials / fusion.reduce("sum", exponentials, [1], keepdims=True), "y")
    if kept:
        exponentials.keep_in(y)
    y.vectorize(1, 4).split(1, 2).parallelize(0, P.BIDx).parallelize(2, P.TIDx)
    return lower(fusion, y, target="cuda")


def gathered() -> Lowered:
    fusion = Fusion()
    table, ids = fusion.input("table", ["entries", 8]), fusion.input("ids", ["n"], "int64")
    return lower(fusion, fusion.output(fusion.gather(table, ids), "y").vectorize(1, 4), target="cuda")


def padded() -> Lowered:
    """Three values before each row: what is loaded begins at no multiple, and some lanes load nothing."""
    fusion = Fusion()
    y = fusion.output(fusion.pad(fusion.input("x", ["n", 8]), 1, 3, 1), "y")
    return lower(fusion, y.vectorize(1, 4), target="cuda")


def dense() -> Lowered:
    """x[n, 6] · w[6] over all values."""
    fusion = Fusion()
    y = fusion.output(fusion.input("x", ["n", 6]) * fusion.input("w", [6]), "y").merge(0).vectorize(0, 4)
    return lower(fusion, y.parallelize(0, P.BIDx), target="cuda")


def merged(shape: list[int | str], random: Random | None = None) -> Lowered:
    """x + x over one axis that all axes are merged to, from the first one on or in a random order."""
    fusion = Fusion()
    x = fusion.input("x", shape)
    y = fusion.output(x + x, "y")
    while len(y.loop) > 1:
        y.merge(random.randrange(len(y.loop) - 1) if random else 0)
    return lower(fusion, y.vectorize(0, 4).parallelize(0, P.BIDx), target="cuda")


X, W = values([8, 8], "float32"), values([4, 8], "float32")
SCHEDULES: dict[str, tuple[Callable[[], Lowered], list[torch.Tensor], list[str]]] = {
    "flat": (lambda: lower(*flat(), target="cuda"), [values([24], "float32")], ["load x", "store y"]),
    "no elements": (lambda: lower(*flat(), target="cuda"), [values([0], "float32")], ["load x", "store y"]),
    "by component": (lambda: scaled(False), [X, OFFSETS, W], ["load x", "load w", "store y"]),
    "search": (lambda: scaled(True), [X, OFFSETS, W], ["load x", "load w", "store y"]),
    "two phases": (lambda: softmax(False), [values([5, 16], "float32")], ["load x", "load x", "store y"]),
    "kept": (lambda: softmax(True), [values([5, 16], "float32")], ["load x", "store y", "load y", "store y"]),
    "gather": (gathered, [W, torch.tensor([0, 3, 1, 1])], ["load table", "store y"]),
    "pad": (padded, [X], ["store y"]),
    # Rows of 6 are not multiples of 4, but all values together are adjacent.
    "odd rows": (dense, [X[:, :6], W[0, :6]], ["load x", "store y"]),
    "three axes": (lambda: merged(["n", 3, 6]), [values([2, 3, 6], "float32")], ["load x", "store y"]),
    "four axes": (lambda: merged(["n", 3, 5, 2]), [values([2, 3, 5, 2], "float32")], ["load x", "store y"]),
    "five axes": (lambda: merged([2, 3, 2, 3, 5]), [values([2, 3, 2, 3, 5], "float32")], ["load x", "store y"]),
    "no rows": (lambda: merged(["n", 3, 6]), [values([0, 3, 6], "float32")], ["load x", "store y"]),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules(name: str) -> None:
    make, inputs, wide = SCHEDULES[name]
    lowered = make()
    assert wide_accesses(lowered.wide) == wide
    checked(lowered, [given.contiguous() for given in inputs])


@pytest.mark.parametrize("seed", range(12))
def test_axes_merged_in_any_order(seed: int) -> None:
    random = Random(seed)
    inner = [random.randint(1, 5) for _ in range(random.randint(2, 4))]
    lowered = merged(["n", *inner], random)
    assert wide_accesses(lowered.wide) == ["load x", "store y"]
    checked(lowered, [values([4 * random.randint(0, 2), *inner], "float32")])


@pytest.mark.parametrize("lanes", [2, 4, 8, 16])
@pytest.mark.parametrize("dtype", ["bool", "uint8", "int16", "int64", "float16", "bfloat16", "float32", "float64"])
def test_dtypes(dtype: str, lanes: int) -> None:
    lowered = lower(*flat(dtype, lanes), target="cuda")
    size = min(16, lanes * TORCH[dtype].itemsize)
    assert lowered.alignments == {"x": size, "y": size}
    checked(lowered, [values([6 * lanes], dtype)])


def test_three_lanes_are_not_wide() -> None:
    assert lower(*flat("float32", 3), target="cuda").alignments == {}
    assert lower(*flat("float16", 6), target="cuda").alignments == {}


def test_symbolic_rows_are_wide_by_the_check_of_their_lanes() -> None:
    fusion = Fusion()
    y = fusion.output(fusion.unary("exp", fusion.input("x", ["n", "d"])), "y").vectorize(1, 4)
    lowered = lower(fusion, y, target="cuda")
    assert lowered.alignments == {"x": 16, "y": 16}
    assert alignments(widened(lowered.kernel)) == {}  # without the check
    checked(lowered, [values([3, 8], "float32")])
    with pytest.raises(ScheduleError, match="4 does not divide"):
        lowered.buffers([values([3, 6], "float32")])


# Kernels written by hand: x[8 i + lane] → y[8 i + lane], changed


def lanes(*body: Statement, extent: int = 4) -> Kernel:
    """For each i, a loop over lanes lane."""
    loop = For(i, N, (For(lane, const(extent), body, "lane", P.Vectorize),), "row")
    return Kernel("kernel", (buffer("x", N * 8), buffer("y", N * 8, written=True)), (N,), (loop,))


def copy(index: Scalar, value: Scalar | None = None, to: Scalar | None = None) -> Store:
    return Store("y", index if to is None else to, f32("x", index) if value is None else value)


at = i * 8 + lane
ONE = const(1.0, "float32")
BY_HAND: dict[str, tuple[Kernel, list[str]]] = {
    "copy": (lanes(copy(at)), ["load x", "store y"]),
    "by names": (lanes(Let(v, at), Let(symbol("w", "float32"), f32("x", v)), copy(v)), ["load x", "store y"]),
    "multiple of 4": (lanes(copy(at + 4)), ["load x", "store y"]),
    "remainder": (lanes(copy(i % 12 * 4 + lane)), ["load x", "store y"]),
    "indivisible stride": (lanes(copy(i * 6 + lane)), []),
    "indivisible start": (lanes(copy(at + 2)), []),
    "symbolic stride": (lanes(copy(i * N + lane)), []),
    "stride of a lane": (lanes(copy(i * 8 + lane * 2)), []),
    "backwards": (lanes(copy(i * 8 + 4 - lane)), []),
    "only the store": (lanes(copy(at, f32("x", at + 1))), ["store y"]),
    "guard for all": (lanes(If(less(at, N * 8), (copy(at),))), ["load x", "store y"]),
    "guard of rows": (lanes(If(less(i, N - 1), (copy(at),))), ["load x", "store y"]),
    "guard within": (lanes(If(less(at, N), (copy(at),))), []),
    "guard of a lane": (lanes(If(less(lane, const(2)), (copy(at),))), []),
    "guard of two": (lanes(copy(at), If(less(i, N), (copy(at),))), []),
    "load of some lanes": (lanes(copy(at, where(less(lane, 2), f32("x", at), ONE))), ["store y"]),
    "load of some rows": (lanes(copy(at, where(less(i, 2), f32("x", at), ONE))), ["load x", "store y"]),
    "in place": (lanes(copy(at, f32("y", at) + f32("x", at))), ["load y", "load x", "store y"]),
    "stored, then loaded": (lanes(copy(at), copy(at, f32("y", at) * f32("y", at))), ["load x", "store y"]),
    "stored elsewhere": (lanes(copy(at, f32("y", at + 4))), []),
    "stored nearby": (lanes(copy(at), copy(at + 4)), ["load x", "load x"]),
    "placed by data": (lanes(copy(load("x", i * 4) + lane)), []),
    "placed by a row": (lanes(copy(at, f32("x", load("x", i) * 4 + lane))), ["load x", "store y"]),
    "placed by what is stored": (lanes(copy(at, f32("x", load("y", i) * 4 + lane))), []),
    "guarded by what is stored": (lanes(copy(at, where(less(f32("y", i), ONE), f32("x", at), ONE))), []),
}  # fmt: skip


@pytest.mark.parametrize("name", BY_HAND)
def test_kernels_by_hand(name: str) -> None:
    kernel, wide = BY_HAND[name]
    assert wide_accesses(widened(kernel)) == wide
    if not wide:
        assert widened(kernel) == kernel


def test_the_guard_of_all_lanes_stands_before_the_access() -> None:
    kernel = widened(BY_HAND["guard for all"][0])
    (rows_,) = kernel.body
    assert isinstance(rows_, For)
    (guard,) = rows_.body
    assert isinstance(guard, If)
    assert guard.condition in (less(i * 8, N * 8), less(i, N))


def test_what_is_wide_stays_so() -> None:
    for kernel, _ in BY_HAND.values():
        assert widened(widened(kernel)) == widened(kernel)


def test_registers_have_names_of_their_own() -> None:
    loop = BY_HAND["copy"][0].body
    kernel = replace(BY_HAND["copy"][0], body=(Let(symbol("x_lanes"), N * 2), *loop, *loop))
    text = str(widened(kernel))
    assert len(set(re.findall(r"allocate register float32 (\w+)", text))) == 4
    assert "float32 x_lanes[" not in text


# Which variant is called


class At:
    """Memory of a tensor at an address."""

    def __init__(self, address: int) -> None:
        self.address = address

    def data_ptr(self) -> int:
        return self.address


@pytest.mark.parametrize(("x", "y", "aligned"), [(0, 4096, True), (16, 4, False), (8, 16, False), (2, 2, False)])
def test_addresses(x: int, y: int, aligned: bool) -> None:
    lowered = lower(*flat(), target="cuda")
    assert lowered.is_aligned({"x": At(x), "y": At(y)}) == aligned  # type: ignore[dict-item]


def test_slices_are_not_aligned() -> None:
    lowered = lower(*flat(), target="cuda")
    memory = torch.zeros(65)
    assert lowered.is_aligned(lowered.buffers([memory[:64]]))
    assert not lowered.is_aligned(lowered.buffers([memory[1:]]))
    assert not scaled(False).is_aligned(scaled(False).buffers([X, OFFSETS, torch.zeros(33)[1:].view(4, 8)]))


def test_variants() -> None:
    """Each of the four is compiled when it is first called, and only then."""
    compiled: list[Kernel] = []

    def compile_together(kernels: Sequence[Kernel]) -> tuple[Compiled, ...]:
        compiled.extend(kernels)
        return tuple(Compiled(signature(kernel), "cpu", lambda device: lambda *_: None) for kernel in kernels)

    lowered = lower(*flat(), target="cuda")
    target = replace(lowered.target, compile_together=compile_together, device="cpu")
    lowered = replace(lowered, target=target)
    memory = torch.zeros(65)
    for given in (memory[:64], memory[:64], memory[1:], memory[:32]):
        lowered(given)
    assert [(kernel.index, bool(alignments(kernel))) for kernel in compiled] == [("int32", True), ("int32", False)]


def test_without_lanes_there_is_one_variant() -> None:
    fusion = Fusion()
    y = fusion.output(fusion.copy(fusion.input("x", ["n"])), "y")
    lowered = lower(fusion, y, target="cuda")
    assert not lowered.is_aligned(lowered.buffers([torch.zeros(4)]))
    assert lower(fusion, y).alignments == {}  # on the CPU


# The source


def test_printed() -> None:
    text = lower(*flat(), target="cuda").source
    assert "sr::load<4>(x_lanes_, x_ + " in text
    assert "sr::store<4>(y_ + " in text
    assert "sr::store<4>(y_, y_lanes_);" in cuda.source(widened(lanes(copy(lane))))


def plain_and_wide() -> list[Lowered]:
    made = [make() for make, _, _ in SCHEDULES.values()]
    dtypes = ["bool", "uint8", "int16", "int32", "int64", "float16", "bfloat16", "float64"]
    made += [lower(*flat(dtype, count), target="cuda") for dtype in dtypes for count in (2, 8)]
    return [replace(one, kernel=replace(one.kernel, name=f"kernel{at}")) for at, one in enumerate(made)]


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
def test_sources_compile_to_wide_instructions(tmp_path: Path) -> None:
    shared = prelude("prelude.cuh")
    headers = "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n"
    sources = [cuda.source(lowered.wide).replace(shared, "") for lowered in plain_and_wide()]
    (tmp_path / "kernels.cu").write_text("\n".join([headers, shared, *sources]))
    command = ["nvcc", "-ptx", "-arch=sm_90", "-std=c++17", "-Werror=all-warnings", "kernels.cu"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr + done.stdout
    functions = re.split(r"\.visible \.entry ", (tmp_path / "kernels.ptx").read_text())[1:]
    for text, lowered in zip(functions, plain_and_wide(), strict=True):
        accesses = wide_accesses(lowered.wide)
        for instruction, name in (("ld", "load"), ("st", "store")):
            widths = re.findall(rf"\b{instruction}\.global(?:\.nc)?(?:\.v(\d))?\.\w(\d+)\b", text)
            widest = max((int(count or 1) * int(bits) // 8 for count, bits in widths), default=0)
            if any(access.startswith(name) for access in accesses):
                assert widest >= max(lowered.alignments.values()), (lowered.wide, text)
        assert ".local" not in text  # lanes are registers
