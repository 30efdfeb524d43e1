"""Functions whose gradient is written by hand, and what replaces them where torch asks for more than gradients."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import is_grad_enabled
from torch._C import _are_functorch_transforms_active as _are_transforms_active
from torch._C import _current_graph_task_id
from torch._C._functorch import TransformType, get_interpreter_stack, unwrap_if_dead
from torch.autograd import forward_ad

from serrate.tensor import host


def beyond_gradients() -> bool:
    """Whether torch follows tangents (forward mode), or computes many lines at once (vmap)."""
    if forward_ad._current_level >= 0:
        return True
    if not _are_transforms_active():
        return False
    return any(level.key() == TransformType.Vmap for level in get_interpreter_stack() or ())


class Differentiable(torch.autograd.Function):
    """A function with a gradient of its own, at the cost of a plain call where nobody asks for one.

    `call` is `apply` without what that costs each time: looking up the signature of `forward`, and a node of the graph
    that nothing would use. Where torch follows tangents or lines, it is `composed` of torch's own operations, which
    know every derivative and every transform.
    """

    is_fresh = False
    """Whether the result of `forward` is always new memory and no view of anything, as that of a kernel is."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls._plain = cls.forward  # type: ignore[attr-defined]
        if not cls.is_fresh:
            cls.forward = staticmethod(_giving_its_own(cls.forward))  # type: ignore[method-assign]
        # torch's Function.apply looks for functorch, binds arguments, and then calls this; `call` has done all of that.
        cls._node = super(torch.autograd.Function, cls).apply  # type: ignore[attr-defined, misc]

    @classmethod
    def composed(cls, *args: Any) -> torch.Tensor:
        """The same function made of torch's operations, none of them in place. It is `forward`; a class whose `forward`
        writes in place, or calls a kernel, has another."""
        return cls._plain(*args)  # type: ignore[attr-defined, no-any-return]

    @classmethod
    def call(cls, *args: Any) -> torch.Tensor:
        """The function of `args`, part of the graph if one of them is."""
        transformed = _are_transforms_active()
        if (transformed or forward_ad._current_level >= 0) and beyond_gradients():
            return cls.composed(*args)
        if _current_graph_task_id() != -1 and any(map(_is_batch, args)):
            return cls.composed(*args)
        if is_grad_enabled():
            for given in args:
                if isinstance(given, torch.Tensor) and given.requires_grad:
                    if transformed:
                        return cls.apply(*args)  # type: ignore[no-untyped-call, no-any-return]
                    return cls._node(*map(_unwrapped, args))  # type: ignore[attr-defined, no-any-return]
        return cls._plain(*args)  # type: ignore[attr-defined, no-any-return]


def _unwrapped(given: Any) -> Any:
    """A tensor without the wrappers of transforms that have ended; anything else is left as it is."""
    return unwrap_if_dead(given) if isinstance(given, torch.Tensor) else given


def _is_batch(given: Any) -> bool:
    return isinstance(given, torch.Tensor) and host.is_batch(given)


_VIEWS = torch._C.DispatchKeySet(torch._C.DispatchKey.ADInplaceOrView)
"""The dispatch keys by which torch records what is a view of what."""


def _giving_its_own(forward: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """A forward function whose result may be written to in place; torch forbids that for views made inside of it."""

    @functools.wraps(forward)
    def run(*args: Any) -> torch.Tensor:
        if torch.compiler.is_compiling() or _are_transforms_active():
            return forward(*args)
        with torch._C._ExcludeDispatchKeyGuard(_VIEWS):
            made = forward(*args)
        if made is None:  # A kernel that refuses its arguments gives None, and its caller uses torch instead.
            return made
        memory = made.untyped_storage()._cdata
        tensors = (given for given in args if isinstance(given, torch.Tensor))
        return made.clone() if any(given.untyped_storage()._cdata == memory for given in tensors) else made

    run.__signature__ = inspect.signature(forward)  # type: ignore[attr-defined]
    return run
