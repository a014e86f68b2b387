/* What lifecycle.cc sees of a thread from inside. In C, since the internal headers are. */
#ifndef HK_TEST_LIFECYCLE_VIEW_H
#define HK_TEST_LIFECYCLE_VIEW_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct hk_heap;

struct hk_heap *view_my_heap(void); /* NULL: the thread is a guest */
bool view_i_have_exited(void);
bool view_is_running(const struct hk_heap *heap);
bool view_is_parked(const struct hk_heap *heap);
bool view_is_locked(struct hk_heap *heap);
extern void (*view_during_fork)(void); /* called in fork by the forking thread while it holds all locks */
size_t view_heaps(void);               /* all there are */
/* Without this lock no thread takes a parked heap over. */
void view_lock_list_of_heaps(void);
void view_unlock_list_of_heaps(void);
bool view_is_waited_for_list_of_heaps(void); /* somebody sleeps for it */
bool view_dissolve_parked_heaps(void);       /* makes orphans of their slabs; true if nothing was wrong */
size_t view_guest_allocs(void);              /* after so many requests a thread gets a heap */

#ifdef __cplusplus
}
#endif
#endif
