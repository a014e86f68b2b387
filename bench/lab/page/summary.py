"""What stands at the top of a machine's part of the page: how often hakmem is ahead, level, behind, and in which rows.

The verdicts are those of the result files (judge.py); nothing is judged here.
"""

from collections import Counter, defaultdict

from .. import judge
from ..allocators import OURS
from .tables import ratio_text

PLACES = ("ahead", "level", "behind")
KINDS = ("time", "memory", "figure")  # of first place


def summary(study):
    """{tiles, standings}: the figures to be seen first, and the rows by where hakmem stands in them."""
    by_kind = defaultdict(list)
    for each in study.verdicts:
        by_kind[each.kind].append(each)
    tiles = []
    if OURS in study.versions:
        tiles = [_place_tile("Time", by_kind["time"], by_kind["mean time"], "Against the fastest peer of each row."),
                 _place_tile("Peak memory", by_kind["memory"], by_kind["mean memory"],
                             "Against the leanest of the peers that are nearly as fast as the fastest.")]
        tiles = [tile for tile in tiles if tile]
        if by_kind["time"] and by_kind["memory"]:
            tiles.append(_dominated_tile(by_kind["dominated"]))
        tiles += filter(None, [_targets_tile(by_kind["target"])])
    return {"tiles": [*tiles, _failures_tile(study)], "standings": _standings(study, by_kind)}


def _tile(heading, big, after, text, counts=()):
    return {"heading": heading, "big": big, "after": after, "text": text, "counts": list(counts)}


def _counts(found, kinds):
    """The parts of a tile's bar; kinds: {verdict: the place whose colour it has}."""
    return [{"kind": place, "number": found[verdict], "text": f"{found[verdict]} {verdict}"}
            for verdict, place in kinds.items()]


def _place_tile(heading, judgements, mean, against):
    if not judgements:
        return None
    found = Counter(each.verdict for each in judgements)
    counts = _counts(found, {place: place for place in PLACES})
    unjudged = sum(number for verdict, number in found.items() if verdict not in PLACES)
    if unjudged == len(judgements):
        reasons = ", ".join(dict.fromkeys(each.verdict for each in judgements))
        return _tile(heading, "–", "", f"Judged in none of {unjudged} rows: {reasons}.")
    text = f"{', '.join(count['text'] for count in counts)}. {against}"
    if unjudged:
        text += f" Not judged: {unjudged} of {len(judgements)} rows."
    if not mean:
        return _tile(heading, str(found["ahead"]), f"of {len(judgements)} rows ahead", text, counts)
    text += (f" Geometric mean of {mean[0].rounds} rows, {mean[0].low:.3f} – {mean[0].high:.3f} with "
             f"{judge.CONFIDENCE:.0%} confidence. Aim: at most {mean[0].limit:g}, {mean[0].verdict}.")
    return _tile(heading, f"{mean[0].median:.3f}", "× the best peer's", text, counts)


def _dominated_tile(judgements):
    rows = dict.fromkeys(each.row for each in judgements)
    return _tile("Behind in both", str(len(rows)), f"row{'s' * (len(rows) != 1)}",
                 "Where one and the same peer is ahead in both time and memory"
                 + (f": {', '.join(rows)}." if rows else "."))


def _targets_tile(judgements):
    if not judgements:
        return None
    found = Counter(each.verdict for each in judgements)
    counts = _counts(found, {"met": "ahead", "undecided": "level", "missed": "behind"})
    missed = dict.fromkeys(each.row for each in judgements if each.verdict == "missed")
    text = f"{', '.join(count['text'] for count in counts)}."
    return _tile("Demands of single rows", str(found["met"]), f"of {len(judgements)} met",
                 f"{text} Missed in: {', '.join(missed)}." if missed else text, counts)


def _failures_tile(study):
    failed = Counter(name for row in study.rows for name in study.allocators if row.error(name))
    total = failed.total()
    ours = failed.pop(OURS, 0)
    text = f"Of {len(study.rows)} rows with {len(study.allocators)} allocators."
    if OURS in study.versions:
        text += f" {OURS}: {ours or 'none'}."
    others = ", ".join(f"{name} {count}" for name, count in failed.most_common())
    return _tile("Failed", str(total), "", text + (f" Others: {others}." if others else ""))


def _standings(study, by_kind):
    """A table for each place: the rows that are in it by their worst verdict. Behind is also what hakmem failed, and
    where one peer is ahead in both."""
    lines = defaultdict(list)
    dominating = defaultdict(list)
    for each in by_kind["dominated"]:
        dominating[each.row].append(each.against)
    judged = {kind: {each.row: each for each in by_kind[kind]} for kind in KINDS}
    for row in study.rows:
        of_row = {kind: judged[kind].get(row.name) for kind in KINDS}
        verdicts = [each.verdict for each in of_row.values() if each]
        error = row.error(OURS)
        if not verdicts and not error:
            continue
        place = next((place for place in reversed(PLACES) if place in verdicts), "not judged")
        lines["behind" if error or row.name in dominating else place].append({
            "row": row.name,
            "title": row.title,
            "cells": [_verdict_cell(of_row["time"] or of_row["figure"]), _verdict_cell(of_row["memory"])],
            "both": ", ".join(dominating.get(row.name, ())),
            "error": error,
            "worst": max((each.median for each in of_row.values() if each and each.median), default=0),
        })
    headings = (("behind", f"Where {OURS} is behind"), ("level", f"Where {OURS} is level"),
                ("ahead", f"Where {OURS} is ahead"), ("not judged", "Not judged"))
    return [
        {"heading": heading, "place": place, "both": place == "behind" and bool(dominating),
         "lines": sorted(lines[place], key=lambda line: (not line["error"], -line["worst"]))}
        for place, heading in headings
        if lines[place] or place == "behind" and any(lines[place] for place in PLACES)
    ]


def _verdict_cell(judgement):
    if not judgement:
        return {"ratio": "", "place": "", "text": ""}
    place = judgement.verdict if judgement.verdict in PLACES else ""
    if judgement.median is None:
        return {"ratio": "", "place": "", "text": judgement.verdict}
    text = f"{_interval(judgement)} × {judgement.against}"
    return {"ratio": ratio_text(judgement.median), "place": place,
            "text": text if place else f"{text}, {judgement.verdict}"}


def _interval(judgement):
    return f"{ratio_text(judgement.low)} – {ratio_text(judgement.high)}"
