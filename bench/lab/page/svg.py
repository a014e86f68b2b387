"""Charts drawn by matplotlib, turned into lean SVG that follows the reader's theme.

A chart is drawn in roles (style.py) and not in colours: each role has a made-up colour, which becomes the classes
`f-ROLE` (fill) and `s-ROLE` (stroke) in the SVG. Text stays text, in the font of the page. An artist that is tagged
gets classes and, as its tooltip, a title.
"""

import io
import re
import xml.etree.ElementTree as ElementTree

import matplotlib

matplotlib.use("svg")
from matplotlib import patches, pyplot  # noqa: E402 (the backend must be chosen first)

POINTS_PER_INCH = 72  # so that a point is a unit of the view box
NO_METADATA = {"Date": None, "Creator": None, "Type": None, "Format": None}

pyplot.rcParams.update({
    "svg.fonttype": "none",
    "svg.hashsalt": "hakmem",  # the same chart gets the same text
    "path.simplify_threshold": 0.5,
    "font.size": 12,
    "axes.titlesize": 12,
    "axes.labelsize": 12,
    "xtick.labelsize": 11,
    "ytick.labelsize": 11,
    "axes.unicode_minus": False,
})

_codes = {}  # role -> made-up colour


def colour(role):
    """What matplotlib is told to draw in, for a role."""
    return _codes.setdefault(role, f"#fe{len(_codes) + 1:04x}")


class Canvas:
    """One chart: a matplotlib figure of a size in units of its view box."""

    def __init__(self, width, height):
        self.figure = pyplot.figure(figsize=(width / POINTS_PER_INCH, height / POINTS_PER_INCH), dpi=POINTS_PER_INCH)
        self.width, self.height = width, height
        self._tags = {}

    def axes(self, left, bottom, right, top):
        """Axes that leave these margins, in units."""
        box = (left / self.width, bottom / self.height, 1 - (left + right) / self.width,
               1 - (bottom + top) / self.height)
        axes = self.figure.add_axes(box, facecolor="none")
        for side, spine in axes.spines.items():
            spine.set_visible(side == "bottom")
            spine.set_color(colour("line"))
        axes.tick_params(colors=colour("muted"), which="both", length=0, pad=5)
        axes.grid(color=colour("line"), linewidth=0.8)
        axes.set_axisbelow(True)
        for axis in (axes.xaxis, axes.yaxis):
            axis.label.set_color(colour("muted"))
        return axes

    def add_box(self, x, y, width, height, role):
        """A filled box, in units from the lower left."""
        self.figure.add_artist(patches.Rectangle((x, y), width, height, facecolor=colour(role), transform=None))

    def tag(self, artist, classes, title=""):
        name = f"tag{len(self._tags)}"
        artist.set_gid(name)
        self._tags[name] = (classes, title)

    def svg(self, name, label):
        """The chart as an element; name makes its ids unique among those of a document."""
        self.figure.patch.set_visible(False)
        stream = io.StringIO()
        self.figure.savefig(stream, format="svg", metadata=NO_METADATA)
        pyplot.close(self.figure)
        root = ElementTree.fromstring(stream.getvalue())
        for parent in list(root.iter()):
            for child in [child for child in parent if _local(child.tag) in ("metadata", "style")]:
                parent.remove(child)
        used = set(re.findall(r"#([\w.-]+)", stream.getvalue()))
        roles = {code: role for role, code in _codes.items()}
        for element in root.iter():
            self._clean(element, f"{name}-", used, roles)
        _prune(root)
        root.attrib.clear()
        root.attrib |= {"viewBox": f"0 0 {self.width} {self.height}", "role": "img", "aria-label": label,
                        "stroke-linejoin": "round"}
        return root

    def _clean(self, element, prefix, used, roles):
        element.tag = _local(element.tag)
        old = dict(element.attrib)
        element.attrib.clear()
        identity = old.pop("id", None)
        classes = []
        if identity in self._tags:
            tagged, title = self._tags[identity]
            classes.append(tagged)
            if title:
                element.insert(0, ElementTree.Element("title"))
                element[0].text = title
        elif identity in used:
            element.set("id", prefix + identity)
        for key, value in _attributes(old):
            if key in ("fill", "stroke") and value in roles:
                classes.append(f"{key[0]}-{roles[value]}")
            elif key == "href":
                element.set("href", "#" + prefix + value[1:])
            elif key == "clip-path":
                element.set("clip-path", f"url(#{prefix}{value[5:-1]})")
            elif key in ("d", "x", "y", "width", "height", "transform"):
                element.set(key, _shorter(value))
            else:
                element.set(key, value)
        if classes:
            element.set("class", " ".join(classes))
        if element.tag not in ("text", "title"):
            element.text = None
        element.tail = None


def text_of(root):
    return ElementTree.tostring(root, encoding="unicode")


def marker_path(marker, size):
    """The outline of a marker, centred on the origin, for keys outside of the charts."""
    style = matplotlib.markers.MarkerStyle(marker)
    shape = style.get_path().transformed(style.get_transform().scale(size))
    return "".join(
        "M" + "L".join(f"{x:.1f} {-y:.1f}" for x, y in polygon) + "Z" for polygon in shape.to_polygons()
    )


def _local(name):
    return name.rpartition("}")[2]


def _shorter(text):
    """Coordinates to a tenth of a unit, on one line."""
    text = re.sub(r"-?\d+\.\d+", lambda match: f"{float(match.group()):.1f}".removesuffix(".0"), text)
    return " ".join(text.split())


def _attributes(old):
    """The attributes of an element, with those in `style` among them, and without what says nothing."""
    for key, value in old.items():
        if key == "style":
            for text in value.split(";"):
                yield from _declaration(text)
        elif not (key == "transform" and value.startswith("rotate(-0 ")):
            yield _local(key), value


def _declaration(text):
    key, value = (part.strip() for part in text.split(":", 1))
    if key == "font":  # the family is the page's
        yield "font-size", re.search(r"([\d.]+)px", value).group(1)
        if value.startswith("700 "):
            yield "font-weight", "700"
    elif key != "stroke-linejoin":
        yield key, value


def _prune(root):
    """Takes out groups that group nothing: they have no attributes, so their children can stand in their place."""
    for child in list(root):
        _prune(child)
        if child.tag in ("g", "defs") and len(child) == 0:
            root.remove(child)
        elif child.tag == "g" and not child.attrib:
            place = list(root).index(child)
            root.remove(child)
            for offset, grandchild in enumerate(list(child)):
                root.insert(place + offset, grandchild)
