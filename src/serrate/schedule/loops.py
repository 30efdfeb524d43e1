"""Parameters of a schedule, and how they become loops of the reference."""

from __future__ import annotations

from dataclasses import dataclass, replace

from serrate.fusion.types import ParallelType
from serrate.fusion.view import TensorView
from serrate.kernel.choosing import choose_kept
from serrate.schedule.structure import Structure


@dataclass(frozen=True)
class Parameters:
    """What a scheduler decided about the loops of one kernel.

    `runs` are the loops, outermost first, each the numbers of the axes of the reference that it walks as one.
    """

    runs: tuple[tuple[int, ...], ...]
    threads: bool = True
    """Whether a loop is spread over threads."""
    shared: int = 0
    """Which one that is: the outermost, or one inside of it that the threads share for each index outside."""
    parts: int = 0
    """If not 0, that loop is first cut into so many parts, which threads take."""
    lanes: int = 0
    """If not 0, the innermost loop is run by so many indices at once; all of them if it has just as many."""
    block: int = 0
    """If not 0, the innermost loop is cut into blocks of so many, each run at once."""
    outside: int = 0
    """How many loops the loop over such blocks stands inside of."""
    keep: bool = False
    """Whether values that several phases use are kept, where computing them again costs more."""
    prefetch: bool = False
    """Whether inputs that several phases read are fetched ahead."""

    def __str__(self) -> str:
        loops = ", ".join("·".join(map(str, run)) for run in self.runs)
        named = {"parts": self.parts, "lanes": self.lanes, "block": self.block, "shared": self.shared}
        words = [f"loops ({loops})", *(f"{name} {number}" for name, number in named.items() if number)]
        flags = {"threads": self.threads, "keep": self.keep, "prefetch": self.prefetch}
        return ", ".join([*words, *(name for name, on in flags.items() if on)])


def simpler(structure: Structure, wanted: Parameters) -> list[Parameters]:
    """The parameters that are tried one after another, what is wanted first, and then with less and less of it."""
    each = tuple((at,) for run in wanted.runs for at in run)
    alone = replace(wanted, runs=each, block=0)
    found = [
        wanted,
        replace(wanted, keep=False, prefetch=False),
        alone,
        replace(alone, keep=False, prefetch=False, lanes=0),
        replace(alone, keep=False, prefetch=False, lanes=0, parts=0, threads=wanted.parts == 0),
        Parameters(tuple((at,) for at in range(len(structure.axes))), threads=False),
    ]
    return list(dict.fromkeys(found))


def schedule(structure: Structure, parameters: Parameters, target: str) -> list[TensorView]:
    """Schedule the reference, and choose what is kept. Returns the tensors that are."""
    reference = structure.reference
    first = merge_runs(structure, parameters.runs)
    shared = first + parameters.shared
    if parameters.parts:
        reference.split(shared, parameters.parts, inner_split=False)
    last = len(reference.loop) - 1
    if parameters.lanes and parameters.runs:
        extent = reference.loop[last].extent
        if parameters.block:
            inside = first + parameters.outside + (parameters.parts > 0)
            reference.split(last, parameters.block).reorder({last: inside})
            reference.parallelize(last + 1, ParallelType.Simd)
        elif extent.is_const and not reference.loop[last].is_ragged and int(extent.value) == parameters.lanes:
            reference.parallelize(last, ParallelType.Simd)
        else:
            reference.split(last, parameters.lanes).parallelize(last + 1, ParallelType.Simd)
    if parameters.threads and parameters.runs and reference.loop[shared].parallel_type == ParallelType.Serial:
        reference.parallelize(shared, ParallelType.Thread)
    if parameters.prefetch:
        for tensor in structure.fusion.inputs:
            if tensor in structure.needed and tensor.strides is None and tensor.ndim == _packed_rank(reference):
                tensor.prefetch()
    return choose_kept(structure.fusion, reference, target=target) if parameters.keep else []


def _packed_rank(reference: TensorView) -> int:
    """How many axes the reference has in memory, with what it reduces."""
    axes = [axis for axis in reference.domain.logical if not axis.is_broadcast]
    return len(axes) - sum(axis.is_ragged for axis in axes)


def merge_runs(structure: Structure, runs: tuple[tuple[int, ...], ...]) -> int:
    """Let each run be one loop, in the order of the runs. Returns the place of the first one: axes of extent 1 come
    before, and have no loops."""
    reference = structure.reference
    numbers = {axis: at for at, axis in enumerate(reference.loop)}
    unwalked = [at for at, axis in enumerate(reference.loop) if axis not in structure.axes]
    order = unwalked + [numbers[structure.axes[at]] for run in runs for at in run]
    if order != list(range(len(order))):
        reference.reorder(order)
    place = len(unwalked)
    for run in runs:
        for _ in run[1:]:
            reference.merge(place)
        place += 1
    return len(reference.loop) - len(runs)
