#!/usr/bin/env -S python3 -B
"""make -j2 builds a small tree with a recursive make, a generated file and an archive; the program must be equal."""

from program_test import ProgramTest, check, same

MODULES = 40

MAKEFILE = """
MODULES := $(shell seq 1 %d)
OBJECTS := $(MODULES:%%=module%%.o)
all: program
program: main.o sub/libmodules.a
\t$(CC) -o $@ $^
sub/libmodules.a: FORCE
\t$(MAKE) -C sub libmodules.a
main.o: main.c table.h
table.h: Makefile
\tfor i in $(MODULES); do echo "int module$$i(int); "; done > $@
\techo "static int (*const table[])(int) = {$(foreach i,$(MODULES),module$(i),)};" >> $@
FORCE:
""" % MODULES

SUB_MAKEFILE = """
OBJECTS := $(patsubst %.c,%.o,$(sort $(wildcard module*.c)))
CFLAGS := -O1
libmodules.a: $(OBJECTS)
\trm -f $@
\t$(AR) rcD $@ $(OBJECTS)
%.o: %.c common.h
\t$(CC) $(CFLAGS) -c -o $@ $<
"""

MAIN = """
#include <stdio.h>
#include "table.h"
int main(void)
{
    for (int i = 0; i < (int)(sizeof table / sizeof *table); i++) printf("%d %d\\n", i, table[i](i));
    return 0;
}
"""

MODULE = """
#include "common.h"
int module%d(int x)
{
    char text[100];
    snprintf(text, sizeof text, "%%d %%d", x, %d);
    return x * (int)strlen(text) + %d;
}
"""

with ProgramTest("make", "gcc", "ar") as test:
    sub = test.dir / "tree/sub"
    sub.mkdir(parents=True)
    (test.dir / "tree/Makefile").write_text(MAKEFILE)
    (test.dir / "tree/main.c").write_text(MAIN)
    (sub / "Makefile").write_text(SUB_MAKEFILE)
    (sub / "common.h").write_text("#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n")
    for n in range(1, MODULES + 1):
        (sub / f"module{n}.c").write_text(MODULE % (n, n * 1001, n))

    for hakmem, name in (False, "plain"), (True, "hakmem"):
        test.run(["make", "-j2", "-C", "tree", "CC=gcc"], hakmem, loaded=["make", "cc1"])
        (test.dir / "tree/program").rename(test.dir / name)
        for made in [*sub.glob("*.[oa]"), *(test.dir / "tree").glob("*.o")]:
            made.unlink()
    same("program", test.dir / "plain", test.dir / "hakmem")
    lines = test.both([test.dir / "hakmem"], loaded=[]).splitlines()
    check(len(lines) == MODULES, f"the program wrote {len(lines)} lines")
