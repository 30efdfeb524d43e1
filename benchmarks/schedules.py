"""Fusions that are scheduled by themselves, against the memory that they must move.

Each line says what a call costs, its output in memory that is used again, and how often that is what its measure costs
in the same run, with the same threads: a copy of the values into existing memory, reading them once (their sum as one
flat vector), or the same traffic as a copy of so many values. Values are at least four times as large as the last-level
cache. `python -m benchmarks.schedules wide` measures 128 features alone; `widths` other numbers of them; `narrow` few
features or none; `skew` one giant row among many short ones; `planning` what it takes to make a plan, without compiling
it. Names of fusions behind that measure only these.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

from benchmarks.eager import log_normal
from benchmarks.kernels import chain
from benchmarks.tensor import lengths_of
from benchmarks.timing import interleaved
from serrate.fusion import Fusion, TensorView, symbol
from serrate.schedule import plan

VALUES = 2**25  # float32 numbers of one tensor: 128 MiB


def nested(fusion: Fusion, features: int, *names: str) -> list[TensorView]:
    """Inputs of the same rows: [k, r, features], or [k, r] if there are 0."""
    shape: list[int | str] = ["n", features] if features else ["n"]
    data = [fusion.input(name, shape) for name in names]
    offsets = fusion.input("offsets", [symbol("k") + 1], "int64")
    return [fusion.view_as_nested(each, offsets) for each in data]


def mean(x: TensorView) -> TensorView:
    return x.fusion.reduce("mean", x, [x.ndim - 1], keepdims=True)


def normalized(x: TensorView) -> tuple[TensorView, TensorView]:
    """(x - mean) / std over features, and 1 / std."""
    centered = x - mean(x)
    scale = x.fusion.unary("rsqrt", mean(centered * centered) + 1e-5)
    return centered * scale, scale


def softmax(features: int) -> Fusion:
    fusion = Fusion()
    (x,) = nested(fusion, features, "x")
    exponentials = fusion.unary("exp", x - fusion.reduce("max", x, [1], keepdims=True))
    fusion.output(exponentials / fusion.reduce("sum", exponentials, [1], keepdims=True), "y")
    return fusion


def row_sums(features: int) -> Fusion:
    fusion = Fusion()
    (x,) = nested(fusion, features, "x")
    fusion.output(fusion.reduce("sum", x, [1]), "y")
    return fusion


def feature_sums(features: int) -> Fusion:
    fusion = Fusion()
    (x,) = nested(fusion, features, "x")
    fusion.output(fusion.reduce("sum", x, [0, 1]), "y")
    return fusion


def layer_norm(features: int) -> Fusion:
    fusion = Fusion()
    (x,) = nested(fusion, features, "x")
    w, b = fusion.input("w", [features]), fusion.input("b", [features])
    fusion.output(normalized(x)[0] * w + b, "y")
    return fusion


def activation(features: int) -> Fusion:
    fusion = Fusion()
    (x,) = nested(fusion, features, "x")
    fusion.output(fusion.unary("gelu", x) * x + 1, "y")
    return fusion


def add(features: int) -> Fusion:
    fusion = Fusion()
    (x, z) = nested(fusion, features, "x", "z")
    fusion.output(x + z, "y")
    return fusion


def scaled_rows(features: int) -> Fusion:
    """x · w, one row of w for each component."""
    fusion = Fusion()
    (x,) = nested(fusion, features, "x")
    w = fusion.input("w", ["k", features] if features else ["k"])
    fusion.output(x * fusion.broadcast(w, [False, True] + [False] * bool(features)), "y")
    return fusion


def running_sums(features: int) -> Fusion:
    fusion = Fusion()
    (x,) = nested(fusion, features, "x")
    fusion.output(fusion.scan("sum", x, 1), "y")
    return fusion


def padded(features: int) -> Fusion:
    """To [k, m, features], with the number of positions given by a tensor of that length."""
    fusion = Fusion()
    (x,) = nested(fusion, features, "x")
    fusion.input("positions", ["m"])
    fusion.output(fusion.to_dense(x, 1, symbol("m")), "y")
    return fusion


def unpadded(features: int) -> Fusion:
    fusion = Fusion()
    (x,) = nested(fusion, features, "x")
    dense = fusion.input("dense", ["k", "m", features] if features else ["k", "m"])
    fusion.output(fusion.from_dense(dense, x), "y")
    return fusion


def softmax_gradient(features: int) -> Fusion:
    fusion = Fusion()
    y, dy = nested(fusion, features, "x", "z")
    fusion.output(y * (dy - fusion.reduce("sum", y * dy, [1], keepdims=True)), "dx")
    return fusion


def layer_norm_gradient(features: int) -> Fusion:
    fusion = Fusion()
    x, dy = nested(fusion, features, "x", "z")
    x_hat, scale = normalized(x)
    d_norm = dy * fusion.input("w", [features])
    fusion.output((d_norm - mean(d_norm) - x_hat * mean(d_norm * x_hat)) * scale, "dx")
    fusion.output(fusion.reduce("sum", dy * x_hat, [0, 1]), "dw")
    fusion.output(fusion.reduce("sum", dy, [0, 1]), "db")
    return fusion


@dataclass(frozen=True)
class Row:
    """A fusion of a number of features, and what it is measured by."""

    make: Callable[[int], Fusion]
    measure: str
    most: float | None = None
    """What the ratio is to be at most, for 128 features."""
    narrow: bool = True
    """Whether it is measured with few features too, and with none."""


ROWS = (
    Row(softmax, "copy", 1.8), Row(row_sums, "read", 1.3), Row(feature_sums, "read", 1.3),
    Row(layer_norm, "copy", 1.3, narrow=False), Row(activation, "copy"), Row(add, "three", 1.1),
    Row(scaled_rows, "copy", 1.1), Row(running_sums, "copy", 1.6), Row(padded, "padded", 1.3),
    Row(unpadded, "copy", 1.3), Row(softmax_gradient, "three"), Row(layer_norm_gradient, "three", narrow=False),
)  # fmt: skip


@dataclass
class Batch:
    """Rows of some lengths, so many of them that the values are large, and what fusions take of them."""

    name: str
    lengths: torch.Tensor
    features: int

    def __post_init__(self) -> None:
        rows, width = int(self.lengths.sum()), max(self.features, 1)
        shape = [rows, self.features] if self.features else [rows]
        longest, count = int(self.lengths.max()), len(self.lengths)
        self.dense_rows = min(count, max(VALUES // (longest * width), 1))  # padded, they take as much memory
        self.given = {
            "x": torch.randn(shape), "z": torch.randn(shape), "offsets": offsets_of(self.lengths),
            "w": torch.randn(width), "b": torch.randn(width), "positions": torch.zeros(longest),
        }  # fmt: skip

    def inputs(self, fusion: Fusion) -> list[torch.Tensor]:
        names = [tensor.name for tensor in fusion.inputs]
        given = dict(self.given)
        if "positions" in names or "dense" in names:
            kept = self.lengths[: self.dense_rows]
            given |= {"offsets": offsets_of(kept), "x": given["x"][: int(kept.sum())]}
            shape = [len(kept), int(self.given["positions"].numel()), *given["x"].shape[1:]]
            given["dense"] = torch.randn(shape) if "dense" in names else torch.empty(0)
        if "w" in names and fusion.named("w").domain.logical[0].extent == symbol("k"):
            given["w"] = torch.randn(len(self.lengths), *given["x"].shape[1:])
        return [given[name] for name in names]


def offsets_of(lengths: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.pad(lengths.cumsum(0), (1, 0))


def as_large(lengths: torch.Tensor, features: int) -> torch.Tensor:
    """Lengths again and again, until the values are large."""
    rows = VALUES // max(features, 1)
    many = lengths.repeat(max(-(-rows // max(int(lengths.sum()), 1)), 1))
    return many[: max(int((many.cumsum(0) < rows).sum()), min(1024, len(many)))]


def measures(batch: Batch, place: torch.Tensor, names: set[str]) -> dict[str, Callable[[], object]]:
    """What fusions are measured by; each takes as much memory as these do, in the same state."""
    x, z = batch.given["x"], batch.given["z"]
    found: dict[str, Callable[[], object]] = {
        "copy": lambda: place.copy_(x),
        "read": lambda: x.sum(),
        "three": lambda: torch.add(x, z, out=place),
    }
    return {name: call for name, call in found.items() if name in names}


def measure(batch: Batch, threads: int, rows: tuple[Row, ...], seconds: float) -> None:
    """Print what each fusion of a batch costs."""
    torch.set_num_threads(threads)
    place = torch.empty_like(batch.given["x"])
    shape = " × ".join(map(str, batch.given["x"].shape))
    print(f"\n{batch.name}: {len(batch.lengths)} rows, {shape} values, {threads} thread{'s' * (threads > 1)}")
    for row in rows:
        fusion = row.make(batch.features)
        planned = plan(fusion, name=row.make.__name__)
        inputs, call = batch.inputs(fusion), planned.prepared()
        calls: dict[str, Callable[[], object]] = {"ours": partial(call, *inputs)}
        if row.measure in ("copy", "read", "three"):
            (against,) = measures(batch, place, {row.measure}).values()
            if row.make is unpadded:
                kept = inputs[0]
                against = partial(place[: len(kept)].copy_, kept)
        else:
            (dense,) = call(*inputs)
            other = torch.randn_like(dense)
            against = partial(dense.copy_, other)
        calls["measure"] = against
        if row.make is activation:
            x = batch.given["x"]
            calls["eager"] = lambda x=x: torch.nn.functional.gelu(x) * x + 1
        times = interleaved(calls, rounds=15, seconds=seconds)
        ours, least = times["ours"], times["measure"]
        ratio = f"{ours[0] / least[0]:6.2f} | {ours[1] / least[1]:6.2f} × {row.measure}"
        wanted = "" if row.most is None or batch.features != 128 else f" (at most {row.most})"
        faster = f", {times['eager'][0] / ours[0]:.2f} × faster than torch" if "eager" in times else ""
        kernels = f", {len(planned.steps)} kernels" if len(planned.steps) > 1 else ""
        print(f"  {row.make.__name__:20} {ours[0] * 1e3:8.2f} ms {ratio}{wanted}{faster}{kernels}", flush=True)


def lengths_named(count: int = 1024) -> dict[str, torch.Tensor]:
    return {
        "squad": lengths_of("squad", count),
        "xnli": lengths_of("xnli", count),
        "log-normal": log_normal(count),
    }


def measure_wide(only: tuple[str, ...] = ()) -> None:
    rows = tuple(row for row in ROWS if not only or row.make.__name__ in only)
    for name, lengths in lengths_named().items():
        batch = Batch(name, as_large(lengths, 128), 128)
        for threads in (1, 2):
            measure(batch, threads, rows, seconds=6)


def measure_narrow(only: tuple[str, ...] = ()) -> None:
    rows = tuple(row for row in ROWS if row.narrow and (not only or row.make.__name__ in only))
    for features in (0, 1, 4, 16):
        for name, lengths in {"squad": lengths_of("squad", 1024), "short": torch.arange(17).repeat(64)}.items():
            measure(Batch(f"{name}, {features} features", as_large(lengths, features), features), 2, rows, seconds=3)


def measure_widths(only: tuple[str, ...] = ()) -> None:
    """Other numbers of features, which registers need not divide."""
    rows = tuple(row for row in ROWS if not only or row.make.__name__ in only)
    for features in (100, 300, 768, 2048):
        lengths = lengths_of("squad", max(VALUES // features // 200, 1))
        measure(Batch(f"squad, {features} features", lengths, features), 1, rows, seconds=3)


def measure_skew(only: tuple[str, ...] = ()) -> None:
    """One row has half of all values, and 10⁵ rows of mean 8 the others: on two threads half the time of one."""
    rows = tuple(row for row in ROWS if row.make not in (padded, unpadded))
    for features in (0, 16):
        lengths = torch.arange(100_001) % 17
        lengths[50_000] = VALUES // max(features, 1) - int(lengths.sum())
        batch = Batch(f"one giant row, {features} features", lengths, features)
        for row in rows:
            if (features or row.narrow) and (not only or row.make.__name__ in only):
                fusion = row.make(features)
                call, inputs = plan(fusion, name=row.make.__name__).prepared(), batch.inputs(fusion)
                least = {}
                for threads in (1, 2):
                    torch.set_num_threads(threads)
                    least[threads] = interleaved({"ours": partial(call, *inputs)}, rounds=7, seconds=3)["ours"][0]
                split = 2 * least[2] / least[1]
                print(f"  {batch.name}, {row.make.__name__:20} {least[1] * 1e3:8.2f} ms alone, {split:.2f} × the half")


def pointwise(count: int) -> Fusion:
    """So many operations, one after another."""
    fusion = Fusion()
    fusion.output(chain(fusion.input("x", ["n", 128]), count), "y")
    return fusion


def norm_of(count: int) -> Fusion:
    """A layer norm of so many operations."""
    fusion = Fusion()
    x = chain(fusion.input("x", ["n", 128]), count)
    fusion.output(normalized(x)[0], "y")
    return fusion


def norms(count: int) -> Fusion:
    """So many operations, with a norm after every tenth."""
    fusion = Fusion()
    x = fusion.input("x", ["n", 128])
    for _ in range(count // 10):
        x = normalized(chain(x, 6))[0]
    fusion.output(x, "y")
    return fusion


def measure_planning() -> None:
    cases = {"pointwise": (pointwise, (30, 100, 300)), "layer norm": (norm_of, (30, 100, 300)), "norms": (norms, (30,))}
    print("\nto plan, without compiling")
    for name, (make, counts) in cases.items():
        for count in counts:
            fusion = make(count)
            ((least, middle),) = interleaved({"": lambda f=fusion: plan(f)}, rounds=9, seconds=5).values()
            print(f"  {f'{name}, {count}':28} {least * 1e3:9.2f} ms {middle * 1e3:9.2f} ms")


PARTS = {"wide": measure_wide, "widths": measure_widths, "narrow": measure_narrow, "skew": measure_skew}


def main(part: str = "", *only: str) -> None:
    with torch.no_grad():
        if part in ("", "planning"):
            measure_planning()
        for name, run in PARTS.items():
            if part in ("", name):
                run(only)


if __name__ == "__main__":
    main(*sys.argv[1:])
