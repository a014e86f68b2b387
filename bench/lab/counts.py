"""What a run needs of something that can be counted exactly: system calls on memory, instructions.

Counts do not drift with the machine, so each is taken once. Counting slows a program down: its times do not count.
"""

import re
import shutil
import tempfile

from . import allocators
from .process import RunFailed, last_line, run

SLOWDOWN = 5  # of the row's time limit
SHARES = (20, 10)  # of a row's steps: instructions a step are the difference between two short runs


def _tool(name):
    if not shutil.which(name):
        raise RunFailed(f"{name} is not installed; on Debian: apt-get install {name}", in_doubt=True)
    return name


def memory_calls(allocator, row, command):
    """{system call: count} of those on memory, of the program and all it starts."""
    env = allocators.environment(allocator, **dict(row.environment))
    preload = env.pop("LD_PRELOAD", None)  # strace itself does without
    with tempfile.NamedTemporaryFile("r", prefix="hakmem-strace-") as table:
        strace = [_tool("strace"), "-f", "-c", "-e", "trace=%memory", "-o", table.name]
        strace += ["-E", f"LD_PRELOAD={preload}"] if preload else []
        code, _, err = run(strace + command, env, SLOWDOWN * row.limit_s)
        if code != 0:
            raise RunFailed(f"strace: {last_line(err)}")
        return parse_strace(table.read())


def parse_strace(table):
    """{system call: count} of strace -c's table: % time, seconds, usecs/call, calls, [errors,] name."""
    calls = {}
    for line in table.splitlines():
        fields = line.split()
        if len(fields) >= 5 and fields[3].isdigit() and fields[-1] != "total":
            calls[fields[-1]] = int(fields[3])
    return calls


def has_steps(row):
    """Whether instructions a step can be counted: the program is a hot loop whose last argument is its length."""
    return row.group == "small blocks" and row.kind == "workload"


def instructions(allocator, row, command):
    """Instructions that a step of a hot loop takes, by callgrind."""
    few, many = (int(command[-1]) // share for share in SHARES)
    if few == 0:
        raise RunFailed(f"{row.name}: {command[-1]} steps are too few to count instructions by", in_doubt=True)
    return (_collected(allocator, row, command, many) - _collected(allocator, row, command, few)) / (many - few)


def _collected(allocator, row, command, steps):
    callgrind = [_tool("valgrind"), "--tool=callgrind", "--callgrind-out-file=/dev/null"]
    env = allocators.environment(allocator, **dict(row.environment))
    code, _, err = run([*callgrind, *command[:-1], steps], env, SLOWDOWN * row.limit_s)
    found = re.search(r"Collected\s*:\s*(\d+)", err)
    if code != 0 or not found:
        raise RunFailed(f"callgrind: {last_line(err)}", in_doubt=True)
    return int(found[1])
