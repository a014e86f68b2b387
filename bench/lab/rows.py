"""The rows of the short benchmark. Each names a program, what its figure is, and what hakmem's figures must reach.

A row is added by adding it here; a program by adding a file to bench/workloads.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Target:
    """What a measure of hakmem must reach: its ratio to another allocator's, its difference from it, or itself."""

    measure: str  # a key of a run: figure, net_kib, faults, growth_kib, ...
    relation: str  # ">=" or "<="
    limit: float
    against: str = ""  # "glibc", "best" (of the peers that are not the system's), or "" for the value itself
    difference: bool = False  # limit is on the difference from `against`, not on the ratio


@dataclass(frozen=True)
class Row:
    name: str
    title: str
    kind: str  # how it is run, see measure.py: workload, above, command, calls
    argv: tuple
    unit: str
    more_is_better: bool
    targets: tuple
    rounds: int = 10
    columns: tuple = ()  # further measures shown in the table: (key, heading) pairs
    scale: float = 1.0  # kind "above": the figure is the difference divided by this
    base_argv: tuple = field(default=())  # kind "above": what is subtracted


LEANEST = Target("net_kib", "<=", 1.05, "best")


def _random_mixed(name, what, slots, sizes, steps):
    low, high = sizes
    return Row(
        name=f"random-mixed-{name}",
        title=f"random mixed {low}-{high} B, working set {what}",
        kind="workload",
        argv=("random_mixed", slots, low, high, steps),
        unit="Mops/s",
        more_is_better=True,
        targets=(Target("figure", ">=", 1.15, "glibc"), Target("figure", ">=", 0.97, "best"), LEANEST),
    )


def _fixed_size(kib, steps):
    return Row(
        name=f"fixed-{kib}k",
        title=f"blocks of {kib} KiB, random replacement among 64",
        kind="workload",
        argv=("fixed_size", kib * 1024, 64, steps),
        unit="Mops/s",
        more_is_better=True,
        targets=(Target("figure", ">=", 0.9, "best"), LEANEST),
    )


def _producer_consumer(name, what, sizes, blocks):
    return Row(
        name=f"producer-consumer-{name}",
        title=f"one thread allocates, one frees, {what}",
        kind="workload",
        argv=("producer_consumer", *sizes, blocks),
        unit="Mblocks/s",
        more_is_better=True,
        targets=(Target("figure", ">=", 0.9, "best"), LEANEST),
        rounds=15,
    )


def _thread_churn(name, what, late):
    return Row(
        name=f"thread-churn{name}",
        title=f"5,000 short threads, each frees what its predecessor left{what}",
        kind="workload",
        argv=("thread_churn", 5000, 100, late),
        unit="us/thread",
        more_is_better=False,
        targets=(
            Target("figure", "<=", 1.0, "best"),
            # Flat: less than 30 bytes for each of the 4,900 threads between the two samples.
            Target("growth_kib", "<=", 306),
            LEANEST,
        ),
        columns=(("growth_kib", "growth KiB"),),
    )


# The row that gives every other row's net memory.
TRUE = Row(
    name="true",
    title="true: a program that does nothing",
    kind="command",
    argv=("true",),
    unit="page faults",
    more_is_better=False,
    targets=(Target("figure", "<=", 30, "glibc", difference=True), Target("figure", "<=", 1.2, "best")),
)

ROWS = (
    TRUE,
    _random_mixed("400", "400", 400, (16, 1040), 10_000_000),
    _random_mixed("4096", "4,096", 4096, (16, 1040), 8_000_000),
    _random_mixed("100000", "100,000", 100_000, (16, 1040), 5_000_000),
    _random_mixed("c5", "4,096 (C5-heavy)", 4096, (129, 256), 8_000_000),
    _random_mixed("c6", "4,096 (C6-heavy)", 4096, (257, 768), 8_000_000),
    Row(
        name="memory-calls",
        title="memory system calls of random mixed, 200,000 steps, working set 4,096",
        kind="calls",
        argv=("random_mixed", 4096, 16, 1040, 200_000),
        unit="calls",
        more_is_better=False,
        targets=(Target("figure", "<=", 60), Target("superslabs_mapped", "<=", 2)),
        rounds=1,
    ),
    _fixed_size(4, 5_000_000),
    _fixed_size(16, 5_000_000),
    _fixed_size(32, 5_000_000),
    _fixed_size(48, 2_500_000),
    _fixed_size(128, 2_500_000),
    _fixed_size(512, 2_000_000),
    _producer_consumer("64", "64 B", (64, 64), 2_500_000),
    _producer_consumer("mixed", "16-1040 B", (16, 1040), 1_000_000),
    _thread_churn("", "", 0),
    _thread_churn("-late", ", half of it in late destructors", 1),
    Row(
        name="realloc-growth",
        title="a buffer grows from 4 KiB to 256 MiB by x 1.5",
        kind="workload",
        argv=("realloc_growth", 256),
        unit="ms",
        more_is_better=False,
        targets=(Target("figure", "<=", 0.6, "best"), Target("figure", "<=", 1.0, "glibc"), LEANEST),
    ),
    Row(
        name="calloc-sparse",
        title="calloc of 1 MiB, one byte a page read",
        kind="workload",
        argv=("calloc_sparse", 1 << 20, 8, 2500),
        unit="us/block",
        more_is_better=False,
        targets=(Target("figure", "<=", 1.0, "best"), LEANEST),
    ),
    Row(
        name="idle-threads",
        title="1,000 threads hold four blocks each and sleep",
        kind="above",
        argv=("idle_threads", 1000, 4),
        base_argv=("idle_threads", 1000, 0),
        scale=1000.0,
        unit="KiB/thread",
        more_is_better=False,
        targets=(Target("figure", "<=", 8), LEANEST),
    ),
    Row(
        name="buffer-heads",
        title="first words of 64 buffers of 64 KiB touched in turn",
        kind="workload",
        argv=("buffer_heads", 64 << 10, 64, 150_000),
        unit="ns/touch",
        more_is_better=False,
        targets=(Target("figure", "<=", 1.5, "glibc"), LEANEST),
    ),
)
