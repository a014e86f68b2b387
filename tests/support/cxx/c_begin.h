/*
 * Opens a block of internal headers in a C++ test; c_end.h closes it:
 *
 *     #include <gtest/gtest.h>      all C++ headers come before
 *     #include "c_begin.h"
 *     #include "heap/slab.h"
 *     #include "c_end.h"
 *
 * No include guard: a test may have several blocks.
 */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow" /* a function of its struct's name hides a constructor that C has not */
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"
extern "C" {
