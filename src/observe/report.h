/* Reports: the statistics as text for people (HAKMEM_STATS=1, malloc_stats) and in the C library's shapes. */
#ifndef HK_OBSERVE_REPORT_H
#define HK_OBSERVE_REPORT_H

#include <malloc.h>
#include <stdio.h>

/* Everything, on standard error. */
void hk_report_print(void);
/* mallinfo2(3). */
struct mallinfo2 hk_report_mallinfo(void);
/* malloc_info(3): XML in the shape of glibc's. */
void hk_report_xml(FILE *stream);

#endif
