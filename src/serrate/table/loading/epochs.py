"""Epochs: where a reader of epoch after epoch stands, kept and restored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any

from serrate.errors import TableFormatError
from serrate.table.loading.batching import Batch, Cursor, Plan
from serrate.table.loading.identity import fingerprint, name_of

if TYPE_CHECKING:
    from serrate.table.table import Table

_VERSION = 2


class Epochs:
    """A plan, read by one of some ranks; each iteration is the next epoch.

    Its state is that of the last batch that the newest iteration gave, and says where to go on.
    """

    def __init__(self, table: Table, plan: Plan, rank: int, world: int, described: Mapping[str, Any]) -> None:
        self._table, self._plan, self._rank, self._world = table, plan, rank, world
        self._described = {"rows": plan.rows, **described}  # all that batches depend on
        self._at = Cursor()
        self._begins = True  # whether the next iteration begins there, or with the next epoch
        self._newest: object = None

    @property
    def epoch(self) -> int:
        """The number of the epoch of the newest iteration; before one, and after its end, that of the next."""
        return self._at.epoch

    def set_epoch(self, epoch: int) -> None:
        """Let the next iteration be this epoch; if a loaded state is in the midst of it, from there on."""
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
        """Which table is read: its name, and what tells it from others, or None if rows cannot be read just now."""
        found = None
        with suppress(OSError, TableFormatError):  # a state can be saved even if the table cannot be read just now
            found = fingerprint(self._table)
        return {"dataset": name_of(self._table), "fingerprint": found}

    def state_dict(self) -> dict[str, Any]:
        """Where the newest iteration stands: plain numbers and strings, the same on every rank after the same step.

        It says of which table it is: by its place, for who reads it, and by what some of its rows hold.
        """
        at = self._at
        return {
            "version": _VERSION, "epoch": at.epoch, "position": at.position, "taken": at.taken, **self._described,
            **self._read,
        }  # fmt: skip

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next iteration go on where that state was taken, by as many or other workers and ranks."""
        expected = {"version": _VERSION, **self._described}
        places = ("epoch", "position", "taken")
        if not isinstance(state, Mapping) or set(state) != {*expected, *places, *self._read}:
            raise ValueError(f"this is not what state_dict of a loader gave: {state!r:.80}")
        other = [f"{name}={state[name]!r} (here {own!r})" for name, own in expected.items() if state[name] != own]
        theirs, own = state["fingerprint"], self._read["fingerprint"]
        if None not in (theirs, own) and theirs != own:
            raise ValueError(
                f"this state is of another dataset, or of one that was changed since: it was taken from "
                f"{state['dataset']!s:.300}, fingerprint {theirs!s:.16}, but this loader reads "
                f"{self._read['dataset']}, fingerprint {own}{'; ' if other else ''}{', '.join(other)}"
            )
        if other:
            raise ValueError(f"this state is that of a loader with {', '.join(other)}: its batches would be others")
        values = [state[name] for name in places]
        if not all(type(value) is int and value >= 0 for value in values) or state["position"] > self._plan.rows:
            raise ValueError(f"epoch, position and taken of a state are 0 or more, got {values}")
        self._at, self._begins, self._newest = Cursor(*values), True, None

    def _batches(self) -> tuple[object, Iterator[Batch]]:
        """The batches of the next epoch, and what to give to `_passed` with them."""
        if not self._begins:
            self._at = Cursor(self._at.epoch + 1)
        self._begins, self._newest = False, object()
        return self._newest, self._plan.batches(self._at, self._rank, self._world)

    def _passed(self, iteration: object, after: Cursor | None) -> None:
        """A batch was given, after which the epoch goes on there; None: it is over."""
        if iteration is not self._newest:
            return
        if after is None:
            self._at, self._begins, self._newest = Cursor(self._at.epoch + 1), True, None
        else:
            self._at = after
