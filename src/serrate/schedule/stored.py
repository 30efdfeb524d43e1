"""Plans on disk: a fusion that was planned by an earlier process need not be planned again.

The file of a plan is named after all that it follows from: the fusion, the target, the name, and the version of
Serrate. Tensors refer to each other in chains as long as the fusion, so each is written on its own, by its number.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Iterator
from io import BytesIO
from typing import Any

from serrate.fusion.fusion import Fusion
from serrate.fusion.view import TensorView
from serrate.runtime.cache import cache_directory, digest, fingerprint, keep, read_cached
from serrate.schedule.planned import Planned, plan


def stored_plan(fusion: Fusion, target: str = "cpp", name: str = "kernel") -> Planned:
    """The plan of a fusion, as `plan` makes it: read from disk, or made and written there."""
    file = file_of(fusion, target, name)
    found = None if file is None else read(file)
    if found is None:
        found = plan(fusion, target, name)
        if file is not None:
            write(file, found)
    return found


def file_of(fusion: Fusion, *others: str) -> str | None:
    """The name of the file for a plan of a fusion; None if nobody can write down what the fusion is."""
    written = BytesIO()
    pickler = pickle.Pickler(written, 5)
    pickler.fast = True  # equal things are written alike, whether they are the same object or not
    try:
        pickler.dump(fusion.key())
    except (pickle.PicklingError, AttributeError, TypeError, RecursionError):
        return None
    return f"{digest('plan', written.getvalue().hex(), *others, fingerprint())}.plan"


def read(name: str) -> Planned | None:
    """The plan in a file; None if there is none."""
    content = read_cached(cache_directory() / name)
    return None if content is None else _Reader(BytesIO(zlib.decompress(content))).everything()


def write(name: str, planned: Planned) -> None:
    """Keep a plan, unless it is nested too deeply to be written."""
    written = BytesIO()
    try:
        _Writer(written).everything(planned)
    except RecursionError:
        return
    keep(name, zlib.compress(written.getvalue(), 1))


class _Writer(pickle.Pickler):
    """Writes a plan, with a number for each tensor, and then the tensors, as they are met."""

    def __init__(self, file: BytesIO) -> None:
        super().__init__(file, 5)
        self.numbers: dict[TensorView, int] = {}

    def everything(self, planned: Planned) -> None:
        self.dump(planned)
        for tensor in self._met():
            self.dump(vars(tensor))

    def _met(self) -> Iterator[TensorView]:
        done = 0
        while done < len(self.numbers):
            for tensor in list(self.numbers)[done:]:
                yield tensor
                done += 1

    def persistent_id(self, part: Any) -> int | None:
        """The number of a tensor."""
        return self.numbers.setdefault(part, len(self.numbers)) if type(part) is TensorView else None


class _Reader(pickle.Unpickler):
    """Reads what a `_Writer` wrote."""

    def __init__(self, file: BytesIO) -> None:
        super().__init__(file)
        self.tensors: list[TensorView] = []

    def everything(self) -> Planned:
        planned: Planned = self.load()
        done = 0
        while done < len(self.tensors):
            vars(self.tensors[done]).update(self.load())
            done += 1
        return planned

    def persistent_load(self, number: int) -> TensorView:
        """The tensor of a number, which is read later."""
        while len(self.tensors) <= number:
            self.tensors.append(TensorView.__new__(TensorView))
        return self.tensors[number]
