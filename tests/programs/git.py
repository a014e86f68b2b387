#!/usr/bin/env -S python3 -B
"""git: a repository with history, branches and merges; clone, gc, fsck, diffs. Done twice, without and with hakmem:
the same commits must come out (their ids are digests of everything), and the same logs and blames."""

import random

from program_test import ProgramTest, check, same

COMMITS = 1500
FILES = 60
DATES = {"GIT_AUTHOR_DATE": "1700000000 +0000", "GIT_COMMITTER_DATE": "1700000000 +0000"}


def history():
    """A stream for git fast-import: a main line of many small changes, and a branch that leaves it."""
    choose = random.Random(2)
    files = {f"dir{n % 7}/file{n}.txt": [f"line {i} of {n}" for i in range(100)] for n in range(FILES)}
    for commit in range(COMMITS):
        branch = "side" if commit % 5 == 4 else "main"
        yield f"commit refs/heads/{branch}\ncommitter A U Thor <a@example.org> {1600000000 + commit * 60} +0000\n"
        yield from data(f"change {commit}\n")
        if commit == 4:
            yield "from refs/heads/main\n"
        for name in choose.sample(sorted(files), 3 if commit else FILES):
            if branch == "main":
                files[name][choose.randrange(len(files[name]))] = f"changed by {commit}: {choose.randrange(10**12)}"
                yield f"M 100644 inline {name}\n"
                yield from data("\n".join(files[name]) + "\n")
            else:
                yield f"M 100644 inline side/{commit}.txt\n"
                yield from data(f"{choose.randrange(10**30)}\n" * choose.randrange(1, 2000))


def data(text):
    return f"data {len(text)}\n", text, "\n"


def work(test, hakmem):
    """Returns what git said about the repository in the end."""
    name = "hakmem" if hakmem else "plain"
    bare, copy = test.dir / f"{name}.git", test.dir / name

    def git(*words, cwd=copy, loaded=(), stdin=b""):
        return test.run(["git", *words], hakmem, cwd=cwd, loaded=loaded, stdin=stdin, env=DATES)

    git("init", "-q", "--bare", "-b", "main", bare, cwd=test.dir)
    git("fast-import", "--quiet", cwd=bare, loaded=["git"], stdin="".join(history()).encode())
    git("clone", "-q", f"file://{bare}", copy, cwd=test.dir)  # through upload-pack, pack-objects and index-pack

    git("merge", "-q", "-m", "merge side", "origin/side")
    (copy / "new.txt").write_text("new\n" * 1000)
    git("add", "new.txt")
    git("commit", "-q", "-m", "one by hand")
    git("rebase", "-q", "--onto", "HEAD~20", "HEAD~2")
    git("push", "-q", "origin", "HEAD:refs/heads/pushed")
    git("gc", "-q", "--aggressive", "--prune=now", loaded=["git"])
    git("repack", "-adfq", "--threads=2", cwd=bare)
    for where in bare, copy:
        check(git("fsck", "--full", "--strict", cwd=where) == b"", f"fsck of {where.name} has remarks")
    return b"\n".join([git("for-each-ref", cwd=bare), git("log", "--stat", "-p", "-M", "-n", "700", "--format=raw"),
                       git("grep", "-n", "changed by 12"), git("blame", "dir1/file1.txt")])


with ProgramTest("git") as test:
    (test.dir / "home/.gitconfig").write_text(
        "[user]\nname = A U Thor\nemail = a@example.org\n[gc]\nautoDetach = false\n[advice]\ndetachedHead = false\n")
    test.env["GIT_CONFIG_NOSYSTEM"] = "1"
    same("refs, logs and blame", work(test, hakmem=False), work(test, hakmem=True))
