"""What the runtime is told about a kernel: its arguments, and what expressions of its sizes are worth."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from serrate.fusion.dtypes import INDEX
from serrate.fusion.functions import FUNCTIONS
from serrate.fusion.scalar import Scalar
from serrate.kernel.ir import Kernel
from serrate.kernel.source import identifier
from serrate.runtime.signature import Signature


def signature(kernel: Kernel) -> Signature:
    """The function that a kernel becomes."""
    return Signature(
        name=kernel.name,
        symbol=identifier(kernel.name),
        buffers=tuple((buffer.name, getattr(torch, buffer.dtype)) for buffer in kernel.buffers),
        sizes=len(kernel.sizes),
        index=kernel.index,
        needed=of_sizes(kernel, [buffer.size for buffer in kernel.buffers]),
        grid=of_sizes(kernel, (*kernel.launch.grid, *kernel.launch.block)),
    )


def of_sizes(kernel: Kernel, wanted: Sequence[Scalar]) -> Callable[..., tuple[int, ...]]:
    """A function of the kernel's sizes that gives what some expressions of them are worth."""
    names = {size: f"s{position}" for position, size in enumerate(kernel.sizes)}
    texts = [python_text(node, names) for node in wanted]
    functions = python_functions()
    made: Callable[..., tuple[int, ...]] = eval(
        f"lambda {', '.join(names.values())}: ({''.join(t + ', ' for t in texts)})", functions
    )
    return made


def python_functions() -> dict[str, Any]:
    """What the names of functions mean in the texts of `python_text`."""
    return {name: row.evaluator(INDEX) for name, row in FUNCTIONS.items() if callable(row.number)}


def python_text(node: Scalar, names: Mapping[Scalar, str]) -> str:
    """An integer expression or a condition as Python, which is evaluated faster than by `evaluate`."""
    if node in names:
        return names[node]
    if node.is_const:
        return repr(node.value)
    row = FUNCTIONS.get(node.op)
    if row is None and node.op != "cast":
        raise ValueError(
            f"{node} is not known before the kernel runs; sizes are {', '.join(map(str, names)) or 'none'}"
        )
    arguments = [python_text(argument, names) for argument in node.args]
    if row is None:
        return arguments[0]
    number = row.number_of(INDEX)
    return number.format(*arguments) if isinstance(number, str) else f"{row.name}({', '.join(arguments)})"
