"""Kernels whose generated source is kept in `goldens/`, to be read, and to be seen when it changes.

Each function is a fusion with a schedule; its name is that of the kernel and of the file. `python -m
tests.kernel.golden_kernels` writes the files anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from serrate.fusion import Fusion, IterDomain, Memory, ParallelType, RaggedIterDomain, TensorView, symbol
from serrate.fusion.binding import TORCH
from serrate.kernel import Lowered, cpp, lower
from serrate.kernel.source import prelude

FOLDER = Path(__file__).parent / "goldens"
FEATURES = 64
GOLDENS: dict[str, Callable[[], Lowered]] = {}
P = ParallelType


def golden(function: Callable[[], Lowered]) -> Callable[[], Lowered]:
    """Enter a kernel into the table."""
    GOLDENS[function.__name__] = function
    return function


def nested(fusion: Fusion, *features: int, name: str = "x", dtype: str = "float32") -> TensorView:
    """An input [n, *features] as [k, r, *features]."""
    data = fusion.input(name, ["n", *features], dtype)
    return fusion.view_as_nested(data, fusion.input("offsets", [symbol("k") + 1], "int64"))


# Pointwise: by component, by tile, flat


def gelu_of_all_values() -> tuple[Fusion, TensorView]:
    """gelu(x) · x + 1, in one loop over all values: no operand has a row, so no component is looked for."""
    fusion = Fusion()
    x = nested(fusion, FEATURES)
    y = fusion.output(fusion.unary("gelu", x) * x + 1.0, "y")
    return fusion, y.combine(0).merge(0)


@golden
def gelu_flat() -> Lowered:
    """gelu(x) · x + 1 of [k, r, 64], all values as one axis: threads and lanes."""
    fusion, y = gelu_of_all_values()
    y.split(0, FEATURES).parallelize(0, P.Thread).parallelize(1, P.Simd)
    return lower(fusion, y, name="gelu_flat")


@golden
def gelu_flat_cuda() -> Lowered:
    """gelu(x) · x + 1 of [k, r, 64], all values as one axis: blocks of 256 threads, four values each."""
    fusion, y = gelu_of_all_values()
    y.vectorize(0, 4).split(0, 256).parallelize(0, P.BIDx).parallelize(1, P.TIDx)
    return lower(fusion, y, name="gelu_flat_cuda", target="cuda")


def scaled_rows() -> tuple[Fusion, TensorView]:
    """x[c, r, d] · w[c, d]: an operand that differs between components."""
    fusion = Fusion()
    x = nested(fusion, FEATURES)
    weights = fusion.broadcast(fusion.input("w", ["k", FEATURES]), [False, True, False])
    return fusion, fusion.output(x * weights, "y")


@golden
def scale_by_component() -> Lowered:
    """x[c, r, d] · w[c, d], a loop over components around one over the rows of each."""
    fusion, y = scaled_rows()
    y.parallelize(0, P.Thread).parallelize(2, P.Simd)
    return lower(fusion, y, name="scale_by_component")


@golden
def scale_by_tile() -> Lowered:
    """x[c, r, d] · w[c, d] in tiles of 4 rows, none of which has rows of two components."""
    fusion, y = scaled_rows()
    y.split(1, 4).combine(0).parallelize(0, P.Thread).parallelize(2, P.Simd)
    return lower(fusion, y, name="scale_by_tile")


@golden
def scale_by_tile_cuda() -> Lowered:
    """x[c, r, d] · w[c, d] in tiles of 4 rows, a block each."""
    fusion, y = scaled_rows()
    y.split(1, 4).combine(0).parallelize(0, P.BIDx).parallelize(1, P.TIDy).parallelize(2, P.TIDx)
    return lower(fusion, y, name="scale_by_tile_cuda", target="cuda")


@golden
def scale_flat() -> Lowered:
    """x[c, r, d] · w[c, d] in one loop over all rows, each of which looks for its component."""
    fusion, y = scaled_rows()
    y.combine(0).parallelize(0, P.Thread).parallelize(1, P.Simd)
    return lower(fusion, y, name="scale_flat")


# Reductions over rows


@golden
def sum_by_component() -> Lowered:
    """The sum over the rows of each component: threads over components, lanes over features."""
    fusion = Fusion()
    y = fusion.output(fusion.reduce("sum", nested(fusion, FEATURES), [1]), "y")
    y.parallelize(0, P.Thread).parallelize(2, P.Simd)
    return lower(fusion, y, name="sum_by_component")


@golden
def sum_by_component_cuda() -> Lowered:
    """The sum over the rows of each component: 32 features × 4 rows at a time, rows combined across threads."""
    fusion = Fusion()
    y = fusion.output(fusion.reduce("sum", nested(fusion, FEATURES), [1]), "y")
    rows_by_features(y)
    return lower(fusion, y, name="sum_by_component_cuda", target="cuda")


def rows_by_features(y: TensorView) -> None:
    """[c, r, d] → blocks c × features by 32, threads 32 features × 4 rows."""
    y.split(2, 32).reorder([0, 2, 1, 3]).split(2, 4)
    for axis, parallel_type in ((0, P.BIDx), (1, P.BIDy), (3, P.TIDy), (4, P.TIDx)):
        y.parallelize(axis, parallel_type)


def softmax_of_rows() -> tuple[Fusion, TensorView, TensorView]:
    """(the fusion, its output, the exponentials)."""
    fusion = Fusion()
    x = nested(fusion, FEATURES)
    exponentials = fusion.unary("exp", x - fusion.reduce("max", x, [1], keepdims=True))
    total = fusion.reduce("sum", exponentials, [1], keepdims=True)
    return fusion, fusion.output(exponentials * fusion.unary("reciprocal", total), "y"), exponentials


@golden
def softmax_by_component() -> Lowered:
    """Softmax over the rows of each component; exponentials are kept in scratch memory between phases."""
    fusion, y, exponentials = softmax_of_rows()
    exponentials.set_memory_type(Memory.REGISTER)
    y.parallelize(0, P.Thread).parallelize(2, P.Simd)
    return lower(fusion, y, name="softmax_by_component")


@golden
def softmax_by_component_cuda() -> Lowered:
    """Softmax over the rows of each component; maximum and sum are combined across threads, exp computed twice."""
    fusion, y, _ = softmax_of_rows()
    rows_by_features(y)
    return lower(fusion, y, name="softmax_by_component_cuda", target="cuda")


@golden
def argmax_by_component() -> Lowered:
    """The position of the greatest value of each row, −1 for an empty one."""
    fusion = Fusion()
    y = fusion.output(fusion.reduce("argmax", nested(fusion), [1]), "y")
    return lower(fusion, y.parallelize(0, P.Thread), name="argmax_by_component")


@golden
def half_mean_cuda() -> Lowered:
    """The mean over the rows of each component in bfloat16, accumulated in float32; indices are of 32 bits."""
    fusion = Fusion()
    y = fusion.output(fusion.reduce("mean", nested(fusion, FEATURES, dtype="bfloat16"), [1]), "y")
    rows_by_features(y)
    return lower(fusion, y, name="half_mean_cuda", target="cuda", index="int32")


@golden
def sum_of_two_levels() -> Lowered:
    """The sum over both ragged axes of [k, r, s], where s depends on r."""
    fusion = Fusion()
    outer = fusion.input("offsets", [symbol("k") + 1], "int64")
    inner = fusion.input("inner_offsets", [symbol("n") + 1], "int64")
    components = IterDomain("k", name="c")
    rows = RaggedIterDomain.from_offsets(outer, size="n", component=components, name="r")
    items = RaggedIterDomain.from_offsets(inner, size="m", component=IterDomain.combine(components, rows), name="s")
    y = fusion.output(fusion.reduce("sum", fusion.input("x", [components, rows, items]), [1, 2]), "y")
    return lower(fusion, y.parallelize(0, P.Thread), name="sum_of_two_levels")


# Reductions over other axes


def normalized(fusion: Fusion) -> TensorView:
    """Layer norm of [k, r, 64] over features."""
    x = nested(fusion, FEATURES)
    centred = x - fusion.reduce("mean", x, [2], keepdims=True)
    deviation = fusion.unary("rsqrt", fusion.reduce("var", x, [2], keepdims=True) + 1e-5)
    return fusion.output(centred * deviation * fusion.input("w", [FEATURES]) + fusion.input("b", [FEATURES]), "y")


@golden
def layer_norm() -> Lowered:
    """Layer norm over features, all rows as one axis."""
    fusion = Fusion()
    y = normalized(fusion).combine(0).split(1, 8).parallelize(0, P.Thread).parallelize(2, P.Simd)
    return lower(fusion, y, name="layer_norm")


@golden
def layer_norm_cuda() -> Lowered:
    """Layer norm over features, a row for each 32 threads, four rows to a block."""
    fusion = Fusion()
    y = normalized(fusion).combine(0).split(0, 4).split(2, 32)
    y.parallelize(0, P.BIDx).parallelize(1, P.TIDy).parallelize(3, P.TIDx)
    return lower(fusion, y, name="layer_norm_cuda", target="cuda")


@golden
def sum_over_components() -> Lowered:
    """The sum over components, position by position, of the rows that reach it: the gradient of what all share."""
    fusion = Fusion()
    data, offsets = fusion.input("x", ["n", FEATURES]), fusion.input("offsets", [symbol("k") + 1], "int64")
    rows = RaggedIterDomain.from_offsets(offsets, size="n", longest=8)
    y = fusion.output(fusion.reduce("sum", fusion.view_as_nested(data, rows.raggedness), [0]), "y")
    y.reorder([0, 2, 1]).parallelize(0, P.Thread).parallelize(2, P.Simd)
    return lower(fusion, y, name="sum_over_components")


@golden
def sum_of_features_cuda() -> Lowered:
    """The sum over all rows, feature by feature: the gradient of a bias. 32 rows a block, combined by the last one."""
    fusion = Fusion()
    y = fusion.output(fusion.reduce("sum", nested(fusion, FEATURES), [0, 1]), "y")
    y.combine(0).split(0, 32).parallelize(0, P.BIDx).parallelize(2, P.TIDx)
    return lower(fusion, y, name="sum_of_features_cuda", target="cuda")


@golden
def sum_of_all_cuda() -> Lowered:
    """The sum of all values: threads, then blocks, of which the last to arrive combines."""
    fusion = Fusion()
    y = fusion.output(fusion.reduce("sum", nested(fusion, FEATURES), [0, 1, 2]), "y")
    y.combine(0).merge(0).split(0, 256).parallelize(0, P.BIDx).parallelize(1, P.TIDx)
    return lower(fusion, y, name="sum_of_all_cuda", target="cuda")


# Two ragged axes, other indices, holes


@golden
def outer_product() -> Lowered:
    """q[c, i] · s[c, j] as [k, q, s]: the rows of each component are as many as two lengths multiplied."""
    fusion = Fusion()
    left = fusion.view_as_nested(fusion.input("q", ["n"]), fusion.input("q_offsets", [symbol("k") + 1], "int64"))
    right = fusion.view_as_nested(fusion.input("s", ["m"]), fusion.input("s_offsets", [symbol("k") + 1], "int64"))
    product = fusion.broadcast(left, [False, False, True]) * fusion.broadcast(right, [False, True, False])
    y = fusion.output(product, "y").parallelize(0, P.Thread)
    return lower(fusion, y, name="outer_product")


@golden
def pad_rows() -> Lowered:
    """Each row with one value before it and two after."""
    fusion = Fusion()
    y = fusion.output(fusion.pad(nested(fusion), 1, 1, 2, value=-1.0), "y").parallelize(0, P.Thread)
    return lower(fusion, y, name="pad_rows")


@golden
def gather_rows() -> Lowered:
    """table[ids[c, r]]: an embedding of ragged ids, all of them as one axis."""
    fusion = Fusion()
    table = fusion.input("table", ["entries", FEATURES])
    y = fusion.output(fusion.gather(table, nested(fusion, name="ids", dtype="int64")), "y")
    return lower(fusion, y.combine(0).parallelize(0, P.Thread).parallelize(1, P.Simd), name="gather_rows")


@golden
def rows_of_eight() -> Lowered:
    """exp of [6, 6] laid out as [6, 2, 4]: two holes in each row, filled with 0."""
    fusion = Fusion()
    y = fusion.output(fusion.unary("exp", fusion.input("x", [6, 6])), "y")
    row, column = y.domain.logical
    y.set_allocation_domain([row, *IterDomain.split(column, 4)], fill=0.0)
    return lower(fusion, y, name="rows_of_eight")


@golden
def figure_2() -> Lowered:
    """Three indivisible splits of an axis of 15, which need two conditions."""
    fusion = Fusion()
    y = fusion.output(fusion.copy(fusion.input("x", [15])), "y")
    return lower(fusion, y.split(0, 6).split(0, 2).split(2, 4), name="figure_2")


# Their text, and inputs for them


def text(name: str) -> str:
    """What the file of a kernel holds: what it is, how it is launched, and its source without the prelude."""
    lowered, described = GOLDENS[name](), GOLDENS[name].__doc__ or ""
    lines = [f"// {described}"]
    if lowered.target.name == "cuda":
        grid, block = (", ".join(map(str, dims)) for dims in (lowered.kernel.launch.grid, lowered.kernel.launch.block))
        lines.append(f"// Launched as ({grid}) blocks of ({block}) threads.")
    return "\n".join([*lines, "", function(lowered)])


def function(lowered: Lowered) -> str:
    """The source without what all sources share."""
    shared = prelude("prelude.cuh") if lowered.target.name == "cuda" else cpp.head()
    assert shared in lowered.source
    return lowered.source.replace(shared, "").lstrip("\n")


def path(name: str) -> Path:
    """The file of a kernel."""
    return FOLDER / f"{name}.{'cu' if GOLDENS[name]().target.name == 'cuda' else 'cpp'}"


def inputs(lowered: Lowered, lengths: Sequence[int]) -> list[torch.Tensor]:
    """Tensors for the inputs of a kernel whose rows have these lengths."""
    offsets = {"offsets": lengths, "q_offsets": lengths, "s_offsets": lengths[::-1]}
    offsets["inner_offsets"] = [row % 3 for row in range(sum(lengths))]
    sizes = {"n": sum(lengths), "k": len(lengths), "entries": 7}
    sizes["m"] = sum(offsets["inner_offsets"] if lowered.kernel.name == "sum_of_two_levels" else lengths)
    generator = torch.Generator().manual_seed(0)
    made = []
    for tensor in lowered.fusion.inputs:
        if tensor.name in offsets:
            made.append(torch.tensor([0, *offsets[tensor.name]]).cumsum(0))
            continue
        shape = [sizes.get(str(axis.extent), axis.extent.value) for axis in tensor.domain.allocation]
        if tensor.name == "ids":
            made.append(torch.randint(sizes["entries"], shape, generator=generator))
        else:
            made.append(torch.randn(shape, generator=generator).to(TORCH[tensor.dtype]))
    return made


def main() -> None:
    """Write all files, and remove those of kernels that are no more."""
    FOLDER.mkdir(exist_ok=True)
    wanted = {path(name): text(name) for name in GOLDENS}
    for old in set(FOLDER.iterdir()) - wanted.keys():
        old.unlink()
    for file, content in wanted.items():
        file.write_text(content)
    print(f"{len(wanted)} files in {FOLDER}")


if __name__ == "__main__":
    main()
