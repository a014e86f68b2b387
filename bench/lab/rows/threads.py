"""Rows of several threads: how work scales, and what becomes of blocks that another thread frees."""

from ..row import Row, Target

ROUNDS = 15  # threads that work at once are at the scheduler's mercy, and one thread's bad luck is everyone's


def _threads(name, title, argv, unit, threads, **more):
    return Row(name=name, title=title, kind="workload", argv=argv, group="threads", unit=unit, threads=threads,
               more_is_better=unit.endswith("/s"), **{"rounds": ROUNDS} | more)


def _private_mixed(threads):
    return _threads(f"private-mixed-{threads}", f"objects that never leave their thread, in threads: {threads}",
                    ("private_mixed", threads, 4096, 16, 1040, 10_000_000), "Mops/s", threads, curve="private-mixed")


def _remote_exchange(threads):
    return _threads(f"remote-exchange-{threads}", f"peers that free each other's blocks, in a ring of {threads}",
                    ("remote_exchange", threads, 16, 1024, 4_000_000), "Mblocks/s", threads, curve="remote-exchange")


def _pipeline(producers, consumers, what):
    return _threads(f"pipeline-{producers}-{consumers}", f"a pipeline: {what}",
                    ("pipeline", producers, consumers, 16, 1040, 4_000_000), "Mblocks/s", producers + consumers)


def _false_sharing(mode, what):
    return _threads(f"false-sharing-{mode}", f"counters on one cache line: {what}",
                    ("false_sharing", mode, 2, 8, 100_000, 1000), "ns/write", 2)


KIB, MIB = 1 << 10, 1 << 20
FORK_BLOCKS = 1_000_000  # of 64 bytes

ROWS = (
    *(_private_mixed(threads) for threads in (1, 2, 4, 8, 16)),
    *(_remote_exchange(threads) for threads in (2, 4, 8, 16)),
    _threads("private-large", "4 threads with buffers of their own: 4 KiB - 1 MiB",
             ("large_mixed", 4, 64, 4 * KIB, MIB, 60_000), "us/op", 4),
    _pipeline(1, 3, "a reader feeds three workers"),
    _pipeline(3, 1, "three workers feed a writer"),
    _pipeline(2, 2, "two readers, two workers, any to any"),
    _threads("hand-over", "connections served by thread after thread, four at once",
             ("hand_over", 4, 1000, 16, 512, 400, 5000), "Mops/s", 4),
    _threads("request-server", "a server: an acceptor, two workers, a writer, sessions",
             ("request_server", 2, 100_000), "krequests/s", 4, short=True),
    _threads("thread-pool", "four actors that send each other messages",
             ("thread_pool", 4, 1000, 4000), "Mmessages/s", 4),
    _threads("shared-cache", "a cache whose values four threads read and replace",
             ("shared_cache", 4, 100_000, 500_000), "Mops/s", 4),
    _threads("parallel-teardown", "lists that one thread builds and another drops, four at once",
             ("parallel_teardown", 4, 100_000, 8), "Mnodes/s", 4),
    _false_sharing("active", "two threads that both allocate"),
    _false_sharing("passive", "blocks that another thread allocated"),
    _threads("fork-free", "a fork's child drops a million blocks of its parent's",
             ("fork_free", 64, FORK_BLOCKS, 3), "ms", 2,
             # As much as 4 MiB of 200 MiB.
             targets=(Target("copied_kib", "<=", FORK_BLOCKS * 64 // 50 // KIB),),
             columns=(("copied_kib", "copied KiB"),)),
)
