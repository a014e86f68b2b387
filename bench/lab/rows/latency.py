"""Latency: the slowest of single calls. Start-up: what a process pays before and after it does anything."""

from ..row import Row, Target


def _call_latency(threads, who):
    return Row(name=f"call-latency-{threads}", title=f"single calls of malloc and free, timed; {who}", kind="workload",
               argv=("call_latency", threads, 20_000, 3_000_000 // threads), unit="ns", more_is_better=False,
               group="latency", threads=threads,
               targets=(Target("figure", "<=", 1.0, "best"), Target("p9999_ns", "<=", 1.0, "best")),
               columns=(("p50_ns", "p50"), ("p99_ns", "p99"), ("p9999_ns", "p99.99"), ("max_ns", "max"),
                        ("malloc_p999_ns", "malloc p99.9"), ("free_p999_ns", "free p99.9")))


def _start_up(name, program, language):
    return Row(name=name, title=f"200 starts of a tiny program in {language}", kind="workload",
               argv=("start_up", program, 200), unit="us/start", more_is_better=False, group="start-up",
               targets=(Target("figure", "<=", 1.0, "best"), Target("start_faults", "<=", 1.0, "best")),
               columns=(("start_cpu_us", "CPU us"), ("start_faults", "faults each"),
                        ("start_peak_kib", "peak KiB each")))


ROWS = (
    _call_latency(1, "one thread"),
    _call_latency(2, "two threads at work"),
    _start_up("start-up-c", "tiny_c", "C"),
    _start_up("start-up-cxx", "tiny_cxx", "C++"),
)
