"""Abstract runs: eager code that runs on tensors without elements, by which the types of results are found.

`serrate.program` enters such a run, and only the thread that entered it is in it. There, offsets and values have sizes
and dtypes, but nobody can look at their elements. Eager code asks the functions of this file wherever it needs a number
that only elements tell, or compares numbers that a type may not know. Outside an abstract run these functions
compute with the numbers at hand, and all that they cost is one look at a variable of the thread.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import torch

if TYPE_CHECKING:
    from serrate.tensor.partition import Partition


class Run(Protocol):
    """What an abstract run answers."""

    def count(self, why: str) -> int:
        """A number that only elements tell; `why` says what it counts."""

    def least(self, one: int, other: int) -> int:
        """The smaller of two numbers of which a type may know neither."""

    def most(self, one: int, other: int) -> int:
        """The greater of two numbers of which a type may know neither."""

    def differ(self, one: int, other: int) -> bool:
        """Whether two sizes that have to be equal are known to differ.

        Where nobody knows, the run ends by an exception of its own, and begins anew with both taken for equal.
        """

    def sliced(self, size: int, key: slice) -> tuple[int, int]:
        """Where a slice of an axis begins, and how many positions it has; the size or a bound may be unknown."""

    def is_known(self, size: int) -> bool:
        """Whether a type knows the size as a number."""

    def born(
        self,
        offsets: torch.Tensor,
        num_values: int,
        device_born: bool,
        exact: bool,
        bound: int | None,
        uniform_length: int | None,
    ) -> Partition:
        """A partition that eager code made of offsets without elements."""


class _State(threading.local):
    run: Run | None = None


_state = _State()


def current() -> Run | None:
    """The abstract run of this thread; None outside of one."""
    return _state.run


@contextlib.contextmanager
def entered(run: Run) -> Iterator[None]:
    """Make `run` the abstract run of this thread."""
    outer, _state.run = _state.run, run
    try:
        yield
    finally:
        _state.run = outer


def number(tensor: torch.Tensor, why: str) -> int:
    """The only element of an integer tensor on the host."""
    run = _state.run
    return int(tensor) if run is None else run.count(why)


def least(one: int, other: int) -> int:
    """The smaller of two sizes, which becomes part of a result's type."""
    run = _state.run
    return min(one, other) if run is None else run.least(one, other)


def most(one: int, other: int) -> int:
    """The greater of two sizes, which becomes part of a result's type."""
    run = _state.run
    return max(one, other) if run is None else run.most(one, other)


def sliced(key: slice, size: int) -> tuple[int, int, int]:
    """Start, stop and step of a slice of an axis; stop less start is the number of positions times the step."""
    run = _state.run
    if run is None:
        start, stop, step = key.indices(size)
        return start, start + len(range(start, stop, step)) * step, step
    start, count = run.sliced(size, key)
    step = 1 if key.step is None else key.step
    return start, start + count * step, step


def resized(values: torch.Tensor, axis: int, size: int) -> torch.Tensor:
    """Values without elements, whose `axis` has another size."""
    return values.new_empty([size if each == axis else have for each, have in enumerate(values.shape)])


def differ(one: Any, other: Any) -> bool:
    """Whether two sizes that have to be equal differ."""
    if one == other:
        return False
    run = _state.run
    return True if run is None else run.differ(one, other)


def unlike(one: Sequence[Any], other: Sequence[Any]) -> bool:
    """Whether two shapes that have to be the same differ."""
    if _state.run is None:
        return tuple(one) != tuple(other)
    return len(one) != len(other) or any(
        differ(a, b) if isinstance(a, int) and isinstance(b, int) else a != b for a, b in zip(one, other, strict=True)
    )


def meet(*shapes: Sequence[int]) -> None:
    """Let sizes of values meet, aligned at the right, before torch broadcasts them.

    torch compares them itself. In an abstract run it would compare numbers that stand for sizes which may be equal.
    """
    run = _state.run
    if run is None:
        return
    for place in range(1, max(map(len, shapes), default=0) + 1):
        sizes = [shape[-place] for shape in shapes if len(shape) >= place and shape[-place] != 1]
        for size in sizes[1:]:
            if size != sizes[0]:
                run.differ(sizes[0], size)


def positions(mask: torch.Tensor, why: str) -> tuple[torch.Tensor, ...]:
    """Where a mask on the host holds: one vector of positions per axis of the mask."""
    run = _state.run
    if run is None:
        return mask.nonzero(as_tuple=True)
    count = run.count(why)
    return tuple(torch.empty(count, dtype=torch.int64, device=mask.device) for _ in range(mask.ndim))


def places(mask: torch.Tensor, count: int) -> torch.Tensor:
    """Where a vector of bools holds, which it does `count` times."""
    if _state.run is None:
        return mask.nonzero().flatten()
    return torch.empty(count, dtype=torch.int64, device=mask.device)


def first(values: torch.Tensor, count: int) -> torch.Tensor:
    """The first `count` rows of values, which have at least as many."""
    return values[:count] if _state.run is None else resized(values, 0, count)


def is_known(size: int) -> bool:
    """Whether a type knows the size. In an abstract run, a number may stand for a size that no type knows."""
    return _state.run is None or _state.run.is_known(size)


def entries(size: int, name: str) -> range:
    """The positions of an axis, for each of which the operation `name` gives a result; a type has to know how many."""
    if not is_known(size):
        raise TypeError(
            f"{name} gives one result for each entry of an axis, and the type of its operand does not say how many "
            f"entries that axis has"
        )
    return range(size)
