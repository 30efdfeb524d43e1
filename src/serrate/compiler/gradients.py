"""Gradients of compiled functions: one autograd node for each call, whose way back is a program of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from serrate.compiler.containers import closed, has_made
from serrate.eager.philox import is_seeded, replayed
from serrate.lowering.keys import key_of
from serrate.ops.grouping import Grouped
from serrate.program.partitions import Expression
from serrate.program.program import replaced
from serrate.program.sizes import Polynomial
from serrate.program.types import RaggedAxis, Value
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
    back: Callable[..., Any]
    """From what was saved, and a gradient for each differentiable result, to the gradients that are found."""
    results: tuple[Value, ...]
    """What `forward` gives."""
    differentiable: tuple[int, ...]
    """Which of the results have gradients."""
    gradients: tuple[int, ...]
    """The numbers of the tensors whose gradients `back` gives, in its order."""
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
        packed = [tensor.values if isinstance(tensor, Tensor) else tensor for tensor in tensors]
        shells: list[Any] = []
        sizes: list[Any] = []
        made = _Node.apply(self, tensors, shells, sizes, *packed)  # type: ignore[no-untyped-call]
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
        ctx: Any, plan: Differentiable, tensors: Sequence[Any], shells: list[Any], sizes: list[Any], *packed: Any
    ) -> Any:
        ctx.state = torch.get_rng_state() if plan.draws else None
        (results, asked), saved, keys = plan.forward(*tensors)
        sizes += asked
        shells += map(shell_of, results)
        values = tuple(each.values if isinstance(each, Tensor) else each for each in results)
        ctx.plan, ctx.shells = plan, [shell_of(each) for each in saved]
        ctx.results, ctx.tensors = shells, [shell_of(each) for each in tensors]
        ctx.save_for_backward(*(each.values if isinstance(each, Tensor) else each for each in saved), *packed)
        ctx.count = len(saved)
        ctx.sizes, ctx.dtypes = [each.shape for each in values], [each.dtype for each in values]
        ctx.autocast = autocast_state()
        ctx.keys = [key_of(seed, call) for seed, call in zip(keys[::2], keys[1::2], strict=True)]
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*(each for number, each in enumerate(values) if number not in plan.differentiable))
        return values

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        plan: Differentiable = ctx.plan
        kept = ctx.saved_tensors
        saved, packed = kept[: ctx.count], kept[ctx.count :]
        if torch.is_grad_enabled():
            return (None, None, None, None, *_eagerly(plan, ctx, packed, gradients))
        given = [filled(shell, each) for shell, each in zip(ctx.shells, saved, strict=True)]
        for number in plan.differentiable:
            gradient, shell = gradients[number], ctx.results[number]
            if gradient is None:
                gradient = torch.zeros(ctx.sizes[number], dtype=ctx.dtypes[number], device=packed[0].device)
            given.append(filled(shell, gradient))
        with casting(ctx.autocast):  # types on the way back are those that autocast gave them
            made = plan.back(*given)
        found: list[Any] = [None] * len(packed)
        for number, each in zip(plan.gradients, made, strict=True):
            if ctx.needs_input_grad[4 + number]:
                found[number] = each.values if isinstance(each, Tensor) else each
        return (None, None, None, None, *found)


def autocast_state() -> dict[str, torch.dtype]:
    """The devices for which autocast is on, with the dtypes that it casts to."""
    return {device: torch.get_autocast_dtype(device) for device in ("cpu", "cuda") if torch.is_autocast_enabled(device)}


@contextlib.contextmanager
def casting(casts: Mapping[str, torch.dtype]) -> Iterator[None]:
    """Have autocast on for these devices, with these dtypes, and off for others."""
    with contextlib.ExitStack() as stack:
        for device in ("cpu", "cuda"):
            dtype = casts.get(device)
            if dtype is not None or torch.is_autocast_enabled(device):
                stack.enter_context(torch.autocast(device, dtype, enabled=dtype is not None))
        yield


def _eagerly(plan: Differentiable, ctx: Any, packed: Sequence[torch.Tensor], gradients: Sequence[Any]) -> list[Any]:
    """The gradients with a history of their own, which the function itself gives."""
    tensors = [filled(shell, each) for shell, each in zip(ctx.tensors, packed, strict=True)]
    with contextlib.ExitStack() as stack:
        if ctx.state is not None:  # the generator gives the same numbers, and the same keys, once more
            stack.enter_context(torch.random.fork_rng(devices=[]))
            torch.set_rng_state(ctx.state)
        if ctx.state is None or is_seeded():
            stack.enter_context(replayed(ctx.keys))
        results = plan.eagerly(*tensors)
    wanted = [number for number in range(len(packed)) if ctx.needs_input_grad[4 + number]]
    outs, grads = [], []
    for result, gradient in zip(results, gradients, strict=True):
        values = result.values if isinstance(result, Tensor) else result
        if gradient is not None and values.requires_grad:
            outs.append(values)
            grads.append(gradient)
    found: list[Any] = [None] * len(packed)
    if outs:
        made = torch.autograd.grad(outs, [packed[n] for n in wanted], grads, create_graph=True, allow_unused=True)
        for number, each in zip(wanted, made, strict=True):
            found[number] = each
    return found


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
