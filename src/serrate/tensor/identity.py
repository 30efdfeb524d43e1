"""Identity: partitions found equal are remembered as one, so that no equality is worked out twice."""

from __future__ import annotations


class Identity:
    """A node of a union-find forest; equal things share a root."""

    __slots__ = ("_parent",)

    def __init__(self) -> None:
        self._parent: Identity | None = None

    def root(self) -> Identity:
        """The node that stands for all that were joined with this one."""
        node = self
        while node._parent is not None:
            if node._parent._parent is not None:
                node._parent = node._parent._parent
            node = node._parent
        return node

    def join(self, other: Identity) -> None:
        """Remember that both are equal."""
        mine, theirs = self.root(), other.root()
        if mine is not theirs:
            theirs._parent = mine
