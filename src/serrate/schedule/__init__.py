"""Fusions that are scheduled by themselves: `plan` makes a few kernels of one, and says which and why."""

from serrate.schedule.attempts import CannotSchedule
from serrate.schedule.planned import Planned, Step, plan

__all__ = ["CannotSchedule", "Planned", "Step", "plan"]
