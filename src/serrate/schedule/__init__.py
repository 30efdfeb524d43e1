"""Fusions that are scheduled by themselves: `plan` makes a few kernels of one, and says which and why."""

from serrate.schedule.attempts import CannotSchedule
from serrate.schedule.planned import Planned, Step, compile_plans, plan
from serrate.schedule.stored import stored_plan

__all__ = ["CannotSchedule", "Planned", "Step", "compile_plans", "plan", "stored_plan"]
