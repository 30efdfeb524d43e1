"""`serrate.compat.fbgemm` against FBGEMM's own CPU kernels, in one run, forward and with gradients.

`python -m benchmarks.compat` prints for each function and size our time over theirs, at minima and at medians, with one
thread and with two; `python -m benchmarks.compat bmm slice` only functions with one of these words.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch

from benchmarks import compat_dense, compat_sparse
from benchmarks.timing import Case, interleaved
from serrate.compat import fbgemm as compat

LIMIT, BMM = 1.1, 10.0
ROUNDS, SECONDS = 1000, 0.5
WARM_ROUNDS, WARM_SECONDS = 10, 2.0


def cases() -> Iterator[Case]:
    """All that is measured, small sizes first."""
    for rows in (128, 1024):
        for name in ("cola", "squad"):
            yield from compat_dense.cases(name, rows, 128)
    yield from compat_dense.cases("cola", 128, 32)
    for rows in (1024, 4096):
        yield from compat_sparse.rows_cases(rows)
        yield from compat_sparse.keyed_cases(rows)


def main(words: list[str] | None = None) -> None:
    """Print the ratios, and what misses its aim."""
    import fbgemm_gpu  # noqa: F401 (registers torch.ops.fbgemm)

    warnings.simplefilter("ignore")
    before = torch.get_num_threads()
    ratios: dict[str, float] = {}
    print(f"{'our time over FBGEMM’s, minimum | median':90} {'1 thread':>15} {'2 threads':>15}   µs (1 thread)")
    for case in cases():
        if not words or any(word in case.function for word in words):
            for gradients in [False] * case.forward + [True] * case.gradients:
                _measure(case, gradients, ratios)
    torch.set_num_threads(before)
    _summarize(ratios)


def _measure(case: Case, gradients: bool, ratios: dict[str, float]) -> None:
    name = f"{case.function}{' + gradients' * gradients} ({case.title})"
    line, least = f"{name:90}", {}
    for threads in (1, 2):
        torch.set_num_threads(threads)
        calls = {label: _call(getattr(of, case.function), case.arguments, gradients) for label, of in _SIDES.items()}
        _warm(calls)
        times = interleaved(calls, ROUNDS, SECONDS)
        (ours, middle), (theirs, their_middle) = times["ours"], times["theirs"]
        line += f" {ours / theirs:7.2f}|{middle / their_middle:7.2f}"
        ratios[f"{name}, {threads} threads"] = ours / theirs
        least[threads] = (ours, theirs)
    print(f"{line}   {least[1][0] * 1e6:9.0f} {least[1][1] * 1e6:9.0f}", flush=True)


def _warm(calls: dict[str, Callable[[], object]]) -> None:
    """Call each a few times. Virtual machines that hand free memory back to their host get it again page by page.

    That takes milliseconds for each large page, which is a property of the machine and not of a call. Which pages they
    are depends on the processors that write, so that it comes again with the number of threads.
    """
    end = time.perf_counter() + WARM_SECONDS
    for _ in range(WARM_ROUNDS):
        for call in calls.values():
            call()
        if time.perf_counter() > end:
            return


_SIDES: dict[str, Any] = {"ours": compat, "theirs": torch.ops.fbgemm}


def _call(function: Callable[..., Any], arguments: tuple[Any, ...], gradients: bool) -> Callable[[], object]:
    if not gradients:
        return lambda: function(*arguments)
    leaves = {id(a): a.detach().requires_grad_() for a in arguments if _is_float(a)}
    given = [leaves.get(id(a), a) for a in arguments]
    seeds = [torch.randn_like(made) for made in _floats(function(*arguments))]
    return lambda: torch.autograd.grad(_floats(function(*given)), list(leaves.values()), seeds)


def _is_float(given: Any) -> bool:
    return isinstance(given, torch.Tensor) and given.is_floating_point()


def _floats(made: Any) -> list[torch.Tensor]:
    return [t for t in (made if isinstance(made, (list, tuple)) else [made]) if _is_float(t)]


def _summarize(ratios: dict[str, float]) -> None:
    slow = {name: ratio for name, ratio in ratios.items() if ratio > LIMIT}
    print(f"\nslower than {LIMIT} × FBGEMM, by minima: {len(slow)} of {len(ratios)}")
    for name, ratio in sorted(slow.items(), key=lambda item: -item[1]):
        print(f"  {ratio:5.2f} {name}")
    products = {name: 1 / ratio for name, ratio in ratios.items() if "_bmm" in name}
    if products:
        print(f"products: {min(products.values()):.1f} to {max(products.values()):.1f} times faster (aim: {BMM:.0f})")
        for name, speedup in sorted(products.items(), key=lambda item: item[1]):
            print(f"  {speedup:5.1f} {name}" + (" *" if speedup < BMM else ""))


if __name__ == "__main__":
    main(sys.argv[1:])
