# What the scripts of this folder share. Each sets the scene for one real program; the lab runs it as
#
#     NAME prepare DIR    once: makes the inputs, and records what the program makes of them with the C library's malloc
#     NAME run DIR        as often as wanted: runs the program on them, and compares with what was recorded
#
# BENCH_PRELOAD is the allocator's library (empty: the C library's own malloc), BENCH_ENVIRONMENT the variables that it
# needs, as K=V words. Only the program that counts gets them: not this shell, nor what prepares, asks, or checks. The
# last line of a run is `figure=.. unit=.. seconds=.. cpu=..` of that program, and rss_kib=.., its peak, where it is a
# server, which the lab does not see. Exit status: 0, 1 (wrong result, or the program failed), 2 (wrong arguments), 3
# (the row cannot be measured here: something is not installed; the message says what).
#
# A script sources this file, says what it needs, defines make_inputs and work, and ends with `main "$@"`. Both are
# called in DIR, and write nowhere else.
set -euo pipefail

NAME=${0##*/}
BENCH_PRELOAD=${BENCH_PRELOAD-}
PLAIN_PRELOAD=     # what stands for "no preload": the C library's path where a program brings another malloc along
recording=         # set while prepare records
wall_ms=0 cpu_ms=0 # of what was timed so far

# give_up STATUS MESSAGE
give_up() {
    echo "$NAME: $2" >&2
    exit "$1"
}

fail() { give_up 1 "self-check failed: $1"; }

# needs COMMAND|FILE PACKAGE
needs() {
    type -P "$1" >/dev/null || [[ -e $1 ]] || give_up 3 "$1 is not installed; on Debian: apt-get install $2"
}

# The path of the C library that this shell runs on, and thus other programs.
c_library() { awk '/\/libc[.-][^\/]*$/ { print $NF; exit }' /proc/self/maps; }

# Sets `allocator`: the environment of the program that counts.
choose_allocator() {
    local preload=${BENCH_PRELOAD:-$PLAIN_PRELOAD}
    [[ -z $preload || -f $preload ]] || give_up 2 "BENCH_PRELOAD: no library at $preload"
    read -ra allocator <<<"${BENCH_ENVIRONMENT-}"
    [[ -z $preload ]] || allocator+=("LD_PRELOAD=$preload")
}

# counted PROGRAM [ARGUMENT...]: runs it under the allocator.
counted() { env "${allocator[@]}" "$@"; }

# timed COMMAND [ARGUMENT...]: runs it, and adds what it and its children took to wall_ms and cpu_ms. If it fails, the
# message ends with the last thing it said on standard error.
timed() {
    local TIMEFORMAT='%3R %3U %3S' status=0 wall user system how
    { time "$@" 2>tmp/errors; } 2>tmp/times || status=$?
    if ((status)); then
        how="ended with exit status $status"
        ((status <= 128)) || how="was killed by SIG$(kill -l $((status - 128)))"
        give_up 1 "the program $how: $(sed '/lib\.sh: line [0-9]*:/d' tmp/errors | tail -n 1)"
    fi
    read -r wall user system <tmp/times
    ((wall_ms += 10#${wall/./}, cpu_ms += 10#${user/./} + 10#${system/./})) || true
}

in_seconds() { printf '%d.%03d' $(($1 / 1000)) $(($1 % 1000)); }

# prove EXECUTABLE [LIBRARY]: asks the loader where it would bind malloc and its kin, and fails unless that is the
# allocator. EXECUTABLE is what really runs, not a script that starts it; LIBRARY is a name (a pattern) of what does
# its work, if that is not the executable itself. Done once for an executable and an allocator.
prove() {
    local executable preload wanted stamp user origin proved=
    executable=$(readlink -f "$1")
    preload=${BENCH_PRELOAD:-$PLAIN_PRELOAD}
    wanted=${preload:-$(c_library)}
    stamp=proved/$(cksum <<<"$executable $preload" | tr ' ' -)
    [[ $stamp -nt $executable && $stamp -nt $wanted ]] && return
    # PID: binding file USER [0] to ORIGIN [0]: normal symbol `malloc' ...
    while read -r _ _ _ user _ _ origin _; do
        if [[ $origin -ef $wanted ]]; then
            # shellcheck disable=SC2053 # a pattern
            [[ ${user##*/} != ${2:-${executable##*/}} ]] || proved=yes
        # An executable at a fixed address may stand in for the allocator's functions with jumps to them.
        elif [[ ! $origin -ef $executable ]]; then
            give_up 1 "malloc of $user is bound to $origin, not to $wanted"
        fi
    done < <(env "${allocator[@]}" LD_TRACE_LOADED_OBJECTS=1 LD_WARN=1 LD_BIND_NOW=1 LD_DEBUG=bindings \
        "$executable" 2>&1 </dev/null | grep -E "symbol \`(malloc|calloc|realloc)'")
    [[ $proved ]] || give_up 3 "$executable takes no malloc from outside; it may bring one of its own"
    touch "$stamp"
}

# mapped PID: fails unless the process has the allocator's library mapped.
mapped() {
    local library=${BENCH_PRELOAD:-$PLAIN_PRELOAD}
    [[ -z $library ]] || grep -qF "$(readlink -f "$library")" "/proc/$1/maps" ||
        give_up 1 "process $1 ($(<"/proc/$1/comm")) does not run with $library"
}

# peak_of PID: the largest resident size that it has had, in KiB.
peak_of() { awk '$1 == "VmHWM:" { print $2 }' "/proc/$1/status"; }

# verify WHAT <DATA: records the data's checksum in prepare, compares it in a run.
verify() {
    local sum
    sum=$(sha256sum)
    if [[ $sum == "$(sha256sum </dev/null)" ]]; then
        fail "$1: empty"
    elif [[ $recording ]]; then
        echo "$sum" >"expected/$1"
    elif [[ $sum != "$(<"expected/$1")" ]]; then
        fail "$1 differs from what the program makes with the C library's malloc"
    fi
}

# wait_for WHAT PID COMMAND...: until the command succeeds, or the process ends, or it takes too long.
wait_for() {
    local what=$1 pid=$2 tries
    shift 2
    for ((tries = 0; tries < 1000; tries++)); do
        "$@" >/dev/null 2>&1 && return
        kill -0 "$pid" 2>/dev/null || give_up 1 "$what ended: $(tail -n 1 tmp/server.log)"
        sleep 0.02
    done
    give_up 1 "$what does not answer"
}

# report FIGURE UNIT [KEY=NUMBER...]
report() {
    local figure=$1 unit=$2
    shift 2
    echo "figure=$figure unit=$unit seconds=$(in_seconds $wall_ms) cpu=$(in_seconds $cpu_ms)${*:+ $*}"
}

# The figure of a program with one thread at work is processor time, which others on the machine disturb less.
report_cpu() { report "$(in_seconds $cpu_ms)" s; }
report_wall() { report "$(in_seconds $wall_ms)" s; }

main() {
    [[ $# == 2 && ($1 == prepare || $1 == run) ]] || give_up 2 "usage: $NAME prepare|run DIR"
    [[ -d $2 ]] || give_up 2 "no folder at $2"
    cd "$2"
    mkdir -p tmp
    # What the user's settings might change, and what programs leave behind.
    export LC_ALL=C TZ=UTC HOME=$PWD TMPDIR=$PWD/tmp
    unset LD_PRELOAD "${!GIT_@}" "${!PYTHON@}" "${!PERL@}" "${!PG@}" "${!LUA_@}" "${!NODE_@}" JAVA_TOOL_OPTIONS \
        JDK_JAVA_OPTIONS JDK_JAVAC_OPTIONS RUSTFLAGS GS_OPTIONS GS_LIB CPATH C_INCLUDE_PATH CPLUS_INCLUDE_PATH
    if [[ $1 == prepare ]]; then
        BENCH_PRELOAD='' BENCH_ENVIRONMENT='' recording=yes
        rm -rf expected proved prepared
        mkdir expected proved
        choose_allocator
        make_inputs
        work >/dev/null
        touch prepared
    else
        [[ -e prepared ]] || give_up 2 "$2 is not prepared; first: $NAME prepare $2"
        choose_allocator
        work
    fi
}
