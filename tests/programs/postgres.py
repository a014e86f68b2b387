#!/usr/bin/env -S python3 -B
"""postgres: initdb and pgbench under hakmem, then the benchmark's own invariants, page checksums, index checks, and
dumps: the server under hakmem and one without it must dump the same data."""

from pathlib import Path

from program_test import ProgramTest, check, same, wait_until

BIN = Path("/usr/lib/postgresql/15/bin")
CHECKS = """
SELECT 'balances', (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(bbalance) FROM pgbench_branches)
               AND (SELECT sum(tbalance) FROM pgbench_tellers) = (SELECT sum(bbalance) FROM pgbench_branches)
               AND (SELECT sum(delta) FROM pgbench_history) = (SELECT sum(bbalance) FROM pgbench_branches);
CREATE EXTENSION amcheck;
SELECT 'index', bool_and(bt_index_check(indexrelid, true) IS NOT NULL) FROM pg_index JOIN pg_class ON oid = indexrelid
 WHERE relname LIKE 'pgbench%';
"""
# Hash joins, sorts, aggregates and parallel workers: the memory contexts of the executor.
QUERIES = """
SET work_mem = '32MB'; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0;
SELECT aid % 97, count(*), sum(hashint4(aid)::bigint), string_agg((aid % 10)::text, '' ORDER BY aid)
  FROM pgbench_accounts GROUP BY 1 ORDER BY 1;
SELECT count(*), sum(a.aid) FROM pgbench_accounts a JOIN pgbench_accounts b ON hashint4(a.aid) % 1000 = b.aid;
SELECT md5(jsonb_agg(to_jsonb(a) ORDER BY md5(aid::text))::text) FROM pgbench_accounts a WHERE aid < 20000;
"""


class Server:
    def __init__(self, test, hakmem):
        self.test, self.hakmem = test, hakmem
        self.run = test.start([BIN / "postgres", "-D", "data", "-k", test.dir / "sockets", "-c", "listen_addresses=",
                               "-c", "fsync=off", "-c", "shared_buffers=32MB"], hakmem)
        wait_until((test.dir / "sockets/.s.PGSQL.5432").exists, "postgres", self.run)
        wait_until(lambda: "ready" in (test.dir / "data/postmaster.pid").read_text(), "postgres", self.run)
        if hakmem:
            test.expect_loaded(["postgres"], self.run)

    def client(self, program, *words, loaded=(), stdin=b""):
        return self.test.run([BIN / program, "-h", self.test.dir / "sockets", "-U", "postgres", *words], self.hakmem,
                             loaded=loaded, stdin=stdin)

    def query(self, text):
        return self.client("psql", "-XAtq", "-v", "ON_ERROR_STOP=1", "postgres", stdin=text.encode())

    def dump(self):
        """All data as SQL, without the two lines that carry a random token."""
        lines = self.client("pg_dump", "postgres").splitlines()
        return b"\n".join(line for line in lines if not line.startswith((b"\\restrict", b"\\unrestrict")))

    def stop(self):
        self.run.process.terminate()  # smart shutdown: waits for clients, of which there are none left
        self.run.finish()


with ProgramTest(str(BIN / "initdb"), str(BIN / "pg_dump"), user="postgres") as test:
    (test.dir / "sockets").mkdir()
    test.run([BIN / "initdb", "-D", "data", "-U", "postgres", "-A", "trust", "-k", "-N", "--no-locale", "-E", "UTF8"],
             hakmem=True, loaded=["initdb", "postgres"])

    server = Server(test, hakmem=True)
    server.client("pgbench", "-i", "-q", "-s", 2, "postgres")
    server.client("pgbench", "-n", "-c", 6, "-j", 2, "-T", 4, "postgres", loaded=["pgbench"])
    server.client("pgbench", "-n", "-c", 4, "-j", 2, "-T", 2, "-S", "-C", "postgres")  # a new backend each time
    checks = server.query(CHECKS)
    check(checks == b"balances|t\nindex|t\n", f"checks: {checks}")
    answers, dump = server.query(QUERIES), server.dump()
    server.stop()

    test.run([BIN / "pg_checksums", "--check", "-D", "data"], hakmem=True)

    server = Server(test, hakmem=False)
    same("answers", server.query(QUERIES), answers)
    same("dump", server.dump(), dump)
    server.stop()
