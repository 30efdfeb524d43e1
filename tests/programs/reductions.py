"""Steps that reduce or normalize along axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from tests.programs.broadcast import kind_of
from tests.programs.leaves import UNSIGNED, Leaf, random_values
from tests.programs.lines import groups, kept, reduced
from tests.programs.mapped import Lengths, Mapped, is_chain, parents
from tests.programs.operands import check_kinds, fitting
from tests.programs.program import Draw, Environment, Step, generator

from serrate.ops.record import TABLE

Function = Callable[[torch.Tensor], torch.Tensor]


def precise(function: Function, dtype: torch.dtype | None = None) -> Function:
    """Computed in float64 from numbers of less precision, then rounded once."""

    def run(x: torch.Tensor) -> torch.Tensor:
        wide = torch.complex128 if x.is_complex() else torch.float64 if x.is_floating_point() else x.dtype
        made = function(x.to(wide))
        answer = dtype or (x.dtype if made.is_complex() or not x.is_complex() else x.abs().dtype)
        return made.to(answer) if made.is_floating_point() or made.is_complex() else made

    return run


def added(name: str, dtype: torch.dtype | None) -> Function:
    """sum or prod: integers in 64 bits, unsigned ones unsigned."""

    def run(x: torch.Tensor) -> torch.Tensor:
        if dtype is not None:
            x = x.to(dtype)
        if x.is_floating_point() or x.is_complex():
            return precise(getattr(torch, name), x.dtype)(x)
        made = getattr(torch, name)(x.to(torch.int64))
        if dtype is not None:
            return made.to(dtype)
        return made.to(torch.uint64) if x.dtype in (*UNSIGNED, torch.uint8) else made

    return run


def extreme(name: str) -> Function:
    def run(x: torch.Tensor) -> torch.Tensor:
        if x.numel():
            wide = x.to(torch.int64) if x.dtype in UNSIGNED else x
            return getattr(torch, "a" + name)(wide).to(x.dtype)
        if x.is_floating_point():
            return x.sum() + float("-inf" if name == "max" else "inf")
        limits = torch.iinfo(x.dtype)
        return torch.tensor(limits.min if name == "max" else limits.max, dtype=x.dtype)

    return run


def spread_of(name: str, correction: float) -> Function:
    def run(x: torch.Tensor) -> torch.Tensor:
        if not x.numel():
            return x.sum() + float("nan")
        made = ((x - x.mean()) ** 2).sum() / (x.numel() - correction)
        return made if name == "var" else made.sqrt()

    return precise(run)


def logsumexp(x: torch.Tensor) -> torch.Tensor:
    return torch.logsumexp(x, 0) if x.numel() else x.sum() + float("-inf")


def norm(order: float) -> Function:
    def run(x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.vector_norm(x, order) if x.numel() else x.abs().sum()

    return precise(run)


def first_extreme(name: str) -> Function:
    def run(x: torch.Tensor) -> torch.Tensor:
        wide = x.to(torch.int64) if x.dtype in UNSIGNED else x
        return getattr(torch, name)(wide) if x.numel() else torch.tensor(-1)

    return run


def nonzero_count(x: torch.Tensor) -> torch.Tensor:
    return torch.tensor(sum(bool(v) for v in x.tolist()))


# ------------------------------------------------------------------------------------------------------ axes


def random_axes(draw: Draw, x: Mapped, *, several: bool = True, none: bool = True) -> tuple[str, list[int]] | None:
    """An axis, several, or all: as text, and as numbers."""
    if none and (draw.chance(0.15) or not x.ndim):
        return "", list(range(x.ndim))
    if not x.ndim:
        return None
    if several and x.ndim > 1 and draw.chance(0.25):
        chosen = draw.random.sample(range(x.ndim), draw.integer(1, x.ndim))
        shown = [a - x.ndim if draw.chance(0.3) else a for a in chosen]
        return f", axis={tuple(shown)}", sorted(chosen)
    ragged = [a for a, axis in enumerate(x.axes) if isinstance(axis, Lengths)]
    a = draw.choice(ragged) if ragged and draw.chance(0.4) else draw.integer(0, x.ndim - 1)
    return f", axis={a - x.ndim if draw.chance(0.3) else a}", [a]


def is_free(x: Mapped, along: Sequence[int]) -> bool:
    """Whether no axis depends on these."""
    return all(not set(parents(axis)) & set(along) for axis in x.axes)


REDUCTIONS = "sum prod mean var std max min any all count_nonzero logsumexp norm linalg.vector_norm".split()  # noqa: SIM905


@generator(8)
def reduction(draw: Draw) -> Step | None:
    name = draw.tensor()
    if name is None:
        return None
    x = draw[name]
    function = fitting(draw, REDUCTIONS, x.dtype)
    found = random_axes(draw, x)
    if found is None:
        return None
    text, along = found
    keepdims = draw.chance(0.3)
    reference, more = _reference(draw, function, x)
    words = f"sr.{function}({name}{text}{', keepdims=True' if keepdims else ''}{more})"

    def oracle(env: Environment) -> Mapped:
        check_kinds(TABLE[function].kinds, env[name])
        return reduced(env[name], along, keepdims, reference)

    quiet = is_chain(x) and is_free(x, along)
    return Step(function, words, oracle, (name,), (draw.name(),), waits=not quiet)


def _reference(draw: Draw, function: str, x: Mapped) -> tuple[Function, str]:
    if function in ("sum", "prod"):
        dtype = draw.choice((torch.float64, torch.int64)) if draw.chance(0.1) else None
        if (dtype == torch.int64 and kind_of(x.dtype) > 1) or x.dtype.is_complex or x.dtype == torch.bool:
            dtype = None
        return added(function, dtype), f", dtype={dtype}" if dtype else ""
    if function in ("max", "min"):
        return extreme(function), ""
    if function in ("var", "std"):
        correction = draw.choice((0, 0, 1, 0.5))
        return spread_of(function, correction), f", correction={correction}" if correction or draw.chance(0.3) else ""
    if function in ("any", "all"):
        return lambda x: getattr(torch, function)(x.to(torch.bool)), ""
    if function == "count_nonzero":
        return nonzero_count, ""
    if function == "mean":
        return precise(lambda x: x.sum() / x.numel() if x.numel() else x.sum() + float("nan")), ""
    if function == "logsumexp":
        return precise(logsumexp), ""
    order = draw.choice((1, 2, 2, 3, float("inf")))
    return norm(order), f", ord={order}" if order != 2 or draw.chance(0.3) else ""


@generator(2)
def argument(draw: Draw) -> Step | None:
    """argmax and argmin; without an axis they count packed elements, so the storage must be known."""
    name = draw.tensor(lambda x: kind_of(x.dtype) in (1, 2))
    if name is None:
        return None
    x = draw[name]
    found = random_axes(draw, x, several=False, none=x.is_stored_as_seen)
    if found is None:
        return None
    text, along = found
    function = draw.choice(("argmax", "argmin"))
    keepdims = bool(text) and draw.chance(0.3)

    def oracle(env: Environment) -> Mapped:
        x = env[name]
        if not text:
            return Mapped.of((), first_extreme(function)(x.flat).reshape(1))
        where = {index: [x.indices[k][along[0]] for k in ranks] for index, ranks in groups(x, along).items()}
        made = reduced(x, along, False, first_extreme(function))
        flat = [where[i][k] if k >= 0 else -1 for i, k in zip(made.indices, made.flat.tolist(), strict=True)]
        shaped = reduced(x, along, keepdims, first_extreme(function))
        return Mapped.of(shaped.axes, torch.tensor(flat, dtype=torch.int64))

    words = f"sr.{function}({name}{text}{', keepdims=True' if keepdims else ''})"
    return Step(
        function, words, oracle, (name,), (draw.name(),), waits=not (is_chain(x) and is_free(x, along) and text)
    )


# ------------------------------------------------------------------------------------------------------ normalizations


def softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, 0)


def log_softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.log_softmax(x, 0)


def layer_norm(eps: float) -> Function:
    def run(x: torch.Tensor) -> torch.Tensor:
        if not x.numel():
            return x
        return (x - x.mean()) * torch.rsqrt(((x - x.mean()) ** 2).mean() + eps)

    return run


def rms_norm(eps: float) -> Function:
    return lambda x: x * torch.rsqrt((x * x).mean() + eps) if x.numel() else x


def normalize(eps: float) -> Function:
    return lambda x: x / torch.linalg.vector_norm(x).clamp_min(eps) if x.numel() else x


@generator(4)
def normalization(draw: Draw) -> Step | None:
    name = draw.tensor(lambda x: kind_of(x.dtype) == 2)
    if name is None:
        return None
    x = draw[name]
    function = draw.choice(("softmax", "log_softmax", "layer_norm", "rms_norm", "normalize"))
    found = random_axes(draw, x, none=False)
    if found is None:
        return None
    text, along = found
    eps = draw.choice((0.1, 0.5))
    more = "" if "softmax" in function else f", eps={eps}"
    references: dict[str, Function] = {
        "softmax": softmax,
        "log_softmax": log_softmax,
        "layer_norm": layer_norm(eps),
        "rms_norm": rms_norm(eps),
        "normalize": normalize(eps),
    }
    size = x.axes[along[0]]
    weights: list[str] = []
    if function in ("layer_norm", "rms_norm") and along == [x.ndim - 1] and isinstance(size, int) and draw.chance(0.5):
        for _ in range(2 if function == "layer_norm" and draw.chance(0.5) else 1):
            values = random_values(draw.random, size, x.dtype)
            weights.append(draw.like(Leaf((size,), values, x.dtype, plain=True)))

    def oracle(env: Environment) -> Mapped:
        made = kept(env[name], along, precise(references[function]))
        flat = made.flat
        last = [index[-1] for index in made.indices] if weights else []
        if weights:
            flat = flat * env[weights[0]].flat[last]
        if len(weights) > 1:
            flat = flat + env[weights[1]].flat[last]
        return made.computed(flat)

    words = f"sr.{function}({', '.join([name, *weights])}{text}{more})"
    quiet = is_chain(x) and is_free(x, along)
    return Step(function, words, oracle, (name, *weights), (draw.name(),), waits=not quiet, same_shape=True)
