"""Rows of one thread: how objects of all sizes come and go in programs, other than the short benchmark's hot loops."""

from ..row import Row

HALVES = (("build_ns", "build ns"), ("drop_ns", "drop ns"))


def _small(name, title, argv, unit, **more):
    return Row(name=name, title=title, kind="workload", argv=argv, group="small blocks", unit=unit,
               more_is_better=unit.endswith("/s"), **more)


def _large(name, title, argv, unit="us/op"):
    return Row(name=name, title=title, kind="workload", argv=argv, group="large blocks", unit=unit,
               more_is_better=False)


def _random_mixed(name, sizes, slots, steps):
    low, high = sizes
    return _small(f"random-mixed-{name}", f"objects that come and go: {low}-{high} B, {slots:,} slots",
                  ("random_mixed", slots, low, high, steps), "Mops/s")


def _burst(order, what, **more):
    return _small(f"burst-{order}", f"a million small blocks, then none: freed {what}",
                  ("burst", 16, 128, order, 1_000_000, 2_000_000), "ns/block", columns=HALVES, **more)


def _batches(name, what, sizes, order, at_once):
    return _small(f"batches-{name}", f"batch after batch of {what}", ("burst", *sizes, order, at_once, 10_000_000),
                  "ns/block", columns=HALVES)


KIB, MIB = 1 << 10, 1 << 20
TINY = (16, 128)
C7 = (513, 1024)

ROWS = (
    _random_mixed("tiny-400", TINY, 400, 10_000_000),
    _random_mixed("tiny-4096", TINY, 4096, 8_000_000),
    _random_mixed("tiny-100000", TINY, 100_000, 5_000_000),
    _random_mixed("tiny-1000000", TINY, 1_000_000, 4_000_000),
    _random_mixed("c7-4096", C7, 4096, 8_000_000),
    _random_mixed("c7-100000", C7, 100_000, 3_000_000),
    _random_mixed("1000000", (16, 520), 1_000_000, 4_000_000),
    _burst("in-order", "in order"),
    _burst("reversed", "last first"),
    _burst("shuffled", "in no order", short=True),
    _batches("equal", "400 blocks of 64 B, freed in order", (64, 64), "in-order", 400),
    _batches("reversed", "1,000 blocks of 16-512 B, freed last first", (16, 512), "reversed", 1000),
    _batches("shuffled", "1,000 blocks of 16-128 B, freed in no order", TINY, "shuffled", 1000),
    _small("string-tree", "a file tree: built level by level, dropped branch by branch",
           ("string_tree", 300_000, 900_000), "ns/node", columns=HALVES),
    _small("string-map", "std::map of strings, 200 at once, then dropped",
           ("string_map", 1000, 200, 400), "ns/entry", columns=HALVES),
    _small("json-dom", "JSON documents parsed into a tree, and dropped",
           ("json_dom", 4000, 24), "ns/value", columns=HALVES, short=True),
    _small("compiler-phases", "a compiler without arenas: tokens, tree, instructions, code",
           ("compiler_phases", 1000, 12_000), "us/function"),
    _small("small-vectors", "2,000 small vectors that grow at the same time",
           ("small_vectors", 2000, 20_000_000), "Mappends/s"),
    _small("string-builder", "strings built by a realloc for every piece",
           ("string_builder", 1000, 8_000_000), "Mappends/s"),
    _small("calloc-small", "zeroed objects that come and go: 16-512 B, 4,096 slots",
           ("calloc_mixed", 4096, 16, 512, 8_000_000), "us/op"),
    _small("aligned", "aligned blocks that come and go: alignments 16 B to 4 KiB",
           ("aligned", 4096, 5_000_000), "Mops/s"),
    _small("lru-cache", "a cache of 64 MiB that evicts what was used longest ago",
           ("lru_cache", 64 * KIB, 200_000, 2_000_000), "Mops/s"),
    _small("sessions", "sessions of C++ containers: made, changed, ended",
           ("sessions", 20_000, 300_000), "us/step"),
    _small("polymorphic", "a scene of C++ objects of ten classes, replaced at random",
           ("polymorphic", 8192, 4_000_000), "Mops/s"),
    _large("medium-mixed", "buffers and pages: 4-64 KiB, 512 slots, each page used",
           ("large_mixed", 1, 512, 4 * KIB, 64 * KIB, 2_000_000)),
    _large("large-mixed", "images and frames: 64 KiB - 4 MiB, 64 slots, each page used",
           ("large_mixed", 1, 64, 64 * KIB, 4 * MIB, 30_000)),
    _large("huge-mixed", "matrices and files: 5-25 MiB, 24 slots, each page used",
           ("large_mixed", 1, 24, 5 * MIB, 25 * MIB, 300)),
    _large("growing-buffers", "files and messages read into buffers that grow: 64 KiB - 16 MiB",
           ("growing_buffers", 2, 64 * KIB, 16 * MIB, 300), "us/MiB"),
    _large("calloc-large", "hash tables and bitmaps: calloc of 16 KiB - 1 MiB, 64 slots",
           ("calloc_mixed", 64, 16 * KIB, MIB, 12_000)),
)
