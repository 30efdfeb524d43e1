"""The checking interpreter: runs a kernel on numpy memory, one thread after the other, and checks all that it does.

out of bounds, never stored, stored twice, hole, fill       what a kernel may load and must store
race                                                        what concurrent blocks, threads or lanes touch
barrier not reached by all                                  where the threads of a block meet
division by zero, search out of range, overflow             what an expression may compute
"""

from serrate.kernel.check.accesses import Violation
from serrate.kernel.check.interpreter import run

__all__ = ["Violation", "run"]
