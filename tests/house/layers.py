#!/usr/bin/env python3
"""Checks which layer of src/ includes which, and that system calls are made in one file only.

base <- heap <- front <- api. observe reads the first three, and api calls it.
"""

import os
import re
import sys
from pathlib import Path

SRC = Path(os.environ["HAKMEM_SOURCE_DIR"]) / "src"

MAY_INCLUDE = {
    "base": {"base"},
    "heap": {"base", "heap"},
    "front": {"base", "heap", "front"},
    "observe": {"base", "heap", "front", "observe"},
    "api": {"base", "heap", "front", "observe", "api"},
}
PUBLIC_HEADER = "hakmem/hakmem.h"

SYSTEM_CALLS = "mmap munmap mprotect madvise mremap mincore mlock prctl futex syscall sbrk brk open openat fopen"
SYSTEM_CALL = re.compile(r"(?<![\w.>])(%s)\s*\(" % "|".join(SYSTEM_CALLS.split()))
SYSTEM_CALL_FILES = {"base/os.c", "base/os.h"}


def code_of(text):
    """The text without comments and string literals, lines kept."""
    blank = lambda match: re.sub(r"[^\n]", " ", match.group())
    return re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', blank, text, flags=re.S)


def problems(path):
    name = path.relative_to(SRC).as_posix()
    layer = name.split("/")[0]
    if layer not in MAY_INCLUDE:
        yield f"{name}: src/{layer} is no layer"
        return
    text = path.read_text()
    for number, line in enumerate(text.splitlines(), 1):
        include = re.match(r'\s*#\s*include\s+(["<])([^">]+)[">]', line)
        if not include:
            continue
        quoted, target = include.group(1) == '"', include.group(2)
        if target.endswith(".c"):
            yield f"{name}:{number}: includes the source file {target}"
        if not quoted or (layer == "api" and target == PUBLIC_HEADER):
            continue
        if not (SRC / target).is_file():
            yield f"{name}:{number}: {target} is not named by its path from src/"
        elif target.split("/")[0] not in MAY_INCLUDE[layer]:
            yield f"{name}:{number}: {layer} must not include {target}"
    if name not in SYSTEM_CALL_FILES:
        for number, line in enumerate(code_of(text).splitlines(), 1):
            for call in SYSTEM_CALL.findall(line):
                yield f"{name}:{number}: calls {call}(), which is for base/os.c"


def main():
    paths = sorted(SRC.rglob("*.[ch]")) + sorted(SRC.rglob("*.def"))
    if not paths:
        sys.exit(f"no sources in {SRC}")
    found = [problem for path in paths for problem in problems(path)]
    print("\n".join(found) or f"{len(paths)} files keep to the layers")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
