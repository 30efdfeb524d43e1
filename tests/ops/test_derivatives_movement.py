"""Derivatives of what moves elements: every kind of key, of padding, joining and writing, by rules and by autograd.

The samples of the records are few; here are the attributes and the borders, first and second derivatives, and torch
applied to each row.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from tests.ops.samples import elements, leaves
from tests.ops.test_derivatives import compared, compared_twice

import serrate as sr
from serrate.ops.derivatives import pullback
from serrate.ops.record import TABLE


@dataclass
class Program:
    """A program over operations, and the operands it is differentiated by."""

    call: str
    function: Callable[..., Any]
    operands: list[sr.Tensor]
    phases: tuple[int, ...] = ()

    def __call__(self, *operands: sr.Tensor) -> Any:
        return self.function(*operands)


def derived(function: Callable[..., Any], *operands: Any) -> None:
    """Both derivatives of the program, and of it after a product, whose second derivative is not 0."""
    tensors = [each if isinstance(each, sr.Tensor) else sr.asarray(each) for each in operands]
    program = Program("the program", function, tensors)
    assert compared(program) == len(tensors)
    compared_twice(Program("the squares", lambda *given: function(*(x * x for x in given)), tensors))


def batch(*lengths: Any, features: tuple[int, ...] = (2,), seed: int = 0) -> sr.Tensor:
    last = lengths[-1]
    return sr.from_lengths(elements(sum(last), features, torch.float64, seed), list(lengths))


X = batch([2, 1, 3])
EMPTY = batch([0, 2, 0, 3])
NESTED = batch([2, 0, 1], [3, 0, 2])
PRODUCT = sr.from_product(
    elements(5, (2,), torch.float64), sr.Partition.from_lengths([2, 0, 1]), sr.Partition.from_lengths([1, 2, 3])
)
DENSE = sr.asarray(elements(3, (4, 2), torch.float64))
WHOLE = slice(None)


# ------------------------------------------------------------------------------------------------------- x[key]

KEYS: list[tuple[sr.Tensor, Any]] = [
    (X, 1),
    (X, -1),
    (X, (WHOLE, 0)),
    (X, (WHOLE, -1)),
    (X, (0, 1)),
    (X, slice(None, None, 2)),
    (X, slice(None, None, -1)),
    (EMPTY, (WHOLE, slice(1, None))),
    (EMPTY, (WHOLE, slice(-2, None))),
    (EMPTY, (WHOLE, slice(None, None, -2))),
    (X, (Ellipsis, 1)),
    (X, (None, WHOLE, None)),
    (X, (Ellipsis, slice(0, 0))),
    (X, (Ellipsis, [1, 0, 1])),
    (X, torch.tensor([2, 0, 2])),
    (X, torch.tensor([[2, 0], [1, 1]])),
    (X, [True, False, True]),
    (X, (torch.tensor([0, 2, 2]), torch.tensor([1, 0, 0]))),
    (X, X[..., 0] > 0.4),
    (X, sr.ragged([[1, 1, 0], [], [2]])),
    (NESTED, (WHOLE, slice(0, 1))),
    (NESTED, (slice(None, None, -1), WHOLE, slice(None, None, -1))),
    (NESTED, (0, WHOLE, slice(1, None))),
    (PRODUCT, (WHOLE, slice(0, 1), slice(None, None, -1))),
    (X.permute_dims((0, 2, 1)), (WHOLE, 1, slice(0, 2))),
    (DENSE, (torch.tensor([0, 0]), slice(None, None, -2))),
    (DENSE, DENSE.torch() > 0.5),
]


@pytest.mark.parametrize(("x", "key"), KEYS, ids=[str(i) for i in range(len(KEYS))])
def test_every_kind_of_key(x: sr.Tensor, key: Any) -> None:
    derived(lambda x: x[key], x)


@pytest.mark.parametrize(("x", "key"), KEYS, ids=[str(i) for i in range(len(KEYS))])
def test_a_value_is_written_at_every_kind_of_key(x: sr.Tensor, key: Any) -> None:
    def write(x: sr.Tensor, value: sr.Tensor) -> sr.Tensor:
        made = x.clone()
        made[key] = value
        return made

    there = x[key]
    if len(set(sr.numbered(x)[key].values.reshape(-1).tolist())) == there.values.numel():  # else any may win
        derived(write, x, sr.zeros_like(there) + 0.5)
    derived(write, x, sr.asarray(torch.tensor(0.5, dtype=torch.float64)))


# ------------------------------------------------------------------------------------------------------- writing


def test_programs_that_write_many_times() -> None:
    """torch refuses to differentiate what was overwritten; the rules give what the program on clones gives."""

    def writing(x: sr.Tensor, value: sr.Tensor) -> sr.Tensor:
        made = x * x
        before = sr.exp(made)
        made[:, :1] = value
        middle = made * before
        made[1:] = value * 2.0
        return middle + made * x

    def on_clones(x: sr.Tensor, value: sr.Tensor) -> sr.Tensor:
        made = x * x
        before = sr.exp(made)
        second = made.clone()
        second[:, :1] = value
        third = second.clone()
        third[1:] = value * 2.0
        return second * before + third * x

    operands = X, sr.asarray(torch.tensor([[[0.3, 0.7]]], dtype=torch.float64))
    derived(on_clones, *operands)
    out, back = pullback(writing, *operands)
    want, there = pullback(on_clones, *operands)
    assert out.tolist() == want.tolist()
    g = X._with(elements(6, (2,), torch.float64, 9))
    for mine, other in zip(back(g), there(g), strict=True):
        torch.testing.assert_close(mine.values, other.values)


def test_a_program_writes_to_its_operand() -> None:
    def write(x: sr.Tensor, value: sr.Tensor) -> sr.Tensor:
        before = x * 3.0
        x[0] = value
        x[:, 1:] = value * value
        return before + x

    x, value = sr.ragged([[1.0, 2.0], [4.0]]), sr.asarray(5.0)
    out, back = pullback(write, x, value)
    assert out.tolist() == [[8.0, 31.0], [16.0]]
    mine, other = back(sr.ones_like(out))
    assert mine.tolist() == [[3.0, 3.0], [4.0]]
    assert other.tolist() == 1.0 + 2 * 5.0


def test_a_value_has_further_axes_of_one_in_front() -> None:
    def write(x: sr.Tensor, value: sr.Tensor) -> sr.Tensor:
        made = x.clone()
        made[0, 0] = value
        return made

    derived(write, X, torch.ones(1, 1, 2, dtype=torch.float64))


@pytest.mark.parametrize("shape", [(), (2,), (3, 1, 1), (3, 1, 2)])
def test_copies_into_a_tensor(shape: tuple[int, ...]) -> None:
    derived(lambda x, other: x.clone().copy_(other) * x, X, torch.full(shape, 0.5, dtype=torch.float64))


def test_what_is_seen_twice_is_not_written_to() -> None:
    def write(x: sr.Tensor) -> sr.Tensor:
        made = x.clone()
        first = made[0]
        made[0] = 1.0
        return first

    with pytest.raises(TypeError, match="another one sees the same memory; write to a clone"):
        pullback(write, X)


def test_only_operations_that_say_so_write() -> None:
    assert [op.name for op in TABLE.values() if op.writes] == ["Tensor.setitem", "Tensor.copy_"]


# ------------------------------------------------------------------------------------------------------- the others

RAGGED_COUNTS = sr.ragged([[2, 0], [1], [3, 0, 1]])
P, Q = sr.Partition.from_lengths([1, 2]), sr.Partition.from_lengths([4, 1])
VALUES = elements(6, (2,), torch.float64)
PADDED = elements(3, (4, 2), torch.float64)
MASK = torch.tensor([[True, False, True, True], [False] * 4, [True] * 4])
PROGRAMS: dict[str, tuple[Any, ...]] = {
    "to_dense, padded": (lambda x: x.to_dense(7.0), EMPTY),
    "to_dense, cut": (lambda x: x.to_dense(0, 2), EMPTY),
    "to_dense, one axis of two": (lambda x: x.to_dense(0, None, 2), NESTED),
    "to_dense, one axis of two, cut": (lambda x: x.to_dense(1.0, 1, 1), PRODUCT),
    "to_dense, both axes named": (lambda x: x.to_dense(0, [2, 1], [2, 1]), PRODUCT),
    "to_dense, permuted": (lambda x: x.to_dense(0, 2), X.permute_dims((2, 0, 1))),
    "from_dense, longer rows": (lambda x: sr.from_dense(x, lengths=[6, 0, 3], padding_value=2.0), PADDED),
    "from_dense, offsets": (lambda x: sr.from_dense(x, offsets=[0, 1, 4, 4]), PADDED),
    "from_dense, mask": (lambda x: sr.from_dense(x, mask=MASK), PADDED),
    "from_dense, two masks": (lambda x: sr.from_dense(x, mask=(MASK, MASK[..., None].expand(3, 4, 2))), PADDED),
    "from_dense, like a product": (lambda x: sr.from_dense(x, like=PRODUCT), elements(3, (2, 2, 2), torch.float64)),
    "from_dense, like a permuted one": (lambda x: sr.from_dense(x, like=X.permute_dims((0, 2, 1))), PADDED.mT[:, :2]),
    "from_offsets, levels": (lambda x: sr.from_offsets(x, [[0, 2, 2], [0, 5, 6]]), VALUES),
    "from_lengths, levels": (lambda x: sr.from_lengths(x, [[0, 2], torch.tensor([5, 1])]), VALUES),
    "from_row_ids": (lambda x: sr.from_row_ids(x, [0, 0, 2, 2, 2, 3], 5), VALUES),
    "from_product": (lambda x: sr.from_product(x, P, Q), VALUES),
    "view_as_nested, inner": (lambda x: sr.view_as_nested(x, [0, 1, 4], 1), PADDED),
    "view_as_nested, each": (lambda x: sr.view_as_nested(x, [[0, 1, 4], [0, 4, 4], [0, 0, 4]], 1), PADDED),
    "flat": (lambda x: x.flat(), NESTED.permute_dims((0, 3, 1, 2))),
    "combine": (lambda x: x.combine(2), NESTED),
    "rows, some": (lambda x: x.rows()[2], X),
    "rows, nested": (lambda x: [row * 2.0 for row in x.rows()], NESTED),
    "unstack, some": (lambda x: sr.unstack(x, axis=2)[1], X),
    "split, some": (lambda x: sr.split(x, [1, 2], axis=1)[1], X),
    "split, sizes": (lambda x: sr.split(x, [1, 2], axis=0), X),
    "split, nested": (lambda x: sr.split(x, 1, axis=2), NESTED),
    "concat, rows": (lambda x, y: sr.concat([x, y, x], axis=1), X, batch([1, 0, 2], seed=3)),
    "concat, with a dense one": (lambda x, y: sr.concat([y, x], axis=1), X, torch.ones(3, 1, 2).double()),
    "concat, other raggedness": (lambda x, y: sr.concat([x, y], axis=0), X, EMPTY),
    "concat, packed": (lambda x, y: sr.concat([x, y], axis=None), X, PADDED),
    "concat, nested": (lambda x: sr.concat([x, x], axis=2), NESTED),
    "concat, product": (lambda x: sr.concat([x, x[:, :1]], axis=1), PRODUCT),
    "concat, promoted": (lambda x: sr.concat([x, sr.astype(x, torch.int64)], axis=-1), X),
    "stack, other raggedness": (lambda x, y: sr.stack([x, y], axis=0), X, batch([0, 4, 1], seed=3)),
    "repeat, counts": (lambda x: sr.repeat(x, torch.tensor([2, 0, 1]), axis=0), X),
    "repeat, ragged counts": (lambda x: sr.repeat(x, RAGGED_COUNTS, axis=1), X),
    "repeat, packed": (lambda x: sr.repeat(x, 3), X),
    "tile, new axes": (lambda x: sr.tile(x, (2, 1, 3, 1)), X),
    "tile, none": (lambda x: sr.tile(x, (1, 0, 2)), X),
    "roll, packed": (lambda x: sr.roll(x, 4), X),
    "roll, several": (lambda x: sr.roll(x, (1, -1), axis=(1, 2)), EMPTY),
    "flip, several": (lambda x: sr.flip(x, axis=(0, -1)), NESTED),
    "squeeze, several": (lambda x: sr.squeeze(x[None, ..., None], axis=(0, -1)), X),
    "broadcast_to, new ragged axes": (lambda x: sr.broadcast_to(x, X.shape), torch.ones(3, 1, 1).double()),
    "broadcast_arrays": (lambda x, y: sr.broadcast_arrays(x, y), X, torch.ones(2).double()),
    "full": (lambda v: sr.full(X.shape, v), torch.tensor(2.0).double()),
    "full, promoted": (lambda v: sr.full(X.shape, v, dtype=torch.complex128), torch.tensor(2.0).double()),
    "full_like": (lambda v: sr.full_like(X, v) * X, torch.tensor(2.0).double()),
    "meshgrid": (lambda x, y: sr.meshgrid(x, y), torch.ones(2).double(), torch.ones(3).double()),
    "tril": (lambda x: sr.tril(x, k=-1), PRODUCT[..., 0]),
    "triu, permuted": (lambda x: sr.triu(x, k=1), X.permute_dims((2, 0, 1))),
    "to, complex": (lambda x: x.to(torch.complex128), X),
    "to, real": (lambda x: x.to(torch.complex128).to(torch.float64), X),
    "take, filled": (lambda x: sr.take(x, [0, -2, 5], axis=1, fill=3.0), EMPTY),
    "take, one": (lambda x: sr.take(x, -1, axis=1, fill=3.0), EMPTY),
    "take, rows": (lambda x: sr.take(x, [2, 2, 7], axis=0, fill=3.0), X),
    "take, features": (lambda x: sr.take(x, [1, 1, -9], axis=2, fill=3.0), X),
    "take, vector": (lambda x: sr.take(x, torch.tensor([3, 3, 0])), VALUES[:, 0]),
    "take_along_axis": (lambda x: sr.take_along_axis(x, torch.tensor([-1, 0, 0]).view(1, 3, 1), axis=1), X),
    "take_along_axis, nested": (lambda x: sr.take_along_axis(x, torch.zeros(1, 1, 1, 3).long(), axis=3), NESTED),
    "gather, shorter": (lambda x: sr.gather(x, torch.zeros(2, 2, 1).long(), axis=1), PADDED),
    "index_add": (lambda x, s: sr.index_add(x, [0, -1, 0], s, axis=1, alpha=2.5), X, PADDED[:, :3]),
    "index_add, rows": (lambda x, s: sr.index_add(x, [2, 0, 2], s, axis=0), X, elements(1, (1, 2), torch.float64)),
    "index_add, one": (lambda x, s: sr.index_add(x, -1, s, axis=2), X, torch.tensor(0.5).double()),
    "group_by": (lambda x: sr.group_by(x, torch.tensor([1, -1, 0, 1, 1, 0]), 3), VALUES),
    "group_by, several": (lambda x: sr.group_by(x, torch.tensor([[0, 1], [-1, 2], [2, 2]] * 2), 3), VALUES),
    "group_by, ragged": (lambda x: sr.group_by(x, sr.positions(x) % 2, 2), EMPTY),
    "segment_prod, zeros": (
        lambda x: sr.segment_prod(x, torch.tensor([0, 0, 0, 1, 1, 3]), 4),
        torch.tensor([2.0, 0.0, 3.0, 0.0, 0.0, 0.0]).double(),
    ),
    "segment_softmax": (lambda x: sr.segment_softmax(x, torch.tensor([3, 0, 3, 1, 0, 3]), 4), VALUES),
    "segment_mean": (lambda x: sr.segment_mean(x, torch.tensor([1, 0, 1, 1, 0, 1]), 2), VALUES),
    "bincount": (lambda w: sr.bincount(sr.ragged([[0, 2, 2], [], [1]]), weights=w), batch([3, 0, 1], features=())),
    "bincount, rows": (
        lambda w: sr.bincount(sr.ragged([[0, 2, 2], [], [1]]), weights=w, axis=1), batch([3, 0, 1], features=()),
    ),
    "bincount, one weight": (
        lambda w: sr.bincount(sr.ragged([[0, 2, 2], [], [1]]), weights=w), torch.ones(1, 1).double(),
    ),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:Casting complex values to real")
@pytest.mark.parametrize("name", PROGRAMS)
def test_attributes_and_borders(name: str) -> None:
    derived(*PROGRAMS[name])


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("reduce", [None, "sum", "mean", "prod", "amax", "amin"])
def test_every_way_to_scatter(reduce: str | None, include_self: bool) -> None:
    indices = sr.from_lengths(torch.tensor([[1, 0], [0, 0], [2, 0], [2, 1], [2, 1]]), [2, 0, 3])
    indices = sr.from_lengths(torch.tensor([[1, 0], [0, 1], [0, 0]]), [2, 0, 1]) if reduce is None else indices
    x = batch([2, 1, 3], seed=1)
    if reduce == "prod":
        x = x._with(torch.where(torch.arange(12).view(6, 2) % 5 == 0, 0, x.values))
    source = sr.from_lengths(elements(indices.values.shape[0], (2,), torch.float64, 5), indices.partitions[0].lengths)
    given = {"axis": 1, "reduce": reduce, "include_self": include_self}
    for src in (source, sr.asarray(torch.tensor(0.5).double())):
        assert compared(Program(f"scatter {reduce}", lambda x, s: sr.scatter(x, indices, s, **given), [x, src])) == 2
    if reduce != "prod":  # of which torch has no second derivative at 0
        compared_twice(Program("again", lambda x, s: sr.scatter(x * x, indices, s * s, **given), [x, source]))


@pytest.mark.parametrize("reduce", ["amax", "amin"])
def test_elements_that_are_equal_share_the_gradient_of_the_extreme(reduce: str) -> None:
    indices = sr.from_lengths(torch.tensor([0, 0, 1, 0]), [2, 1, 1])
    x = sr.from_lengths(torch.tensor([1.0, 2.0, 3.0, 1.0]).double(), [1, 2, 1])
    out, back = pullback(lambda x, s: sr.scatter(x, indices, s, axis=1, reduce=reduce), x, sr.ones_like(indices) * 1.0)
    mine, other = back(sr.ones_like(out) * 6.0)
    smaller = reduce == "amin"  # 3 and 1 meet in the second row
    assert mine.tolist() == [[2.0], [6.0, 0.0 if smaller else 6.0], [3.0]]
    assert other.tolist() == [[2.0, 2.0], [6.0 if smaller else 0.0], [3.0]]


def test_products_that_are_scattered_have_second_derivatives() -> None:
    indices = sr.from_lengths(torch.tensor([0, 0, 1, 0]), [2, 1, 1])
    x, source = batch([1, 2, 1], features=()), batch([2, 1, 1], features=(), seed=4)
    program = Program("prod", lambda x, s: sr.scatter(x, indices, s, axis=1, reduce="prod"), [x, source])
    assert compared(program) == 2
    compared_twice(program)


@pytest.mark.parametrize("weighted", [False, True])
def test_entries_that_come_back(weighted: bool) -> None:
    keys, weights = torch.tensor([[0, 1], [-1, 2], [2, 2]] * 2), elements(6, (2,), torch.float64, 3)
    g = sr.group_by(VALUES, keys, 3, weights=weights if weighted else None)
    derived(lambda y: g.ungroup(y), g * 1.0)
    derived(lambda y: g.ungroup(y), (g * 1.0)[..., None, :])
    derived(lambda y: g.ungroup(y), (g * 1.0).permute_dims((0, 2, 1)))
    derived(lambda y: g.ungroup(y), (g * 1.0).permute_dims((2, 0, 1)))
    derived(lambda y: g.ungroup(y), (g * 1.0)[..., 0])
    ragged = sr.group_by(EMPTY, sr.positions(EMPTY) % 2, 2)
    derived(lambda x: (lambda g: g.ungroup(g * g))(sr.group_by(x, sr.positions(x) % 2, 2)), EMPTY)
    derived(lambda y: ragged.ungroup(y), ragged * 1.0)


# ------------------------------------------------------------------------------------------------------- weights


def weighted(x: sr.Tensor, copies: int | None, each: str) -> tuple[Any, sr.Tensor]:
    """Keys for the rows of x, of which some are dropped, and weights for each copy or for each row."""
    if x.is_ragged:
        packed = len(x.structure.axes)
        of_rows = sr.Tensor(x.values.new_zeros(x.values.shape[0]), x.structure, tuple(c for c in x.order if c < packed))
    else:
        of_rows = sr.zeros(tuple(x.shape[: max(x.ndim - 1, 1)]))
    of_copies = of_rows if copies is None else of_rows[..., None] + torch.zeros(copies)
    keys = torch.randint(-1, 3, (of_copies.values.numel(),), generator=torch.Generator().manual_seed(7))
    like = of_rows if each == "row" else of_copies
    values = elements(like.values.numel(), (), torch.float64, 8).view(like.values.shape)
    return of_copies._with(keys.view(of_copies.values.shape)), like._with(values)


BLOCKS = sr.from_product(
    elements(10, (2,), torch.float64), sr.Partition.from_lengths([2, 0, 2]), sr.Partition.from_lengths([2, 3, 3])
)
WEIGHTED = {
    "dense": sr.asarray(VALUES),
    "several axes": DENSE,
    "numbers": sr.asarray(VALUES[:, 0].clone()),
    "ragged": EMPTY,
    "no features": EMPTY[..., 1],
    "nested": NESTED,
    "product": PRODUCT,
    "blocks": BLOCKS,
    "blocks, permuted": BLOCKS.permute_dims((0, 2, 3, 1)),
    "permuted": X.permute_dims((0, 2, 1)),
    "features first": X.permute_dims((2, 0, 1)),
    "nested, features first": NESTED.permute_dims((3, 0, 1, 2)),
    "zero-size features": X[..., :0],
    "no rows": X[:0],
    "one row": X[1:2],
}
KINDS = [(None, "copy"), (2, "copy"), (2, "row"), (1, "row"), (0, "copy")]


@pytest.mark.parametrize(("copies", "each"), KINDS)
@pytest.mark.parametrize("name", WEIGHTED)
def test_weights_of_entries_that_come_back(name: str, copies: int | None, each: str) -> None:
    x = WEIGHTED[name]
    if not x.is_ragged and x.ndim == 1 and copies is None:  # keys with as many axes as values are those of copies
        x = x[:, None]
    keys, weights = weighted(x, copies, each)

    def squares(x: sr.Tensor, w: sr.Tensor) -> sr.Tensor:
        g = sr.group_by(x, keys, 3, weights=w)
        return g.ungroup(g * g)

    derived(squares, x, weights)
    made, back = pullback(squares, x, weights)
    _, gradient = back(sr.ones_like(made))
    assert gradient.shape == weights.shape
    assert gradient.dtype == weights.dtype


@pytest.mark.parametrize(("copies", "each"), KINDS)
@pytest.mark.parametrize("name", ["dense", "several axes", "ragged", "nested"])
def test_weights_have_the_gradients_of_a_loop_over_rows(name: str, copies: int | None, each: str) -> None:
    x = WEIGHTED[name]
    keys, weights = weighted(x, copies, each)
    rows = x.values if x.is_ragged else x.values.flatten(0, -2)
    given = weights.values.reshape(len(rows), -1).clone().requires_grad_()
    out = [torch.zeros(rows.shape[1]).double() for _ in rows]
    for n, (row, groups) in enumerate(zip(rows, keys.values.reshape(len(rows), -1).tolist(), strict=True)):
        for copy, key in enumerate(groups):
            if key >= 0:
                out[n] = out[n] + (given[n, 0] if each == "row" else given[n, copy]) * (key + 1) * row.sin()
    factors = sr.asarray(torch.tensor([1.0, 2.0, 3.0]).double())[:, None, None]

    def program(w: sr.Tensor) -> sr.Tensor:
        g = sr.group_by(x, keys, 3, weights=w)
        return g.ungroup(sr.sin(g) * factors)

    made, back = pullback(program, weights)
    want = torch.stack(out)
    torch.testing.assert_close(made.values.reshape(want.shape), want.detach())
    direction = torch.linspace(0.5, 2.0, want.numel()).double().view(want.shape)
    (gradient,) = back(made._with(direction.view(made.values.shape)))
    if want.requires_grad:
        (wanted,) = torch.autograd.grad(want, given, direction)
        torch.testing.assert_close(gradient.values.reshape(wanted.shape), wanted)
        dropped = keys.values.reshape(len(rows), -1) < 0
        assert (gradient.values.reshape(wanted.shape)[dropped.all(1) if each == "row" else dropped] == 0).all()


@pytest.mark.parametrize("each", ["copy", "row"])
def test_entries_of_other_features_and_their_weights(each: str) -> None:
    for x in (X, sr.asarray(VALUES)):
        keys, weights = weighted(x, 2, each)

        def program(change: Callable[[Any], Any], x: sr.Tensor = x, keys: Any = keys) -> Callable[..., Any]:
            def function(w: sr.Tensor, v: sr.Tensor) -> sr.Tensor:
                g = sr.group_by(v, keys, 3, weights=w)
                return g.ungroup(change(g))

            return function

        derived(program(lambda g: g[..., 0]), weights, x)
        derived(program(lambda g: g[..., None] * torch.tensor([1.0, 2.0, 3.0]).double()), weights, x)
        derived(program(lambda g: (g * 1.0).permute_dims((2, 0, 1))), weights, x)
        derived(program(lambda g: g * g.weights[..., None]), weights, x)
        derived(lambda w, x=x, keys=keys: sr.group_by(x, keys, 3, weights=w).weights, weights)


@pytest.mark.parametrize(
    ("values", "weights"),
    [
        (torch.float64, torch.complex128),
        (torch.complex128, torch.float64),
        (torch.complex128, torch.complex128),
        (torch.float32, torch.float64),
        (torch.bfloat16, torch.float32),
        (torch.float16, torch.float16),
        (torch.int64, torch.float64),
    ],
    ids=str,
)
@pytest.mark.parametrize("each", ["copy", "row"])
def test_weights_of_every_dtype(values: torch.dtype, weights: torch.dtype, each: str) -> None:
    """The gradients of autograd, in the dtypes of the operands."""
    keys, like = weighted(X, 2, each)
    w = like.values
    w = (torch.complex(w, w.flip(0)) if weights.is_complex else w).to(weights).requires_grad_()
    v = X.values * 8
    v = (torch.complex(v, v.flip(0)) if values.is_complex else v).to(values)

    def program(w: sr.Tensor, v: sr.Tensor) -> sr.Tensor:
        g = sr.group_by(v, keys, 3, weights=w)
        return g.ungroup(g * 2)

    asked = [w, v.requires_grad_()] if values.is_floating_point or values.is_complex else [w]
    made = program(like._with(w), X._with(v)).values
    direction = torch.linspace(0.5, 2.0, made.numel()).view(made.shape).to(made.dtype)
    want = torch.autograd.grad(made, asked, direction)
    again, back = pullback(program, like._with(w.detach()), X._with(v.detach()))
    got = back(again._with(direction))
    for mine, theirs in zip(got, want, strict=False):
        assert mine.dtype == theirs.dtype
        torch.testing.assert_close(mine.values, theirs)
    assert len(want) == 2 or got[1] is None
    whole = like._with(torch.ones(like.values.shape, dtype=torch.int64))
    assert pullback(program, whole, X)[1](X * 1.0)[0] is None


def test_weights_that_are_stored_in_another_order() -> None:
    """They are stored by the other of two ragged axes, and meet the rows as they are seen."""
    keys = sr.positions(BLOCKS, 0)[..., None] % torch.tensor([2, 3]) - 1
    for features in ((), (2,)):
        weights = sr.from_product(
            elements(10, features, torch.float64, 3),
            sr.Partition.from_lengths([2, 3, 3]),
            sr.Partition.from_lengths([2, 0, 2]),
        ).permute_dims((0, 2, 1, *range(3, 3 + len(features))))
        derived(lambda x, w: (lambda g: g.ungroup(g * g))(sr.group_by(x, keys, 2, weights=w)), BLOCKS, weights)
        derived(lambda w: sr.group_by(BLOCKS, keys, 2, weights=w).weights, weights)


def test_weights_are_written_between_the_two() -> None:
    """What comes back is weighted with what weights are then, as it is by autograd on clones."""
    keys, weights = weighted(X, 2, "copy")

    def writing(w: sr.Tensor, v: sr.Tensor) -> sr.Tensor:
        made = w * w
        g = sr.group_by(X, keys, 3, weights=made)
        before = g.ungroup(g * 1.0)
        made[:, :1] = v
        return before * 3.0 + g.ungroup(g * g)

    def on_clones(w: sr.Tensor, v: sr.Tensor) -> sr.Tensor:
        made, other = w * w, (w * w).clone()
        other[:, :1] = v
        g, h = sr.group_by(X, keys, 3, weights=made), sr.group_by(X, keys, 3, weights=other)
        return g.ungroup(g * 1.0) * 3.0 + h.ungroup(h * h)

    value = sr.asarray(torch.tensor(0.5).double())
    out, back = pullback(writing, weights, value)
    want, way = pullback(on_clones, weights, value)
    derived(on_clones, weights, value)
    torch.testing.assert_close(out.values, want.values)
    for mine, theirs in zip(back(sr.ones_like(out)), way(sr.ones_like(want)), strict=True):
        torch.testing.assert_close(mine.values, theirs.values)


def test_weights_of_rows_that_are_undefined() -> None:
    """The same gradients as for lengths that the host knows; NaN in spare or dropped rows reaches no other weight."""
    keys, weights = weighted(X, 2, "copy")
    born = sr.testing.device_born(X, spare=2)

    def roomy(x: sr.Tensor, filling: float) -> sr.Tensor:
        more = torch.full((2, *x.values.shape[1:]), filling).to(x.dtype)
        return sr.Tensor(torch.cat([x.values, more]), born.structure, x.order)

    def program(keys: Any) -> Callable[..., Any]:
        def function(x: sr.Tensor, w: sr.Tensor) -> sr.Tensor:
            g = sr.group_by(x, keys, 3, weights=w)
            return g.ungroup(g * g)

        return function

    spoilt = weights._with(torch.where(keys.values < 0, torch.nan, weights.values))
    out, back = pullback(program(keys), X, weights)
    made, again = pullback(program(roomy(keys, 1)), roomy(X, torch.nan), roomy(spoilt, torch.nan))
    assert made.tolist() == out.tolist()
    for mine, theirs in zip(again(sr.ones_like(made)), back(sr.ones_like(out)), strict=True):
        torch.testing.assert_close(mine.values[:6], theirs.values)


def test_transforms_of_torch_differentiate_by_weights() -> None:
    keys, weights = weighted(sr.asarray(VALUES), 2, "row")

    def loss(w: torch.Tensor) -> torch.Tensor:
        g = sr.group_by(VALUES, keys, 3, weights=w)
        return g.ungroup(g * g).torch().sum()

    def by_rules(w: sr.Tensor) -> sr.Tensor:
        g = sr.group_by(VALUES, keys, 3, weights=w)
        return sr.sum(g.ungroup(g * g))

    (want,) = pullback(by_rules, weights)[1](sr.asarray(torch.tensor(1.0).double()))
    torch.testing.assert_close(torch.func.grad(loss)(weights.torch()), want.torch())
    torch.testing.assert_close(torch.func.jacfwd(loss)(weights.torch()), want.torch())
    many = torch.stack([weights.torch(), weights.torch() * 2])
    torch.testing.assert_close(torch.vmap(torch.func.grad(loss))(many), want.torch().expand(2, -1))


@pytest.mark.parametrize("wrong", ["missing", "one copy", "weights"])
def test_a_wrong_rule_of_weights_is_found(monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    right = TABLE["Grouped.ungroup"].vjp
    assert callable(right)

    def rule(gradient: Any, out: Any, g: Any, y: Any, weights: Any) -> Any:
        made = right(gradient, out, g, y, weights)
        if wrong == "weights":
            return None, right(gradient, out, g, y, None)[1], made[2]
        return (*made[:2], None if wrong == "missing" else made[2] * 0.5)

    monkeypatch.setitem(TABLE, "Grouped.ungroup", dataclasses.replace(TABLE["Grouped.ungroup"], vjp=rule))
    with pytest.raises(AssertionError):
        test_weights_of_entries_that_come_back("ragged", 2, "row")


# ------------------------------------------------------------------------------------------------------- row by row

INDEX = sr.ragged([[1, 0, 1], [], [0], [2, 2]])
LONG = batch([2, 0, 1, 4], features=())
ROWS: dict[str, tuple[Callable[..., Any], Callable[..., torch.Tensor]]] = {
    "slice": (lambda x: x[:, 1:3], lambda row, i: row[1:3]),
    "reverse": (lambda x: x[:, ::-2], lambda row, i: row.flip(0)[::2]),
    "flip": (lambda x: sr.flip(x, axis=1), lambda row, i: row.flip(0)),
    "roll": (lambda x: sr.roll(x, 3, axis=1), lambda row, i: row.roll(3) if len(row) else row),
    "repeat": (lambda x: sr.repeat(x, 2, axis=1), lambda row, i: row.repeat_interleave(2)),
    "tile": (lambda x: sr.tile(x, (2,)), lambda row, i: row.repeat(2)),
    "concat": (lambda x: sr.concat([x, x * x], axis=1), lambda row, i: torch.cat([row, row * row])),
    "gather": (lambda x: sr.gather(x, INDEX, axis=1), lambda row, i: row[INDEX[i].torch()]),
    "mask": (lambda x: x[x > 0.4], lambda row, i: row[row > 0.4]),
    "scatter": (
        lambda x: sr.scatter(x, INDEX, sr.astype(INDEX, torch.float64) + 2.0, axis=1, reduce="prod"),
        lambda row, i: row.scatter_reduce(0, INDEX[i].torch(), INDEX[i].torch().double() + 2.0, "prod"),
    ),
    "take": (
        lambda x: sr.take(x, -1, axis=1, fill=0.0)[:, None] * x,
        lambda row, i: row[-1:] * row,
    ),
    "pad and pack": (lambda x: sr.from_dense(x.to_dense(), like=x) * x, lambda row, i: row * row),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_torch_on_each_row_has_the_same_gradient(name: str) -> None:
    by_batch, by_row = ROWS[name]
    rows = [row.clone().requires_grad_() for row in leaves(LONG)]
    made = [by_row(row, i) for i, row in enumerate(rows)]
    out, back = pullback(by_batch, LONG)
    assert [row.tolist() for row in leaves(out)] == [row.tolist() for row in made]
    g = out._with(torch.linspace(0.5, 2.0, out.values.numel(), dtype=torch.float64))
    given = [(row, each) for row, each in zip(made, leaves(g), strict=True) if row.requires_grad]
    want = torch.autograd.grad(
        [row for row, _ in given], rows, [each for _, each in given], allow_unused=True, materialize_grads=True
    )
    (got,) = back(g)
    for mine, theirs in zip(leaves(got), want, strict=True):
        torch.testing.assert_close(mine, theirs)


# ------------------------------------------------------------------------------------------------------- spare room


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x[:, 1:],
        lambda x: x[:, ::-1],
        lambda x: x[..., 0],
        lambda x: x.to_dense(0, 3),
        lambda x: sr.concat([x, x], axis=1),
        lambda x: sr.repeat(x, 2, axis=1),
        lambda x: sr.tile(x, (1, 2, 1)),
        lambda x: sr.take(x, [0, 1], axis=1, fill=0.0),
        lambda x: sr.split(x, [1, 2], axis=1)[0],
        lambda x: sr.tril(x),
        lambda x: sr.scatter(x, sr.expand_like(sr.positions(x), x, axis=2), 2.0, axis=1, reduce="prod"),
    ],
)
def test_lengths_born_on_a_device_and_room_for_more(function: Callable[..., Any]) -> None:
    """The same gradients as for lengths that the host knows; what is undefined is NaN and reaches nothing."""
    born = sr.testing.device_born(X, spare=3)
    values = torch.full((X.values.shape[0] + 3, 2), float("nan"), dtype=torch.float64)
    values[: X.values.shape[0]] = X.values
    out, back = pullback(function, X)
    (want,) = back(sr.ones_like(out) * 1.5)
    made, again = pullback(function, born._with(values))
    (got,) = again(sr.ones_like(made) * 1.5)
    torch.testing.assert_close(got.values[: X.values.shape[0]], want.values)


def test_a_wrong_rule_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = dataclasses.replace(TABLE["repeat"], vjp=lambda g, out, x, repeats, **_: (2 * x, None))
    monkeypatch.setitem(TABLE, "repeat", wrong)
    with pytest.raises(AssertionError):
        derived(lambda x: sr.repeat(x, 2, axis=1), X)
