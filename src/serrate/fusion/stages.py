"""Stages: a fusion that is too much for one kernel, as several, such as one that computes extents of its own axes.

The offsets of a ragged axis must be there before the kernel that walks it runs. Where the extents are computed by the
fusion itself, as in a mixture of experts (which tokens go to which expert, how many are that for each, and then rows of
so many tokens), one stage computes the extents, and the next one takes them as an input. The offsets between the two
are their running sum, which torch computes where the extents are: nothing waits for a device.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from serrate.fusion.axes import ragged
from serrate.fusion.binding import raggedness_of
from serrate.fusion.domain import TensorDomain, history
from serrate.fusion.fusion import Fusion
from serrate.fusion.raggedness import Raggedness
from serrate.fusion.types import Memory
from serrate.fusion.view import TensorView


def stages_of(fusion: Fusion, stored: Collection[str] = ()) -> tuple[Fusion, ...]:
    """The stages of a fusion, in the order in which they must run; only one if it computes no extents, and no tensors
    are named that one stage is to store for the next.

    A stage takes the inputs of the fusion, and after them what earlier stages have stored: extents, and the tensors
    named in `stored`. It gives the outputs of the fusion that need nothing of later stages, and after them what these
    take. All else that two stages need, both compute. Tensors keep their names. Schedule the stages, not the fusion
    that they come from.

    >>> from serrate.fusion import Fusion, stages_of
    >>> fusion = Fusion()
    >>> x, halves = fusion.input("x", ["n"]), fusion.input("halves", ["k"], "int64")
    >>> rows = fusion.view_as_nested(x, fusion.offsets_of_extents(halves * 2))
    >>> y = fusion.output(fusion.reduce("sum", rows, [1]), "y")
    >>> for stage in stages_of(fusion):
    ...     print([tensor.name for tensor in stage.inputs], [tensor.name for tensor in stage.outputs])
    ['x', 'halves'] ['t2']
    ['x', 'halves', 't2'] ['y']
    """
    kept = [fusion.named(name) for name in stored]
    numbers = _stage_numbers(fusion, kept)
    cuts = list(dict.fromkeys(tensor.name for tensor in (*kept, *computed_extents(fusion))))
    count = 1 + max((numbers[tensor] for tensor in fusion.outputs), default=0)
    named = {tensor.name: number for tensor, number in numbers.items()}
    return tuple(_stage(fusion.clone(), number, named, cuts) for number in range(count))


def computed_extents(fusion: Fusion) -> list[TensorView]:
    """The tensors that a fusion computes and then makes offsets of."""
    found: dict[TensorView, None] = {}
    for tensor in fusion.tensors:
        operation = tensor.definition
        for x in operation.inputs if operation is not None and operation.kind == "offsets" else ():
            if x.definition is not None and x.definition.kind != "offsets":
                found[x] = None
    return list(found)


def _stage_numbers(fusion: Fusion, stored: Collection[TensorView]) -> dict[TensorView, int]:
    """The stage in which each tensor can be computed first: one after those that compute its extents, or store what it
    reads."""
    extents = set(computed_extents(fusion))
    numbers: dict[TensorView, int] = {}
    for tensor in fusion.tensors:
        operation = tensor.definition
        inputs = () if operation is None else operation.inputs
        is_offsets = operation is not None and operation.kind == "offsets"
        before = [numbers[x] + (x in stored or (is_offsets and x in extents)) for x in inputs]
        before += [numbers[x] for x in _offsets_of(fusion, [tensor]) if x in numbers]
        numbers[tensor] = max(before, default=0)
    return numbers


def _offsets_of(fusion: Fusion, tensors: Iterable[TensorView]) -> list[TensorView]:
    """The tensors that hold the offsets of axes of these tensors."""
    arrays = {name for tensor in tensors for name in arrays_of(tensor)}
    return [tensor for tensor in fusion.tensors if tensor.name in arrays]


def arrays_of(tensor: TensorView) -> set[str]:
    """The names of the offsets of the axes of a tensor."""
    domain = tensor.domain
    axes = {*domain.root, *domain.logical, *domain.loop}
    axes.update(axis for step in history(axes) for axis in (*step.inputs, *step.outputs))
    return {name for axis in axes if axis.is_ragged for name in ragged(axis).raggedness.base_arrays}


def _stage(fusion: Fusion, number: int, numbers: dict[str, int], cuts: list[str]) -> Fusion:
    """Of a fusion, its own to change, what one stage computes."""
    given = [fusion.named(name) for name in cuts if numbers[name] < number]
    for tensor in given:
        tensor.domain, tensor.definition = TensorDomain(tensor.domain.kept), None
        tensor.memory, tensor.is_cached = Memory.GLOBAL, False
    fusion.inputs += given
    results = [tensor for tensor in fusion.outputs if numbers[tensor.name] == number]
    results += [fusion.named(name) for name in cuts if numbers[name] == number and fusion.named(name) not in results]
    for tensor in results:
        tensor.memory = Memory.GLOBAL
    fusion.outputs = results
    needed = {*fusion.inputs, *needed_for(fusion, results)}
    fusion.tensors = [tensor for tensor in fusion.tensors if tensor in needed]
    return fusion


def needed_for(fusion: Fusion, results: Iterable[TensorView]) -> set[TensorView]:
    """The tensors that some are computed from, those themselves, and those that hold offsets of their axes."""
    named = {tensor.name: tensor for tensor in fusion.tensors}
    needed = {*results}
    for tensor in reversed(fusion.tensors):
        if tensor in needed:
            needed.update(named[name] for name in arrays_of(tensor) if name in named)
            needed.update(() if tensor.definition is None else tensor.definition.inputs)
    return needed


def part_of(fusion: Fusion, given: Collection[str], results: Sequence[str]) -> Fusion:
    """A fusion of its own that computes some tensors of another, and takes some that are given.

    It has all inputs of the other fusion, since these say what the sizes are, and after them those of the given tensors
    that it reads. Tensors keep their names, and ragged axes their offsets.

    >>> from serrate.fusion import Fusion
    >>> fusion = Fusion()
    >>> total = fusion.reduce("sum", fusion.unary("exp", fusion.input("x", ["n", 4])), [1])
    >>> y = fusion.output(total * 2, "y")
    >>> print(part_of(fusion, [total.name], ["y"]))
    inputs:
      x[iS_i{n}, iS_d{4}] float32
      t2[iS_i{n}] float32
    y[iS_i{n}] float32 = multiply(t2, 2)
    outputs: y
    """
    loaded = {name for name in given if name not in results}
    known = raggedness_of(fusion)
    needed = _needed_of(fusion, loaded, results, known)
    tensors = [tensor for tensor in fusion.tensors if tensor in needed or tensor in fusion.inputs]
    made = fusion.clone(tensors)
    for tensor in made.tensors:
        if tensor.name in loaded:
            tensor.domain, tensor.definition = TensorDomain(tensor.domain.kept), None
            tensor.is_cached = False
        if tensor.name in loaded or tensor.name in results:
            tensor.memory = Memory.GLOBAL
    named = {tensor.name: tensor for tensor in made.tensors}
    made.inputs = [named[tensor.name] for tensor in fusion.inputs] + [t for t in made.tensors if t.name in loaded]
    made.outputs = [named[name] for name in results]
    made.lengths = tuple(dict.fromkeys(rows for tensor in made.tensors for rows in _lengths_of(tensor, known)))
    return made


def _lengths_of(tensor: TensorView, known: Mapping[str, Raggedness]) -> list[Raggedness]:
    """The raggedness that extents of regular axes of a tensor are read from, as that of the longest row is."""
    nodes = (node for axis in tensor.domain.kept if not axis.is_ragged for node in axis.extent.walk())
    return [known[node.value] for node in nodes if node.op == "load" and node.value in known]


def _needed_of(
    fusion: Fusion, loaded: Collection[str], results: Iterable[str], known: Mapping[str, Raggedness]
) -> set[TensorView]:
    """The tensors that some are computed of where others are loaded, and those that hold offsets of their axes."""
    named = {tensor.name: tensor for tensor in fusion.tensors}
    needed, stack = set[TensorView](), [named[name] for name in results]
    while stack:
        tensor = stack.pop()
        if tensor in needed:
            continue
        needed.add(tensor)
        read = {name for rows in _lengths_of(tensor, known) for name in rows.base_arrays}
        stack += [named[name] for name in arrays_of(tensor) | read if name in named]
        if tensor.name not in loaded and tensor.definition is not None:
            stack += tensor.definition.inputs
    return needed
