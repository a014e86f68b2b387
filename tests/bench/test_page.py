#!/usr/bin/python3
"""The page and the picture of `bench report`: complete, well-formed, alone, and clear about files that are none."""

import copy
import json
import os
import re
import sys
import tempfile
import unittest
import xml.etree.ElementTree as ElementTree
from dataclasses import asdict
from html.parser import HTMLParser
from pathlib import Path

sys.dont_write_bytecode = True
SOURCE = Path(os.environ.get("HAKMEM_SOURCE_DIR", Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(SOURCE / "bench"))

from lab import judge, page  # noqa: E402

ALLOCATORS = ("hakmem", "glibc", "jemalloc", "mine")  # the last one is known to nobody
SLOWNESS = {"hakmem": 1.0, "glibc": 1.8, "jemalloc": 0.9, "mine": 1.3}
ROUNDS = 6
ERROR = "killed by SIGSEGV: <core> & more"
ADDRESS = re.compile(r"(?:https?:)?//(?!www\.w3\.org/2000/svg)[\w.]|url\((?!#)|@import|\bsrc=|href=\"(?!#)", re.I)
VOID = {"meta", "input", "link", "br", "hr", "img"}


def a_run(number, figure, slowness, **more):
    kib = 9000 * slowness + number
    return {"round": number, "figure": figure, "seconds": 0.2, "wall": 0.3, "cpu": 0.2, "user": 0.1, "system": 0.1,
            "peak_kib": kib + 1700, "net_kib": kib, "faults": 900 + number, "major_faults": 0} | more


def a_row(name, group, unit="Mops/s", more_is_better=True, figure=80.0, rounds=ROUNDS, **fields):
    """A row with a run of each allocator a round; more: keys of each run, by how slow the allocator is."""
    more = fields.pop("more", lambda slowness: {})
    results = {}
    for allocator in ALLOCATORS:
        slowness = SLOWNESS[allocator]
        value = figure / slowness if more_is_better else figure * slowness
        results[allocator] = {
            "runs": [a_run(number, value * (1 + number / 1000), slowness, **more(slowness))
                     for number in range(rounds)],
            "error": None, "in_doubt": False,
        }
    return {"name": name, "title": f"what {name} stands for", "group": group, "kind": "workload",
            "command": ["program", "1", "2"], "unit": unit, "more_is_better": more_is_better, "short": True,
            "curve": "", "threads": 1, "idle": False, "results": results} | fields


def samples(slowness):
    return {"samples": [[t / 10, int(5000 * slowness) + 100 * t, 4000 + 100 * t] for t in range(20)],
            "settled_kib": 5000 * slowness}


def quantiles(slowness):
    return {f"{prefix}{key}": value * slowness for prefix in ("malloc_", "free_")
            for key, value in (("p50_ns", 20), ("p99_ns", 90), ("p999_ns", 700), ("p9999_ns", 9000), ("max_ns", 4e5))}


def sample_result(rounds=ROUNDS):
    rows = [
        a_row("random-mixed", "small blocks", rounds=rounds),
        a_row("burst", "small blocks", "ms", False, rounds=rounds),
        *(a_row(f"server-{threads}", "threads", curve="server", threads=threads, figure=50.0 * threads, rounds=rounds)
          for threads in (1, 2, 4)),
        a_row("peak<idle>", "memory", "x live", False, 1.2, idle=True, more=samples, rounds=rounds),
        a_row("tail", "latency", "ns", False, 30.0, more=quantiles, rounds=rounds),
    ]
    rows[0]["results"]["glibc"]["instructions"] = 61.5
    rows[0]["results"]["hakmem"]["calls"] = {"mmap": 12, "madvise": 3}
    rows[1]["results"]["mine"] = {"runs": [], "error": ERROR, "in_doubt": False}
    del rows[2]["results"]["mine"]
    verdicts = [each for row in rows for each in judge.judge_row(row)]
    verdicts += judge.judge_means(rows, verdicts)
    return {
        "machine": {"processor": "Test Processor 9000", "architecture": "x86_64", "cores": 2, "memory_gib": 8.0,
                    "kernel": "6.1.0", "libc": "glibc 2.36", "page_kib": 4, "environment": {}, "load": 0.1,
                    "date": "2026-02-03T04:05:06+00:00"},
        "allocators": [{"name": name, "library": None, "version": f"{name} 1.2.3"} for name in ALLOCATORS],
        "rows": rows,
        "verdicts": [asdict(each) for each in verdicts],
    }


class Structure(HTMLParser):
    """What is wrong with how elements are nested, and which ids there are."""

    def __init__(self):
        super().__init__()
        self.open, self.problems, self.ids, self.links = [], [], [], []

    def handle_starttag(self, tag, attrs):
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        found = dict(attrs)
        if len(found) != len(attrs):
            self.problems.append(f"an attribute of {tag} is given twice, line {self.getpos()[0]}")
        if "id" in found:
            self.ids.append(found["id"])
        if "href" in found:
            self.links.append(found["href"].removeprefix("#"))

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.problems.append(f"</{tag}> closes another element, line {self.getpos()[0]}")


class PageCase(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="hakmem-page-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def file(self, name, content):
        path = self.folder / name
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return path

    def page(self, *results):
        """The page from results, by way of files."""
        files = [self.file(f"result-{number}.json", result) for number, result in enumerate(results, 1)]
        page.write_page([page.read_results(path) for path in files], self.folder / "page.html")
        return (self.folder / "page.html").read_text(encoding="utf-8")

    def picture(self, *results):
        page.write_picture(list(results), self.folder / "picture.svg")
        return (self.folder / "picture.svg").read_text(encoding="utf-8")

    def assert_sound(self, text):
        structure = Structure()
        structure.feed(text)
        structure.close()
        self.assertEqual(structure.problems + structure.open, [])
        self.assertEqual(len(structure.ids), len(set(structure.ids)), "an id is given twice")
        self.assertEqual([link for link in structure.links if link not in structure.ids], [])
        self.assertEqual(ADDRESS.findall(text), [], "the page refers to something outside of it")


class Page(PageCase):
    def test_is_complete_and_sound(self):
        result = sample_result()
        text = self.page(result)
        self.assert_sound(text)
        for row in result["rows"]:
            self.assertIn(f'id="m1-{row["name"]}"'.replace("<", "&lt;").replace(">", "&gt;"), text)
            self.assertIn(row["title"].replace("<", "&lt;").replace(">", "&gt;"), text)
        for name in ALLOCATORS:
            self.assertIn(f"{name} 1.2.3", text)
        for expected in ("Test Processor 9000", "3 February 2026", "Memory over time", "Scaling with threads",
                         "Latency of single calls", "tail: free", "mmap 12", "61.5",
                         "killed by SIGSEGV: &lt;core&gt; &amp; more", "Where hakmem is behind", "result-1.json"):
            self.assertIn(expected, text)
        self.assertNotIn("<core>", text)
        self.assertLess(len(text), 2_000_000)

    def test_names_the_rows_in_which_hakmem_is_behind(self):
        text = self.page(sample_result())
        behind = text[text.index("Where hakmem is behind"):text.index("Every row against the best")]
        self.assertIn("#m1-random-mixed", behind)  # jemalloc is the faster one there
        self.assertIn("× jemalloc", behind)

    def test_names_a_row_that_hakmem_failed(self):
        result = sample_result()
        row = result["rows"][0]
        row["results"]["hakmem"] = {"runs": [], "error": "self-check failed: lost", "in_doubt": False}
        result["verdicts"] = [asdict(each) for each in judge.judge_row(row)]
        text = self.page(result)
        self.assert_sound(text)
        behind = text[text.index("Where hakmem is behind"):text.index("Every row against the best")]
        self.assertIn("failed: self-check failed: lost", behind)

    def test_one_round_is_not_judged(self):
        text = self.page(sample_result(rounds=1))
        self.assert_sound(text)
        self.assertIn("too few rounds", text)
        self.assertNotIn("Where hakmem is behind", text)

    def test_without_memory(self):
        result = sample_result()
        result["verdicts"] = []
        for row in result["rows"]:
            for each in row["results"].values():
                each["runs"] = [{"round": run["round"], "figure": run["figure"]} for run in each["runs"]]
        text = self.page(result)
        self.assert_sound(text)
        self.assertNotIn("Memory over time", text)

    def test_without_hakmem(self):
        result = sample_result()
        result["verdicts"] = []
        result["allocators"] = [each for each in result["allocators"] if each["name"] != "hakmem"]
        for row in result["rows"]:
            del row["results"]["hakmem"]
        text = self.page(result)
        self.assert_sound(text)
        self.assertNotIn("hakmem is", text)

    def test_all_failed(self):
        result = sample_result()
        result["verdicts"] = []
        for row in result["rows"]:
            row["results"] = {name: {"runs": [], "error": ERROR, "in_doubt": True} for name in ALLOCATORS}
        self.assert_sound(self.page(result))

    def test_of_a_row_in_two_files_the_newer_counts_and_both_are_named(self):
        older, newer = sample_result(), sample_result()
        newer["machine"]["date"] = "2026-02-04T00:00:00+00:00"
        newer["rows"] = newer["rows"][:1]
        newer["rows"][0]["title"] = "the newer one"
        text = self.page(newer, older)
        self.assert_sound(text)
        self.assertIn("Measured in result-2.json and again in result-1.json, which is what is shown: random-mixed.",
                      text)
        self.assertIn("the newer one", text)
        self.assertNotIn("what random-mixed stands for", text)

    def test_each_machine_has_a_part(self):
        other = sample_result()
        other["machine"]["processor"] = "Another Processor"
        text = self.page(sample_result(), other)
        self.assert_sound(text)
        self.assertEqual(re.findall(r'<h2 class="machine">([^<]*)', text),
                         ["Test Processor 9000, 2 cores", "Another Processor, 2 cores"])

    def test_is_the_same_for_the_same_results(self):
        self.assertEqual(self.page(sample_result()), self.page(sample_result()))


class Picture(PageCase):
    def test_names_machine_and_allocators_in_both_themes(self):
        text = self.picture(sample_result())
        ElementTree.fromstring(text)
        for expected in ("Test Processor 9000, 2 cores", "prefers-color-scheme:dark", *ALLOCATORS):
            self.assertIn(expected, text)
        self.assertNotIn("#fe00", text)  # a made-up colour that stands for a role
        self.assertEqual(ADDRESS.findall(text), [])

    def test_is_of_one_machine(self):
        other = sample_result()
        other["machine"]["processor"] = "Another Processor"
        with self.assertRaisesRegex(page.ReportError, "one machine.*Test Processor 9000.*Another Processor"):
            self.picture(sample_result(), other)

    def test_needs_time_and_memory(self):
        result = sample_result()
        result["rows"] = [row for row in result["rows"] if row["idle"]]
        with self.assertRaisesRegex(page.ReportError, "time and memory"):
            self.picture(result)


class WrongFiles(PageCase):
    def assert_refused(self, content, *words):
        path = self.file("wrong.json", content)
        with self.assertRaises(page.ReportError) as caught:
            page.read_results(path)
        for word in (str(path), "expected", *words):
            self.assertIn(word, str(caught.exception))

    def test_no_json(self):
        self.assert_refused("row,allocator\n")
        self.assert_refused(json.dumps(sample_result())[:-100])

    def test_no_result(self):
        self.assert_refused([1])
        self.assert_refused({"machine": {}})

    def test_what_is_missing_is_named(self):
        for key in ("unit", "group", "more_is_better", "results"):
            result = sample_result()
            del result["rows"][0][key]
            self.assert_refused(result, "random-mixed", key)
        result = sample_result()
        result["rows"][0]["results"]["glibc"] = None
        self.assert_refused(result, "random-mixed", "glibc")

    def test_no_file(self):
        with self.assertRaisesRegex(page.ReportError, "nothing-here.json.*No such file"):
            page.read_results(self.folder / "nothing-here.json")

    def test_no_rows(self):
        result = sample_result()
        result["rows"] = result["verdicts"] = []
        with self.assertRaisesRegex(page.ReportError, "no rows"):
            self.page(result)

    def test_page_that_cannot_be_written(self):
        with self.assertRaisesRegex(page.ReportError, "cannot write .*no-folder/page.html"):
            page.write_page([sample_result()], self.folder / "no-folder/page.html")

    def test_results_are_left_as_they_are(self):
        result = sample_result()
        before = copy.deepcopy(result)
        page.write_page([result], self.folder / "page.html")
        self.assertEqual(result, before)


if __name__ == "__main__":
    unittest.main()
