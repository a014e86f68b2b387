/* Usage: <stress> [seconds [threads [seed]]]. Without a seed, HK_STRESS_SEED or a fresh one; it is always printed. */
#include "../front/check.h"
#include "stress.h"

int main(int argc, char **argv)
{
    struct hk_stress stress = {
        .seconds = argc > 1 ? strtod(argv[1], NULL) : 4,
        .threads = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 0) : 4,
        .seed = hk_seed(argc > 3 ? argv[3] : NULL),
    };
    HK_CHECK(stress.seconds > 0 && stress.threads > 0, "usage: %s [seconds [threads [seed]]]", argv[0]);
    hk_watchdog(45 + 2 * (unsigned)stress.seconds);
    hk_stress_run(&stress);
    return 0;
}
