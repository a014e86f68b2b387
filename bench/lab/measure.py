"""Builds the benchmark's programs and runs them: one run, and one row in interleaved rounds."""

import contextlib
import os
import re
import shutil
import signal
import statistics
import subprocess
import tempfile
from collections import namedtuple
from pathlib import Path

from . import allocators

BENCH = Path(__file__).resolve().parent.parent
SUPERSLABS_COUNTER = "stage3_mapped"  # of HAKMEM_STATS=1: superslabs taken from the OS
RUN_SECONDS = 60  # a run that takes longer hangs, or the machine is not fit for measuring


class Unbuildable(Exception):
    pass


class RunFailed(Exception):
    """A run that gave no figures. In doubt (a time-out, a tool that is not there) it may be the machine's fault, and is
    if others fail likewise; else it is the allocator's."""

    def __init__(self, reason, in_doubt=False):
        super().__init__(reason)
        self.in_doubt = in_doubt


Cost = namedtuple("Cost", "status wall user system peak_kib faults major_faults")


def build(folder):
    """Configures and builds the programs into `folder`; does nothing that is done already."""
    if not shutil.which("cmake"):
        raise Unbuildable("cmake is not installed; on Debian: apt-get install cmake gcc make")
    for command in (["cmake", "-S", BENCH, "-B", folder], ["cmake", "--build", folder]):
        result = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
        if result.returncode != 0:
            raise Unbuildable(f"{' '.join(map(str, command))} failed:\n{result.stdout}{result.stderr}")


def _run(command, env, pass_fds=()):
    """Runs a command to its end or for RUN_SECONDS; whatever it started ends with it."""
    with subprocess.Popen(
        [str(word) for word in command], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        errors="replace", pass_fds=pass_fds, start_new_session=True,
    ) as process:
        try:
            out, err = process.communicate(timeout=RUN_SECONDS)
        except BaseException as error:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                raise RunFailed(f"no end after {RUN_SECONDS} s", in_doubt=True) from None
            raise
        return process.returncode, out, err


def _last_line(text):
    return next((line for line in reversed(text.splitlines()) if line.strip()), "")


def _how_it_ended(status, err):
    if os.WIFSIGNALED(status):
        reason = f"killed by {signal.Signals(os.WTERMSIG(status)).name}"
    else:
        reason = f"exit status {os.WEXITSTATUS(status)}"
    return f"{reason}: {_last_line(err)}" if err.strip() else reason


class Lab:
    def __init__(self, programs):
        self.programs = Path(programs)

    def find(self, name):
        """Where a program is: one of ours, else one of the system's."""
        own = self.programs / name
        return str(own) if own.exists() else shutil.which(name) or name

    def _command(self, argv):
        return [self.find(argv[0]), *argv[1:]]

    def _launch(self, allocator, argv):
        """One run under the launcher: what it cost and what it printed."""
        read_end, write_end = os.pipe()
        with os.fdopen(read_end) as report:
            try:
                code, out, err = _run(
                    [self.programs / "launch", write_end, allocator.library or "-", *self._command(argv)],
                    allocators.environment(), pass_fds=(write_end,),
                )
            finally:
                os.close(write_end)
            line = report.read()
        if code != 0 or not line:
            raise RunFailed(f"the launcher failed: {_last_line(err)}")
        fields = line.split()
        cost = Cost(int(fields[0]), *map(float, fields[1:4]), *map(int, fields[4:]))
        if cost.status != 0:
            raise RunFailed(_how_it_ended(cost.status, err))
        if "cannot be preloaded" in err:
            raise RunFailed(_last_line(err))
        return cost, out

    def run_workload(self, allocator, row, argv=None):
        """One run of one of our programs, which reports its own figure and where its malloc came from."""
        cost, out = self._launch(allocator, argv or row.argv)
        line, _, origin = out.strip().partition(" malloc=")
        report = dict(pair.split("=", 1) for pair in line.split() if "=" in pair)
        if "figure" not in report or not origin:
            raise RunFailed(f"no figures in what it printed: {out.strip()[:100]!r}")
        if not allocators.is_origin(allocator, origin):
            raise RunFailed(f"malloc came from {origin}, not from {allocator.name}")
        run = _measures(cost) | {"figure": float(report["figure"]), "seconds": float(report["seconds"])}
        if "resident_last_kib" in report:
            run["growth_kib"] = int(report["resident_last_kib"]) - int(report["resident_100th_kib"])
        return run

    def run_above(self, allocator, row):
        """Two runs; the figure is how far the one is above the other."""
        base = self.run_workload(allocator, row, row.base_argv)
        run = self.run_workload(allocator, row)
        run["figure"] = (run["figure"] - base["figure"]) / row.scale
        return run

    def run_command(self, allocator, row):
        """One run of a program that is not ours; the figure is its page faults."""
        cost, _ = self._launch(allocator, row.argv)
        run = _measures(cost)
        run["figure"] = run["faults"]
        return run

    def run_calls(self, allocator, row):
        """One run under strace, which counts the memory system calls, and for hakmem one with its counters printed."""
        if not shutil.which("strace"):
            raise RunFailed("strace is not installed; on Debian: apt-get install strace", in_doubt=True)
        env = allocators.environment()
        preload = ["-E", f"LD_PRELOAD={allocator.library}"] if allocator.library else []
        with tempfile.NamedTemporaryFile("r", prefix="hakmem-strace-") as table:
            strace = ["strace", "-f", "-c", "-e", "trace=%memory", "-o", table.name, *preload]
            code, _, err = _run(strace + self._command(row.argv), env)
            if code != 0:
                raise RunFailed(f"strace: {_last_line(err)}")
            calls = _parse_strace(table.read())
        run = {"figure": sum(calls.values()), "calls": calls}
        if allocator.name == allocators.OURS:
            run |= self._counters(allocator, row)
        return run

    def _counters(self, allocator, row):
        """hakmem's own count of the superslabs it mapped; nothing if the library prints none."""
        code, _, err = _run(self._command(row.argv), allocators.environment(allocator, HAKMEM_STATS="1"))
        if code != 0:
            raise RunFailed(f"with HAKMEM_STATS=1: exit status {code}: {_last_line(err)}")
        found = re.search(rf"^\s*{SUPERSLABS_COUNTER}\s+(\d+)", err, re.MULTILINE)
        return {"superslabs_mapped": int(found[1])} if found else {}

    def run_once(self, allocator, row):
        return getattr(self, f"run_{row.kind}")(allocator, row)

    def run_row(self, row, chosen, rounds, progress):
        """All rounds of a row. Every allocator has its turn in each round, in an order that rotates, so that a machine
        that drifts, drifts for all. Returns {name: {"runs": [...], "error": None or text, "in_doubt": bool}}; one
        that fails is left out of the rounds that follow."""
        results = {each.name: {"runs": [], "error": None, "in_doubt": False} for each in chosen}
        warm_up = 0 if row.kind == "calls" else 1
        for number in range(-warm_up, rounds):
            turn = number % len(chosen)
            for each in chosen[turn:] + chosen[:turn]:
                result = results[each.name]
                if result["error"]:
                    continue
                progress(f"{row.name}: round {number + 1} of {rounds}, {each.name}")
                try:
                    run = self.run_once(each, row)
                except RunFailed as failure:
                    result["error"], result["in_doubt"] = str(failure), failure.in_doubt
                    continue
                if number >= 0:
                    result["runs"].append({"round": number} | run)
        return results


def _measures(cost):
    return {
        "wall": cost.wall,
        "cpu": cost.user + cost.system,
        "user": cost.user,
        "system": cost.system,
        "peak_kib": cost.peak_kib,
        "faults": cost.faults,
        "major_faults": cost.major_faults,
    }


def _parse_strace(table):
    """{system call: count} of strace -c's table: % time, seconds, usecs/call, calls, [errors,] name."""
    calls = {}
    for line in table.splitlines():
        fields = line.split()
        if len(fields) >= 5 and fields[3].isdigit() and fields[-1] != "total":
            calls[fields[-1]] = int(fields[3])
    return calls


def subtract_true(results, true_results):
    """Adds to each run net_kib: its peak less the median peak of `true` under the same preload."""
    for name, result in results.items():
        peaks = [run["peak_kib"] for run in true_results.get(name, {"runs": []})["runs"]]
        for run in result["runs"] if peaks else ():
            if "peak_kib" in run:
                run["net_kib"] = run["peak_kib"] - statistics.median(peaks)
