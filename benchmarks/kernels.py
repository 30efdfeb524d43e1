"""Generated kernels, scheduled by hand, against the memory they must move and against torch.nested.

Ragged softmax `[B, r, D]` over r reads and writes every value once at least: its measure is a plain copy into existing
memory. A sum over r reads every value once: its measure is the sum of all values as one flat vector.

Calls are measured on small tensors, so that what a call costs beyond its kernel is seen: at most 6 µs on the CPU, and
12 µs on a GPU. There a kernel alone is its launch, for the host does not wait for what it launches.

First of all, what it takes to build a fusion, lower it and print its source, without compiling it: for 30 pointwise
operations at most 5 ms, for a layer norm of 30 at most 12 ms, and no more for each operation where there are 1,000.

`python -m benchmarks.kernels [building] [calls] [rows] [cuda]` measures what is named, else all; on a GPU, if asked.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from functools import partial

import torch

from benchmarks.eager import log_normal, runs
from benchmarks.tensor import lengths_of
from benchmarks.timing import interleaved
from serrate.fusion import Fusion, ParallelType, TensorView, symbol
from serrate.kernel import Lowered, lower

ROWS, FEATURES = 1024, 128
TIMES = 2000  # calls in a row


def nested(fusion: Fusion) -> TensorView:
    """x as [k, r, 128]."""
    data = fusion.input("x", ["n", FEATURES])
    offsets = fusion.input("offsets", [symbol("k") + 1], "int64")
    return fusion.view_as_nested(data, offsets)


def softmax() -> Lowered:
    """By component, 128 lanes at a time: max; exponentials, kept in y, and their sum; the result."""
    fusion = Fusion()
    x = nested(fusion)
    exponentials = fusion.unary("exp", x - fusion.reduce("max", x, [1], keepdims=True))
    total = fusion.reduce("sum", exponentials, [1], keepdims=True)
    y = fusion.output(exponentials * fusion.unary("reciprocal", total), "y")
    exponentials.keep_in(y)
    fusion.inputs[0].prefetch()
    y.parallelize(0, ParallelType.Thread)
    y.parallelize(2, ParallelType.Simd)
    return lower(fusion, y, name="ragged_softmax")


def total() -> Lowered:
    """By component, 128 lanes at a time."""
    fusion = Fusion()
    y = fusion.output(fusion.reduce("sum", nested(fusion), [1]), "y")
    y.parallelize(0, ParallelType.Thread)
    y.parallelize(2, ParallelType.Simd)
    return lower(fusion, y, name="ragged_sum")


def softmax_on_cuda() -> Lowered:
    """A block for each component: four rows at a time, combined across threads."""
    fusion = Fusion()
    x = nested(fusion)
    exponentials = fusion.unary("exp", x - fusion.reduce("max", x, [1], keepdims=True))
    total = fusion.reduce("sum", exponentials, [1], keepdims=True)
    y = fusion.output(exponentials * fusion.unary("reciprocal", total), "y")
    return lower(fusion, _blocks(y), name="ragged_softmax", target="cuda")


def total_on_cuda() -> Lowered:
    """A block for each component: four rows at a time, combined across threads."""
    fusion = Fusion()
    y = fusion.output(fusion.reduce("sum", nested(fusion), [1]), "y")
    return lower(fusion, _blocks(y), name="ragged_sum", target="cuda")


def _blocks(y: TensorView) -> TensorView:
    y.split(1, 4)  # c, r_outer, r_inner, d
    return y.parallelize(0, ParallelType.BIDx).parallelize(2, ParallelType.TIDy).parallelize(3, ParallelType.TIDx)


OPERATIONS = ("exp", "add", "tanh", "multiply", "sqrt", "subtract")


def chain(x: TensorView, count: int) -> TensorView:
    """So many pointwise operations, one after another."""
    for number in range(count):
        name = OPERATIONS[number % len(OPERATIONS)]
        x = x.fusion.binary(name, x, 1.5) if number % 2 else x.fusion.unary(name, x)
    return x


def printed_chain(count: int) -> str:
    """The source of so many pointwise operations."""
    fusion = Fusion()
    y = fusion.output(chain(fusion.input("x", ["n", FEATURES]), count), "y")
    y.parallelize(0, ParallelType.Thread).vectorize(1, 8, ParallelType.Simd)
    return lower(fusion, y).source


def printed_layer_norm(count: int) -> str:
    """The source of a layer norm of so many pointwise operations, each computed again in every phase."""
    fusion = Fusion()
    x = chain(fusion.input("x", ["n", FEATURES]), count)
    centered = x - fusion.reduce("mean", x, [1], keepdims=True)
    y = fusion.output(centered * fusion.unary("rsqrt", fusion.reduce("var", x, [1], keepdims=True) + 1e-5), "y")
    y.parallelize(0, ParallelType.Thread).parallelize(1, ParallelType.Simd)
    return lower(fusion, y).source


def printed_rows(count: int) -> str:
    """The source of sums of ragged rows of so many pointwise operations."""
    fusion = Fusion()
    y = fusion.output(fusion.reduce("sum", chain(nested(fusion), count), [1]), "y")
    return lower(fusion, y.parallelize(0, ParallelType.Thread)).source


def printed_concats(count: int) -> str:
    """The source of so many tensors, joined one by one."""
    fusion = Fusion()
    x = fusion.input("x", ["n", 2])
    for number in range(count):
        x = fusion.concat([x, fusion.input(f"x{number}", ["n", 2])], 1)
    return lower(fusion, fusion.output(x, "y")).source


def measure_building() -> None:
    """How long fusions take from the first tensor to the source."""
    sizes = {
        "pointwise": (printed_chain, (30, 100, 300, 1000)),
        "layer norm": (printed_layer_norm, (30, 100, 300, 1000)),
        "sum of rows": (printed_rows, (30, 100, 300, 1000)),
        "concat": (printed_concats, (3, 10, 30)),
    }
    print("\nto build, lower and print")
    for name, (make, counts) in sizes.items():
        times = interleaved({f"{count}": partial(make, count) for count in counts}, rounds=15, seconds=10)
        for count, (least, middle) in times.items():
            each = f"{least / int(count) * 1e3:7.3f} ms for each"
            print(f"  {f'{name}, {count}':28} {least * 1e3:9.3f} ms {middle * 1e3:9.3f} ms {each}")


def batches() -> dict[str, torch.Tensor]:
    return {
        "xnli": lengths_of("xnli", ROWS),
        "squad": lengths_of("squad", ROWS),
        "cola": lengths_of("cola", ROWS),
        "log-normal": log_normal(ROWS),
    }


def prepared(lowered: Lowered, inputs: list[torch.Tensor], output: torch.Tensor) -> Callable[[], object]:
    """The kernel alone, its output preallocated: called again and again with arguments that were checked once."""
    made, sizes = lowered.arguments(inputs, [output])
    function = lowered.variant(narrow=lowered.target.narrow_indices, wide=lowered.is_aligned(made))
    launch = function.launcher(output.device)
    arguments = [*(made[buffer.name].data_ptr() for buffer in lowered.kernel.buffers), *sizes.values()]

    def call(kept: object = made) -> None:  # its memory must stay
        launch(*arguments)

    return call


def scaled_by_tile(target: str) -> Lowered:
    """x · w, a tile of 4 rows at a time, whose offsets follow from those of the rows."""
    fusion = Fusion()
    x, w = nested(fusion), fusion.input("w", ["k", FEATURES])
    y = fusion.output(x * fusion.broadcast(w, [False, True, False]), "y").split(1, 4).combine(0)
    if target == "cuda":
        y.parallelize(0, ParallelType.BIDx).parallelize(2, ParallelType.TIDx)
    return lower(fusion, y, name="scaled_by_tile", target=target)


def looked_up(target: str) -> Lowered:
    """Rows of a table by index: a fault is looked for after each call."""
    fusion = Fusion()
    table, ids = fusion.input("table", ["rows", FEATURES]), fusion.input("ids", ["n"], "int64")
    y = fusion.output(fusion.gather(table, ids), "y")
    if target == "cuda":
        y.parallelize(0, ParallelType.BIDx).parallelize(1, ParallelType.TIDx)
    return lower(fusion, y, name="looked_up", target=target)


def repeated(call: Callable[[], object], times: int) -> Callable[[], None]:
    def calls() -> None:
        for _ in range(times):
            call()

    return calls


def measure_calls(device: str) -> None:
    """Microseconds that a call takes beyond its kernel, which is launched alone with the same addresses."""
    torch.set_num_threads(1)
    values, offsets = torch.randn(6, FEATURES, device=device), torch.tensor([0, 2, 2, 6], device=device)
    weights, ids = torch.randn(3, FEATURES, device=device), torch.tensor([5, 0, 3], device=device)
    target = "cpp" if device == "cpu" else "cuda"
    cases = {
        "sum by component": (total() if device == "cpu" else total_on_cuda(), [values, offsets]),
        "scale by tile": (scaled_by_tile(target), [values, offsets, weights]),
        "gather": (looked_up(target), [values, ids]),
    }
    print("\ncalls, µs beyond the kernel: minimum, median")
    for name, (lowered, inputs) in cases.items():
        (output,) = lowered(*inputs)
        call = lowered.prepared([given.device for given in inputs])
        into = lowered.prepared([given.device for given in inputs], given_outputs=True)
        candidates = {
            "kernel": prepared(lowered, inputs, output),
            "call": lambda lowered=lowered, inputs=inputs: lowered(*inputs),
            "call with `out`": lambda lowered=lowered, inputs=inputs, output=output: lowered(*inputs, out=output),
            "prepared": lambda call=call, inputs=inputs: call(*inputs),
            "prepared, given output": lambda into=into, inputs=inputs, output=output: into(*inputs, output),
        }
        rounds = {who: repeated(what, TIMES) for who, what in candidates.items()}
        times = interleaved(rounds, rounds=25, seconds=10)
        kernel = times.pop("kernel")
        print(f"  {name}: kernel alone {kernel[0] / TIMES * 1e6:.2f} | {kernel[1] / TIMES * 1e6:.2f}")
        for who, (least, middle) in times.items():
            print(f"    {who:24} {(least - kernel[0]) / TIMES * 1e6:6.2f} | {(middle - kernel[1]) / TIMES * 1e6:6.2f}")


def measure(name: str, lengths: torch.Tensor, threads: int, device: str) -> None:
    torch.set_num_threads(threads)
    rows = int(lengths.sum())
    values = torch.randn(rows, FEATURES, device=device)
    offsets = torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).to(device)
    theirs = torch.nested.nested_tensor_from_jagged(
        values, offsets, max_seqlen=int(lengths.max()), min_seqlen=int(lengths.min())
    )
    place, small = torch.empty_like(values), torch.empty(len(lengths), FEATURES, device=device)
    soft, sum_rows = (softmax(), total()) if device == "cpu" else (softmax_on_cuda(), total_on_cuda())
    candidates = {
        "copy into existing memory": lambda: place.copy_(values),
        "softmax, kernel": prepared(soft, [values, offsets], place),
        "softmax, call with `out`": lambda: soft(values, offsets, out=[place]),
        "softmax, fresh output": lambda: soft(values, offsets),
        "softmax, torch.nested": lambda: torch.softmax(theirs, dim=1),
        "read once (flat sum)": lambda: values.sum(),
        "sum, kernel": prepared(sum_rows, [values, offsets], small),
        "sum, call with `out`": lambda: sum_rows(values, offsets, out=[small]),
        "sum, torch.nested": lambda: theirs.sum(dim=1),
    }
    size = f"{rows} × {FEATURES} values, {values.nbytes / 2**20:.0f} MiB"
    print(f"\n{name}: {len(lengths)} rows, {size}, {threads} thread{'s' * (threads > 1)}")
    here = {who: call for who, call in candidates.items() if runs(call)}
    softmaxes = {who: call for who, call in here.items() if who.startswith(("copy", "softmax"))}
    sums = {who: call for who, call in here.items() if who not in softmaxes}
    times = interleaved(softmaxes, rounds=21, seconds=20) | interleaved(sums, rounds=21, seconds=20)
    base = {"softmax": "copy into existing memory", "sum": "read once (flat sum)"}
    for label, (least, middle) in times.items():
        against = base.get(label.split(",")[0])
        ratio = ""
        if against is not None:
            ratio = f"{least / times[against][0]:8.2f} | {middle / times[against][1]:6.2f} × {against}"
        print(f"  {label:28} {least * 1e3:9.3f} ms {middle * 1e3:9.3f} ms {ratio}")
    for ours, peer in (("softmax, kernel", "softmax, torch.nested"), ("sum, kernel", "sum, torch.nested")):
        if peer not in times:
            continue
        faster = times[peer][0] / times[ours][0], times[peer][1] / times[ours][1]
        print(f"  {ours.split(',')[0]}: {faster[0]:.1f} | {faster[1]:.1f} × faster than torch.nested")


def main(*words: str) -> None:
    warnings.filterwarnings("ignore")
    device = "cuda" if "cuda" in words else "cpu"
    asked = [word for word in words if word != device] or ["building", "calls", "rows"]
    if "building" in asked:
        measure_building()
    with torch.no_grad():
        if "calls" in asked:
            measure_calls(device)
        for name, lengths in batches().items() if "rows" in asked else ():
            for threads in (1, 2) if device == "cpu" else (1,):
                measure(name, lengths if device == "cpu" else lengths.repeat(16), threads, device)


if __name__ == "__main__":
    main(*sys.argv[1:])
