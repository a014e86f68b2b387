#!/bin/sh
# The library shows the world its API and nothing else, and needs the C library and nothing else.
set -u
failures=0

complain() {
    echo "$1:"
    echo "$2" | sed 's/^/    /'
    failures=$((failures + 1))
}

api='^(malloc|free|calloc|realloc|reallocarray|aligned_alloc|posix_memalign|memalign|valloc|pvalloc|cfree'
api="$api|free_sized|free_aligned_sized|malloc_usable_size|malloc_trim|malloc_stats|malloc_info|mallinfo2?|mallopt"
api="$api|__libc_[a-z]+|__posix_memalign|_Z(nw|na)m.*|_Zd[la]Pv.*|hak_[a-z_]+)\$"

names=$(nm -D --defined-only "$HAKMEM_LIB" | grep -v ' [TW] dlopen$' | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }')
test -n "$names" || complain "$HAKMEM_LIB" "exports nothing"
others=$(echo "$names" | grep -vE "$api")
test -z "$others" || complain "exported, and not part of the API" "$others"

# In a program that links the archive every global name of ours is in its name space.
others=$(nm -g --defined-only "$HAKMEM_ARCHIVE" 2>/dev/null | awk 'NF == 3 { print $3 }' | grep -vE "$api|^hk_")
test -z "$others" || complain "global in the archive, and neither API nor hk_" "$others"

others=$(readelf -d "$HAKMEM_LIB" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | grep -vE '^(libc\.so\.6|ld-linux.*)$')
test -z "$others" || complain "libraries needed" "$others"

# What C++ needs is used where it is there; a C program must start without it.
others=$(nm -D --undefined-only "$HAKMEM_LIB" | awk '$1 == "U" { print $2 }' | grep -E '^(_Z|__cxa_|__gxx_|_Unwind_)')
others=$(echo "$others" | grep -vE '^(__cxa_finalize|__cxa_atexit)(@.*)?$')
test -z "$others" || complain "needed of C++, not weakly" "$others"

exit $((failures > 0))
