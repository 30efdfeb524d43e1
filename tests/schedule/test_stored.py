"""Plans on disk: what is read is what was written, and another fusion, target or name is another file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tests.schedule import required
from tests.schedule.required import inputs_of
from tests.schedule.running import check_run

from serrate.fusion import Fusion
from serrate.schedule import plan, stored, stored_plan

ROOT = Path(__file__).resolve().parents[2]
FUSIONS = {
    "masked softmax": lambda: required.masked_softmax(7),
    "mean of means": required.mean_of_means,
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SERRATE_CACHE_DIR", str(tmp_path))
    return tmp_path


def a_thousand_operations() -> Fusion:
    fusion = Fusion()
    x = fusion.input("x", ["n", 4])
    for _ in range(1000):
        x = x * 0.5 + 1.0
    fusion.output(x, "y")
    return fusion


@pytest.mark.parametrize("name", FUSIONS)
def test_a_plan_that_is_read_is_the_one_that_was_written(name: str, folder: Path) -> None:
    fusion = FUSIONS[name]()
    made, again = stored_plan(fusion), stored_plan(FUSIONS[name]())
    assert again is not made
    assert [path.suffix for path in folder.iterdir()] == [".plan"]
    assert str(again) == str(made) == str(plan(fusion))
    assert again.fusion == fusion
    for one, other in zip(again.steps, made.steps, strict=True):
        assert [str(kernel.kernel) for kernel in one.kernels] == [str(kernel.kernel) for kernel in other.kernels]
        assert one.lowered.source == other.lowered.source
        assert one.lowered.fusion == other.lowered.fusion
        assert one.lowered.requirements == other.lowered.requirements
    for lengths in ([3, 0, 2], [0, 0], [40, 1]):
        check_run(again, inputs_of(fusion, lengths, [len(lengths)]))


def test_a_plan_that_was_compiled_is_written_without_its_code(folder: Path) -> None:
    made = plan(required.masked_softmax(7))
    made.prepared()(*inputs_of(made.fusion, [1, 2], []))
    stored.write("compiled.plan", made)
    read = stored.read("compiled.plan")
    assert read is not None
    assert not any(kernel.is_compiled for step in read.steps for kernel in step.kernels)
    check_run(read, inputs_of(read.fusion, [3, 0, 2], []))


def test_the_file_is_another_one_for_another_fusion_target_or_name() -> None:
    def fusion(factor: float = 0.0, name: str = "y", dtype: str = "float32") -> Fusion:
        made = Fusion()
        made.output(made.input("x", ["n"], dtype) * factor, name)
        return made

    made = [
        stored.file_of(fusion(), "cpp", "a"),
        stored.file_of(fusion(-0.0), "cpp", "a"),
        stored.file_of(fusion(name="z"), "cpp", "a"),
        stored.file_of(fusion(dtype="float64"), "cpp", "a"),
        stored.file_of(fusion(), "cuda", "a"),
        stored.file_of(fusion(), "cpp", "b"),
    ]
    assert None not in made
    assert len(set(made)) == len(made)
    assert stored.file_of(fusion(), "cpp", "a") == made[0]


def test_the_file_is_the_same_in_every_process() -> None:
    program = (
        "from tests.schedule.required import masked_softmax\n"
        "from serrate.schedule import stored\n"
        "print(stored.file_of(masked_softmax(7), 'cpp', 'a'))"
    )
    paths = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    names = {
        subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True,
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": paths},
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(names) == 1


def test_what_is_nested_too_deeply_for_a_file_is_planned_each_time(folder: Path) -> None:
    fusion = a_thousand_operations()
    for _ in range(2):
        (y,) = stored_plan(fusion).prepared()(torch.ones(3, 4))
        assert torch.allclose(y, torch.full((3, 4), 2.0))


def test_a_file_of_another_plan_is_not_taken_for_it(folder: Path) -> None:
    stored_plan(required.masked_softmax(7))
    (path,) = folder.iterdir()
    wrong = stored.file_of(required.masked_softmax(9), "cpp", "kernel")
    assert wrong is not None
    (folder / wrong).write_bytes(path.read_bytes())
    assert stored.read(wrong) is None
    assert stored_plan(required.masked_softmax(9)).fusion == required.masked_softmax(9)
