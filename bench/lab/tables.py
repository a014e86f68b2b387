"""What is printed: a table for each row, and the summary. Rows are as result files have them."""

import statistics
from collections import Counter

from . import judge
from .allocators import OURS
from .row import GROUPS

KIB_PER_MIB = 1024
FIRST_PLACE = {"time": ("ahead", "level", "behind"), "memory": ("ahead", "level", "behind"),
               "figure": ("ahead", "level", "behind")}
TARGETS = ("met", "undecided", "missed")


def number(value):
    """Three significant digits, whole numbers as they are."""
    size = abs(value)
    if isinstance(value, int) or size >= 100 or (size >= 10 and value == int(value)):
        return f"{value:,.0f}"
    return f"{value:.1f}" if size >= 10 else f"{value:.2f}" if size >= 0.1 or size == 0 else f"{value:.3f}"


def ratio(value):
    """Two decimals at least, and two digits."""
    return f"{value:.2f}" if value >= 0.1 else f"{value:.2g}"


def table(lines, align):
    """Columns as wide as their widest cell; align has one of < and > for each, the last one for all that follow."""
    widths = [max(map(len, column)) for column in zip(*lines)]
    align = align.ljust(len(widths), align[-1])
    for line in lines:
        yield ("  " + "  ".join(f"{cell:{to}{width}}" for cell, to, width in zip(line, align, widths))).rstrip()


# --- one row --------------------------------------------------------------------------------------------------------


def _cell(result, measure, scale=1):
    values = [run[measure] * scale for run in result["runs"] if measure in run]
    return number(statistics.median(values)) if values else "-"


# What may be counted besides: the key of a result, its heading, its one number.
COUNTS = {"calls": ("mem calls", lambda calls: sum(calls.values())), "instructions": ("instr/step", float)}


def _timed_table(row, columns):
    """The heading and a line for each allocator that has runs."""
    shown = {name: result for name, result in row["results"].items() if result["runs"]}
    memory = [("peak MiB", "peak_kib")] + ([("net", "net_kib")] if judge.memory_measure(row) == "net_kib" else [])
    counted = [key for key in COUNTS if any(key in result for result in shown.values())]
    yield ("", row["unit"], "quartiles", "wall s", "user", "system", *(title for title, _ in memory), "faults",
           *(title for _, title in columns), *(COUNTS[key][0] for key in counted))
    for name, result in shown.items():
        spread = judge.interval(run["figure"] for run in result["runs"])
        yield (
            name, number(spread.median), f"{number(spread.low)} - {number(spread.high)}",
            *(_cell(result, measure) for measure in ("wall", "user", "system")),
            *(_cell(result, measure, 1 / KIB_PER_MIB) for _, measure in memory), _cell(result, "faults"),
            *(_cell(result, measure) for measure, _ in columns),
            *(number(COUNTS[key][1](result[key])) if key in result else "-" for key in counted),
        )


def _calls_table(row):
    yield ("", row["unit"], "of these")
    for name, result in row["results"].items():
        if result["runs"]:
            calls = result["runs"][0]["calls"]
            yield (name, _cell(result, "figure"), ", ".join(f"{kind} {count}" for kind, count in calls.items()))


def row_lines(row, columns, judgements):
    better = "more" if row["more_is_better"] else "less"
    rounds = max((len(result["runs"]) for result in row["results"].values()), default=0)
    counted = "counted once" if judge.is_counted(row) else f"median of {rounds}"
    yield f"{row['name']}: {row['title']} ({row['unit']}, {better} is better, {counted})"
    lines = list(_calls_table(row) if judge.is_counted(row) else _timed_table(row, columns))
    if len(lines) > 1:
        yield from table(lines, "<>><" if judge.is_counted(row) else "<>")
    for name, result in row["results"].items():
        if result["error"]:
            yield f"  {name}: FAILED: {result['error']}"
        if "uncounted" in result:
            yield f"  {name}: not counted: {result['uncounted']}"
    if judgements:
        yield from table([judgement_cells(each) for each in judgements], "<>><")


def _shown(judgement, form):
    if judgement.median is None:
        return ""
    return f"{form(judgement.median)}  [{form(judgement.low)} - {form(judgement.high)}]"


def judgement_cells(judgement):
    """What was compared, the outcome, what it had to be, the verdict."""
    if judgement.kind == "dominated":
        return (judgement.text, "", "", judgement.verdict)
    if judgement.kind in FIRST_PLACE or judgement.kind == "instructions":
        return (judgement.text, _shown(judgement, ratio), "", judgement.verdict)
    relation = "at least" if judgement.relation == ">=" else "at most"
    return (judgement.text, _shown(judgement, number), f"{relation} {number(judgement.limit)}:", judgement.verdict)


# --- summary --------------------------------------------------------------------------------------------------------


def _tally(verdicts, known):
    """`3 ahead, 1 behind`, and how many got no verdict."""
    counts = Counter(verdicts)
    parts = [f"{counts[kind]} {kind}" for kind in known if counts[kind]]
    other = sum(counts.values()) - sum(counts[kind] for kind in known)
    return ", ".join(parts + ([f"{other} not judged"] if other else []))


def _by_group(rows):
    order = {group: index for index, group in enumerate(GROUPS)}
    return sorted(rows, key=lambda row: order.get(row["group"], len(order)))


def _place_cells(judgement):
    if not judgement:
        return ("", "", "")
    return (judgement.verdict, _shown(judgement, ratio), judgement.against or "")


def _first_place_lines(rows, judgements):
    """One line a row: time or the figure, memory, and who is ahead in both."""
    found = {(each.row, each.kind): each for each in judgements if each.kind in FIRST_PLACE}
    beaten = {}
    for each in judgements:
        if each.kind == "dominated":
            beaten.setdefault(each.row, []).append(each.against)
    yield ("", "time", "ratio  [95 % interval]", "of", "memory", "ratio  [95 % interval]", "of", "both")
    for row in rows:
        name = row["name"]
        first, memory = found.get((name, "time")) or found.get((name, "figure")), found.get((name, "memory"))
        if first or memory:
            mark = "*" if first and first.kind == "figure" else ""
            yield (name + mark, *_place_cells(first), *_place_cells(memory),
                   "behind " + ", ".join(beaten[name]) if name in beaten else "")


def summary_lines(rows, judgements):
    """The verdicts of all rows."""
    rows = _by_group(rows)
    lines = list(_first_place_lines(rows, judgements))
    if len(lines) > 1:
        yield f"First place: the cost of {OURS} over that of the best peer (less than 1 is better)"
        yield from table(lines, "<<<<<<")
        if any(line[0].endswith("*") for line in lines):
            yield "  * the row's own figure, which is no time"
        for kind, known in FIRST_PLACE.items():
            verdicts = [each.verdict for each in judgements if each.kind == kind]
            if verdicts:
                yield f"{kind if kind != 'figure' else 'other figures'}: {_tally(verdicts, known)}"
        dominated = sorted({each.row for each in judgements if each.kind == "dominated"})
        yield f"a peer is ahead in both: {', '.join(dominated) or 'in no row'}"
    means = [each for each in judgements if each.kind.startswith("mean ")]
    if means:
        yield from table([(f"{each.text}, {each.rounds} rows", _shown(each, ratio), f"at most {number(each.limit)}:",
                           each.verdict) for each in means], "<>><")
    targets = [each for each in judgements if each.kind == "target"]
    if targets:
        yield ""
        yield "Targets of the rows"
        yield from table([(each.row, *judgement_cells(each)) for each in targets], "<<>><")
        yield _tally([each.verdict for each in targets], TARGETS)


CHANGES = {  # kind -> verdict -> in a developer's words
    "time": {"ahead": "faster", "behind": "slower"},
    "figure": {"ahead": "better", "behind": "worse"},
    "memory": {"ahead": "leaner", "behind": "fatter"},
    "instructions": {"ahead": "fewer instructions", "behind": "more instructions"},
}


def change_lines(rows, judgements, base):
    """What has changed between two builds."""
    lines = [("", "time or figure", "", "memory", "", "instructions", "")]
    for row in _by_group(rows):
        found = {each.kind: each for each in judgements if each.row == row["name"]}
        cells = []
        for each in (found.get("time") or found.get("figure"), found.get("memory"), found.get("instructions")):
            if not each:
                cells += ["", ""]
            elif each.kind == "instructions":
                cells += [CHANGES[each.kind].get(each.verdict, each.verdict), f"{each.median:.3f}"]
            else:
                cells += [CHANGES[each.kind].get(each.verdict, each.verdict), _shown(each, ratio)]
        if any(cells):
            lines.append((row["name"], *cells))
    yield f"The cost of {OURS} over that of {base} (99 % interval)"
    yield from table(lines, "<")
    for kind, words in CHANGES.items():
        for verdict, word in words.items():
            names = [each.row for each in judgements if each.kind == kind and each.verdict == verdict]
            if names:
                yield f"{word}: {', '.join(names)}"
    if not any(each.verdict in ("ahead", "behind") for each in judgements):
        yield "no row has changed as far as can be told"
