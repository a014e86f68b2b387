"""How far the benchmark is, on stderr: a bar on a terminal, a plain line for each row elsewhere."""

import sys

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress as Bar, TextColumn, TimeRemainingColumn


class Progress:
    """A context; in it, every step() is one run done or passed over."""

    def __init__(self, rows, runs):
        self._rows, self._runs, self._row = rows, runs, 0
        self._bar = None

    def __enter__(self):
        if sys.stderr.isatty():
            console = Console(stderr=True, highlight=False)
            self._bar = Bar(BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}"),
                            console=console, transient=True, redirect_stdout=False, redirect_stderr=False)
            self._bar.start()
            self._task = self._bar.add_task("", total=self._runs)
        return self

    def __exit__(self, *_):
        if self._bar:
            self._bar.stop()

    def say(self, action):
        """Lets an action print: the bar stands aside, or it would be printed over."""
        if self._bar:
            self._bar.stop()
        action()
        if self._bar:
            self._bar.start()

    def row(self, name):
        self._row += 1
        if not self._bar:
            print(f"bench: row {self._row} of {self._rows}: {name}", file=sys.stderr, flush=True)

    def step(self, text, advance=1):
        """text says what is run now."""
        if self._bar:
            self._bar.update(self._task, description=text, advance=advance)

    def skip(self, runs):
        if self._bar:
            self._bar.update(self._task, advance=runs)
