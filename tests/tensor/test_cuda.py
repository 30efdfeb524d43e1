"""On a CUDA device: nothing waits for it unless asked, and bad offsets are reported later instead of read."""

from __future__ import annotations

import contextlib
import gc
import pickle

import pytest
import torch

import serrate as sr
from serrate.errors import DeviceMismatchError, RaggednessError, SyncError

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

LENGTHS = [3, 0, 5, 1]


def loader_batch() -> tuple[sr.Tensor, sr.Tensor]:
    """A batch made on the host, and the same on the device with its offsets already there."""
    host = sr.from_lengths(torch.arange(18.0).view(9, 2), LENGTHS)
    device = host.to("cuda")
    assert device.offsets[0].is_cuda
    return host, device


def device_batch() -> tuple[sr.Tensor, sr.Tensor]:
    """The same batch with lengths the host has never seen."""
    host, _ = loader_batch()
    values = host.values.cuda()
    return host, sr.from_offsets(values, torch.tensor([0, 3, 3, 8, 9], device="cuda"))


FORMS = {
    "prefix": lambda x: x[:, :2],
    "suffix": lambda x: x[:, -2:],
    "stride": lambda x: x[:, ::2],
    "reverse": lambda x: x[:, ::-1],
    "flip": lambda x: sr.flip(x, axis=1),
    "roll": lambda x: sr.roll(x, 1, axis=1),
    "repeat": lambda x: sr.repeat(x, 2, axis=1),
    "tile": lambda x: sr.tile(x, (1, 2, 1)),
    "concat": lambda x: sr.concat([x, x], axis=1),
    "features": lambda x: x[..., 0],
    "equal": lambda x: x == x,
    "dense": lambda x: x.to_dense(-1.0, max_lengths=4),
    "longer": lambda x: x.to_dense(-1.0, max_lengths=7),
    "like": lambda x: sr.from_dense(x.to_dense(max_lengths=4), like=x, padding_value=7.0),
    "permuted": lambda x: x.mT,
    "positions": lambda x: sr.positions(x, axis=1),
    "mask": lambda x: x.mask(max_lengths=4),
}


@pytest.mark.parametrize("batch", [loader_batch, device_batch])
@pytest.mark.parametrize("form", FORMS)
def test_no_wait(form, batch):
    host, device = batch()
    expected = FORMS[form](host)
    torch.cuda.synchronize()
    with sr.testing.forbid_sync():
        result = FORMS[form](device)
    sr.testing.raise_deferred()
    assert result.device.type == "cuda"
    assert result.tolist() == expected.tolist()


@pytest.mark.parametrize(
    "form",
    [lambda x: x[1:3], lambda x: x[2], lambda x: x[[2, 0, 2]], lambda x: x.to_dense(), lambda x: x.max_lengths],
)
def test_loader_batches_answer_host_questions_for_nothing(form):
    host, device = loader_batch()
    expected = form(host)
    with sr.testing.forbid_sync():
        result = form(device)
    assert result == expected if isinstance(result, tuple) else result.tolist() == expected.tolist()


@pytest.mark.parametrize(
    "form",
    [lambda x: x.max_lengths, lambda x: x.to_dense(), lambda x: x.tolist(), lambda x: x[1:3], lambda x: x.rows()],
)
def test_device_born_lengths_wait_only_where_a_host_number_is_asked_for(form):
    host, device = device_batch()
    with sr.testing.forbid_sync(), pytest.raises((SyncError, RuntimeError), match=r"wait|synchroniz"):
        form(device)
    result, expected = form(device), form(host)
    if isinstance(result, sr.Tensor):
        result, expected = result.tolist(), expected.tolist()
    elif isinstance(result, list) and isinstance(result[0], sr.Tensor):
        result, expected = [r.tolist() for r in result], [r.tolist() for r in expected]
    assert result == expected


@pytest.mark.parametrize(
    ("offsets", "position"),
    [([1, 3, 9], 0), ([0, 5, 3, 9], 2), ([0, 4, 12], 2), ([0, -3, 9], 1), ([0, 3, 7], 2)],
)
def test_bad_offsets_are_reported_by_a_later_call_and_never_read_out_of_bounds(offsets, position):
    values = torch.arange(9.0, device="cuda")
    given = torch.tensor(offsets, device="cuda")

    def use() -> None:
        with sr.testing.forbid_sync():
            for _ in range(3):
                sr.flip(sr.from_offsets(values, given, validate=False), axis=1)  # clamped: nothing is read outside
            sr.flip(sr.from_offsets(values, given), axis=1)
        sr.testing.raise_deferred()

    with pytest.raises(RaggednessError, match=f"offsets of level 0.*position {position} "):
        use()
    torch.cuda.synchronize()  # the context is alive
    sr.testing.raise_deferred()


def test_a_later_call_raises_by_itself():
    def use() -> None:
        x = sr.from_offsets(torch.arange(9.0, device="cuda"), torch.tensor([0, 5, 3, 9], device="cuda"))
        torch.cuda.synchronize()
        x[:, :1]

    with pytest.raises(RaggednessError, match="position 2 holds 3 after 5"):
        use()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda v: sr.from_lengths(v, torch.tensor([4, -1, 6], device="cuda")), "position 1 holds -1"),
        (lambda v: sr.from_lengths(v, torch.tensor([4, 4], device="cuda")), "number of values, 9, but add up to 8"),
        (
            lambda v: sr.from_row_ids(v[:3], torch.tensor([0, 2, 1], device="cuda"), 3),
            "never decrease, but position 2 holds 1 after 2",
        ),
    ],
)
def test_bad_lengths_and_row_ids(make, message):
    def use() -> None:
        make(torch.arange(9.0, device="cuda"))
        sr.testing.raise_deferred()

    with pytest.raises(RaggednessError, match=message):
        use()


def test_equality_is_assumed_checked_and_remembered():
    _, x = device_batch()
    _, y = device_batch()
    with sr.testing.forbid_sync():
        assert x.partitions[0].same_as(y.partitions[0])
        assert (x == y).values.is_cuda
    sr.testing.raise_deferred()
    z = sr.from_offsets(x.values, torch.tensor([0, 1, 3, 8, 9], device="cuda"))
    with sr.testing.forbid_sync():
        assert x.partitions[0].same_as(z.partitions[0])
    with pytest.raises(RaggednessError, match=r"offset 1 is 3 in one and 1 in the other"):
        sr.testing.raise_deferred()


def test_ragged_index_out_of_range_is_reported_not_read():
    _, x = loader_batch()
    index = sr.from_lengths(torch.tensor([0, 99, 1], device="cuda"), torch.tensor([1, 1, 1, 0], device="cuda"))

    def use() -> None:
        with sr.testing.forbid_sync():
            x[index]
        sr.testing.raise_deferred()

    with pytest.raises(IndexError, match="index 99 is out of range for row 1 with 0 entries"):
        use()


def test_masks_filter_on_the_device():
    host, x = loader_batch()
    keep = host[..., 0] == 4.0
    assert x[keep.to("cuda")].tolist() == host[keep].tolist()
    assert x[keep.to("cuda")].partitions[0].is_host_born


def test_devices_do_not_mix():
    host, x = loader_batch()
    with pytest.raises(DeviceMismatchError, match=r"on cpu and .* on cuda:0"):
        _ = host == x
    with pytest.raises(DeviceMismatchError, match="lie on cpu, values on cuda:0"):
        sr.from_offsets(x.values, host.offsets[0])
    assert sr.from_offsets(x.values, [0, 3, 3, 8, 9]).partitions[0].is_host_born


def test_moving_and_pinning():
    host, _ = loader_batch()
    pinned = host.pin_memory()
    assert pinned.is_pinned()
    assert pinned.partitions[0].offsets.is_pinned()
    assert pinned.partitions[0].same_as(host.partitions[0])
    with sr.testing.forbid_sync():
        x = pinned.to("cuda", non_blocking=True)
        x.offsets  # noqa: B018
        x.record_stream(torch.cuda.current_stream())
    _, born = device_batch()
    back = born.cpu()
    assert back.partitions[0].is_host_born
    assert back.partitions[0].same_as(born.partitions[0])
    assert back.tolist() == host.tolist()
    assert pickle.loads(pickle.dumps(born)).tolist() == host.tolist()
    assert "device='cuda:0'" in repr(born)


def test_a_graph_captures_and_replays():
    _, x = loader_batch()
    x.offsets  # noqa: B018
    warm = x[:, ::-1].values
    x.partitions[0].row_ids_on(x.device)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = (x == x).values
    graph.replay()
    assert bool(result.all())
    assert warm.is_cuda


class Sequences(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, i: int):
        return {"ids": torch.arange(i % 3), "label": i}


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_pins_values_and_offsets_so_that_moving_does_not_wait(workers):
    gc.collect()  # page-locked tensors that other tests left in cycles cannot be freed by a forked worker
    loader = torch.utils.data.DataLoader(
        Sequences(), batch_size=4, collate_fn=sr.collate, num_workers=workers, pin_memory=True
    )
    for number, batch in enumerate(loader):
        assert batch["ids"].is_pinned()
        assert batch["ids"].partitions[0].offsets.is_pinned()
        with sr.testing.forbid_sync():
            x = batch["ids"].to("cuda", non_blocking=True)
            cut = x[:, :1]
        assert cut.tolist() == [[0][: i % 3] for i in range(4 * number, 4 * number + 4)]


@pytest.mark.parametrize(
    "use",
    [
        lambda x: x[:, torch.tensor([2], device="cuda")],  # a uniform axis of the structure
        lambda x: x[..., torch.tensor([0, 7], device="cuda")],  # features
        lambda x: x[
            torch.tensor([0], device="cuda"), torch.tensor([0], device="cuda"), torch.tensor([9], device="cuda")
        ],
        lambda x: sr.Tensor(x.values)[torch.tensor([99], device="cuda")],  # dense
        lambda x: sr.zeros((0, sr.Ragged([])), device="cuda")[torch.tensor([0], device="cuda"), [0]],
        lambda x: sr.testing.device_born(sr.zeros((0, sr.Ragged([])), device="cuda"))[[0, 0], [0, 0]],
        lambda x: sr.zeros((2, sr.Ragged([3, 0]), 0), device="cuda")[[0], [0], [0]],
        lambda x: x[:, :, 9],
    ],
)
def test_indices_out_of_range_are_reported_and_the_device_goes_on(use):
    x = sr.zeros((2, 2, sr.Ragged([1, 2, 0, 1], parents=(0, 1)), 2), device="cuda")
    for given in (x, sr.testing.device_born(x, spare=2)):

        def call(given: sr.Tensor = given) -> None:
            use(given)
            sr.testing.raise_deferred()

        with pytest.raises(IndexError):
            call()
        with contextlib.suppress(IndexError):  # a call may have two faults
            sr.testing.raise_deferred()
        torch.cuda.synchronize()


def test_numbers_beside_tensors_of_a_device():
    x = sr.ragged([[1.0, 2.0], []]).to("cuda")
    with sr.testing.forbid_sync():
        made = [getattr(sr, name)(x, 2) for name in ("logaddexp", "atan2", "hypot", "copysign", "maximum", "nextafter")]
        sr.linalg.vector_norm(x, ord=float("inf"), axis=0)
        sr.linalg.vector_norm(torch.zeros(1, 0, device="cuda"), ord=float("inf"), axis=(0, 1))
        sr.segment_prod(
            torch.ones(3, dtype=torch.complex64, device="cuda"), torch.zeros(3, dtype=torch.int64, device="cuda"), 2
        )
    assert all(each.device.type == "cuda" for each in made)


def test_different_raggedness_is_named_where_nobody_may_wait():
    x = sr.testing.device_born(sr.ragged([[1.0, 2.0], []]).to("cuda"))
    y = sr.testing.device_born(sr.ragged([[1.0, 2.0], []]).to("cuda"), spare=2)
    with sr.testing.forbid_sync(), pytest.raises(RaggednessError, match=r"on cuda:0\].*with room for 2 and 4 entries"):
        x + y
