"""Epochs: the position of a reader that reads one epoch after another, and how it is saved and restored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any

from serrate.errors import TableFormatError
from serrate.table.loading.batching import Batch, BatchPlan, Cursor
from serrate.table.loading.fingerprints import fingerprint, table_name

if TYPE_CHECKING:
    from serrate.table.table import Table

_VERSION = 2


class Epochs:
    """The epochs of a plan for one of several ranks; each iteration is the next epoch.

    The state describes the position after the last batch of the newest iteration.
    """

    def __init__(self, table: Table, plan: BatchPlan, rank: int, world: int, described: Mapping[str, Any]) -> None:
        self._table, self._plan, self._rank, self._world = table, plan, rank, world
        self._described = {"rows": plan.rows, **described}  # These are all options that batches depend on.
        self._at = Cursor()
        self._begins = True  # This says whether the next iteration begins at `_at`, or with the next epoch.
        self._newest: object = None

    @property
    def epoch(self) -> int:
        """The number of the epoch of the newest iteration; before it begins and after it ends, of the next one."""
        return self._at.epoch

    def set_epoch(self, epoch: int) -> None:
        """Let the next iteration be this epoch. If a loaded state lies within it, the iteration continues there."""
        if isinstance(epoch, bool) or not isinstance(epoch, int) or epoch < 0:
            raise ValueError(f"epoch must be an int of 0 or more, got {epoch!r:.40}")
        if not (self._begins and self._at.epoch == epoch):
            self._at, self._begins = Cursor(epoch), True

    def __len__(self) -> int:
        steps = self._plan.steps(self._rank, self._world)
        if steps is None:
            raise TypeError("with max_tokens the number of batches is not known before they are made")
        return steps

    @cached_property
    def _read(self) -> dict[str, str | None]:
        """The name and the fingerprint of the table; the fingerprint is None if rows cannot be read at the moment."""
        found = None
        # A state can be saved even if the table cannot be read at the moment.
        with suppress(OSError, TableFormatError):
            found = fingerprint(self._table)
        return {"dataset": table_name(self._table), "fingerprint": found}

    def state_dict(self) -> dict[str, Any]:
        """Return the position of the newest iteration as numbers and strings, equal on all ranks after the same step.

        The state names the table: by its path, for people, and by a fingerprint of some of its rows.
        """
        at = self._at
        return {
            "version": _VERSION, "epoch": at.epoch, "position": at.position, "taken": at.taken, **self._described,
            **self._read,
        }  # fmt: skip

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next iteration continue from a saved state. The numbers of workers and ranks may have changed."""
        expected = {"version": _VERSION, **self._described}
        places = ("epoch", "position", "taken")
        if not isinstance(state, Mapping) or set(state) != {*expected, *places, *self._read}:
            raise ValueError(f"this is not the result of state_dict of a loader: {state!r:.80}")
        other = [f"{name}={state[name]!r} (here {own!r})" for name, own in expected.items() if state[name] != own]
        theirs, own = state["fingerprint"], self._read["fingerprint"]
        if None not in (theirs, own) and theirs != own:
            raise ValueError(
                f"this state is of another dataset, or of one that was changed since: it was taken from "
                f"{state['dataset']!s:.300}, fingerprint {theirs!s:.16}, but this loader reads "
                f"{self._read['dataset']}, fingerprint {own}{'; ' if other else ''}{', '.join(other)}"
            )
        if other:
            raise ValueError(f"this state is from a loader with {', '.join(other)}, which makes other batches")
        values = [state[name] for name in places]
        if not all(type(value) is int and value >= 0 for value in values) or state["position"] > self._plan.rows:
            raise ValueError(f"epoch, position and taken of a state must be integers of 0 or more, got {values}")
        self._at, self._begins, self._newest = Cursor(*values), True, None

    def _batches(self) -> tuple[object, Iterator[Batch]]:
        """Return the batches of the next epoch, and the iteration, which `_passed` takes."""
        if not self._begins:
            self._at = Cursor(self._at.epoch + 1)
        self._begins, self._newest = False, object()
        return self._newest, self._plan.batches(self._at, self._rank, self._world)

    def _passed(self, iteration: object, after: Cursor | None) -> None:
        """Note that a batch was given out and that the epoch continues at `after`; None means that it is over."""
        if iteration is not self._newest:
            return
        if after is None:
            self._at, self._begins, self._newest = Cursor(self._at.epoch + 1), True, None
        else:
            self._at = after
