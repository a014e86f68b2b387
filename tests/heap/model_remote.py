#!/usr/bin/env python3
"""Explores every interleaving of the remote-free protocol of src/heap/remote.h, in small.

One slab of one or two bitmap words, two heaps A and B, and four threads: two freers, which free blocks of the slab
remotely; one that works on heap A (collects, hands blocks out, opens the slab again after its release); and one that
works on heap B, and adopts the slab from A when A has it. Each step is one atomic operation of the C code, or a part
of it that a lock guards. In every state:

  a block is in one place: free, in a freer's hand, or in the remote bitmap;
  the slab is in one pending stack at most, and once;
  it is released only with an empty remote bitmap, and with its token at rest.

In every state in which no thread is inside an operation, collecting what is pending brings every freed block back. (In
some of them the slab waits in the stack of an earlier owner. The C code looks again after a push and after an adoption
so that it does not wait long; that is not modelled, nor needed for what is proved here.)

Then the same for protocols that are broken on purpose, each of which must be found out: so the model is known to see.
The order of memory operations is not modelled: all of those that matter are sequentially consistent.
"""

import sys
from collections import namedtuple

NOBODY, A, B = 0, 1, 2

State = namedtuple("State", "remote summary owner pending free locks hands allocs threads adoptions releases")


class Violation(Exception):
    pass


class Model:
    """blocks: the words of the slab, each a tuple of block numbers; variant: what is broken, or ''."""

    def __init__(self, words, hands, allocs, rounds, variant=""):
        self.word_of = {block: w for w, blocks in enumerate(words) for block in blocks}
        self.all = sum(1 << block for block in self.word_of)
        self.nwords = len(words)
        self.hands = tuple(sum(1 << block for block in hand) for hand in hands)
        self.allocs = allocs
        self.rounds = rounds
        self.variant = variant

    def start(self):
        free = self.all & ~self.hands[0] & ~self.hands[1]
        idle = ("idle", 0)
        return State((0,) * self.nwords, 0, A, (False, False), free, (None, None), self.hands, self.allocs,
                     (idle, idle, ("idle", self.rounds), ("idle", self.rounds)), 0, 0)

    # ---- Parts that several threads share ----

    def push(self, s, heap):
        if any(s.pending):
            raise Violation("a slab is queued twice")
        return s._replace(pending=tuple(p or h == heap for h, p in zip((A, B), s.pending)))

    def lock(self, s, heap, holder):
        return s._replace(locks=tuple(holder if h == heap else l for h, l in zip((A, B), s.locks)))

    def set(self, s, i, *thread):
        return s._replace(threads=s.threads[:i] + (thread,) + s.threads[i + 1:])

    def hand_over(self, s, i, pc, after):
        """hk_remote_hand_over, of which pc says the step; `after` is the thread's state behind it."""
        step = pc[0]
        if step == "owner":  # read the owner
            if s.owner == NOBODY:
                yield self.set(s, i, ("give up",), after)
            else:
                yield self.set(s, i, ("push", s.owner), after)
        elif step == "push":
            yield self.set(self.push(s, pc[1]), i, *after)
        elif step == "give up":
            yield self.set(s._replace(summary=0), i, ("look again", s.summary), after)
        elif step == "look again":
            if s.owner == NOBODY:
                yield self.set(s, i, *after)
            else:
                yield self.set(s, i, ("put back", pc[1]), after)
        elif step == "put back":
            t = s._replace(summary=s.summary | pc[1])
            yield self.set(t, i, *after) if s.summary else self.set(t, i, ("owner",), after)

    # ---- A freer: hk_remote_free ----

    def freer(self, s, i):
        thread = s.threads[i]
        if isinstance(thread[0], tuple):
            yield from self.hand_over(s, i, thread[0], thread[1])
        elif thread[0] == "idle":
            for block, w in self.word_of.items():
                bit = 1 << block
                if s.hands[i] & bit:
                    if (s.free | s.remote[w]) & bit:
                        raise Violation("a block that was handed out is free")
                    hands = tuple(h & ~bit if j == i else h for j, h in enumerate(s.hands))
                    remote = tuple(r | bit if v == w else r for v, r in enumerate(s.remote))
                    t = s._replace(hands=hands, remote=remote)
                    yield self.set(t, i, "flag", w) if s.remote[w] == 0 else t
        elif thread[0] == "flag":
            t = s._replace(summary=s.summary | 1 << thread[1])
            if s.summary == 0:
                yield self.set(t, i, ("owner",), ("idle", 0))
            else:
                yield self.set(t, i, "idle", 0)

    # ---- A thread with a heap ----

    def settle(self, s, heap):
        """The slab after a harvest: released if it is wholly free."""
        if s.free != self.all or s.owner != heap:
            return s
        if any(s.remote):
            raise Violation("a slab is released with remote frees in it")
        if s.summary or any(s.pending):
            raise Violation("a slab is released while its token is on its way")
        return s._replace(owner=NOBODY, free=0, releases=s.releases + 1)

    def collect(self, s, i, heap, of, pc, after):
        """hk_heap_collect of heap `of`, by thread i; pc says the step."""
        step = pc[0]
        if step == "take":
            if not s.pending[of - 1]:
                yield self.set(s, i, *after)
                return
            t = s._replace(pending=tuple(p and h != of for h, p in zip((A, B), s.pending)))
            if s.owner == of:
                yield self.set(t, i, "collect", of, ("words", (1 << self.nwords) - 1) if self.variant == "words first"
                               else ("summary",), after)
            elif self.variant == "no forwarding":
                yield self.set(t, i, *after)
            else:
                yield self.set(t, i, ("owner",), after)
        elif step == "summary":
            t = s._replace(summary=0)
            yield self.set(t, i, *after) if self.variant == "words first" else \
                self.set(t, i, "collect", of, ("words", s.summary), after)
        elif step == "words":
            flags = pc[1]
            if flags == 0:
                yield self.set(s, i, "collect", of, ("summary",), after) if self.variant == "words first" else \
                    self.set(self.settle(s, of), i, *after)
                return
            w = (flags & -flags).bit_length() - 1
            if s.free & s.remote[w]:
                raise Violation("a block is freed twice")
            remote = tuple(0 if v == w else r for v, r in enumerate(s.remote))
            t = s._replace(free=s.free | s.remote[w], remote=remote)
            yield self.set(t, i, "collect", of, ("words", flags & (flags - 1)), after)

    def heap_thread(self, s, i, heap):
        thread = s.threads[i]
        if isinstance(thread[0], tuple):
            yield from self.hand_over(s, i, thread[0], thread[1])
            return
        step = thread[0]
        if step == "idle":
            if thread[1] > 0 and s.locks[heap - 1] is None:
                yield self.set(self.lock(s, heap, i), i, "collect", heap, ("take",), ("work", thread[1] - 1))
        elif step == "collect":
            yield from self.collect(s, i, heap, thread[1], thread[2], thread[3])
        elif step == "work":
            yield self.set(s, i, "unlock", thread[1])
            if s.owner == NOBODY:  # hk_slab_init
                opened = s._replace(owner=heap, free=self.all, remote=(0,) * self.nwords)
                yield self.set(opened, i, "hand out", thread[1])
            elif s.owner == heap:
                yield self.set(s, i, "hand out", thread[1])
            elif heap == B and s.owner == A and s.locks[A - 1] is None:
                yield self.set(self.lock(s, A, i), i, "collect", A, ("take",), ("adopt", thread[1]))
        elif step == "adopt":
            t = s
            if s.owner == A and s.free:
                t = s._replace(owner=B, adoptions=s.adoptions + 1)
            yield self.set(t, i, "adopted", thread[1])
        elif step == "adopted":  # the other heap's lock goes
            t = self.lock(s, A, None)
            yield self.set(t, i, "hand out" if t.owner == B else "unlock", thread[1])
        elif step == "hand out":  # hk_heap_take, and the block reaches a freer
            yield self.set(s, i, "unlock", thread[1])
            if s.allocs > 0 and s.free:
                bit = s.free & -s.free
                if bit & (s.hands[0] | s.hands[1]):
                    raise Violation("a block is handed out twice")
                for j in range(2):
                    hands = tuple(h | bit if k == j else h for k, h in enumerate(s.hands))
                    t = s._replace(free=s.free & ~bit, hands=hands, allocs=s.allocs - 1)
                    yield self.set(t, i, "unlock", thread[1])
        elif step == "unlock":
            yield self.set(self.lock(s, heap, None), i, "idle", thread[1])

    # ---- The search ----

    def successors(self, s):
        yield from self.freer(s, 0)
        yield from self.freer(s, 1)
        yield from self.heap_thread(s, 2, A)
        yield from self.heap_thread(s, 3, B)

    def run_alone(self, s, i, heap):
        """Lets thread i collect its heap once, and nothing else happen."""
        s = self.set(self.lock(s, heap, i), i, "collect", heap, ("take",), ("unlock", 0))
        while s.threads[i] != ("idle", 0):
            s = next(iter(self.heap_thread(s, i, heap)))
        return s

    def check(self, s):
        seen = s.hands[0] | s.hands[1]
        for part in (s.free,) + s.remote:
            if part & seen:
                raise Violation("a block is in two places")
            seen |= part
        if any(thread[0] != "idle" for thread in s.threads):
            return False
        stranded = s.owner != NOBODY and s.pending[2 - s.owner]
        for _ in range(2):  # A may forward to B, and B to A
            s = self.run_alone(s, 2, A)
            s = self.run_alone(s, 3, B)
        if any(s.pending) or any(s.remote) or s.summary:
            raise Violation("a freed block is lost")
        if s.owner != NOBODY and s.free | s.hands[0] | s.hands[1] != self.all:
            raise Violation("a block is gone")
        return stranded

    def explore(self):
        first = self.start()
        seen = {first}
        todo = [first]
        stranded = adoptions = releases = 0
        while todo:
            s = todo.pop()
            stranded += self.check(s)
            adoptions = max(adoptions, s.adoptions)
            releases = max(releases, s.releases)
            for t in self.successors(s):
                if t not in seen:
                    seen.add(t)
                    todo.append(t)
        return len(seen), adoptions, releases, stranded


# One word, and two words: block 3 or 2 is free at the start, so that the slab can be adopted at once.
CASES = {
    "one word": (((0, 1, 2),), ((0,), (1,)), 1, 2),
    "two words": (((0,), (1, 2)), ((0,), (1,)), 1, 2),
    "one word, no block to spare": (((0, 1),), ((0,), (1,)), 1, 2),
    "two words, no block to spare": (((0,), (1,)), ((0,), (1,)), 1, 2),
}
BROKEN = ("words first", "no forwarding")


def main():
    for name, case in CASES.items():
        states, adoptions, releases, stranded = Model(*case).explore()
        print(f"{name}: {states} states, up to {adoptions} adoptions and {releases} releases; "
              f"in {stranded} states at rest the slab waits in the stack of an earlier owner")
        if adoptions == 0 and "spare" not in name or releases == 0:
            sys.exit("the model never adopted or never released")
    for variant in BROKEN:
        for name, case in CASES.items():
            try:
                Model(*case, variant).explore()
            except Violation as violation:
                print(f"broken on purpose ({variant}), {name}: found: {violation}")
                break
        else:
            sys.exit(f"broken on purpose ({variant}): not found")


main()
