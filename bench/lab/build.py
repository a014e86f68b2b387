"""Builds what the benchmark needs: its programs, and another revision of hakmem to compare with."""

import shutil
import subprocess
import tempfile
from pathlib import Path

BENCH = Path(__file__).resolve().parent.parent
ROOT = BENCH.parent
LIBRARY = Path("build/release/libhakmem.so")  # below the root of any revision


class Unbuildable(Exception):
    """The message says what failed, and how."""


def _run(command, folder=ROOT):
    result = subprocess.run(list(map(str, command)), cwd=folder, capture_output=True, text=True, errors="replace",
                            check=False)
    if result.returncode != 0:
        raise Unbuildable(f"{' '.join(map(str, command))} failed:\n{result.stdout}{result.stderr}".rstrip())
    return result.stdout.strip()


def programs(folder):
    """Configures and builds the workloads into `folder`; does nothing that is done already."""
    if not shutil.which("cmake"):
        raise Unbuildable("cmake is not installed; on Debian: apt-get install cmake gcc g++ make")
    _run(["cmake", "-S", BENCH, "-B", folder])
    _run(["cmake", "--build", folder, "--parallel"])


def revision(name):
    """The commit that a revision of this repository is, and libhakmem.so as it was there: built once, and kept."""
    if not shutil.which("git"):
        raise Unbuildable("git is not installed; on Debian: apt-get install git")
    try:
        commit = _run(["git", "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}"])
    except Unbuildable:
        raise Unbuildable(f"{name!r} is no revision of the git repository {ROOT}") from None
    kept = ROOT / "build/check" / commit / "libhakmem.so"
    if not kept.is_file():
        with tempfile.TemporaryDirectory(prefix="hakmem-check-") as folder:
            _build_export(commit, Path(folder), kept)
    return commit, kept


def _build_export(commit, folder, kept):
    archive = folder / "tree.tar"
    tree = folder / "tree"
    tree.mkdir()
    _run(["git", "archive", "--format=tar", "--output", archive, commit])
    _run(["tar", "-xf", archive, "-C", tree])
    if not (tree / "tools/build").is_file():
        raise Unbuildable(f"{commit} has no tools/build: it is too old to be built by this")
    _run(["tools/build", "release", "lib"], tree)
    kept.parent.mkdir(parents=True, exist_ok=True)
    unfinished = kept.with_suffix(".part")
    shutil.copyfile(tree / LIBRARY, unfinished)
    unfinished.replace(kept)
