#!/usr/bin/env python3
"""Holds the instructions of the hot path: what malloc, free and their like execute for a small block, entry to ret.

The path is found in the shared library's code: from the function's first instruction, through its branches, to a ret,
without a call and without leaving the function. It is held to a limit of instructions, must have no call, locked
instruction, division or system call, and is compared with the listing in hot_path.golden: an instruction more, or a
load where there was none, is a visible diff. The listing names what each instruction is and which memory it uses, not
its registers.

    hot_path.py                  checks the library at $HAKMEM_LIB (default: build/release/libhakmem.so)
    hot_path.py --write          writes hot_path.golden anew; look at the diff before you commit it

The golden file holds for one version of the compiler. With another, only the limits are checked.
"""

import difflib
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
LIBRARY = Path(os.environ.get("HAKMEM_LIB", HERE.parents[1] / "build/release/libhakmem.so"))
GOLDEN = HERE / "hot_path.golden"

ALLOCATE_MAX, FREE_MAX = 14, 20
LIMITS = {
    "malloc": ALLOCATE_MAX,
    "hak_malloc": ALLOCATE_MAX,
    "_Znwm": ALLOCATE_MAX,
    "free": FREE_MAX,
    "hak_free": FREE_MAX,
    "_ZdlPv": FREE_MAX,
}

FORBIDDEN = re.compile(r"call|lock|i?div|syscall|mfence|cmpxchg|xadd")
# What reads its last operand, which others write, and what does not access the memory that it names.
READS_ONLY = re.compile(r"cmp|test|bt[bwlq]?$")
NO_ACCESS = re.compile(r"lea|nop|prefetch|endbr")
CONDITIONAL = re.compile(r"j(?!mp)")


class Instruction(NamedTuple):
    mnemonic: str
    operands: list

    def is_memory(self, operand):
        return "(" in operand or operand.startswith("%fs:")

    def accesses(self):
        """(loads, stores)"""
        if self.mnemonic == "push":
            return 0, 1
        if self.mnemonic == "pop":
            return 1, 0
        if NO_ACCESS.match(self.mnemonic) or not self.operands:
            return 0, 0
        *sources, target = map(self.is_memory, self.operands)
        if READS_ONLY.match(self.mnemonic):
            return int(any(sources) or target), 0
        overwrites = self.mnemonic.startswith(("mov", "set"))
        return int(any(sources) or (target and not overwrites)), int(target)

    def describe(self):
        loads, stores = self.accesses()
        memory = "thread" if any(o.startswith("%fs:") for o in self.operands) else \
                 "global" if any("(%rip)" in o for o in self.operands) else "memory"
        words = [f"{kind} ({memory})" for kind, n in (("load", loads), ("store", stores)) if n]
        if CONDITIONAL.match(self.mnemonic):
            words.append("branch")
        return f"    {self.mnemonic:<8}{', '.join(words)}".rstrip()


def run(*command):
    return subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE).stdout


def compiler():
    found = re.findall(r"\]\s+(\w.*)", run("readelf", "-p", ".comment", LIBRARY))
    return found[0].strip() if found else "unknown"


def functions():
    """name: (address, size) of what the library exports"""
    found = {}
    for line in run("readelf", "-W", "--dyn-syms", LIBRARY).splitlines():
        fields = line.split()
        if len(fields) >= 8 and fields[3] == "FUNC" and fields[6] != "UND":
            found[fields[7]] = int(fields[1], 16), int(fields[2])
    return found


def disassemble(address, size):
    """address: Instruction, next address"""
    text = run("objdump", "-d", "--no-show-raw-insn", f"--start-address={address:#x}",
               f"--stop-address={address + size:#x}", LIBRARY)
    listing = re.findall(r"^ +([0-9a-f]+):\t(.+)$", text, re.M)
    addresses = [int(at, 16) for at, _ in listing]
    code = {}
    for (_, line), at, behind in zip(listing, addresses, addresses[1:] + [address + size]):
        line = re.sub(r"^((?:addr32|data16|cs|bnd|notrack) )+", "", re.sub(r"\s+(#|<).*", "", line))
        mnemonic, _, rest = line.partition(" ")
        if mnemonic in ("lock", "rep", "repz", "repnz"):
            mnemonic, rest = f"{mnemonic} {rest.split()[0]}", rest.partition(" ")[2]
        operands = re.findall(r"(?:[^,(]|\([^)]*\))+", rest.strip())
        code[at] = Instruction(mnemonic, [o.strip() for o in operands]), behind
    return code


def paths(code, at, seen=()):
    """All ways from at to a ret without a call, and without a second visit of an instruction."""
    if at not in code or at in seen:    # at not in code: a jump out of the function, to the slow path
        return
    instruction, behind = code[at]
    seen += (at,)
    if instruction.mnemonic.startswith("ret"):
        yield [code[i][0] for i in seen]
    elif instruction.mnemonic.startswith("call"):
        return
    elif instruction.mnemonic.startswith("j"):
        yield from paths(code, int(instruction.operands[0], 16), seen)
        if CONDITIONAL.match(instruction.mnemonic):
            yield from paths(code, behind, seen)
    else:
        yield from paths(code, behind, seen)


def heading(name, path):
    loads, stores = (sum(column) for column in zip(*(i.accesses() for i in path)))
    branches = sum(bool(CONDITIONAL.match(i.mnemonic)) for i in path)
    return f"{name}: instructions {len(path)}, loads {loads}, stores {stores}, branches {branches}"


def main():
    exported = functions()
    listing = [f"compiler: {compiler()}"]
    problems = []
    for name, limit in LIMITS.items():
        ways = list(paths(disassemble(*exported[name]), exported[name][0]))
        if not ways:
            problems.append(f"{name} has no way from entry to ret without a call")
        for path in ways:
            listing += ["", heading(name, path)] + [i.describe() for i in path]
            if len(path) > limit:
                problems.append(f"{heading(name, path)}; at most {limit} instructions are allowed")
            problems += [f"{name} executes {i.mnemonic} {', '.join(i.operands)}" for i in path
                         if FORBIDDEN.match(i.mnemonic) or (i.mnemonic == "xchg" and i.accesses() != (0, 0))]

    if "--write" in sys.argv[1:]:
        GOLDEN.write_text("\n".join(listing) + "\n")
    golden = GOLDEN.read_text().splitlines()
    if golden[0] != listing[0]:
        print(f"only the limits are checked: {GOLDEN.name} was written with {golden[0].partition(': ')[2]}, "
              f"the library with {listing[0].partition(': ')[2]}")
    elif golden != listing:
        print("\n".join(difflib.unified_diff(golden, listing, GOLDEN.name, LIBRARY.name, n=8, lineterm="")))
        problems.append(f"the hot path differs from {GOLDEN.name}; if that is wanted: {Path(__file__).name} --write")
    print("\n".join(problems) or "\n".join(line for line in listing if ": " in line))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
