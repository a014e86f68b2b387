#include "heap/zero.h"

#include <string.h>

#include "base/os.h"

/* A block is decided on in parts of this size, and this many pages of each are looked at. */
#define HK_ZERO_PART (4 * HK_MIB)
#define HK_ZERO_LOOKS 8u

static bool hk_page_is_zero(const char *page)
{
    const uint64_t *words = (const void *)page;
    uint64_t any = 0;
    for (size_t i = 0; i < hk_os_page_size() / sizeof *words; i++)
        any |= words[i];
    return any == 0;
}

/* True if a part is zero on most of the pages on which it is looked at: one in the middle of each eighth of it. */
static bool hk_looks_unused(const char *part)
{
    const size_t step = HK_ZERO_PART / HK_ZERO_LOOKS;
    unsigned used = 0;
    for (const char *page = part + step / 2; page < part + HK_ZERO_PART; page += step)
        used += !hk_page_is_zero(page);
    return used < HK_ZERO_LOOKS / 2;
}

static void hk_zero_part(char *start, char *end, bool purge)
{
    size_t n = (size_t)(end - start);
    if (!purge || !hk_os_purge(start, n))
        memset(start, 0, n);
}

void hk_zero(char *start, size_t n)
{
    char *end = start + n;
    char *first = (char *)hk_align_up((uintptr_t)start, hk_os_page_size());
    memset(start, 0, hk_min((size_t)(first - start), n));
    char *from = start = first; /* from there to start it is done in the same way */
    bool purge = false;
    for (size_t part; start < end; start += part) {
        part = hk_min((size_t)(end - start), HK_ZERO_PART);
        bool unused = part == HK_ZERO_PART && hk_looks_unused(start);
        if (unused != purge) {
            hk_zero_part(from, start, purge);
            from = start;
            purge = unused;
        }
    }
    if (from < end)
        hk_zero_part(from, end, purge);
}
