#!/usr/bin/env python3
"""Checks that what docs/architecture.md and docs/protocol-rules.md name is there.

A function, variable or macro in backquotes after the names of files, in one row of a table or one line of text, is
defined in one of these files, or in its header or source; without a file before it, it is somewhere in src/ or
include/.
In the rules, Group.Name after a program is a test in that program's source, and .Name another of the same group; each
program is a test that some CMakeLists.txt declares.
"""

import functools
import re
import sys

from layers import SRC, code_of

ROOT = SRC.parent

FILE = r"(?<![\w/])(?:base|heap|front|api|observe)/\w+\.(?:c|h|def)\b"
WORD = re.compile(rf"(?P<file>{FILE})|`(?P<name>(?:hk|hak|HK)_\w+)")
TEST = re.compile(r"TEST(?:_[FP])?\(\s*(\w+),\s*(\w+)\)")
PROGRAM = re.compile(r"(?<![\w/])(?:api|base|front|heap|observe|stress)_\w+")
RULE_TEST = re.compile(r"(?:(?P<program>\w+): )?(?P<group>[A-Z]\w*)?\.(?P<name>[A-Z]\w+)")


@functools.cache
def code_in(path):
    return code_of(path.read_text()) if path.is_file() else ""


def defines(path, name):
    """True if a source file, or its header, or a header's source, defines a name: not indented, and no declaration."""
    code = "".join(code_in(path.with_suffix(suffix)) for suffix in {path.suffix, ".c", ".h"})
    if re.search(rf"^#define {name}\b|^(?!extern)[a-zA-Z].*\b{name}(?: =|;|\[)", code, re.M):
        return True
    functions = re.finditer(rf"^[a-zA-Z].*\b{name}\([^;{{]*(.)", code, re.M)
    return any(match[1] == "{" for match in functions)


def missing_names(document):
    sources = [path for top in (SRC, ROOT / "include") for path in sorted(top.rglob("*")) if path.is_file()]
    everything = "".join(map(code_in, sources))
    for number, line in enumerate(document.read_text().splitlines(), 1):
        files, complete = [], False
        for match in WORD.finditer(line):
            if match["file"]:
                files = [] if complete else files
                complete = False
                files.append(SRC / match["file"])
                if not files[-1].is_file():
                    yield f"{document.name}:{number}: there is no src/{match['file']}"
                continue
            complete = True  # a file that follows begins another list
            name = match["name"]
            if files and not any(defines(path, name) for path in files):
                names = " or ".join(path.relative_to(ROOT).as_posix() for path in files)
                yield f"{document.name}:{number}: {name} is not defined in {names}"
            elif not re.search(rf"\b{name}\b", everything):
                yield f"{document.name}:{number}: {name} is nowhere in src/ or include/"


@functools.cache
def tests_of(program):
    """heap_pool is built from tests/heap/pool.cc."""
    source = ROOT / "tests" / (program.replace("_", "/", 1) + ".cc")
    return set(TEST.findall(source.read_text())) if source.is_file() else set()


@functools.cache
def programs():
    """The names of all tests; one that is declared in a loop stands for any that fits."""
    files = (ROOT / "tests").glob("*/CMakeLists.txt")
    names = [name for file in files for name in re.findall(r"hk_\w+_test\(([\w${}]+)", file.read_text())]
    return re.compile("|".join(re.sub(r"\$\{\w+\}", r"\\w+", name) for name in names))


def missing_tests(document):
    for number, line in enumerate(document.read_text().splitlines(), 1):
        program = group = ""
        tests = line.split("|")[-2] if line.startswith("|") else ""
        for match in PROGRAM.finditer(tests):
            if not programs().fullmatch(match[0]):
                yield f"{document.name}:{number}: no CMakeLists.txt declares a test {match[0]}"
        for match in RULE_TEST.finditer(tests):
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
