"""What cannot be drawn is refused, with what was expected."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from serrate.fusion import IterDomain, const, symbol
from serrate.fusion.raggedness import Listed, Stored
from serrate.kernel.ir import Kernel
from serrate.viz import Drawing, draw_axes, draw_fusion, draw_layout, draw_loops, draw_tensor


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: draw_axes(3), "an axis, a TensorDomain or a sequence of axes, got int"),  # type: ignore[arg-type]
        (lambda: draw_axes([IterDomain(3), "x"]), "a sequence of axes, got str among them"),  # type: ignore[list-item]
        (lambda: draw_axes(IterDomain(3), predicated=[3]), "a collection of axes, got int among them"),  # type: ignore[list-item]
        (lambda: draw_tensor(IterDomain(3)), "takes a TensorView, got IterDomain"),  # type: ignore[arg-type]
        (lambda: draw_fusion(None), "takes a Fusion, got NoneType"),  # type: ignore[arg-type]
        (lambda: draw_loops([]), "takes a Kernel, got list"),  # type: ignore[arg-type]
        (lambda: draw_loops(Kernel("k", (), (), (3,))), "the statements of the kernel IR, got int"),  # type: ignore[arg-type]
        (lambda: draw_layout("0123"), "or offsets .*, got str"),
        (lambda: draw_layout(3), "a Partition, a Raggedness, .* got int"),
        (lambda: draw_layout([0, 1], features=2.0), "features must be an int or None, got float"),  # type: ignore[arg-type]
    ],
)
def test_wrong_types_say_what_was_expected(call: Callable[[], Drawing], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        call()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: draw_axes([]), "got no axes"),
        (lambda: draw_axes(IterDomain(3), predicated=[IterDomain(3)]), "not one of the axes drawn"),
        (lambda: draw_layout([0, 3, 2]), "offsets must never decrease"),
        (lambda: draw_layout([0, 1], features=0), "features must be 1 or more, got 0"),
        (lambda: draw_layout(Stored("offsets", symbol("k"), symbol("n"))), "known only when it runs"),
        (lambda: draw_layout(Listed((const(3), symbol("n")))), "known only when it runs"),
    ],
)
def test_wrong_values_are_refused(call: Callable[[], Drawing], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
