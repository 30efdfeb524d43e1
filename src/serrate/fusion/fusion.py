"""Fusion: tensors, what computes them, and what goes in and comes out."""

from __future__ import annotations

import copy as copying
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import torch

from serrate.errors import AxisError, RaggednessError, ScheduleError
from serrate.fusion import elementwise
from serrate.fusion.axes import IterDomain, RaggedIterDomain, ragged
from serrate.fusion.domain import TensorDomain
from serrate.fusion.drawing import drawn
from serrate.fusion.dtypes import BOOL
from serrate.fusion.monoids import MONOIDS, check_kind
from serrate.fusion.raggedness import Raggedness
from serrate.fusion.scalar import Scalar, const
from serrate.fusion.shapes import (
    Pairs,
    again,
    axis_number,
    broadcast_axes,
    check_known,
    check_one_dtype,
    clones,
    covered,
    depend_on,
    depends_on,
    dtype_name,
    loop_order,
)
from serrate.fusion.transforms import combine, partition, resize
from serrate.fusion.types import IterType, Memory
from serrate.fusion.view import Operation, TensorView

_NO_SETTINGS: Mapping[str, Any] = MappingProxyType({})


class Fusion:
    """A small program over tensors, to become one kernel.

    >>> import torch
    >>> from serrate.fusion import Fusion
    >>> fusion = Fusion()
    >>> data, offsets = fusion.input("data", ["n", 4]), fusion.input("offsets", ["k"], "int64")
    >>> x = fusion.view_as_nested(data, offsets)
    >>> y = fusion.output(fusion.reduce("sum", x, [1]), "y")
    >>> fusion.evaluate(torch.ones(5, 4), torch.tensor([0, 2, 2, 5]))[0]
    tensor([[2., 2., 2., 2.],
            [0., 0., 0., 0.],
            [3., 3., 3., 3.]])
    """

    def __init__(self) -> None:
        self.inputs: list[TensorView] = []
        self.outputs: list[TensorView] = []
        self.tensors: list[TensorView] = []  # in the order of definition: operands come first

    # Making tensors

    def _name(self, wanted: str | None) -> str:
        taken = {tensor.name for tensor in self.tensors}
        if wanted is not None:
            if wanted in taken:
                raise ValueError(f"there is a tensor named {wanted!r} already")
            sizes = {
                size.value for tensor in self.tensors for axis in tensor.domain.root for size in axis.extent.symbols
            }
            if wanted in sizes:
                raise ValueError(f"{wanted!r} is the name of a size already; a tensor needs another")
            return wanted
        number = len(self.tensors)
        while f"t{number}" in taken:
            number += 1
        return f"t{number}"

    def _add(
        self, domain: TensorDomain, dtype: str, operation: Operation | None, name: str | None = None
    ) -> TensorView:
        made = TensorView(self, self._name(name), domain, dtype, operation)
        for axis in domain.root:
            for size in axis.extent.symbols:
                if any(size.value == tensor.name for tensor in (*self.tensors, made)):
                    raise ValueError(f"{size} is the name of a tensor; a size of {made} needs another")
        self.tensors.append(made)
        return made

    def input(
        self,
        name: str,
        shape: Sequence[int | str | Scalar | IterDomain] | TensorDomain,
        dtype: str | torch.dtype = "float32",
    ) -> TensorView:
        """A tensor that is given: a shape of numbers, names of sizes known when it runs, or axes."""
        if not isinstance(shape, TensorDomain):
            names = [*"ijlmpq"[: len(shape) - 1], "d"] if len(shape) > 1 else ["i"][: len(shape)]
            axes = [
                axis if isinstance(axis, IterDomain) else IterDomain(axis, name=axis_name)
                for axis, axis_name in zip(shape, names, strict=True)
            ]
            shape = TensorDomain(axes)
        made = self._add(shape, dtype_name(dtype), None, name)
        self.inputs.append(made)
        return made

    def output(self, tensor: TensorView, name: str | None = None) -> TensorView:
        """Say that a tensor is a result, named so."""
        self._check_own(tensor)
        renamed_offsets = tensor.definition is not None and tensor.definition.kind == "offsets" and name is not None
        if tensor.definition is None or tensor.definition.kind == "nest" or tensor in self.outputs or renamed_offsets:
            tensor = self.copy(tensor)  # a result of its own
        if name is not None and name != tensor.name:
            tensor.name = self._name(name)
        tensor.memory = Memory.GLOBAL
        self.outputs.append(tensor)
        return tensor

    # Nesting

    def view_as_nested(
        self,
        data: TensorView,
        offsets: TensorView | Raggedness,
        ragged_dim: int = 0,
        *,
        exact: bool = True,
        names: tuple[str, str] = ("c", "r"),
    ) -> TensorView:
        """`data` with axis `ragged_dim` cut into components and rows: [n, d] → [k, ragged, d].

        The last offset is n; if not `exact`, at most n, and what comes after it is not part of the nested tensor. Loops
        over components and rows are called `names`. For several levels nest the innermost first.
        """
        root, pairs = clones(data.domain.kept)
        at = axis_number(data, ragged_dim)
        if root[at].is_ragged:
            raise RaggednessError(f"axis {ragged_dim} of {data} is ragged already")
        inputs: tuple[TensorView, ...] = (data,)
        if isinstance(offsets, TensorView):
            raggedness = RaggedIterDomain.from_offsets(offsets, size=root[at].extent, exact=exact).raggedness
            inputs = (data, offsets)
        else:
            raggedness = offsets
        component, rows = partition(root[at], raggedness)
        component.name, rows.name = names
        if any(other.is_ragged and depends_on(other, root[at]) for other in root):
            depend_on(root, {root[at]: combine(component, rows)})  # rows of what is cut now: those of a row of rows
        logical = (*root[:at], component, rows, *root[at + 1 :])
        domain = TensorDomain(root, logical)
        return self._add(domain, data.dtype, Operation("nest", "view_as_nested", inputs, pairs, (at,)))

    def offsets_of_extents(self, extents: TensorView) -> TensorView:
        """Offsets of components whose extents are data."""
        if len(extents.domain.kept) != 1:
            raise RaggednessError(f"extents must have one axis, got {extents}")
        if extents.dtype not in ("int32", "int64"):
            raise TypeError(f"extents must be int32 or int64, got {extents}")
        domain = TensorDomain([IterDomain(extents.domain.kept[0].extent + 1)])
        return self._add(domain, "int64", Operation("offsets", "offsets_of_extents", (extents,), ()))

    def offsets_of(self, tensor: TensorView, axis: RaggedIterDomain) -> TensorView:
        """The offsets of a ragged axis as a tensor."""
        raggedness = axis.raggedness
        bases = tuple(self.named(name) for name in raggedness.base_arrays)
        domain = TensorDomain([IterDomain(raggedness.count + 1)])
        return self._add(domain, "int64", Operation("offsets", "offsets_of", bases, (), (raggedness,)))

    def named(self, name: str) -> TensorView:
        """The tensor of this name."""
        for tensor in self.tensors:
            if tensor.name == name:
                return tensor
        raise KeyError(f"no tensor is named {name!r}; there are {', '.join(t.name for t in self.tensors)}")

    # Pointwise

    def unary(self, name: str, x: TensorView, **options: Any) -> TensorView:
        """An elementwise operation of one operand, by its name in `fusion.elementwise`; with options if it has any."""
        return self.elementwise(name, x, **options)

    def binary(self, name: str, x: TensorView | float, y: TensorView | float, **options: Any) -> TensorView:
        """An elementwise operation of two operands, one of which may be a number."""
        return self.elementwise(name, x, y, **options)

    def where(self, condition: TensorView, x: TensorView | float, y: TensorView | float) -> TensorView:
        """`x` where the condition holds, else `y`."""
        if condition.dtype != BOOL:
            raise TypeError(f"where needs a condition of bool, got {condition}")
        check_one_dtype("where", x, y)
        return self.elementwise("where", condition, x, y)

    def elementwise(self, name: str, *operands: TensorView | float, **options: Any) -> TensorView:
        """An elementwise operation, by its name in `fusion.elementwise`. Tensors have one dtype, and numbers take it;
        whole numbers become float32 where floating-point numbers are computed of them."""
        if not elementwise.is_known(name) or elementwise.named(name).arity != len(operands):
            check_known(name, elementwise.names(len(operands)))
        row = elementwise.named(name)
        if not any(isinstance(x, TensorView) for x in operands):
            raise TypeError(f"{name} needs at least one tensor, got {' and '.join(map(repr, operands))}")
        for x in operands:
            if not isinstance(x, (TensorView, int, float)):
                raise TypeError(
                    f"{name} takes tensors of the fusion and numbers, got {type(x).__name__}; make it an input"
                )
        check_one_dtype(name, *(operands[1:] if name == "where" else operands))
        try:
            dtype = row.result_dtype([x.dtype if isinstance(x, TensorView) else x for x in operands], options)
        except TypeError as error:
            raise TypeError(f"{name} of {', '.join(map(str, operands))}: {error}") from None
        return self._pointwise(name, operands, dtype, options)

    def cast(self, x: TensorView, dtype: str | torch.dtype) -> TensorView:
        """The elements in another dtype."""
        dtype = dtype_name(dtype)
        return self._pointwise("cast", [x], dtype)

    def copy(self, x: TensorView) -> TensorView:
        """The same elements, in a tensor of their own."""
        return self._pointwise("copy", [x], x.dtype)

    def _check_own(self, *tensors: TensorView) -> None:
        for tensor in tensors:
            if tensor.fusion is not self:
                raise ValueError(f"{tensor} is a tensor of another fusion")

    def _pointwise(
        self, name: str, operands: Sequence[TensorView | float], dtype: str, settings: Mapping[str, Any] = _NO_SETTINGS
    ) -> TensorView:
        tensors = [x for x in operands if isinstance(x, TensorView)]
        self._check_own(*tensors)
        root, pairs = broadcast_axes(name, tensors)
        constants = tuple(x if not isinstance(x, TensorView) else None for x in operands)
        operation = Operation(
            "pointwise",
            name,
            tuple(tensors),
            pairs,
            () if all(c is None for c in constants) else constants,
            tuple(sorted(settings.items())),
        )
        return self._add(TensorDomain(root), dtype, operation)

    def broadcast(self, x: TensorView, new: Sequence[bool]) -> TensorView:
        """New axes of extent 1 where `new` is True, between the old ones: [k, d], [False, True, False] → [k, 1, d]."""
        if len(new) - sum(new) != x.ndim:
            raise AxisError(f"{x} has {x.ndim} axes, but {list(new)} leaves place for {len(new) - sum(new)}")
        olds, pairs = clones(x.domain.kept)
        old = iter(olds)
        root = [IterDomain(1, iter_type=IterType.Broadcast) if fresh else next(old) for fresh in new]
        return self._add(TensorDomain(root), x.dtype, Operation("broadcast", "broadcast", (x,), pairs, tuple(new)))

    # Reductions

    def reduce(self, name: str, x: TensorView, axes: int | Iterable[int], keepdims: bool = False) -> TensorView:
        """One of `monoids.MONOIDS` over axes, ragged and component axes included.

        A ragged axis that stays while an axis it depends on is reduced becomes regular, up to the longest row: the
        result is by position, over the rows that reach it.
        """
        check_known(name, MONOIDS)
        monoid = MONOIDS[name]
        check_kind(monoid, x.dtype, x)
        gone = {axis_number(x, axis) for axis in ([axes] if isinstance(axes, int) else axes)}
        if not gone:
            raise AxisError(f"{name} of {x} needs at least one axis to reduce")
        if monoid.positions and len(gone) != 1:
            raise AxisError(f"{name} of {x} reduces one axis, got {sorted(gone)}")
        root, pairs = clones(x.domain.kept)
        if any(root[at].is_broadcast for at in gone):
            raise AxisError(f"{name} of {x} cannot reduce a broadcast axis")
        for at in gone:
            root[at].iter_type = IterType.Reduction
        logical = covered(root)
        if keepdims:
            logical = [
                IterDomain(1, iter_type=IterType.Broadcast) if at in gone else axis for at, axis in enumerate(logical)
            ]
            logical += [root[at] for at in sorted(gone)]
        domain = TensorDomain(root, logical, loop=loop_order(root, logical))
        operation = Operation("reduce", name, (x,), pairs, (tuple(sorted(gone)), keepdims))
        return self._add(domain, monoid.gives(x.dtype), operation)

    # Resizing, gathering, selecting

    def pad(self, x: TensorView, axis: int, left: int, right: int, value: float = 0) -> TensorView:
        """`value` before and after the elements of an axis; of each row, if it is ragged."""
        return self._resize("pad", x, axis, left, right, (value,))

    def slice(self, x: TensorView, axis: int, start: int, stop: int) -> TensorView:
        """Without the first `start` elements of an axis and, counted from the end, those from `stop` ≤ 0 on."""
        if start < 0 or stop > 0:
            raise ValueError(f"slice takes start ≥ 0 and stop ≤ 0 (from the end), got {start} and {stop}")
        return self._resize("slice", x, axis, -start, stop, ())

    def _resize(
        self, name: str, x: TensorView, axis: int, left: int, right: int, options: tuple[Any, ...]
    ) -> TensorView:
        if name == "pad" and (left < 0 or right < 0):
            raise ValueError(f"pad takes numbers of 0 or more, got {left} and {right}")
        at = axis_number(x, axis)
        root, pairs = clones(x.domain.kept)
        if any(other.is_ragged and depends_on(other, root[at]) for other in root):
            raise RaggednessError(f"axis {axis} of {x} cannot be resized: a ragged axis depends on it")
        logical = list(root)
        logical[at] = resize(root[at], left, right)
        operation = Operation("resize", name, (x,), pairs, (at, left, right, *options))
        return self._add(TensorDomain(root, logical), x.dtype, operation)

    def concat(self, x: TensorView, y: TensorView, axis: int) -> TensorView:
        """`y` after `x` along an axis that is regular in both."""
        if x.ndim != y.ndim:
            raise AxisError(f"concat needs tensors of as many axes, got {x} and {y}")
        at = axis_number(x, axis)
        sizes = [tensor.domain.kept[at].extent for tensor in (x, y)]
        if any(
            tensor.domain.kept[at].is_ragged or not size.is_const for tensor, size in zip((x, y), sizes, strict=True)
        ):
            raise RaggednessError(f"concat along axis {axis} needs axes of known extents, got {x} and {y}")
        first = self.pad(x, axis, 0, sizes[1].value)
        second = self.pad(y, axis, sizes[0].value, 0)
        ones = self.pad(self._ones_like(x), axis, 0, sizes[1].value)
        return self.where(self.binary("not_equal", ones, 0), first, second)

    def _ones_like(self, x: TensorView) -> TensorView:
        root, pairs = clones(x.domain.kept)
        return self._add(TensorDomain(root), "int32", Operation("pointwise", "full", (x,), pairs, (None, 1)))

    def gather(self, x: TensorView, indices: TensorView) -> TensorView:
        """x[indices] along the first axis, which must be regular: [n, d], [k, r] → [k, r, d]."""
        if indices.dtype not in ("int32", "int64"):
            raise TypeError(f"gather needs indices of int32 or int64, got {indices}")
        if x.domain.kept[0].is_ragged or any(axis.is_ragged for axis in x.domain.kept[1:]):
            raise RaggednessError(f"gather takes from a tensor of regular axes, got {x}")
        places, place_pairs = clones(indices.domain.kept)
        rest, rest_pairs = clones(x.domain.kept[1:])
        operation = Operation("gather", "gather", (x, indices), place_pairs + rest_pairs, (len(places),))
        return self._add(TensorDomain(places + rest), x.dtype, operation)

    def select(self, x: TensorView, axis: int, index: int) -> TensorView:
        """One index of an axis. Of a component axis: the row, whose ragged axis becomes the regular one of that row."""
        at = axis_number(x, axis)
        chosen = x.domain.kept[at]
        if index < 0 or (chosen.extent.is_const and index >= chosen.extent.value):
            raise IndexError(f"index {index} of axis {axis} of {x}")
        if chosen.is_ragged:
            raise RaggednessError(f"{chosen} of {x} is ragged; select its component axis instead")
        kept = [other for number, other in enumerate(x.domain.kept) if number != at]
        for other in kept:
            if other.is_ragged and depends_on(other, chosen) and ragged(other).component is not chosen:
                raise RaggednessError(f"select on {chosen} of {x}: {other} depends on it through other axes")
        rows = [other for other in kept if other.is_ragged and ragged(other).component is chosen]
        plain = [other for other in kept if other not in rows]
        fresh, pairs = clones(plain)
        made = dict(zip(plain, fresh, strict=True))
        for row in rows:
            made[row] = IterDomain(ragged(row).raggedness.extent_at(const(index)), name=row.name)
            made[row].bounded_by(row.bound)
        root = [made[other] for other in kept]
        operation = Operation("select", "select", (x,), pairs, (at, index))
        return self._add(TensorDomain(root), x.dtype, operation)

    # Changing the program, not what it computes

    def cache_after(self, x: TensorView, memory: Memory) -> TensorView:
        """A copy of `x` that all users of `x` read."""
        users = [t for t in self.tensors if t.definition is not None and x in t.definition.inputs]
        made = self.copy(x)
        made.set_memory_type(memory)
        self._move(made, self.tensors.index(x) + 1)
        pairs = tuple(zip(x.domain.kept, made.domain.kept, strict=True))
        for user in users:
            self._rename(user, x, made, pairs)
        return made

    def cache_before(self, x: TensorView, memory: Memory) -> TensorView:
        """A tensor that is computed as `x` was; `x` becomes its copy."""
        if x.definition is None:
            raise ScheduleError(f"{x} is an input; nothing computes it")
        users = [t for t in self.tensors if t.definition is not None and x in t.definition.inputs]
        made = self._add(x.domain, x.dtype, x.definition)
        made.set_memory_type(memory)
        root, pairs = clones(made.domain.kept)
        x.domain = TensorDomain(root, allocation=again(made.domain.own_allocation, pairs))
        made.domain.own_allocation = None
        x.definition = Operation("pointwise", "copy", (made,), pairs)
        self._move(made, self.tensors.index(x))
        for user in users:
            self._rename(user, x, x, pairs)
        return made

    def rfactor(self, x: TensorView, loop_axes: Sequence[int]) -> TensorView:
        """Reduce all but some reduced loop axes in a new tensor; `x` reduces those."""
        if x.definition is None or x.definition.kind != "reduce" or not MONOIDS[x.definition.name].rejoins:
            *most, last = [name for name, monoid in MONOIDS.items() if monoid.rejoins]
            raise ScheduleError(f"rfactor needs a {', '.join(most)} or {last}, got {x}")
        if x.definition.options[1]:
            raise ScheduleError(f"{x} keeps the axes it reduces as broadcast axes; rfactor a reduction that does not")
        later = [x.loop[axis] for axis in loop_axes]
        for axis in later:
            if not axis.is_reduction:
                raise ScheduleError(f"{axis} of {x.name} cannot be factored out: it is not reduced")
        old = x.domain
        for axis in old.kept:
            if axis not in x.loop:
                raise ScheduleError(f"{axis} of {x.name} is kept, and scheduled already; rfactor before that")
        kept = [*old.kept, *later]
        root, pairs = clones(kept)  # refuses what depends on an axis that is gone, before anything is changed
        users = [t for t in self.tensors if t.definition is not None and x in t.definition.inputs]
        partial = self._add(old, x.dtype, x.definition)
        rest = [axis for axis in x.loop if axis.is_reduction and axis not in later]
        for axis in later:
            axis.iter_type = IterType.Iteration
            axis.is_rfactor_domain = True
        partial.domain = TensorDomain(old.root, [*kept, *rest], loop=x.loop)
        for new in root[len(old.kept) :]:
            new.iter_type = IterType.Reduction
        renamed = pairs[: len(old.kept)]
        x.domain = TensorDomain(root, allocation=again(old.own_allocation, renamed))
        gone = tuple(range(len(old.kept), len(kept)))
        x.definition = Operation("reduce", x.definition.name, (partial,), pairs, (gone, False))
        self._move(partial, self.tensors.index(x))
        for user in users:
            self._rename(user, x, x, renamed)
        return partial

    def _move(self, tensor: TensorView, place: int) -> None:
        """Let a tensor stand at a place of the order of definition."""
        self.tensors.remove(tensor)
        self.tensors.insert(place, tensor)

    def _rename(self, user: TensorView, old: TensorView, new: TensorView, renamed: Pairs) -> None:
        """Let a tensor read `new` instead of `old`, by its axes."""
        operation = user.definition
        assert operation is not None
        axes = dict(renamed)
        pairs = tuple((axes.get(given, given), made) for given, made in operation.axes)
        inputs = tuple(new if tensor is old else tensor for tensor in operation.inputs)
        user.definition = replace(operation, inputs=inputs, axes=pairs)

    # As a whole

    def evaluate(self, *inputs: torch.Tensor) -> list[torch.Tensor]:
        """The outputs, by reference: element by element as defined, whatever the schedule; as they lie in memory."""
        from serrate.fusion.reference import results_of

        return results_of(self, inputs)

    def clone(self) -> Fusion:
        """A fusion like this one that shares nothing with it that could change."""
        return copying.deepcopy(self)

    def key(self) -> tuple[object, ...]:
        """What makes two fusions the same: operations, axes, schedules; not the identity of anything."""
        from serrate.fusion.equality import key_of

        return key_of(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Fusion) and self.key() == other.key()

    def __hash__(self) -> int:
        return hash(self.key())

    def draw(self) -> Any:
        """A drawing of the tensors and their axes; shown by notebooks. `serrate.viz` has to be imported."""
        return drawn("fusion", self)

    def __str__(self) -> str:
        lines = ["inputs:"] + [f"  {tensor}" for tensor in self.inputs]
        lines += [f"{tensor} = {tensor.definition}" for tensor in self.tensors if tensor.definition is not None]
        return "\n".join([*lines, "outputs: " + ", ".join(tensor.name for tensor in self.outputs)])


def inject_offsets(fusion: Fusion) -> Fusion:
    """The fusion with, after each nested output, the offsets of its ragged axes as outputs of their own.

    The user's fusion has one value per nested tensor; memory has two. Offsets computed on a device stay there.
    """
    made = fusion.clone()
    outputs: list[TensorView] = []
    for tensor in list(made.outputs):
        outputs.append(tensor)
        for number, axis in enumerate(axis for axis in tensor.domain.kept if axis.is_ragged):
            offsets = made.offsets_of(tensor, ragged(axis))
            offsets.name = made._name(f"{tensor.name}_offsets" + (f"{number}" if number else ""))
            offsets.memory = Memory.GLOBAL
            outputs.append(offsets)
    made.outputs = outputs
    return made
