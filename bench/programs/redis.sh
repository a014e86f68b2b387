# What the redis rows share: a server on a unix socket in the current folder, that ends with the script. To be sourced
# after lib.sh.

needs redis-server redis-server
needs redis-benchmark redis-tools

# Debian's server is linked with jemalloc.
PLAIN_PRELOAD=$(c_library)

server_pid='' peak_kib=''

start_server() {
    prove "$(type -P redis-server)"
    rm -f socket dump.rdb
    env "${allocator[@]}" redis-server --port 0 --unixsocket socket --dir . --save '' --dbfilename dump.rdb \
        --enable-debug-command local >tmp/server.log 2>&1 &
    server_pid=$!
    trap 'kill -KILL $server_pid 2>/dev/null || true' EXIT
    wait_for redis-server $server_pid redis-cli -e -s socket ping
    mapped $server_pid
}

ask() { redis-cli -e -s socket "$@" || fail "redis-server refuses: $*"; }

# Takes the server's processor time so far for that of the run, and notes its peak.
take_server_cost() {
    cpu_ms=$(awk -v ticks="$(getconf CLK_TCK)" '{ print int(($14 + $15) * 1000 / ticks) }' "/proc/$server_pid/stat")
    peak_kib=$(peak_of $server_pid)
}

stop_server() {
    ask shutdown nosave
    wait $server_pid || fail "redis-server ended with exit status $?"
    trap - EXIT
}
