"""Backward hooks of modules that take or give ragged tensors.

torch's own look for torch tensors among the arguments and results of a module, and never fire for others. Here the
values of Tensors take part by torch's own machinery, set up from a forward hook before and one after the call.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn import Module
from torch.utils.hooks import BackwardHook

from serrate.errors import RaggednessError
from serrate.tensor.tensor import Tensor

Gradients = tuple[Tensor | torch.Tensor | None, ...]


class Handle:
    """What takes a hook away again: `remove()`, or the end of a `with` block."""

    def __init__(self, *handles: Any) -> None:
        self._handles = handles

    def remove(self) -> None:
        """Take the hook away; calls that were made before keep it."""
        for handle in self._handles:
            handle.remove()

    def __enter__(self) -> Handle:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


def register_full_backward_hook(module: Module, hook: Callable[[Module, Gradients, Gradients], Any]) -> Handle:
    """Call `hook(module, grad_input, grad_output)` whenever the gradients of the module's arguments are computed.

    Both are tuples with an entry for each positional argument, and for each result: the gradient of a Tensor is a
    Tensor of the same raggedness, that of a torch tensor a torch tensor; None stands for what has none. If the hook
    gives a tuple, it takes the place of `grad_input`.

    >>> import torch, serrate as sr
    >>> layer = torch.nn.ReLU()
    >>> hook = sr.register_full_backward_hook(layer, lambda _, grad_input, grad_output: print(grad_input[0].tolist()))
    >>> x = sr.ragged([[1., -2.], [], [3.]]).requires_grad_()
    >>> sr.sum(layer(x) * 5).backward()
    [[5.0, 0.0], [], [5.0]]
    >>> hook.remove()
    """
    return _register(module, hook=hook)


def register_full_backward_pre_hook(module: Module, hook: Callable[[Module, Gradients], Any]) -> Handle:
    """Call `hook(module, grad_output)` whenever the gradients of the module's results are computed.

    `grad_output` is that of `sr.register_full_backward_hook`. If the hook gives a tuple, it takes its place.

    >>> import torch, serrate as sr
    >>> layer = torch.nn.ReLU()
    >>> hook = sr.register_full_backward_pre_hook(layer, lambda module, grad_output: (grad_output[0] * 10,))
    >>> x = sr.ragged([[1., -2.], [], [3.]]).requires_grad_()
    >>> sr.sum(layer(x)).backward()
    >>> x.grad.tolist()
    [[10.0, 0.0], [], [10.0]]
    """
    return _register(module, pre_hook=hook)


def _register(module: Module, hook: Any = None, pre_hook: Any = None) -> Handle:
    if not isinstance(module, Module):
        raise TypeError(f"a backward hook belongs to a torch.nn.Module, got {type(module).__name__}")
    if not callable(pre_hook if hook is None else hook):
        raise TypeError(f"a hook must be callable, got {pre_hook if hook is None else hook!r:.60}")
    calls = _Calls(hook, pre_hook)
    return Handle(
        module.register_forward_pre_hook(calls.before), module.register_forward_hook(calls.after, always_call=True)
    )


class _Calls:
    """The calls of a module that have begun and not ended, for each thread; a call may contain another."""

    def __init__(self, hook: Any, pre_hook: Any) -> None:
        self.hook, self.pre_hook = hook, pre_hook
        self._begun: dict[int, list[_Call]] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return _Calls, (self.hook, self.pre_hook)  # a copy of the module has no calls yet

    def before(self, module: Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments of a call that begins."""
        call = _Call(module, self.hook, self.pre_hook)
        self._begun.setdefault(threading.get_ident(), []).append(call)
        return call.enter(args)

    def after(self, module: Module, args: tuple[Any, ...], result: Any) -> Any:
        """The result of a call that ends, or None where it failed, so that none is left over."""
        here = threading.get_ident()
        begun = self._begun.get(here)
        if not begun:
            return None
        call = begun.pop()
        if not begun:
            del self._begun[here]
        return None if result is None else call.leave(result)


class _Call:
    """One call of a module: which of its arguments and results are Tensors, and torch's hook on their values."""

    def __init__(self, module: Module, hook: Any, pre_hook: Any) -> None:
        self.arguments: Sequence[Any] = ()
        self.results: Sequence[Any] = ()
        hooks = [] if hook is None else [lambda m, given, made: self._full(hook, m, given, made)]
        pre_hooks = [] if pre_hook is None else [lambda m, made: self._pre(pre_hook, m, made)]
        self.hook = BackwardHook(module, hooks, pre_hooks)

    def enter(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments, their gradients to be seen."""
        self.arguments = args
        return _wrapped(args, self.hook.setup_input_hook(_values(args)))  # type: ignore[no-untyped-call]

    def leave(self, result: Any) -> Any:
        """The result, its gradient to be seen."""
        several = isinstance(result, tuple)
        if not several and not isinstance(result, (Tensor, torch.Tensor)):
            raise TypeError(
                f"a backward hook needs a module that gives a tensor or a tuple of them, got {type(result).__name__}"
            )
        self.results = result if several else (result,)
        made = _wrapped(self.results, self.hook.setup_output_hook(_values(self.results)))  # type: ignore[no-untyped-call]
        if not several:
            return made[0]
        return type(result)(*made) if hasattr(result, "_fields") else type(result)(made)

    def _full(self, hook: Any, module: Module, given: Any, made: Any) -> Any:
        found = hook(module, _wrapped(self.arguments, given), _wrapped(self.results, made))
        return None if found is None else _checked(found, self.arguments, "grad_input")

    def _pre(self, hook: Any, module: Module, made: Any) -> Any:
        found = hook(module, _wrapped(self.results, made))
        return None if found is None else _checked(found, self.results, "grad_output")


def _values(given: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(each.values if isinstance(each, Tensor) else each for each in given)


def _wrapped(like: Sequence[Any], values: Sequence[Any]) -> tuple[Any, ...]:
    """Values, or their gradients, as what they belong to."""
    return tuple(
        one._with(value) if isinstance(one, Tensor) and isinstance(value, torch.Tensor) else value
        for one, value in zip(like, values, strict=True)
    )


def _checked(found: Any, like: Sequence[Any], name: str) -> tuple[Any, ...]:
    """The gradients that a hook gives, as values."""
    if not isinstance(found, tuple):
        raise TypeError(f"a backward hook gives None or a tuple of {name}, got {type(found).__name__}")
    if len(found) != len(like):
        raise ValueError(f"a backward hook gives as many {name} as there are, {len(like)}, got {len(found)}")
    for one, gradient in zip(like, found, strict=True):
        if not isinstance(gradient, Tensor):
            continue
        if not isinstance(one, Tensor) or one.order != gradient.order or not one.structure.same_as(gradient.structure):
            wanted = getattr(one, "shape", None)
            raise RaggednessError(f"{name} of shape {wanted} cannot become one of shape {gradient.shape}")
    return _values(found)
