"""The report: one HTML page that stands alone, and the README's picture, from result files.

    study     reads, checks and merges results; medians, ratios, means
    style     a colour and a mark for each allocator, the heat scale
    svg       charts by matplotlib, as SVG that follows the reader's theme
    charts    each chart of the page
    tables    the tables of the page, as data
    summary   what stands at its top
    document  puts these into page.html, with page.css and page.js
    picture   the README's picture

Needs matplotlib and Jinja (Debian: python3-matplotlib, python3-jinja2).
"""

import importlib

from .study import ReportError, read_results

__all__ = ["ReportError", "read_results", "write_page", "write_picture"]


def write_page(results, path):
    """One page from one or more results, as read_results returns them. Raises ReportError."""
    _write(path, _drawing("document").page(results))


def write_picture(results, path):
    """The picture of what one machine measured, as SVG. Raises ReportError."""
    _write(path, _drawing("picture").picture(results))


def _drawing(module):
    """A module that needs the libraries for drawing, which a machine that only measures may lack."""
    try:
        return importlib.import_module(f".{module}", __package__)
    except ModuleNotFoundError as error:
        package = {"matplotlib": "python3-matplotlib", "jinja2": "python3-jinja2"}.get(error.name.partition(".")[0])
        if not package:
            raise
        raise ReportError(f"a report needs {error.name}; on Debian: apt-get install {package}") from None


def _write(path, text):
    try:
        with open(path, "w", encoding="utf-8") as stream:
            stream.write(text)
    except OSError as error:
        raise ReportError(f"cannot write {path}: {error.strerror}") from None
