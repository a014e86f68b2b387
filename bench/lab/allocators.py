"""The allocators that are compared: hakmem, the C library's own, and peers chosen by LD_PRELOAD."""

import hashlib
import os
import platform
import subprocess
from dataclasses import dataclass
from pathlib import Path

OURS = "hakmem"
SYSTEM = "glibc"

# name -> (file, Debian package)
DEBIAN_PEERS = {
    "jemalloc": ("libjemalloc.so.2", "libjemalloc2"),
    "tcmalloc": ("libtcmalloc_minimal.so.4", "libtcmalloc-minimal4"),
    "mimalloc": ("libmimalloc.so.2", "libmimalloc2.0"),
}
LIBRARY_FOLDERS = [f"/usr/lib/{platform.machine()}-linux-gnu", "/usr/local/lib", "/usr/lib64", "/usr/lib"]

# Variables that steer an allocator or the loader; a benchmark of defaults must not inherit them. hakmem's own stay,
# so that a developer can try an option, and are printed with the results.
STEERING = ("MALLOC_", "MIMALLOC_", "TCMALLOC_", "JEMALLOC_", "GLIBC_TUNABLES", "LD_PRELOAD", "LD_AUDIT", "LD_DEBUG")


class Missing(Exception):
    """An allocator that cannot take part; the message says why and what to do."""


@dataclass(frozen=True)
class Allocator:
    name: str
    library: str | None  # preloaded; None for the C library's own
    version: str


def environment(allocator=None, **more):
    clean = {key: value for key, value in os.environ.items() if not key.startswith(STEERING)}
    clean["LC_ALL"] = "C"
    if allocator and allocator.library:
        clean["LD_PRELOAD"] = allocator.library
    return clean | more


def ours(path):
    path = Path(path).resolve()
    if not path.is_file():
        raise Missing(f"no library at {path}; `make lib` builds it, --lib names another")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
    return Allocator(OURS, _preloadable(path), f"{path}, sha256 {digest}")


def peer(text):
    """`glibc`, a name of DEBIAN_PEERS, or NAME=PATH for any other library."""
    name, _, path = text.partition("=")
    if path:
        path = Path(path).resolve()
        if not path.is_file():
            raise Missing(f"{name}: no library at {path}")
        return Allocator(name, _preloadable(path), str(path))
    if name == SYSTEM:
        return Allocator(SYSTEM, None, os.confstr("CS_GNU_LIBC_VERSION") or "unknown")
    file, package = DEBIAN_PEERS[name]
    for folder in LIBRARY_FOLDERS:
        found = Path(folder, file)
        if found.is_file():
            return Allocator(name, str(found), _package_version(package) or str(found.resolve()))
    raise Missing(f"{name}: {file} is not installed; on Debian: apt-get install {package}")


def _preloadable(path):
    if any(blank in str(path) for blank in " :"):
        raise Missing(f"{path}: LD_PRELOAD cannot name a path with blanks or colons")
    return str(path)


def _package_version(package):
    try:
        query = subprocess.run(
            ["dpkg-query", "-W", "-f=${Package} ${Version}", package], capture_output=True, text=True, check=False
        )
    except OSError:
        return None
    return query.stdout if query.returncode == 0 else None


def is_origin(allocator, path):
    """Whether a malloc that was found in the file `path` is the allocator's."""
    if allocator.library is None:
        return Path(path).name.startswith("libc.so")
    return os.path.realpath(path) == os.path.realpath(allocator.library)


def prove(allocator, program):
    """Asks the loader which malloc a program that cannot say so itself is bound to. Returns None or what is wrong."""
    trace = subprocess.run(
        [program], env=environment(allocator, LD_DEBUG="bindings", LD_BIND_NOW="1"), capture_output=True, text=True,
        check=False,
    )
    bound = [
        line.split(" to ")[1].split(" [")[0]
        for line in trace.stderr.splitlines()
        if "symbol `malloc'" in line and " to " in line
    ]
    if not bound:
        return f"the loader bound no malloc for {program}"
    wrong = [path for path in bound if not is_origin(allocator, path)]
    return f"{program} got its malloc from {wrong[0]}" if wrong else None
