/* C's words for what C++ spells otherwise; included before each C++ file of the unit tests, beside stdatomic.h. */
#ifndef HK_TESTS_C_WORDS_H
#define HK_TESTS_C_WORDS_H

/* Before stdatomic.h, whose macros have the names of functions declared here. */
#include <atomic>
#include <cstdlib>
#include <memory>

#define _Static_assert static_assert
#define _Thread_local __thread
#define _Noreturn __attribute__((noreturn))
#define _Alignas alignas
#define restrict __restrict

#endif
