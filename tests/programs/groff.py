#!/usr/bin/env -S python3 -B
"""groff, whose programs have an operator new of their own and take their places from the environment, sets a long
manual page with tables."""

from program_test import ProgramTest

PAGE = [".TH LONG 7 2026-11-25", ".SH NAME", "long \\- a page with tables"]
for section in range(120):
    PAGE += [f".SH SECTION {section}", f"Word {section} of the text is followed by others, " * 20, ".TS", "allbox;",
             "l r c."]
    PAGE += [f"entry {row}\t{row * section}\t\\fBbold {row}\\fP" for row in range(20)]
    PAGE += [".TE"]

with ProgramTest("groff") as test:
    (test.dir / "long.7").write_text("\n".join(PAGE) + "\n")
    test.both(["groff", "-t", "-man", "-Tutf8", "long.7"], loaded=["groff", "troff", "grotty"])
    test.both(["groff", "-t", "-man", "-Tps", "long.7"], loaded=["groff", "troff", "grops"])
