"""What a row of the benchmark is, and what it may demand of hakmem. The rows themselves are in rows/."""

import re
from dataclasses import dataclass

KINDS = {
    "workload": "a program of workloads/, which reports its own figure",
    "above": "the same, twice: the figure is how far argv's is above base_argv's, divided by scale",
    "command": "a program of the system's, whose figure is its page faults",
    "calls": "a program of workloads/ under strace: the figure is its system calls on memory",
    "program": "a script of programs/, which sets the scene for a real program and runs it",
}

GROUPS = ("small blocks", "threads", "large blocks", "memory", "latency", "start-up", "real programs")

# Units of figures that are a time or a rate; other figures count something, bytes or calls.
TIME_UNIT = re.compile(r".*/s|tps|(ns|us|ms|s|seconds)(/.*)?")


@dataclass(frozen=True)
class Target:
    """What a measure of hakmem must reach: its ratio to another allocator's, its difference from it, or itself."""

    measure: str  # a key of a run: figure, net_kib, faults, growth_kib, ...
    relation: str  # ">=" or "<="
    limit: float
    against: str = ""  # an allocator, "best" (of the peers that are not the system's), or "" for the value itself
    difference: bool = False  # limit is on the difference from `against`, not on the ratio

    def __post_init__(self):
        assert self.relation in (">=", "<="), self


@dataclass(frozen=True)
class Row:
    name: str
    title: str  # what it stands for, in at most 70 characters
    kind: str  # how it is run: one of KINDS
    argv: tuple  # a workload's of the group "small blocks" ends with its number of steps, see counts.py
    unit: str
    more_is_better: bool
    group: str  # the heading it is shown under: one of GROUPS
    targets: tuple = ()
    rounds: int = 10
    columns: tuple = ()  # further measures shown in the table: (key, heading) pairs
    scale: float = 1.0  # kind "above"
    base_argv: tuple = ()  # kind "above"
    short: bool = False  # part of `make bench`
    curve: str = ""  # rows of the same curve show how a program scales, by threads
    threads: int = 1  # that work at once
    environment: tuple = ()  # (name, value) pairs for the program
    idle: bool = False  # measures memory: its time says nothing and is not judged
    limit_s: int = 60  # a run that takes longer hangs

    def __post_init__(self):
        assert self.kind in KINDS, f"{self.name}: kind {self.kind!r} is none of {', '.join(KINDS)}"
        assert self.group in GROUPS, f"{self.name}: group {self.group!r} is none of {', '.join(GROUPS)}"
        assert len(self.title) <= 70, f"{self.name}: the title has {len(self.title)} characters, more than 70"

    def fits(self, cores):
        """Whether a machine of so many cores can show it: rows of one thread a core at most, and one step beyond."""
        return self.threads <= 2 * cores
