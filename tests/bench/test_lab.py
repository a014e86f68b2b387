#!/usr/bin/python3
"""The bench lab: what it reads from programs, how it judges, what it writes, and what it does when something fails."""

import contextlib
import io
import json
import os
import sys
import tempfile
import unittest
from dataclasses import asdict
from pathlib import Path

sys.dont_write_bytecode = True
ROOT = Path(os.environ.get("HAKMEM_SOURCE_DIR") or Path(__file__).resolve().parents[2])
sys.path.insert(0, str(ROOT / "bench"))

from lab import (allocators, counts, judge, machine, markdown, measure, process, results, rows, session,  # noqa: E402
                 tables)
from lab.row import Row, Target  # noqa: E402

ROUNDS = 10


def runs(figures, net=1000):
    """One run for each figure; net is a number, or one for each."""
    nets = net if isinstance(net, list) else [net] * len(figures)
    return {"runs": [{"round": number, "figure": figure, "net_kib": each, "peak_kib": each + 1000}
                     for number, (figure, each) in enumerate(zip(figures, nets))],
            "error": None, "in_doubt": False}


def failed(reason="killed by SIGSEGV", in_doubt=False):
    return {"runs": [], "error": reason, "in_doubt": in_doubt}


def entry(found, unit="ns", more_is_better=False, **more):
    return {"name": "row", "title": "a row", "group": "small blocks", "kind": "workload", "command": ["x", 1],
            "unit": unit, "more_is_better": more_is_better, "short": True, "curve": "", "threads": 1, "idle": False,
            "results": found} | more


def near(value, count=ROUNDS):
    """Values that spread by one in a thousand."""
    return [value * (1 + (number % 3 - 1) / 1000) for number in range(count)]


def row(name="made-up", **more):
    fields = {"title": "made up", "kind": "workload", "argv": ("x",), "unit": "ns", "more_is_better": False,
              "group": "threads"} | more
    return Row(name=name, **fields)


class Parsing(unittest.TestCase):
    def test_numbers_samples_and_origin(self):
        said = measure.parse("sample t=0.25 resident_kib=12 live_kib=10\nnoise\n"
                             "sample t=0.5 resident_kib=14 live_kib=9\n"
                             "figure=1.5 unit=Mops/s p99_ns=120 seconds=0.25 cpu=1e-3 malloc=/a b/lib.so\n")
        self.assertEqual(said.numbers, {"figure": 1.5, "p99_ns": 120, "seconds": 0.25, "cpu": 0.001})
        self.assertIsInstance(said.numbers["p99_ns"], int)
        self.assertEqual(said.samples, [[0.25, 12, 10], [0.5, 14, 9]])
        self.assertEqual(said.origin, "/a b/lib.so")

    def test_what_is_no_number_does_not_count(self):
        said = measure.parse("figure=nan rate=inf unit=ms order=in-order lone =5 big=12")
        self.assertEqual(said.numbers.get("big"), 12)
        self.assertFalse({"figure", "rate", "unit", "order"} & said.numbers.keys())
        self.assertIsNone(said.origin)

    def test_nothing_printed(self):
        self.assertEqual(measure.parse(""), measure.Said({}, [], None))

    def test_sample_without_live_bytes(self):
        with self.assertRaisesRegex(process.RunFailed, "live_kib"):
            measure.parse("sample t=0.25 resident_kib=12\nfigure=1 malloc=/x\n")

    def test_strace_table(self):
        table = ("% time     seconds  usecs/call     calls    errors syscall\n"
                 "------ ----------- ----------- --------- --------- ----------------\n"
                 " 60.00    0.000060           4        13           mmap\n"
                 " 40.00    0.000040          10         4         1 madvise\n"
                 "------ ----------- ----------- --------- --------- ----------------\n"
                 "100.00    0.000100           5        17         1 total\n")
        self.assertEqual(counts.parse_strace(table), {"mmap": 13, "madvise": 4})


class Intervals(unittest.TestCase):
    def test_same_values_same_interval(self):
        values = [1.0, 1.1, 0.9, 1.05, 1.2, 0.97, 1.01, 1.3, 0.8, 1.0]
        self.assertEqual(judge.confidence_interval(values), judge.confidence_interval(values))

    def test_holds_the_median_and_lies_within_the_values(self):
        values = [1.0, 1.1, 0.9, 1.05, 1.2, 0.97, 1.01, 1.3, 0.8, 1.0]
        found = judge.confidence_interval(values)
        self.assertTrue(min(values) <= found.low <= found.median <= found.high <= max(values))
        wider = judge.confidence_interval(values, 0.99)
        self.assertTrue(wider.low <= found.low and found.high <= wider.high)

    def test_five_values_are_all_needed(self):
        found = judge.confidence_interval([1, 2, 3, 4, 5])
        self.assertEqual((found.low, found.median, found.high), (1, 3, 5))

    def test_covers_the_true_median_about_as_often_as_it_says(self):
        random = judge.numpy.random.default_rng(1)
        held = 0
        for _ in range(200):
            found = judge.confidence_interval(random.lognormal(0, 0.1, 15))
            held += found.low <= 1 <= found.high
        self.assertGreater(held, 175)

    def test_place(self):
        for low, high, verdict in ((0.8, 0.99, "ahead"), (0.8, 1.0, "level"), (0.999, 1.2, "level"),
                                   (1.001, 1.004, "level"), (1.01, 1.2, "behind")):
            self.assertEqual(judge.place(judge.Interval(low, (low + high) / 2, high)), verdict)

    def test_quartiles(self):
        self.assertEqual(judge.interval([3]), judge.Interval(3, 3, 3))
        self.assertEqual(judge.interval([1, 2, 3, 4, 5]), judge.Interval(2, 3, 4))


class FirstPlace(unittest.TestCase):
    def judged(self, row, targets=()):
        return {each.kind: each for each in judge.judge_row(row, targets)}

    def test_more_is_better_is_turned_into_cost(self):
        found = self.judged(entry({"hakmem": runs(near(110)), "glibc": runs(near(50)), "a": runs(near(100))},
                                  unit="Mops/s", more_is_better=True))["time"]
        self.assertEqual((found.verdict, found.against), ("ahead", "a"))
        self.assertAlmostEqual(found.median, 100 / 110, places=2)

    def test_chosen_on_odd_rounds_compared_on_even_ones(self):
        # The lucky one is fast on the odd rounds only; steady is the better of the two on the even rounds.
        lucky = [90 if number % 2 else 120 for number in range(ROUNDS)]
        found = self.judged(entry({"hakmem": runs(near(110)), "lucky": runs(lucky), "steady": runs(near(100))}))["time"]
        self.assertEqual((found.against, found.verdict, found.rounds), ("lucky", "ahead", 5))

    def test_noise_alone_does_not_flatter_the_field(self):
        """Ten peers that are all as fast as hakmem: one is the luckiest, and hakmem is level."""
        random = judge.numpy.random.default_rng(7)
        draw = lambda: runs([float(value) for value in random.normal(100, 3, ROUNDS)])
        verdicts = [self.judged(entry({"hakmem": draw()} | {f"peer{n}": draw() for n in range(10)}))["time"].verdict
                    for _ in range(40)]
        self.assertLessEqual(verdicts.count("behind"), 4)

    def test_memory_is_compared_among_peers_near_the_best_time(self):
        found = self.judged(entry({
            "hakmem": runs(near(100), net=900), "quick": runs(near(95), net=1000),
            "slow and lean": runs(near(200), net=100), "near and lean": runs(near(105), net=950)}))["memory"]
        self.assertEqual((found.against, found.verdict), ("near and lean", "ahead"))

    def test_whole_peaks_are_compared_with_what_true_takes(self):
        row = entry({"hakmem": runs(near(100), net=900), "fat start": runs(near(95), net=500),
                     "lean start": runs(near(105), net=950)})
        for name, start in (("hakmem", 1000), ("fat start", 6000), ("lean start", 1200)):
            for run in row["results"][name]["runs"]:
                run["peak_kib"] = run["net_kib"] + start
        self.assertAlmostEqual(judge.whole_peaks([row]).median, 1900 / 2150, places=3)
        self.assertIsNone(judge.whole_peaks([entry({"hakmem": runs(near(100))})]))

    def test_net_memory_below_a_page_is_a_page(self):
        found = self.judged(entry({"hakmem": runs(near(1), net=0), "a": runs(near(1), net=-8)}))["memory"]
        self.assertEqual((found.median, found.verdict), (1, "level"))

    def test_dominated_by_one_peer_in_both(self):
        both = {"hakmem": runs(near(100), net=1000), "quick": runs(near(80), net=1100),
                "lean": runs(near(105), net=500)}
        self.assertNotIn("dominated", self.judged(entry(both)))
        found = self.judged(entry(both | {"better": runs(near(90), net=900)}))["dominated"]
        self.assertEqual(found.against, "better")

    def test_too_few_rounds(self):
        found = self.judged(entry({"hakmem": runs(near(100, 4)), "a": runs(near(50, 4))}))
        self.assertEqual(found["time"].verdict, judge.TOO_FEW)
        found = self.judged(entry({"hakmem": runs([100]), "a": runs([50])}))
        self.assertEqual((found["time"].verdict, found["time"].median), (judge.TOO_FEW, None))

    def test_scenes_of_memory_are_judged_by_memory_and_their_figure(self):
        found = self.judged(entry({"hakmem": runs(near(1.5, 3)), "a": runs(near(2, 3))}, unit="x live", idle=True))
        self.assertEqual(set(found), {"figure", "memory"})
        self.assertEqual(found["figure"].verdict, "ahead")

    def test_counts_need_one_round(self):
        counted = {name: {"runs": [{"round": 0, "figure": figure}], "error": None, "in_doubt": False}
                   for name, figure in (("hakmem", 20), ("a", 30))}
        found = self.judged(entry(counted, unit="calls", kind="calls"))
        self.assertEqual({kind: each.verdict for kind, each in found.items()}, {"figure": "ahead"})

    def test_one_that_failed_does_not_compete(self):
        broken = runs(near(10)) | {"error": "exit status 1"}
        found = self.judged(entry({"hakmem": runs(near(100)), "broken": broken, "a": runs(near(120))}))
        self.assertEqual((found["time"].against, found["time"].verdict), ("a", "ahead"))

    def test_hakmem_failed(self):
        found = self.judged(entry({"hakmem": failed(), "a": runs(near(120))}))
        self.assertEqual(found["time"].verdict, "no figure of hakmem")

    def test_no_peer(self):
        self.assertEqual(self.judged(entry({"hakmem": runs(near(100))})), {})

    def test_means(self):
        first = entry({"hakmem": runs(near(80), net=500), "a": runs(near(100), net=1000)}, name="first")
        second = entry({"hakmem": runs(near(125), net=2000), "a": runs(near(100), net=1000)}, name="second")
        judged = [each for each_row in (first, second) for each in judge.judge_row(each_row)]
        means = {each.kind: each for each in judge.judge_means([first, second], judged)}
        self.assertAlmostEqual(means["mean time"].median, 1, places=2)
        self.assertAlmostEqual(means["mean memory"].median, 1, places=2)
        self.assertEqual((means["mean time"].verdict, means["mean time"].rounds), ("missed", 2))
        self.assertTrue(means["mean time"].low <= means["mean time"].median <= means["mean time"].high)

    def test_mean_is_met(self):
        only = entry({"hakmem": runs(near(80), net=500), "a": runs(near(100), net=1000)})
        verdicts = [each.verdict for each in judge.judge_means([only], judge.judge_row(only))]
        self.assertEqual(verdicts, ["met", "met"])


class Targets(unittest.TestCase):
    found = entry({"hakmem": runs(near(100), net=1000), "glibc": runs(near(50)[::-1]), "a": runs(near(90), net=2000),
                   "b": runs(near(104), net=500)}, unit="Mops/s", more_is_better=True)

    def verdict(self, *target, row=None, **more):
        return judge.judge_target(row or self.found, Target(*target, **more)).verdict

    def test_against_the_system(self):
        self.assertEqual(self.verdict("figure", ">=", 1.5, "glibc"), "met")
        self.assertEqual(self.verdict("figure", ">=", 2.5, "glibc"), "missed")
        self.assertEqual(self.verdict("figure", ">=", 2.0, "glibc"), "undecided")

    def test_against_the_best_which_is_not_the_system(self):
        judged = judge.judge_target(self.found, Target("figure", ">=", 0.9, "best"))
        self.assertEqual((judged.against, judged.verdict), ("b", "met"))
        judged = judge.judge_target(self.found, Target("net_kib", "<=", 1.05, "best"))
        self.assertEqual((judged.against, judged.verdict), ("b", "missed"))

    def test_value_itself_and_difference(self):
        self.assertEqual(self.verdict("net_kib", "<=", 1000), "met")
        self.assertEqual(self.verdict("net_kib", "<=", 999), "missed")
        self.assertEqual(self.verdict("figure", "<=", 60, "glibc", difference=True), "met")

    def test_no_verdict_says_why(self):
        self.assertEqual(self.verdict("growth_kib", "<=", 1), "no figure of hakmem")
        self.assertEqual(self.verdict("figure", "<=", 1, "absent"), "no figure of absent")
        zero = entry({"hakmem": runs(near(1)), "glibc": runs([0] * ROUNDS)})
        self.assertEqual(self.verdict("figure", "<=", 1, "glibc", row=zero), "glibc's figure is zero")
        short = entry({"hakmem": runs(near(1, 3)), "glibc": runs(near(1, 3))})
        self.assertEqual(self.verdict("figure", "<=", 1, "glibc", row=short), judge.TOO_FEW)


class TwoBuilds(unittest.TestCase):
    def test_slower_and_leaner(self):
        found = entry({"hakmem": runs(near(110), net=800) | {"instructions": 60.0},
                       "base": runs(near(100), net=1000) | {"instructions": 57.0}})
        judged = list(judge.judge_change(found, "base"))
        self.assertEqual({each.kind: each.verdict for each in judged},
                         {"time": "behind", "memory": "ahead", "instructions": "behind"})
        text = "\n".join(tables.change_lines([found], judged, "base"))
        for words in ("slower: row", "leaner: row", "more instructions: row"):
            self.assertIn(words, text)

    def test_no_change(self):
        found = entry({"hakmem": runs(near(100)), "base": runs(near(100))})
        text = "\n".join(tables.change_lines([found], list(judge.judge_change(found, "base")), "base"))
        self.assertIn("no row has changed", text)


class Files(unittest.TestCase):
    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())
        self.path = Path(self.folder, "result.json")
        self.said = []
        self.about = machine.describe()
        self.chosen = [allocators.Allocator("hakmem", "/x/libhakmem.so", "sha256 1"),
                       allocators.Allocator("glibc", None, "glibc 2.36")]
        self.result = results.empty(self.about, self.chosen)
        self.result["rows"].append(entry({"hakmem": runs([1.0, 2.0]), "glibc": failed()}))

    def test_written_and_read_back(self):
        results.Output(self.path, results.write_json, self.said.append).update(self.result)
        found = results.load(self.path)
        self.assertEqual(found, json.loads(json.dumps(self.result)))
        results.demand_same(found, self.path, self.about, self.chosen)
        self.assertEqual(os.listdir(self.folder), ["result.json"])

    def test_another_machine_or_library_is_refused(self):
        for change, word in (({"cores": 96}, "cores: 96"), ({"environment": {"HAKMEM_X": "1"}}, "HAKMEM_X")):
            found = self.result | {"machine": self.about | change}
            with self.assertRaisesRegex(results.Unusable, word):
                results.demand_same(found, "f", self.about, self.chosen)
        other = allocators.Allocator("hakmem", "/x/libhakmem.so", "sha256 2")
        with self.assertRaisesRegex(results.Unusable, "another hakmem: sha256 1, now sha256 2"):
            results.demand_same(self.result, "f", self.about, [other, self.chosen[1]])
        with self.assertRaisesRegex(results.Unusable, "another glibc: glibc 2.36, now none"):
            results.demand_same(self.result, "f", self.about, self.chosen[:1])

    def test_what_is_no_result_file(self):
        for text in ("", "[]", "{}", "\xff", '{"machine": {}}'):
            self.path.write_text(text, encoding="latin-1")
            with self.assertRaisesRegex(results.Unusable, "no result file"):
                results.load(self.path)
        with self.assertRaisesRegex(results.Unusable, "cannot read"):
            results.load("/nonexistent")

    def test_full_disk_is_said_once(self):
        output = results.Output("/dev/full", results.write_json, self.said.append)
        for _ in range(3):
            output.update(self.result)
        self.assertTrue(output.failed)
        self.assertEqual(self.said, ["cannot write /dev/full: No space left on device"])
        self.assertTrue(Path("/dev/full").is_char_device())

    def test_a_failed_write_keeps_what_was_there(self):
        results.Output(self.path, results.write_json, self.said.append).update(self.result)
        before = self.path.read_bytes()

        def run_out(stream, result):
            stream.write("half")
            raise OSError(28, "No space left on device")

        output = results.Output(self.path, run_out, self.said.append)
        output.update(self.result)
        self.assertTrue(output.failed)
        self.assertEqual(self.path.read_bytes(), before)
        self.assertEqual(os.listdir(self.folder), ["result.json"])

    def test_a_folder_that_is_not_there_is_said_at_once(self):
        self.assertTrue(results.Output("/nonexistent/x", results.write_json, self.said.append).failed)
        self.assertEqual(self.said, ["cannot write /nonexistent/x: No such file or directory"])

    def test_csv(self):
        stream = io.StringIO()
        results.write_csv(stream, self.result)
        lines = [line for line in stream.getvalue().splitlines() if not line.startswith("#")]
        self.assertEqual(len(lines), 4)
        self.assertTrue(lines[1].startswith("row,hakmem,0,ns,1.0,"))
        self.assertTrue(lines[3].startswith("row,glibc,,ns,") and lines[3].endswith("killed by SIGSEGV"))


class Running(unittest.TestCase):
    def rounds(self, fail=lambda name, number: None, count=3):
        """The order in which a, b and c are run, and what was found."""
        chosen = [allocators.Allocator(name, None, "") for name in "abc"]
        order = []

        def run_once(allocator, _):
            order.append(allocator.name)
            reason = fail(allocator.name, order.count(allocator.name))
            if reason:
                raise process.RunFailed(reason)
            return {"figure": 1.0}

        found = measure.Lab("/nonexistent")._run_rounds(row(), chosen, count, lambda text: None, run_once)
        return "".join(order), found

    def test_interleaved_and_rotated_after_one_warm_up(self):
        order, found = self.rounds()
        self.assertEqual(order, "cab" + "abc" + "bca" + "cab")
        self.assertEqual([run["round"] for run in found["a"]["runs"]], [0, 1, 2])

    def test_one_that_fails_is_left_out_and_keeps_what_it_had(self):
        order, found = self.rounds(lambda name, number: "broke" if name == "b" and number == 3 else None)
        self.assertEqual((order.count("b"), order.count("a")), (3, 4))
        self.assertEqual((found["b"]["error"], len(found["b"]["runs"])), ("broke", 1))

    def test_hung_program_is_ended_with_all_it_started(self):
        with self.assertRaisesRegex(process.RunFailed, "no end after 1 s") as caught:
            process.run(["/bin/sh", "-c", "sleep 77 & sleep 77"], os.environ, limit_s=1)
        self.assertTrue(caught.exception.in_doubt)

    def test_how_a_program_ended(self):
        self.assertEqual(process.how_it_ended(11, ""), "killed by SIGSEGV")
        self.assertEqual(process.how_it_ended(1 << 8, "first\nself-check failed: x\n"),
                         "exit status 1: self-check failed: x")

    def test_net_of_true(self):
        found = {"hakmem": runs([1.0, 1.0], net=5)}
        found["hakmem"]["runs"][0]["peak_kib"] = 3000
        measure.subtract_true(found, {"hakmem": {"runs": [{"peak_kib": 900}, {"peak_kib": 1000}, {"peak_kib": 1200}]}})
        self.assertEqual(found["hakmem"]["runs"][0]["net_kib"], 2000)

    def test_blame(self):
        good, doubt = runs([1.0]), failed("no end after 60 s", in_doubt=True)
        blame = lambda **found: session._blame("hakmem", found)
        self.assertFalse(blame(hakmem=good, a=failed()))
        self.assertTrue(blame(hakmem=failed(), a=good, b=failed()))
        self.assertTrue(blame(hakmem=failed()))
        self.assertTrue(blame(hakmem=doubt, a=good))
        self.assertFalse(blame(hakmem=doubt, a=good, b=doubt))
        self.assertFalse(blame(hakmem=failed(), a=failed(), b=failed()), "the row itself is broken")


class Rows(unittest.TestCase):
    def test_every_program_is_there(self):
        for each in rows.ROWS:
            folder = "programs" if each.kind == "program" else "workloads"
            there = list((ROOT / "bench" / folder).glob(f"{each.argv[0]}*"))
            self.assertTrue(there or each.kind == "command", f"{each.name}: no {each.argv[0]} in bench/{folder}")

    def test_hot_loops_end_with_a_number_of_steps(self):
        for each in filter(counts.has_steps, rows.ROWS):
            self.assertGreater(int(each.argv[-1]) // max(counts.SHARES), 0, each.name)

    def test_what_no_row_may_be(self):
        for wrong in ({"kind": "x"}, {"group": "x"}, {"title": "x" * 71}):
            with self.assertRaisesRegex(AssertionError, "made-up"):
                row(**wrong)

    def test_cores(self):
        self.assertTrue(row(threads=4).fits(2))
        self.assertFalse(row(threads=5).fits(2))

    def test_the_first_row_is_what_others_are_net_of(self):
        self.assertIs(rows.ROWS[0], rows.TRUE)


class Printed(unittest.TestCase):
    def test_numbers(self):
        for value, text in ((12, "12"), (1234.5, "1,234"), (12.34, "12.3"), (1.234, "1.23"), (0.01234, "0.012"),
                            (0, "0"), (0.0, "0.00"), (30.0, "30")):
            self.assertEqual(tables.number(value), text)

    def test_a_row_with_failures_and_no_figures(self):
        found = entry({"hakmem": failed("killed by SIGABRT"), "a": failed()})
        lines = "\n".join(tables.row_lines(found, (), judge.judge_row(found)))
        self.assertIn("hakmem: FAILED: killed by SIGABRT", lines)
        self.assertIn("no figure of hakmem", "\n".join(tables.summary_lines([found], judge.judge_row(found))))

    def test_markdown_names_what_is_behind(self):
        slow = entry({"hakmem": runs([2.0] * ROUNDS, 900), "a": runs([1.0] * ROUNDS)}, name="slow")
        fat = entry({"hakmem": runs([1.0] * ROUNDS, 3000), "a": runs([1.5] * ROUNDS), "b": runs([1.01] * ROUNDS)},
                    name="fat")
        gone = entry({"hakmem": failed(), "a": runs([1.0] * ROUNDS)}, name="gone")
        result = results.empty(machine.describe(), [allocators.Allocator("hakmem", "/x.so", "sha256 1")])
        result["rows"] = [slow, fat, gone]
        result["verdicts"] = [asdict(each) for row in result["rows"] for each in judge.judge_row(row)]
        lines = list(markdown.lines(result))
        text = "\n".join(lines)
        self.assertIn("| slow: a row | 2.00 ns | **2.00 [2.00 - 2.00] of a, behind** | 900 |", text)
        self.assertIn("| 3,000 | **3.00 [3.00 - 3.00] of b, behind** |", text)
        self.assertNotIn("gone", text)
        self.assertEqual(lines[-3:], ["* time, or the row's own figure: slow", "* memory: fat",
                                      "* a peer is ahead in both: no row"])

    def test_nothing_to_sum_up(self):
        self.assertEqual(list(tables.summary_lines([], [])), [])


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        unittest.main()
