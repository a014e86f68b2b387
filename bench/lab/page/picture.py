"""The README's picture: time against memory, and the means by group, on a machine that it names.

It is shown as an image, so it carries its colours with it: light ones as attributes, for any viewer, and dark ones in a
style sheet for those that know the reader's theme.
"""

import xml.etree.ElementTree as ElementTree

from ..allocators import OURS
from . import charts, svg
from .style import roles
from .study import ReportError, day, in_order, machine_name, points_of_means, studies
from .svg import Canvas, colour
from .tables import means_by_group

WIDTH, HEIGHT = 960, 500
EDGE = 22
TOP = 74  # under the heading
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
LINE = 19  # height of a line of the means
NAMES = 64  # room for the allocators' names above their columns
SCATTER = 440  # width of the left part
GROUPS = 110  # room for the groups' names
WIDEST_CELL = 70


def picture(results):
    """The text of the picture."""
    found = studies(results)
    if len(found) > 1:
        machines = "; ".join(machine_name(study.machine) for study in found)
        raise ReportError(f"a picture is of one machine, and these files are of {len(found)}: {machines}")
    study = found[0]
    pen = charts.Pen(in_order(study.allocators))
    tables = means_by_group(study)
    over = points_of_means(study, study.rows)
    if len(over) < 2 or len(tables) < 2:
        raise ReportError("a picture needs rows with time and memory of two allocators at least")
    lines = max(sum(len(table["lines"]) for table in tables), 12)
    canvas = Canvas(WIDTH, max(HEIGHT, TOP + NAMES + (lines + 2) * LINE + 2 * EDGE))
    _heading(canvas, study)
    charts.draw_scatter(canvas, canvas.axes(EDGE + 46, EDGE + 46, WIDTH - SCATTER, TOP), study, pen, over, 12)
    _means(canvas, study, pen, tables)
    root = canvas.svg("picture", f"Time against memory of {', '.join(study.allocators)}: geometric means")
    return _standing_alone(root, roles(pen.names))


def _say(canvas, x, y, text, role, **how):
    return canvas.figure.text(x / canvas.width, 1 - y / canvas.height, text, color=colour(role), **how)


def _heading(canvas, study):
    _say(canvas, EDGE, EDGE + 16, f"{study.reference} and other allocators: time and memory", "ink", fontsize=17,
         weight="bold")
    about = study.machine
    told = [machine_name(about), f"Linux {about['kernel']}" if about.get("kernel") else "", about.get("libc") or "",
            day(about)]
    _say(canvas, EDGE, EDGE + 37, f"Geometric means, {study.reference} = 1, less is better.  "
         + ", ".join(filter(None, told)), "muted", fontsize=12)


def _means(canvas, study, pen, tables):
    names = study.allocators
    left = SCATTER + 14 + GROUPS
    width = min((WIDTH - EDGE - left) / len(names), WIDEST_CELL)
    y = TOP + NAMES
    for column, name in enumerate(names):
        text = _say(canvas, left + (column + 0.5) * width + 4, y - 6, name, f"{pen.role(name)}-text", fontsize=11.5,
                    rotation=90, ha="center", va="bottom", weight="bold" if name == OURS else "normal")
        canvas.tag(text, pen.classes(name))
    for table in tables:
        _say(canvas, SCATTER + 14, y + 14, table["name"], "ink", fontsize=12, weight="bold")
        _say(canvas, left, y + 14, f"{table['lines'][0]['rows']} rows", "muted", fontsize=11)
        y += LINE
        for line in table["lines"]:
            _say(canvas, SCATTER + 14, y + 13.5, line["group"], "muted", fontsize=11.5)
            for column, cell in enumerate(line["cells"]):
                _cell(canvas, left + column * width, y, width, cell)
            y += LINE
        y += LINE / 2


def _cell(canvas, x, y, width, cell):
    if cell.heat:
        canvas.add_box(x + 1, canvas.height - y - LINE + 1, width - 2, LINE - 2, cell.heat)
    _say(canvas, x + width / 2, y + 13.5, cell.text, f"{cell.heat}-ink" if cell.heat else "muted", fontsize=11,
         ha="center")


def _standing_alone(root, both):
    """The SVG's text, with its ground, its font and the colours of both themes."""
    used = set()
    for element in root.iter():
        for each in element.get("class", "").split():
            kind, _, role = each.partition("-")
            if kind in ("f", "s") and role in both:
                used.add(each)
                element.set("fill" if kind == "f" else "stroke", both[role][0])
        if element.tag == "text" and element.get("class", "").endswith("-text"):
            # A rim for the names, which may lie on a line.
            element.attrib |= {"stroke": both["panel"][0], "stroke-width": "3", "paint-order": "stroke",
                               "class": f"{element.get('class')} s-panel"}
            used.add("s-panel")
    width, height = root.get("viewBox").split()[2:]
    ground = ElementTree.Element("rect", {
        "x": "0.5", "y": "0.5", "width": str(float(width) - 1), "height": str(float(height) - 1), "rx": "10",
        "fill": both["panel"][0], "stroke": both["line"][0], "class": "f-panel s-line"})
    dark = "".join(
        f".{each}{{{'fill' if each[0] == 'f' else 'stroke'}:{both[each[2:]][1]}}}"
        for each in sorted(used | {"f-panel", "s-line"})
    )
    style = ElementTree.Element("style")
    style.text = f"@media (prefers-color-scheme:dark){{{dark}}}"
    root.insert(0, ground)
    root.insert(0, style)
    root.attrib |= {"xmlns": "http://www.w3.org/2000/svg", "width": width, "height": height, "font-family": FONT}
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + svg.text_of(root) + "\n"
