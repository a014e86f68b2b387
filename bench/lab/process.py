"""Starts programs, and ends them and all they started when they take too long."""

import contextlib
import os
import signal
import subprocess

GRACE_SECONDS = 5  # for a script to clear up after itself


class RunFailed(Exception):
    """A run that gave no figures. In doubt (a time-out, a tool that is not there) it may be the machine's fault, and is
    if others fail likewise; else it is the allocator's."""

    def __init__(self, reason, in_doubt=False):
        super().__init__(reason)
        self.in_doubt = in_doubt


def run(command, env, limit_s, pass_fds=()):
    """Runs a command to its end: (exit status, stdout, stderr)."""
    with subprocess.Popen(
        [str(word) for word in command], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, errors="replace", pass_fds=pass_fds, start_new_session=True,
    ) as process:
        try:
            out, err = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            _end(process)
            raise RunFailed(f"no end after {limit_s} s", in_doubt=True) from None
        except BaseException:
            _end(process)
            raise
        return process.returncode, out, err


def _end(process):
    """Ends the whole session that a process leads: asked first, made to then."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=GRACE_SECONDS)
            return


def last_line(text):
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


def how_it_ended(status, err):
    """In words: a status as wait(2) gives it, and the last thing the program said."""
    if os.WIFSIGNALED(status):
        reason = f"killed by {signal.Signals(os.WTERMSIG(status)).name}"
    else:
        reason = f"exit status {os.WEXITSTATUS(status)}"
    return f"{reason}: {last_line(err)}" if err.strip() else reason
