"""Memory: what stays resident after a peak, what a change of sizes costs, what idle threads and small programs hold.

Most are scenes (workloads/scene.h), which find out themselves how little could be resident: the pages on which a live
block lies, the floor. Their time says nothing.
"""

from ..row import Row, Target

ROUNDS = 3  # a scene repeats itself closely, and mostly sleeps

# Of 1.15 times the floor, and after malloc_trim of 1.08 times: what the program and the allocator's own may add.
IDLE_FLOOR = Target("settled_excess_kib", "<=", 4096)
TRIM_FLOOR = Target("trimmed_excess_kib", "<=", 3072)
SETTLED_COLUMNS = (("settled_kib", "idle KiB"), ("trimmed_kib", "trimmed KiB"), ("live_kib", "live KiB"),
                   ("floor_kib", "floor KiB"), ("settled_over_floor", "idle/floor %"),
                   ("trimmed_over_floor", "trimmed/floor %"))


def _scene(name, title, argv, unit, targets, columns):
    return Row(name=name, title=title, kind="workload", argv=argv, unit=unit, more_is_better=False, group="memory",
               targets=targets, columns=columns, rounds=ROUNDS, idle=True)


def _peak_idle(threads, run, targets):
    who = f"{threads} threads build, another" if threads > 1 else "one thread builds and"
    what = f"frees 90 % in runs of {run:,}" if run else "frees all but 1 % at random"
    return _scene(f"peak-idle-{threads}-{run or 'single'}", f"after a peak: {who} {what}",
                  ("peak_idle", threads, run, 256), "x live", (*targets, IDLE_FLOOR, TRIM_FLOOR), SETTLED_COLUMNS)


def _phase_change(run, limit):
    return _scene(f"phase-change-{run}", f"ten phases of 200 MiB, each another size; runs of {run} in 20 stay",
                  ("phase_change", 10, run, 200), "x live", (Target("figure", "<=", limit),),
                  (("scene_peak_kib", "peak KiB"), ("most_live_kib", "most live KiB"), ("last_kib", "at end KiB"),
                   ("live_kib", "live at end KiB"), ("floor_kib", "floor at end KiB")))


def _cycles(threads):
    return _scene(f"cycles-{threads}", f"30 bursts of 64 MiB, 0.3 s apart, in threads: {threads}",
                  ("cycles", threads, 30, 64, 300), "page faults",
                  # Those that never give back have the fewest faults.
                  (Target("figure", "<=", 1.2, "best"), Target("work_ms", "<=", 1.0, "best")),
                  (("work_ms", "work ms"), ("paused_kib", "paused KiB"), ("scene_peak_kib", "peak KiB")))


def _dropped_buffers(threads, who):
    return _scene(f"dropped-buffers-{threads}", f"64 buffers of 1-8 MiB dropped, then idle; {who}",
                  ("dropped_buffers", threads, 64, 8), "MiB", (Target("figure", "<=", 4),),
                  (("trimmed_kib", "trimmed KiB"), ("scene_peak_kib", "peak KiB")))


RUNS_OF_500 = (Target("figure", "<=", 2.3),)
RUNS_OF_5000 = (Target("figure", "<=", 1.5), Target("trimmed_over_live", "<=", 140))
LEANEST_SCENE = (Target("figure", "<=", 1.0, "best"),)

ROWS = (
    _peak_idle(8, 500, RUNS_OF_500),
    _peak_idle(8, 5000, RUNS_OF_5000),
    _peak_idle(8, 0, ()),
    _peak_idle(1, 500, RUNS_OF_500),
    _peak_idle(1, 5000, RUNS_OF_5000),
    _peak_idle(1, 0, ()),
    _phase_change(500, 1.30),
    _phase_change(50, 1.62),
    _scene("fragmentation", "churn under 64 MiB of live data whose sizes drift", ("fragmentation", 64, 20), "x live",
           LEANEST_SCENE,
           (("scene_peak_kib", "peak KiB"), ("last_kib", "at end KiB"), ("live_kib", "live KiB"),
            ("floor_kib", "floor KiB"))),
    _scene("server-day", "a server's peaks and lulls: memory at the end of the lulls",
           ("server_day", 4, 3, 800, 1500, 10), "x live", LEANEST_SCENE,
           (("settled_kib", "lull KiB"), ("live_kib", "live KiB"), ("floor_kib", "floor KiB"),
            ("scene_peak_kib", "peak KiB"), ("krequests_per_s", "krequests/s"))),
    _cycles(1),
    _cycles(2),
    _dropped_buffers(1, "one thread"),
    _dropped_buffers(2, "another thread sleeps"),
    _scene("retired-threads", "1,000 threads that have each worked once, and sleep", ("retired_threads", 1000, 2000),
           "KiB/thread", LEANEST_SCENE, SETTLED_COLUMNS),
    Row(name="small-program", title="1 MiB of small blocks, above the same program without", kind="above",
        argv=("small_program", 1024), base_argv=("small_program", 0), unit="KiB", more_is_better=False, group="memory",
        # 1 MiB and less than 300 KiB of anything else.
        targets=(Target("figure", "<=", 1024 + 300), Target("figure", "<=", 1.0, "best")), rounds=ROUNDS, idle=True,
        columns=(("resident_kib", "resident KiB"), ("floor_kib", "floor KiB"))),
    _scene("fork-free-200m", "a fork's child frees 200 MiB of its parent's blocks: what it copies",
           ("fork_free", 64, (200 << 20) // 64, 1), "ms", (Target("copied_kib", "<=", 4096),),
           (("copied_kib", "copied KiB"),)),
)
