#!/usr/bin/env -S python3 -B
"""redis-server under redis-benchmark, with a background save (a fork) meanwhile; then SAVE, and what was saved is
loaded again with and without hakmem: the digest of all data must be that of the server that saved it."""

import shutil
from pathlib import Path

from program_test import ProgramTest, check, wait_until

TESTS = "set,get,incr,lpush,rpush,lpop,rpop,sadd,hset,spop,zadd,zpopmin,lrange_100,mset"


class Server:
    """A redis-server on a unix socket. The socket is in the working directory, as the length of its path is limited."""

    def __init__(self, test, hakmem):
        self.test, self.hakmem = test, hakmem
        self.run = test.start(["redis-server", "--port", 0, "--unixsocket", "socket", "--dir", test.dir, "--save", "",
                               "--dbfilename", "dump.rdb", "--enable-debug-command", "local", "--io-threads", 2],
                              hakmem)
        wait_until(lambda: (test.dir / "socket").exists(), "redis-server", self.run)
        if hakmem:
            # Debian's redis-server is a link to a program that goes by several names.
            test.expect_loaded([Path(shutil.which("redis-server")).resolve().name], self.run)
        wait_until(lambda: self.info("loading") == "0", "loading", self.run)

    def ask(self, *words):
        return self.test.run(["redis-cli", "-e", "-s", "socket", *words], hakmem=self.hakmem).decode().strip()

    def info(self, field):
        return dict(line.split(":", 1) for line in self.ask("info").splitlines() if ":" in line)[field].strip()

    def contents(self):
        return self.ask("dbsize"), self.ask("debug", "digest")

    def stop(self):
        self.ask("shutdown", "nosave")
        self.run.finish()


with ProgramTest("redis-server", "redis-cli") as test:
    server = Server(test, hakmem=True)
    server.ask("debug", "populate", 100000, "big", 300)
    load = test.start(["redis-benchmark", "-s", "socket", "-q", "-n", 6000, "-r", 50000, "-d", 100, "-c", 20, "-P", 8,
                       "-t", TESTS], hakmem=True)
    test.expect_loaded(["redis-benchmark"], load)
    server.ask("bgsave")
    load.finish()
    wait_until(lambda: server.info("rdb_bgsave_in_progress") == "0", "bgsave", server.run)
    check(server.info("rdb_last_bgsave_status") == "ok", "bgsave failed")

    server.ask("unlink", "mylist")  # a large list, freed by another thread
    check(server.ask("save") == "OK", "save failed")
    saved = server.contents()
    check(int(saved[0]) > 100000, f"only {saved[0]} keys")
    server.stop()

    for hakmem in True, False:
        server = Server(test, hakmem)
        loaded = server.contents()
        check(loaded == saved, f"{'with' if hakmem else 'without'} hakmem, {loaded} was loaded, {saved} was saved")
        server.stop()
    print(f"  same   data: {saved[0]} keys, digest {saved[1]}")
