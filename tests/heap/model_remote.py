#!/usr/bin/env python3
"""Explores every interleaving of the remote-free protocol of src/heap/remote.h, in small.

Two slabs of heap A, a heap B that may adopt them and lose them again, and a heap F whose thread frees their blocks.
Four threads work at once: F's, which stores into the outbox without a lock and sends it now and then; those of A and B,
which open parcels, adopt, and hand blocks out to F's; and maintenance, which sends and opens for all of them. F's may
also take back what it has stored. Each step
is one atomic operation of the C code, or a part of it that a lock guards, or that is about memory that nobody else
sees. In every state:

  a block is in one place: free, in the program's hands, in the outbox, or in a parcel;
  a parcel is in one place: the stock or the returned stack of F, a pending stack, or in the hands of one thread;
  what is in stock or returned is empty; what is given to a slab is given by the slab's owner, and was not free.

In every state in which no thread is inside an operation, what lies in the outbox and in parcels reaches its slab if all
heaps send and open a few times, and all parcels come home.

Then the same for protocols that are broken on purpose, each of which must be found out: so the model is known to see.
The order of memory operations is not modelled: ThreadSanitizer looks at that.
"""

import sys
from collections import namedtuple

NONE = -1
A, B, F = 0, 1, 2  # heaps; and the stacks: what is pending for A and B, and what has returned to F
HEAPS = (A, B)

# free, hands: masks of blocks. places: the outbox; used: how many of them the thread has used. heads: of the stacks;
# next, content: of each parcel. threads: for each, a stack of what it is to do, the next thing last.
State = namedtuple("State", "free hands places used owners heads next content stock begun locks allocs threads moves "
                            "forwards kept")


class Violation(Exception):
    pass


def replaced(old, at, value):
    return old[:at] + (value,) + old[at + 1:]


class Model:
    """slabs: the blocks of each; hands: the blocks that are not free; parcels: F's, of `capacity` blocks each; rounds:
    how often A's and B's thread and maintenance do something; variant: what is broken, or ''."""

    def __init__(self, slabs, hands, places, parcels, capacity, allocs, rounds, variant=""):
        self.slab_of = {block: i for i, blocks in enumerate(slabs) for block in blocks}
        self.all = sum(1 << block for block in self.slab_of)
        self.masks = [sum(1 << block for block in blocks) for blocks in slabs]
        self.hands = sum(1 << block for block in hands)
        self.nplaces, self.nparcels, self.capacity = places, parcels, capacity
        self.allocs, self.rounds, self.variant = allocs, rounds, variant

    def start(self):
        threads = ((("store",),), (("own", A, self.rounds[0]),), (("own", B, self.rounds[1]),),
                   (("maintain", self.rounds[2]),))
        return State(free=self.all & ~self.hands, hands=self.hands, places=(NONE,) * self.nplaces, used=0,
                     owners=(A,) * len(self.masks), heads=(NONE,) * 3, next=(NONE,) * self.nparcels,
                     content=((),) * self.nparcels, stock=(), begun=0, locks=(False,) * 3,
                     allocs=self.allocs, threads=threads, moves=0, forwards=0, kept=0)

    # ---- Steps: each takes a state from whose thread i the step was taken away, and yields states ----

    @staticmethod
    def do(s, i, *steps):
        """The thread does these steps next, the first of them first."""
        return s._replace(threads=replaced(s.threads, i, s.threads[i] + steps[::-1]))

    @staticmethod
    def lock(s, heap, held):
        return s._replace(locks=replaced(s.locks, heap, held))

    def unlock(self, s, _i, heap):
        yield self.lock(s, heap, False)

    def push(self, s, i, stack, parcel):
        """hk_parcels_push: reads the head,"""
        t = s._replace(next=replaced(s.next, parcel, s.heads[stack]))
        yield self.do(t, i, ("swap", stack, parcel, s.heads[stack]))

    def swap(self, s, i, stack, parcel, head):
        """and puts the parcel there if nobody else was faster."""
        if s.heads[stack] == head:
            yield s._replace(heads=replaced(s.heads, stack, parcel))
        else:
            yield self.do(s, i, ("push", stack, parcel))

    def send_parcel(self, s, i, parcel):
        """hk_parcel_send: to the owner of its last block, or home."""
        content = s.content[parcel]
        stack = s.owners[self.slab_of[content[-1]]] if content else F
        yield self.do(s, i, ("push", stack, parcel))

    def open(self, s, i, heap):
        """hk_parcels_open, which holds the heap's lock: takes what is pending,"""
        t = s._replace(heads=replaced(s.heads, heap, NONE))
        yield self.do(t, i, ("opening", heap, tuple(self.on_stack(s, heap))))

    def opening(self, s, i, heap, parcels):
        """and opens one after another."""
        if not parcels:
            yield s
            return
        parcel, then = parcels[0], ("opening", heap, parcels[1:])
        if self.variant == "returned before it is read":
            yield self.do(s, i, ("push", F, parcel), ("read_late", heap, parcel), then)
        else:
            yield self.do(self.give(s, heap, parcel), i, ("send_parcel", parcel), then)

    def give(self, s, heap, parcel):
        """hk_magazine_accept: what is another's by now stays in the parcel."""
        free, others = s.free, ()
        for block in s.content[parcel]:
            if s.owners[self.slab_of[block]] != heap and self.variant != "whoever owns the slab":
                others += (block,)
                continue
            if s.owners[self.slab_of[block]] != heap:
                raise Violation("a block is given by a heap that does not own its slab")
            if free & 1 << block:
                raise Violation("a block is freed twice")
            free |= 1 << block
        if self.variant == "no forwarding":
            others = ()
        return s._replace(free=free, content=replaced(s.content, parcel, others), forwards=s.forwards | (others != ()))

    def read_late(self, s, _i, heap, parcel):
        yield self.give(s, heap, parcel)

    def pop(self, s, i, heap):
        """Instead of open, and without the heap's lock: reads the head and what is below it,"""
        head = s.heads[heap]
        if head != NONE:
            yield self.do(s, i, ("popped", heap, head, s.next[head]))
        else:
            yield s

    def popped(self, s, i, heap, parcel, below):
        """and takes it off if it is still there."""
        if s.heads[heap] != parcel:
            yield self.do(s, i, ("pop", heap))
            return
        t = s._replace(heads=replaced(s.heads, heap, below))
        yield self.do(t, i, ("acquire", heap), ("opening", heap, (parcel,)), ("unlock", heap), ("pop", heap))

    def acquire(self, s, _i, heap):
        if not s.locks[heap]:
            yield self.lock(s, heap, True)

    def send(self, s, i, place, sorting, kept):
        """hk_outbox_send, which holds F's lock: reads the next place. sorting: open parcels by their owner."""
        if place < self.nplaces:
            block = s.places[place]
            yield self.do(s, i, ("send", place + 1, sorting, kept) if block == NONE else
                          ("sort", place, block, sorting, kept))
        elif sorting:
            yield self.do(s, i, ("send_parcel", sorting[-1][1]), ("send", place, sorting[:-1], kept))
        else:
            yield self.do(s, i, ("sent", kept))

    def sort(self, s, i, place, block, sorting, kept):
        """hk_sorting_add: into the parcel for the block's owner; it leaves if it is full."""
        owner = s.owners[self.slab_of[block]]
        open_one = [parcel for key, parcel in sorting if key == owner]
        if open_one:
            parcel = open_one[0]
        else:
            s, parcel = self.obtain(s)
            if parcel == NONE:
                yield self.do(s._replace(kept=1), i, ("send", place + 1, sorting, True))
                return
            sorting += ((owner, parcel),)
        s = s._replace(content=replaced(s.content, parcel, s.content[parcel] + (block,)))
        if len(s.content[parcel]) == self.capacity:
            sorting = tuple(entry for entry in sorting if entry[1] != parcel)
            yield self.do(s, i, ("send_parcel", parcel), ("clear", place, sorting, kept))
        else:
            yield self.do(s, i, ("clear", place, sorting, kept))

    def obtain(self, s):
        """hk_parcel_obtain: from the stock, from what has returned, or a new one."""
        stock, parcel = s.stock, s.heads[F]
        if not stock:
            s = s._replace(heads=replaced(s.heads, F, NONE))
            while parcel != NONE:
                if parcel in stock:
                    raise Violation("a stack has no end")
                stock += (parcel,)
                parcel = s.next[parcel]
        if stock:
            return s._replace(stock=stock[1:]), stock[0]
        if s.begun < self.nparcels:
            return s._replace(begun=s.begun + 1), s.begun
        return s, NONE

    def clear(self, s, i, place, sorting, kept):
        yield self.do(s._replace(places=replaced(s.places, place, NONE)), i, ("send", place + 1, sorting, kept))

    def sent(self, s, i, kept):
        """If all has left, F's thread, and it alone, begins anew with the first place."""
        if i == 0 and (not kept or self.variant == "what is kept is forgotten"):
            s = s._replace(used=0)
        yield self.lock(s, F, False)

    # ---- Threads ----

    def store(self, s, i):
        """F's thread: frees a block that it has, or sends what it has freed."""
        s = self.do(s, i, ("store",))
        if s.used < self.nplaces:
            for block in self.slab_of:
                if s.hands & 1 << block:
                    yield s._replace(hands=s.hands & ~(1 << block), places=replaced(s.places, s.used, block),
                                     used=s.used + 1)
        elif self.variant == "places are used again" and NONE in s.places:
            yield s._replace(used=0)  # it saw that somebody empties them
        if s.used > 0 and not s.locks[F]:
            yield self.do(self.lock(s, F, True), i, ("send", 0, (), False))
        elif s.used > 0 and self.variant == "no lock to send":
            yield self.do(s, i, ("send", 0, (), False))
        for place, block in enumerate(s.places[:s.used]):
            if block != NONE and self.variant == "no lock to take back":
                yield self.do(s, i, ("take_back", place, block))  # others may do something before it goes on
            elif block != NONE and not s.locks[F]:
                yield from self.take_back(s, i, place, block)

    def take_back(self, s, _i, place, block):
        """hk_thread_take_back: the last of those in the outbox goes to the place of the one that is taken."""
        last = s.used - 1
        places = replaced(replaced(s.places, place, s.places[last]), last, NONE)
        yield s._replace(hands=s.hands | 1 << block, places=places, used=last)

    def collect(self, s, i, heap, *then):
        """Opens what is pending for the heap, then does the rest with its lock."""
        if self.variant == "parcels are popped":
            yield self.do(s, i, ("pop", heap), ("acquire", heap), *then, ("unlock", heap))
        elif not s.locks[heap]:
            yield self.do(self.lock(s, heap, True), i, ("open", heap), *then, ("unlock", heap))

    def own(self, s, i, heap, rounds):
        """A's or B's thread, on a slow path: opens, then hands a block out, adopts a slab, or does nothing else."""
        if rounds > 0:
            yield from self.collect(self.do(s, i, ("own", heap, rounds - 1)), i, heap, ("choose", heap))

    def choose(self, s, i, heap):
        yield s
        yield from self.hand_out(s, heap)
        yield from self.adopt(s, i, heap)

    def hand_out(self, s, heap):
        """hk_heap_take, and the block reaches F's thread."""
        for slab, mask in enumerate(self.masks):
            free = s.free & mask
            if s.owners[slab] == heap and free and s.allocs > 0:
                bit = free & -free
                yield s._replace(free=s.free & ~bit, hands=s.hands | bit, allocs=s.allocs - 1)

    def adopt(self, s, i, heap):
        """hk_heap_adopt_from: tries the other's lock."""
        other = A + B - heap
        if not s.locks[other]:
            yield self.do(self.lock(s, other, True), i, ("open", other), ("take_over", heap), ("unlock", other))

    def take_over(self, s, _i, heap):
        other = A + B - heap
        takes = False
        for slab, mask in enumerate(self.masks):
            if s.owners[slab] == other and s.free & mask:
                takes = True
                yield s._replace(owners=replaced(s.owners, slab, heap), moves=1)
        if not takes:
            yield s

    def maintain(self, s, i, rounds):
        if rounds > 0:
            s = self.do(s, i, ("maintain", rounds - 1))
            if not s.locks[F]:
                yield self.do(self.lock(s, F, True), i, ("send", 0, (), False))
            for heap in HEAPS:
                yield from self.collect(s, i, heap)

    # ---- The search ----

    def step(self, s, i):
        """What the thread's next step may lead to."""
        name, *arguments = s.threads[i][-1]
        return getattr(self, name)(s._replace(threads=replaced(s.threads, i, s.threads[i][:-1])), i, *arguments)

    def is_quiet(self, s, i):
        """The next step is one that others cannot tell from its happening together with the one before: it gives a lock
        back, is the first with a new lock, or is about memory that is the thread's own at the time."""
        name, *arguments = s.threads[i][-1] if s.threads[i] else ("nothing",)
        return (name in ("unlock", "sent", "clear", "open") or name == "send" and arguments[0] == self.nplaces or
                name == "opening" and not arguments[1] or
                name == "send_parcel" and not s.content[arguments[0]])

    def successors(self, s):
        for i in range(len(s.threads)):
            for t in self.step(s, i):
                while self.is_quiet(t, i):
                    t, = self.step(t, i)
                yield t

    def on_stack(self, s, stack):
        parcels, parcel = [], s.heads[stack]
        while parcel != NONE:
            if parcel in parcels:
                raise Violation("a stack has no end")
            parcels.append(parcel)
            parcel = s.next[parcel]
        return parcels

    def in_hands(self, s):
        """The parcels that threads have, and the places whose block is in a parcel already."""
        parcels, places = [], []
        for steps in s.threads:
            for name, *arguments in steps:
                if name in ("send", "sort", "clear"):
                    parcels += [parcel for _, parcel in arguments[-2]]
                if name in ("push", "swap"):
                    parcels.append(arguments[1])
                if name == "send_parcel":
                    parcels.append(arguments[0])
                if name == "opening":
                    parcels += arguments[1]
                if name == "clear":
                    places.append(arguments[0])
        return parcels, places

    def check(self, s):
        """True if the state is at rest."""
        hands, cleared = self.in_hands(s)
        home = list(s.stock) + self.on_stack(s, F)
        full = [parcel for heap in HEAPS for parcel in self.on_stack(s, heap)] + hands
        if sorted(home + full) != list(range(s.begun)):
            raise Violation("a parcel is in two places" if len(home + full) > len(set(home + full)) else
                            "a parcel is lost")
        if any(s.content[parcel] for parcel in home) and self.variant != "returned before it is read":
            raise Violation("a parcel came home with blocks")
        seen = s.free
        blocks = [block for block in range(len(self.slab_of)) if s.hands & 1 << block]
        blocks += [block for place, block in enumerate(s.places) if block != NONE and place not in cleared]
        blocks += [block for content in s.content for block in content]
        for block in blocks:
            if seen & 1 << block:
                raise Violation("a block is in two places")
            seen |= 1 << block
        if seen != self.all:
            raise Violation("a block is lost")
        return all(len(steps) == 1 and steps[0][0] in ("store", "own", "maintain") for steps in s.threads)

    def run_alone(self, s, *steps):
        """Lets maintenance do these steps, and nothing else happen."""
        s = s._replace(threads=replaced(s.threads, 3, steps[::-1]))
        while s.threads[3]:
            s = next(iter(self.step(s, 3)))
        return s

    def check_all_arrives(self, s):
        hands = s.hands
        for _ in range(3):  # parcels may be lacking at first; and A may forward to B, and B to A
            s = self.run_alone(s, ("acquire", F), ("send", 0, (), False))
            for heap in HEAPS + HEAPS:
                s = self.run_alone(s, ("acquire", heap), ("open", heap), ("unlock", heap))
        if s.free | hands != self.all or len(s.stock) + len(self.on_stack(s, F)) != s.begun:
            raise Violation("a block or a parcel does not arrive")

    def explore(self):
        first = self.start()
        seen = {first}
        todo = [first]
        rests, met = set(), [0, 0, 0]
        while todo:
            s = todo.pop()
            met = [max(pair) for pair in zip(met, (s.moves, s.forwards, s.kept))]
            if self.check(s):
                rests.add(s._replace(threads=()))
            for t in self.successors(s):
                if t not in seen:
                    seen.add(t)
                    todo.append(t)
        for s in rests:
            self.check_all_arrives(s._replace(threads=((),) * 4))
        return len(seen), len(rests), met


# Slabs, blocks in hand, places, parcels and their capacity, blocks to hand out, rounds.
CASES = {
    "one slab, one parcel": (((0, 1),), (0,), 2, 1, 2, 1, (1, 1, 1)),
    "two slabs, one parcel for both": (((0,), (1, 2)), (0, 1), 2, 1, 2, 1, (1, 1, 1)),
    "two slabs, two parcels": (((0,), (1, 2)), (0, 1), 2, 2, 2, 1, (1, 1, 1)),
    "two slabs, parcels full with one block": (((0,), (1, 2)), (0, 1), 2, 2, 1, 1, (1, 1, 1)),
}
BROKEN = ("places are used again", "no lock to send", "no lock to take back", "what is kept is forgotten",
          "returned before it is read", "parcels are popped", "no forwarding", "whoever owns the slab")


def main():
    for name, case in CASES.items():
        states, rests, met = Model(*case).explore()
        print(f"{name}: {states} states, {rests} ways to be at rest")
        if 0 in met:
            sys.exit("the model never adopted, never forwarded, or never lacked a parcel")
    for variant in BROKEN:
        for name, case in CASES.items():
            try:
                Model(*case, variant).explore()
            except Violation as violation:
                print(f"broken on purpose ({variant}), {name}: found: {violation}")
                break
        else:
            sys.exit(f"broken on purpose ({variant}): not found")


if __name__ == "__main__":
    main()
