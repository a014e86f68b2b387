# What the Python rows share: the system's CPython, each of whose objects is a block of the allocator. To be sourced
# after lib.sh. A row makes work.py, whose output is checked.

interpreter=/usr/bin/python3
needs $interpreter python3

work() {
    prove $interpreter
    timed python >tmp/output
    verify output <tmp/output
    report_cpu
}

# -s, -B: no packages of the user's, no compiled files written.
python() { counted env PYTHONMALLOC=malloc PYTHONHASHSEED=0 $interpreter -s -B work.py; }
