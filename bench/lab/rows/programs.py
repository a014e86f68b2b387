"""Rows of real programs: what people run, each with a script in bench/programs that sets the scene and checks the
outcome. They differ less than workloads do, as programs do more than to allocate."""

from ..row import Row


def _program(name, title, unit="s"):
    return Row(name=name, title=title, kind="program", argv=(name,), group="real programs", unit=unit,
               more_is_better=unit.endswith("/s"), rounds=10)


ROWS = (
    _program("redis-small", "redis: a cache of small values under redis-benchmark, then SAVE", "requests/s"),
    _program("redis-mixed", "redis: values of 16 B to 64 KiB, replaced and deleted, BGSAVE", "commands/s"),
    _program("postgres", "postgres: pgbench's transactions and reports, 4 clients", "transactions/s"),
    _program("sqlite-memory", "sqlite3: tables, joins, JSON in a database in memory"),
    _program("sqlite-file", "sqlite3: the same in a file, with a write-ahead log"),
    _program("python-json", "CPython, PYTHONMALLOC=malloc: JSON written and read"),
    _program("python-objects", "CPython, PYTHONMALLOC=malloc: objects, dicts, sets, cycles"),
    _program("python-regex", "CPython, PYTHONMALLOC=malloc: regular expressions over logs"),
    _program("perl", "perl: hashes, records, sorting, substitution"),
    _program("lua", "lua5.4: tables, closures, strings, collected"),
    _program("node", "node: objects, JSON, Buffers, zlib, with two worker threads"),
    _program("javac", "javac: generated classes (the JVM's own memory, not its heap)"),
    _program("gcc", "gcc -O2: a generated C file of 8,000 lines"),
    _program("g++", "g++ -O1: C++17 full of templates of the standard library"),
    _program("rustc", "rustc: a generated crate, unoptimised"),
    _program("cppcheck", "cppcheck: analysis of C++, tokens and values by the million"),
    _program("git-repack", "git repack of a repository, from nothing, two threads"),
    _program("xmllint", "xmllint: a large document into a tree, XPath, written out"),
    _program("ghostscript", "ghostscript: pages rendered to pixels and to PDF"),
    _program("ruby", "ruby: strings, arrays, hashes: sorted, grouped, joined"),
    _program("graphviz", "graphviz: a graph laid out in layers and by springs"),
    _program("openscad", "openscad: solids cut and joined by exact arithmetic"),
    _program("z3", "z3: linear arithmetic, arrays and functions, solved"),
)
