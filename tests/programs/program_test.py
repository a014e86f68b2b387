"""What the tests of real programs share: running a program with and without libhakmem.so, and comparing.

Each script beside this file is one test. It opens a ProgramTest, which is a temp directory, a copy of the library and
a promise: when the `with` block is left, however it is left, no process and no file of the test remains.

    with ProgramTest("perl") as test:                     # the commands it needs; a missing one skips the test
        test.both(["perl", "work.pl"], loaded=["perl"])   # same output with hakmem as without

What `loaded` names (patterns for the file name of an executable) must be seen in /proc to run with the library mapped,
and the dynamic loader must bind its malloc to the library. So no test passes because LD_PRELOAD was lost or shadowed.

To run one by hand: HAKMEM_LIB=$PWD/build/release/libhakmem.so HAKMEM_SOURCE_DIR=$PWD tests/programs/perl.py
(add HAKMEM_PROFILE=... to try a profile of options).

Environment: HAKMEM_LIB, the path of libhakmem.so; HAKMEM_SOURCE_DIR, the root of the source tree.
Exit code: 0 passed, 1 failed, 77 skipped.
"""

import ctypes
import fnmatch
import hashlib
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

SKIPPED = 77
DEADLINE_S = 150  # below the TIMEOUT in CMakeLists.txt: a test that hangs is to clean up by itself
SEEN_S = 60  # within this, every program of a test has started
POLL_S = 0.02
# All else might change what programs do (MAKEFLAGS, GIT_DIR, ...), or is unknown to hakmem, which then complains.
KEPT_ENV = ("PATH", "LD_LIBRARY_PATH", "JAVA_HOME", "RUSTUP_HOME", "RUSTUP_TOOLCHAIN", "HAKMEM_PROFILE")
TAIL = 8000  # characters of a failed program's output to show
PR_SET_CHILD_SUBREAPER = 36


class Failure(Exception):
    pass


@dataclass
class Run:
    """A program that was started. Its output goes to files, so that it never waits for a reader."""
    process: subprocess.Popen
    out: BinaryIO
    err: BinaryIO
    began: float
    hakmem: bool

    def ended(self):
        return self.process.poll() is not None

    def outputs(self):
        """What it has written so far. Not by seek and read: it shares the position in the file."""
        return tuple(os.pread(stream.fileno(), os.fstat(stream.fileno()).st_size, 0) for stream in (self.out, self.err))

    def title(self):
        return " ".join(word.partition("\n")[0] for word in self.process.args)[:100]

    def finish(self):
        """Waits for the program and returns its standard output. Any exit code but 0 is a failure."""
        self.process.wait()
        seconds = time.monotonic() - self.began
        out, err = self.outputs()
        check(self.process.returncode == 0, f"{self.title()}: {describe(self.process.returncode)}")
        if self.hakmem:
            complaints = [line for line in err.decode(errors="replace").splitlines() if line.startswith("hakmem:")]
            check(not complaints, f"{self.title()}: {complaints[:5]}")
        self.out.close()
        self.err.close()
        print(f"  {'hakmem' if self.hakmem else 'plain '} {seconds:6.2f} s  {self.title()}", flush=True)
        return out


class ProgramTest:
    """`needs` names commands and files as tools/packages does. `user` is whom to become when started
    by root, for programs that refuse to run as root."""

    def __init__(self, *needs, user=None):
        self.built_lib = Path(os.environ["HAKMEM_LIB"]).resolve(strict=True)
        self.runs = []
        self.user = user if os.geteuid() == 0 else None
        packages = known_packages()
        missing = {need: packages[need] for need in needs if not is_there(need)}
        if missing:
            install = " ".join(sorted(set(missing.values())))
            print(f"SKIPPED: not found: {', '.join(missing)}; on Debian: apt-get install {install}")
            sys.exit(SKIPPED)

    def __enter__(self):
        # Daemons and orphans become our children rather than init's, so that the whole tree can be found and ended.
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        signal.signal(signal.SIGALRM, lambda *_: fail(f"not done after {DEADLINE_S} s; still running: {running()}"))
        signal.signal(signal.SIGTERM, lambda *_: fail("terminated"))
        signal.alarm(DEADLINE_S)

        self.dir = Path(tempfile.mkdtemp(prefix="hakmem-test-"))
        (self.dir / "home").mkdir()
        # A copy of its own: readable for its user, at a path without the blanks and colons that LD_PRELOAD splits at.
        self.lib = Path(shutil.copy(self.built_lib, self.dir / "libhakmem.so"))
        if self.user:
            become(self.user, self.dir)

        self.env = {name: os.environ[name] for name in KEPT_ENV if name in os.environ}
        self.env.update(LC_ALL="C.UTF-8", TZ="UTC", HOME=str(self.dir / "home"), TMPDIR=str(self.dir),
                        CCACHE_DISABLE="1")
        return self

    def __exit__(self, kind, exception, _):
        signal.alarm(0)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        end_all_children()
        shutil.rmtree(self.dir, ignore_errors=True)
        if kind is not None and issubclass(kind, Failure):
            for run in self.runs:
                if not run.out.closed:
                    print("\n".join(["", f"--- {run.title()}", *map(tail, run.outputs()), "---"]))
            print(f"FAILED: {exception}")
            sys.exit(1)

    def start(self, command, hakmem, env=None, stdin=b"", cwd=None):
        """Starts a program."""
        environment = {**self.env, **(env or {})}
        if hakmem:
            environment["LD_PRELOAD"] = str(self.lib)
        feed, out, err = (tempfile.TemporaryFile(dir=self.dir) for _ in range(3))
        with feed:
            feed.write(stdin)
            feed.seek(0)
            process = subprocess.Popen([str(word) for word in command], env=environment, cwd=cwd or self.dir,
                                       stdin=feed, stdout=out, stderr=err)
        run = Run(process, out, err, time.monotonic(), hakmem)
        self.runs.append(run)
        return run

    def run(self, command, hakmem, loaded=(), own_malloc=(), **how):
        """Runs a program to its end and returns its standard output. See expect_loaded for the patterns."""
        run = self.start(command, hakmem, **how)
        if hakmem:
            self.expect_loaded(loaded, run, own_malloc)
        return run.finish()

    def both(self, command, loaded, **how):
        """Runs a program without and with hakmem; what it writes to standard output must be the same. Returns it."""
        plain = self.run(command, hakmem=False, **how)
        same(f"output of {command[0]}", plain, self.run(command, hakmem=True, loaded=loaded, **how))
        return plain

    def expect_loaded(self, patterns, run, own_malloc=()):
        """Watches the test's processes until each pattern was seen as the file name of an executable that has the
        library mapped; fails if `run` ends before. Programs named in own_malloc may define malloc themselves."""
        unseen = set(patterns)
        end = time.monotonic() + SEEN_S
        while unseen:
            ended = run.ended()
            for pid in descendants(os.getpid()):
                executable = executable_of(pid)
                matching = {pattern for pattern in unseen if fnmatch.fnmatch(executable.name, pattern)}
                if matching and has_mapped(pid, self.lib):
                    unseen -= matching
                    self._expect_malloc_bound(executable, own_malloc)
            if unseen and ended:
                run.finish()
            check(not unseen or not ended and time.monotonic() < end,
                  f"libhakmem.so was not seen in {', '.join(sorted(unseen))}; running: {running()}")
            time.sleep(POLL_S)

    def _expect_malloc_bound(self, executable, own_malloc):
        # The loader's trace mode binds all symbols as a real run does, reports them, and runs nothing.
        trace = subprocess.run([executable], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
                               env={"LD_PRELOAD": str(self.lib), "LD_TRACE_LOADED_OBJECTS": "1", "LD_WARN": "1",
                                    "LD_BIND_NOW": "1", "LD_DEBUG": "bindings"})
        bindings = [line for line in trace.stderr.splitlines() if "symbol `malloc'" in line]
        check(bindings, f"{executable}: the loader shows no binding of malloc")
        # In a program that is not position-independent, libraries may bind to its PLT entry, and that to the library.
        elsewhere = [line for line in bindings if f"to {self.lib} " not in line and f"to {executable} " not in line]
        check(not elsewhere, f"{executable}: malloc is not bound to libhakmem.so: {elsewhere}")
        if not any(f"to {self.lib} " in line for line in bindings):
            check(executable.name in own_malloc, f"{executable} has a malloc of its own: {bindings[0]}")
            print(f"  NOTE: {executable} has a malloc of its own, linked in; hakmem is loaded but not used by it")


def known_packages():
    """Debian's package of each command or file that a test may need."""
    table = Path(os.environ["HAKMEM_SOURCE_DIR"], "tools/packages").read_text()
    rows = [line.split() for line in table.splitlines() if line and not line.startswith("#")]
    return {probe: package for purpose, package, probe in rows if purpose in ("lib", "test")}


def is_there(command):
    return os.path.exists(command) if os.path.isabs(command) else shutil.which(command) is not None


def become(user, directory):
    """Gives up root for good: the test itself runs as the user, so that it may look at that user's processes."""
    for path in [directory, *directory.rglob("*")]:
        shutil.chown(path, user, user)
    account = pwd.getpwnam(user)
    os.setgroups([])
    os.setgid(account.pw_gid)
    os.setuid(account.pw_uid)


def fail(message):
    raise Failure(message)


def check(condition, message):
    if not condition:
        fail(message)


def same(what, plain, hakmem):
    """Fails unless two outputs (bytes) or files (paths) are equal and not empty."""
    plain, hakmem = (item.read_bytes() if isinstance(item, Path) else item for item in (plain, hakmem))
    check(plain, f"{what}: empty")
    check(plain == hakmem, f"{what} differs under hakmem: {len(plain)} bytes {digest(plain)} without, "
                           f"{len(hakmem)} bytes {digest(hakmem)} with")
    print(f"  same   {what}: {len(plain)} bytes", flush=True)


def digest(data):
    return hashlib.sha256(data).hexdigest()[:16]


def wait_until(condition, what, run, seconds=30):
    """Waits until condition() is true, while a server comes up."""
    end = time.monotonic() + seconds
    while not condition():
        if run.ended():
            fail(f"{what}: the server ended, {describe(run.process.returncode)}")
        check(time.monotonic() < end, f"{what}: not within {seconds} s")
        time.sleep(POLL_S)


def describe(returncode):
    return f"killed by {signal.Signals(-returncode).name}" if returncode < 0 else f"exit code {returncode}"


def tail(data):
    return data.decode(errors="replace")[-TAIL:]


def running():
    return " ".join(executable_of(pid).name for pid in descendants(os.getpid()))


def executable_of(pid):
    try:
        return Path(os.readlink(f"/proc/{pid}/exe"))
    except OSError:  # it ended
        return Path("ended")


def has_mapped(pid, lib):
    try:
        return f" {lib}\n" in Path(f"/proc/{pid}/maps").read_text()
    except OSError:
        return False


def descendants(root):
    """Process ids of all that stem from root."""
    children = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                # The second field, the name in parentheses, may hold anything; the parent is the second one after it.
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(entry.name))
    found, queue = [], [root]
    while queue:
        below = children.get(queue.pop(), [])
        found += below
        queue += below
    return found


def end_all_children():
    while left := descendants(os.getpid()):
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:  # none is left
            pass
        time.sleep(POLL_S)
