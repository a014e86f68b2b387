"""Puts charts and tables into the page's template."""

from pathlib import Path

import jinja2
import markupsafe

from ..allocators import OURS
from . import charts, summary, svg, tables
from .style import LIMITS, heat_role, roles
from .study import day, in_order, machine_name, studies

HERE = Path(__file__).resolve().parent
ROOMY, WIDE = 14, 26  # columns of the heat map with room to spare, and more than which a large window has no room for

MACHINE_LINES = (  # key of a result's machine, what it is called
    ("processor", "Processor"), ("architecture", "Architecture"), ("cores", "Cores"), ("memory_gib", "Memory, GiB"),
    ("kernel", "Linux"), ("libc", "C library"), ("page_kib", "Page, KiB"), ("huge_pages", "Huge pages"),
    ("overcommit", "Overcommit"), ("governor", "Governor"), ("load", "Load at the start"), ("date", "Date"),
)


def page(results):
    """The text of the page."""
    found = studies(results)
    names = in_order({name: None for study in found for name in study.allocators})
    pen = charts.Pen(names)
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE), autoescape=True, trim_blocks=True, undefined=jinja2.StrictUndefined
    )
    files = list(dict.fromkeys(name for study in found for name in study.files))
    others = len(names) - (OURS in names)
    return environment.get_template("page.html").render(
        title=f"{OURS} against {others} allocator{'s' * (others != 1)}" if OURS in names else "Allocators compared",
        subtitle=_subtitle(found),
        css=_verbatim(_colours(names) + (HERE / "page.css").read_text(encoding="utf-8")),
        script=_verbatim((HERE / "page.js").read_text(encoding="utf-8")),
        pen=pen,
        marks={name: svg.marker_path(mark, 11) for name, mark in pen.marks.items()},
        ours=OURS,
        scale=_scale(),
        parts=[_part(study, f"m{number}", pen) for number, study in enumerate(found, 1)],
        files=files,
    )


def _verbatim(text):
    """What is put into the template as it is."""
    return markupsafe.Markup(text)


def _subtitle(found):
    parts = [f"{len(study.rows)} rows on {machine_name(study.machine)}, {day(study.machine)}" for study in found]
    return "; ".join(parts)


def _colours(names):
    """The style sheet of the roles: a variable for each, and the classes that charts and tables use."""
    lines, both = [":root {"], roles(names)
    lines += [f"  --{role}: light-dark({light}, {dark});" for role, (light, dark) in both.items()]
    lines.append("}")
    for role in both:
        lines.append(f".f-{role} {{ fill: var(--{role}); }} .s-{role} {{ stroke: var(--{role}); }}")
        if f"{role}-ink" in both:
            lines.append(f".b-{role} {{ background: var(--{role}); color: var(--{role}-ink); }}")
    for index in range(len(tables.HEAT_MEASURES)):
        lines.append(f".heat-box:has(.for-{index}:not(:checked)) .of-{index} {{ display: none; }}")
    for index in range(len(names)):
        lines.append(f':root[data-series="{index}"] .series:not(.series-{index}) {{ opacity: 0.1; }}')
    return "\n".join(lines) + "\n"


def _scale():
    """The steps of the heat scale, from far ahead to far behind, each by the ratio at which it starts."""
    ahead = [{"role": heat_role(-step), "text": f"{1 / LIMITS[step - 1]:.2f}"} for step in range(len(LIMITS), 0, -1)]
    behind = [{"role": heat_role(step), "text": f"{limit:g}"} for step, limit in enumerate(LIMITS, 1)]
    return [*ahead, {"role": heat_role(0), "text": "1"}, *behind]


def _part(study, identity, pen):
    """All of the page that is about one machine."""
    cores = study.machine.get("cores")
    chart_number = 0

    def draw(canvas, title):
        nonlocal chart_number
        chart_number += 1
        return _verbatim(svg.text_of(canvas.svg(f"{identity}c{chart_number}", title)))

    def panels(entries):
        return [{"title": title, "note": note, "svg": draw(canvas, title), "table": table}
                for title, note, canvas, table in entries if canvas]

    overall = charts.scatter(study, study.rows, pen, 480, 470, 11)
    curves = dict.fromkeys(row.curve for row in study.rows if row.curve)
    by_curve = [(curve, [row for row in study.rows if row.curve == curve]) for curve in curves]
    heat = tables.heat_map(study)
    columns = sum(measure.shown for measure in heat["measures"]) * len(study.allocators)
    return {
        "id": identity,
        "study": study,
        "heading": machine_name(study.machine),
        "summary": summary.summary(study),
        "scatter": draw(overall, "Time against memory: geometric means over all rows") if overall else None,
        "means": tables.means_by_group(study),
        "heat": heat,
        "fit": "roomy" if columns <= ROOMY else "wide" if columns > WIDE else "",
        "sections": [
            {"id": "groups", "heading": "Time against memory, by group", "layout": "grid small", "lead":
             f"Geometric means over the rows of each group; {study.reference} is 1. Lower left is better.",
             "charts": panels((group, "", charts.scatter(study, rows, pen, 330, 260, 10), None)
                              for group, rows in study.groups())},
            {"id": "time", "heading": "Memory over time", "layout": "grid", "lead":
             "Resident size of the process (lines) against the bytes that the program has live (area). What lies "
             "between is what the allocator keeps.",
             "charts": panels((row.name, row.title, charts.over_time(row, pen),
                               tables.over_time_table(row, study.allocators)) for row in study.rows)},
            {"id": "threads", "heading": "Scaling with threads", "layout": "grid", "lead":
             "Medians; the strokes span the middle half of the rounds.",
             "charts": panels((curve, _what_grows(rows), charts.scaling(rows, pen, cores),
                               tables.scaling_table(rows, study.allocators))
                              for curve, rows in by_curve)},
            {"id": "latency", "heading": "Latency of single calls", "layout": "grid", "lead":
             "How long the slowest in a hundred, a thousand, ten thousand calls take, and the slowest of all.",
             "charts": panels((_call_name(row, prefix), row.title, charts.tail(row, prefix, pen),
                               tables.tail_table(row, prefix, study.allocators))
                              for row in study.rows for prefix in charts.latency_prefixes(row))},
        ],
        "tables": [(group, [(row, tables.row_table(study, row)) for row in rows]) for group, rows in study.groups()],
        "machine": [(name, study.machine[key]) for key, name in MACHINE_LINES if study.machine.get(key) is not None],
    }


def _what_grows(rows):
    return f"{rows[0].unit}, {'more' if rows[0].more_is_better else 'less'} is better"


def _call_name(row, prefix):
    return f"{row.name}: {prefix.rstrip('_')}" if prefix else row.name
