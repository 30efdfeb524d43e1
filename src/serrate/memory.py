"""This module shows and bounds the memory that is kept for large results on the CPU; docs/memory.md explains it."""

from serrate.native.allocation import MemoryStats, set_limit, stats, trim

__all__ = ["MemoryStats", "set_limit", "stats", "trim"]
