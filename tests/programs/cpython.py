#!/usr/bin/env -S python3 -B
"""CPython's own tests of its containers, json, re, threads, subprocesses and garbage collector.

They run without hakmem, with it, and with it and PYTHONMALLOC=malloc, where every object is a malloc of its own. The
three run side by side, since the tests of threads and subprocesses mostly sleep. The same number must have run in each.
"""

import re

from program_test import ProgramTest, check, same

PYTHON = "/usr/bin/python3.11"  # Debian's, which has the package of tests
TESTS = "test_subprocess test_threading test_gc test_set test_json test_re test_dict test_list".split()  # longest first


def results(output):
    """What unittest says at the end of each module, without the times."""
    ran = re.findall(rb"Ran (\d+) tests? in [^\n]*\n\n([^\n]*)", output)
    check(len(ran) == len(TESTS), f"{len(ran)} of {len(TESTS)} test modules reported")
    return b"\n".join(b" ".join(result) for result in sorted(ran))


with ProgramTest(PYTHON, "/usr/lib/python3.11/test/test_dict.py") as test:
    command = [PYTHON, "-m", "test", "-v", "-j2", *TESTS]
    plain = test.start(command, hakmem=False)
    hakmem = test.start(command, hakmem=True)
    test.expect_loaded(["python3.11"], hakmem)
    all_malloc = test.start(command, hakmem=True, env={"PYTHONMALLOC": "malloc"})

    expected = results(plain.finish())
    same("results", expected, results(hakmem.finish()))
    same("results with PYTHONMALLOC=malloc", expected, results(all_malloc.finish()))
