"""The tables of the page, as data for its template: the heat map, the means by group, and the figures of each row."""

import math
from dataclasses import dataclass

from ..tables import number
from .charts import QUANTILES
from .style import heat_role, heat_step
from .study import FIRST, MEMORY, TIME, means

MIB = 1024
BAR = 152  # length of the bars that show a row's rounds


@dataclass(frozen=True)
class Measure:
    key: str
    name: str
    scale: float = 1.0
    shown: bool = False  # in the heat map, without being asked for


HEAT_MEASURES = (
    Measure(FIRST, "Time", shown=True),
    Measure(MEMORY, "Peak memory", 1 / MIB, shown=True),
    Measure("settled_kib", "Settled memory", 1 / MIB),
    Measure("faults", "Page faults"),
    Measure("instructions", "Instructions"),
)

# The columns of a row's table that all rows share; those that no run has are left out.
COLUMNS = (
    Measure("cpu", "CPU s"),
    Measure("wall", "wall s"),
    Measure("peak_kib", "peak MiB", 1 / MIB),
    Measure("net_kib", "net MiB", 1 / MIB),
    Measure("settled_kib", "settled MiB", 1 / MIB),
    Measure("trimmed_kib", "trimmed MiB", 1 / MIB),
    Measure("live_kib", "live MiB", 1 / MIB),
    Measure("floor_kib", "floor MiB", 1 / MIB),
    Measure("faults", "faults"),
    Measure("major_faults", "major faults"),
    Measure("instructions", "instr/step"),
)
UNSHOWN = {"round", "figure", "seconds", "user", "system"}  # of a run: shown otherwise, or sums of others


def shown(value, scale=1.0):
    if not value:
        return "" if value is None else "0"
    value *= scale
    if abs(value) >= 1e7:
        return f"{value / 1e6:,.0f} M"
    return number(round(value) if abs(value) >= 1000 else value)


def ratio_text(ratio):
    return f"{ratio:.2f}" if ratio < 9.95 else f"{ratio:.0f}"


@dataclass(frozen=True)
class Cell:
    """A cell of a heat map."""

    text: str
    state: str = ""  # failed, none (nothing to show), bare (a value without a ratio)
    title: str = ""
    heat: str = ""  # the role of its ground

    @classmethod
    def of_ratio(cls, ratio, title=""):
        return cls(ratio_text(ratio), "", title, heat_role(heat_step(ratio)))


NOTHING = Cell("·", "none")


# --- heat map --------------------------------------------------------------------------------------------------------


def heat_map(study):
    """{measures, groups: [(group, [{row, cells by measure}])]}; measures that nothing has are left out."""
    measures = [measure for measure in HEAT_MEASURES if any(row.has(measure.key) for row in study.rows)]
    groups = [
        (group, [{"row": row, "cells": [_heat_cells(study, row, measure) for measure in measures]} for row in rows])
        for group, rows in study.groups()
    ]
    return {"measures": measures, "groups": groups}


def _heat_cells(study, row, measure):
    if not row.has(measure.key):
        return [Cell("", "none") for _ in study.allocators]
    return [_heat_cell(study, row, measure, name) for name in study.allocators]


def _heat_cell(study, row, measure, name):
    if row.error(name):
        return Cell("✕", "failed", f"{name} failed: {row.error(name)}")
    median = row.median(name, measure.key)
    if median is None:
        return NOTHING
    unit = {FIRST: row.first_unit, MEMORY: "MiB", "settled_kib": "MiB"}.get(measure.key, measure.name.lower())
    title = f"{name}: {shown(median, measure.scale)} {unit}"
    best = row.best(measure.key, [other for other in study.allocators if other != name])
    ratio = best and row.ratio(name, best, measure.key)
    if not ratio:
        return Cell(shown(median, measure.scale), "bare", title)
    return Cell.of_ratio(ratio, f"{title}; {best}: {shown(row.median(best, measure.key), measure.scale)}")


# --- means -----------------------------------------------------------------------------------------------------------


def means_by_group(study):
    """[{name, lines: [{group, rows, cells}]}] for time and for memory, hakmem (or the first) being 1."""
    found = []
    for key, name in ((TIME, "Time"), (MEMORY, "Peak memory")):
        lines = []
        for group, rows in [("all rows", study.rows), *study.groups()]:
            over = means(study, rows, key)
            if len(over.ratios) < 2:
                continue
            cells = [Cell.of_ratio(over.ratios[name]) if name in over.ratios else NOTHING
                     for name in study.allocators]
            lines.append({"group": group, "rows": over.rows, "cells": cells})
        if lines:
            found.append({"name": name, "lines": lines})
    return found


# --- rows ------------------------------------------------------------------------------------------------------------


def row_table(study, row):
    """{headings, lines: [{name, error, figure, range, versus, cells}]} of one row."""
    keys = {key for name in study.allocators for run in row.runs(name) for key in run} - UNSHOWN
    columns = [measure for measure in COLUMNS if row.has(measure.key)
               and (measure.key != "major_faults" or any(row.median(name, measure.key) for name in study.allocators))]
    known = {measure.key for measure in COLUMNS}
    columns += [Measure(key, key.replace("_", " ")) for key in sorted(keys - known) if row.has(key)]
    span = _span(row, study.allocators)
    best = {measure: _best(row, measure, study.allocators) for measure in ("figure", *(each.key for each in columns))}
    lines = []
    for name in study.allocators:
        if name not in row.results:
            continue
        spread = row.spread(name, "figure")
        versus = row.ratio(name, study.reference, "figure") if name != study.reference else None
        cells = []
        for measure in columns:
            median = row.median(name, measure.key)
            cells.append({"text": shown(median, measure.scale), "best": median is not None and
                          median == best[measure.key]})
        lines.append({
            "name": name, "error": row.error(name), "in_doubt": row.results[name].get("in_doubt"),
            "rounds": len(row.runs(name)),
            "figure": shown(spread.median) if spread else "",
            "best": spread is not None and spread.median == best["figure"],
            "quartiles": f"{shown(spread.low)} – {shown(spread.high)}" if spread and len(row.runs(name)) > 1 else "",
            "bar": _bar(row.values(name, "figure"), spread, span),
            "versus": ratio_text(versus) if versus else "",
            "cells": cells,
            "calls": _calls(row.results[name]),
        })
    return {"columns": columns, "lines": lines, "calls": any(line["calls"] for line in lines)}


def _best(row, measure, names):
    """The median of the best, None if there is nothing to be better than."""
    best = row.best(measure, names)
    return row.median(best, measure) if best and len(names) > 1 else None


def _calls(result):
    """The memory system calls that were counted, for all runs or in the one run of the row."""
    calls = result.get("calls") or next((run["calls"] for run in result["runs"] if run.get("calls")), None)
    return ", ".join(f"{name} {count:,}" for name, count in calls.items()) if calls else ""


def _span(row, names):
    """What maps a figure to its place on a bar, by its logarithm where figures are far apart; None if all are one."""
    values = [value for name in names for value in row.values(name, "figure")]
    low, high = min(values, default=0), max(values, default=0)
    if high <= low:
        return None
    if low > 0 and high / low > 5:
        return lambda value: BAR * math.log(value / low) / math.log(high / low)
    return lambda value: BAR * (value - low) / (high - low)


def _bar(values, spread, span):
    """Where the figures of the rounds lie on a bar: all, the middle half, the median."""
    if not values or not span:
        return None
    return {key: round(span(value), 1) for key, value in
            (("least", min(values)), ("low", spread.low), ("median", spread.median), ("high", spread.high),
             ("most", max(values)))}


# --- behind the charts -----------------------------------------------------------------------------------------------


def over_time_table(row, names):
    lines = []
    for name in names:
        samples = row.samples(name)
        if not samples:
            continue
        live = max(sample[2] for sample in samples)
        peak, last = max(sample[1] for sample in samples), samples[-1]
        cells = [shown(peak, 1 / MIB), shown(live, 1 / MIB), ratio_text(peak / live) if live else "",
                 shown(last[1], 1 / MIB), shown(last[2], 1 / MIB)]
        lines.append((name, [(text, "") for text in cells]))
    return {"headings": ["peak MiB", "most live", "peak / live", "at the end", "live then"], "lines": lines}


def scaling_table(rows, names):
    rows = sorted(rows, key=lambda row: row.threads)
    return {
        "headings": [f"{row.threads} thread{'s' * (row.threads != 1)}" for row in rows],
        "lines": [(name, [_median_and_range(row, name, "figure") for row in rows])
                  for name in names if any(name in row.results for row in rows)],
    }


def tail_table(row, prefix, names):
    keys = [(prefix + key, label) for key, label in QUANTILES if row.has(prefix + key)]
    return {"headings": [f"{label}, ns" for _, label in keys],
            "lines": [(name, [_median_and_range(row, name, key) for key, _ in keys])
                      for name in names if name in row.results]}


def _median_and_range(row, name, measure):
    if row.error(name):
        return "✕", f"failed: {row.error(name)}"
    spread = row.spread(name, measure)
    return (shown(spread.median), f"{shown(spread.low)} – {shown(spread.high)}") if spread else ("", "")
