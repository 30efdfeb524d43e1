"""Lowered: what became of a function, stage by stage, as text that is meant to be read."""

from __future__ import annotations

import html
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from serrate.compiler.compiling import Compiled, Stage
from serrate.lowering.keys import DRAW
from serrate.passes.lower_ptensor import Fused

STAGES = ("program", "forward", "fusions", "kernels", "source", "host")
"""The stages, in the order in which a function goes through them."""


@dataclass(frozen=True)
class Lowered:
    """The stages of a compiled function. Each is a text; printed, they stand one below the other.

    >>> import serrate as sr
    >>> stages = sr.jit(lambda x: sr.softmax(x, axis=1) * 2).lower(sr.ragged([[0., 1.], []]))
    >>> print(stages.program)
    program(x0: float32[n0, p0] on cpu):
      v0: float32[n0, p0] on cpu = softmax(x0, axis=1)
      v1: float32[n0, p0] on cpu = multiply(v0, 2)
      return v1
    """

    compiled: Compiled | str
    name: str

    @property
    def reason(self) -> str:
        """Why the function runs eagerly; empty if it does not."""
        return self.compiled if isinstance(self.compiled, str) else ""

    @property
    def program(self) -> str:
        """What was traced."""
        return "" if isinstance(self.compiled, str) else str(self.compiled.traced)

    @property
    def forward(self) -> str:
        """The program after the passes, which gives what is saved for the way back, too; and the way back."""
        return "\n\n".join(str(stage.program) for stage in self._stages())

    @property
    def fusions(self) -> str:
        """Which kernels and library calls there are, why each cut was made, and what is kept."""
        return "\n\n".join(map(_cuts, self._stages()))

    @property
    def kernels(self) -> str:
        """The loops of the kernels."""
        return "\n\n".join(str(each.lowered.kernel) for each in self._kernels())

    @property
    def source(self) -> str:
        """The generated sources."""
        return "\n\n".join(each.lowered.source for each in self._kernels())

    @property
    def host(self) -> str:
        """What launches the kernels and calls the libraries."""
        return "\n\n".join(stage.text for stage in self._stages())

    def mlir(self, stage: str = "program") -> str:
        """The program as MLIR text: as it was traced; "forward", after the passes, with the way back behind it; or
        "lowered", as kernels and library calls.

        >>> import serrate as sr
        >>> print(sr.jit(lambda x: sr.exp(x)).lower(sr.ragged([[0., 1.], []])).mlir().splitlines()[2].split(" -> ")[0])
            %v0 = "ptensor.elementwise_unary_op"(%x0) {euop = "exp"} : (!ptensor.ptensor<n0 x @p0 x f32>)
        """
        try:
            from serrate.dialects import lower_ptensor
            from serrate.dialects.to_text import module_of_all
        except ModuleNotFoundError as error:
            message = f"{error.name} is missing, which writes programs as text; pip install 'serrate[opt]'"
            raise ModuleNotFoundError(message, name=error.name) from error
        if isinstance(self.compiled, str):
            raise ValueError(f"{self.name} has no program: {self.compiled}")
        if stage not in ("program", "forward", "lowered"):
            raise ValueError(f'the stages that have a text are "program", "forward" and "lowered", got {stage!r}')
        if stage == "program":
            return str(module_of_all({self.name: self.compiled.traced}))
        names = (self.name, f"{self.name}_back")
        module = module_of_all({name: each.program for name, each in zip(names, self._stages(), strict=False)})
        return str(module if stage == "forward" else lower_ptensor.run(module))

    def _stages(self) -> list[Stage]:
        if isinstance(self.compiled, str):
            return []
        return [stage for stage in (self.compiled.forward, self.compiled.back) if stage is not None]

    def _kernels(self) -> list[Any]:
        return [
            each
            for stage in self._stages()
            for step in stage.steps
            if isinstance(step, Fused)
            for each in step.planned.steps
        ]

    def __str__(self) -> str:
        if self.reason:
            return f"{self.name} runs eagerly: {self.reason}"
        return "\n\n".join(f"== {stage} of {self.name} ==\n{getattr(self, stage)}" for stage in STAGES)

    def to_html(self, path: str | Path) -> None:
        """Write the stages side by side into a file for a browser."""
        columns = "".join(
            f"<section><h2>{stage}</h2><pre>{html.escape(getattr(self, stage))}</pre></section>" for stage in STAGES
        )
        style = "body{display:flex;gap:2em;font:14px sans-serif}pre{font:12px monospace}"
        title = html.escape(self.name)
        text = f"<!doctype html><meta charset='utf-8'><title>{title}</title><style>{style}</style>{columns}\n"
        Path(path).write_text(text, encoding="utf-8")


def _cuts(stage: Stage) -> str:
    """The steps of a stage, each with the reasons for what it is."""
    lines = []
    for step in stage.steps:
        if isinstance(step, Fused):
            regions = ", ".join(dict.fromkeys(each.region for each in step.instructions))
            lines.append(f"fused: {regions}")
            lines += [f"  {line}" for line in str(step.planned).splitlines()]
        elif step.instruction.op != DRAW:
            where = f" at {step.instruction.where}" if step.instruction.where else ""
            lines.append(f"called: {step.instruction}{where}\n  {step.reason}")
        else:
            lines.append(f"called: {step.instruction}")
    return "\n".join(lines)
