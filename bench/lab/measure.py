"""Runs the benchmark's programs: one run, and one row in interleaved rounds."""

import math
import os
import re
import shutil
import statistics
import tempfile
from collections import namedtuple
from pathlib import Path

from . import allocators, counts
from .process import RunFailed, how_it_ended, last_line, run

BENCH = Path(__file__).resolve().parent.parent
SUPERSLABS_COUNTER = "stage3_mapped"  # of HAKMEM_STATS=1: superslabs taken from the OS
# Exit statuses: of a program that was called wrongly or is not there, and of a script that lacks something.
ROW_IS_WRONG = (2, 127)
LACKS_SOMETHING = 3

Cost = namedtuple("Cost", "status wall user system peak_kib faults major_faults")
Said = namedtuple("Said", "numbers samples origin")  # origin: the file that malloc came from, None if not said


class RowMissing(Exception):
    """A row that cannot be run on this machine; the message says why and what to do."""


def parse(out):
    """What a program printed: `sample` lines, and last a line of key=value pairs, of which the numbers count."""
    samples = [_sample(line) for line in out.splitlines() if line.startswith("sample ")]
    line, _, origin = last_line(out).partition(" malloc=")
    numbers = {key: number for key, number in _numbers(line).items() if math.isfinite(number)}
    return Said(numbers, samples, origin or None)


def _numbers(line):
    numbers = {}
    for word in line.split():
        key, _, text = word.partition("=")
        try:
            numbers[key] = int(text) if re.fullmatch(r"[+-]?\d+", text) else float(text)
        except ValueError:  # a word, such as the unit
            continue
    return numbers


def _sample(line):
    numbers = _numbers(line)
    try:
        return [numbers["t"], numbers["resident_kib"], numbers["live_kib"]]
    except KeyError as missing:
        raise RunFailed(f"a sample without {missing}: {line[:100]!r}") from None


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


def subtract_true(results, true_results):
    """Adds to each run net_kib: its peak less the median peak of `true` under the same preload."""
    for name, result in results.items():
        peaks = [run["peak_kib"] for run in true_results.get(name, {"runs": []})["runs"]]
        for run in result["runs"] if peaks else ():
            if "peak_kib" in run:
                run["net_kib"] = run["peak_kib"] - statistics.median(peaks)


class Lab:
    """Runs rows. Counting, where asked for, is done once a row and allocator, after its rounds."""

    def __init__(self, programs, count_calls=False, count_instructions=False):
        self.programs = Path(programs)
        self.count_calls = count_calls
        self.count_instructions = count_instructions

    def find(self, name):
        """Where a program is: one of ours, else one of the system's."""
        own = self.programs / name
        return str(own) if own.exists() else shutil.which(name) or name

    def _command(self, argv):
        return [self.find(argv[0]), *map(str, argv[1:])]

    def _launch(self, row, env, command, peak):
        """One run under the launcher: what it cost and what it printed."""
        read_end, write_end = os.pipe()
        with os.fdopen(read_end) as report:
            try:
                code, out, err = run([self.programs / "launch", write_end, peak, *command], env, row.limit_s,
                                     pass_fds=(write_end,))
            finally:
                os.close(write_end)
            line = report.read()
        if code != 0 or not line:
            raise RunFailed(f"the launcher failed: {last_line(err)}", in_doubt=True)
        fields = line.split()
        cost = Cost(int(fields[0]), *map(float, fields[1:4]), *map(int, fields[4:]))
        if cost.status != 0:
            exit_status = os.WEXITSTATUS(cost.status) if os.WIFEXITED(cost.status) else None
            if row.kind == "program" and exit_status == LACKS_SOMETHING:
                raise RowMissing(last_line(err))
            raise RunFailed(how_it_ended(cost.status, err), in_doubt=exit_status in ROW_IS_WRONG)
        if "cannot be preloaded" in err:
            raise RunFailed(last_line(err))
        return cost, out

    def _launch_preloaded(self, allocator, row, argv):
        env = allocators.environment(allocator, **dict(row.environment))
        return self._launch(row, env, self._command(argv), "exact")

    def run_workload(self, allocator, row, argv=None):
        """One run of one of our programs, which reports its own figure and where its malloc came from."""
        cost, out = self._launch_preloaded(allocator, row, argv or row.argv)
        said = parse(out)
        if "figure" not in said.numbers or not said.origin:
            raise RunFailed(f"no figures in what it printed: {last_line(out)[:100]!r}")
        _demand_origin(allocator, said.origin)
        measured = said.numbers | _measures(cost)
        return measured | {"samples": said.samples} if said.samples else measured

    def run_above(self, allocator, row):
        """Two runs; the figure is how far the one is above the other."""
        base = self.run_workload(allocator, row, row.base_argv)
        measured = self.run_workload(allocator, row)
        measured["figure"] = (measured["figure"] - base["figure"]) / row.scale
        return measured

    def run_command(self, allocator, row):
        """One run of a program that is not ours; the figure is its page faults."""
        cost, _ = self._launch_preloaded(allocator, row, row.argv)
        return {"figure": cost.faults} | _measures(cost)

    def run_calls(self, allocator, row):
        """Two runs: under strace, and for hakmem one with its counters printed."""
        calls = counts.memory_calls(allocator, row, self._command(row.argv))
        measured = {"figure": sum(calls.values()), "calls": calls}
        if allocator.name == allocators.OURS:
            measured |= self._counters(allocator, row)
        return measured

    def _counters(self, allocator, row):
        """hakmem's own count of the superslabs it mapped; nothing if the library prints none."""
        env = allocators.environment(allocator, HAKMEM_STATS="1", **dict(row.environment))
        code, _, err = run(self._command(row.argv), env, row.limit_s)
        if code != 0:
            raise RunFailed(f"with HAKMEM_STATS=1: exit status {code}: {last_line(err)}")
        found = re.search(rf"^\s*{SUPERSLABS_COUNTER}\s+(\d+)", err, re.MULTILINE)
        return {"superslabs_mapped": int(found[1])} if found else {}

    def run_program(self, allocator, row, folder):
        """One run of a script of programs/ (programs/lib.sh says how it is called). The figure is the time it took, if
        it names no other; what it says of the program's costs goes before what was seen of the whole script."""
        env = allocators.environment(**dict(row.environment))
        env["BENCH_PRELOAD"] = allocator.library or ""
        env["BENCH_ENVIRONMENT"] = " ".join(f"{key}={value}" for key, value in allocator.environment)
        cost, out = self._launch(row, env, _script(row, "run", folder), "tree")
        said = parse(out)
        if said.origin:
            _demand_origin(allocator, said.origin)
        measured = {"figure": cost.wall} | _measures(cost) | said.numbers
        if "rss_kib" in measured:  # of a server, which the launcher did not see
            measured["peak_kib"] = measured["rss_kib"]
        return measured

    def run_row(self, row, chosen, rounds, progress):
        """All runs of a row: {name: {"runs": [...], "error": None or text, "in_doubt": bool}}, and what was counted.
        An allocator that fails is left out of what follows. Raises RowMissing."""
        if row.kind != "program":
            run_once = getattr(self, f"run_{row.kind}")
            results = self._run_rounds(row, chosen, rounds, progress, run_once)
        else:
            with tempfile.TemporaryDirectory(prefix=f"hakmem-{row.argv[0]}-", ignore_cleanup_errors=True) as folder:
                _prepare(row, folder)
                results = self._run_rounds(row, chosen, rounds, progress,
                                           lambda allocator, row: self.run_program(allocator, row, folder))
        self._count(row, chosen, results, progress)
        return results

    def _run_rounds(self, row, chosen, rounds, progress, run_once):
        """Every allocator has its turn in each round, in an order that rotates, so that a machine that drifts, drifts
        for all. The first round warms up and does not count."""
        results = {each.name: {"runs": [], "error": None, "in_doubt": False} for each in chosen}
        warm_up = 0 if row.kind == "calls" else 1
        for number in range(-warm_up, rounds):
            turn = number % len(chosen)
            for each in chosen[turn:] + chosen[:turn]:
                result = results[each.name]
                progress(f"{row.name}: round {number + 1} of {rounds}, {each.name}")
                if result["error"]:
                    continue
                try:
                    measured = run_once(each, row)
                except RunFailed as failure:
                    result["error"], result["in_doubt"] = str(failure), failure.in_doubt
                    continue
                if number >= 0:
                    result["runs"].append({"round": number} | measured)
        return results

    def _count(self, row, chosen, results, progress):
        wanted = []
        if self.count_calls and row.kind in ("workload", "above", "command"):
            wanted.append(("calls", counts.memory_calls))
        if self.count_instructions and counts.has_steps(row):
            wanted.append(("instructions", counts.instructions))
        for key, count in wanted:
            for each in chosen:
                result = results[each.name]
                if result["error"]:
                    continue
                progress(f"{row.name}: {key} of {each.name}", advance=0)
                try:
                    result[key] = count(each, row, self._command(row.argv))
                except RunFailed as failure:
                    result["uncounted"] = str(failure)


def _script(row, what, folder):
    return [BENCH / "programs" / row.argv[0], what, folder, *row.argv[1:]]


def _prepare(row, folder):
    """Sets the scene of a real program, without any preload."""
    command = _script(row, "prepare", folder)
    try:
        code, _, err = run(command, allocators.environment(), row.limit_s)
    except OSError as error:
        raise RowMissing(f"{row.name}: {command[0]} cannot be started: {error.strerror}") from None
    except RunFailed as failure:
        raise RowMissing(f"{row.name}: its preparation: {failure}") from None
    if code != 0:
        raise RowMissing(last_line(err) or f"{row.name}: its preparation ended with exit status {code}")


def _demand_origin(allocator, origin):
    if not allocators.is_origin(allocator, origin):
        raise RunFailed(f"malloc came from {origin}, not from {allocator.name}")
