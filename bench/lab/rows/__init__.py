"""The rows of the benchmark: data, no code to speak of. Each module is one family.

A row is added by adding it to a module's ROWS; a program by adding a file to workloads/ or programs/.
"""

from . import latency, memory, objects, programs, short, threads
from .short import TRUE

__all__ = ["ROWS", "TRUE"]

ROWS = tuple(row for family in (short, objects, threads, memory, latency, programs) for row in family.ROWS)
assert len({row.name for row in ROWS}) == len(ROWS), "two rows have the same name"
