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
SECONDS_OF_PRODUCTS = 2.0  # FBGEMM's take so long that less would be a handful of rounds
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


Key = tuple[Case, bool, int]
"""What is measured: a call, whether with gradients, and the number of threads."""
Least = dict[Key, tuple[float, float]]
"""The least times of both sides."""


def main(words: list[str] | None = None) -> None:
    """Print the ratios, and what misses its aim."""
    import fbgemm_gpu  # noqa: F401 (registers torch.ops.fbgemm)

    warnings.simplefilter("ignore")
    before = torch.get_num_threads()
    least: Least = {}
    print(f"{'our time over FBGEMM’s, minimum | median':90} {'1 thread':>15} {'2 threads':>15}   µs (1 thread)")
    for case in cases():
        if not words or any(word in case.function for word in words):
            for gradients in [False] * case.forward + [True] * case.gradients:
                line = f"{_name(case, gradients):90}"
                for threads in (1, 2):
                    least[case, gradients, threads], medians = _measure(case, gradients, threads)
                    ours, theirs = least[case, gradients, threads]
                    line += f" {ours / theirs:7.2f}|{medians[0] / medians[1]:7.2f}"
                ours, theirs = least[case, gradients, 1]
                print(f"{line}   {ours * 1e6:9.0f} {theirs * 1e6:9.0f}", flush=True)
    _summarize(least)
    torch.set_num_threads(before)


def _name(case: Case, gradients: bool) -> str:
    return f"{case.function}{' + gradients' * gradients} ({case.title})"


def _measure(case: Case, gradients: bool, threads: int) -> tuple[tuple[float, float], tuple[float, float]]:
    """The minima of both sides, and their medians."""
    torch.set_num_threads(threads)
    calls = {label: _call(getattr(of, case.function), case.arguments, gradients) for label, of in _SIDES.items()}
    _warm(calls)
    times = interleaved(calls, ROUNDS, SECONDS_OF_PRODUCTS if "_bmm" in case.function else SECONDS)
    (ours, our_median), (theirs, their_median) = times["ours"], times["theirs"]
    return (ours, theirs), (our_median, their_median)


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


def _summarize(least: Least) -> None:
    slow = _slow(least)
    print(f"\nslower than {LIMIT} × FBGEMM, by minima: {len(slow)} of {len(least)}")
    if slow:
        again = _measured_again(slow)
        for key in slow:
            print(f"  {_ratio(least[key]):5.2f}, with two measurements more {_ratio(again[key]):5.2f} {_full(key)}")
        print(f"slower by the minima of all three: {len(_slow(again))}")
    products = {key: 1 / _ratio(times) for key, times in least.items() if "_bmm" in key[0].function}
    if products:
        print(f"products: {min(products.values()):.1f} to {max(products.values()):.1f} times faster (aim: {BMM:.0f})")
        for key, speedup in sorted(products.items(), key=lambda item: item[1]):
            print(f"  {speedup:5.1f} {_full(key)}" + (" *" if speedup < BMM else ""))


def _slow(least: Least) -> Least:
    """Those above the limit, the slowest first."""
    above = {key: times for key, times in least.items() if _ratio(times) > LIMIT}
    return dict(sorted(above.items(), key=lambda item: -_ratio(item[1])))


def _measured_again(least: Least) -> Least:
    """The minima of two measurements more, too: which memory a call gets is a tenth of some times, to either side."""
    made = dict(least)
    for key in [*least, *least]:
        (ours, theirs), _ = _measure(*key)
        made[key] = (min(made[key][0], ours), min(made[key][1], theirs))
    return made


def _ratio(times: tuple[float, float]) -> float:
    return times[0] / times[1]


def _full(key: Key) -> str:
    case, gradients, threads = key
    return f"{_name(case, gradients)}, {threads} thread{'s' * (threads > 1)}"


if __name__ == "__main__":
    main(sys.argv[1:])
