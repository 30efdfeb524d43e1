"""Phases inside loops of other phases: programs that reduce rows, features and rows of rows, each in one kernel.

What is expected is computed row by row, by torch in float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from tests.kernel.harness import check, compare

from serrate.errors import ScheduleError
from serrate.fusion import Fusion, Memory, ParallelType, TensorView
from serrate.fusion.axes import ragged
from serrate.kernel import Lowered, can_lower, choose_kept, cpp, lower
from serrate.kernel.check import Violation
from serrate.kernel.ir import For, If, walk

P = ParallelType
LENGTHS = {"ragged": [3, 0, 4, 70, 1], "one row": [5], "empty rows": [0, 0], "no rows": []}
each_length = pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS.keys())


def offsets_of(lengths: list[int]) -> torch.Tensor:
    return torch.tensor([0, *torch.tensor(lengths, dtype=torch.int64).cumsum(0).tolist()])


def agree(lowered: Lowered, inputs: list[torch.Tensor], *expected: torch.Tensor) -> None:
    """In the interpreter, which finds broken rules, and compiled; against `evaluate` and what the test expects."""
    check(lowered, inputs)
    outputs = lowered(*inputs)
    compare(lowered, inputs, {t.name: made for t, made in zip(lowered.fusion.outputs, outputs, strict=True)})
    for got, want in zip(outputs, expected, strict=True):
        torch.testing.assert_close(
            got.double().reshape(want.shape), want.double(), rtol=1e-4, atol=1e-5, equal_nan=True
        )


def walks_of(lowered: Lowered, axis: str) -> int:
    """How many loops walk an axis, not counting those over the blocks of another."""
    loops = [statement for statement in walk(lowered.kernel.body) if isinstance(statement, For)]
    return sum(loop.axis.startswith(axis) and "blocks" not in loop.axis for loop in loops)


def nested(fusion: Fusion, *features: int | str) -> TensorView:
    x, offsets = fusion.input("x", ["n", *features]), fusion.input("offsets", ["k"], "int64")
    return fusion.view_as_nested(x, offsets)


def rows_of(x: torch.Tensor, lengths: list[int]) -> list[torch.Tensor]:
    return list(x.double().split(lengths))


def joined(parts: list[torch.Tensor], like: torch.Tensor) -> torch.Tensor:
    return torch.cat(parts) if parts else like.double()[:0]


# Kept values


@each_length
def test_a_value_is_not_read_where_an_output_was_stored_in_its_place(lengths: list[int]) -> None:
    fusion = Fusion()
    x = nested(fusion)
    t = fusion.unary("exp", x)
    y = fusion.output(t / fusion.reduce("sum", t, [1], keepdims=True), "y")
    z = fusion.output(t * fusion.reduce("sum", y * y, [1], keepdims=True), "z")
    t.keep_in(y)
    data = torch.randn(sum(lengths))
    exps = [row.exp() for row in rows_of(data, lengths)]
    ys = [e / e.sum() for e in exps]
    zs = [e * (y * y).sum() for e, y in zip(exps, ys, strict=True)]
    for reference in (y, z):
        agree(lower(fusion, reference), [data, offsets_of(lengths)], joined(ys, data), joined(zs, data))


def test_the_checker_sees_a_value_read_where_an_output_was_stored() -> None:
    from serrate.fusion.scalar import const, load
    from serrate.kernel.check import run
    from serrate.kernel.ir import Buffer, Kernel, Store

    again = Store("z", const(0), load("y", const(0), "float32"))
    body = (Store("y", const(0), const(1.0, "float32")), again)
    y, z = (Buffer(name, "float32", const(1), written=True) for name in "yz")
    with pytest.raises(Violation, match="after its element was stored"):
        run(Kernel("f", (y, z), (), body), {}, {})


def test_several_values_are_kept_each_in_a_place_of_its_own() -> None:
    fusion = Fusion()
    x = fusion.input("x", [3, 8])
    t = fusion.unary("exp", x)
    y = fusion.output(t / fusion.reduce("sum", t, [1], keepdims=True), "y")
    other = fusion.unary("log", t)
    fusion.output(other / fusion.reduce("sum", other, [1], keepdims=True), "z")
    t.keep_in(y)
    other.keep_in(y)
    x_ = torch.rand(3, 8) + 1
    agree(lower(fusion, y), [x_], x_.exp() / x_.exp().sum(1, keepdim=True), x_ / x_.sum(1, keepdim=True))


# Reductions inside reductions


def two_levels(fusion: Fusion, *features: int | str) -> TensorView:
    """[k, visits, codes, features]."""
    x, inner = fusion.input("x", ["n", *features]), fusion.input("inner", ["m"], "int64")
    outer = fusion.input("outer", ["k"], "int64")
    return fusion.view_as_nested(fusion.view_as_nested(x, inner, names=("v", "e")), outer, names=("p", "w"))


VISITS = {
    "visits": ([2, 0, 3], [3, 0, 2, 5, 1]),
    "one of everything": ([1], [1]),
    "empty visits": ([2, 1], [0, 0, 0]),
    "nobody": ([], []),
}
each_visit = pytest.mark.parametrize(("visits", "codes"), VISITS.values(), ids=VISITS.keys())


def patients(x: torch.Tensor, visits: list[int], codes: list[int]) -> list[list[torch.Tensor]]:
    rows = iter(rows_of(x, codes))
    return [[next(rows) for _ in range(count)] for count in visits]


@each_visit
def test_a_mean_over_visits_of_means_over_codes(visits: list[int], codes: list[int]) -> None:
    fusion = Fusion()
    x = two_levels(fusion)
    means = fusion.reduce("mean", x, [2])
    y = fusion.output(fusion.reduce("mean", means, [1]), "y")
    data = torch.randn(sum(codes))
    want = [
        torch.stack([v.mean() for v in p]).mean() if p else torch.tensor(torch.nan)
        for p in patients(data, visits, codes)
    ]
    inputs = [data, offsets_of(codes), offsets_of(visits)]
    expected = torch.stack(want) if want else torch.zeros(0)
    doubled = fusion.output(x * 2.0, "doubled")
    agree(lower(fusion, doubled), inputs, expected, data.double() * 2)
    del y


@each_visit
@pytest.mark.parametrize("kept", [True, False])
def test_softmax_over_visits_of_sums_over_codes(visits: list[int], codes: list[int], kept: bool) -> None:
    fusion = Fusion()
    x = two_levels(fusion)
    scores = fusion.reduce("sum", x, [2])
    if kept:
        scores = scores.cache_after()
    shifted = fusion.unary("exp", scores - fusion.reduce("max", scores, [1], keepdims=True))
    y = fusion.output(shifted / fusion.reduce("sum", shifted, [1], keepdims=True), "y")
    weighted = fusion.output(x * fusion.broadcast(y, [False, False, True]), "weighted")
    data = torch.randn(sum(codes))
    ys, ws = [], []
    for patient in patients(data, visits, codes):
        if patient:
            soft = torch.stack([visit.sum() for visit in patient]).softmax(0)
            ys.append(soft)
            ws += [visit * s for visit, s in zip(patient, soft, strict=True)]
    lowered = lower(fusion, weighted)
    inputs = [data, offsets_of(codes), offsets_of(visits)]
    agree(lowered, inputs, joined(ys, data), joined(ws, data))
    assert walks_of(lowered, "e of") == (
        2 if kept else 4
    )  # the sum over codes once, or in each phase; and what is weighted by it


@each_length
@pytest.mark.parametrize("rows_first", [True, False])
def test_reductions_over_rows_and_over_features_in_either_order(lengths: list[int], rows_first: bool) -> None:
    fusion = Fusion()
    x = nested(fusion, 5)
    axes = (1, 2) if rows_first else (2, 1)
    z = x
    for axis in axes:
        z = z - fusion.reduce("mean", z, [axis], keepdims=True)
    y = fusion.output(z, "y")
    data = torch.randn(sum(lengths), 5)
    want = []
    for row in rows_of(data, lengths):
        for axis in axes:
            row = row - row.mean(axis - 1, keepdim=True)
        want.append(row)
    agree(lower(fusion, y), [data, offsets_of(lengths)], joined(want, data))


@pytest.mark.parametrize("threads", [None, 4])
@pytest.mark.parametrize("rows", [0, 1, 3, 150])
def test_all_gradients_of_layer_norm_in_one_pass(rows: int, threads: int | None) -> None:
    """dx for each row, dw and db over all rows: rows are walked once, features of a row in three phases."""
    fusion = Fusion()
    x, dy, w = fusion.input("x", ["n", 6]), fusion.input("dy", ["n", 6]), fusion.input("w", [6])
    centred = x - fusion.reduce("mean", x, [1], keepdims=True)
    rstd = fusion.unary("rsqrt", fusion.reduce("var", x, [1], keepdims=True) + 1e-5)
    normal = centred * rstd
    fusion.output(fusion.reduce("sum", dy, [0]), "db")
    fusion.output(fusion.reduce("sum", dy * normal, [0]), "dw")
    g = dy * w
    inner = g - fusion.reduce("mean", g, [1], keepdims=True)
    dx = fusion.output((inner - normal * fusion.reduce("mean", g * normal, [1], keepdims=True)) * rstd, "dx")
    if threads is not None:
        dx.split(0, threads, inner_split=False).parallelize(0, P.Thread)
    data, upstream, weight = torch.randn(rows, 6), torch.randn(rows, 6), torch.randn(6)
    leaf, leaf_w, bias = (t.double().requires_grad_() for t in (data, weight, torch.zeros(6)))
    torch.nn.functional.layer_norm(leaf, (6,), leaf_w, bias).backward(upstream.double())
    lowered = lower(fusion, dx)
    agree(lowered, [data, upstream, weight], bias.grad, leaf_w.grad, leaf.grad)
    assert walks_of(lowered, "i of dx") == (1 if threads is None else 2)


# Threads over what is reduced


@pytest.mark.parametrize("n", [0, 1, 7, 1000, 100_003])
@pytest.mark.parametrize("name", ["sum", "max", "mean", "var", "argmax", "logsumexp", "relative_exp_sum"])
def test_threads_over_a_reduced_loop(name: str, n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpp, "LEAST_WORK", 0)
    fusion = Fusion()
    y = fusion.output(fusion.reduce(name, fusion.input("x", ["n"]), [0]), "y")
    y.split(0, 16, inner_split=False).parallelize(0, P.Thread)
    lowered = lower(fusion, y)
    data = torch.randn(n)
    if n <= 1000:
        check(lowered, [data])
    results = []
    for threads in (1, 2):
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        results.append(lowered(data)[0])
        torch.set_num_threads(before)
    assert torch.equal(results[0], results[1]) or results[0].isnan()  # bit for bit
    torch.testing.assert_close(results[0], fusion.evaluate(data)[0], rtol=1e-5, atol=1e-5, equal_nan=True)


# Reducing the component axis


@each_length
@pytest.mark.parametrize("reference", ["sum", "rows"])
def test_the_component_axis_is_reduced_beside_other_outputs(lengths: list[int], reference: str) -> None:
    fusion = Fusion()
    v = nested(fusion, 2)
    total = fusion.output(fusion.reduce("sum", v, [0]), "total")
    doubled = fusion.output(v * 2.0, "doubled")
    shifted = fusion.output(total + 1.0, "shifted")
    data = torch.randn(sum(lengths), 2)
    longest = fusion.evaluate(data, offsets_of(lengths))[0].shape[0]
    want = torch.zeros(longest, 2, dtype=torch.float64)
    for row in rows_of(data, lengths):
        want[: len(row)] += row
    chosen = total if reference == "sum" else doubled
    agree(lower(fusion, chosen), [data, offsets_of(lengths)], want, data.double() * 2, want + 1)
    del shifted


def test_reducing_the_component_axis_walks_each_value_once() -> None:
    fusion = Fusion()
    v = nested(fusion)
    fusion.output(fusion.reduce("sum", v, [0]), "total")
    lowered = lower(fusion, fusion.output(v * 2.0, "doubled"))
    loops = [s for s in walk(lowered.kernel.body) if isinstance(s, For) and "states" not in s.axis]
    inside = [s.axis for s in walk(loops[0].body) if isinstance(s, For)]
    assert loops[0].axis == "c of doubled"
    assert inside == ["r of doubled"]


# Memory


@pytest.mark.parametrize("n", [0, 3])
def test_a_large_state_lies_in_scratch_memory(n: int) -> None:
    width = 4_000_000
    fusion = Fusion()
    y = fusion.output(fusion.reduce("sum", fusion.input("x", ["n", width]), [0]), "y")
    lowered = lower(fusion, y)
    data = torch.randn(n, width)
    torch.testing.assert_close(lowered(data)[0], data.double().sum(0).float())
    with pytest.raises(ScheduleError, match="gives a value at most 16384"):
        lower(fusion, y, target="cuda")


def test_a_state_as_large_as_a_size_that_is_given() -> None:
    fusion = Fusion()
    y = fusion.output(fusion.reduce("sum", fusion.input("x", ["n", "d"]), [0]), "y")
    for n, d in ((3, 5), (100, 70), (0, 4), (4, 0)):
        data = torch.randn(n, d)
        agree(lower(fusion, y), [data], data.double().sum(0))


@pytest.mark.parametrize("name", ["max", "min", "sum", "prod", "argmax", "logsumexp"])
def test_lanes_of_no_elements_have_the_neutral_value(name: str) -> None:
    fusion = Fusion()
    y = fusion.output(fusion.reduce(name, fusion.input("x", ["n", 0]), [1]), "y").parallelize(1, P.Simd)
    (neutral,) = fusion.evaluate(torch.zeros(3, 0))
    agree(lower(fusion, y), [torch.zeros(3, 0)], neutral)
    assert neutral[0].item() == {"max": -math.inf, "min": math.inf, "sum": 0, "prod": 1, "argmax": -1}.get(
        name, -math.inf
    )


# A kept value that is read at other indices is computed again


def test_a_kept_value_is_read_elsewhere() -> None:
    fusion = Fusion()
    x = fusion.input("x", [4, 6])
    kept = fusion.unary("exp", x).set_memory_type(Memory.REGISTER)
    total = fusion.reduce("sum", kept, [1], keepdims=True)
    moved = fusion.pad(fusion.slice(kept * 2.0, 1, 1, None), 1, 0, 1)
    y = fusion.output(kept / total + moved, "y")
    data = torch.randn(4, 6)
    e = data.double().exp()
    agree(lower(fusion, y), [data], e / e.sum(1, keepdim=True) + torch.nn.functional.pad(2 * e[:, 1:], (0, 1)))


# Errors of sums


def relative(got: torch.Tensor, want: torch.Tensor) -> float:
    return float((got.double() - want).abs() / want.abs())


@pytest.mark.parametrize("schedule", ["serial", "lanes", "threads"])
@pytest.mark.parametrize(
    ("name", "by_torch"),
    [("mean", torch.mean), ("sum", torch.sum), ("var", lambda x: torch.var(x, correction=0))],
)
def test_errors_are_no_greater_than_those_of_torch(
    name: str, by_torch: Callable[[torch.Tensor], torch.Tensor], schedule: str
) -> None:
    fusion = Fusion()
    y = fusion.output(fusion.reduce(name, fusion.input("x", ["n"]), [0]), "y")
    if schedule == "lanes":
        y.split(0, 8).parallelize(1, P.Simd)
    elif schedule == "threads":
        y.split(0, 16, inner_split=False).parallelize(0, P.Thread)
    lowered = lower(fusion, y)
    generator = torch.Generator().manual_seed(3)
    for data in (torch.full((20_000_000,), 0.1), torch.rand(5_000_000, generator=generator) + 10):
        want = by_torch(data.double())
        if want.abs() > 1e-9:
            ours, theirs = relative(lowered(data)[0], want), relative(by_torch(data), want)
            assert ours <= max(theirs, 3e-7), (ours, theirs)


# Parts of an axis end where the axis does


@each_length
@pytest.mark.parametrize("width", [2, 8])
def test_lanes_that_are_all_in_bounds_have_no_predicate(lengths: list[int], width: int) -> None:
    """First as many indices as have all lanes in bounds, then the lanes that are left."""
    fusion = Fusion()
    x = nested(fusion)
    y = fusion.output(fusion.unary("exp", x), "y")
    fusion.output(fusion.reduce("sum", x, [1]), "total")
    y.split(1, width).parallelize(0, P.Thread).parallelize(2, P.Simd)
    lowered = lower(fusion, y)
    data = torch.randn(sum(lengths))
    rows = rows_of(data, lengths)
    sums = torch.stack([row.sum() for row in rows]) if rows else torch.zeros(0)
    agree(lowered, [data, offsets_of(lengths)], data.double().exp(), sums)
    lanes = [s for s in walk(lowered.kernel.body) if isinstance(s, For) and s.axis.endswith(f"within {width}")]
    assert [any(isinstance(inside, If) for inside in walk(loop.body)) for loop in lanes] == [False, True]


@each_length
def test_a_serial_part_of_a_row_ends_with_the_row(lengths: list[int]) -> None:
    fusion = Fusion()
    y = fusion.output(fusion.unary("exp", nested(fusion)), "y").split(1, 16).split(2, 4)
    lowered = lower(fusion, y)
    data = torch.randn(sum(lengths))
    agree(lowered, [data, offsets_of(lengths)], data.double().exp())
    assert not any(isinstance(statement, If) for statement in walk(lowered.kernel.body))


@pytest.mark.parametrize("height", [4, 64])
def test_a_giant_row_is_reduced_by_tiles(height: int) -> None:
    """Tiles of all rows on threads, then the tiles of each row: as much work for each thread, whatever the lengths."""
    lengths = [2, 0, 1000, 3, 64]
    first, second = Fusion(), Fusion()
    part = first.reduce("sum", nested(first), [1]).split(1, height).rfactor(1)
    first.output(part, "part")
    first.output(first.offsets_of(part, ragged(part.domain.kept[1])))
    part.merge(0).split(1, 2).parallelize(0, P.Thread).parallelize(2, P.Simd)
    tiles = lower(first, part)
    total = second.output(second.reduce("sum", nested(second), [1]), "total").parallelize(0, P.Thread)
    data = torch.randn(sum(lengths))
    parts, places = tiles(data, offsets_of(lengths))
    assert len(parts) == sum(-(-length // height) for length in lengths)
    want = torch.stack([row.sum() for row in rows_of(data, lengths)])
    agree(lower(second, total), [parts, places], want)


@pytest.mark.parametrize("kind", [P.TIDx, P.BIDx])
def test_a_place_that_all_threads_share_holds_no_values(kind: P) -> None:
    """One thread would store the result while another still stores the value that is kept there."""
    fusion = Fusion()
    total = fusion.reduce("sum", fusion.input("x", ["n"]), [0])
    value = fusion.unary("exp", total)
    y = fusion.output(fusion.unary("erf", value), "y")
    value.keep_in(y)
    total.split(0, 4).parallelize(1, kind)
    with pytest.raises(ScheduleError, match=r"cannot be kept in y.*: all indices of loop r\w+Idx\.x_i_inner\{4\}"):
        lower(fusion, total, target="cuda")


def test_no_place_that_all_threads_share_is_chosen() -> None:
    fusion = Fusion()
    x = fusion.input("x", ["n", 4])
    value = fusion.unary("exp", fusion.unary("tanh", fusion.reduce("sum", x, [1])))
    fusion.output(value / fusion.reduce("sum", value, [0], keepdims=True), "z")
    wide = fusion.broadcast(value / fusion.reduce("max", value, [0], keepdims=True), [False, True])
    y = fusion.output(x * wide, "y")
    y.parallelize(1, P.TIDx)
    choose_kept(fusion, y, target="cuda")
    assert value.kept_in is None
    if can_lower(fusion, y, target="cuda"):
        check(lower(fusion, y, target="cuda"), [torch.randn(5, 4)])


@pytest.mark.parametrize("kind", [P.Thread, P.Simd])
def test_what_was_read_of_a_state_is_read_again_after_it_changed(kind: P) -> None:
    """Whether the greatest so far is not a number is asked before an element is taken in, and after it."""
    fusion = Fusion()
    y = fusion.output(fusion.reduce("argmax", fusion.input("x", ["n", 3]), [1]), "y").parallelize(1, kind)
    data = torch.tensor([[0.0, 1.0, math.nan], [0.0, math.nan, 1.0], [math.nan, 2.0, 1.0], [2.0, 1.0, 0.0]])
    agree(lower(fusion, y), [data], torch.tensor([2, 1, 0, 0]))
