#!/usr/bin/env python3
"""Makes system calls of a multi-threaded program under hakmem fail, by strace, and expects it to survive.

For each of mmap, munmap, mprotect, madvise and mremap, and for many n: the n-th call of each thread fails, or the n-th
and every third after it. Calls are counted from a mark that the program sets before its constructors run, since the
dynamic loader does not survive, and is not what is tested. The program checks contents and errno, and must end with
status 0, which it does only if memory could be had again.

Usage: strace_faults.py VICTIM, with HAKMEM_LIB in the environment (empty: the C library's malloc).
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile

ERRORS = {
    "mmap": ["ENOMEM"],
    "munmap": ["ENOMEM"],
    "mprotect": ["ENOMEM", "EPERM"],
    "madvise": ["EINVAL", "ENOMEM"],
    "mremap": ["ENOMEM", "EPERM"],
}
FIRST = [1, 2, 3, 5, 8, 13]
SKIP = 77


def victim_environment():
    """Ours, without the variables of the test runner that hakmem would take for options, and with the preload."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HAKMEM_")}
    return environment, os.environ.get("HAKMEM_LIB", "")


def strace(victim, log, options):
    environment, library = victim_environment()
    command = ["strace", "-f", "-qq", "-o", log, *options]
    if library:
        command += ["-E", "LD_PRELOAD=" + library]
    command.append(victim)
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    with open(log, encoding="utf-8", errors="replace") as lines:
        return result, lines.read().splitlines()


def calls_before_mark(lines):
    """How often the first thread made each call before the mark, and how often all did after it."""
    before, after, marked = dict.fromkeys(ERRORS, 0), dict.fromkeys(ERRORS, 0), False
    for line in lines:
        match = re.match(r"\d+ +(\w+)\(", line)
        if match is None:
            continue
        if match[1] == "personality":
            marked = True
        elif match[1] in ERRORS:
            (after if marked else before)[match[1]] += 1
    assert marked, "the victim has set no mark"
    return before, after


def main():
    victim = sys.argv[1]
    if shutil.which("strace") is None:
        print("SKIP: strace is not installed")
        return SKIP
    with tempfile.TemporaryDirectory() as folder:
        log = os.path.join(folder, "log")
        calls = ",".join(ERRORS)
        result, lines = strace(victim, log, ["-e", "trace=personality," + calls])
        if not lines:
            print("SKIP: strace cannot trace here:", result.stderr.strip())
            return SKIP
        if result.returncode != 0:
            print("the victim fails without failing calls:", result.stdout, result.stderr)
            return 1
        before, after = calls_before_mark(lines)

        runs = failed = injected = 0
        for call, errors in ERRORS.items():
            for error in errors:
                for n in FIRST:
                    for step in ["", "+3"]:
                        if n > after[call]:
                            continue
                        when = f"{before[call] + n}{step}"
                        inject = f"inject={call}:error={error}:when={when}"
                        # With a filter, strace stops the victim at these calls only.
                        result, lines = strace(victim, log, ["--seccomp-bpf", "-e", "trace=" + call, "-e", inject])
                        injected += sum("(INJECTED)" in line for line in lines)
                        runs += 1
                        if result.returncode != 0:
                            failed += 1
                            print(f"{inject} (of which {before[call]} before the mark): status {result.returncode}")
                            print(result.stdout + result.stderr, end="")
        print(f"{runs} runs, {injected} calls failed:", ", ".join(f"{after[c]} {c}" for c in ERRORS), "in all")
        if injected == 0:
            print("no call was made to fail")
            return 1
        return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
