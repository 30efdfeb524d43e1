"""The one door between device and host: every read of device data by the host goes through here.

Host reads stall the GPU, so they are counted at one place and can be forbidden. Checks that need no answer now are
deferred: the verdict travels to pinned memory on its own and is looked at by a later call, which raises the error.
"""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Self, TypeVar, overload

import numpy as np
import torch
from torch.autograd import forward_ad
from torch.compiler import is_dynamo_compiling

from serrate.errors import SyncError
from serrate.tensor import abstract
from serrate.tensor.tracing import untraced

_state = threading.local()
T = TypeVar("T")


@contextlib.contextmanager
def _sync(*, forbidden: bool) -> Iterator[None]:
    outer, before = getattr(_state, "forbidden", False), 0
    try:
        _state.forbidden = forbidden
        if torch.cuda.is_available():
            before = torch.cuda.get_sync_debug_mode()
            _set_cuda_mode("error" if forbidden else "default")
        yield
    finally:
        _state.forbidden = outer
        if torch.cuda.is_available():
            _set_cuda_mode(before)


def _set_cuda_mode(mode: int | str) -> None:
    with warnings.catch_warnings():  # On first use torch warns that the mode is a prototype.
        warnings.simplefilter("ignore", UserWarning)
        torch.cuda.set_sync_debug_mode(mode)


def forbidding_sync() -> contextlib.AbstractContextManager[None]:
    """Make every host read of device data an error, ours and (on CUDA) torch's."""
    return _sync(forbidden=True)


@contextlib.contextmanager
def _lasting() -> Iterator[None]:
    with torch.inference_mode(False), torch._C._DisableFuncTorch():
        yield


def lasting() -> contextlib.AbstractContextManager[None]:
    """A context in which to make tensors that are kept: they can be used anywhere, wherever they are first asked for.

    A tensor that is made in inference mode, or inside of a transform, could otherwise not be used outside.
    """
    if torch.is_inference_mode_enabled() or torch._C._are_functorch_transforms_active():
        return _lasting()
    return contextlib.nullcontext()


class lasting_property(cached_property[T]):
    """A property that is worked out once, and may be kept with a structure: tensors in it are `lasting`."""

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type | None = None) -> T: ...
    def __get__(self, instance: object | None, owner: type | None = None) -> Any:
        with lasting():
            return super().__get__(instance, owner)


def read(tensor: torch.Tensor, why: str) -> torch.Tensor:
    """`tensor` on the host, waiting for the device. `why` says what asked for it.

    The caller calls this only for data that was born on a device; a CPU tensor may play that part in tests.
    """
    if not may_wait():
        raise SyncError(f"{why} would make the host wait for {tensor.device}, which forbid_sync() does not allow")
    return tensor.cpu()


def may_wait() -> bool:
    """Whether the host may wait for a device here."""
    return not getattr(_state, "forbidden", False)


def read_if_device(tensor: torch.Tensor, why: str) -> torch.Tensor:
    """`tensor` on the host; for values, of which the device alone tells whether the host has to wait."""
    return tensor if tensor.device.type == "cpu" else read(tensor, why)


def is_at_hand(tensor: torch.Tensor) -> bool:
    """Whether the host can look at elements at once: they lie on the host, and no trace or transform hides them."""
    return tensor.device.type == "cpu" and not stands_in(tensor)


def stands_in(tensor: torch.Tensor) -> bool:
    """Whether a tensor may have no elements of its own: under vmap, in a trace, or of a class that is not torch's."""
    return (
        torch.compiler.is_compiling()
        or type(tensor) not in (torch.Tensor, torch.nn.Parameter)
        or torch._C._are_functorch_transforms_active()
        or torch._C._len_torch_dispatch_stack() > 0
        or is_batch(tensor)
    )


def is_batch(tensor: torch.Tensor) -> bool:
    """Whether torch computes several gradients at once and this is one of each (`is_grads_batched`).

    That is another vmap than torch.func's, and only the way back of a function can see it.
    """
    return torch._C._current_graph_task_id() != -1 and bool(torch._C._functorch.is_legacy_batchedtensor(tensor))


def is_constant(tensor: torch.Tensor) -> bool:
    """Whether nobody can ask for a derivative of a tensor: no gradient, tangent, transform or trace follows it."""
    asked = tensor.requires_grad and torch.is_grad_enabled()
    return not asked and forward_ad._current_level < 0 and not stands_in(tensor)


def settled(index: torch.Tensor) -> torch.Tensor:
    """A tensor of integers without the wrappers of torch.func's gradients, since integers have no gradient."""
    if torch._C._are_functorch_transforms_active():
        while torch._C._functorch.is_gradtrackingtensor(index):
            index = torch._C._functorch.get_unwrapped(index)
    return index


def is_mapped(tensor: torch.Tensor) -> bool:
    """Whether vmap maps over a tensor: then it stands for many tensors, and nobody can look at their elements."""
    return torch._C._are_functorch_transforms_active() and torch._C._functorch.is_batchedtensor(settled(tensor))


def array(index: torch.Tensor) -> np.ndarray[Any, Any]:
    """A tensor of integers on the host as a numpy array; transforms of torch.func, which know none, are set aside."""
    if not torch._C._are_functorch_transforms_active():
        return index.numpy()
    with torch._C._DisableFuncTorch():
        return settled(index).numpy()


def send(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """`tensor` on `device`, the host not waiting for the copy."""
    return tensor if tensor.device == device else tensor.to(device, non_blocking=True)


@dataclass(frozen=True, slots=True, eq=False)
class Landing:
    """A place in pinned memory for one verdict, which is used again and again.

    0 means that all is well, else it is the position of the first fault plus 1. A kernel on the device may write to it.
    """

    verdict: torch.Tensor
    event: torch.cuda.Event


_Pending = tuple[Landing, Callable[[int], Exception], int]
"""A landing that somebody waits for, what its verdict means, and the number of the device."""
_pending: deque[_Pending] = deque()
_lock = threading.Lock()
_free: dict[int, list[Landing]] = {}
"""For each device the landings that nobody waits for, all of which hold 0."""


def landing_on(device: torch.device) -> Landing:
    """A landing that holds 0, in which work on a CUDA device may report a fault; `watch` looks at it later."""
    if torch.cuda.is_current_stream_capturing():
        return _unseen()
    if _pending:
        raise_deferred()
    free = _free.get(_number(device))
    try:
        return free.pop() if free else _landing()
    except IndexError:  # another thread took the last one
        return _landing()


def _landing() -> Landing:
    verdict = torch.zeros((), dtype=torch.int64, device="cpu", pin_memory=True)
    return Landing(verdict, torch.cuda.Event())  # type: ignore[no-untyped-call]


@cache
def _unseen() -> Landing:
    """The landing of all graphs. They are replayed without the host, so that nobody looks at it, and never freed."""
    return _landing()


def watch(landing: Landing, device: torch.device, error: Callable[[int], Exception]) -> None:
    """Raise `error(position)` from a later call if work that was given to the device reports a fault in a landing."""
    if landing is _unseen():
        return
    number = _number(device)
    landing.event.record(_stream(torch._C._cuda_getCurrentRawStream(number), number))
    _pending.append((landing, error, number))


@cache
def _stream(handle: int, number: int) -> torch.cuda.Stream:
    """The current stream of a device, by its handle: streams of torch come from a pool and live as long as it."""
    found = torch.cuda.current_stream(number)
    assert found.cuda_stream == handle
    return found


def _number(device: torch.device) -> int:
    return torch.cuda.current_device() if device.index is None else device.index


@untraced
def defer(verdict: torch.Tensor, error: Callable[[int], Exception]) -> None:
    """Raise `error(position)` from a later call if the 0-d `verdict` (first bad position + 1, or 0) is not 0.

    On the CPU the answer is at hand, so the error is raised now.
    """
    if abstract.current() is not None:
        return  # Tensors without elements break no rule.
    if verdict.device.type != "cuda":
        if verdict.device.type != "meta" and (position := int(verdict)):
            raise error(position - 1)
        return
    if torch.cuda.is_current_stream_capturing():
        return  # A graph is replayed without the host, so nobody could ever look at the verdict.
    landing = landing_on(verdict.device)
    landing.verdict.copy_(verdict, non_blocking=True)
    watch(landing, verdict.device, error)


def raise_deferred(*, wait: bool = False) -> None:
    """Raise the oldest deferred error that has arrived; with `wait`, let all of them arrive first."""
    if is_dynamo_compiling():
        return  # A traced graph must not depend on what is pending while it is traced.
    while _pending:
        with _lock:  # Another thread, for example that of a loader, may look at the same moment.
            if not _pending:
                return
            landing, error, number = _pending[0]
            if not wait and (torch.cuda.is_current_stream_capturing() or not landing.event.query()):  # type: ignore[no-untyped-call]
                return
            _pending.popleft()
        if wait:
            landing.event.synchronize()
        if position := int(landing.verdict):
            with _sync(forbidden=False):  # An error is certain, so it does no harm to wait for what its message shows.
                found = error(position - 1)
            raise found
        _free.setdefault(number, []).append(landing)


def first_fault(bad: torch.Tensor) -> torch.Tensor:
    """The verdict for `defer`: position of the first True in the 1-D `bad` plus 1, or 0; the host does not wait."""
    if bad.numel() == 0:
        return torch.zeros((), dtype=torch.int64, device=bad.device)
    position = bad.to(torch.uint8).argmax()
    return torch.where(bad.any(), position + 1, torch.zeros_like(position))
