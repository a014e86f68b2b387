#!/usr/bin/env -S python3 -B
"""groff, whose programs have an operator new of their own and take their places from the environment, sets a long
manual page with tables."""

from program_test import ProgramTest, check

PAGE = [".TH LONG 7 2026-11-25", ".SH NAME", "long \\- a page with tables"]
for section in range(120):
    PAGE += [f".SH SECTION {section}", f"Word {section} of the text is followed by others, " * 20, ".TS", "allbox;",
             "l r c."]
    PAGE += [f"entry {row}\t{row * section}\t\\fBbold {row}\\fP" for row in range(20)]
    PAGE += [".TE"]

with ProgramTest("groff") as test:
    (test.dir / "long.7").write_text("\n".join(PAGE) + "\n")
    test.both(["groff", "-t", "-man", "-Tutf8", "long.7"], loaded=["groff", "troff", "grotty"])
    postscript = [test.run(["groff", "-t", "-man", "-Tps", "long.7"], hakmem, loaded=["groff", "troff", "grops"])
                  for hakmem in (False, True)]
    plain, with_hakmem = ([line for line in text.splitlines() if not line.startswith(b"%%CreationDate")]
                          for text in postscript)
    check(plain == with_hakmem and len(plain) > 1000, f"PostScript of {len(plain)} and {len(with_hakmem)} lines differs")
