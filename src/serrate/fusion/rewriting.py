"""Changes of a fusion that do not change what it computes: copies that caches hold, reductions in two steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from serrate.errors import ScheduleError
from serrate.fusion.domain import TensorDomain
from serrate.fusion.monoids import MONOIDS
from serrate.fusion.pointwise import Pointwise
from serrate.fusion.shapes import Pairs, again, clones
from serrate.fusion.types import IterType, Memory
from serrate.fusion.view import Operation, TensorView


class Rewriting(Pointwise):
    """Steps of a schedule that add tensors."""

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

    def compute_by(self, x: TensorView, make: Callable[[], TensorView]) -> TensorView:
        """What `make` makes of other tensors, in the place of `x`, whose name it takes: of the same elements and axes.

        >>> from serrate.fusion import Fusion
        >>> fusion = Fusion()
        >>> x = fusion.input("x", ["n"])
        >>> y = fusion.output(x + x, "y")
        >>> made = fusion.compute_by(y, lambda: x * 2)
        >>> print(fusion)
        inputs:
          x[iS_i{n}] float32
        y[iS_i{n}] float32 = multiply(x, 2)
        outputs: y
        """
        users = [t for t in self.tensors if t.definition is not None and x in t.definition.inputs]
        before, place = len(self.tensors), self.tensors.index(x)
        made = make()
        new = self.tensors[before:]
        if made not in new or made.dtype != x.dtype or made.ndim != x.ndim:
            raise ValueError(f"{x} can be computed by a new tensor of its axes and dtype, got {made}")
        self.tensors[before:] = []
        self.tensors[place : place + 1] = new
        pairs = tuple(zip(x.domain.kept, made.domain.kept, strict=True))
        for user in users:
            self._rename(user, x, made, pairs)
        self.outputs[:] = [made if tensor is x else tensor for tensor in self.outputs]
        self._names.remove(made.name)
        made.name, made.memory = x.name, x.memory
        return made

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
