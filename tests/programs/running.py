"""Programs run in Serrate, statement by statement, and compared with the oracle: results, errors, gradients."""

from __future__ import annotations

import contextlib
import warnings
from typing import Any

import numpy as np
import torch
from tests.programs.gradients import compare_gradients
from tests.programs.leaves import leaf
from tests.programs.program import Given, Outcome, Program, Statement, Step
from tests.programs.reading import Difference, compare, defined_rows, shares
from tests.programs.verdicts import DOCUMENTED

import serrate as sr

NAMES: dict[str, Any] = {
    "sr": sr,
    "torch": torch,
    "np": np,
    "R": sr.Ragged,
    "leaf": leaf,
    "nan": float("nan"),
    "inf": float("inf"),
}


class Failure(Exception):
    """A statement of a program, by number, and what is wrong with it."""

    def __init__(self, at: int, message: str) -> None:
        super().__init__(message)
        self.at, self.message = at, message


class _Ends(Exception):
    """The rest of a program has no meaning, for a reason that the documents give."""


def run(program: Program, born: bool, device: str = "cpu") -> str:
    """Run a program with lengths that the host knows, or as its leaves say, and compare; "ended" if refused midway."""
    with warnings.catch_warnings(), torch.device(device):
        warnings.simplefilter("ignore")  # torch's, about stretched targets and complex numbers
        _forget_deferred()
        try:
            return _run(program, born)
        finally:
            _forget_deferred()


def _forget_deferred() -> None:
    """What a device found out late belongs to no later program."""
    while True:
        try:
            sr.testing.raise_deferred()
        except DOCUMENTED:
            continue
        return


def _run(program: Program, born: bool) -> str:
    names = dict(NAMES)
    for at, (statement, outcome) in enumerate(zip(program.statements, program.outcomes, strict=True)):
        try:
            _run_one(statement, outcome, names, born)
        except _Ends:
            return "ended"
        except Difference as found:
            raise Failure(at, str(found)) from None
    try:
        compare_gradients(program, names)
    except Difference as found:
        raise Failure(len(program.statements) - 1, str(found)) from None
    except NotImplementedError as error:
        if "the derivative for" not in str(error):
            raise
        return "ended"  # torch lacks a derivative, which the newest one has
    return "done"


def _run_one(statement: Statement, outcome: Outcome, names: dict[str, Any], born: bool) -> None:
    if isinstance(statement, Given):
        exec(statement.text(born), names)
        return
    verdict = outcome.verdict
    before = {name: names.get(name) for name in statement.names}
    try:
        _execute(statement, names, born)
    except sr.errors.SyncError as error:
        raise Difference(f"waits for the device: {error}") from None
    except Exception as error:
        names.update(before)
        _forget_deferred()  # a call may have several faults
        _judge_error(statement, outcome, names, error, born)
        return
    if verdict.results is None:
        if verdict.errors:
            raise Difference(f"no exception; {' or '.join(e.__name__ for e in verdict.errors)} was due")
        if statement.writes:
            raise _Ends
        return
    if not verdict.is_certain:
        if statement.writes:
            raise _Ends
        for name, wanted in zip(statement.names, verdict.results, strict=True):
            compare(names[name], wanted)
        return
    for name, wanted, values in outcome.after:
        try:
            compare(names[name], wanted, values=values)
        except Difference as found:
            raise Difference(f"{name}: {found}") from None
    for name in statement.names:
        if statement.same_shape:
            _check_shape(names[name], names[statement.uses[0]])
        _check_memory(name, statement, outcome, names)


def _check_shape(x: Any, operand: Any) -> None:
    """The very shape of the operand: parents in its order too, partitions shared by identity."""
    if not isinstance(x, sr.Tensor) or not isinstance(operand, sr.Tensor):
        return
    for a, b in zip(x.shape, operand.shape, strict=True):
        if isinstance(a, sr.Ragged) and (a.parents != b.parents or a.partition is not b.partition):
            raise Difference(f"{a} does not share the partition and the parents of {b}")


def _execute(statement: Step, names: dict[str, Any], born: bool) -> None:
    quiet = sr.testing.forbid_sync() if born and not statement.waits else contextlib.nullcontext()
    with quiet:
        exec(statement.text(), names)
    sr.testing.raise_deferred()


def _judge_error(statement: Step, outcome: Outcome, names: dict[str, Any], error: Exception, born: bool) -> None:
    verdict = outcome.verdict
    allowed = verdict.errors if verdict.errors or verdict.is_certain else DOCUMENTED
    if not isinstance(error, allowed):
        if statement.writes and "is a view and is being modified inplace" in str(error):
            raise _Ends  # what a function of autograd gave may not be written to
        if isinstance(error, NotImplementedError) and "_cuda" in str(error):
            raise _Ends  # torch has no such kernel for a GPU: products of integers, say
        refused = isinstance(error, ValueError)
        unknown = any(isinstance(names[n], sr.Tensor) and not names[n].structure.is_host_born for n in statement.uses)
        if unknown and refused and ("with room for" in str(error) or _capacities_differ(statement, names)):
            raise _Ends  # equal lengths with different capacities are refused, as nobody waits to compare them
        due = f"; {' or '.join(e.__name__ for e in allowed)} was due" if allowed else ""
        raise Difference(f"{type(error).__name__}: {error}{due}")
    if not statement.writes:
        return
    for name, wanted, values in outcome.after:
        try:
            compare(names[name], wanted, values=values)
        except Difference as found:
            if born:  # an error that a device finds late comes after the write
                raise _Ends from None
            raise Difference(f"{name} was changed by a call that raised {type(error).__name__}: {found}") from None


def _capacities_differ(statement: Step, names: dict[str, Any]) -> bool:
    found = [x for n in statement.uses if isinstance(x := names[n], sr.Tensor) and x.is_ragged]
    rows = {x.values.shape[0] for x in found}
    sizes = {(p.num_components, p.num_values) for x in found for p in x.partitions}
    return len(rows) > 1 or len(sizes) > 1


def _check_memory(name: str, statement: Step, outcome: Outcome, names: dict[str, Any]) -> None:
    """Results share memory with operands just where the oracle says so; host-born ones stay so; undefined rows hurt."""
    x = names[name]
    if not isinstance(x, sr.Tensor):
        return
    for used in statement.uses:
        wanted = (name, used) in outcome.views
        if shares(x, names[used]) is not wanted and x.values.numel():
            raise Difference(f"{name} {'is a copy, not a view of' if wanted else 'shares memory with'} {used}")
    # Lengths of groups are born where the keys lie, those of unpadded rows where the mask does.
    used = [y for n in statement.uses if isinstance(y := names[n], sr.Tensor)]
    grouped = statement.operation in ("group_by", "from_dense") and x.device.type != "cpu"
    if not x.structure.is_host_born and not grouped and all(y.structure.is_host_born for y in used):
        raise Difference(f"{name} has device-born lengths, but all operands are host-born")
    if x.is_ragged and not x.structure.is_host_born:
        _poison(name, x, names)


def _poison(name: str, x: sr.Tensor, names: dict[str, Any]) -> None:
    """Undefined rows hold whatever harms most: nobody may read them."""
    others = [y for n, y in names.items() if n != name and isinstance(y, sr.Tensor)]
    if x.dtype == torch.bool or any(shares(x, y) for y in others):
        return
    if x.values.is_floating_point() or x.values.is_complex():
        x.values.data[defined_rows(x) :] = float("nan")
    elif not any(y.values.requires_grad for y in others):  # autograd may keep indices that a function gave
        x.values.data[defined_rows(x) :] = 97
