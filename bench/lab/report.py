"""What the lab shows and writes: tables, the machine's description, JSON and CSV."""

import csv
import datetime
import json
import os
import platform
import statistics
from dataclasses import asdict
from pathlib import Path

from . import judge
from .rows import TRUE


def _first_line(path, default="unknown"):
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").splitlines()[0].strip()
    except (OSError, IndexError):
        return default


def _processor():
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    fields = dict(tuple(map(str.strip, line.split(":", 1))) for line in lines if ":" in line)
    if "model name" in fields:
        return fields["model name"]
    if "CPU part" in fields:  # AArch64 gives numbers only
        return f"implementer {fields.get('CPU implementer')}, part {fields['CPU part']}"
    return platform.machine()


def machine():
    memory = _first_line("/proc/meminfo").split()
    return {
        "processor": _processor(),
        "architecture": platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(int(memory[1]) / 2**20, 1) if len(memory) > 1 else None,
        "kernel": platform.release(),
        "libc": os.confstr("CS_GNU_LIBC_VERSION"),
        "page_kib": os.sysconf("SC_PAGESIZE") // 1024,
        "huge_pages": _first_line("/sys/kernel/mm/transparent_hugepage/enabled"),
        "governor": _first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "none"),
        "overcommit": _first_line("/proc/sys/vm/overcommit_memory"),
        "load": round(os.getloadavg()[0], 2),
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
    }


def machine_lines(about):
    yield (
        f"{about['processor']} ({about['architecture']}), {about['cores']} cores, {about['memory_gib']} GiB; "
        f"Linux {about['kernel']}, {about['libc']}"
    )
    yield (
        f"pages of {about['page_kib']} KiB, huge pages {about['huge_pages']}, overcommit {about['overcommit']}, "
        f"governor {about['governor']}; {about['date']}"
    )
    if about["load"] > 0.3 * about["cores"]:
        yield f"note: the machine is busy (load {about['load']}); expect wide ranges and undecided verdicts"


def number(value):
    """Three significant digits, whole numbers as they are."""
    size = abs(value)
    if isinstance(value, int) or size >= 100 or (size >= 10 and value == int(value)):
        return f"{value:,.0f}"
    return f"{value:.1f}" if size >= 10 else f"{value:.2f}" if size >= 0.1 or size == 0 else f"{value:.3f}"


def _cell(result, measure, scale=1):
    values = [run[measure] * scale for run in result["runs"] if measure in run]
    return number(statistics.median(values)) if values else "-"


def _table(lines, align):
    """Columns as wide as their widest cell; align has one of < and > for each, the last one for all that follow."""
    widths = [max(map(len, column)) for column in zip(*lines)]
    align = align.ljust(len(widths), align[-1])
    for line in lines:
        yield ("  " + "  ".join(f"{cell:{to}{width}}" for cell, to, width in zip(line, align, widths))).rstrip()


def row_lines(row, results, judgements):
    better = "more" if row.more_is_better else "less"
    rounds = max((len(result["runs"]) for result in results.values()), default=0)
    counted = "counted once" if row.kind == "calls" else f"median of {rounds}"
    yield f"{row.name}: {row.title} ({row.unit}, {better} is better, {counted})"
    if row.kind == "calls":
        lines = [("", row.unit, "of these")]
    else:
        # `true` is what the others are net of.
        memory = {"peak RSS MiB": "peak_kib"} if row is TRUE else {"peak RSS MiB": "peak_kib", "net": "net_kib"}
        lines = [("", row.unit, "quartiles", "CPU s", *memory, "faults", *(title for _, title in row.columns))]
    for name, result in results.items():
        if not result["runs"]:
            continue
        if row.kind == "calls":
            kinds = ", ".join(f"{kind} {count}" for kind, count in result["runs"][0]["calls"].items())
            lines.append((name, _cell(result, "figure"), kinds))
            continue
        spread = judge.interval(run["figure"] for run in result["runs"])
        lines.append(
            (
                name, number(spread.median), f"{number(spread.low)} - {number(spread.high)}", _cell(result, "cpu"),
                *(_cell(result, measure, 1 / 1024) for measure in memory.values()), _cell(result, "faults"),
                *(_cell(result, measure) for measure, _ in row.columns),
            )
        )
    if len(lines) > 1:
        yield from _table(lines, "<>")
    for name, result in results.items():
        if result["error"]:
            yield f"  {name}: FAILED: {result['error']}"
    if judgements:
        yield from _table([judgement_cells(each) for each in judgements], "<>><")


def judgement_cells(judgement):
    found = judgement.interval
    shown = f"{number(found.median)}  [{number(found.low)} - {number(found.high)}]" if found else ""
    relation = "at least" if judgement.relation == ">=" else "at most"
    return (judgement.text, shown, f"{relation} {number(judgement.limit)}:", judgement.verdict)


def summary_lines(judged):
    """judged: [(row, judgements)]"""
    lines = [(row.name, *judgement_cells(each)) for row, judgements in judged for each in judgements]
    if not lines:
        return
    yield "All targets (ratio of each round; median and quartiles)"
    yield from _table(lines, "<<>><")
    verdicts = [line[4] for line in lines]
    counts = ", ".join(f"{verdicts.count(kind)} {kind}" for kind in ("met", "undecided", "missed"))
    other = sum(verdict not in ("met", "undecided", "missed") for verdict in verdicts)
    yield f"{counts}" + (f", {other} not judged" if other else "")


class Output:
    """A result file, written anew after each row, so that an interrupted benchmark leaves what it has. A file that
    cannot be written is said once and given up; the other outputs go on."""

    def __init__(self, path, write, complain):
        self.path, self._write, self._complain = path, write, complain
        self.failed = False
        if path:
            self._try(lambda stream: None, "a")

    def _try(self, action, mode):
        try:
            with open(self.path, mode, encoding="utf-8", newline="") as stream:
                action(stream)
        except OSError as error:
            self.failed = True
            self._complain(f"cannot write {self.path}: {error.strerror}")

    def update(self, about, chosen, done):
        if self.path and not self.failed:
            self._try(lambda stream: self._write(stream, about, chosen, done), "w")


def write_json(stream, about, chosen, done):
    json.dump(
        {
            "machine": about,
            "allocators": [asdict(each) for each in chosen],
            "rows": [
                {
                    "name": row.name,
                    "title": row.title,
                    "command": list(row.argv),
                    "unit": row.unit,
                    "more_is_better": row.more_is_better,
                    "results": results,
                    "targets": [asdict(each) for each in judgements],
                }
                for row, results, judgements in done
            ],
        },
        stream,
        indent=1,
    )
    stream.write("\n")


CSV_MEASURES = ("figure", "seconds", "wall", "cpu", "user", "system", "peak_kib", "net_kib", "growth_kib", "faults",
                "major_faults", "superslabs_mapped")


def write_csv(stream, about, chosen, done):
    """One line a run; the machine and the libraries in comment lines before them."""
    for line in machine_lines(about):
        stream.write(f"# {line}\n")
    for each in chosen:
        stream.write(f"# {each.name}: {each.version}\n")
    table = csv.writer(stream, lineterminator="\n")
    table.writerow(("row", "allocator", "round", "unit", *CSV_MEASURES, "error"))
    for row, results, _ in done:
        for name, result in results.items():
            for run in result["runs"]:
                measures = (run.get(key, "") for key in CSV_MEASURES)
                table.writerow((row.name, name, run["round"], row.unit, *measures, ""))
            if result["error"]:
                table.writerow((row.name, name, "", row.unit, *("" for _ in CSV_MEASURES), result["error"]))
