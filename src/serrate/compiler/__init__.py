"""The compiler: functions over ragged tensors become a few fused kernels (`sr.jit`).

What it takes to compile is imported when the first function is: programs that compile nothing start sooner.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from serrate.compiler.function import Jitted
    from serrate.compiler.lowered import Lowered
    from serrate.compiler.stats import Stats

__all__ = ["Jitted", "Lowered", "Stats", "explain", "jit"]
_HOMES = {"Jitted": "function", "Lowered": "lowered", "Stats": "stats"}


def jit(function: Callable[..., Any] | None = None, *, static: Iterable[str] = ()) -> Any:
    """The function, compiled: traced once for each signature of its arguments, and run as a few fused kernels.

    It takes and gives what the function does: tensors, in tuples, lists and dicts, and anything else as constants. A
    module is compiled as a function of what its `forward` takes. `static` names arguments that programs have to know,
    such as numbers that branches depend on.

    >>> import serrate as sr
    >>> @sr.jit
    ... def scaled(x):
    ...     return sr.softmax(x, axis=1) * 2
    >>> scaled(sr.ragged([[0., 0.], [], [7.]])).tolist()
    [[1.0, 1.0], [], [2.0]]
    >>> scaled.stats.kernels
    1
    """
    if function is None:
        return functools.partial(jit, static=static)
    if isinstance(function, (classmethod, staticmethod)):
        return type(function)(jit(function.__func__, static=static))
    if not callable(function):
        raise TypeError(f"sr.jit compiles a function or a module, got {type(function).__name__}: {function!r:.60}")
    if isinstance(static, str):
        raise TypeError(f"static= takes a list of names, got the string {static!r}; write [{static!r}]")
    from serrate.compiler.wrapped import compiled

    return compiled(function, static)


def explain(function: Any, *arguments: Any, **named: Any) -> Lowered:
    """What `sr.jit` makes of a function for these arguments, stage by stage: print it, or write it with `to_html`.

    The stages are the program that was traced, the program after the passes, the kernels and library calls with the
    reason for each cut, the loops of the kernels, their sources, and what launches them.

    >>> import serrate as sr
    >>> print(sr.explain(lambda x: sr.sum(sr.exp(x), axis=1), sr.ragged([[1., 2.], [3.]])).program)
    program(x0: float32[n0, p0] on cpu):
      v0: float32[n0, p0] on cpu = exp(x0)
      v1: float32[n0] on cpu = sum(v0, axis=1)
      return v1
    """
    from serrate.compiler.function import Jitted

    made = function if isinstance(function, Jitted) else jit(function)
    return made.lower(*arguments, **named)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
