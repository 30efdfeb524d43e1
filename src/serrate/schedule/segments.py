"""The segmenter: which results one kernel stores, and which tensors it stores for the next.

If one kernel can do all, it does. Else each result is first made a kernel of its own, where a tensor that stands in
the way is stored by a kernel before it; then kernels are joined, greedily and in the order of definition, wherever the
union of two can be scheduled as one and no third kernel would have to run in the middle of it. What is cheap is
computed again by each kernel that reads it; a reduction, a scan, or what takes several functions is stored for them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from serrate.fusion.fusion import Fusion
from serrate.fusion.mapping import MOVED
from serrate.fusion.stages import part_of
from serrate.fusion.view import TensorView
from serrate.kernel.choosing import cost_of
from serrate.kernel.jobs import is_gathered
from serrate.schedule import model
from serrate.schedule.attempts import CannotSchedule, Refused, Scheduled, attempt
from serrate.schedule.questions import RENAMED, Questions


@dataclass
class PlannedKernel:
    """What one kernel stores, by name, and the kernel."""

    results: tuple[str, ...]
    scheduled: Scheduled


@dataclass
class Segmenter:
    """The kernels of one fusion."""

    fusion: Fusion
    name: str
    target: str
    cuts: dict[str, str] = field(default_factory=dict)  # tensors that one kernel stores for others, and why

    def __post_init__(self) -> None:
        self.asked = Questions(self.fusion)
        self.known: dict[tuple[tuple[str, ...], frozenset[str]], Scheduled | Refused] = {}

    def run(self) -> list[PlannedKernel]:
        """The kernels, each after those that it reads from."""
        outputs = tuple(self.asked.outputs)
        if not outputs:
            return []
        self.cuts |= self.asked.must_be_stored()
        while self.cuts and (shared := self._computed_twice(self._groups())):
            self.cuts |= shared
        if not self.cuts:
            whole = self._kernel(outputs)
            if isinstance(whole, Scheduled):
                return [PlannedKernel(outputs, whole)]
        while True:
            self._each_alone()
            kernels = self._joined()
            shared = self._computed_twice([kernel.results for kernel in kernels])
            if not shared:
                return self._in_order(kernels)
            self.cuts |= shared

    # Each result on its own

    def _each_alone(self) -> None:
        """Store what stands in the way of any result; what one loads that was stored for another can do so too."""
        before = -1
        while before != len(self.cuts):
            before = len(self.cuts)
            for result in (*self.cuts, *self.asked.outputs):
                self._alone(result)

    def _alone(self, result: str) -> None:
        """Store what stands in the way, until a result can be a kernel."""
        tensor = self.asked.tensors[result]
        while True:
            made = self._kernel((result,))
            if isinstance(made, Scheduled):
                return
            cut = self._where_to_cut(result, made.tensor)
            if cut is None:
                raise CannotSchedule(f"{tensor} cannot be a kernel: {made.reason}", tensor=tensor)
            self.cuts[cut] = made.reason
            self._alone(cut)

    def _where_to_cut(self, result: str, named: str | None) -> str | None:
        """A tensor that can be stored before a result is computed: the one that a refusal names, else the last that is
        gathered or moved, else the last of all that are computed."""
        before = [tensor for tensor in self.asked.computed([result], self.cuts) if tensor.name != result]
        free = [t for t in before if t.definition is not None and t.definition.kind not in (*RENAMED, "offsets")]
        if named is not None and named in self.asked.tensors:
            tensor = self.asked.stored_of(self.asked.tensors[named])
            if tensor in free:
                return tensor.name
        heavy = [t for t in free if is_gathered(t) or (t.definition is not None and t.definition.kind in MOVED)]
        return (heavy or free)[-1].name if free else None

    def _kernel(self, results: tuple[str, ...]) -> Scheduled | Refused:
        """The kernel of some results, which loads what others store."""
        loaded = self.asked.loaded(results, self.cuts)
        key = results, frozenset(loaded)
        if key not in self.known:
            self.known[key] = self._attempt(results, loaded)
        return self.known[key]

    def _attempt(self, results: tuple[str, ...], loaded: Collection[str]) -> Scheduled | Refused:
        computed = self.asked.computed(results, loaded)
        references = self.asked.covering(computed, results)
        if not references:
            beyond = self.asked.beyond(computed, results)
            why = "it has axes that nothing else in the kernel has"
            return Refused(why, None if beyond is None else beyond.name)
        whole = not loaded and results == tuple(self.asked.outputs)
        part = self.fusion if whole else part_of(self.fusion, loaded, results)
        return attempt(part, references, self.name, self.target)

    # Several together

    def _joined(self) -> list[PlannedKernel]:
        """Results together in one kernel wherever that can be scheduled as well as each alone."""
        kernels: list[PlannedKernel] = []
        for group in self._groups():
            made = self._together(group)
            kernels += self._one_by_one(group) if made is None else [PlannedKernel(group, made)]
        return self._without_unread(kernels)

    def _groups(self) -> list[tuple[str, ...]]:
        """The results that may be together, as far as can be known without lowering: each with the latest others."""
        groups: list[tuple[str, ...]] = []
        for result in sorted({*self.asked.outputs, *self.cuts}, key=self.asked.order.__getitem__):
            for number in reversed(range(len(groups))):
                union = self._union(groups[number], (result,))
                if self._may_join(union, [other for other in groups if other is not groups[number]]):
                    groups[number] = union
                    break
            else:
                groups.append((result,))
        return groups

    def _one_by_one(self, group: tuple[str, ...]) -> list[PlannedKernel]:
        """The results of a group that cannot be one kernel, in as few as can be found."""
        found: list[PlannedKernel] = []
        for result in group:
            for kernel in reversed(found):
                union = self._union(kernel.results, (result,))
                others = [other.results for other in found if other is not kernel]
                made = self._together(union) if self._may_join(union, others) else None
                if made is not None:
                    kernel.results, kernel.scheduled = union, made
                    break
            else:
                found.append(PlannedKernel((result,), self._alone_kernel(result)))
        return found

    def _union(self, one: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(sorted({*one, *other}, key=self.asked.order.__getitem__))

    def _together(self, results: tuple[str, ...]) -> Scheduled | None:
        """The kernel of results together; None if there is none, or if less could be done for it than for one alone."""
        made = self._kernel(results)
        if isinstance(made, Scheduled) and made.rank <= max(self._alone_kernel(result).rank for result in results):
            return made
        return None

    def _alone_kernel(self, result: str) -> Scheduled:
        made = self._kernel((result,))
        assert isinstance(made, Scheduled), made.reason
        return made

    def _without_unread(self, kernels: list[PlannedKernel]) -> list[PlannedKernel]:
        """The kernels, which do not store what only they read."""
        made = []
        for kernel in kernels:
            others = [other.results for other in kernels if other is not kernel]
            read = set[str]().union(*(self.asked.loaded(results, self.cuts) for results in others))
            wanted = tuple(name for name in kernel.results if name in self.asked.outputs or name in read)
            if not wanted:
                continue
            inside = {name: self.cuts.pop(name) for name in kernel.results if name not in wanted}
            again = self._kernel(wanted) if inside else kernel.scheduled
            if isinstance(again, Scheduled):
                made.append(PlannedKernel(wanted, again))
            else:
                self.cuts |= inside
                made.append(kernel)
        return made

    def _may_join(self, union: tuple[str, ...], others: Sequence[tuple[str, ...]]) -> bool:
        """Whether a kernel may have results together, and no other kernel would have to run in the middle of it."""
        if not self.asked.may_be_one(union, self.cuts):
            return False
        kernels = [(results, self.asked.loaded(results, self.cuts)) for results in (union, *others)]
        return _order_of(kernels) is not None

    def _in_order(self, kernels: list[PlannedKernel]) -> list[PlannedKernel]:
        """The kernels in an order in which they can run, their kernels numbered if there are several."""
        order = _order_of([(s.results, self.asked.loaded(s.results, self.cuts)) for s in kernels])
        assert order is not None
        if len(order) == 1:
            return kernels
        found = [kernels[number] for number in order]
        return [
            PlannedKernel(kernel.results, kernel.scheduled.renamed(f"{self.name}_{number}"))
            for number, kernel in enumerate(found, 1)
        ]

    def _computed_twice(self, kernels: Iterable[tuple[str, ...]]) -> dict[str, str]:
        """What several kernels compute, though it costs less to store it once, and load it; each with that as the
        reason. Of what the same kernels compute, only the last, which they then need no other of."""
        homes: dict[TensorView, frozenset[int]] = {}
        for number, results in enumerate(kernels):
            for tensor in self.asked.computed(results, self.cuts):
                homes[tensor] = homes.get(tensor, frozenset()) | {number}
        stored = {self.asked.tensors[name] for name in self.cuts}
        shared = [tensor for tensor, own in homes.items() if len(own) > 1 and tensor not in stored]
        costly = [x for x in shared if is_gathered(x) or (_is_pointwise(x) and cost_of(x, stored) > model.STORED_COST)]
        inside = {
            x
            for tensor in costly
            for x in self.asked.computed([tensor.name], self.cuts)
            if x is not tensor and homes[x] == homes[tensor]
        }
        why = "several kernels read it, and it costs more to compute again than to load"
        return {tensor.name: why for tensor in costly if tensor not in inside or is_gathered(tensor)}


def _is_pointwise(tensor: TensorView) -> bool:
    return tensor.definition is not None and tensor.definition.kind == "pointwise"


def _order_of(kernels: Sequence[tuple[Collection[str], set[str]]]) -> list[int] | None:
    """The kernels, by number, in an order in which each loads only what was stored before; None if there is none.

    >>> _order_of([(["b"], {"a"}), (["a"], set())]), _order_of([(["b"], {"a"}), (["a"], {"b"})])
    ([1, 0], None)
    """
    home = {name: number for number, (results, _) in enumerate(kernels) for name in results}
    waiting = {number: {home[name] for name in reads if name in home} for number, (_, reads) in enumerate(kernels)}
    done: list[int] = []
    while waiting:
        ready = [number for number, before in waiting.items() if before <= set(done)]
        if not ready:
            return None
        done += ready
        for number in ready:
            del waiting[number]
    return done
