"""Devices of programs as text: any name is one, passes know them apart, and only what is there can run."""

from __future__ import annotations

import pickle
import subprocess
import sys
import textwrap

import pytest
import torch
from tests.dialects.test_round_trips import again
from tests.dialects.traced import differentiated, traced

import serrate as sr
from serrate.compiler.compiling import runnable
from serrate.dialects.from_text import program_of
from serrate.dialects.texts import TextError, parse
from serrate.dialects.to_text import module_of
from serrate.ops.meta import meta
from serrate.ops.record import TABLE
from serrate.opt import main
from serrate.passes import common_subexpressions, dead_code
from serrate.program import devices as devices_of_types
from serrate.program.canonical import canonical
from serrate.program.devices import NamedDevice, device_named, has_stand_in, require_device, stand_in, stood_for
from serrate.program.program import Program

SYCL = "level_zero:gpu:1"
X = sr.ragged([[1.0, 2.0], [], [3.0]])


def elsewhere(program: Program, device: str = SYCL) -> str:
    """The text of a program of the CPU, with a device for each of its tensors."""
    return str(module_of(program)).replace("x f32>", f'x f32, device = "{device}">')


def devices(program: Program) -> set[str]:
    values = [*program.inputs, *(each for step in program.instructions for each in step.results)]
    return {str(each.type.device) for each in values}


@pytest.mark.parametrize("device", [SYCL, "opencl:acc", "my device", 'a "quoted" one', "é", "cuda:1", "cuda", "meta"])
def test_a_program_on_any_device_is_read_and_written_again(device: str) -> None:
    program = traced(lambda x: sr.softmax(x * 2, axis=1) + sr.mean(x, axis=1)[:, None], X)
    text = elsewhere(program, device.replace('"', '\\"'))
    read = program_of(parse(text))
    assert devices(read) == {device}
    again(read)
    on_cpu = again(program)
    assert str(read).replace(f" on {device}", " on cpu") == str(program_of(parse(on_cpu)))


def test_a_device_of_torch_is_the_one_of_torch() -> None:
    assert device_named("cuda:1") == torch.device("cuda", 1)
    assert device_named("cpu") == torch.device("cpu")
    made = device_named(SYCL)
    assert (made, made.type, str(made)) == (NamedDevice(SYCL), "level_zero", SYCL)
    assert made != device_named("level_zero:gpu:2")
    with pytest.raises(ValueError, match="a device has a name"):
        NamedDevice(" ")


def test_what_is_created_names_its_device() -> None:
    text = f"""
    func.func @main() -> !ptensor.ptensor<2 x 3 x f32, device = "{SYCL}"> {{
      %x = "ptensor.create"() {{kind = "ones", shape = #ptensor.term<tuple(2, 3)>, device = "{SYCL}"}}
        : () -> !ptensor.ptensor<2 x 3 x f32, device = "{SYCL}">
      func.return %x : !ptensor.ptensor<2 x 3 x f32, device = "{SYCL}">
    }}
    """
    program = program_of(parse(text))
    assert f"device='{SYCL}'" in str(program)
    assert devices(program) == {SYCL}
    again(program)


def test_partitions_are_born_on_any_device() -> None:
    offsets = torch.tensor([0, 2, 2, 3]).to("meta")
    x = sr.from_offsets(torch.empty(3, device="meta"), offsets)
    text = str(module_of(traced(lambda x: sr.exp(x[:, :1]), x)))
    read = program_of(parse(text.replace('"meta"', f'"{SYCL}"')))
    assert devices(read) == {SYCL}
    assert {str(each.type.partitions[0].device) for each in read.results} == {SYCL}
    again(read)


def test_the_types_of_results_are_found_there_too() -> None:
    kind = program_of(parse(elsewhere(traced(sr.exp, X)))).inputs[0].type
    for name, options in (("softmax", {"axis": 1}), ("sum", {"axis": 1}), ("sort", {"axis": 1})):
        assert meta(TABLE[name], (kind,), options).result.device == NamedDevice(SYCL)
    assert meta(TABLE["Tensor.to"], (kind, "cpu"), {}).result.device == torch.device("cpu")
    assert meta(TABLE["ones"], ((2, 3),), {"device": SYCL}).result.device == NamedDevice(SYCL)


def test_passes_and_the_way_back_keep_the_device() -> None:
    def function(x: sr.Tensor) -> sr.Tensor:
        return sr.cumulative_sum(sr.exp(x) * sr.exp(x), axis=1)

    there = program_of(parse(elsewhere(traced(function, X))))
    fewer = dead_code.run(common_subexpressions.run(there, lambda _: True), frozenset())
    assert len(fewer.instructions) == len(there.instructions) - 1
    here = differentiated(traced(function, X))
    for one, other in zip(differentiated(there), here, strict=True):
        again(one)
        assert devices(one) == {SYCL}
        assert str(one).replace(f" on {SYCL}", " on cpu") == str(other)


def test_gradients_go_back_to_the_device_that_a_tensor_was_moved_from() -> None:
    moved = traced(lambda x: sr.exp(x.to_device("cuda:1")).to_device("cpu"), X)
    program = program_of(parse(str(module_of(moved)).replace("cuda:1", SYCL)))
    assert devices(program) == {SYCL, "cpu"}
    forward, back = differentiated(program)
    assert [str(each.type.device) for each in (*forward.inputs, *back.results)] == ["cpu", "cpu"]
    (product,) = [each for each in back.instructions if each.op == "multiply"]
    assert str(product.result.type.device) == SYCL
    for half in (forward, back):
        assert "meta" not in again(half)


@pytest.mark.parametrize("context", [sr.device_region, torch.device])
def test_a_program_makes_its_tensors_where_its_types_say(context) -> None:
    program = traced(lambda x: (sr.zeros(x.shape), sr.arange(3), sr.random.uniform((2,)), sr.eye(2)), X)
    run = runnable(program_of(parse(again(program)))).run
    with context("meta"):
        assert {str(each.device) for each in run(X)} == {"cpu"}


@pytest.mark.parametrize("device", [SYCL, "cuda:99"])
def test_running_a_program_elsewhere_is_an_error_that_names_the_device(device: str) -> None:
    program = program_of(parse(elsewhere(traced(sr.exp, X), device)))
    with pytest.raises(ValueError, match=f"this machine has no device {device}"):
        runnable(program)


def test_the_command_says_it_too(tmp_path, capsys) -> None:
    from safetensors.torch import save_file

    (tmp_path / "program.mlir").write_text(elsewhere(traced(sr.exp, X)))
    save_file({"x0": X.values, "p0": X.offsets[0]}, tmp_path / "inputs.safetensors")
    assert main([str(tmp_path / "program.mlir"), "--pass", "dead-code"]) == 0
    assert SYCL in capsys.readouterr().out
    assert main([str(tmp_path / "program.mlir"), "--run", str(tmp_path / "inputs.safetensors")]) != 0
    assert f"this machine has no device {SYCL}" in capsys.readouterr().err


@pytest.mark.parametrize("device", ['""', '"  "', "3", "none", "gpu"])
def test_a_device_without_a_name_is_a_mistake_in_the_text(device: str) -> None:
    text = elsewhere(traced(sr.exp, X)).replace(f'"{SYCL}"', device)
    with pytest.raises(TextError, match=r'^file.mlir:.*a device such as "cuda:0" is expected, got'):
        program_of(parse(text, "file.mlir"))


def test_operands_on_devices_that_torch_does_not_know_have_to_lie_together() -> None:
    lines = elsewhere(traced(lambda x, y: x * y, X, X * 2)).splitlines()
    for number, line in enumerate(lines):
        if "func.func" in line or "elementwise" in line:
            lines[number] = line.replace(SYCL, "level_zero:gpu:2", 1)  # that of the first operand
    with pytest.raises(
        TextError, match="different devices: operand 0 is on level_zero:gpu:2, operand 1 on level_zero:gpu:1"
    ):
        parse("\n".join(lines))


def test_types_are_the_same_in_another_process() -> None:
    kind = program_of(parse(elsewhere(traced(sr.exp, X)))).inputs[0].type
    assert pickle.loads(pickle.dumps(kind)).device == kind.device
    code = """
        import sys, pickle
        from serrate.program.canonical import canonical
        from serrate.program.devices import NamedDevice, stand_in, stood_for
        made = pickle.loads(bytes.fromhex(sys.argv[1]))
        assert stood_for(stand_in(made)) == made
        print(canonical(made).hex())
    """
    given = [sys.executable, "-c", textwrap.dedent(code), pickle.dumps(kind.device).hex()]
    done = subprocess.run(given, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == canonical(kind.device).hex()


def test_stand_ins_are_told_apart_and_torch_keeps_its_devices() -> None:
    names = [f"device {number}" for number in range(5)]
    made = [stand_in(NamedDevice(name)) for name in names]
    assert len(set(made)) == len(names)
    assert [str(stood_for(each)) for each in made] == names
    assert not any(map(has_stand_in, names))  # a text without a colon may mean anything
    assert has_stand_in(NamedDevice("device 0"))
    for device in ("cpu", "cuda:1", "meta:0", "meta"):
        assert stood_for(torch.device(device)) == torch.device(device)
    require_device(torch.device("cpu"))


def test_there_are_only_so_many_stand_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices_of_types, "_numbers", {})
    made = [stand_in(NamedDevice(f"device {number}")) for number in range(127)]
    assert torch.device("meta", 0) not in made
    with pytest.raises(ValueError, match="this process has met 127 devices that this machine does not have"):
        stand_in(NamedDevice("one more"))
    assert stand_in(NamedDevice("device 3")) == made[3]
