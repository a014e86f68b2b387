#include "heap/limit.h"

#include <string.h>

#include "base/options.h"
#include "base/os.h"
#include "heap/pool.h"

static _Atomic size_t hk_mapped;

void hk_mapped_add(size_t more) { hk_add(&hk_mapped, more); }

size_t hk_mapped_bytes(void) { return hk_get(&hk_mapped); }

void hk_mapped_set(size_t bytes) { hk_set(&hk_mapped, bytes); }

_Atomic bool hk_limit_pressing;
static _Atomic size_t hk_pressed_at; /* in use when the soft limit last led to a purge */

/* How much more, as a part of the soft limit, must be taken before it leads to another purge. */
#define HK_PRESS_PART 32u

size_t hk_limit_in_use(void)
{
    return hk_active_bytes() + hk_empty_bytes() + hk_large_run_bytes() + hk_cached_bytes() + hk_mapped_bytes();
}

static void hk_limit_press(size_t soft, size_t in_use)
{
    size_t pressed_at = hk_get(&hk_pressed_at);
    if (in_use < pressed_at || in_use - pressed_at >= soft / HK_PRESS_PART) {
        hk_set(&hk_pressed_at, in_use);
        hk_set(&hk_limit_pressing, true);
    }
}

bool hk_limit_admit(size_t more)
{
    uint64_t soft = hk_option(limit_soft);
    uint64_t hard = hk_option(limit_hard);
    if (HK_LIKELY((soft | hard) == 0))
        return true;
    size_t in_use = hk_limit_in_use();
    if (soft != 0 && in_use + more > soft)
        hk_limit_press(soft, in_use);
    return hard == 0 || in_use + more <= hard;
}

bool hk_limit_has_room(size_t more)
{
    uint64_t soft = hk_option(limit_soft);
    uint64_t hard = hk_option(limit_hard);
    if (HK_LIKELY((soft | hard) == 0))
        return true;
    size_t then = hk_limit_in_use() + more;
    return (soft == 0 || then <= soft) && (hard == 0 || then <= hard);
}

bool hk_limit_take_pressing(void) { return atomic_exchange_explicit(&hk_limit_pressing, false, memory_order_relaxed); }

/* ---- The cgroup's limit ---- */

enum { HK_PATH_MAX = 512 };

/* The path of the process's group of cgroup v2: the line "0::/path" of /proc/self/cgroup. */
static bool hk_cgroup_path(const char *root, struct hk_text *path)
{
    char lines[2048];
    HK_TEXT(file, HK_PATH_MAX);
    hk_text_str(&file, root);
    hk_text_str(&file, "/proc/self/cgroup");
    if (!hk_os_read_file(file.buf, lines, sizeof lines))
        return false;
    const char *line = strncmp(lines, "0::/", 4) == 0 ? lines : strstr(lines, "\n0::/");
    if (line == NULL)
        return false;
    line += line == lines ? 3 : 4;
    hk_text_span(path, line, strcspn(line, "\n"));
    return true;
}

/* The lowest limit of a group and the groups it is in; UINT64_MAX if none has one. */
static bool hk_cgroup_limit(const char *root, uint64_t *limit)
{
    HK_TEXT(path, HK_PATH_MAX);
    if (!hk_cgroup_path(root, &path))
        return false;
    *limit = UINT64_MAX;
    /* The root group has no such file, unless it is a container's, which is a group of the machine's. */
    bool any = false, of_root = strcmp(path.buf, "/") == 0;
    for (;;) {
        char value[64];
        HK_TEXT(file, 2 * HK_PATH_MAX);
        hk_text_str(&file, root);
        hk_text_str(&file, "/sys/fs/cgroup");
        hk_text_str(&file, path.buf);
        hk_text_str(&file, "/memory.max");
        uint64_t of_group;
        if (hk_os_read_file(file.buf, value, sizeof value)) {
            any = true;
            if (hk_str_to_u64(value, strcspn(value, "\n"), &of_group) && of_group < *limit)
                *limit = of_group;
        }
        char *slash = strrchr(path.buf, '/');
        if (slash == NULL)
            return any || of_root;
        *slash = '\0';
    }
}

static void hk_limit_resolve_option(enum hk_option_id id, const char *variable, const char *root)
{
    uint64_t value = hk_option_load(id);
    if ((value & HK_LIMIT_PERCENT) == 0)
        return;
    uint64_t limit = UINT64_MAX;
    if (!hk_cgroup_limit(root, &limit)) {
        HK_TEXT(text, 256);
        hk_text_str(&text, "hakmem: ");
        hk_text_str(&text, variable);
        hk_text_str(&text, ": no cgroup v2 memory limit can be read (/proc/self/cgroup, memory.max); using none\n");
        hk_text_to_stderr(&text);
    }
    uint64_t percent = value & ~HK_LIMIT_PERCENT;
    hk_option_replace(id, value, limit == UINT64_MAX ? 0 : limit / 100 * percent);
}

void hk_limit_resolve(const char *root)
{
    hk_limit_resolve_option(HK_OPTION_limit_soft, "HAKMEM_LIMIT_SOFT", root);
    hk_limit_resolve_option(HK_OPTION_limit_hard, "HAKMEM_LIMIT_HARD", root);
}
