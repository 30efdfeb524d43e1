"""What torch.compile traces, and what runs eagerly between its graphs.

Work on structure is Python on numbers that differ from batch to batch: traced, it would be compiled for each of them
anew. So a function that needs structure is `untraced`: it ends a graph and runs eagerly. What takes packed values as
they are is traced as part of the graph of its caller, never as a graph of its own (`part`).

Both only leave marks on functions: a call costs what it did.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypeVar

from torch._C._dynamo import eval_frame


def _as_it_is() -> Any:
    """What tells the compiler to run a function, and what the function calls, eagerly.

    None if torch has no such thing: these names of torch are private, and a program that compiles nothing must not
    need them.
    """
    names = ("set_code_exec_strategy", "_FrameExecStrategy", "_FrameAction")
    if not all(hasattr(eval_frame, name) for name in names):
        return None
    skip = eval_frame._FrameAction.SKIP
    return eval_frame._FrameExecStrategy(skip, skip)


_AS_IT_IS = _as_it_is()
P = ParamSpec("P")
R = TypeVar("R")


def untraced(function: Callable[P, R]) -> Callable[P, R]:
    """The function itself, marked so that torch.compile ends a graph before it and does not trace it.

    It is torch.compiler.disable without a wrapper, and without the import of the compiler, which takes seconds.
    """
    part([function])
    function._torchdynamo_disable = True  # type: ignore[attr-defined]
    function._torchdynamo_disable_msg = "Serrate works on structure eagerly"  # type: ignore[attr-defined]
    return function


def part(members: Iterable[Any]) -> None:
    """Let torch.compile trace these (functions, methods, properties) only as a part of what calls them."""
    for member in members:
        function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
        if isinstance(function, types.FunctionType) and _AS_IT_IS is not None:
            eval_frame.set_code_exec_strategy(function.__code__, _AS_IT_IS)
