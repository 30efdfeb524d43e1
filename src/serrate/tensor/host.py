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
from typing import Any

import numpy as np
import torch
from torch.autograd import forward_ad
from torch.compiler import is_dynamo_compiling

from serrate.errors import SyncError
from serrate.tensor import abstract
from serrate.tensor.tracing import untraced

_state = threading.local()


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
    with warnings.catch_warnings():  # torch announces the mode as a prototype on first use
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
    """A context for making what is kept: usable anywhere, though first asked for in inference mode or a transform."""
    if torch.is_inference_mode_enabled() or torch._C._are_functorch_transforms_active():
        return _lasting()
    return contextlib.nullcontext()


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
    """`tensor` on the host, for values, whose place alone says where they were born."""
    return tensor if tensor.device.type == "cpu" else read(tensor, why)


def is_at_hand(tensor: torch.Tensor) -> bool:
    """Whether the host may look at elements at once: they lie there, and no trace or transform stands in for them."""
    return tensor.device.type == "cpu" and not stands_in(tensor)


def stands_in(tensor: torch.Tensor) -> bool:
    """Whether a tensor may have no elements of its own: under vmap, in a trace, or of a class that is not torch's."""
    return (
        torch.compiler.is_compiling()
        or type(tensor) not in (torch.Tensor, torch.nn.Parameter)
        or torch._C._are_functorch_transforms_active()
        or torch._C._len_torch_dispatch_stack() > 0
    )


def is_constant(tensor: torch.Tensor) -> bool:
    """Whether nobody can ask for a derivative of it: no gradient, tangent, transform or trace sees to it."""
    asked = tensor.requires_grad and torch.is_grad_enabled()
    return not asked and forward_ad._current_level < 0 and not stands_in(tensor)


def settled(index: torch.Tensor) -> torch.Tensor:
    """Whole numbers as they are below transforms of gradients, which have no part in them."""
    if torch._C._are_functorch_transforms_active():
        while torch._C._functorch.is_gradtrackingtensor(index):
            index = torch._C._functorch.get_unwrapped(index)
    return index


def is_mapped(tensor: torch.Tensor) -> bool:
    """Whether vmap maps over it, so that it stands for many tensors, at whose elements nobody can look."""
    return torch._C._are_functorch_transforms_active() and torch._C._functorch.is_batchedtensor(settled(tensor))


def array(index: torch.Tensor) -> np.ndarray[Any, Any]:
    """Whole numbers on the host for numpy, which transforms would stand in the way of."""
    if not torch._C._are_functorch_transforms_active():
        return index.numpy()
    with torch._C._DisableFuncTorch():
        return settled(index).numpy()


def send(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """`tensor` on `device`, the host not waiting for the copy."""
    return tensor if tensor.device == device else tensor.to(device, non_blocking=True)


@dataclass(frozen=True, slots=True)
class _Pending:
    event: torch.cuda.Event
    verdict: torch.Tensor  # pinned; 0 is good, anything else is the position of the first fault, plus 1
    error: Callable[[int], Exception]


_pending: deque[_Pending] = deque()
_lock = threading.Lock()


@untraced
def defer(verdict: torch.Tensor, error: Callable[[int], Exception]) -> None:
    """Raise `error(position)` from a later call if the 0-d `verdict` (first bad position + 1, or 0) is not 0.

    On the CPU the answer is at hand, so the error is raised now.
    """
    if abstract.current() is not None:
        return  # tensors without elements break no rule
    if verdict.device.type != "cuda":
        if verdict.device.type != "meta" and (position := int(verdict)):
            raise error(position - 1)
        return
    if torch.cuda.is_current_stream_capturing():
        return  # a graph replays without the host, so nobody could ever look at the verdict
    landing = torch.empty((), dtype=verdict.dtype, device="cpu", pin_memory=True)
    landing.copy_(verdict, non_blocking=True)
    event = torch.cuda.Event()  # type: ignore[no-untyped-call]
    event.record(torch.cuda.current_stream(verdict.device))
    _pending.append(_Pending(event, landing, error))


def raise_deferred(*, wait: bool = False) -> None:
    """Raise the oldest deferred error that has arrived; with `wait`, let all of them arrive first."""
    if is_dynamo_compiling():
        return  # a graph must not depend on what is pending while it is traced
    while _pending:
        with _lock:  # another thread, a loader's say, may look at the same moment
            if not _pending:
                return
            check = _pending[0]
            if not wait and (torch.cuda.is_current_stream_capturing() or not check.event.query()):  # type: ignore[no-untyped-call]
                return
            _pending.popleft()
        check.event.synchronize()
        if position := int(check.verdict):
            with _sync(forbidden=False):  # it has gone wrong already: a wait to say where does no harm
                error = check.error(position - 1)
            raise error


def first_fault(bad: torch.Tensor) -> torch.Tensor:
    """The verdict for `defer`: position of the first True in the 1-D `bad`, plus 1, or 0; without a sync."""
    if bad.numel() == 0:
        return torch.zeros((), dtype=torch.int64, device=bad.device)
    position = bad.to(torch.uint8).argmax()
    return torch.where(bad.any(), position + 1, torch.zeros_like(position))
