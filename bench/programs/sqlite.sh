# What the sqlite rows share: a script of SQL in the manner of sqlite's own speed test, and its run. To be sourced after
# lib.sh.

needs sqlite3 sqlite3

make_inputs() {
    cat >work.sql <<'SQL'
CREATE TABLE item(id INTEGER PRIMARY KEY, name TEXT, tag INTEGER, price REAL, body TEXT);
CREATE TABLE log(item INTEGER, what TEXT);
CREATE TRIGGER logged AFTER UPDATE OF price ON item
 BEGIN INSERT INTO log VALUES(new.id, old.price || '>' || new.price); END;
BEGIN;
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 150000)
INSERT INTO item SELECT i, printf('item-%07d-%x', i * 7919 % 1000003, i), i % 97, i * 31 % 10007 / 7.0,
                        substr(hex(i * 2654435761) || printf('%0300d', i), 1, i * 13 % 300) FROM n;
COMMIT;
CREATE UNIQUE INDEX by_name ON item(name);
CREATE INDEX by_tag ON item(tag, price);
BEGIN;
UPDATE item SET price = price * 1.25 WHERE id % 7 = 0;
UPDATE item SET body = body || name WHERE id % 5 = 0;
DELETE FROM item WHERE id % 11 = 0;
COMMIT;
-- Many short statements: each is parsed and planned anew.
SQL
    /usr/bin/awk 'BEGIN {
        for (i = 1; i <= 6000; i++) {
            printf "SELECT name, length(body) FROM item WHERE id = %d;\n", i * 7919 % 120000
            printf "INSERT INTO log SELECT id, name || %d FROM item WHERE name = '\''item-%07d-%x'\'';\n",
                   i, i * 7919 % 1000003, i
        }
    }' >>work.sql
    cat >>work.sql <<'SQL'
SELECT tag, count(*), round(avg(price), 4), length(group_concat(name)) FROM item GROUP BY tag;
SELECT count(*), max(total) FROM (SELECT sum(price) OVER (PARTITION BY tag ORDER BY id ROWS 50 PRECEDING) AS total
                                   FROM item);
SELECT count(*) FROM item a JOIN item b ON b.tag = a.tag AND b.price = a.price AND b.id > a.id;
SELECT length(json_group_array(json_object('id', id, 'name', name, 'body', body))) FROM item WHERE id < 30000;
SELECT count(*) FROM (SELECT DISTINCT substr(body, 1, 40) AS head FROM item ORDER BY head DESC);
SELECT count(*) FROM item WHERE body LIKE '%77%' OR name GLOB 'item-00*a';
SELECT what FROM log ORDER BY what DESC LIMIT 100;
PRAGMA integrity_check;
SQL
}

# sql DATABASE [FIRST_COMMAND]: all of it in one sqlite3.
sql() { counted sqlite3 -batch -bail -init /dev/null -cmd "${2-}" "$1" <work.sql >tmp/answers; }
