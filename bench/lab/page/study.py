"""Results as the page needs them: checked, merged by machine, and as medians, ranges and ratios."""

import dataclasses
import datetime
import math
import statistics
from dataclasses import dataclass, field
from pathlib import Path

from .. import judge, machine, results
from ..allocators import OURS
from ..row import GROUPS
from .style import KNOWN_LOOKS

EXPECTED = "a file written by bench --json was expected"
ENOUGH_ROWS = 0.75  # of the rows: an allocator with fewer does not stand in means over them

# Measures that are a key of a run which depends on the row.
FIRST = "first"  # what the row measures first: its time, or its figure where that is none
TIME = "time"
MEMORY = "memory"  # peak resident size


class ReportError(Exception):
    """What keeps a report from being made; the message says what was wrong and what was expected."""


# --- reading --------------------------------------------------------------------------------------------------------


def read_results(path):
    """The result file at a path, checked."""
    try:
        found = results.load(path)
    except results.Unusable as error:
        raise ReportError(f"{error}; {EXPECTED}") from None
    check(found, path)
    found["file"] = str(path)
    return found


def check(found, name):
    """Raises ReportError if a result lacks what the page cannot do without."""

    def demand(holds, what):
        if not holds:
            raise ReportError(f"{name}: {what}; {EXPECTED}")

    demand(isinstance(found, dict), "holds no object")
    for key, kind in (("machine", dict), ("allocators", list), ("rows", list), ("verdicts", list)):
        demand(isinstance(found.get(key), kind), f"has no {key}")
    for each in found["allocators"]:
        demand(isinstance(each, dict) and isinstance(each.get("name"), str), "has an allocator without a name")
    for row in found["rows"]:
        demand(isinstance(row, dict) and isinstance(row.get("name"), str), "has a row without a name")
        for key, kind in (("title", str), ("group", str), ("kind", str), ("unit", str), ("command", list),
                          ("more_is_better", bool), ("idle", bool), ("curve", str), ("threads", int),
                          ("results", dict)):
            demand(isinstance(row.get(key), kind), f"row {row['name']} has no {key}")
        for allocator, each in row["results"].items():
            runs = each.get("runs") if isinstance(each, dict) else None
            demand(isinstance(runs, list) and all(isinstance(run, dict) and "round" in run for run in runs)
                   and "error" in each, f"row {row['name']} has no runs of {allocator}")
    fields = {each.name for each in dataclasses.fields(judge.Judgement)}
    for verdict in found["verdicts"]:
        demand(isinstance(verdict, dict) and set(verdict) == fields, "has a verdict of another form")


# --- one row --------------------------------------------------------------------------------------------------------


class MeasuredRow:
    """A row of a result file. A measure is FIRST, TIME, MEMORY, or a key of its runs or of its results."""

    def __init__(self, fields, file):
        self.file = file
        self.results = fields["results"]
        for key in ("name", "title", "group", "kind", "unit", "more_is_better", "curve", "threads", "idle"):
            setattr(self, key, fields[key])
        self.fields = fields
        self.command = " ".join(map(str, fields["command"]))
        time, memory = judge.time_measure(fields), judge.memory_measure(fields)
        runs = [run for result in self.results.values() for run in result["runs"]]
        if memory == "net_kib" and not any(memory in run for run in runs):
            memory = "peak_kib"  # where `true` was not measured
        self._keys = {FIRST: time or "figure", TIME: time, MEMORY: memory}
        self.first_unit = self.unit if self._keys[FIRST] == "figure" else f"s {time}"
        self._medians = {}

    def key(self, measure):
        """The key that a measure stands for, None if the row has no such measure."""
        return self._keys.get(measure, measure)

    def runs(self, allocator):
        return self.results.get(allocator, {}).get("runs", [])

    def error(self, allocator):
        return self.results.get(allocator, {}).get("error")

    def values(self, allocator, measure):
        key = self.key(measure)
        result = self.results.get(allocator, {})
        values = [run[key] for run in self.runs(allocator) if _is_number(run.get(key))]
        if not values and _is_number(result.get(key)):  # counted once for all runs
            values = [result[key]]
        return [max(value, judge.LEAST_KIB) for value in values] if key == "net_kib" else values

    def spread(self, allocator, measure):
        """Median and quartiles, None if there is no value."""
        values = self.values(allocator, measure)
        return judge.interval(values) if values else None

    def median(self, allocator, measure):
        if (allocator, measure) not in self._medians:
            values = self.values(allocator, measure)
            self._medians[allocator, measure] = statistics.median(values) if values else None
        return self._medians[allocator, measure]

    def has(self, measure):
        return any(self.values(allocator, measure) for allocator in self.results)

    def cost(self, allocator, measure):
        """The median as something of which less is better; None if it is not above zero, or the allocator failed."""
        median = self.median(allocator, measure)
        if median is None or median <= 0 or self.error(allocator):
            return None
        return 1 / median if self.key(measure) == "figure" and self.more_is_better else median

    def best(self, measure, names):
        """Who of the names has the least cost, None if none has any."""
        costs = {name: cost for name in names if (cost := self.cost(name, measure))}
        return min(costs, key=costs.get) if costs else None

    def ratio(self, allocator, other, measure):
        """How many times the other's cost an allocator's is, None if one of them has none."""
        own, theirs = self.cost(allocator, measure), self.cost(other, measure)
        return own / theirs if own and theirs else None

    def samples(self, allocator):
        """(seconds, resident KiB, live KiB) over time, of the run with the median peak of those that have any; none of
        an allocator that failed."""
        runs = [] if self.error(allocator) else self.runs(allocator)
        sampled = sorted((run for run in runs if run.get("samples")),
                         key=lambda run: max(sample[1] for sample in run["samples"]))
        return sampled[len(sampled) // 2]["samples"] if sampled else []


def _is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


# --- all rows of one machine ----------------------------------------------------------------------------------------


@dataclass
class Study:
    """What was measured on one machine."""

    machine: dict
    files: list
    versions: dict = field(default_factory=dict)  # allocator -> what was measured under its name
    rows: list = field(default_factory=list)  # by group
    verdicts: list = field(default_factory=list)  # judge.Judgement
    notes: list = field(default_factory=list)  # what a reader must know of how files were merged

    @property
    def allocators(self):
        return list(self.versions)

    @property
    def reference(self):
        """Whose means are 1."""
        return OURS if OURS in self.versions else next(iter(self.versions))

    def groups(self):
        """[(group, its rows)]"""
        return [(group, [row for row in self.rows if row.group == group])
                for group in dict.fromkeys(row.group for row in self.rows)]


def in_order(names):
    """hakmem first, then those that are known, relatives beside each other, then the others."""
    known = list(KNOWN_LOOKS)
    return sorted(names, key=lambda name: known.index(name) if name in known else len(known))


def studies(found):
    """The results, merged by machine; of a row that several files of a machine have, the newest counts."""
    by_machine = {}
    for index, result in enumerate(found, 1):
        name = result.get("file") or f"result {index}"
        check(result, name)
        if any(row["results"] for row in result["rows"]):
            identity = tuple(str(result["machine"].get(key)) for key in machine.IDENTITY)
            by_machine.setdefault(identity, []).append((Path(name).name, result))
    if not by_machine:
        raise ReportError("nothing was measured yet in these files: they hold no rows")
    return [_merge(files) for files in by_machine.values()]


def _merge(files):
    files = sorted(files, key=lambda each: str(each[1]["machine"].get("date", "")))
    study = Study(files[-1][1]["machine"], [name for name, _ in files])
    versions, rows, replaced = {}, {}, {}
    for name, result in files:
        for each in result["allocators"]:
            versions.setdefault(each["name"], []).append(each.get("version") or "unknown")
        for fields in result["rows"]:
            for allocator in fields["results"]:
                versions.setdefault(allocator, ["unknown"])
            if fields["name"] in rows:
                replaced.setdefault((rows[fields["name"]].file, name), []).append(fields["name"])
            rows[fields["name"]] = MeasuredRow(fields, name)
    for name in in_order(versions):
        different = list(dict.fromkeys(versions[name]))
        study.versions[name] = "; ".join(different)
        if len(different) > 1:
            study.notes.append(f"{name} is not the same in all of {', '.join(study.files)}.")
    for (older, newer), names in replaced.items():
        study.notes.append(f"Measured in {older} and again in {newer}, which is what is shown: {', '.join(names)}.")
    order = {group: index for index, group in enumerate(GROUPS)}
    study.rows = sorted(rows.values(), key=lambda row: order.get(row.group, len(order)))
    study.verdicts = [
        judge.Judgement(**each) for name, result in files for each in result["verdicts"]
        if each["row"] in rows and rows[each["row"]].file == name
    ]
    study.verdicts += judge.judge_means([row.fields for row in study.rows], study.verdicts)
    return study


def machine_name(about):
    cores = about.get("cores")
    return f"{about.get('processor', 'unknown processor')}, {cores} core{'s' * (cores != 1)}"


def day(about):
    """The day of a result; what stands there if it is no date."""
    text = str(about.get("date", ""))
    try:
        date = datetime.datetime.fromisoformat(text)
    except ValueError:
        return text
    return f"{date.day} {date:%B %Y}"


# --- means ----------------------------------------------------------------------------------------------------------


@dataclass
class Means:
    """Geometric means of costs over rows, as ratios to the reference's."""

    rows: int  # how many they are over
    ratios: dict  # allocator -> ratio


def means(study, rows, measure):
    """Over the rows that all allocators have; one that has too few of them stands aside."""
    rows = [row for row in rows if row.cost(study.reference, measure)]
    names = [name for name in study.allocators
             if rows and sum(row.cost(name, measure) is not None for row in rows) >= ENOUGH_ROWS * len(rows)]
    rows = [row for row in rows if all(row.cost(name, measure) for name in names)]
    if not rows:
        return Means(0, {})
    logs = {name: [math.log(row.ratio(name, study.reference, measure)) for row in rows] for name in names}
    return Means(len(rows), {name: math.exp(statistics.fmean(values)) for name, values in logs.items()})


def points_of_means(study, rows):
    """{allocator: (time, memory)}: geometric means over rows, of those that have both."""
    time, memory = means(study, rows, TIME).ratios, means(study, rows, MEMORY).ratios
    return {name: (time[name], memory[name]) for name in time if name in memory}
