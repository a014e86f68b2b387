"""The charts of the page, and the picture: each function draws one, in roles, and returns it as an SVG element."""

import math

from matplotlib import ticker

from ..allocators import OURS
from .style import looks
from .study import points_of_means
from .svg import Canvas, colour

WIDTH, HEIGHT = 460, 290  # of a panel; a page shows several beside each other
LABEL_ROOM = 84  # right of curves, for the allocators' names
LARGE = 380  # width from which on a scatter has room for remarks
LETTER = 0.56  # mean width of a letter, in units of the font's size
MIB = 1024

QUANTILES = (("p50_ns", "p50"), ("p99_ns", "p99"), ("p999_ns", "p99.9"), ("p9999_ns", "p99.99"), ("max_ns", "max"))
NICE = (0.1, 0.2, 0.33, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.25, 1.5, 2, 2.5, 3, 4, 6, 8, 10, 15, 20, 30, 50, 100)


class Pen:
    """How each allocator is drawn, in all charts of a document."""

    def __init__(self, names):
        self.names = names
        self.marks = {name: look.marker for name, look in looks(names).items()}
        # hakmem is drawn last, so that it lies above the others.
        self.drawing_order = sorted(names, key=lambda name: name == OURS)

    def role(self, name):
        return f"a{self.names.index(name)}"

    def classes(self, name):
        return f"series series-{self.names.index(name)}"

    def line(self, name):
        return {"color": colour(self.role(name)), "linewidth": 2.6 if name == OURS else 1.4,
                "solid_capstyle": "round", "zorder": 5 if name == OURS else 3}

    def dot(self, name, size):
        factor = 1.5 if self.marks[name] == "*" else 1.25 if name == OURS else 1.0
        return {"marker": self.marks[name], "markersize": size * factor, "markerfacecolor": colour(self.role(name)),
                "markeredgecolor": colour("panel"), "markeredgewidth": 0.6, "linestyle": "none",
                "zorder": 6 if name == OURS else 4}

    def text(self, name, size=11):
        return {"color": colour(f"{self.role(name)}-text"), "fontsize": size,
                "weight": "bold" if name == OURS else "normal"}


def plain(value):
    """A tick's label: no powers of ten, no zeros at the end."""
    return f"{value:,.6g}" if value < 1e6 else f"{value:,.0f}"


# --- time against memory ---------------------------------------------------------------------------------------------


def scatter(study, rows, pen, width, height, size):
    """A chart of the means over rows; None if less than two allocators have both."""
    points = points_of_means(study, rows)
    if len(points) < 2:
        return None
    canvas = Canvas(width, height)
    draw_scatter(canvas, canvas.axes(54, 44, 12, 12), study, pen, points, size)
    return canvas


def draw_scatter(canvas, axes, study, pen, points, size):
    """Time to the right, memory upwards, the reference at 1; size is that of the names."""
    remarks = axes.get_window_extent().width >= LARGE
    axes.set(xscale="log", yscale="log")
    limits = [_around([point[index] for point in points.values()]) for index in (0, 1)]
    for axis, (low, high), label in ((axes.xaxis, limits[0], "time"), (axes.yaxis, limits[1], "memory")):
        axis.set_major_locator(ticker.FixedLocator(_ticks(low, high)))
        axis.set_minor_locator(ticker.NullLocator())
        axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_label_text(f"{label}, {study.reference} = 1")
    axes.set_xlim(*limits[0])
    axes.set_ylim(*limits[1])
    axes.axhline(1, color=colour("muted"), linewidth=1)
    axes.axvline(1, color=colour("muted"), linewidth=1)
    for x, y, text in ((0, 0, "faster, leaner"), (1, 1, "slower, needs more")) if remarks else ():
        axes.annotate(text, (x, y), xycoords="axes fraction", xytext=(6 - 12 * x, 7 - 14 * y),
                      textcoords="offset points", ha="right" if x else "left", va="top" if y else "bottom",
                      color=colour("muted"), fontsize=size - 1)
    for name in filter(points.get, pen.drawing_order):
        dot, = axes.plot(*points[name], **pen.dot(name, 0.8 * size))
        canvas.tag(dot, pen.classes(name), f"{name}: time {points[name][0]:.3f}, memory {points[name][1]:.3f}")
    _label_points(canvas, axes, pen, points, size, remarks)


def _around(values):
    low, high = min(values + [0.9]), max(values + [1.1])
    room = (high / low) ** 0.09
    return low / room, high * room


def _ticks(low, high):
    """Nice numbers, from 1 outwards, a tenth of the axis apart at least."""
    apart = math.log(high / low) / 10
    found = [1]
    for value in sorted(NICE, key=lambda value: abs(math.log(value))):
        if low <= value <= high and all(abs(math.log(value / other)) >= apart for other in found):
            found.append(value)
    return found


def _label_points(canvas, axes, pen, points, size, remarks):
    """Names beside their points, each where it meets the fewest points and names that are there already."""
    to_units = axes.transData.transform
    box = axes.get_window_extent()
    taken = []
    for point in points.values():
        x, y = to_units(point)
        taken.append((x - 6, y - 6, x + 6, y + 6))
    if remarks:
        taken += [(box.x0, box.y0, box.x0 + 90, box.y0 + 16), (box.x1 - 120, box.y1 - 16, box.x1, box.y1)]
    for name in sorted(points, key=lambda name: name != OURS):
        x, y = to_units(points[name])
        width, height = len(name) * size * LETTER * (1.12 if name == OURS else 1), size
        best = None
        for away, across, upwards in [(reach, *way) for reach in (9, 18, 30) for way in
                                      ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, 1), (1, -1), (-1, -1))]:
            left = x + across * away - (1 - across) * width / 2
            bottom = y + upwards * (away - 2) - (1 - upwards) * height / 2
            area = (left, bottom, left + width, bottom + height)
            cost = away / 10 + 0.3 * abs(across * upwards)
            cost += sum(_overlap(area, other) for other in taken)
            cost += 1000 * (area[0] < box.x0 or area[2] > box.x1 or area[1] < box.y0 or area[3] > box.y1)
            if best is None or cost < best[0]:
                best = (cost, area, away, across)
        _, area, away, across = best
        taken.append(area)
        # Fastened at the side of the point, since the reader's font may be wider or narrower than was reckoned.
        place = (area[0] if across > 0 else area[2] if across < 0 else (area[0] + area[2]) / 2, area[1] + height / 2)
        text = axes.annotate(name, place, xycoords="figure pixels", ha=("center", "left", "right")[across],
                             va="center_baseline", zorder=7, **pen.text(name, size))
        canvas.tag(text, pen.classes(name))
        if away > 9:
            edge = (min(max(x, area[0]), area[2]), min(max(y, area[1]), area[3]))
            line = axes.annotate("", (x, y), xytext=edge, xycoords="figure pixels", textcoords="figure pixels",
                                 arrowprops={"arrowstyle": "-", "linewidth": 0.8, "color": colour(pen.role(name)),
                                             "shrinkA": 1, "shrinkB": 4})
            canvas.tag(line.arrow_patch, pen.classes(name))


def _overlap(one, other):
    across = min(one[2], other[2]) - max(one[0], other[0])
    upwards = min(one[3], other[3]) - max(one[1], other[1])
    return across * upwards if across > 0 and upwards > 0 else 0


# --- curves ----------------------------------------------------------------------------------------------------------


def _curve_axes(x_label, y_label):
    canvas = Canvas(WIDTH, HEIGHT)
    axes = canvas.axes(58, 42, LABEL_ROOM, 26)
    axes.grid(axis="x", visible=False)
    axes.set_xlabel(x_label)
    axes.annotate(y_label, (0, 1), xycoords="axes fraction", xytext=(-50, 10), textcoords="offset points",
                  color=colour("muted"), fontsize=12)
    return canvas, axes


def _name_ends(canvas, axes, pen, ends):
    """Names at the right ends of curves, pushed apart where they would overlap. ends: {name: (x, y)} in data."""
    spacing = 13
    box = axes.get_window_extent()
    spots = sorted(((axes.transData.transform(end), name) for name, end in ends.items()), key=lambda spot: spot[0][1])
    for (x, y), name in [spot for spot in spots if spot[0][0] < box.x1 - LABEL_ROOM]:  # ends early: named there
        text = axes.annotate(name, (x + 9, y), xycoords="figure pixels", va="center", zorder=7, **pen.text(name))
        canvas.tag(text, pen.classes(name))
    spots = [spot for spot in spots if spot[0][0] >= box.x1 - LABEL_ROOM]
    heights = [float(min(max(spot[0][1], box.y0), box.y1)) for spot in spots]
    for _ in range(200):
        moved = False
        for low in range(len(heights) - 1):
            lack = spacing - (heights[low + 1] - heights[low])
            if lack > 0.01:
                heights[low] -= lack / 2
                heights[low + 1] += lack / 2
                moved = True
        if not moved:
            break
        under, over = box.y0 - 4 - heights[0], heights[-1] - (box.y1 + 12)
        heights = [height + (max(under, 0) - max(over, 0)) for height in heights]
    for ((x, y), name), height in zip(spots, heights):
        text = axes.annotate(name, (box.x1 + 14, height), xycoords="figure pixels", va="center",
                             annotation_clip=False, **pen.text(name))
        canvas.tag(text, pen.classes(name))
        leader, = axes.plot([x + 4, box.x1 + 6, box.x1 + 12], [y, height, height], transform=None, clip_on=False,
                            color=colour(pen.role(name)), linewidth=0.7, alpha=0.7)
        canvas.tag(leader, pen.classes(name))


def over_time(row, pen):
    """Resident size over time, with the live bytes as an area; None if there are no samples."""
    samples = {name: found for name in pen.names if (found := row.samples(name))}
    if not samples:
        return None
    canvas, axes = _curve_axes("seconds", "MiB")
    # Live bytes follow the program, and so are nearly the same for all.
    live_of = OURS if OURS in samples else next(iter(samples))
    area = axes.fill_between([sample[0] for sample in samples[live_of]],
                             [sample[2] / MIB for sample in samples[live_of]], color=colour("live"), linewidth=0)
    canvas.tag(area, "", f"live bytes, as {live_of}'s run had them")
    end = max(found[-1][0] for found in samples.values())
    ends = {}
    for name in filter(samples.get, pen.drawing_order):
        x, y = [sample[0] for sample in samples[name]], [sample[1] / MIB for sample in samples[name]]
        line, = axes.plot(x, y, **pen.line(name))
        canvas.tag(line, pen.classes(name), f"{name}: peak {max(y):,.1f} MiB, at the end {y[-1]:,.1f} MiB")
        ends[name] = (x[-1], y[-1])
    axes.set_xlim(0, end or 1)
    axes.set_ylim(0)
    axes.yaxis.set_major_locator(ticker.MaxNLocator(5))
    axes.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: plain(value)))
    _name_ends(canvas, axes, pen, ends)
    return canvas


def scaling(rows, pen, cores):
    """The figure of rows of one curve by threads; None if there is only one number of threads."""
    rows = sorted((row for row in rows if row.has("figure")), key=lambda row: row.threads)
    if len({row.threads for row in rows}) < 2:
        return None
    canvas, axes = _curve_axes("threads", rows[0].unit)
    if not rows[0].more_is_better:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5), numticks=8))
        axes.yaxis.set_minor_locator(ticker.NullLocator())
    axes.set_xscale("log", base=2)
    ends = {}
    for name in pen.drawing_order:
        spreads = [(row.threads, spread) for row in rows
                   if row.cost(name, "figure") and (spread := row.spread(name, "figure"))]
        if not spreads:
            continue
        x, y = [threads for threads, _ in spreads], [spread.median for _, spread in spreads]
        reach = [[max(spread.median - spread.low, 0) for _, spread in spreads],
                 [max(spread.high - spread.median, 0) for _, spread in spreads]]
        line, = axes.plot(x, y, **pen.line(name))
        said = ", ".join(f"{plain(value)} with {threads}" for threads, value in zip(x, y))
        canvas.tag(line, pen.classes(name), f"{name}: {said}")
        dots, = axes.plot(x, y, **pen.dot(name, 6))
        canvas.tag(dots, pen.classes(name))
        _, _, (bars,) = axes.errorbar(x, y, yerr=reach, fmt="none", ecolor=colour(pen.role(name)), elinewidth=1)
        canvas.tag(bars, pen.classes(name))
        ends[name] = (x[-1], y[-1])
    threads = sorted({row.threads for row in rows})
    axes.xaxis.set_major_locator(ticker.FixedLocator(threads))
    axes.xaxis.set_minor_locator(ticker.NullLocator())
    axes.xaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: plain(value)))
    axes.set_xlim(threads[0] / 1.12, threads[-1] * 1.12)
    if rows[0].more_is_better:
        axes.set_ylim(0)
    if cores and threads[0] < cores < threads[-1]:
        axes.axvline(cores, color=colour("muted"), linewidth=1, linestyle=(0, (3, 3)))
        axes.annotate("cores", (cores, 1), xycoords=("data", "axes fraction"), xytext=(4, 2),
                      textcoords="offset points", color=colour("muted"), fontsize=10)
    _name_ends(canvas, axes, pen, ends)
    return canvas


def latency_prefixes(row):
    return [prefix for prefix in ("malloc_", "free_", "") if row.has(f"{prefix}p50_ns")]


def tail(row, prefix, pen):
    """The quantiles of single calls, on a log scale."""
    keys = [(prefix + key, label) for key, label in QUANTILES if row.has(prefix + key)]
    canvas, axes = _curve_axes("of all calls", "ns")
    axes.set_yscale("log")
    ends = {}
    for name in pen.drawing_order:
        points = [(place, cost) for place, (key, _) in enumerate(keys) if (cost := row.cost(name, key))]
        if not points:
            continue
        x, y = zip(*points)
        line, = axes.plot(x, y, **pen.line(name))
        said = ", ".join(f"{keys[place][1]} {plain(value)} ns" for place, value in points)
        canvas.tag(line, pen.classes(name), f"{name}: {said}")
        dots, = axes.plot(x, y, **pen.dot(name, 6))
        canvas.tag(dots, pen.classes(name))
        ends[name] = (x[-1], y[-1])
    axes.xaxis.set_major_locator(ticker.FixedLocator(range(len(keys))))
    axes.xaxis.set_major_formatter(ticker.FixedFormatter([label for _, label in keys]))
    axes.yaxis.set_minor_locator(ticker.NullLocator())
    axes.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: plain(value)))
    axes.set_xlim(-0.15, len(keys) - 1 + 0.1)
    _name_ends(canvas, axes, pen, ends)
    return canvas
