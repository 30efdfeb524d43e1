"""Every operation of the table on permuted views: what is seen counts, not how it is stored.

Three oracles, each with a storage of its own: a dense tensor with the elements of rows of one length; the same nested
rows stored in the order they are seen in; and the operation along the same axis before the axes were permuted.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from tests.ops.enumeration import seen
from tests.ops.matrix import arguments, result_of
from tests.ops.samples import DTYPES, elements
from tests.oracle import _cells

import serrate as sr
from serrate.ops.record import TABLE, Op

# What does not depend on the elements, shows how they are packed, or draws them by their place in packed storage.
UNTOLD = {
    *("empty", "empty_like", "Tensor.flat", "numbered", "dropout"),
    *("random.uniform", "random.normal", "random.exponential", "random.randint", "random.bernoulli"),
    "random.bits",
}
# Samples whose result counts packed elements, as docs/semantics.md says, or fills what has no meaning in dense tensors.
PACKED = {
    ("argmax", "x"),
    ("argmin", "x"),
    ("unique_all", "x"),
    ("group_by", "x, sr.positions(x, 0) % 2, 2"),
    ("take", "x, [0, -3], axis=-1, fill=0"),
    ("collect", "x, sr.numbered(x) // 2 - 1, x"),
    ("distribute", "x, sr.numbered(x) // 2 - 1, x"),
}
# Samples that tell ragged axes and features apart, which are alike in a dense tensor: rows are cut, filtered or
# shuffled each for itself, and features have no mask.
OF_ROWS = {
    ("Tensor.getitem", "x, x == x"),
    ("Tensor.to_dense", "x, 0, 1"),
    ("Tensor.mask", "x"),
    ("Tensor.mask", "x, 1"),
    ("random.shuffle", "x, 1, key=sr.random.Key(1)"),
    ("random.shuffle", "x, 0, key=sr.random.Key(1)"),
}
# Refusals of what only a dense tensor can do; each is documented.
REFUSED = {
    "Tensor.rows": "the first axis of shape .* is ragged; permute another to the front",
    "unstack": "takes a uniform axis apart",
    "bincount": "needs minlength",
    "searchsorted": "goes along an axis that no other depends on",
    "attention": "different raggedness",
    "matmul": "have different raggedness",
    "outer": "have different raggedness",
}
# Samples that no dense tensor has.
RAGGED_ONLY = {"group_by", "Grouped.ungroup", "Tensor.mask", "random.shuffle", "positions"}
OPS = [op for op in TABLE.values() if op.name not in UNTOLD]


def build(shape: tuple[Any, ...], dtype: torch.dtype, seed: int = 0) -> sr.Tensor:
    """A tensor of this shape with elements that differ."""
    made = sr.zeros(shape, dtype=dtype)
    return made._with(elements(made.values.shape[0], tuple(made.values.shape[1:]), dtype, seed))


def births(x: sr.Tensor) -> list[sr.Tensor]:
    """The tensor with lengths that the host knows, and with lengths that it does not know, and undefined rows."""
    return [x, sr.testing.device_born(x, spare=3 if x.values.shape[0] else 0)]


def texts(op: Op) -> list[str]:
    """The samples that ask for nothing but the tensor as it is seen."""
    return [text for text in op.samples if not any(part in text for part in ("x.values", "len(x)", "x.shape[-1]"))]


def run(op: Op, text: str, x: sr.Tensor) -> list[Any]:
    """All tensors of the result; numbers as they are."""
    args, options = arguments(text, x)
    made = result_of(op, args, options)
    sr.testing.raise_deferred()
    return list(made) if isinstance(made, tuple | list) else [made]


def needs_the_host(op: Op, text: str, x: sr.Tensor) -> bool:
    """Whether the call is refused because only the device knows how many bins there are."""
    return op.name == "bincount" and "axis" in text and "minlength" not in text and not x.structure.is_host_born


def lengths(x: sr.Tensor) -> dict[Any, int]:
    """The length of each component of each ragged axis, by the positions along its parents, in whatever order."""
    found: dict[Any, int] = {}
    for c, axis in enumerate(x.structure.axes):
        if isinstance(axis, sr.Ragged):
            parents = [x.order.index(p) for p in axis.parents]
            for cell, length in zip(_cells(x.structure.axes, axis.parents), axis.lengths.tolist(), strict=False):
                found[x.order.index(c), frozenset(zip(parents, cell, strict=True))] = length
    return found


def assert_seen_alike(got: list[Any], want: list[Any], where: Any, ragged: bool = True) -> None:
    """The same elements at the same positions, and (`ragged`) the same lengths, of components without cells too."""
    assert len(got) == len(want), where
    for mine, other in zip(got, want, strict=True):
        if not isinstance(other, sr.Tensor):
            assert mine == other, where
            continue
        assert mine.dtype == other.dtype, where
        assert not ragged or lengths(mine) == lengths(other), where
        found, wanted = seen(mine), seen(other)
        assert found.keys() == wanted.keys(), where
        for index, value in wanted.items():
            assert found[index] == pytest.approx(value, rel=1e-6, abs=1e-9, nan_ok=True), (where, index)


# ------------------------------------------------------------------------------------------------ rows of one length

ALIKE: dict[str, tuple[Any, ...]] = {
    "rows": (3, sr.Ragged([2] * 3)),
    "features": (3, sr.Ragged([2] * 3), 4),
    "two features": (2, sr.Ragged([3] * 2), 4, 5),
    "product": (3, sr.Ragged([2] * 3), sr.Ragged([4] * 3)),
    "two levels": (3, sr.Ragged([2] * 3), sr.Ragged([4] * 6, (0, 1))),
    "heads": (2, 3, sr.Ragged([4] * 6, (0, 1))),
}


def views_of_equal_rows(op: Op) -> Iterator[tuple[str, sr.Tensor]]:
    for name, shape in ALIKE.items():
        plain = build(shape, DTYPES[op.kinds[0]][0])
        orders = list(itertools.permutations(range(plain.ndim)))[1:]
        few = 5 if op.family in ("elementwise", "activations") else 2 if plain.ndim < 4 else 7
        for axes in orders[::few]:
            yield f"{name} {axes}", plain.permute_dims(axes)


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_equal_rows_of_a_view_give_what_a_dense_tensor_gives(op):
    ran = 0
    for name, view in views_of_equal_rows(op):
        dense = sr.Tensor(view.to_dense().torch().contiguous())
        for text in texts(op):
            if (op.name, text) in PACKED | OF_ROWS:
                continue
            if op.name == "embedding_bag":  # the last ragged axis, which is the last axis of the dense tensor
                axis = max(a for a, size in enumerate(view.shape) if isinstance(size, sr.Ragged))
                dense = sr.Tensor(view.to_dense().torch().movedim(axis, -1).contiguous())
            try:
                want = run(op, text, dense)
            except (ValueError, IndexError, TypeError):
                continue  # these sizes do not fit the sample
            for x in births(view):
                try:
                    got = run(op, text, x)
                except (ValueError, IndexError, TypeError) as error:
                    if not re.search(REFUSED.get(op.name, "^$"), str(error)):
                        raise
                    continue
                assert_seen_alike(got, want, (op.name, text, name), ragged=False)
                ran += 1
    assert ran or not texts(op) or op.name in RAGGED_ONLY, "nothing compared"


# ------------------------------------------------------------------------------------------------ stored as seen


def twice() -> Iterator[tuple[str, Any]]:
    """The same nested rows in two storages, as functions of the dtype: seen through a view, and stored as seen."""

    def features(dtype: torch.dtype) -> tuple[sr.Tensor, sr.Tensor]:
        plain = build((4, sr.Ragged([3, 0, 1, 2]), 3, 2), dtype)
        view = plain.permute_dims((0, 1, 3, 2))
        return view, view.contiguous()

    def product(dtype: torch.dtype) -> tuple[sr.Tensor, sr.Tensor]:
        q, k = sr.Partition.from_lengths([2, 0, 3, 3]), sr.Partition.from_lengths([3, 2, 2, 0])
        plain = sr.from_product(elements(12, (), dtype), q, k)
        rows = [plain[i].torch().mT.reshape(-1) for i in range(4)]
        return plain.mT, sr.from_product(torch.cat(rows), k, q)

    yield "features", features
    yield "product", product


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_a_view_gives_what_the_same_rows_give_that_are_stored_so(op):
    for name, make in twice():
        view, stored = make(DTYPES[op.kinds[0]][0])
        assert (view.shape, view.order != stored.order) == (stored.shape, True)
        for text in texts(op):
            if (op.name, text) in PACKED:
                continue
            try:
                want = run(op, text, stored)
            except (ValueError, IndexError) as error:
                for x in births(view):
                    with pytest.raises(type(error)):
                        run(op, text, x)
                continue
            for x in births(view):
                if not needs_the_host(op, text, x):
                    assert_seen_alike(run(op, text, x), want, (op.name, text, name))


# ------------------------------------------------------------------------------------------------ along the same axis

# More calls along an axis than the samples of the records have.
MORE: dict[str, tuple[str, ...]] = {
    "gather": ("x, sr.argsort(x, axis=AXIS), axis=AXIS",),
    "take_along_axis": ("x, sr.argsort(x, axis=AXIS), axis=AXIS",),
    "scatter": ("x, sr.argsort(x, axis=AXIS), x, axis=AXIS", "x, sr.argsort(x, axis=AXIS), x, axis=AXIS, reduce='sum'"),
    "sort": ("x, axis=AXIS, descending=True",),
    "topk": ("x, 9, axis=AXIS, largest=False",),
    "repeat": ("x, 2, axis=AXIS", "x, 0, axis=AXIS"),
    "random.shuffle": ("x, axis=AXIS, key=sr.random.Key(1)",),
    "roll": ("x, 1, axis=AXIS",),
    "flip": ("x, axis=AXIS",),
    "concat": ("[x, x], axis=AXIS",),
    "searchsorted": ("sr.sort(x, axis=AXIS), x, axis=AXIS",),
    "bincount": ("x % 5, axis=AXIS, minlength=5",),
    "vecdot": ("x, x, axis=AXIS",),
    "norm": ("x, axis=AXIS, ord=1",),
}
UNEQUAL: dict[str, tuple[Any, ...]] = {
    "features": (4, sr.Ragged([3, 0, 1, 2]), 2),
    "product": (3, sr.Ragged([2, 0, 3]), sr.Ragged([3, 2, 2])),
    "product of features": (3, sr.Ragged([2, 3, 1]), sr.Ragged([2, 0, 3]), 2),
    "two levels": (3, sr.Ragged([2, 0, 2]), sr.Ragged([3, 2, 0, 2], (0, 1))),
    "heads": (2, 2, sr.Ragged([3, 0, 1, 2], (0, 1))),
}


def calls(op: Op) -> list[str]:
    """The samples along an axis of x itself, whichever it is."""
    own = [re.sub(r"axis=-?\d+", "axis=AXIS", t) for t in texts(op) if re.match(r"x, (?!.*sr\.).*\baxis=-?\d+", t)]
    return list(dict.fromkeys([*own, *MORE.get(op.name, ())]))


ALONG = [op for op in OPS if calls(op) and op.name != "expand_dims"]  # whose axis is a new one


def labels(op: Op, ndim: int, axis: int, names: tuple[int, ...]) -> list[Any]:
    """What the axes of a result are called, where those of the operand have these names."""
    left = [name for a, name in enumerate(names) if a != axis]
    return [*left, "bins"] if op.name == "bincount" else left if ndim < len(names) else list(names)


@pytest.mark.parametrize("op", ALONG, ids=lambda op: op.name)
def test_the_order_of_the_other_axes_plays_no_part(op):
    """Along the same axis, before and after a permutation: the same elements at the same positions."""
    dtype = DTYPES[op.kinds[0]][0]
    for (name, shape), text in itertools.product(UNEQUAL.items(), calls(op)):
        plain = build(shape, dtype)
        orders = list(itertools.permutations(range(plain.ndim)))
        for axes, axis in itertools.product(orders[1 :: 2 if plain.ndim < 4 else 7], range(plain.ndim)):
            call = [text.replace("AXIS", str(a)) for a in (axis, axes.index(axis))]
            try:
                want = run(op, call[0], plain)
            except (ValueError, IndexError):  # an axis that the operation does not take, or too short a row
                continue
            for x in births(plain.permute_dims(axes)):
                got = [] if needs_the_host(op, text, x) else run(op, call[1], x)
                for mine, other in zip(got, want, strict=bool(got)):
                    theirs = labels(op, other.ndim, axis, tuple(range(plain.ndim)))
                    ours = labels(op, mine.ndim, axes.index(axis), axes)
                    back = [ours.index(label) for label in theirs]
                    assert_seen_alike([mine.permute_dims(back)], [other], (op.name, call, name, axes))
