#include "api/start.h"

#include <unistd.h>

#include "base/options.h"
#include "base/os.h"
#include "front/fork.h"
#include "observe/report.h"

void hk_start(void)
{
    static bool started;
    if (started)
        return;
    started = true;
    hk_options_init(environ);
    if (hk_option(stats))
        hk_os_keep_stderr();
    hk_fork_init();
}

__attribute__((destructor(101))) static void hk_finish(void)
{
    if (hk_option(stats))
        hk_report_print();
}
