#include "heap/remote.h"

#include "base/trace.h"
#include "heap/magazine.h"

/* ---- Parcels ---- */

/* Anybody may push, but a stack is only taken as a whole: as no single parcel is popped, there is no ABA problem. */
static void hk_parcels_push(struct hk_parcel *_Atomic *stack, struct hk_parcel *parcel)
{
    struct hk_parcel *head = hk_get(stack);
    do {
        parcel->next = head;
    } while (!atomic_compare_exchange_weak_explicit(stack, &head, parcel, memory_order_release, memory_order_relaxed));
}

static struct hk_parcel *hk_parcels_take(struct hk_parcel *_Atomic *stack)
{
    if (HK_LIKELY(hk_get(stack) == NULL))
        return NULL;
    return atomic_exchange_explicit(stack, NULL, memory_order_acquire);
}

bool hk_parcels_at_hand(const struct hk_heap *heap)
{
    return heap->stock != NULL || heap->parcels_begun < HK_PARCELS || hk_get(&heap->returned) != NULL;
}

struct hk_parcel *hk_parcel_obtain(struct hk_heap *heap)
{
    if (heap->stock == NULL)
        heap->stock = hk_parcels_take(&heap->returned);
    struct hk_parcel *parcel = heap->stock;
    if (parcel != NULL) {
        heap->stock = parcel->next;
        hk_assert(parcel->count == 0);
    } else {
        if (heap->parcels_begun == HK_PARCELS)
            return NULL;
        parcel = &hk_parcels_of(heap)[heap->parcels_begun++];
        parcel->home = heap;
    }
    return parcel;
}

void hk_parcel_keep(struct hk_heap *heap, struct hk_parcel *parcel)
{
    hk_assert(parcel->home == heap && parcel->count == 0);
    parcel->next = heap->stock;
    heap->stock = parcel;
}

bool hk_parcels_forget(struct hk_heap *heap)
{
    for (struct hk_parcel *parcel = hk_parcels_take(&heap->returned), *next; parcel != NULL; parcel = next) {
        next = parcel->next;
        hk_parcel_keep(heap, parcel);
    }
    uint32_t at_home = 0;
    for (const struct hk_parcel *parcel = heap->stock; parcel != NULL; parcel = parcel->next)
        at_home++;
    if (at_home != heap->parcels_begun)
        return false;
    heap->stock = NULL;
    heap->parcels_begun = 0;
    return true;
}

/* Passes a parcel on to the owner of its last block; home, if no block in it has one. */
static void hk_parcel_send(struct hk_parcel *parcel, struct hk_fault *fault)
{
    struct hk_heap *owner = NULL;
    while (parcel->count > 0 && (owner = hk_block_owner(parcel->blocks[parcel->count - 1], fault)) == NULL)
        parcel->count--;
    hk_parcels_push(owner != NULL ? &owner->pending : &parcel->home->returned, parcel);
}

void hk_parcels_open(struct hk_heap *heap, void **tops[HK_NCLASSES], struct hk_fault *fault)
{
    hk_assert(hk_lock_held_by_me(&heap->lock));
    struct hk_parcel *parcel = hk_parcels_take(&heap->pending);
    if (HK_LIKELY(parcel == NULL))
        return;
    struct hk_fault late = HK_NO_FAULT;
    for (struct hk_parcel *next; parcel != NULL; parcel = next) {
        next = parcel->next;
        unsigned n = parcel->count;
        parcel->count = hk_magazine_accept(heap, parcel->blocks, n, tops, &late);
        heap->counts.parcels_opened++;
        heap->counts.parcel_blocks += n - parcel->count;
        heap->counts.parcels_forwarded += parcel->count != 0;
        hk_parcel_send(parcel, &late);
    }
    hk_fault_note_late(fault, late);
}

/* ---- Outbox ---- */

/* Blocks in an outbox: where they lie, and who owns them according to their keys. */
struct hk_outbox_view {
    unsigned n;
    hk_key owners[HK_OUTBOX_BLOCKS];
    void *_Atomic *places[HK_OUTBOX_BLOCKS];
};

/* Moves a block from its place in an outbox into a parcel, as its n-th; the caller counts. */
HK_INLINE void hk_parcel_put(struct hk_parcel *parcel, unsigned n, void *_Atomic *place, void *p)
{
    hk_set(place, NULL);
    parcel->blocks[n] = p;
}

/* Sends the blocks that have the same owner as the first, often all of them, as far as there are parcels. What stays is
 * in view then. Returns how many were sent. */
static unsigned hk_outbox_send_first(struct hk_heap *heap, struct hk_outbox_view *view, struct hk_fault *fault)
{
    void *_Atomic *outbox = hk_outbox_of(heap);
    struct hk_parcel *parcel = NULL;
    hk_key first = 0;
    unsigned n = 0; /* in the parcel */
    unsigned sent = 0;
    unsigned left = 0;
    for (unsigned i = 0; i < HK_OUTBOX_BLOCKS; i++) {
        void *p = atomic_load_explicit(&outbox[i], memory_order_acquire);
        if (p == NULL)
            continue;
        hk_key owner = hk_key_index(hk_key_of(p));
        if (first == 0)
            first = owner;
        if (owner == first && (parcel != NULL || (parcel = hk_parcel_obtain(heap)) != NULL)) {
            hk_parcel_put(parcel, n++, &outbox[i], p);
            sent++;
            if (n == HK_PARCEL_BLOCKS) {
                parcel->count = n;
                hk_parcel_send(parcel, fault);
                parcel = NULL;
                n = 0;
            }
        } else {
            view->owners[left] = owner;
            view->places[left++] = &outbox[i];
        }
    }
    if (parcel != NULL) {
        parcel->count = n;
        hk_parcel_send(parcel, fault);
    }
    view->n = left;
    return sent;
}

/* Moves blocks that have the same owner as the first into a parcel. */
static void hk_outbox_fill(struct hk_outbox_view *view, struct hk_parcel *parcel)
{
    hk_key owner = view->owners[0];
    unsigned left = 0;
    for (unsigned i = 0; i < view->n; i++) {
        if (view->owners[i] == owner && parcel->count < HK_PARCEL_BLOCKS) {
            hk_parcel_put(parcel, parcel->count++, view->places[i], hk_get(view->places[i]));
        } else {
            view->owners[left] = view->owners[i];
            view->places[left++] = view->places[i];
        }
    }
    view->n = left;
}

bool hk_outbox_send(struct hk_heap *heap, struct hk_fault *fault)
{
    hk_assert(hk_lock_held_by_me(&heap->lock));
    struct hk_outbox_view view;
    struct hk_fault late = HK_NO_FAULT;
    unsigned sent = hk_outbox_send_first(heap, &view, &late);
    sent += view.n;
    for (struct hk_parcel *parcel; view.n > 0 && (parcel = hk_parcel_obtain(heap)) != NULL;) {
        hk_outbox_fill(&view, parcel);
        hk_parcel_send(parcel, &late);
    }
    sent -= view.n;
    hk_fault_note_late(fault, late);
    heap->counts.remote_frees += sent;
    if (sent != 0)
        hk_trace(HK_TRACE_DRAIN, "drain outbox", {"heap", hk_key_index(heap->key)}, {"blocks", sent});
    return view.n == 0;
}

/* ---- Counting ---- */

static void hk_count_by_key(const void *p, size_t blocks[HK_NCLASSES])
{
    hk_key key = hk_key_of_any(p);
    if (hk_key_is_slabs(key))
        blocks[hk_key_kind(key)]++;
}

void hk_remote_count(struct hk_heap *heap, size_t blocks[HK_NCLASSES])
{
    hk_assert(hk_lock_held_by_me(&heap->lock));
    bool has_outbox = (heap->state == HK_HEAP_RUNNING || heap->state == HK_HEAP_PARKED) && !heap->vacant;
    for (unsigned i = 0; has_outbox && i < HK_OUTBOX_BLOCKS; i++)
        hk_count_by_key(atomic_load_explicit(&hk_outbox_of(heap)[i], memory_order_acquire), blocks);
    /* What has been pushed stays as it is until a holder of the lock takes it. */
    const struct hk_parcel *parcel = atomic_load_explicit(&heap->pending, memory_order_acquire);
    for (; parcel != NULL; parcel = parcel->next)
        for (unsigned i = 0; i < parcel->count; i++)
            hk_count_by_key(parcel->blocks[i], blocks);
}
