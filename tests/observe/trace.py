#!/usr/bin/env python3
"""Traces a program and compares what is printed with what docs/trace.md says: every event of its table occurs, with
its fields in their order, and nothing else; each kind by itself; lines of several threads are whole; nothing when it is
off; one line for a bad value. A standard error that takes nothing does not harm the program.

What the lines say fits together: no slot is acquired twice, and a pass returns what the events before it sum up to.

Usage: trace.py SCENARIO, with HAKMEM_LIB and HAKMEM_SOURCE_DIR in the environment.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SLOT = 64 << 10
SUPERSLAB = 2 << 20
SLOTS = SUPERSLAB // SLOT
SIZE_CLASSES = Path(os.environ["HAKMEM_SOURCE_DIR"]) / "src/heap/size_class.h"
CLASSES = int(re.search(r"#define HK_NCLASSES (\d+)u", SIZE_CLASSES.read_text())[1])
KINDS = ["purge", "slot", "lru", "drain"]

failures = 0


def check(condition, *what):
    """Notes a failure, and goes on."""
    global failures
    if not condition:
        failures += 1
        print("failed:", *what)


def documented_events(path):
    """The table of docs/trace.md: {event: (kind, [field, ...])}."""
    events, kind = {}, None
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            if not line.startswith("|") or len(cells) != 3 or not cells[1].startswith("`"):
                continue
            if cells[0]:
                kind = cells[0].strip("`")
            event = re.match(r"`([a-z ]+)`", cells[1])[1]
            events[event] = (kind, re.findall(r"`(\w+)`", cells[2]))
    assert {kind for kind, _ in events.values()} == set(KINDS), "docs/trace.md has another table"
    return events


def run(scenario, trace, what="all", background="0", **options):
    """Runs the scenario with HAKMEM_TRACE=trace (None: not set); standard error as text, if that is not an option."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HAKMEM_")}
    environment.update(LD_PRELOAD=os.environ["HAKMEM_LIB"], HAKMEM_BACKGROUND=background)
    if trace is not None:
        environment["HAKMEM_TRACE"] = trace
    options = {"stderr": subprocess.PIPE, **options}
    result = subprocess.run([scenario, what], env=environment, text=True, timeout=60, check=False, **options)
    check(result.returncode == 0, trace, what, "status", result.returncode, (result.stderr or "")[-300:])
    return result.stderr


def parse(text, events):
    """[(event, {field: value, "ms": value})]; a line that does not fit the table is a failure."""
    found = []
    for line in text.splitlines():
        match = re.fullmatch(r"hakmem-trace: ms=([0-9]+) ([a-z]+ [a-z]+)((?: [a-z]+=[0-9]+)*)", line)
        if match is None or match[2] not in events:
            check(False, "no line of a trace:", line)
            continue
        fields = [field.split("=") for field in match[3].split()]
        check([name for name, _ in fields] == events[match[2]][1], "not the fields of the table:", line)
        found.append((match[2], {"ms": int(match[1]), **{name: int(value) for name, value in fields}}))
    check(text == "" or text.endswith("\n"), "the last line is not whole")
    return found


def check_values(lines):
    """What each line says can be so."""
    for event, f in lines:
        if "superslab" in f:
            check(f["superslab"] > 0 and f["superslab"] % SUPERSLAB == 0, event, f)
        if "slot" in f:
            check(f["slots"] >= 1 and f["slot"] + f["slots"] <= SLOTS, event, f)
        if "class" in f:
            check(f["class"] < CLASSES, event, f)
        if event == "purge slots":
            check(1 <= f["slots"] + f["failed"] <= SLOTS and f["failed"] == 0, event, f)
        elif event == "purge holes":
            check(f["slab"] % 16 == 0 and f["bytes"] % 4096 == 0 and f["bytes"] <= SUPERSLAB, event, f)
        elif event == "lru add":
            check(f["cached"] >= 1, event, f)
        elif event == "lru purge":
            check(f["purged"] == 1, event, f)
        elif event == "purge growth":
            check(f["grown"] > 0 and f["bytes"] > 0, event, f)
        elif event == "purge surplus":
            check(f["bytes"] > 0, event, f)
        elif event == "drain magazine":
            check(1 <= f["blocks"] <= 127, event, f)
        elif event == "drain outbox":
            check(0 not in (f[name] for name in f if name != "heap"), event, f)


def check_slots(lines):
    """Of one thread at a time: a slot is acquired when it is free, and released as it was acquired."""
    taken = {}
    for event, f in lines:
        if event == "slot acquire":
            for slot in range(f["slot"], f["slot"] + f["slots"]):
                check((f["superslab"], slot) not in taken, "acquired twice:", f)
                taken[f["superslab"], slot] = True
        elif event == "slot release":
            for slot in range(f["slot"], f["slot"] + f["slots"]):
                check(taken.pop((f["superslab"], slot), False), "released, but not acquired:", f)


def trace_all(scenario, kinds, events):
    """The lines of these kinds, in which each event of theirs occurs. On a machine that stands still for a second idle
    memory may go by another way: then the scenario is played again."""
    expected = {event for event, (kind, _) in events.items() if kind in kinds}
    for _ in range(3):
        lines = parse(run(scenario, ",".join(kinds)), events)
        found = {event for event, _ in lines}
        if found == expected:
            break
    check(found == expected, kinds, "print", sorted(found), "and not", sorted(expected))
    return lines


def check_all_events(scenario, events):
    start = time.monotonic()
    lines = trace_all(scenario, KINDS, events)
    end = time.monotonic()
    check({f["stage"] for event, f in lines if event == "slot acquire"} == {1, 2, 3}, "not all stages")
    check({f["level"] for event, f in lines if event == "purge pass"} == {0, 1, 3}, "not all levels")
    times = [f["ms"] for _, f in lines]
    check(times == sorted(times), "time goes back")
    check(start * 1000 - 50 <= times[0] and times[-1] <= end * 1000 + 50, "it is another clock")
    check_values(lines)
    check_slots(lines)
    print(len(lines), "lines of all events")


def check_kinds(scenario, events):
    for kinds in [[kind] for kind in KINDS] + [["drain", "slot"]]:
        trace_all(scenario, kinds, events)


def check_pass(scenario, events):
    """The bytes of a pass are those of its slots, holes and superslabs."""
    text = run(scenario, "purge,lru", "pass")
    match = re.fullmatch(r"(?s).*^pass\n(.*)passed\n", text, re.M)
    lines = parse(match[1], events)
    gone = {"purge slots": 0, "purge holes": 0, "lru purge": 0}
    for event, f in lines:
        if event in gone:
            gone[event] += f["slots"] * SLOT if "slots" in f else f.get("bytes", SUPERSLAB)
    passes = [f for event, f in lines if event == "purge pass"]
    check(all(gone.values()), "the test shows nothing:", gone)
    check(len(passes) == 1 and passes[0]["level"] == 3 and passes[0]["bytes"] == sum(gone.values()), gone, passes)


def check_threads(scenario, events):
    for background in "01":
        lines = parse(run(scenario, ",".join(KINDS), "threads", background), events)
        check_values(lines)
        check_slots(lines)
        check({"slot acquire", "slot release", "drain outbox"} <= {event for event, _ in lines}, "too few events")


def check_still(scenario, events):
    """The warm budget stays while somebody works, and goes when nobody has done anything for a second."""
    passes = [f for event, f in parse(run(scenario, "purge", "still", "1"), events) if event == "purge pass"]
    check(any(f["level"] == 2 and f["bytes"] > 1 << 20 for f in passes), "it stands still, and no pass sees:", passes)


def check_switch(scenario, events):
    text = run(scenario, None, "switch")
    match = re.fullmatch(r"on\n((?:hakmem-trace: .*\n)+)off\n", text)
    check(match is not None, "switched on and off, it prints", text[:300])
    if match is not None:
        check({event for event, _ in parse(match[1], events)} == {"slot acquire", "slot release"}, "not the slots")


def check_off_and_bad(scenario):
    for off, what in ((None, "all"), ("none", "threads")):
        check(run(scenario, off, what) == "", off, "prints something")
    for bad in ("", "all", "slots", "purg", "purge,", ",purge", "purge, slot", "Purge", "none,lru", "lru;slot", "1"):
        expected = (f"hakmem: HAKMEM_TRACE={bad} is not valid: expected none, or with commas between: "
                    "purge, slot, lru or drain; using none\n")
        text = run(scenario, bad, "threads")
        check(text == expected, repr(bad), "prints", text[:300])


def check_deaf_stderr(scenario):
    """The program does not notice; its own checks say so."""
    everything = ",".join(KINDS)
    run(scenario, everything, stderr=None, preexec_fn=lambda: os.close(2))
    with open("/dev/full", "w", encoding="ascii") as full:
        run(scenario, everything, "threads", stderr=full)
    reader, writer = os.pipe()
    os.set_blocking(writer, False)  # soon full: nobody reads
    run(scenario, everything, "threads", stderr=writer)
    os.close(reader)
    run(scenario, everything, "threads", stderr=writer)  # it does not die of SIGPIPE
    os.close(writer)


def check_other_file(scenario):
    """What a program opens where standard error was stays its own, but for the message of an error."""
    with tempfile.NamedTemporaryFile() as data:
        for what in ({}, {"stderr": None, "preexec_fn": lambda: os.close(2)}):
            run(scenario, ",".join(KINDS), f"daemon={data.name}", **what)
            text = data.read().decode()
            data.seek(0)
            check(re.fullmatch(r"hakmem: free\(0x[0-9a-f]+\): double free.*\n", text), "the file has", text[:300])


def main():
    scenario = sys.argv[1]
    events = documented_events(os.path.join(os.environ["HAKMEM_SOURCE_DIR"], "docs", "trace.md"))
    check_all_events(scenario, events)
    check_kinds(scenario, events)
    check_pass(scenario, events)
    check_threads(scenario, events)
    check_still(scenario, events)
    check_switch(scenario, events)
    check_off_and_bad(scenario)
    check_deaf_stderr(scenario)
    check_other_file(scenario)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
