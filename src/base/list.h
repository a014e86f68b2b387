/* Doubly linked lists, through the members next and prev of their elements; a pointer to the first is the list. */
#ifndef HK_BASE_LIST_H
#define HK_BASE_LIST_H

#include "base/base.h"

/* Defines for elements of a type NAME_link, which puts one in front of a list, and NAME_unlink, which takes one out. */
#define HK_LIST(name, type)                                                     \
    HK_INLINE void name##_link(type **head, type *element)                      \
    {                                                                           \
        element->prev = NULL;                                                   \
        element->next = *head;                                                  \
        if (element->next != NULL)                                              \
            element->next->prev = element;                                      \
        *head = element;                                                        \
    }                                                                           \
    HK_INLINE void name##_unlink(type **head, type *element)                    \
    {                                                                           \
        *(element->prev != NULL ? &element->prev->next : head) = element->next; \
        if (element->next != NULL)                                              \
            element->next->prev = element->prev;                                \
    }

#endif
