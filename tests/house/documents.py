#!/usr/bin/env python3
"""Checks that what docs/architecture.md and docs/protocol-rules.md name is there.

A function in backquotes after a file's name is in that file, or in its header; other names of ours are somewhere in
src/ or include/. In the rules, Group.Name after a program is a test in that program's sources, and .Name another of the
same group.
"""

import os
import re
import sys
from pathlib import Path

ROOT = Path(os.environ["HAKMEM_SOURCE_DIR"])
SRC = ROOT / "src"

FILE = r"(?:base|heap|front|api|observe)/\w+\.(?:c|h|def)"
WORD = re.compile(rf"(?P<file>{FILE})|`(?P<name>(?:hk|hak|HK)_\w+)")
TEST = re.compile(r"TEST(?:_[FP])?\(\s*(\w+),\s*(\w+)\)")
RULE_TEST = re.compile(r"(?:(?P<program>\w+): )?(?P<group>[A-Z]\w*)?\.(?P<name>[A-Z]\w+)")


def text_of(path):
    """A source file and, for a .c, its header: functions that headers inline count as the file's."""
    return "".join(p.read_text() for p in (path, path.with_suffix(".h")) if p.is_file())


def missing_names(document):
    everything = "".join(p.read_text() for top in (SRC, ROOT / "include") for p in sorted(top.rglob("*")) if p.is_file())
    for number, line in enumerate(document.read_text().splitlines(), 1):
        for cell in line.split("|"):
            files = []
            after_name = False
            for match in WORD.finditer(cell):
                if match["file"]:
                    files = files * (not after_name) + [SRC / match["file"]]
                    after_name = False
                    if not files[-1].is_file():
                        yield f"{document.name}:{number}: there is no src/{match['file']}"
                    continue
                after_name = True  # a file after this begins another list
                where = "".join(map(text_of, files)) if files else everything
                if not re.search(rf"\b{match['name']}\b", where):
                    yield f"{document.name}:{number}: {match['name']} is not in " + (
                        " or ".join(str(f.relative_to(ROOT)) for f in files) or "src/ or include/")


def tests_of(program):
    """heap_pool is built from tests/heap/pool.cc."""
    source = ROOT / "tests" / (program.replace("_", "/", 1) + ".cc")
    return set(TEST.findall(source.read_text())) if source.is_file() else set()


def missing_tests(document):
    for number, line in enumerate(document.read_text().splitlines(), 1):
        program = group = ""
        for match in RULE_TEST.finditer(line.split("|")[-2] if line.startswith("|") else ""):
            program, group = match["program"] or program, match["group"] or group
            if (group, match["name"]) not in tests_of(program):
                yield f"{document.name}:{number}: {program} has no test {group}.{match['name']}"


def main():
    rules = ROOT / "docs/protocol-rules.md"
    found = [*missing_names(ROOT / "docs/architecture.md"), *missing_names(rules), *missing_tests(rules)]
    for line in found:
        print(line)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
