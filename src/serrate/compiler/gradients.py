"""Gradients of compiled functions: one autograd node for each call, whose way back is a program of its own."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from serrate.compiler.containers import closed, has_made
from serrate.compiler.ways_back import MODIFIED, Inputs, WaysBack, saved_for
from serrate.eager.philox import is_seeded, replayed
from serrate.eager.precision import autocast_state, casting
from serrate.lowering.keys import key_of
from serrate.ops.grouping import Grouped
from serrate.program.partitions import Expression
from serrate.program.program import replaced
from serrate.program.sizes import Polynomial
from serrate.program.types import RaggedAxis, Value
from serrate.tensor.assignment import shares_memory
from serrate.tensor.tensor import Tensor

Shell = Tensor | None
"""A Tensor of which only what it is beside its values counts; None for a torch tensor."""


SIZES = (Polynomial, Expression, RaggedAxis)
"""What stands for sizes and partitions among the outputs of a program."""


@dataclass(frozen=True)
class Differentiable:
    """A function for one signature, with its way back."""

    forward: Callable[..., Any]
    """From the tensors to the results, each once, what is saved, and the keys that were drawn, as three tuples."""
    ways: WaysBack
    """The ways back from all results that have gradients, and from some of them."""
    results: tuple[Value, ...]
    """What `forward` gives."""
    differentiable: tuple[int, ...]
    """Which of the results have gradients."""
    eagerly: Callable[..., Any]
    """From the tensors to the results, as the function itself computes them."""
    inputs: tuple[Value, ...]
    outputs: Any
    """What the function returns, in terms of values of inputs and results."""
    plain: tuple[bool, ...]
    """For each value that is returned whether as a torch tensor."""
    sizes: tuple[Any, ...] = ()
    """The sizes and partitions among the outputs; `forward` gives them behind the results."""
    written: tuple[int, ...] = ()
    """The tensors that are written to after the call: the way back reads clones of them."""
    draws: bool = False
    """Whether functions of torch draw from its generator in the call."""

    def __call__(self, *tensors: Any) -> Any:
        """What the function returns for these tensors."""
        given = tensors
        if self.written:
            tensors = tuple(each.clone() if n in self.written else each for n, each in enumerate(tensors))
        packed = [_packed(tensor) for tensor in tensors]
        shells: list[Any] = []
        sizes: list[Any] = []
        lasting = [weakref.ref(_packed(tensor)) for tensor in given]
        made = _Node.apply(self, tensors, shells, sizes, lasting, *packed)  # type: ignore[no-untyped-call]
        known: dict[Value, Any] = dict(zip(self.inputs, given, strict=True))
        known |= {value: filled(shell, each) for value, shell, each in zip(self.results, shells, made, strict=True)}
        plain, asked = iter(self.plain), dict(zip(self.sizes, sizes, strict=True))

        def returned(part: Any) -> Any:
            if not isinstance(part, Value):
                return asked[part] if asked and isinstance(part, SIZES) else part
            found = known[part]
            if next(plain):
                return found.values if isinstance(found, Tensor) else found
            return found if isinstance(found, Tensor) else Tensor(found)

        result = replaced(self.outputs, returned)
        return closed(result) if self._has_made else result

    @cached_property
    def _has_made(self) -> bool:
        return has_made(self.outputs)


class _Node(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        plan: Differentiable,
        tensors: Sequence[Any],
        shells: list[Any],
        sizes: list[Any],
        lasting: Sequence[weakref.ref[torch.Tensor]],
        *packed: Any,
    ) -> Any:
        ctx.state = torch.get_rng_state() if plan.draws else None
        (results, asked), saved, keys = plan.forward(*tensors)
        sizes += asked
        shells += map(shell_of, results)
        values = tuple(map(_packed, results))
        ctx.plan, ctx.shells = plan, [shell_of(each) for each in saved]
        ctx.results, ctx.tensors, ctx.lasting = shells, [shell_of(each) for each in tensors], lasting
        kept, ctx.count = list(map(_packed, saved)), len(saved)
        if torch._C._autograd._top_saved_tensors_default_hooks(True) is None:
            ctx.save_for_backward(*kept, Inputs(packed, kept).carrier())
        else:  # which put other tensors in the places of those that are saved, and let go of these
            ctx.save_for_backward(*kept, *packed)
        ctx.sizes, ctx.dtypes = [each.shape for each in values], [each.dtype for each in values]
        ctx.device, ctx.autocast = packed[0].device, autocast_state()
        ctx.keys = [key_of(seed, call) for seed, call in zip(keys[::2], keys[1::2], strict=True)]
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*(each for number, each in enumerate(values) if number not in plan.differentiable))
        return values

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        plan: Differentiable = ctx.plan
        asked = tuple(number for number in plan.differentiable if gradients[number] is not None)
        kept = saved_for(ctx, plan.ways, asked)
        if torch.is_grad_enabled():
            return (*_NO_GRADIENTS, *_eagerly(plan, ctx, kept.checked(), gradients))
        given = [filled(shell, each) for shell, each in zip(ctx.shells, kept.saved, strict=True)]
        found: list[Any] = [None] * len(ctx.tensors)
        with casting(ctx.autocast):  # types on the way back are those that autocast gave them
            way = plan.ways.of(asked)
            for number in plan.differentiable if way is plan.ways.whole else asked:
                gradient, shell = gradients[number], ctx.results[number]
                if gradient is None or gradient._is_zerotensor():  # which has no memory that a kernel could read
                    gradient = torch.zeros(ctx.sizes[number], dtype=ctx.dtypes[number], device=ctx.device)
                given.append(filled(shell, gradient))
            made = way.run(*given)
        for number, each in zip(way.gradients, made, strict=True):
            if ctx.needs_input_grad[len(_NO_GRADIENTS) + number]:
                found[number] = _packed(each)
        for number in way.zeros:
            if ctx.needs_input_grad[len(_NO_GRADIENTS) + number]:
                found[number] = kept.zeros(number)
        return (*_NO_GRADIENTS, *found)


_NO_GRADIENTS = (None,) * 5
"""The gradients of what a node is given besides tensors."""


def _eagerly(plan: Differentiable, ctx: Any, packed: Sequence[torch.Tensor], gradients: Sequence[Any]) -> list[Any]:
    """The gradients with a history of their own, which the function itself gives."""
    given = [each.clone() if number in plan.written else each for number, each in enumerate(packed)]
    tensors = [filled(shell, each) for shell, each in zip(ctx.tensors, given, strict=True)]
    lasting = [each() for each in ctx.lasting]
    written = [(each, packed[n]) for n, each in enumerate(lasting) if each is not None and n in plan.written]
    clones = [given[number] for number in plan.written]
    with contextlib.ExitStack() as stack:
        stack.enter_context(casting(ctx.autocast))
        stack.enter_context(_unchanged([each for each in lasting if each is not None and not each.requires_grad]))
        stack.enter_context(_as_before(written))
        stack.enter_context(_saving_clones([*clones, *(each for each, _ in written)]))
        if ctx.state is not None:  # the generator gives the same numbers, and the same keys, once more
            stack.enter_context(torch.random.fork_rng(devices=[]))
            torch.set_rng_state(ctx.state)
        if ctx.state is None or is_seeded():
            stack.enter_context(replayed(ctx.keys))
        results = plan.eagerly(*tensors)
    wanted = [number for number in range(len(packed)) if ctx.needs_input_grad[len(_NO_GRADIENTS) + number]]
    outs, grads = [], []
    for result, gradient in zip(results, gradients, strict=True):
        values = _packed(result)
        if gradient is not None and values.requires_grad:
            outs.append(values)
            grads.append(gradient)
    found: list[Any] = [None] * len(packed)
    if outs:
        made = torch.autograd.grad(outs, [packed[n] for n in wanted], grads, create_graph=True, allow_unused=True)
        for number, each in zip(wanted, made, strict=True):
            found[number] = each
    return found


@contextlib.contextmanager
def _unchanged(tensors: Sequence[torch.Tensor]) -> Iterator[None]:
    """Let tensors hold in the end what they hold now, whatever is written to them, as statistics of a norm are. Their
    versions stay, since nobody sees a change."""
    now = [each.detach().clone() for each in tensors]
    try:
        yield
    finally:
        for each, values in zip(tensors, now, strict=True):
            if not _has_elements(each.detach(), values):
                each.data.copy_(values)


def _has_elements(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors have the same elements; NaN equals itself."""
    if one.is_floating_point() or one.is_complex():
        return torch.allclose(one, other, rtol=0, atol=0, equal_nan=True)
    return torch.equal(one, other)


@contextlib.contextmanager
def _as_before(written: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> Iterator[None]:
    """Let tensors that a function writes to hold what they held before the call, until it has run again."""
    with _unchanged([each for each, _ in written]):
        for each, values in written:
            each.data.copy_(values.detach())
        yield


@contextlib.contextmanager
def _saving_clones(written: Sequence[torch.Tensor]) -> Iterator[None]:
    """Let autograd save clones of tensors that are written to, since a call writes in the end, and its way back reads
    what was there before. Writes to what it saves of others are noticed, as they are without hooks."""
    if not written:
        yield
        return

    def saved(x: torch.Tensor) -> tuple[torch.Tensor, int]:
        x = x.detach().clone() if any(shares_memory(x, each) for each in written) else x
        return x, x._version

    def read(kept: tuple[torch.Tensor, int]) -> torch.Tensor:
        if kept[0]._version != kept[1]:
            raise RuntimeError(f"{MODIFIED}: it is made in a compiled function, which runs again for this derivative")
        return kept[0]

    with torch.autograd.graph.saved_tensors_hooks(saved, read):
        yield


def _packed(given: Any) -> torch.Tensor:
    """The packed values of a tensor of either class."""
    values: torch.Tensor = given.values if isinstance(given, Tensor) else given
    return values


def shell_of(given: Any) -> Shell:
    """What a tensor is beside its values: around none, in memory of their own, since a view would keep the others."""
    if not isinstance(given, Tensor):
        return None
    values = given.values
    made: Tensor = filled(given, torch.empty((0, *values.shape[1:]), dtype=values.dtype, device=values.device))
    return made


def filled(shell: Shell, values: torch.Tensor) -> Any:
    """A tensor of such a shell around values."""
    if shell is None:
        return values
    if isinstance(shell, Grouped):
        return Grouped(values, shell.structure, shell.order, route=shell.route)
    return Tensor(values, shell.structure, shell.order)
