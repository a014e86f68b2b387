"""From runs to verdicts.

A ratio is taken within a round, between two runs that were made within a second of each other; its median and
quartiles over the rounds are what a target is compared with. With ten rounds the range from quartile to quartile holds
the true median nine times in ten. A verdict is given only if the whole range lies on one side of the limit.
"""

import statistics
from dataclasses import dataclass

from .allocators import OURS, SYSTEM

LEAST_KIB = 4  # a net memory of less than a page is taken for a page, so that ratios of small ones stay finite


@dataclass(frozen=True)
class Interval:
    low: float  # first quartile
    median: float
    high: float  # third quartile


@dataclass(frozen=True)
class Judgement:
    text: str  # what was compared with what
    relation: str
    limit: float
    interval: Interval | None
    verdict: str  # met, missed, undecided, or why there is none


def interval(values):
    values = list(values)
    if len(values) == 1:
        return Interval(values[0], values[0], values[0])
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return Interval(low, median, high)


def measured(result, measure):
    """The values of a measure by round."""
    values = {run["round"]: run[measure] for run in result["runs"] if measure in run}
    if measure == "net_kib":
        values = {number: max(value, LEAST_KIB) for number, value in values.items()}
    return values


def best_peer(row, results, measure):
    """The peer, the system's allocator not counted, with the best median; None if there is none."""
    most = row.more_is_better and measure == "figure"
    medians = {
        name: statistics.median(values.values())
        for name, result in results.items()
        if name not in (OURS, SYSTEM) and (values := measured(result, measure))
    }
    return (max if most else min)(medians, key=medians.get) if medians else None


def _verdict(found, relation, limit):
    if relation == ">=":
        worst, best = found.low, found.high
        reaches = lambda value: value >= limit
    else:
        worst, best = found.high, found.low
        reaches = lambda value: value <= limit
    if reaches(worst):
        return "met"
    if not reaches(best):
        return "missed"
    return "undecided"


def judge(row, target, results):
    what = {"figure": row.unit, "net_kib": "peak RSS, net", "growth_kib": "growth, KiB",
            "superslabs_mapped": "superslabs mapped"}[target.measure]
    other = best_peer(row, results, target.measure) if target.against == "best" else target.against
    if not target.against:
        text = f"{what}: {OURS}"
    elif target.difference:
        text = f"{what}: {OURS} - {other or 'best peer'}"
    else:
        text = f"{what}: {OURS} / {other or 'best peer'}"

    def give(found, verdict):
        return Judgement(text, target.relation, target.limit, found, verdict)

    ours = measured(results.get(OURS, {"runs": []}), target.measure)
    if not ours:
        return give(None, f"no figure of {OURS}")
    if not target.against:
        values = list(ours.values())
    else:
        theirs = measured(results.get(other, {"runs": []}), target.measure)
        rounds = [number for number in ours if number in theirs]
        if not rounds:
            return give(None, f"no figure of {other or 'a peer'}")
        if target.difference:
            values = [ours[number] - theirs[number] for number in rounds]
        elif any(theirs[number] == 0 for number in rounds):
            return give(None, f"{other}'s figure is zero")
        else:
            values = [ours[number] / theirs[number] for number in rounds]
    found = interval(values)
    return give(found, _verdict(found, target.relation, target.limit))
