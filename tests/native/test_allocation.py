"""The memory of large results: used again, bounded, given back, and never while somebody can still see it."""

from __future__ import annotations

import gc
import io
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset
from torch.utils.dlpack import to_dlpack

import serrate as sr
from serrate.native import allocation, building, padded
from serrate.native.loading import empty

pytestmark = pytest.mark.skipif(allocation._library() is None, reason="needs native code")
MB = 2**20
LIMIT = 64 * MB


@pytest.fixture(autouse=True)
def _limited() -> Iterator[None]:
    """No idle blocks, and a limit that does not depend on the machine."""
    before = sr.memory.stats().limit
    gc.collect()
    sr.memory.set_limit(LIMIT)
    sr.memory.trim()
    yield
    sr.memory.set_limit(before)


def bytes_of(megabytes: float, value: int = 0) -> torch.Tensor:
    return empty((int(megabytes * MB),), torch.uint8).fill_(value)


# ------------------------------------------------------------------------------------------- used again, and bounded


@pytest.mark.parametrize("again", [8.0, 7.9, 6.5])
def test_memory_of_a_result_that_is_gone_is_used_again(again: float) -> None:
    before = sr.memory.stats()
    made = bytes_of(8)
    place = made.data_ptr()
    assert sr.memory.stats().in_use - before.in_use == 8 * MB
    del made
    assert sr.memory.stats().idle == 8 * MB
    made = bytes_of(again)
    assert made.data_ptr() == place
    assert made.untyped_storage().nbytes() == made.numel()
    after = sr.memory.stats()
    assert (after.mapped - before.mapped, after.reused - before.reused, after.idle) == (1, 1, 0)


def test_much_larger_memory_is_left_to_others() -> None:
    bytes_of(32)
    bytes_of(6)
    assert sr.memory.stats().idle == 32 * MB + 6 * MB


def test_what_went_last_is_used_first_and_what_went_first_goes_back_first() -> None:
    made = [bytes_of(16) for _ in range(5)]
    places = [each.data_ptr() for each in made]
    while made:
        del made[0]
        assert sr.memory.stats().idle <= LIMIT
    assert sr.memory.stats().idle == LIMIT
    taken = [bytes_of(16) for _ in range(4)]
    assert [each.data_ptr() for each in taken] == places[:0:-1]


def test_a_block_larger_than_the_limit_is_not_kept() -> None:
    made = bytes_of(100)
    del made
    assert sr.memory.stats().idle == 0


def test_a_lower_limit_and_trimming_give_memory_back() -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    made = [bytes_of(16, 1) for _ in range(4)]
    del made
    full = resident()
    sr.memory.set_limit(40 * MB)
    assert sr.memory.stats().idle == 32 * MB
    assert sr.memory.trim() == 32 * MB
    assert sr.memory.stats().idle == 0
    assert full - resident() > 50 * MB
    assert sr.memory.trim() == 0


def test_idle_memory_goes_back_when_the_system_is_short_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []
    available = 2**30

    def memory() -> tuple[int, int]:
        looked.append(available)
        return available, 2**34

    monkeypatch.setattr(allocation, "_memory", memory)
    monkeypatch.setattr(allocation, "_looked", -10.0)
    bytes_of(16)
    bytes_of(5)
    assert sr.memory.stats().idle == 21 * MB
    assert len(looked) == 1  # only now and then
    available = 2**29
    monkeypatch.setattr(allocation, "_looked", -10.0)
    made = bytes_of(5)
    assert made.data_ptr()
    assert sr.memory.stats().idle == 0


def test_memory_that_a_control_group_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    files = {
        "/proc/meminfo": "MemTotal: 9 kB\nMemAvailable:    4194304 kB\n",
        "/proc/self/cgroup": "1:name=systemd:/\n0::/jobs/mine\n",
        "/sys/fs/cgroup/jobs/mine/memory.max": "2147483648\n",
        "/sys/fs/cgroup/jobs/mine/memory.current": "2147000000\n",
        "/sys/fs/cgroup/jobs/mine/memory.stat": "anon 7\ninactive_file 1000000000\n",
    }
    monkeypatch.setattr(allocation, "_read", lambda path: files.get(str(path), ""))
    assert allocation._memory() == (2147483648 - 2147000000 + 1000000000, 2147483648)
    files["/sys/fs/cgroup/jobs/mine/memory.max"] = "max\n"
    assert allocation._memory()[0] == 4194304 * 1024


def test_without_memory_the_error_is_that_of_torch() -> None:
    bytes_of(16)
    with pytest.raises(RuntimeError, match="can't allocate memory"):
        empty((2**50,), torch.uint8)
    assert sr.memory.stats().idle == 0  # idle memory was given back before that


# ------------------------------------------------------------------------------------------- the switch


def is_torchs(made: torch.Tensor) -> bool:
    """Whether memory is torch's own, which can grow."""
    return made.untyped_storage().resizable()


def test_the_limit_switches_it_off() -> None:
    assert not is_torchs(bytes_of(8))
    sr.memory.set_limit(0)
    assert is_torchs(bytes_of(8))
    with pytest.raises(ValueError, match="a number of bytes, 0 or more, got -1"):
        sr.memory.set_limit(-1)


@pytest.mark.parametrize(("value", "expected"), [("0", "0"), ("300", str(300 * MB)), ("some", "ValueError")])
def test_the_environment_chooses_the_limit(value: str, expected: str) -> None:
    program = (
        "import serrate as sr\ntry:\n    print(sr.memory.stats().limit)\nexcept ValueError:\n    print('ValueError')"
    )
    environment = {**os.environ, "SERRATE_ALLOCATOR": value}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == expected


def test_small_and_empty_results_come_from_torch() -> None:
    assert is_torchs(empty((allocation.SMALLEST - 1,), torch.uint8))
    assert not is_torchs(empty((allocation.SMALLEST,), torch.uint8))
    assert is_torchs(empty((8 * MB, 0), torch.float32))
    assert is_torchs(empty((8 * MB,), torch.float8_e4m3fn))


def test_no_setting_of_malloc_is_touched() -> None:
    command = ["nm", "-D", "--undefined-only", str(building.library_of(building.level()))]
    assert "mallopt" not in subprocess.run(command, capture_output=True, text=True, check=True).stdout


# ------------------------------------------------------------------------------------------- tensors like others


@pytest.mark.parametrize("dtype", allocation._KINDS)
@pytest.mark.parametrize("shape", [(5 * MB,), (MB, 5), (3, 1, 2, MB)])
def test_tensors_are_like_those_of_torch(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    made, expected = empty(shape, dtype), torch.empty(shape, dtype=dtype)
    assert not is_torchs(made)
    for name in ("shape", "dtype", "device", "layout", "requires_grad", "is_leaf", "_version"):
        assert getattr(made, name) == getattr(expected, name)
    assert made.stride() == expected.stride()
    assert made.untyped_storage().nbytes() == expected.untyped_storage().nbytes()
    assert not made._is_view()
    assert torch.equal(made.zero_(), expected.zero_())


def _disturb() -> list[torch.Tensor]:
    """Results that would overwrite memory that went back too early."""
    gc.collect()
    return [bytes_of(8, 255) for _ in range(4)]


HOLDERS: dict[str, Any] = {
    "a view": lambda x: (x[5:], lambda held: held),
    "numpy": lambda x: (x.numpy(), torch.from_numpy),
    "numpy and back": lambda x: (torch.from_numpy(x.numpy()), lambda held: held),
    "its storage": lambda x: (x.untyped_storage(), lambda held: torch.tensor([], dtype=torch.uint8).set_(held)),
    "DLPack": lambda x: (to_dlpack(x), torch.from_dlpack),
    "a tensor of Serrate": lambda x: (sr.from_lengths(x, [MB, 7 * MB]), lambda held: held.values),
    "detached": lambda x: (x.detach(), lambda held: held),
}


@pytest.mark.parametrize("holder", HOLDERS)
def test_memory_is_kept_while_somebody_sees_it(holder: str) -> None:
    made = bytes_of(8, 7)
    held, seen = HOLDERS[holder](made)
    del made
    others = _disturb()
    assert bool((seen(held) == 7).all())
    del held, others
    gc.collect()
    assert sr.memory.stats().in_use == 0


def test_what_is_saved_for_gradients_is_kept() -> None:
    made = empty((2 * MB,), torch.float32).fill_(3.0).requires_grad_()
    result = (made * made).sum()
    others = [empty((2 * MB,), torch.float32).fill_(9.0) for _ in range(3)]
    result.backward()
    assert made.grad is not None
    assert bool((made.grad == 6).all())
    assert others


def test_gradients_through_native_results_and_writes_in_place() -> None:
    values = torch.randn(4096, 512, dtype=torch.float64)
    x = sr.from_lengths(values, [1024, 0, 3072]).requires_grad_()
    dense = x.to_dense().torch()
    dense = dense.mul_(2.0)
    dense.square().sum().backward()
    torch.testing.assert_close(x.grad.values, 8 * values)


def test_resizing() -> None:
    """Fewer elements are a matter of the shape; more would need other memory, which only torch's own can get."""
    made = bytes_of(8, 3)
    assert bool((made.resize_(MB) == 3).all())
    with pytest.raises(RuntimeError, match="resize storage that is not resizable"):
        made.resize_(16 * MB)


def test_copies_and_pickles_have_what_the_tensor_has_and_no_more() -> None:
    bytes_of(8, 255)
    made = bytes_of(7.1, 5)
    file = io.BytesIO()
    torch.save(made, file)
    assert file.tell() < made.numel() + 10_000
    file.seek(0)
    for copy in (torch.load(file), deepcopy(made), made.clone()):
        assert torch.equal(copy, made)
        assert copy.data_ptr() != made.data_ptr()


def test_moving_and_pinning(device: str) -> None:
    made = bytes_of(8, 5)
    assert torch.equal(made.to(device).cpu(), made)
    if device == "cuda":
        assert torch.equal(made.pin_memory(), made)


# ------------------------------------------------------------------------------------------- threads and processes


def test_threads_share_the_memory() -> None:
    wrong: list[int] = []

    def work(number: int) -> None:
        for step in range(60):
            made = bytes_of(4 + (number * 7 + step) % 5, number)
            kept = bytes_of(4, number + 100)
            if not (bool((made[:: 4096 * 16] == number).all()) and bool((kept[:: 4096 * 16] == number + 100).all())):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert sr.memory.stats().in_use == 0
    assert sr.memory.stats().idle <= LIMIT


FORKING = """
import os, threading, time
import torch
import serrate as sr
from serrate.native.loading import empty
torch.set_num_threads(1)
sr.memory.set_limit(2**26)
done = False
def work():
    while not done:
        empty((2**22,), torch.uint8)
threads = [threading.Thread(target=work, daemon=True) for _ in range(3)]
for thread in threads:
    thread.start()
held = empty((2**23,), torch.uint8).fill_(1)
for _ in range(20):
    child = os.fork()
    if child == 0:
        mine = [empty((2**23,), torch.uint8).fill_(9) for _ in range(2)]
        held.fill_(5)
        del mine
        sr.memory.trim()
        os._exit(0 if sr.memory.stats().idle == 0 else 3)
    deadline = time.monotonic() + 60
    while (ended := os.waitpid(child, os.WNOHANG))[0] == 0:
        assert time.monotonic() < deadline, "the child waits for ever"
        time.sleep(0.002)
    assert ended[1] == 0, ended
    assert bool((held == 1).all())
done = True
for thread in threads:
    thread.join()
"""


def test_forks_while_threads_are_busy() -> None:
    done = subprocess.run([sys.executable, "-c", FORKING], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr


class Padded(Dataset[torch.Tensor]):
    """Each item is a large native result."""

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> torch.Tensor:
        made = padded.pad(torch.full((3000, 512), float(index)), (torch.tensor([0, 1000, 3000]),), (2000,))
        assert made is not None
        assert not is_torchs(made)
        return made


def test_workers_of_a_data_loader() -> None:
    idle = bytes_of(16)
    del idle
    for number, batch in enumerate(
        DataLoader(Padded(), batch_size=None, num_workers=2, multiprocessing_context="fork")
    ):
        assert batch.shape == (2, 2000, 512)
        assert bool((batch[1] == number).all())
        assert bool((batch[0, 1000:] == 0).all())


def test_memory_that_is_shared_with_another_process_is_another() -> None:
    made = bytes_of(8, 6)
    place = made.data_ptr()
    made.share_memory_()
    assert made.is_shared()
    assert made.data_ptr() != place
    others = _disturb()
    assert bool((made == 6).all())
    child = os.fork()
    if child == 0:
        made.fill_(8)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert bool((made == 8).all())
    assert others
