/*
 * One word in every page of a buffer, which says where it lies: what makes a buffer's pages be there, and tells at the
 * end whether all are what they were.
 */
#ifndef PAGES_H
#define PAGES_H

#include "workload.h"

/* Writes the words of a buffer of `to` bytes that did not fit while it had `from`. */
static inline void touch_pages(unsigned char *buffer, size_t from, size_t to, size_t page)
{
    for (size_t at = (from + page - sizeof at) / page * page; at + sizeof at <= to; at += page)
        memcpy(buffer + at, &at, sizeof at);
}

static inline void check_pages(const unsigned char *buffer, size_t size, size_t page)
{
    for (size_t at = 0, found; at + sizeof at <= size; at += page) {
        memcpy(&found, buffer + at, sizeof found);
        if (found != at)
            fail("the word at %zu changed", at);
    }
}

#endif
