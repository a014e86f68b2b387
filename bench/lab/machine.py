"""The machine that results come from: what of it makes figures comparable, and what a reader wants to know."""

import datetime
import os
import platform
from pathlib import Path

# What must be the same for two sets of runs to belong together.
IDENTITY = ("processor", "architecture", "cores", "memory_gib", "kernel", "libc", "page_kib", "huge_pages", "governor",
            "overcommit")
BUSY = 0.3  # of the cores


def _first_line(path, default="unknown"):
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").splitlines()[0].strip()
    except (OSError, IndexError):
        return default


def _processor():
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    fields = dict(tuple(map(str.strip, line.split(":", 1))) for line in lines if ":" in line)
    if "model name" in fields:
        return fields["model name"]
    if "CPU part" in fields:  # AArch64 gives numbers only
        return f"implementer {fields.get('CPU implementer')}, part {fields['CPU part']}"
    return platform.machine()


def cores():
    return len(os.sched_getaffinity(0))


def describe():
    memory = _first_line("/proc/meminfo").split()
    return {
        "processor": _processor(),
        "architecture": platform.machine(),
        "cores": cores(),
        "memory_gib": round(int(memory[1]) / 2**20, 1) if len(memory) > 1 else None,
        "kernel": platform.release(),
        "libc": os.confstr("CS_GNU_LIBC_VERSION"),
        "page_kib": os.sysconf("SC_PAGESIZE") // 1024,
        "huge_pages": _first_line("/sys/kernel/mm/transparent_hugepage/enabled"),
        "governor": _first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "none"),
        "overcommit": _first_line("/proc/sys/vm/overcommit_memory"),
        "environment": {key: value for key, value in sorted(os.environ.items()) if key.startswith("HAKMEM_")},
        "load": round(os.getloadavg()[0], 2),
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
    }


def lines(about):
    yield (
        f"{about['processor']} ({about['architecture']}), {about['cores']} cores, {about['memory_gib']} GiB; "
        f"Linux {about['kernel']}, {about['libc']}"
    )
    yield (
        f"pages of {about['page_kib']} KiB, huge pages {about['huge_pages']}, overcommit {about['overcommit']}, "
        f"governor {about['governor']}; {about['date']}"
    )
    for key, value in about["environment"].items():
        yield f"in the environment: {key}={value}"
    if about["load"] > BUSY * about["cores"]:
        yield f"note: the machine is busy (load {about['load']}); expect wide ranges"


def differences(before, now):
    """What of two descriptions makes them different machines: `what: before, now`."""
    return [f"{key}: {before.get(key)}, now {now[key]}"
            for key in (*IDENTITY, "environment") if before.get(key) != now[key]]
