"""Result files: what a benchmark found, as JSON that can be continued, and as CSV, one line a run."""

import csv
import json
import os
import stat
import tempfile
from dataclasses import asdict
from pathlib import Path

from . import machine

CSV_MEASURES = ("figure", "seconds", "wall", "cpu", "user", "system", "peak_kib", "net_kib", "faults", "major_faults")


class Unusable(Exception):
    """A result file that cannot be continued; the message says why."""


def empty(about, chosen):
    return {
        "machine": about,
        "allocators": [asdict(each) for each in chosen],
        "rows": [],
        "verdicts": [],
    }


def row_entry(row, results):
    return {
        "name": row.name,
        "title": row.title,
        "group": row.group,
        "kind": row.kind,
        "command": list(row.argv),
        "unit": row.unit,
        "more_is_better": row.more_is_better,
        "short": row.short,
        "curve": row.curve,
        "threads": row.threads,
        "idle": row.idle,
        "results": results,
    }


def load(path):
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise Unusable(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:  # what is no text, too
        raise Unusable(f"{path} is no result file: {error}") from None
    if not isinstance(found, dict) or not all(key in found for key in ("machine", "allocators", "rows", "verdicts")):
        raise Unusable(f"{path} is no result file: machine, allocators, rows and verdicts are expected in it")
    return found


def demand_same(found, path, about, chosen):
    """Raises Unusable if runs made now would not be comparable with those found in a file."""
    different = machine.differences(found["machine"], about)
    if different:
        raise Unusable(f"{path} is of another machine, or of this one in another state: {'; '.join(different)}")
    before = {each["name"]: each["version"] for each in found["allocators"]}
    now = {each.name: each.version for each in chosen}
    for name in now | before:
        if before.get(name) != now.get(name):
            raise Unusable(f"{path} has another {name}: {before.get(name, 'none')}, now {now.get(name, 'none')}")


class Output:
    """A file that is written anew after each row, so that a benchmark that is interrupted leaves what it has. A file
    that cannot be written is said once, and tried again at the next row."""

    def __init__(self, path, write, complain):
        self.path, self._write, self._complain = path and Path(path), write, complain
        self.failed = False
        if path:  # to learn of it now rather than after the first row
            self._try(lambda: open(self.path, "a", encoding="utf-8").close())

    def update(self, result):
        if self.path:
            self._try(lambda: self._replace(result))

    def _try(self, action):
        try:
            action()
            self.failed = False
        except OSError as error:
            if not self.failed:
                self._complain(f"cannot write {self.path}: {error.strerror}")
            self.failed = True

    def _replace(self, result):
        """What is there stays until all of the new is written. Devices and pipes are written as they are."""
        if not stat.S_ISREG(os.stat(self.path).st_mode):
            with open(self.path, "w", encoding="utf-8", newline="") as stream:
                self._write(stream, result)
            return
        target = self.path.resolve()
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", newline="", dir=target.parent,
                                         prefix=f".{target.name}.", delete=False) as stream:
            try:
                self._write(stream, result)
                stream.flush()
                os.chmod(stream.name, stat.S_IMODE(os.stat(target).st_mode))
                os.replace(stream.name, target)
            except BaseException:
                os.unlink(stream.name)
                raise


def write_json(stream, result):
    json.dump(result, stream, indent=1, allow_nan=False)
    stream.write("\n")


def write_csv(stream, result):
    """The machine and the libraries in comment lines, then one line a run; a line without a round for what failed."""
    for line in machine.lines(result["machine"]):
        stream.write(f"# {line}\n")
    for each in result["allocators"]:
        stream.write(f"# {each['name']}: {each['version']}\n")
    runs = [run for row in result["rows"] for each in row["results"].values() for run in each["runs"]]
    others = sorted({key for run in runs for key, value in run.items() if isinstance(value, (int, float))}
                    - {"round", *CSV_MEASURES})
    measures = (*CSV_MEASURES, *others)
    table = csv.writer(stream, lineterminator="\n")
    table.writerow(("row", "allocator", "round", "unit", *measures, "error"))
    for row in result["rows"]:
        for name, each in row["results"].items():
            for run in each["runs"]:
                table.writerow((row["name"], name, run["round"], row["unit"],
                                *(run.get(key, "") for key in measures), ""))
            if each["error"]:
                table.writerow((row["name"], name, "", row["unit"], *("" for _ in measures), each["error"]))
