"""The rows of the short benchmark, and some of the same kind: hot loops, pipelines, thread churn, growth, start-up."""

from ..row import Row, Target

LEANEST = Target("net_kib", "<=", 1.05, "best")


def _random_mixed(name, what, slots, sizes, steps, short=True):
    low, high = sizes
    return Row(
        name=f"random-mixed-{name}",
        title=f"objects that come and go: {low}-{high} B, {what}",
        kind="workload",
        argv=("random_mixed", slots, low, high, steps),
        group="small blocks",
        short=short,
        unit="Mops/s",
        more_is_better=True,
        targets=(Target("figure", ">=", 1.15, "glibc"), Target("figure", ">=", 0.97, "best"), LEANEST),
    )


def _fixed_size(kib, steps, short=True):
    return Row(
        name=f"fixed-{kib}k",
        title=f"I/O buffers: blocks of {kib} KiB replaced at random among 64",
        kind="workload",
        argv=("fixed_size", kib * 1024, 64, steps),
        group="large blocks",
        short=short,
        unit="Mops/s",
        more_is_better=True,
        targets=(Target("figure", ">=", 0.9, "best"), LEANEST),
    )


def _producer_consumer(name, what, sizes, blocks):
    return Row(
        name=f"producer-consumer-{name}",
        title=f"a pipeline: one thread allocates, one frees, {what}",
        kind="workload",
        argv=("producer_consumer", *sizes, blocks),
        group="threads",
        short=True,
        threads=2,
        unit="Mblocks/s",
        more_is_better=True,
        targets=(Target("figure", ">=", 0.9, "best"), LEANEST),
        rounds=15,
    )


def _thread_churn(name, what, late, bound, short=True):
    return Row(
        name=f"thread-churn{name}",
        title=f"a thread for each request: {what}",
        kind="workload",
        argv=("thread_churn", 5000, 100, late, bound),
        group="threads",
        short=short,
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
    title="start-up: a program that does nothing",
    kind="command",
    argv=("true",),
    group="start-up",
    short=True,
    unit="page faults",
    more_is_better=False,
    targets=(Target("figure", "<=", 30, "glibc", difference=True), Target("figure", "<=", 1.2, "best")),
)

ROWS = (
    TRUE,
    _random_mixed("400", "400 slots", 400, (16, 1040), 10_000_000),
    _random_mixed("4096", "4,096 slots", 4096, (16, 1040), 8_000_000),
    _random_mixed("100000", "100,000 slots", 100_000, (16, 1040), 5_000_000),
    _random_mixed("c5", "4,096 slots (C5-heavy)", 4096, (129, 256), 8_000_000, short=False),
    _random_mixed("c6", "4,096 slots (C6-heavy)", 4096, (257, 768), 8_000_000),
    Row(
        name="memory-calls",
        title="system calls on memory of 200,000 random-mixed steps",
        kind="calls",
        argv=("random_mixed", 4096, 16, 1040, 200_000),
        group="memory",
        short=True,
        unit="calls",
        more_is_better=False,
        targets=(Target("figure", "<=", 60), Target("superslabs_mapped", "<=", 2)),
        rounds=1,
    ),
    _fixed_size(4, 5_000_000),
    _fixed_size(16, 5_000_000, short=False),
    _fixed_size(32, 5_000_000),
    _fixed_size(48, 2_500_000, short=False),
    _fixed_size(128, 2_500_000),
    _fixed_size(512, 2_000_000),
    _producer_consumer("64", "64 B", (64, 64), 2_500_000),
    _producer_consumer("mixed", "16-1040 B", (16, 1040), 1_000_000),
    _thread_churn("", "each frees what the last one left", 0, 0),
    _thread_churn("-bound", "the same on one processor", 0, 1, short=False),
    _thread_churn("-late", "half is freed by destructors that run late", 1, 0, short=False),
    Row(
        name="realloc-growth",
        title="a string builder: grows from 4 KiB to 256 MiB by half",
        kind="workload",
        argv=("realloc_growth", 256),
        group="large blocks",
        short=True,
        unit="ms",
        more_is_better=False,
        targets=(Target("figure", "<=", 0.6, "best"), Target("figure", "<=", 1.0, "glibc"), LEANEST),
    ),
    Row(
        name="calloc-sparse",
        title="sparse tables: calloc of 1 MiB, one byte a page read",
        kind="workload",
        argv=("calloc_sparse", 1 << 20, 8, 2500),
        group="large blocks",
        short=True,
        unit="us/block",
        more_is_better=False,
        targets=(Target("figure", "<=", 1.0, "best"), LEANEST),
    ),
    Row(
        name="idle-threads",
        title="1,000 idle connections: a thread each, with four blocks",
        kind="above",
        argv=("idle_threads", 1000, 4),
        group="memory",
        short=True,
        base_argv=("idle_threads", 1000, 0),
        scale=1000.0,
        idle=True,
        unit="KiB/thread",
        more_is_better=False,
        targets=(Target("figure", "<=", 8), LEANEST),
    ),
    Row(
        name="buffer-heads",
        title="the headers of 64 buffers of 64 KiB, visited in turn",
        kind="workload",
        argv=("buffer_heads", 64 << 10, 64, 150_000),
        group="large blocks",
        short=True,
        unit="ns/touch",
        more_is_better=False,
        targets=(Target("figure", "<=", 1.5, "glibc"), LEANEST),
    ),
)
