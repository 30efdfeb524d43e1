"""The command serrate-opt: files and standard input, passes, runs, and what it says of mistakes."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from tests.dialects.traced import traced

import serrate as sr
from serrate.dialects.from_text import programs_of
from serrate.dialects.pipeline import PASSES
from serrate.dialects.texts import parse
from serrate.dialects.to_text import module_of
from serrate.opt import main

X = sr.from_lengths(torch.linspace(-1, 1, 12).view(6, 2), [3, 0, 2, 1])


def function(x: sr.Tensor) -> sr.Tensor:
    sr.exp(x)  # for nothing
    return sr.softmax(x * 2.0, axis=1) + sr.softmax(x * 2.0, axis=1)


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "function.mlir"
    path.write_text(str(module_of(traced(function, X))))
    return str(path)


def operations(text: str, name: str = "main") -> list[str]:
    return [each.op for each in programs_of(parse(text))[name].instructions]


def test_passes_run_in_the_order_in_which_they_are_named(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([file]) == 0
    assert operations(capsys.readouterr().out) == ["exp", "multiply", "softmax", "multiply", "softmax", "add"]
    assert main([file, "--pass", "common-subexpressions", "--pass", "dead-code", "--verify-each"]) == 0
    assert operations(capsys.readouterr().out) == ["multiply", "softmax", "add"]


def test_the_way_back_is_a_function_of_its_own(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([file, "--pass", "dead-code", "--pass", "vjp", "--verify-each"]) == 0
    text = capsys.readouterr().out
    programs = programs_of(parse(text))
    assert list(programs) == ["main", "main_back"]
    assert [each.type for each in programs["main_back"].results] == [programs["main"].inputs[0].type]


def test_every_pass_prints_what_it_made(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    names = [name for name in PASSES if name != "lower-ptensor{ignore-team}"]
    assert main([file, *(word for name in names for word in ("--pass", name)), "--print-ir-after-all"]) == 0
    said = capsys.readouterr().err
    assert [line for line in said.splitlines() if line.startswith("// -----")] == [
        f"// ----- after {name} -----" for name in names
    ]


def test_standard_input_is_read(file: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(Path(file).read_text()))
    assert main(["--pass", "dead-code"]) == 0
    assert "exp" not in operations(capsys.readouterr().out)
    monkeypatch.setattr("sys.stdin", io.StringIO("func.func @main("))
    assert main(["-"]) == 1
    assert capsys.readouterr().err.startswith("serrate-opt: stdin:1:17: ")


def test_a_run_gives_what_the_function_gives(file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inputs = tmp_path / "inputs.safetensors"
    save_file({"x0": X.values, "p0": X.offsets[0]}, inputs)
    for passes in ([], ["--pass", "common-subexpressions"]):
        assert main([file, "--run", str(inputs), *passes]) == 0
        assert capsys.readouterr().out.strip() == str(function(X))


def test_inputs_that_do_not_fit_are_named(file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inputs, other = tmp_path / "inputs.safetensors", torch.tensor([0, 3, 3, 5, 7])
    for given, message in (
        ({"x0": X.values}, "'p0', the offsets of a partition, is missing among the inputs; there are x0"),
        ({"p0": X.offsets[0]}, "'x0', the values of an input, is missing"),
        ({"x0": X.values, "p0": other}, "the input x0 has 6 values, but offsets for 7"),
        (
            {"x0": X.values.double(), "p0": X.offsets[0]},
            "the input x0 is float32[n0, p0, 2] on cpu, got values",
        ),
    ):
        save_file(given, inputs)
        assert main([file, "--run", str(inputs)]) == 1
        assert message in capsys.readouterr().err


def test_values_that_an_operation_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x, index = torch.arange(3.0), torch.tensor([0, 7])
    text = str(module_of(traced(lambda x, index: sr.asarray(x)[index], x, index)))
    (tmp_path / "index.mlir").write_text(text)
    save_file({"x0": x, "x1": index}, tmp_path / "inputs.safetensors")
    for passes in ([], ["--pass", "lower-ptensor"]):
        assert main([f"{tmp_path}/index.mlir", "--run", f"{tmp_path}/inputs.safetensors", *passes]) == 1
        assert "@main cannot be run on these inputs: index 7 is out of bounds" in capsys.readouterr().err


def test_files_of_another_form_are_named(file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"\xff\xfe")
    assert main([file, "--run", str(other)]) == 1
    assert f"{other} is expected to be a file of safetensors" in capsys.readouterr().err
    assert main([str(other)]) == 1
    assert f"{other} is expected to be a text in UTF-8" in capsys.readouterr().err


def test_mistakes_of_the_command_itself(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([file, "--pass", "dead-cod"])
    assert caught.value.code == 2
    assert "there is no pass dead-cod; there are common-subexpressions, dead-code" in capsys.readouterr().err
    assert main(["/nowhere.mlir"]) == 1
    assert "nowhere.mlir" in capsys.readouterr().err
