"""The table of docs/benchmarks.md: result files as Markdown, and which rows hakmem is behind in."""

from . import allocators, judge, machine, tables

OURS = allocators.OURS


def _judgement(result, row, *kinds):
    return next((each for kind in kinds for each in result["verdicts"]
                 if each["row"] == row["name"] and each["kind"] == kind), None)


def _place(judgement):
    """`0.93 [0.90 - 0.97] of glibc, ahead`; empty if nothing was compared."""
    if not judgement or judgement["median"] is None:
        return ""
    low, median, high = (tables.ratio(judgement[key]) for key in ("low", "median", "high"))
    shown = f"{median} [{low} - {high}] of {judgement['against']}"
    return f"**{shown}, behind**" if judgement["verdict"] == "behind" else f"{shown}, {judgement['verdict']}"


def _row_cells(result, row):
    runs = [run for run in row["results"].get(OURS, {}).get("runs", ()) if "figure" in run]
    if not runs:
        return None
    figure = judge.interval(run["figure"] for run in runs).median
    memory = [run["net_kib"] for run in runs if run.get("net_kib") is not None]
    return (f"{row['name']}: {row['title']}", f"{tables.number(figure)} {row['unit']}",
            _place(_judgement(result, row, "time", "figure")),
            tables.number(round(judge.interval(memory).median)) if memory else "",
            _place(_judgement(result, row, "memory")))


def _behind(result):
    names = {kind: [each["row"] for each in result["verdicts"] if each["kind"] in kinds and each["verdict"] == "behind"]
             for kind, kinds in (("time, or the row's own figure", ("time", "figure")), ("memory", ("memory",)))}
    dominated = {each["row"] for each in result["verdicts"] if each["kind"] == "dominated"}
    names["a peer is ahead in both"] = sorted(dominated)
    for what, rows in names.items():
        yield f"* {what}: {', '.join(rows) or 'no row'}"


def lines(result):
    """Machine, allocators, a table for each group of rows, and what is behind."""
    yield from machine.lines(result["machine"])
    yield ""
    for each in result["allocators"]:
        yield f"* {each['name']}: {each['version'] if each['name'] != OURS else 'this tree, release build'}"
    for group in dict.fromkeys(row["group"] for row in result["rows"]):
        cells = [_row_cells(result, row) for row in result["rows"] if row["group"] == group]
        yield from ("", f"### {group.capitalize()}", "",
                    f"| row | {OURS} | cost, of the best peer's | net KiB | of the leanest near the best |",
                    "|---|--:|---|--:|---|")
        yield from ("| " + " | ".join(each) + " |" for each in cells if each)
    whole = judge.whole_peaks(result["rows"])
    if whole:
        low, median, high = (tables.ratio(value) for value in (whole.low, whole.median, whole.high))
        yield from ("", f"Peak memory, whole: {median} [{low} - {high}] of the leanest near the best, geometric mean.")
    yield from ("", "Behind:", "")
    yield from _behind(result)
