"""The colours and marks of the page and of the picture: one colour and one mark for each allocator, throughout.

A colour is named by its role; each role has a light and a dark variant. Charts are drawn by role (see svg.py), so that
the reader's theme decides which variant is seen.
"""

from dataclasses import dataclass

from ..allocators import OURS


@dataclass(frozen=True)
class Look:
    light: str
    dark: str
    marker: str  # as matplotlib names it; tells allocators apart where colours do not


# Relatives share a hue.
KNOWN_LOOKS = {
    OURS: Look("#d1103a", "#ff5c7a", "o"),
    "glibc": Look("#6b7280", "#a3acb8", "s"),
    "jemalloc": Look("#58a618", "#8fd14f", "^"),
    "jemalloc5": Look("#2d6a0c", "#4f9a2a", "v"),
    "gperftools": Look("#e39a00", "#ffc04d", "D"),
    "tcmalloc": Look("#9a5b00", "#c98a2b", "d"),
    "mimalloc2": Look("#3d9fe0", "#7cc4ff", "P"),
    "mimalloc3": Look("#1550a8", "#4a86e8", "X"),
    "snmalloc": Look("#8544c9", "#b98cf0", "p"),
    "rpmalloc": Look("#0d9a8d", "#3fd0c0", "h"),
    "hardened": Look("#7a5c46", "#b8977d", "*"),
}
# For libraries that a user named.
SPARE_LOOKS = (
    Look("#c23fa6", "#f07fd8", "<"),
    Look("#00788f", "#4fb8cf", ">"),
    Look("#7d7a00", "#c9c54a", "H"),
    Look("#444a9c", "#8f95ea", "8"),
)

BASE = {  # role -> (light, dark)
    "page": ("#fbfaf8", "#14171c"),
    "panel": ("#ffffff", "#1b1f26"),
    "ink": ("#1c1f24", "#e8e9eb"),
    "muted": ("#5f6670", "#9aa3ae"),
    "line": ("#e2e0db", "#2e343d"),
    "live": ("#d9d6cf", "#39414c"),
}

# The heat scale, by how many times the best of the others a figure is: a step for each limit, both ways. Blue and
# orange stay apart for those who do not tell red from green.
LIMITS = (1.02, 1.05, 1.1, 1.2, 1.4, 2.0, 4.0)
# From level by way of half-way to far, each in light and in dark.
LEVEL = ("#f1efeb", "#262b33")
AHEAD = (("#97c3ea", "#2c5f8f"), ("#1560a6", "#5cb0f7"))
BEHIND = (("#f6bc85", "#7d4a1e"), ("#b5460a", "#f7954a"))
DARK_INK, LIGHT_INK = "#16181c", "#ffffff"


def looks(names):
    """{name: Look}; names that nobody knows get spare ones, in turn."""
    unknown = [name for name in names if name not in KNOWN_LOOKS]
    spare = {name: SPARE_LOOKS[index % len(SPARE_LOOKS)] for index, name in enumerate(unknown)}
    return {name: KNOWN_LOOKS.get(name) or spare[name] for name in names}


def heat_step(ratio):
    """-len(LIMITS) (far ahead) ... 0 (level) ... len(LIMITS) (far behind)."""
    away = max(ratio, 1 / ratio)
    step = sum(away >= limit for limit in LIMITS)
    return step if ratio > 1 else -step


def heat_role(step):
    return f"heat-{'ahead' if step < 0 else 'behind'}-{abs(step)}" if step else "heat-0"


def _channels(colour):
    return [int(colour[at : at + 2], 16) for at in (1, 3, 5)]


def _mix(start, end, share):
    return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in zip(_channels(start), _channels(end)))


def _luminance(colour):
    linear = [c / 12.92 if (c := channel / 255) <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4
              for channel in _channels(colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _readable_on(colour):
    """The ink with more contrast on a ground (contrast as WCAG defines it)."""
    ground = _luminance(colour) + 0.05
    dark = ground / (_luminance(DARK_INK) + 0.05)
    light = (_luminance(LIGHT_INK) + 0.05) / ground
    return DARK_INK if dark >= light else LIGHT_INK


def roles(names):
    """{role: (light, dark)} of everything that is drawn; allocators are roles by their place, `a0`, `a1`, ..., and
    their names, which need more contrast than marks, `a0-text`, ..."""
    found = dict(BASE)
    for index, look in enumerate(looks(names).values()):
        found[f"a{index}"] = (look.light, look.dark)
        found[f"a{index}-text"] = (_mix(look.light, BASE["ink"][0], 0.3), _mix(look.dark, BASE["ink"][1], 0.2))
    for step in range(-len(LIMITS), len(LIMITS) + 1):
        half, far = AHEAD if step < 0 else BEHIND
        share = 2 * abs(step) / len(LIMITS)
        ground = tuple(
            _mix(LEVEL[theme], half[theme], share) if share <= 1 else _mix(half[theme], far[theme], share - 1)
            for theme in (0, 1)
        )
        found[heat_role(step)] = ground
        found[heat_role(step) + "-ink"] = tuple(map(_readable_on, ground))
    return found
