"""Tables of calls that must be refused, and the small programs that they are made of."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from tests.fusion.samples import nested

from serrate.errors import RaggednessError, ScheduleError
from serrate.fusion import Fusion, IterDomain, RaggedIterDomain, TensorDomain, TensorView
from serrate.kernel import lower

AXIS = re.compile(r"[irb](S|[VUTL]|blockIdx\.[xyz]|threadIdx\.[xyz])\w*\{")  # as an axis is printed


@dataclass(frozen=True)
class Refusal:
    """A call that must raise an error of this type, with this text."""

    call: Callable[[], Any]
    error: type[Exception]
    text: str


class Refusals:
    """A table of refusals by name; it is filled by decorating the calls."""

    def __init__(self) -> None:
        self.cases: dict[str, Refusal] = {}
        self.of_axes: list[str] = []  # those that must name an axis

    def __call__(
        self, error: type[Exception], text: str, *, of_an_axis: bool = True
    ) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
        """Enter a call; each is a refusal of its own."""

        def enter(call: Callable[[], Any]) -> Callable[[], Any]:
            name = call.__name__
            assert name not in self.cases, name
            assert all((error, text) != (case.error, case.text) for case in self.cases.values()), name
            self.cases[name] = Refusal(call, error, text)
            if of_an_axis and error in (ScheduleError, RaggednessError):
                self.of_axes.append(name)
            return call

        return enter

    def check(self, name: str) -> None:
        """The call raises this error, no subclass of it, and says exactly this."""
        case = self.cases[name]
        with pytest.raises(case.error) as caught:
            case.call()
        assert type(caught.value) is case.error, caught.value
        said = caught.value.args[0]
        assert said == case.text, f"{said!r} instead of {case.text!r}"

    def names_an_axis(self, name: str) -> bool:
        return AXIS.search(self.cases[name].text) is not None


# Programs


def copied(*shape: int | str) -> TensorView:
    """A copy of an input of this shape, an output."""
    fusion = Fusion()
    return fusion.output(fusion.copy(fusion.input("x", list(shape))), "y")


def copied_rows() -> TensorView:
    """A copy of [k, r, 4], an output."""
    fusion = Fusion()
    return fusion.output(fusion.copy(nested(fusion, 4)), "y")


def summed(*shape: int | str, axis: int = 1) -> TensorView:
    """A sum over an axis of an input of this shape, an output."""
    fusion = Fusion()
    return fusion.output(fusion.reduce("sum", fusion.input("x", list(shape)), [axis]), "y")


def summed_rows() -> TensorView:
    """The sum over r of [k, r, 4], an output."""
    fusion = Fusion()
    return fusion.output(fusion.reduce("sum", nested(fusion, 4), [1]), "y")


def lowered(y: TensorView, target: str = "cpp") -> Any:
    return lower(y.fusion, y, target=target)


def ragged_of(*lengths: int) -> RaggedIterDomain:
    return RaggedIterDomain([IterDomain(length) for length in lengths], name="r")


def stray_rows() -> TensorView:
    """An input whose ragged axis depends on an axis that it does not have."""
    rows = RaggedIterDomain.of(ragged_of(1, 2).raggedness, component=IterDomain(2, name="c"), name="r")
    domain = TensorDomain([rows])
    domain.allocation = (IterDomain(3, name="i"),)
    return Fusion().input("x", domain)
