"""Random schedules of random fusions: how loops are transformed and run, what is cached, how outputs lie in memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from random import Random

from tests.kernel.random_fusions import Program, program

from serrate.fusion import IterDomain, Memory, ParallelType, TensorView
from serrate.fusion.analysis import evaluate
from serrate.fusion.axes import ragged
from serrate.kernel import Lowered, choose_kept, lower

P = ParallelType
MOST_THREADS = 2000  # of a launch, which the interpreter runs one by one


@dataclass
class Case:
    """A program with a schedule; `steps` says what was done to the reference, for the reader of a failure."""

    program: Program
    target: str
    steps: list[str] = field(default_factory=list)

    @property
    def reference(self) -> TensorView:
        return self.program.reference

    def lower(self, name: str = "kernel") -> Lowered:
        """The kernel."""
        return lower(self.program.fusion, self.reference, name=name, target=self.target)

    def __str__(self) -> str:
        given = [
            f"{t.name}: {x.tolist()}" for t, x in zip(self.program.fusion.inputs, self.program.inputs, strict=True)
        ]
        return "\n".join([str(self.program.fusion), *given, f"{self.target}, reference {self.reference}", *self.steps])

    # Loops

    def do(self, method: str, *arguments: object) -> None:
        """Call a scheduling method of the reference, and write it down."""
        self.steps.append(f"{self.reference.name}.{method}({', '.join(map(repr, arguments))})")
        getattr(self.reference, method)(*arguments)

    def origins(self, axis: IterDomain) -> frozenset[IterDomain]:
        """The axes of the tensor that an axis is made of."""
        domain = self.reference.domain
        stop = {*domain.root, *domain.logical}
        if axis in stop or axis.definition is None:
            return frozenset([axis])
        return frozenset().union(*(self.origins(before) for before in axis.definition.inputs))

    def is_reduced(self, loop: IterDomain) -> bool:
        """Whether a loop walks what some reduction reduces."""
        return bool(self.origins(loop) & set(self.program.reduced))

    def depends_on(self, loop: IterDomain) -> frozenset[IterDomain]:
        """The axes a ragged loop must stand inside of."""
        if not loop.is_ragged:
            return frozenset()
        component = ragged(loop).component
        assert component is not None
        return frozenset().union(*(_sources(component, set(self.reference.domain.root))))

    def splits(self, random: Random) -> None:
        choices = [at for at, loop in enumerate(self.reference.loop) if not loop.is_broadcast]
        if choices and len(choices) < 7:
            self.do("split", random.choice(choices), random.randint(1, 5), random.random() < 0.75)

    def merges(self, random: Random) -> None:
        choices = [at for at in range(len(self.reference.loop) - 1) if self._can_merge(at)]
        if choices:
            self.do("merge", random.choice(choices))

    def _can_merge(self, at: int) -> bool:
        outer, inner = self.reference.loop[at : at + 2]
        if outer.is_broadcast or inner.is_broadcast or self.is_reduced(outer) != self.is_reduced(inner):
            return False
        if outer.is_ragged and inner.is_ragged:
            return ragged(outer).component is ragged(inner).component
        return not (self.depends_on(inner) & self.origins(outer))

    def combines(self, random: Random) -> None:
        pairs = zip(self.reference.loop, self.reference.loop[1:], strict=False)
        choices = [
            at
            for at, (outer, inner) in enumerate(pairs)
            if inner.is_ragged
            and ragged(inner).component is outer
            and self.is_reduced(outer) == self.is_reduced(inner)
            and not any(
                ragged(other).component is outer
                for other in self.reference.loop
                if other.is_ragged and other is not inner
            )
        ]
        if choices:
            self.do("combine", random.choice(choices))

    def swizzles(self, random: Random) -> None:
        loops = self.reference.loop
        pairs = [
            (x, y)
            for x in range(len(loops))
            for y in range(len(loops))
            if x != y
            and _is_plain(loops[x])
            and _is_plain(loops[y])
            and self.is_reduced(loops[x]) == self.is_reduced(loops[y])
        ]
        if not pairs:
            return
        x, y = random.choice(pairs)
        size = loops[y].extent.value if loops[y].extent.is_const else 0
        xor = loops[x].extent == loops[y].extent and size > 0 and size & (size - 1) == 0
        self.do("swizzle", x, y, "xor" if xor and random.random() < 0.7 else "shift")

    def reorders(self, random: Random, sensible: bool = True) -> None:
        """The loops in another order; a sensible one has kept loops of unknown extent first and ragged loops inside
        those of their components."""
        rest = list(range(len(self.reference.loop)))
        random.shuffle(rest)
        if sensible and self.program.reduced:
            rest.sort(
                key=lambda at: self.is_reduced(self.reference.loop[at]) or self.reference.loop[at].extent.is_const
            )
        order: list[int] = []
        while rest:
            ready = [at for at in rest if not sensible or not self._waits(at, rest)]
            order.append((ready or rest)[0])
            rest.remove(order[-1])
        if order != sorted(order):
            self.do("reorder", order)

    def _waits(self, at: int, rest: Sequence[int]) -> bool:
        needed = self.depends_on(self.reference.loop[at])
        return any(other != at and self.origins(self.reference.loop[other]) & needed for other in rest)

    # How loops are run

    def run_by_cpu(self, random: Random) -> None:
        loops = self.reference.loop
        kept = [at for at, loop in enumerate(loops) if not self.is_reduced(loop) and not loop.is_broadcast]
        reduced = [at for at, loop in enumerate(loops) if self.is_reduced(loop) and _is_constant(loop)]
        if kept and random.random() < 0.4:
            self.do("parallelize", kept[0], P.Thread)
        elif reduced and random.random() < 0.4:
            self.do("parallelize", reduced[0], P.Thread)
        for at, loop in enumerate(loops):
            if loop.parallel_type == P.Serial and _is_constant(loop) and random.random() < 0.35:
                lanes = at == len(loops) - 1 and random.random() < 0.7
                self.do("parallelize", at, P.Simd if lanes else P.Unroll)
        scans = any(t.definition is not None and t.definition.kind == "scan" for t in self.program.fusion.tensors)
        whole = loops and loops[-1].parallel_type == P.Serial and loops[-1] in self.reference.domain.logical
        if scans and whole and random.random() < 0.5:
            self.do("parallelize", len(loops) - 1, P.Simd)

    def run_by_gpu(self, random: Random) -> None:
        blocks, threads = [P.BIDx, P.BIDy, P.BIDz], [P.TIDx, P.TIDy, P.TIDz]
        loops = self.reference.loop
        sizes = {axis.size: axis.actual for axis in self.program.axes if isinstance(axis.size, str)}
        launched = 1
        for at, loop in enumerate(loops):
            count = launched * evaluate(loop.bound, sizes)
            if loop.is_broadcast or count > MOST_THREADS or random.random() < 0.3:
                continue
            launched = max(count, 1)
            constant = _is_constant(loop)
            if at == len(loops) - 1 and constant and random.random() < 0.15:
                self.do("parallelize", at, P.Vectorize)
            elif constant and random.random() < 0.15:
                self.do("parallelize", at, P.Unroll)
            elif threads and random.random() < (0.6 if constant else 0.15):
                self.do("parallelize", at, threads.pop(random.randrange(len(threads))))
            elif blocks and (not self.is_reduced(loop) or random.random() < 0.2):
                self.do("parallelize", at, blocks.pop(random.randrange(len(blocks))))

    # Memory

    def cache(self, random: Random) -> None:
        """A value kept in memory of the kernel."""
        memory = random.choice([Memory.REGISTER, Memory.SHARED])
        fusion = self.program.fusion
        if random.random() < 0.5:
            read = {x for t in fusion.tensors if t.definition is not None for x in t.definition.inputs}
            inputs = [x for x in fusion.inputs if x in read and x.name.startswith("x")]
            chosen = random.choice(inputs)
            self.steps.append(f"{chosen.name}.cache_after({memory})")
            chosen.cache_after(memory)
        elif self.reference in fusion.outputs:
            self.steps.append(f"{self.reference.name}.cache_before({memory})")
            made = self.reference.cache_before(memory)
            if made.definition is not None and made.definition.kind == "reduce":
                self.program.reference = made
            else:
                positions = [made.domain.logical.index(axis) for axis in self.program.reduced]
                self.program.reduced = tuple(self.reference.domain.logical[at] for at in positions)

    def keep(self, random: Random) -> None:
        """Values kept for later phases: those that are worth it, or any."""
        fusion = self.program.fusion
        if random.random() < 0.4:
            chosen = choose_kept(fusion, self.reference, target=self.target)
            self.steps.append(f"choose_kept: {chosen}")
            return
        values = [t for t in fusion.tensors if t.definition is not None and t.definition.kind == "pointwise"]
        for tensor in random.sample(values, min(len(values), random.randint(1, 3))):
            outputs = [output for output in fusion.outputs if output is not tensor]
            if outputs and tensor not in fusion.outputs and random.random() < 0.6:
                output = random.choice(outputs)
                self.steps.append(f"{tensor.name}.keep_in({output.name})")
                tensor.keep_in(output)
            elif tensor not in fusion.outputs:
                self.steps.append(f"{tensor.name}.set_memory_type(Memory.REGISTER)")
                tensor.set_memory_type(Memory.REGISTER)

    def lay_out(self, random: Random) -> None:
        """An output with holes, or in another order."""
        output = random.choice(self.program.fusion.outputs)
        axes = list(output.domain.allocation)
        if not axes:
            return
        at = random.randrange(len(axes))
        factor, fill = random.randint(1, 5), random.choice([None, 0, 1])
        axes[at : at + 1] = IterDomain.split(axes[at], factor, random.random() < 0.8)
        if random.random() < 0.3:
            random.shuffle(axes)
        self.steps.append(f"{output.name}.set_allocation_domain(axis {at} split by {factor}: {axes}, fill={fill})")
        output.set_allocation_domain(axes, fill)


def _sources(axis: IterDomain, stop: set[IterDomain]) -> Iterable[frozenset[IterDomain]]:
    if axis in stop or axis.definition is None:
        return [frozenset([axis])]
    return [source for before in axis.definition.inputs for source in _sources(before, stop)]


def _is_plain(loop: IterDomain) -> bool:
    return not loop.is_ragged and not loop.is_broadcast


def _is_constant(loop: IterDomain) -> bool:
    return _is_plain(loop) and loop.extent.is_const and loop.extent.value > 0


def draw(random: Random, target: str) -> Case:
    """A random fusion, not scheduled yet."""
    return Case(program(random), target)


def schedule(case: Case, random: Random) -> None:
    """Schedule it; raises ScheduleError or RaggednessError where that is refused."""
    if random.random() < 0.12:
        case.cache(random)
    if random.random() < 0.15:
        case.lay_out(random)
    if random.random() < 0.25:
        case.keep(random)
    steps = [case.splits, case.splits, case.merges, case.combines, case.combines, case.swizzles, case.reorders]
    for _ in range(random.randint(0, 5)):
        random.choice(steps)(random)
    case.reorders(random, sensible=random.random() < 0.9)
    (case.run_by_gpu if case.target == "cuda" else case.run_by_cpu)(random)
