#!/usr/bin/env -S python3 -B
"""sqlite3 builds a database with tables, indices, triggers and full-text search, checks it, and answers queries.

The database file itself must come out equal, byte for byte, and each database must be read well the other way round.
"""

from program_test import ProgramTest, check, same

BUILD = """
PRAGMA journal_mode = WAL;
PRAGMA threads = 2;
CREATE TABLE item(id INTEGER PRIMARY KEY, name TEXT, tag TEXT, price REAL, body BLOB);
CREATE TABLE log(item INTEGER, what TEXT);
CREATE TRIGGER logged AFTER UPDATE OF price ON item
 BEGIN INSERT INTO log VALUES(new.id, old.price || '>' || new.price); END;
BEGIN;
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 150000)
INSERT INTO item SELECT i, printf('item-%07d-%x', i * 7919 % 1000003, i), 'tag' || i % 97, i * 31 % 10007 / 7.0,
                        zeroblob(i * 13 % 400) FROM n;
COMMIT;
CREATE UNIQUE INDEX by_name ON item(name);
CREATE INDEX by_tag ON item(tag, price);
BEGIN;
UPDATE item SET price = price * 1.25 WHERE id % 7 = 0;
DELETE FROM item WHERE id % 11 = 0;
COMMIT;
CREATE VIRTUAL TABLE text USING fts5(name, tag);
INSERT INTO text SELECT replace(name, '-', ' '), tag FROM item WHERE id % 5 = 0;
PRAGMA wal_checkpoint(TRUNCATE);
PRAGMA journal_mode = DELETE;
VACUUM;
PRAGMA integrity_check;
"""

QUERIES = """
PRAGMA integrity_check;
PRAGMA foreign_key_check;
SELECT count(*), total(price), sum(length(body)) FROM item;
SELECT tag, count(*), round(avg(price), 4), group_concat(id % 10, '') FROM item WHERE id < 40000 GROUP BY tag;
SELECT id, name, sum(price) OVER (PARTITION BY tag ORDER BY id ROWS 50 PRECEDING) FROM item WHERE id % 3 = 0;
SELECT a.name, b.name FROM item a JOIN item b ON b.tag = a.tag AND b.price = a.price AND b.id > a.id LIMIT 20000;
SELECT json_group_array(json_object('id', id, 'name', name)) FROM item WHERE id < 20000;
SELECT count(*) FROM text WHERE text MATCH 'tag: tag5* AND name: item';
SELECT what FROM log ORDER BY what DESC LIMIT 5000;
"""

with ProgramTest("sqlite3") as test:
    for hakmem, name in (False, "plain.db"), (True, "hakmem.db"):
        said = test.run(["sqlite3", "-bail", name], hakmem, loaded=["sqlite3"], stdin=BUILD.encode())
        check(said.split()[-1] == b"ok", f"integrity_check of {name}: {said[-300:]}")
    same("database", test.dir / "plain.db", test.dir / "hakmem.db")

    answers = test.run(["sqlite3", "-bail", "hakmem.db"], hakmem=False, stdin=QUERIES.encode())
    check(answers.startswith(b"ok\n"), f"integrity_check: {answers[:300]}")
    same("answers", answers, test.run(["sqlite3", "-bail", "plain.db"], hakmem=True, stdin=QUERIES.encode()))
