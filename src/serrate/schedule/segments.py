"""The segmenter: which results one kernel stores, and which tensors it stores for the next.

If one kernel can do all, it does. Else each result is first made a kernel of its own, where a tensor that stands in
the way is stored by a kernel before it; then kernels are joined, greedily and in the order of definition, wherever the
union of two can be scheduled as one and no third kernel would have to run in the middle of it. What is cheap is
computed again by each kernel that reads it; a reduction or a scan that several kernels read is stored.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from serrate.fusion.domain import TensorDomain
from serrate.fusion.fusion import Fusion
from serrate.fusion.mapping import MOVED
from serrate.fusion.stages import needed_for
from serrate.fusion.types import Memory
from serrate.fusion.view import TensorView
from serrate.kernel.jobs import is_gathered, stored_outputs
from serrate.schedule.attempts import CannotSchedule, Refused, Scheduled, attempt

RENAMED = ("nest", "broadcast")
"""Kinds of operations that give other axes to the same values: what is stored is their operand."""


@dataclass
class Segment:
    """What one kernel stores, by name, and the kernel."""

    results: tuple[str, ...]
    scheduled: Scheduled


@dataclass
class Segmenter:
    """The segments of one fusion."""

    fusion: Fusion
    name: str
    target: str
    cuts: dict[str, str] = field(default_factory=dict)  # tensors that one kernel stores for others, and why

    def __post_init__(self) -> None:
        self.tensors = {tensor.name: tensor for tensor in self.fusion.tensors}
        self.order = {tensor.name: number for number, tensor in enumerate(self.fusion.tensors)}
        self.outputs = [tensor.name for tensor in stored_outputs(self.fusion)]
        self.known: dict[tuple[tuple[str, ...], frozenset[str]], Scheduled | Refused] = {}

    def run(self) -> list[Segment]:
        """The segments, each after those that it reads from."""
        if not self.outputs:
            return []
        whole = attempt(self.fusion, self.name, self.target)
        if isinstance(whole, Scheduled):
            return [Segment(tuple(self.outputs), whole)]
        for result in self.outputs:
            self._alone(result)
        while True:
            segments = self._joined()
            shared = self._computed_twice(segments)
            if not shared:
                return self._in_order(segments)
            for tensor in shared:
                self.cuts[tensor] = "several kernels read it, and it costs more to compute again than to load"
                self._alone(tensor)

    # Each result on its own

    def _alone(self, result: str) -> None:
        """Store what stands in the way, until a result can be a kernel."""
        while True:
            made = self._kernel((result,))
            if isinstance(made, Scheduled):
                return
            cut = self._where_to_cut(result, made.tensor)
            if cut is None:
                raise CannotSchedule(f"{self.tensors[result]} cannot be a kernel: {made.reason}", self.tensors[result])
            self.cuts[cut] = made.reason
            self._alone(cut)

    def _where_to_cut(self, result: str, named: str | None) -> str | None:
        """A tensor that can be stored before a result is computed: the one that a refusal names, else the last that is
        gathered or moved, else the last of all that are computed."""
        before = [tensor for tensor in self._computed([result]) if tensor.name != result]
        free = [t for t in before if t.definition is not None and t.definition.kind not in (*RENAMED, "offsets")]
        if named is not None and named in self.tensors:
            tensor = self.tensors[named]
            while tensor.definition is not None and tensor.definition.kind in RENAMED:
                tensor = tensor.definition.inputs[0]
            if tensor in free:
                return tensor.name
        heavy = [t for t in free if is_gathered(t) or (t.definition is not None and t.definition.kind in MOVED)]
        return (heavy or free)[-1].name if free else None

    def _computed(self, results: Collection[str]) -> list[TensorView]:
        """The tensors that a kernel of these results computes, in the order of definition."""
        wanted = {self.tensors[name] for name in results}
        found = []
        for tensor in reversed(self.fusion.tensors):
            if tensor in wanted and tensor.definition is not None:
                found.append(tensor)
                is_offsets = tensor.definition.kind == "offsets"
                operands = tensor.definition.inputs
                wanted.update(x for x in operands if x.name not in self.cuts or (x.name in results and not is_offsets))
        return found[::-1]

    def _reads(self, results: Sequence[str]) -> set[str]:
        """The stored tensors that a kernel of these results loads."""
        part = {tensor.name for tensor in needed_for_part(self.fusion, self.cuts, results)}
        return {name for name in self.cuts if name in part and name not in results}

    def _kernel(self, results: tuple[str, ...]) -> Scheduled | Refused:
        """The kernel of some results, which loads what others store."""
        key = results, frozenset(self.cuts)
        if key not in self.known:
            part = part_of(self.fusion, [name for name in self.cuts if name not in results], results)
            name = self.name if results == tuple(self.outputs) else f"{self.name}_{self._number()}"
            self.known[key] = attempt(part, name, self.target)
        return self.known[key]

    def _number(self) -> int:
        return len(self.known)

    # Several together

    def _joined(self) -> list[Segment]:
        """Results together in one kernel wherever that can be scheduled, the latest kernel asked first."""
        segments: list[Segment] = []
        for result in sorted({*self.outputs, *self.cuts}, key=self.order.__getitem__):
            for segment in reversed(segments):
                union = tuple(sorted({*segment.results, result}, key=self.order.__getitem__))
                others = [other for other in segments if other is not segment]
                if self._has_cycle([union, *(other.results for other in others)]):
                    continue
                made = self._kernel(union)
                if isinstance(made, Scheduled):
                    segment.results, segment.scheduled = union, made
                    break
            else:
                made = self._kernel((result,))
                assert isinstance(made, Scheduled)
                segments.append(Segment((result,), made))
        return self._without_unread(segments)

    def _without_unread(self, segments: list[Segment]) -> list[Segment]:
        """The segments, which do not store what only they read."""
        made = []
        for segment in segments:
            read = set().union(*(self._reads(other.results) for other in segments if other is not segment))
            wanted = tuple(name for name in segment.results if name in self.outputs or name in read)
            if not wanted:
                continue
            if wanted != segment.results:
                inside = [name for name in segment.results if name not in wanted]
                kept = {name: self.cuts.pop(name) for name in inside if name in self.cuts}
                again = self._kernel(wanted)
                if isinstance(again, Scheduled):
                    segment = Segment(wanted, again)
                else:
                    self.cuts |= kept
            made.append(segment)
        return made

    def _has_cycle(self, kernels: Sequence[tuple[str, ...]]) -> bool:
        return _order_of([(results, self._reads(results)) for results in kernels]) is None

    def _in_order(self, segments: list[Segment]) -> list[Segment]:
        order = _order_of([(segment.results, self._reads(segment.results)) for segment in segments])
        assert order is not None
        return [segments[number] for number in order]

    def _computed_twice(self, segments: Iterable[Segment]) -> list[str]:
        """Reductions and scans that several kernels compute."""
        seen: dict[str, int] = {}
        for segment in segments:
            for tensor in self._computed(segment.results):
                if is_gathered(tensor):
                    seen[tensor.name] = seen.get(tensor.name, 0) + 1
        return [name for name, times in seen.items() if times > 1 and name not in self.cuts]


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


def needed_for_part(fusion: Fusion, given: Collection[str], results: Sequence[str]) -> set[TensorView]:
    """The tensors that results are computed of, where some are given."""
    named = {tensor.name: tensor for tensor in fusion.tensors}
    part = needed_for(fusion, [named[name] for name in results])
    if not given:
        return part
    return {named[tensor.name] for tensor in part_of(fusion, [g for g in given if g not in results], results).tensors}


def part_of(fusion: Fusion, given: Collection[str], results: Sequence[str]) -> Fusion:
    """A fusion that computes some tensors of another, and takes some that are given.

    It has all inputs of the other fusion, since these say what the sizes are, and after them those of the given tensors
    that it reads. Tensors keep their names, and ragged axes their offsets.
    """
    made = fusion.clone()
    loaded = [made.named(name) for name in given]
    for tensor in loaded:
        tensor.domain, tensor.definition = TensorDomain(tensor.domain.kept), None
        tensor.memory, tensor.is_cached = Memory.GLOBAL, False
    made.outputs = [made.named(name) for name in results]
    for tensor in made.outputs:
        tensor.memory = Memory.GLOBAL
    needed = needed_for(made, made.outputs)
    made.inputs += [tensor for tensor in loaded if tensor in needed]
    needed |= set(made.inputs)
    made.tensors = [tensor for tensor in made.tensors if tensor in needed]
    return made
