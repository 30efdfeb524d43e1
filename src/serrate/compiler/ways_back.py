"""Ways back from some of the results of a compiled call: a result that no gradient reaches is left out of them.

Eager code has a graph for each result. Going back from one of them leaves what only others need, so that a later
`backward` may go back from these; torch frees all that a node saved at once, so that it is kept for them here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from serrate.passes.lower_ptensor import DRAWS
from serrate.passes.vjp import Joint, part_of
from serrate.program.program import Program
from serrate.program.types import Value

MODIFIED = "one of the variables needed for gradient computation has been modified by an inplace operation"


class WayBack(NamedTuple):
    """A way back that can run."""

    run: Callable[..., Any]
    """From what was saved, and a gradient for each of its results, to the gradients that are found."""
    gradients: tuple[int, ...]
    """The numbers of the tensors whose gradients it gives, in its order."""
    zeros: tuple[int, ...]
    """The numbers of the tensors whose gradients are 0, since all that depends on them is constant between steps."""


@dataclass(eq=False)
class WaysBack:
    """The ways back of a function from its results; each of them is made when it is first asked for."""

    joint: Joint
    results: tuple[Value, ...]
    """What the function gives."""
    inputs: tuple[Value, ...]
    saved: tuple[Value, ...]
    """What is saved for the way back from all of the results."""
    run: Callable[..., Any]
    """What runs the way back from all of them."""
    written: Callable[[Program], Callable[..., Any]]
    """What runs the program of another way back, which it compiles."""

    def __post_init__(self) -> None:
        self.whole = self._way(self.joint, self.run)
        """The way back from all results that have gradients."""
        self.made: dict[tuple[int, ...], WayBack] = {}
        self._lock = threading.Lock()
        numbers = {value: number for number, value in enumerate(self.results)}
        self.meets: Mapping[int, frozenset[int]] = {
            numbers[one]: frozenset(numbers[each] for each in others) for one, others in self.joint.meets.items()
        }
        """For each differentiable result those that cannot go back after it did, as nothing is kept for them."""
        self.is_kept = any(len(others) < len(self.meets) for others in self.meets.values())
        """Whether something is kept for another way back."""

    def of(self, asked: tuple[int, ...]) -> WayBack:
        """The way back from some of the results."""
        if len(asked) == len(self.meets):
            return self.whole
        found = self.made.get(asked)
        if found is None:
            with self._lock:
                found = self.made.get(asked)
                if found is None:
                    found = self.made[asked] = self._part(asked)
        return found

    def _part(self, asked: tuple[int, ...]) -> WayBack:
        joint = self.joint.part(self.results[number] for number in asked)
        program = part_of(joint, self.saved, DRAWS)
        return self.whole if program is None else self._way(joint, self.written(program))

    def _way(self, joint: Joint, run: Callable[..., Any]) -> WayBack:
        found, zeros = [], []
        for value, gradient, reached in zip(joint.wanted, joint.found, joint.reached, strict=True):
            if gradient is not None:
                found.append(self.inputs.index(value))
            elif reached:
                zeros.append(self.inputs.index(value))
        return WayBack(run, tuple(found), tuple(zeros))


class Inputs:
    """The tensors that a call was given, for derivatives of derivatives; the way back itself reads only some of them.

    They are kept as they are, so that the others may be written to after the call. A tensor without elements carries
    them, so that they are freed with what is saved.
    """

    def __init__(self, packed: Sequence[torch.Tensor], saved: Sequence[torch.Tensor]) -> None:
        self.packed = packed
        self.versions = [None if each.is_inference() else each._version for each in packed]
        numbers = {id(each): number for number, each in enumerate(packed)}
        is_told = all(id(each) in numbers for each in saved)
        self.read = {numbers[id(each)] for each in saved} if is_told else set(range(len(packed)))
        """Those that derivatives may depend on: what the way back reads, and all if it reads what was made of them."""

    def carrier(self) -> torch.Tensor:
        """A tensor that can be saved."""
        made = torch.empty(0, dtype=torch.uint8)
        made.inputs = self  # type: ignore[attr-defined]
        return made

    def checked(self) -> Sequence[torch.Tensor]:
        """The tensors, if those that derivatives depend on are what they were."""
        for number in sorted(self.read):
            before, each = self.versions[number], self.packed[number]
            if before is not None and each._version != before:
                raise RuntimeError(
                    f"{MODIFIED}: tensor {number} that a compiled function was given, of shape {list(each.shape)}, is "
                    f"at version {each._version}; expected version {before} instead. A derivative of its derivative "
                    f"runs the function again; give it a clone, or write to one"
                )
        return self.packed


class Kept(NamedTuple):
    """What a node has for a way back."""

    saved: Sequence[torch.Tensor]
    inputs: Sequence[torch.Tensor]
    """What it saved besides, for derivatives of derivatives: the inputs, or one tensor that carries them."""
    like: Sequence[tuple[Any, ...]] = ()
    """The shape, dtype and device of each input, where these are no longer there."""

    @property
    def carried(self) -> Inputs | None:
        """The inputs, if a tensor carries them."""
        return getattr(self.inputs[0], "inputs", None) if self.inputs else None

    def checked(self) -> Sequence[torch.Tensor]:
        """The inputs, if those that derivatives depend on are what they were."""
        return self.inputs if self.carried is None else self.carried.checked()

    def likes(self) -> Sequence[tuple[Any, ...]]:
        """The shape, dtype and device of each input."""
        inputs = self.inputs if self.carried is None else self.carried.packed
        return self.like or [(each.shape, each.dtype, each.device) for each in inputs]

    def zeros(self, number: int) -> torch.Tensor:
        """A gradient of 0 for an input."""
        shape, dtype, device = self.likes()[number]
        return torch.zeros(shape, dtype=dtype, device=device)


class _Later(NamedTuple):
    """What is kept of a call for the results that have not gone back yet, without history: that is the node's own."""

    saved: list[torch.Tensor]
    versions: list[int | None]
    like: Sequence[tuple[Any, ...]]
    gone: frozenset[int]
    """The results that went back, and left nothing behind."""


def saved_for(ctx: Any, ways: WaysBack, asked: tuple[int, ...]) -> Kept:
    """What a node saved, for the way back from these results. Where eager code has freed some of it, torch's error."""
    later: _Later | None = getattr(ctx, "later", None) if ways.is_kept else None
    gone = frozenset() if later is None else later.gone
    if later is None or torch.is_grad_enabled() or any(ways.meets[number] & gone for number in asked):
        all_of_it = ctx.saved_tensors
        kept = Kept(all_of_it[: ctx.count], all_of_it[ctx.count :])
    else:
        for each, version in zip(later.saved, later.versions, strict=True):
            if version is not None and each._version != version:
                raise RuntimeError(f"{MODIFIED}: a compiled function saved it for its second result to go back")
        kept = Kept(later.saved, (), later.like)
    if ways.is_kept and not torch._C._autograd._get_current_graph_task_keep_graph():
        gone = gone.union(asked)
        ctx.later = _kept_later(kept, gone) if any(not others & gone for others in ways.meets.values()) else None
    return kept


def _kept_later(kept: Kept, gone: frozenset[int]) -> _Later:
    saved = [each if each.grad_fn is None else each.detach() for each in kept.saved]
    return _Later(saved, [None if each.is_inference() else each._version for each in saved], kept.likes(), gone)
