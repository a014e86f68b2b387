#!/bin/bash
# install.sh CC: installs into an empty prefix, moves that elsewhere, and builds and runs consumer/consumer.c against it
# in every way that a user has: pkg-config, the CMake package, plain -lhakmem, and libhakmem.a.
set -euo pipefail
cc=$1
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

# The packages must not depend on where they were first installed.
cmake --install "$HAKMEM_BUILD_DIR" --prefix "$work/first" >"$work/install.log"
prefix=$work/moved
mv "$work/first" "$prefix"
lib=$(dirname "$(find "$prefix" -name libhakmem.a)")
version=$(sed -n 's/^#define HAK_VERSION_\(MAJOR\|MINOR\|PATCH\) //p' "$prefix/include/hakmem/hakmem.h" | paste -sd.)

for file in "$lib/libhakmem.so" "$lib/libhakmem.so.${version%%.*}" "$lib/libhakmem.so.$version" "$lib/libhakmem.a" \
    "$lib/pkgconfig/hakmem.pc" "$lib/cmake/hakmem/hakmemConfig.cmake" "$prefix/include/hakmem/hakmem.h" \
    "$prefix/share/man/man3/hakmem.3" "$prefix/share/man/man7/hakmem.7" "$prefix/share/doc/hakmem/docs/trace.md"; do
    [ -e "$file" ] || fail "$file is not installed"
done
if grep -rlI --exclude=install.log -e "$HAKMEM_SOURCE_DIR" -e "$work/first" "$prefix"; then
    fail "these installed files name the source tree or the first prefix"
fi

# consumer NAME shared|archive: runs build/NAME, which checks that hakmem serves malloc, and whence it comes.
ran=0
consumer() {
    local library=
    [ "$2" = archive ] || library=$lib
    LD_LIBRARY_PATH=$library "$work/$1" "$2" "$version" || fail "$1"
    echo "$1: ok"
    ((ran += 1))
}
build() {
    local output=$1
    shift
    "$cc" -std=gnu17 -Wall -Wextra -Werror -fno-builtin "$@" -o "$work/$output" || fail "$output does not build"
}
source=$here/consumer/consumer.c

export PKG_CONFIG_PATH=$lib/pkgconfig
[ "$(pkg-config --modversion hakmem)" = "$version" ] || fail "pkg-config gives another version"
read -ra flags < <(pkg-config --cflags --libs hakmem)
build pkg_config "$source" "${flags[@]}"
consumer pkg_config shared

archive=$(pkg-config --variable=static_lib hakmem)
read -ra cflags < <(pkg-config --cflags hakmem)
build pkg_config_archive "${cflags[@]}" "$source" "$archive"
consumer pkg_config_archive archive

build plain -I"$prefix/include" "$source" -L"$lib" -lhakmem
consumer plain shared

build archive_dynamic -I"$prefix/include" "$source" "$lib/libhakmem.a"
consumer archive_dynamic archive
build archive_static_pie -static-pie -fPIE -I"$prefix/include" "$source" "$lib/libhakmem.a"
consumer archive_static_pie archive
build archive_static -static -I"$prefix/include" "$source" "$lib/libhakmem.a"
consumer archive_static archive

cmake -S "$here/consumer" -B "$work/cmake" -DCMAKE_C_COMPILER="$cc" -DCMAKE_PREFIX_PATH="$prefix" \
    -DHAKMEM_VERSION="$version" >"$work/cmake.log" 2>&1 || { cat "$work/cmake.log"; fail "find_package(hakmem)"; }
cmake --build "$work/cmake" >"$work/cmake.log" 2>&1 || { cat "$work/cmake.log"; fail "the CMake consumer"; }
consumer cmake/with_shared shared
consumer cmake/with_static archive

# Programs that do not call malloc themselves: hakmem serves them all the same, options and all.
serves() {
    LD_LIBRARY_PATH=$lib HAKMEM_STATS=1 "$work/$1" >/dev/null 2>"$work/$1.err" || fail "$1: exit status $?"
    grep -q '^hakmem: statistics' "$work/$1.err" || fail "$1: hakmem does not serve it"
    echo "$1: ok"
    ((ran += 1))
}
build strdup_pkg_config "$here/consumer/only_strdup.c" -Wl,--as-needed "${flags[@]}"
serves strdup_pkg_config
read -ra static_flags < <(pkg-config --static --cflags --libs hakmem)
build strdup_pkg_config_static -static "$here/consumer/only_strdup.c" "${static_flags[@]}"
serves strdup_pkg_config_static
build strdup_archive "$here/consumer/only_strdup.c" -Wl,-u,malloc "$archive"
serves strdup_archive
build_cxx() {
    local output=$1
    shift
    "$cc" -x c++ -std=gnu++17 -Wall -Wextra -Werror "$here/consumer/only_new.cc" -x none "$@" -o "$work/$output" ||
        fail "$output does not build"
}
build_cxx new_shared "${flags[@]}" -lstdc++ -pthread
serves new_shared
build_cxx new_archive "$archive" -lstdc++ -pthread
serves new_archive
nm "$work/new_archive" | grep ' T malloc$' > /dev/null || fail "new_archive: malloc is not hakmem's"

# A program that is linked with nothing of ours, under the installed library.
build preloaded -DONLY_MALLOC "$source"
LD_PRELOAD=$lib/libhakmem.so "$work/preloaded" || fail "preloaded"
if "$work/preloaded"; then
    fail "the consumer does not notice that hakmem is missing"
fi
echo "all of $((ran + 1)) consumers ran"
