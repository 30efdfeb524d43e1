"""What the oracle says about a call: its results, the exceptions that must come, either, or nothing at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from tests.programs.mapped import Mapped

DOCUMENTED = (IndexError, ValueError, TypeError, OverflowError, NotImplementedError, torch.linalg.LinAlgError)
"""What a refused call may raise; RaggednessError and AxisError are ValueErrors."""


class Refused(Exception):
    """Raised inside the oracle: the call is wrong, and one of these exceptions must come."""

    def __init__(self, *errors: type[Exception]) -> None:
        super().__init__(errors)
        self.errors = errors


class Undecided(Exception):
    """Raised inside the oracle: the documents do not say what comes, so any result or documented exception will do."""


@dataclass(frozen=True)
class Verdict:
    """Results to compare with, exceptions to expect, or both where the documents leave the choice."""

    results: tuple[Mapped, ...] | None
    errors: tuple[type[Exception], ...] = ()

    @property
    def is_certain(self) -> bool:
        """Whether there has to be a result."""
        return self.results is not None and not self.errors


def decide(oracle: Any, *args: Any) -> Verdict:
    """The verdict of an oracle, a function that gives one or several tensors, raises, or gives a verdict itself."""
    try:
        made = oracle(*args)
    except Refused as refused:
        return Verdict(None, refused.errors)
    except (Undecided, NotImplementedError):  # or torch has no such kernel for the oracle
        return Verdict(None)
    if isinstance(made, Verdict):
        return made
    return Verdict(made if isinstance(made, tuple) else (made,))


def either(made: Mapped, *errors: type[Exception]) -> Verdict:
    """This result, or one of these exceptions."""
    return Verdict((made,), errors)
