#include "api/start.h"

#include <unistd.h>

#include "base/options.h"
#include "base/os.h"
#include "front/fork.h"
#include "front/maintenance.h"
#include "front/memory.h"
#include "front/thread.h"
#include "heap/limit.h"
#include "heap/superslab.h"
#include "observe/report.h"

/* The bands of options prewarm_superslabs_c0 to _c7, by their largest block. */
static const uint16_t hk_prewarm_bands[] = {16, 32, 48, 64, 128, 256, 512, 1024};

static void hk_prewarm_at_start(void)
{
    struct hk_prewarm wishes[1 + HK_COUNT(hk_prewarm_bands)];
    unsigned n = 0;
    if (hk_option(prewarm_superslabs) != 0)
        wishes[n++] = (struct hk_prewarm){.superslabs = hk_option(prewarm_superslabs)};
    for (unsigned band = 0; band < HK_COUNT(hk_prewarm_bands); band++) {
        uint64_t superslabs = hk_option_load((enum hk_option_id)(HK_OPTION_prewarm_superslabs_c0 + band));
        if (superslabs != 0)
            wishes[n++] = (struct hk_prewarm){superslabs, hk_class_of(hk_prewarm_bands[band])};
    }
    if (n != 0)
        hk_prewarm_superslabs(wishes, n, hk_option(prefault));
}

void hk_start(char **environment)
{
    static bool started;
    if (started)
        return;
    started = true;
    hk_options_init(environ != NULL ? environ : environment);
    if (hk_option(stats) || hk_option(trace))
        hk_os_keep_stderr();
    if (hk_option(checked))
        hk_thread_check_frees(); /* a library's constructors may have come first */
    hk_fork_init();
    hk_maintenance_begin();
    hk_limit_resolve("");
    hk_superslabs_read_limit();
    hk_prewarm_at_start();
}

__attribute__((destructor(101))) static void hk_finish(void)
{
    if (hk_option(stats))
        hk_report_print();
}
