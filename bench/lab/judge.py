"""From runs to verdicts.

A ratio is taken within a round, between two runs that were made within seconds of each other. What is judged is the
median of a row's ratios, and how sure it is: the interval that holds it in 95 of 100 resamplings of the rounds. A
verdict is given only where the whole interval lies on one side, and only of so many rounds that it can.

The best of a row's peers is chosen on the odd rounds and compared with on the even ones. Chosen and compared with on
the same rounds it would be the luckiest of several as well as the best, and hakmem would be judged against luck. Rows
that measure memory by scenes repeat themselves closely, and sleep much: they have few rounds, and all are used.

All functions take a row as it is in a result file (results.py).
"""

import math
import operator
import statistics
from dataclasses import dataclass

import numpy

from .allocators import OURS, SYSTEM
from .row import TIME_UNIT

LEAST_KIB = 4  # a net memory of less than a page is taken for a page, so that ratios of small ones stay finite
LEAST_ROUNDS = 5  # with fewer, the range of all of them holds the median less than 15 times in 16
LEAST_SCENES = 3
LEVEL = 0.005  # closer to 1 than this is 1.00
NEAR = 1.15  # of the best time: peers that are slower do not compete in memory
RESAMPLINGS = 4000
SEED = 20260101
CONFIDENCE = 0.95
TOO_FEW = "too few rounds"

MEAN_LIMITS = {"time": 0.97, "memory": 0.95}  # of the geometric means over all rows


@dataclass(frozen=True)
class Interval:
    low: float
    median: float
    high: float


@dataclass(frozen=True)
class Judgement:
    """One comparison and its verdict. The kinds, and the verdicts that they know besides the reason for none:

    target  a row's own demand: met, missed, undecided
    time, memory, figure
            first place, as the cost of hakmem over that of the best peer: ahead, level, behind. `figure` is that of a
            row whose figure is no time.
    dominated
            one peer is ahead in both time and memory; there is none of it where no peer is
    mean time, mean memory
            the geometric means of the medians of all rows: met, missed, undecided
    """

    kind: str
    row: str | None  # None for the means
    measure: str  # a key of a run
    against: str | None  # the allocator compared with
    relation: str  # ">=", "<="
    limit: float
    low: float | None
    median: float | None
    high: float | None
    rounds: int  # that were compared; for the means, rows
    text: str
    verdict: str


def interval(values):
    """Median and quartiles: how values are spread."""
    values = list(values)
    if len(values) == 1:
        return Interval(values[0], values[0], values[0])
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return Interval(low, median, high)


def _medians(values, random):
    """The medians of resamplings of the values."""
    values = numpy.asarray(values, dtype=float)
    return numpy.median(values[random.integers(0, len(values), (RESAMPLINGS, len(values)))], axis=1)


def _between(resampled, median, confidence=CONFIDENCE):
    low, high = numpy.quantile(resampled, ((1 - confidence) / 2, (1 + confidence) / 2))
    return Interval(float(low), float(median), float(high))


def confidence_interval(values, confidence=CONFIDENCE):
    """The bootstrapped confidence interval of the median: the same for the same values."""
    return _between(_medians(values, numpy.random.default_rng(SEED)), statistics.median(values), confidence)


def measured(row, name, measure):
    """{round: value} of an allocator, none of one that failed."""
    result = row["results"].get(name)
    if not result or result["error"]:
        return {}
    values = {run["round"]: run[measure] for run in result["runs"] if measure in run}
    if measure == "net_kib":
        values = {number: max(value, LEAST_KIB) for number, value in values.items()}
    return values


def costs(row, name, measure):
    """Like measured(), as something of which less is better; none if it is not always above zero."""
    values = measured(row, name, measure)
    if any(value <= 0 for value in values.values()):
        return {}
    inverse = measure == "figure" and row["more_is_better"]
    return {number: 1 / value for number, value in values.items()} if inverse else values


def is_counted(row):
    """Whether figures are exact counts, for which one round is enough."""
    return row["kind"] == "calls"


def time_measure(row):
    """The key of a run by which a row's time is judged, None if it says nothing."""
    if row["idle"] or is_counted(row):
        return None
    if row["kind"] == "command":
        return "cpu"
    return "figure" if TIME_UNIT.fullmatch(row["unit"]) else None


def memory_measure(row):
    if is_counted(row):
        return None
    return "peak_kib" if row["kind"] == "command" else "net_kib"


def peers_of(row):
    return [name for name in row["results"] if name != OURS]


def _half(row, values, odd):
    """The odd or the even rounds of a row."""
    if is_counted(row) or row["idle"]:
        return values
    return {number: value for number, value in values.items() if number % 2 == odd}


def choose(row, measure, names):
    """The one of the names with the least median cost on the odd rounds, None if there is none."""
    medians = {name: statistics.median(values.values())
               for name in names if (values := _half(row, costs(row, name, measure), odd=1))}
    return min(medians, key=medians.get) if medians else None


def near_the_best_time(row):
    """The peers that compete in memory, on the odd rounds; all where time says nothing."""
    measure = time_measure(row)
    if not measure:
        return peers_of(row)
    medians = {name: statistics.median(values.values())
               for name in peers_of(row) if (values := _half(row, costs(row, name, measure), odd=1))}
    return [name for name, median in medians.items() if median <= NEAR * min(medians.values())]


def _too_few(row, values):
    """None, or why so many values allow no verdict."""
    least = 1 if is_counted(row) else LEAST_SCENES if row["idle"] else LEAST_ROUNDS
    return None if len(values) >= least else TOO_FEW


def _why_none(row, measure, names):
    """Why there is nothing to compare, in some rounds at least."""
    missing = [name for name in (OURS, *names) if not measured(row, name, measure)]
    if OURS in missing or len(missing) == len(names):
        return f"no figure of {missing[0] if len(names) == 1 or OURS in missing else 'a peer'}"
    return TOO_FEW


# --- targets of a row -----------------------------------------------------------------------------------------------


def _reached(found, relation, limit):
    worst, best = (found.low, found.high) if relation == ">=" else (found.high, found.low)
    reaches = operator.ge if relation == ">=" else operator.le
    return "met" if reaches(worst, limit) else "undecided" if reaches(best, limit) else "missed"


def _name_of(measure, row):
    known = {"figure": row["unit"], "net_kib": "peak RSS, net", "peak_kib": "peak RSS"}
    return known.get(measure) or measure.replace("_kib", ", KiB").replace("_ns", ", ns").replace("_", " ")


def judge_target(row, target):
    what = _name_of(target.measure, row)
    ours = measured(row, OURS, target.measure)
    other = target.against
    if other == "best":
        rivals = [name for name in peers_of(row) if name != SYSTEM]
        most = target.measure == "figure" and row["more_is_better"]
        odd = {name: statistics.median(values.values())
               for name in rivals if (values := _half(row, measured(row, name, target.measure), odd=1))}
        other = (max if most else min)(odd, key=odd.get) if odd else None
        ours = _half(row, ours, odd=0)
    text = f"{what}: {OURS}"
    if target.against:
        text += f" {'-' if target.difference else '/'} {other or 'best peer'}"

    def give(found, rounds, verdict):
        return Judgement("target", row["name"], target.measure, other or None, target.relation, target.limit,
                         found and found.low, found and found.median, found and found.high, rounds, text, verdict)

    if not ours:
        return give(None, 0, f"no figure of {OURS}")
    values = list(ours.values())
    if target.against:
        theirs = measured(row, other, target.measure) if other else {}
        rounds = [number for number in ours if number in theirs]
        if not rounds:
            return give(None, 0, _why_none(row, target.measure, [other] if other else rivals))
        if target.difference:
            values = [ours[number] - theirs[number] for number in rounds]
        elif any(theirs[number] == 0 for number in rounds):
            return give(None, 0, f"{other}'s figure is zero")
        else:
            values = [ours[number] / theirs[number] for number in rounds]
    found = confidence_interval(values)
    return give(found, len(values), _too_few(row, values) or _reached(found, target.relation, target.limit))


# --- first place ----------------------------------------------------------------------------------------------------


def ratios(row, measure, other, odd=None):
    """The cost of hakmem over the other's in each round, or in every second one."""
    ours, theirs = costs(row, OURS, measure), costs(row, other, measure)
    if odd is not None:
        ours = _half(row, ours, odd)
    return [ours[number] / theirs[number] for number in ours if number in theirs]


def place(found):
    """Where hakmem stands, if this is its cost over another's."""
    if found.high < 1 - LEVEL:
        return "ahead"
    return "behind" if found.low > 1 + LEVEL else "level"


def _first_place(row, kind, measure, names):
    other = choose(row, measure, names)
    values = ratios(row, measure, other, odd=0) if other else []
    text = f"{kind}: {OURS} / {other or 'best peer'}"
    if not values:
        return Judgement(kind, row["name"], measure, other, "<=", 1.0, None, None, None, 0, text,
                         _why_none(row, measure, peers_of(row)))
    found = confidence_interval(values)
    return Judgement(kind, row["name"], measure, other, "<=", 1.0, found.low, found.median, found.high, len(values),
                     text, _too_few(row, values) or place(found))


def _dominated(row, time, memory):
    """By which peers hakmem is beaten in both; each is looked at by itself, on all rounds."""
    for name in peers_of(row):
        both = [ratios(row, measure, name) for measure in (time, memory)]
        if all(values and not _too_few(row, values) for values in both):
            found = [confidence_interval(values) for values in both]
            if all(place(each) == "behind" for each in found):
                text = f"{name} is ahead of {OURS} in both time and memory"
                yield Judgement("dominated", row["name"], time, name, "<=", 1.0, found[0].low, found[0].median,
                                found[0].high, len(both[0]), text, "dominated")


def judge_row(row, targets=()):
    """All that can be said of a row: its targets, and first place in time and in memory."""
    judgements = [judge_target(row, target) for target in targets]
    if not peers_of(row):
        return judgements
    time, memory = time_measure(row), memory_measure(row)
    if time:
        judgements.append(_first_place(row, "time", time, peers_of(row)))
    else:
        judgements.append(_first_place(row, "figure", "figure", peers_of(row)))
    if memory:
        judgements.append(_first_place(row, "memory", memory, near_the_best_time(row)))
    if time and memory:
        judgements += _dominated(row, time, memory)
    return judgements


def _geometric_mean(compared):
    """Of the medians of lists of ratios."""
    random = numpy.random.default_rng(SEED)
    logs = [numpy.log(_medians(values, random)) for values in compared]
    return _between(numpy.exp(numpy.mean(logs, axis=0)),
                    math.exp(statistics.fmean(math.log(statistics.median(values)) for values in compared)))


def whole_peaks(rows):
    """The geometric mean of peak sizes, what `true` takes included, over those of the leanest peers near the best time.
    None if nothing can be compared."""
    rows = [row for row in rows if memory_measure(row) == "net_kib"]
    compared = [ratios(row, "peak_kib", other, odd=0) for row in rows
                if (other := choose(row, "peak_kib", near_the_best_time(row)))]
    return _geometric_mean([values for values in compared if values]) if any(compared) else None


def judge_means(rows, judgements):
    """The geometric means, over all rows, of the medians against the peer that each row was judged by."""
    by_name = {row["name"]: row for row in rows}
    for kind, limit in MEAN_LIMITS.items():
        judged = [each for each in judgements if each.kind == kind and each.median is not None]
        if not judged:
            continue
        compared = [ratios(by_name[each.row], each.measure, each.against, odd=0) for each in judged]
        found = _geometric_mean(compared)
        too_few = any(_too_few(by_name[each.row], values) for each, values in zip(judged, compared))
        verdict = TOO_FEW if too_few else _reached(found, "<=", limit)
        yield Judgement(f"mean {kind}", None, judged[0].measure, None, "<=", limit, found.low, found.median,
                        found.high, len(judged), f"geometric mean of {kind}: {OURS} / best peer", verdict)


# --- two builds -----------------------------------------------------------------------------------------------------

CHECK_CONFIDENCE = 0.99  # many rows are looked at, and one of twenty would stand out by chance


def judge_change(row, base):
    """Where this build's cost has changed against the base's: judgements of kind time, memory, figure,
    instructions."""
    time, memory = time_measure(row), memory_measure(row)
    for kind, measure in (("time" if time else "figure", time or "figure"), ("memory", memory)):
        values = ratios(row, measure, base) if measure else []
        if values:
            found = confidence_interval(values, CHECK_CONFIDENCE)
            yield Judgement(kind, row["name"], measure, base, "<=", 1.0, found.low, found.median, found.high,
                            len(values), f"{kind}: {OURS} / {base}", _too_few(row, values) or place(found))
    counted = [row["results"].get(name, {}).get("instructions") for name in (OURS, base)]
    if all(counted):
        ratio = counted[0] / counted[1]
        yield Judgement("instructions", row["name"], "instructions", base, "<=", 1.0, ratio, ratio, ratio, 1,
                        f"instructions: {OURS} / {base}", place(Interval(ratio, ratio, ratio)))
