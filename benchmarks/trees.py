"""Two trees of Serrate side by side: every operation of the eager and the compatibility suites, and what a call costs.

`python -m benchmarks.trees OTHER` compares the tree in the folder OTHER, a checkout of an earlier version, with this
one. Two processes of each take turns, since which memory a process gets is a tenth of some times, to either side; the
two processes of the other tree show how much that is. Words after OTHER choose suites and operations: `overhead`,
`eager`, `compat`, or a part of an operation's name. The suite `faces` compares operations of this tree with the
functions of FBGEMM's names in the other one (`benchmarks.native`).
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIMIT, OVERHEAD = 1.05, 1e-6
TURNS, SECONDS = 8, 0.03
Calls = Iterator[tuple[str, Callable[[], object]]]


def main(arguments: list[str]) -> None:
    """Print for each call the time of this tree over that of the other, and of the other over itself."""
    other, *words = arguments
    sides = {"this": ROOT, "other": Path(other), "this again": ROOT, "other again": Path(other)}
    for threads in (1, 2):
        children = {name: _child(tree, threads, words) for name, tree in sides.items()}
        names = [set(_lines(child)) for child in children.values()]
        chosen = [name for name in _ORDER if all(name in found for found in names)]
        print(f"\n{threads} thread{'s' * (threads > 1)}: {'':48} this ÷ other (minima | medians), other ÷ itself")
        slower = [name for name in chosen if not _compare(name, children)]
        for child in children.values():
            _ask(child, "end")
        print(f"{len(slower)} of {len(chosen)} calls take more than {LIMIT} × and more than the other tree itself:")
        print("  " + "\n  ".join(slower or ["none"]))


_ORDER: list[str] = []


def _child(tree: Path, threads: int, words: list[str]) -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONPATH": f"{tree / 'src'}:{ROOT}"}
    command = [sys.executable, "-m", "benchmarks.trees", "--child", str(threads), *words]
    return subprocess.Popen(
        command, env=environment, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )


def _ask(child: subprocess.Popen[str], line: str) -> str:
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(line + "\n")
    child.stdin.flush()
    return child.stdout.readline().rstrip("\n")


def _lines(child: subprocess.Popen[str]) -> list[str]:
    """The names of the calls that a child knows."""
    count = int(_ask(child, "names"))
    assert child.stdout is not None
    found = [child.stdout.readline().rstrip("\n") for _ in range(count)]
    _ORDER.extend(name for name in found if name not in _ORDER)
    return found


def _compare(name: str, children: dict[str, subprocess.Popen[str]]) -> bool:
    """Whether this tree is as fast; measured again, longer, where it is not."""
    taken: dict[str, list[float]] = {side: [] for side in children}
    for turns in (TURNS, 3 * TURNS):
        for turn in range(turns):
            order = list(children.items())
            for side, child in order[turn % 4 :] + order[: turn % 4]:
                taken[side].append(float(_ask(child, name)))
        least = {side: min(times) for side, times in taken.items()}
        ours, theirs = min(least["this"], least["this again"]), min(least["other"], least["other again"])
        own = max(least["other"], least["other again"]) / theirs
        fine = ours <= max(LIMIT, own) * theirs or (name.startswith("overhead") and ours - theirs <= OVERHEAD)
        if fine:
            break
    middle = {side: statistics.median(times) for side, times in taken.items()}
    median = min(middle["this"], middle["this again"]) / min(middle["other"], middle["other again"])
    shown = f"{ours / theirs:5.2f} | {median:5.2f}    {own:5.2f}   {ours * 1e6:9.1f} µs"
    print(f"{name:70} {shown}{'' if fine else '   slower'}", flush=True)
    return fine


# ---------------------------------------------------------------------------------------------------- in a child


def _serve(threads: int, words: list[str]) -> None:
    """Answer what a parent asks: the names of all calls, or the seconds that one of them takes."""
    import warnings

    import torch

    warnings.simplefilter("ignore")
    torch.set_num_threads(threads)
    known = {name: call for name, call in _calls() if not words or any(word in name for word in words)}
    rounds: dict[str, int] = {}
    for line in sys.stdin:
        name = line.rstrip("\n")
        if name == "end":
            return
        if name == "names":
            print(len(known), *known, sep="\n", flush=True)
            continue
        if name not in rounds:
            once = min(_seconds(known[name], 1) for _ in range(3))
            rounds[name] = max(1, min(10_000, int(SECONDS / max(once, 1e-7))))
        print(_seconds(known[name], rounds[name]), flush=True)


def _seconds(call: Callable[[], object], rounds: int) -> float:
    """The least time of some calls, each alone if it takes long enough to be measured so."""
    clock, least = time.perf_counter, float("inf")
    inner = 20 if rounds >= 1000 else 1
    for _ in range(max(1, rounds // inner)):
        start = clock()
        for _ in range(inner):
            call()
        least = min(least, (clock() - start) / inner)
    return least


def _calls() -> Calls:
    yield from _overhead()
    yield from _eager()
    yield from _compat()
    yield from _faces()


def _overhead() -> Calls:
    import torch
    import torch.nn.functional as F

    import serrate as sr

    x = sr.from_lengths(torch.randn(12, 4), [5, 0, 7])
    y, weight, linear = x + 1, torch.randn(4, 4), torch.nn.Linear(4, 4)
    calls: dict[str, Callable[[], object]] = {
        "x + y": lambda: x + y,
        "sr.add": lambda: sr.add(x, y),  # type: ignore[attr-defined]
        "torch.add": lambda: torch.add(x, y),  # type: ignore[call-overload]
        "x * 2": lambda: x * 2,
        "x > 0": lambda: x > 0,
        "-x": lambda: -x,
        "sr.exp": lambda: sr.exp(x),
        "x.exp": lambda: x.exp(),
        "torch.exp": lambda: torch.exp(x),  # type: ignore[call-overload]
        "F.gelu": lambda: F.gelu(x),  # type: ignore[arg-type]
        "F.linear": lambda: F.linear(x, weight),  # type: ignore[arg-type]
        "nn.Linear": lambda: linear(x),
        "sr.sum": lambda: sr.sum(x, axis=1),
        "sr.softmax": lambda: sr.softmax(x, axis=1),
        "x[0]": lambda: x[0],
        "x[:, :2]": lambda: x[:, :2],
        "x.clone": lambda: x.clone(),
        "x.to": lambda: x.to(torch.float64),
        "x.to_dense": lambda: x.to_dense(),
        "permute_dims": lambda: x.permute_dims((0, 2, 1)),
        "concat": lambda: sr.concat([x, y], axis=1),
        "from_lengths": lambda: sr.from_lengths(x.values, x.lengths[0]),
    }
    for name, call in calls.items():
        yield f"overhead: {name}", call


def _eager() -> Calls:
    from benchmarks import eager

    for title, lengths in eager.batches().items():
        for name, (ours, *_) in eager.cases(eager.Batch(lengths)).items():
            if ours is not None:
                yield f"eager: {name} ({title})", ours


def _faces() -> Calls:
    """What this tree calls by its own names, and another tree by FBGEMM's."""
    import serrate
    from benchmarks import eager, native

    ours = Path(serrate.__file__).is_relative_to(ROOT)
    for title, lengths in eager.batches().items():
        for name, (own, face) in native.pairs(eager.Batch(lengths)).items():
            yield f"faces: {name} ({title})", own if ours else face


def _compat() -> Calls:
    from benchmarks import compat
    from serrate.compat import fbgemm

    for case in compat.cases():
        function = getattr(fbgemm, case.function)
        for gradients in [False] * case.forward + [True] * case.gradients:
            name = f"compat: {case.function}{' + gradients' * gradients} ({case.title})"
            yield name, compat._call(function, case.arguments, gradients)


if __name__ == "__main__":
    if sys.argv[1] == "--child":
        _serve(int(sys.argv[2]), sys.argv[3:])
    else:
        main(sys.argv[1:])
