#!/usr/bin/env python3
"""Checks the shared library as a file: what it exports, what it needs, how it is loaded."""

import os
import re
import subprocess
import sys
from pathlib import Path

LIBRARY = Path(os.environ["HAKMEM_LIB"])
SOURCE = Path(os.environ["HAKMEM_SOURCE_DIR"])

# A program that dlopens us finds some 1.6 KiB of surplus in glibc, which others want a part of.
STATIC_TLS_MAX = 1024
# Work at every start of every program: names to look up (some are of the C runtime's start files, eight are operators
# new and delete that others call, whoever defines them), and addresses to add the load address to, most of them in the
# initial state of a thread.
LOOKUPS_MAX = 60
# What README.md promises.
GLIBC_MAX = (2, 34)
RELATIVE_MAX = 128


def readelf(*options):
    return subprocess.run(["readelf", "-W", *options, LIBRARY], check=True, text=True, stdout=subprocess.PIPE).stdout


def declared():
    """The names in the public header and, of all, in the symbol map."""
    header = (SOURCE / "include/hakmem/hakmem.h").read_text()
    symbol_map = re.sub(r"#[^\n]*", "", (SOURCE / "packaging/libhakmem.map").read_text())
    names = re.search(r"global:(.*)local:\s*\*;", symbol_map, re.S).group(1)
    return set(re.findall(r"\b(hak_\w+)\(", header)), {name.strip() for name in names.split(";") if name.strip()}


def problems():
    in_header, in_map = declared()
    exported = set()
    for line in readelf("--dyn-syms").splitlines():
        fields = line.split()
        if len(fields) >= 8 and fields[4] in ("GLOBAL", "WEAK") and fields[6] != "UND":
            exported.add(fields[7].split("@")[0])
    for name in sorted(exported - in_map):
        yield f"exports {name}, which is not in packaging/libhakmem.map"
    for name in sorted(in_map - exported):
        yield f"does not define {name}, which is in packaging/libhakmem.map"
    for name in sorted({name for name in exported | in_map if name.startswith("hak_")} ^ in_header):
        yield f"{name} is not both in the header and exported"

    dynamic = readelf("--dynamic")
    needed = re.findall(r"\(NEEDED\).*\[(.+)\]", dynamic)
    if needed != ["libc.so.6"]:
        yield f"needs {needed}, not libc.so.6 alone"
    soname = re.findall(r"\(SONAME\).*\[(.+)\]", dynamic)
    major = re.search(r"HAK_VERSION_MAJOR (\d+)", (SOURCE / "include/hakmem/hakmem.h").read_text()).group(1)
    if soname != [f"libhakmem.so.{major}"]:
        yield f"has soname {soname}, not libhakmem.so.{major}"
    if not re.search(r"\(FLAGS_1\).*\bNODELETE\b", dynamic):
        yield "is not marked NODELETE: dlclose would unmap code that exiting threads will call"
    if not re.search(r"\(FLAGS_1\).*\bNOW\b", dynamic):
        yield "is not bound at load time"
    if "(TEXTREL)" in dynamic:
        yield "has relocations in its code"

    newest = max(tuple(map(int, version.split("."))) for version in re.findall(r"GLIBC_([\d.]+)", readelf("-V")))
    if newest > GLIBC_MAX:
        yield f"needs glibc {'.'.join(map(str, newest))}"

    segments = readelf("--segments")
    for line in segments.splitlines():
        fields = line.split()
        if fields[:1] == ["TLS"] and int(fields[5], 16) > STATIC_TLS_MAX:
            yield f"has {int(fields[5], 16)} bytes of static TLS, more than {STATIC_TLS_MAX}"
        if fields[:1] == ["GNU_STACK"] and "E" in fields[6]:
            yield "asks for an executable stack"
    if "GNU_RELRO" not in segments:
        yield "leaves its relocated data writable"

    relocations = readelf("--relocs")
    if "__tls_get_addr" in relocations or "DTPMOD" in relocations or "TLSDESC" in relocations:
        yield "reaches thread-local data by a call, not as initial-exec"
    kinds = re.findall(r"^[0-9a-f]{16} +[0-9a-f]{16} +(R_\w+)", relocations, re.M)
    relative = sum(kind.endswith("_RELATIVE") for kind in kinds)
    if relative > RELATIVE_MAX or len(kinds) - relative > LOOKUPS_MAX:
        yield (f"has {relative} relative relocations and {len(kinds) - relative} others, "
               f"more than {RELATIVE_MAX} and {LOOKUPS_MAX}")


def main():
    found = list(problems())
    print("\n".join(f"{LIBRARY.name} {problem}" for problem in found) or f"{LIBRARY.name} is in order")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
