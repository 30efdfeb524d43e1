"""Steps that compute element by element: every function of one operand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from tests.programs.broadcast import kind_of
from tests.programs.leaves import UNSIGNED
from tests.programs.mapped import Mapped, is_chain
from tests.programs.operands import check_kinds, fitting
from tests.programs.program import Draw, Environment, Step, generator
from tests.programs.verdicts import Undecided

from serrate.ops.record import TABLE

Function = Callable[..., torch.Tensor]


def modulo(flat: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Integers of 64 bits as unsigned ones of fewer, or as many."""
    if dtype == torch.uint64:
        return flat.contiguous().view(torch.uint64)
    return (flat % (torch.iinfo(dtype).max + 1)).to(dtype)


def widened(function: Function) -> Function:
    """A function of torch for unsigned integers that torch does not compute with."""

    def run(*flats: torch.Tensor) -> torch.Tensor:
        dtype = flats[0].dtype
        if dtype not in UNSIGNED:
            return function(*flats)
        made = function(*[f.to(torch.int64) if isinstance(f, torch.Tensor) else f for f in flats])
        return modulo(made, dtype) if made.dtype == torch.int64 else made

    return run


def round_parts(x: torch.Tensor) -> torch.Tensor:
    return torch.complex(x.real.round(), x.imag.round()) if x.is_complex() else x.round()


def relu6(x: torch.Tensor) -> torch.Tensor:
    return x.clamp(0, 6) if not x.is_floating_point() else F.relu6(x)


# How to bring an operand to where a function is smooth: an expression in x, and the same in torch.
DOMAINS: dict[str, tuple[str, Function]] = {
    "any": ("{x}", lambda x: x),
    "positive": ("(sr.abs({x}) + 0.5)", lambda x: x.abs() + 0.5),
    "unit": ("(sr.tanh({x}) * 0.9)", lambda x: torch.tanh(x) * 0.9),
    "above one": ("(sr.abs({x}) + 1.5)", lambda x: x.abs() + 1.5),
}

AS_TORCH = """abs atan asinh ceil cos cosh exp expm1 floor isfinite isinf isnan logical_not negative positive signbit
sin sinh square tanh trunc erf relu sigmoid nan_to_num"""
POSITIVE = "log log1p log2 log10 reciprocal rsqrt sqrt"
ACTIVATIONS = "silu softplus gelu leaky_relu elu mish celu hardtanh hardswish softsign tanhshrink"

UNARY: dict[str, tuple[str, Function]] = {
    **{name: ("any", getattr(torch, name)) for name in AS_TORCH.split()},
    **{name: ("positive", getattr(torch, name)) for name in POSITIVE.split()},
    **{name: ("any", getattr(F, name)) for name in ACTIVATIONS.split()},
    "bitwise_invert": ("any", torch.bitwise_not),
    "conj": ("any", torch.conj_physical),
    "sign": ("any", torch.sgn),
    "round": ("any", round_parts),
    "relu6": ("any", relu6),
    "real": ("any", lambda x: x.real.clone() if x.is_complex() else x),
    "imag": ("any", lambda x: x.imag.clone()),
    "tan": ("unit", torch.tan),
    "acos": ("unit", torch.acos),
    "asin": ("unit", torch.asin),
    "atanh": ("unit", torch.atanh),
    "acosh": ("above one", torch.acosh),
    "log_sigmoid": ("any", F.logsigmoid),
}

OPTIONS: dict[str, Callable[[Draw], dict[str, Any]]] = {
    "leaky_relu": lambda draw: {"negative_slope": 0.2},
    "elu": lambda draw: {"alpha": 0.5},
    "celu": lambda draw: {"alpha": 0.5},
    "gelu": lambda draw: {"approximate": draw.choice(("none", "tanh"))},
    "nan_to_num": lambda draw: {"nan": 1.5, "posinf": 7.0, "neginf": -7.0},
}


def has_zero(*operands: Any) -> bool:
    """Whether a floating-point operand has a 0, whose sign depends on how it was computed."""
    return any(isinstance(x, Mapped) and kind_of(x.dtype) >= 2 and bool((x.flat == 0).any()) for x in operands)


@generator(6)
def unary(draw: Draw) -> Step | None:
    name = draw.tensor()
    if name is None:
        return None
    x = draw[name]
    function = fitting(draw, list(UNARY), x.dtype)
    domain, reference = UNARY[function]
    options = OPTIONS[function](draw) if function in OPTIONS and draw.chance(0.5) else {}
    if kind_of(x.dtype) < 2 and function == "nan_to_num":
        options = {}
    wild = not draw.grad and draw.chance(0.2)
    expression, inner = DOMAINS["any" if wild or kind_of(x.dtype) < 2 else domain]
    keywords = "".join(f", {k}={v!r}" for k, v in options.items())

    def oracle(env: Environment) -> Mapped:
        x = env[name]
        check_kinds(TABLE[function].kinds, x)
        if function == "signbit" and has_zero(x):
            raise Undecided
        made = widened(lambda flat: reference(inner(flat), **options))(x.flat)
        return x.computed(made)

    text = f"{_face(draw, function, name)}({expression.format(x=name)}{keywords})"
    copies = ".clone()" if function in ("positive", "conj", "real", "imag") or kind_of(x.dtype) < 2 else ""
    return Step(function, text + copies, oracle, (name,), (draw.name(),), waits=not is_chain(x), same_shape=True)


def _face(draw: Draw, function: str, name: str) -> str:
    """The function as `sr` has it, or as torch does."""
    homes = [f"torch.{function}", f"torch.nn.functional.{function}"]
    known = [h for h, home in zip(homes, (torch, F), strict=True) if hasattr(home, function)]
    x = draw[name]  # of a dense tensor torch's functions give torch's own
    takes = kind_of(x.dtype) == 2 and x.is_ragged and function != "imag"
    return draw.choice(known) if known and takes and draw.chance(0.3) else f"sr.{function}"
