"""One benchmark from its first row to its last: measures, prints, judges, and writes after each row."""

import json
from dataclasses import asdict

from . import allocators, judge, machine, measure, results, rows, tables
from .progress import Progress

EVERY_RUN_FAILED = "every allocator failed it: the row is at fault, or the machine"


def runs_of(row, rounds):
    """How many rounds a row has, and how many are run for them."""
    return (row.rounds, row.rounds) if row.kind == "calls" else (rounds or row.rounds, (rounds or row.rounds) + 1)


def _blame(name, found):
    """Whether an allocator is to blame for failing a row. Others that failed alike speak for it."""
    mine = found[name]
    others = [each for other, each in found.items() if other != name]
    if not mine["error"] or (others and all(each["error"] for each in others)):
        return False
    return not (mine["in_doubt"] and any(each["in_doubt"] for each in others))


class Session:
    """What was found is in `result`, as result files have it. `base` is set where two builds are compared."""

    def __init__(self, result, chosen, lab, outputs, complain, base=None):
        self.result, self.chosen, self.lab = result, chosen, lab
        self.outputs, self.complain, self.base = outputs, complain, base
        self.failed = []  # the rows for which hakmem is to blame
        self._rows = {}  # name -> row.Row, of all rows that were or will be run

    def run(self, chosen_rows, rounds=None):
        """Runs the rows that the result has not yet. Ctrl-C ends it early, with KeyboardInterrupt."""
        self._rows = {row.name: row for row in rows.ROWS}
        # `true` comes first even if it was not asked for: the memory of every row is net of it.
        wanted = [rows.TRUE] + [row for row in chosen_rows if row is not rows.TRUE]
        done = {entry["name"] for entry in self.result["rows"]}
        todo = [row for row in wanted if row.name not in done]
        total = sum(runs_of(row, rounds)[1] for row in todo) * len(self.chosen)
        for entry in self.result["rows"]:
            self._note_failures(entry)
        with Progress(len(todo), total) as progress:
            for row in todo:
                self._run_row(row, rounds, progress)

    def _run_row(self, row, rounds, progress):
        progress.row(row.name)
        try:
            found = self.lab.run_row(row, self.chosen, runs_of(row, rounds)[0], progress.step)
        except measure.RowMissing as missing:
            progress.skip(runs_of(row, rounds)[1] * len(self.chosen))
            reason = str(missing)  # the exception is gone when it is said
            progress.say(lambda: self.complain(f"left out: {reason}"))
            return
        measure.subtract_true(found, found if row is rows.TRUE else self._true_results())
        # As it will be read back: what is judged now and what is judged of a file are the same.
        entry = json.loads(json.dumps(results.row_entry(row, found), allow_nan=False))
        self.result["rows"].append(entry)
        self.result["verdicts"] = [asdict(each) for each in self.judgements()]
        progress.say(lambda: self._tell(row, entry))

    def _tell(self, row, entry):
        """Prints and writes what was found of a row."""
        print("\n".join(tables.row_lines(entry, row.columns, self._judge_row(entry))), end="\n\n", flush=True)
        self._note_failures(entry)
        for output in self.outputs:
            output.update(self.result)

    def _true_results(self):
        return next((entry["results"] for entry in self.result["rows"] if entry["name"] == rows.TRUE.name), {})

    def _note_failures(self, entry):
        found = entry["results"]
        if _blame(allocators.OURS, found):
            self.failed.append(entry["name"])
        elif len(found) > 1 and all(each["error"] for each in found.values()):
            self.complain(f"{entry['name']}: {EVERY_RUN_FAILED}")

    def _judge_row(self, entry):
        if self.base:
            return list(judge.judge_change(entry, self.base))
        row = self._rows.get(entry["name"])
        return judge.judge_row(entry, row.targets if row else ())

    def judgements(self):
        """Of all rows so far."""
        found = [each for entry in self.result["rows"] for each in self._judge_row(entry)]
        return found if self.base else found + list(judge.judge_means(self.result["rows"], found))

    def summary_lines(self):
        if self.base:
            return tables.change_lines(self.result["rows"], self.judgements(), self.base)
        return tables.summary_lines(self.result["rows"], self.judgements())


def heading_lines(about, chosen):
    yield from machine.lines(about)
    for each in chosen:
        settings = "".join(f", {key}={value}" for key, value in each.environment)
        yield f"  {each.name}: {each.version}{settings}"
