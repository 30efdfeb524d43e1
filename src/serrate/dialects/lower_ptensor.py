"""lower-ptensor: modules of programs become modules of the host dialect, the section "--lower-ptensor" of the proposal.

The pass has the proposal's four forms: with a device or without, with a team or without. With `ignore_team` teams are
left out, as its last paragraph asks for.
"""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from serrate.dialects.distributing import Distributing, teams_of, without_teams
from serrate.dialects.from_host import is_lowered
from serrate.dialects.from_text import programs_of
from serrate.dialects.objects import CannotWrite
from serrate.dialects.texts import Module, TextError
from serrate.dialects.to_host import Lowering
from serrate.program.program import Program

NAME = "lower-ptensor"


def run(module: Module, ignore_team: bool = False) -> Module:
    """The module whose functions are lowered.

    >>> from serrate.dialects.lower_ptensor import run
    >>> from serrate.dialects.texts import parse
    >>> text = '''
    ... func.func @main() -> !ptensor.ptensor<3 x i64> {
    ...   %x = "ptensor.arange"() {start = 3 : i64} : () -> !ptensor.ptensor<3 x i64>
    ...   func.return %x : !ptensor.ptensor<3 x i64>
    ... }
    ... '''
    >>> print(str(run(parse(text))).splitlines()[3].partition(", arguments")[0].strip())
    %x_1 = "host.call"() {callee = "arange"
    """
    for each in module.module.ops:
        if isinstance(each, FuncOp) and is_lowered(each):
            raise TextError("the function is lowered already", module.where(each))
    programs = programs_of(module)
    return Module(ModuleOp([lowered(program, name, ignore_team) for name, program in programs.items()]))


def lowered(program: Program, name: str, ignore_team: bool = False) -> FuncOp:
    """A program as a function of the host dialect."""
    if ignore_team:
        program = without_teams(program)
    try:
        return (Distributing if teams_of(program) else Lowering)(program).function(name)
    except CannotWrite as error:
        raise TextError(str(error), f"@{name}") from error
