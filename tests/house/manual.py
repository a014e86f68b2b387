#!/usr/bin/env python3
"""Checks that the manual pages name every function of the header and every option of the table."""

import os
import re
import sys
from pathlib import Path

SOURCE = Path(os.environ["HAKMEM_SOURCE_DIR"])
PAGES = Path(os.environ["HAKMEM_BUILD_DIR"]) / "man"


def main():
    functions = set(re.findall(r"\b(hak_\w+)\(", (SOURCE / "include/hakmem/hakmem.h").read_text()))
    options = set(re.findall(r"^HK_OPTION\(\s*(\w+)", (SOURCE / "src/base/options.def").read_text(), re.M))
    page3, page7 = ((PAGES / name).read_text() for name in ("hakmem.3", "hakmem.7"))
    synopsis = page3[page3.index(".SH SYNOPSIS"):page3.index(".SH DESCRIPTION")]
    missing = [f"hakmem.3: {name} is not in the synopsis" for name in functions if f"{name}(" not in synopsis]
    missing += [f"hakmem.3: {name} is not described" for name in functions
                if not re.search(rf"^\.BR? {name}\b", page3, re.M)]
    missing += [f"hakmem.7: HAKMEM_{name.upper()} is not described" for name in options
                if not re.search(rf"^\.B HAKMEM_{name.upper()}=", page7, re.M)]
    print("\n".join(sorted(missing)) or f"{len(functions)} functions and {len(options)} options are described")
    return 1 if missing or not functions or not options else 0


if __name__ == "__main__":
    sys.exit(main())
