"""Compiled functions beside the functions themselves: results, raggedness, gradients, and what is shared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

import serrate as sr
from serrate.compiler import Jitted

TOLERANCES: dict[torch.dtype, tuple[float, float]] = {
    torch.float64: (1e-9, 1e-11),
    torch.complex128: (1e-9, 1e-11),
    torch.float32: (2e-5, 2e-6),
    torch.complex64: (2e-5, 2e-6),
    torch.float16: (4e-3, 2e-3),
    torch.bfloat16: (3e-2, 2e-2),
}


def leaves(given: Any) -> list[Any]:
    """What stands in tuples, lists and dictionaries, in order."""
    if isinstance(given, (tuple, list)):
        return [leaf for part in given for leaf in leaves(part)]
    return leaves(list(given.values())) if isinstance(given, dict) else [given]


def tensors(given: Any) -> list[Any]:
    """The tensors among the leaves."""
    return [leaf for leaf in leaves(given) if isinstance(leaf, (sr.Tensor, torch.Tensor))]


def is_inexact(x: Any) -> bool:
    """Whether x has elements that one can differentiate by."""
    return bool(x.is_floating_point() or x.is_complex())


def values_of(x: Any) -> torch.Tensor:
    """The torch tensor inside."""
    return x.values if isinstance(x, sr.Tensor) else x


def packed(x: Any) -> torch.Tensor:
    """The defined elements of a tensor, in an order that does not depend on how its axes are stored."""
    if not isinstance(x, sr.Tensor):
        return x
    made = x.contiguous()
    if made.order != tuple(range(made.ndim)) or not made.is_ragged:
        made = made.contiguous()
    defined = made.values
    if made.is_ragged and not made.partitions[-1].is_exact:
        defined = defined[: int(made.partitions[-1].offsets[-1])]
    return defined


def same(got: Any, want: Any, scale: float = 1.0) -> None:
    """Both are the same: the containers, and of tensors class, shape, dtype, device and elements."""
    assert type(got) is type(want), (type(got), type(want))
    if isinstance(want, dict):
        assert list(got) == list(want)
        for name, part in want.items():
            same(got[name], part, scale)
    elif isinstance(want, (tuple, list)):
        assert len(got) == len(want)
        for one, other in zip(got, want, strict=True):
            same(one, other, scale)
    elif isinstance(want, (sr.Tensor, torch.Tensor)):
        assert got.shape == want.shape, (got.shape, want.shape)
        assert got.dtype == want.dtype, (got.dtype, want.dtype)
        assert got.device == want.device
        assert got.requires_grad == want.requires_grad, ("requires_grad", got.requires_grad, want.requires_grad)
        close(packed(got), packed(want), scale)
    else:
        assert got == want or (got != got and want != want), (got, want)


def close(got: torch.Tensor, want: torch.Tensor, scale: float = 1.0) -> None:
    """Both have the same elements, as near as their dtype can tell."""
    relative, absolute = TOLERANCES.get(want.dtype, (0.0, 0.0))
    torch.testing.assert_close(
        got.detach(), want.detach(), equal_nan=True, rtol=relative * scale, atol=absolute * scale, check_stride=False
    )


def shared_alike(got: Any, want: Any, given: Sequence[Any]) -> None:
    """Partitions that the function's own results share with arguments, or with each other, are shared there, too."""
    known = [p for x in given if isinstance(x, sr.Tensor) for p in x.partitions]

    def places(result: Any) -> list[list[int]]:
        found: list[Any] = list(known)
        made = []
        for x in tensors(result):
            row = []
            for p in x.partitions if isinstance(x, sr.Tensor) else ():
                at = next((number for number, each in enumerate(found) if each is p), len(found))
                if at == len(found):
                    found.append(p)
                row.append(at)
            made.append(row)
        return made

    for mine, theirs in zip(places(got), places(want), strict=True):
        for one, other in zip(mine, theirs, strict=True):
            assert one == other or other >= len(known), ("partitions that are shared", mine, theirs)


def compiled(function: Callable[..., Any]) -> Jitted:
    """The compiled function."""
    return sr.jit(function)


def agree(function: Callable[..., Any], *given: Any, seed: int = 0, calls: int = 1, **named: Any) -> Jitted:
    """The compiled function gives what the function gives; the compiled one, to ask how."""
    torch.manual_seed(seed)
    want = function(*given, **named)
    made = compiled(function)
    for _ in range(calls):
        torch.manual_seed(seed)
        got = made(*given, **named)
        same(got, want)
        shared_alike(got, want, leaves((given, named)))
    return made


def with_gradients(given: Any) -> Any:
    """The same tensors, of which those of inexact numbers are leaves that need gradients."""
    if isinstance(given, (tuple, list)):
        parts = [with_gradients(part) for part in given]
        return type(given)(*parts) if hasattr(given, "_fields") else type(given)(parts)
    if isinstance(given, dict):
        return {name: with_gradients(part) for name, part in given.items()}
    if isinstance(given, sr.Grouped):
        values = given.values.detach().clone().requires_grad_(is_inexact(given))
        return sr.Grouped(values, given.structure, given.order, given.team, route=given.route)
    if isinstance(given, sr.Tensor):
        return given._with(given.values.detach().clone().requires_grad_(is_inexact(given)))
    if isinstance(given, torch.Tensor):
        return given.detach().clone().requires_grad_(is_inexact(given))
    return given


def directions(results: Sequence[torch.Tensor], seed: int = 5) -> list[torch.Tensor]:
    """A gradient for each result."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(x.shape, generator=generator, dtype=x.dtype) for x in results]


def pulled(function: Callable[..., Any], given: Any, named: Any, seed: int) -> tuple[Any, list[Any]]:
    """What a function gives, and the gradients of all its tensors."""
    given, named = with_gradients(given), with_gradients(named)
    torch.manual_seed(seed)
    result = function(*given, **named)
    inputs = [values_of(x) for x in tensors((given, named)) if is_inexact(x)]
    ends = [packed(x) for x in tensors(result) if x.requires_grad]
    if not ends or not inputs:
        return result, [None] * len(inputs)
    return result, list(torch.autograd.grad(ends, inputs, directions(ends), allow_unused=True))


def agree_with_gradients(
    function: Callable[..., Any], *given: Any, seed: int = 0, scale: float = 1.0, **named: Any
) -> Jitted:
    """The compiled function gives what the function gives, and the same gradients."""
    want, wanted = pulled(function, given, named, seed)
    made = compiled(function)
    got, found = pulled(made, given, named, seed)
    same(got, want, scale)
    for one, other in zip(found, wanted, strict=True):
        if other is None or one is None:
            assert one is None, "a gradient that eager has not"
            assert other is None, "a gradient is missing"
        else:
            close(one, other, scale)
    return made
