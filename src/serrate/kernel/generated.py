"""Python functions that are written line by line, compiled once, and then called often."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


class GeneratedFunction:
    """The lines of a function, and what the names in them mean that are not its own."""

    def __init__(self, title: str, meanings: dict[str, Any]) -> None:
        self.title, self.meanings = title, dict(meanings)
        self.lines: list[str] = []

    def line(self, text: str) -> None:
        """Add a line."""
        self.lines.append(text)

    def meaning(self, name: str, value: Any) -> str:
        """A name of its own, which begins as `name` does, for something that the function uses."""
        name = f"{name}_{len(self.meanings)}"
        self.meanings[name] = value
        return name

    def function(self, parameters: Sequence[str]) -> Callable[..., Any]:
        """The function of these parameters.

        >>> made = GeneratedFunction("twice", {})
        >>> made.line(f"return x * {made.meaning('factor', 2)}")
        >>> made.function(["x"])(21)
        42
        """
        body = "\n".join(f"    {line}" for line in self.lines)
        names = dict(self.meanings)
        exec(compile(f"def call({', '.join(parameters)}):\n{body}\n", f"<{self.title}>", "exec"), names)
        call: Callable[..., Any] = names["call"]
        return call
