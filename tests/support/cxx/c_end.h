/* Closes what c_begin.h opened. */
}
#pragma GCC diagnostic pop
