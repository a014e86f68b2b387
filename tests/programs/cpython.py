#!/usr/bin/env -S python3 -B
"""CPython's own tests of its containers, json, re, threads, subprocesses and garbage collector.

They run without hakmem, with it, and with it and PYTHONMALLOC=malloc, where every object is a malloc of its own; side
by side, since the tests of threads and subprocesses mostly sleep. The same tests must have passed in each.
"""

import xml.etree.ElementTree as ElementTree

from program_test import ProgramTest, check, same

PYTHON = "/usr/bin/python3.11"  # Debian's, which has the package of tests
# The longest first, as two run at a time.
TESTS = "test_subprocess test_threading test_gc test_set test_json test_re test_dict test_list".split()
AT_LEAST = 1500  # test cases in these modules


def passed(report):
    """The names of the test cases that ran, one a line. That none failed is what the exit code says."""
    cases = ElementTree.parse(report).iter("testcase")
    names = sorted(case.get("name") for case in cases if case.find("skipped") is None)
    check(len(names) >= AT_LEAST, f"{report.name}: only {len(names)} test cases")
    return "\n".join(names).encode()


with ProgramTest(PYTHON, "/usr/lib/python3.11/test/test_dict.py") as test:
    def start(name, hakmem, env=None):
        # -W: the output of tests that fail, and of no others.
        return test.start([PYTHON, "-m", "test", "-W", "-j2", "--junit-xml", f"{name}.xml", *TESTS], hakmem, env)

    plain = start("plain", hakmem=False)
    hakmem = start("hakmem", hakmem=True)
    test.expect_loaded(["python3.11"], hakmem)
    all_malloc = start("all_malloc", hakmem=True, env={"PYTHONMALLOC": "malloc"})
    for run in plain, hakmem, all_malloc:
        run.finish()

    for name in "hakmem", "all_malloc":
        same(f"list of passed tests ({name})", passed(test.dir / "plain.xml"), passed(test.dir / f"{name}.xml"))
