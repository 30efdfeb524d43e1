"""This module is the command `serrate-opt`, which reads programs as MLIR text, runs passes on them, and prints them.

serrate-opt FILE --pass dead-code --pass vjp      print the module after these passes; FILE may be - for standard input
serrate-opt FILE --run INPUTS.safetensors         run the module, and print what it gives
serrate-opt --list-passes                         name the passes
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from serrate.errors import CompileError, RaggednessError
from serrate.program.partitions import Expression
from serrate.program.types import RaggedAxis, TensorType
from serrate.tensor.partition import Partition
from serrate.tensor.structure import DENSE, Ragged, Structure
from serrate.tensor.tensor import Tensor

if TYPE_CHECKING:
    from serrate.dialects.texts import Module


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command, and return 0 if everything is right, 1 if not, and 2 if the command itself is wrong.

    >>> from serrate.opt import main
    >>> main(["--list-passes"])
    common-subexpressions       what is computed twice is computed once
    dead-code                   what nobody reads is left out
    explicit-keys               random numbers are made of keys, which the program draws
    explicit-writes             each write makes a new value, and deletions are left out
    inline-calls                functions that no other calls have what they call inside of them
    vjp                         each function gets a second one, which gives the gradients of its inputs
    lower-ptensor               programs become kernels, library calls, regions of devices and calls of teams
    lower-ptensor{ignore-team}  the same, of tensors that lie in one process
    coalesce-regions            regions of one device, one behind the other, become one
    region-to-runtime           regions become switches to streams of devices
    dist-to-runtime             operations on tensors of teams become calls of the runtime of teams
    0
    """
    parser = argparse.ArgumentParser("serrate-opt", description="Run passes on programs as MLIR text.")
    parser.add_argument("file", nargs="?", default="-", help="a file of MLIR text; - for standard input")
    parser.add_argument(
        "--pass", dest="passes", action="append", default=[], metavar="NAME", help="a pass, in its turn"
    )
    parser.add_argument("--list-passes", action="store_true", help="name the passes")
    parser.add_argument("--verify-each", action="store_true", help="read the text again after each pass")
    parser.add_argument("--print-ir-after-all", action="store_true", help="print the module after each pass")
    parser.add_argument("--run", metavar="INPUTS", help="a .safetensors file with values and offsets, by their names")
    parser.add_argument("--entry", default="main", help="the function that --run runs, if there are several")
    given = parser.parse_args(arguments)
    try:
        from serrate.dialects.pipeline import PASSES

        unknown = [name for name in given.passes if name not in PASSES]
        if unknown:
            parser.error(f"there is no pass {unknown[0]}; there are {', '.join(PASSES)}")
        if given.list_passes:
            print("\n".join(f"{name:27} {each.words}" for name, each in PASSES.items()))
            return 0
        return _work(given)
    except ModuleNotFoundError as error:
        print(f"serrate-opt: {error.name} is missing; pip install 'serrate[opt]'", file=sys.stderr)
    except (OSError, ValueError, TypeError, NotImplementedError, CompileError, RaggednessError) as error:
        print(f"serrate-opt: {error}", file=sys.stderr)
    return 1


def _work(given: argparse.Namespace) -> int:
    from serrate.dialects.pipeline import PASSES, check
    from serrate.dialects.texts import parse

    try:
        text = sys.stdin.read() if given.file == "-" else Path(given.file).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{given.file} is expected to be a text in UTF-8: {error}") from error
    module = parse(text, "stdin" if given.file == "-" else given.file)
    check(module)
    for name in given.passes:
        module = PASSES[name].run(module)
        if given.verify_each:
            module = parse(str(module), f"after {name}")
            check(module)
        if given.print_ir_after_all:
            print(f"// ----- after {name} -----\n{module}", file=sys.stderr)
    if given.run is None:
        print(module, end="")
    else:
        print(_shown(ran(module, given.entry, _loaded(given.run))))
    return 0


# ------------------------------------------------------------------------------------------------------------ runs


def ran(module: Module, entry: str, given: Mapping[str, torch.Tensor]) -> Any:
    """What a function gives for values by the names of its inputs, and offsets by those of their partitions.

    A function of tensors that a team holds in parts runs as the only process of its team.
    """
    from serrate.compiler.compiling import runnable
    from serrate.dialects.from_host import is_of_teams, program_read
    from serrate.dialects.running import Machine
    from serrate.team.runtime import SingleProcess

    name = module.entry(entry)
    if is_of_teams(module, name):
        team = SingleProcess()
        machine = Machine(module, team)
        return machine.call(name, *machine.arguments(name, given))
    program, partitions = program_read(module, name), dict[Expression, Partition]()
    inputs = [_tensor(str(each.name), each.type, given, partitions) for each in program.inputs]
    try:
        return runnable(program).run(*inputs)
    except (LookupError, RuntimeError, ArithmeticError) as error:  # as an operation refuses values
        raise ValueError(f"@{name} cannot be run on these inputs: {error}") from error


def _tensor(
    name: str, kind: TensorType, given: Mapping[str, torch.Tensor], partitions: dict[Expression, Partition]
) -> Tensor:
    values = _entry(given, name, "the values of an input")
    if values.dtype != kind.dtype or values.ndim != len(kind.features) + (kind.rows is not None):
        raise ValueError(f"the input {name} is {kind}, got values {values.dtype} of shape {tuple(values.shape)}")
    if not kind.axes:
        known = [(size, found) for size, found in zip(kind.features, values.shape, strict=False) if type(size) is int]
        if kind.rows is None and any(size != found for size, found in known):
            raise ValueError(f"the input {name} is {kind}, got values {values.dtype} of shape {tuple(values.shape)}")
        return Tensor(values, DENSE, kind.order)
    axes: list[Any] = []
    for axis in kind.axes:
        if not isinstance(axis, RaggedAxis):
            axes.append(axis)
            continue
        expression = axis.partition
        if expression.kind != "input":
            raise ValueError(f"the input {name} has rows that follow from others: {expression}")
        if expression not in partitions:
            offsets = _entry(given, str(expression.operands[0]), "the offsets of a partition")
            partitions[expression] = Partition.from_offsets(offsets)
        axes.append(Ragged(partitions[expression], axis.parents))
    first = next(axis for axis in axes if isinstance(axis, Ragged))
    if not isinstance(axes[0], int):  # a symbol: as many rows as the first partition has components for
        axes[0] = first.partition.num_components // _product(axes[each] for each in first.parents[1:])
    if first.partition.num_values > len(values):
        raise ValueError(f"the input {name} has {len(values)} values, but offsets for {first.partition.num_values}")
    return Tensor(values, Structure(axes), kind.order)


def _product(sizes: Any) -> int:
    made = 1
    for each in sizes:
        made *= each
    return made


def _entry(given: Mapping[str, torch.Tensor], name: str, what: str) -> torch.Tensor:
    if name not in given:
        raise ValueError(f"{name!r}, {what}, is missing among the inputs; there are {', '.join(given) or 'none'}")
    return given[name]


def _loaded(path: str) -> Mapping[str, torch.Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except SafetensorError as error:
        raise ValueError(f"{path} is expected to be a file of safetensors: {error}") from error


def _shown(result: Any) -> str:
    if isinstance(result, (tuple, list)):
        return "\n".join(map(_shown, result))
    return str(result)
