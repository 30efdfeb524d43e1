"""Every operation × every structure × every dtype it declares: `python -m tests.ops.matrix` prints what runs.

A cell is a call per sample of the record. A cell that cannot be has its reason here; nothing else may be missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from tests.ops.expected import dtype_rule, shape_rule
from tests.ops.samples import DTYPES, NAMES, sample
from tests.oracle import check

import serrate as sr
from serrate.ops.record import TABLE, Op
from serrate.tensor.broadcast import broadcast_shapes

# Cells that cannot be: for an operation (or a family) the structures, the dtypes (None: all) and the reason.
ABSENT: dict[str, list[tuple[tuple[str, ...], tuple[torch.dtype, ...] | None, str]]] = {
    "binary_cross_entropy": [(("NaN and inf",), None, "probabilities lie between 0 and 1")],
    "random.bernoulli": [(("NaN and inf",), None, "probabilities lie between 0 and 1")],
    "linalg.cholesky": [(("NaN and inf",), None, "no such matrix is positive-definite")],
    **{
        f"linalg.{name}": [(("NaN and inf",), None, "LAPACK's singular values do not converge")]
        for name in ("svd", "svdvals", "pinv", "matrix_rank")
    },
}


@dataclass(frozen=True)
class Cell:
    op: Op
    structure: str
    dtype: torch.dtype
    absent: str
    """Why the cell is empty; "" if it must run."""

    def run(self) -> None:
        """Every sample of the record, its result checked against the rules of `tests.ops.expected`."""
        for text in self.op.samples:
            x = sample(self.structure, self.dtype)
            args, options = arguments(text, x)
            result = result_of(self.op, args, options)
            first = next(iter(result), None) if isinstance(result, tuple | list) else result
            if not isinstance(first, sr.Tensor):
                continue
            check(first)
            flat = [part for a in args for part in (a if isinstance(a, tuple | list) else [a])]
            tensors = [as_tensor(a) for a in flat if isinstance(a, sr.Tensor | torch.Tensor)]
            if not tensors:
                continue
            wanted = expected_dtype(self.op, tensors)
            assert wanted is None or first.dtype == wanted, (self.op.name, text, first.dtype, wanted)
            check_shape(self.op, first, tensors, options)


def arguments(text: str, x: sr.Tensor) -> tuple[tuple[Any, ...], dict[str, Any]]:
    scope = {"x": x, "sr": sr, "torch": torch, "take": lambda *args, **options: (args, options)}
    return eval(f"take({text})", scope)  # type: ignore[no-any-return]


def result_of(op: Op, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """What a call gives; of an operation that writes, a copy of the operand, which was written to."""
    if not op.writes:
        return op.function(*args, **options)
    written = args[0].clone()
    given = op.function(written, *args[1:], **options)
    assert given is None if op.name == "Tensor.setitem" else given is written
    return written


def as_tensor(given: Any) -> sr.Tensor:
    return given if isinstance(given, sr.Tensor) else sr.Tensor(given)


def expected_dtype(op: Op, tensors: list[sr.Tensor]) -> torch.dtype | None:
    """The dtype a result must have by the operation's rule; None if the rule is its own."""
    rule = dtype_rule(op.name)
    if rule == "own" or not tensors:
        return None
    dtype = tensors[0].dtype
    if rule == "promoted":
        for other in tensors[1:]:
            dtype = torch.promote_types(dtype, other.dtype)
        return dtype
    exact = not (dtype.is_floating_point or dtype.is_complex)
    unsigned = dtype == torch.uint8 and not op.name.startswith("segment_")  # which sum as torch does
    return {
        "same": dtype,
        "real": torch.zeros(0, dtype=dtype).real.dtype if dtype.is_complex else dtype,
        "complex": torch.promote_types(dtype, torch.complex64),
        "float": torch.get_default_dtype() if exact else dtype,
        "sum": (torch.uint64 if unsigned else torch.int64) if exact else dtype,
        "bool": torch.bool,
        "int64": torch.int64,
    }[rule]


def check_shape(op: Op, result: sr.Tensor, tensors: list[sr.Tensor], options: dict[str, Any]) -> None:
    x, rule = tensors[0], shape_rule(op.name)
    if rule == "same":
        assert result.shape == x.shape
    elif rule == "broadcast":
        assert result.shape == broadcast_shapes(*(t.shape for t in tensors))
    elif rule == "reduced":
        axis = options.get("axis", -1 if "axis" not in options and op.name == "vecdot" else None)
        gone = range(x.ndim) if axis is None else [axis % x.ndim] if isinstance(axis, int) else axis
        assert result.ndim == x.ndim - (0 if options.get("keepdims") else len(list(gone)))


def absent(op: Op, structure: str, dtype: torch.dtype) -> str:
    if structure == "NaN and inf" and not (dtype.is_floating_point or dtype.is_complex):
        return "no NaN in integers"
    for structures, dtypes, reason in [*ABSENT.get(op.name, ()), *ABSENT.get(op.family, ())]:
        if (not structures or structure in structures) and (dtypes is None or dtype in dtypes):
            return reason
    return ""


def cells(op: Op) -> Iterator[Cell]:
    for kind in op.kinds:
        for dtype in DTYPES[kind]:
            for structure in NAMES:
                yield Cell(op, structure, dtype, absent(op, structure, dtype))


def main() -> None:
    count = 0
    missing: dict[str, list[str]] = {}
    width = max(map(len, TABLE))
    print(f"{'':{width}}  " + "  ".join(NAMES))
    for op in TABLE.values():
        ran = dict.fromkeys(NAMES, 0)
        for cell in cells(op):
            if cell.absent:
                where = f"{op.name}: {cell.structure}, {str(cell.dtype).removeprefix('torch.')}"
                missing.setdefault(cell.absent, []).append(where)
                continue
            cell.run()
            ran[cell.structure] += 1
            count += 1
        print(f"{op.name:{width}}  " + "  ".join(f"{ran[name]:>{len(name)}}" for name in NAMES))
    print(f"\n{count} cells of {len(TABLE)} operations ran; the numbers are dtypes.")
    for reason, where in missing.items():
        print(f"\nAbsent, {reason}: {len(where)} cells" + ("" if len(where) > 40 else "\n  " + "\n  ".join(where)))


if __name__ == "__main__":
    main()
