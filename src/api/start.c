/* What runs when the library is loaded and when the process ends. Allocation works before the one and after the other. */
#include <unistd.h>

#include "base/options.h"
#include "front/fork.h"
#include "observe/report.h"

__attribute__((constructor(101))) static void hk_start(void)
{
    hk_options_init(environ);
    hk_fork_init();
}

__attribute__((destructor(101))) static void hk_finish(void)
{
    if (hk_option(stats))
        hk_report_print();
}
