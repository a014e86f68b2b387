"""The allocators that are compared: hakmem, the C library's own, and peers chosen by LD_PRELOAD.

A peer is one of Debian's packages or one that tools/peers built; both are libraries that stand for malloc as they are.
"""

import hashlib
import json
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
    "gperftools": ("libtcmalloc_minimal.so.4", "libtcmalloc-minimal4"),
    "mimalloc2": ("libmimalloc.so.2", "libmimalloc2.0"),
}
LIBRARY_FOLDERS = [f"/usr/lib/{platform.machine()}-linux-gnu", "/usr/local/lib", "/usr/lib64", "/usr/lib"]

# What tools/peers builds, into lib<name>.so, and what it says of each: name -> {"version", "environment", ...}.
BUILT_PEERS = ("mimalloc3", "snmalloc", "jemalloc5", "tcmalloc", "hardened", "rpmalloc")
BUILT_FOLDER = Path(__file__).resolve().parents[2] / "build/peers"
BUILT_VERSIONS = BUILT_FOLDER / "versions.json"

PEERS = (SYSTEM, *DEBIAN_PEERS, *BUILT_PEERS)

# Variables that steer an allocator or the loader; a benchmark of defaults must not inherit them. hakmem's own stay,
# so that a developer can try an option, and are printed with the results.
STEERING = ("MALLOC_", "MIMALLOC_", "TCMALLOC_", "JEMALLOC_", "GLIBC_TUNABLES", "LD_PRELOAD", "LD_AUDIT", "LD_DEBUG")

PROOF_LIMIT_S = 60


class Missing(Exception):
    """An allocator that cannot take part; the message says why and what to do."""


@dataclass(frozen=True)
class Allocator:
    name: str
    library: str | None  # preloaded; None for the C library's own
    version: str
    environment: tuple = ()  # (variable, value) pairs without which it is not what its authors recommend


def environment(allocator=None, **more):
    """The environment of a program that runs under the allocator."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith(STEERING)}
    clean["LC_ALL"] = "C"
    if allocator:
        clean.update(allocator.environment)
        if allocator.library:
            clean["LD_PRELOAD"] = allocator.library
    return clean | more


def ours(path):
    path = Path(path).resolve()
    if not path.is_file():
        raise Missing(f"no library at {path}; `make lib` builds it, --lib names another")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
    return Allocator(OURS, preloadable(path), f"{path}, sha256 {digest}")


def peer(text):
    """A name of PEERS, or NAME=PATH for any other library."""
    name, _, path = text.partition("=")
    if path:
        path = Path(path).resolve()
        if not path.is_file():
            raise Missing(f"{name}: no library at {path}")
        return Allocator(name, preloadable(path), str(path))
    if name == SYSTEM:
        return Allocator(SYSTEM, None, os.confstr("CS_GNU_LIBC_VERSION") or "unknown")
    if name in DEBIAN_PEERS:
        return _debian_peer(name)
    if name in BUILT_PEERS:
        return _built_peer(name)
    raise Missing(f"{name!r} is none of {', '.join(PEERS)}, nor NAME=PATH")


def _debian_peer(name):
    file, package = DEBIAN_PEERS[name]
    for folder in LIBRARY_FOLDERS:
        found = Path(folder, file)
        if found.is_file():
            return Allocator(name, str(found), _package_version(package) or str(found.resolve()))
    raise Missing(f"{name}: {file} is not installed; on Debian: apt-get install {package}")


def _built_peer(name):
    library = built_library(name)
    about = built_versions().get(name)
    if about is None or not library.is_file():
        raise Missing(f"{name}: not built; `tools/peers {name}` builds it")
    return Allocator(name, preloadable(library), about["version"], tuple(about["environment"].items()))


def built_library(name):
    return BUILT_FOLDER / f"lib{name}.so"


def built_versions():
    """What tools/peers wrote of the libraries it built; nothing if there is none."""
    try:
        versions = json.loads(BUILT_VERSIONS.read_text())
        if all({"version", "environment"} <= about.keys() for about in versions.values()):
            return versions
    except FileNotFoundError:
        return {}
    except (ValueError, AttributeError):
        pass
    raise Missing(f"{BUILT_VERSIONS}: not what tools/peers writes; remove it and run tools/peers")


def preloadable(path):
    """The path as LD_PRELOAD takes it."""
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
    try:
        trace = subprocess.run(
            [program], env=environment(allocator, LD_DEBUG="bindings", LD_BIND_NOW="1"), stdin=subprocess.DEVNULL,
            capture_output=True, text=True, errors="replace", timeout=PROOF_LIMIT_S, check=False,
        )
    except subprocess.TimeoutExpired:
        return f"{program} did not end within {PROOF_LIMIT_S} s"
    if trace.returncode < 0:
        return f"{program} was killed by signal {-trace.returncode}"
    # Libraries may be bound to an entry in the program itself, which only passes on to what the program is bound to.
    bound = [
        target
        for line in trace.stderr.splitlines()
        if "symbol `malloc'" in line and " to " in line
        for target in [line.split(" to ")[1].split(" [")[0]]
        if os.path.realpath(target) != os.path.realpath(program)
    ]
    if not bound:
        return f"the loader bound no malloc for {program}"
    wrong = [path for path in bound if not is_origin(allocator, path)]
    return f"{program} got its malloc from {wrong[0]}" if wrong else None
