"""Steps that compute losses: the mean, the sum or each of what is defined."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from tests.programs.broadcast import common, stretched
from tests.programs.elementwise import DOMAINS
from tests.programs.keys import shape_only
from tests.programs.leaves import Leaf, like, random_values
from tests.programs.mapped import Lengths, Mapped, is_loose, parents, same_axes
from tests.programs.operands import second
from tests.programs.program import Draw, Environment, Step, generator
from tests.programs.verdicts import Undecided

LOSSES: dict[str, tuple[str, Callable[..., torch.Tensor]]] = {
    "mse_loss": ("", F.mse_loss),
    "l1_loss": ("", F.l1_loss),
    "smooth_l1_loss": ("beta", F.smooth_l1_loss),
    "huber_loss": ("delta", F.huber_loss),
    "binary_cross_entropy_with_logits": ("", F.binary_cross_entropy_with_logits),
    "binary_cross_entropy": ("", F.binary_cross_entropy),
}


def reduced(made: torch.Tensor, reduction: str) -> torch.Tensor:
    if reduction == "none":
        return made
    total = made.sum()
    return (total if reduction == "sum" else total / made.numel() if made.numel() else total + float("nan")).reshape(1)


@generator(2)
def loss(draw: Draw) -> Step | None:
    name = draw.tensor(lambda x: x.dtype in (torch.float64, torch.float32))
    if name is None:
        return None
    other = second(draw, name, numbers=False).value
    if draw[other].dtype != draw[name].dtype or {name, other} <= draw.program.plain:
        return None
    function = draw.choice(list(LOSSES))
    option, reference = LOSSES[function]
    reduction = draw.choice(("mean", "sum", "none"))
    options = {option: 0.5} if option else {}
    probability = function == "binary_cross_entropy"
    low, inner = DOMAINS["unit"]
    to_unit = lambda flat: (inner(flat) + 1) / 2  # noqa: E731
    shown = [f"(({low.format(x=n)} + 1) / 2)" if probability else n for n in (name, other)]

    def oracle(env: Environment) -> Mapped:
        if env[name].ndim != env[other].ndim:
            raise Undecided
        axes = common(env[name].axes, env[other].axes)
        if function.startswith("binary") and any(not same_axes(env[n].axes, axes) for n in (name, other)):
            raise Undecided  # torch wants one size there
        x, y = [stretched(env[n], axes) for n in (name, other)]
        if probability:
            x, y = to_unit(x), to_unit(y)
        made = reduced(reference(x, y, reduction="none", **options), reduction)
        return Mapped.of(axes if reduction == "none" else (), made)

    words = ", ".join([*shown, f"reduction={reduction!r}", *[f"{k}={v}" for k, v in options.items()]])
    return Step(function, f"sr.{function}({words})", oracle, tuple(dict.fromkeys((name, other))), (draw.name(),))


@generator(1.5)
def cross_entropy(draw: Draw) -> Step | None:
    """Logits with classes at axis 1, a uniform axis that nothing depends on, and a target without it."""

    def fits(x: Mapped) -> bool:
        classes = x.ndim > 1 and isinstance(x.axes[1], int) and x.axes[1] > 0
        return (
            x.dtype == torch.float64 and classes and all(1 not in parents(a) for a in x.axes) and not is_loose(x.axes)
        )

    name = draw.tensor(fits)
    if name is None:
        return None
    x = draw[name]
    classes = x.axes[1]
    assert isinstance(classes, int)
    left = [a for a in range(x.ndim) if a != 1]
    where = {a: k for k, a in enumerate(left)}
    shape = shape_only([a.renamed(where) if isinstance(a := x.axes[b], Lengths) else a for b in left])
    values = {index: draw.choice((*range(classes), -100)) for index in shape.indices}
    leaf = like(draw.random, shape, torch.int64, values=values)
    if leaf is None:
        return None
    target = draw.given(leaf)
    if {name, target} <= draw.program.plain:
        return None
    reduction = draw.choice(("mean", "sum", "none"))
    smoothing = draw.choice((0.0, 0.0, 0.1))
    weight = None
    if draw.chance(0.3):
        given = tuple(abs(v) + 0.1 for v in random_values(draw.random, classes, torch.float64))
        weight = draw.given(Leaf((classes,), given, torch.float64, plain=True))

    def oracle(env: Environment) -> Mapped:
        x, y = env[name], env[target]
        order = [a for a in range(x.ndim) if a != 1] + [1]
        rows = x.permuted(order).flat.reshape(len(y.indices), classes)
        w = None if weight is None else env[weight].flat
        made = F.cross_entropy(rows, y.flat, w, reduction=reduction, label_smoothing=smoothing)
        return Mapped.of(y.axes if reduction == "none" else (), made.reshape(-1))

    options = [f"reduction={reduction!r}"] + ([f"label_smoothing={smoothing}"] if smoothing else [])
    options += [f"weight={weight}"] if weight else []
    words = f"sr.cross_entropy({', '.join([name, target, *options])})"
    return Step("cross_entropy", words, oracle, (name, target, *([weight] if weight else [])), (draw.name(),))
