/*
 * The threads of a process, as the kernel lists them in /proc: how many, their names, what they block, how often they
 * ran. Allocates nothing, as opendir would.
 */
#ifndef HK_TEST_TASKS_H
#define HK_TEST_TASKS_H

#include "check.h"
#include <sys/syscall.h>

enum { HK_TASKS_MAX = 256 };

struct hk_tasks {
    size_t n;
    int id[HK_TASKS_MAX];
};

static inline struct hk_tasks hk_tasks(void)
{
    struct entry { /* what getdents64 writes */
        uint64_t inode;
        int64_t offset;
        unsigned short length;
        unsigned char type;
        char name[];
    };
    struct hk_tasks tasks = {.n = 0};
    int fd = open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    HK_CHECK(fd >= 0, "/proc/self/task");
    union {
        struct entry first;
        char bytes[4096];
    } entries;
    for (long length; (length = syscall(SYS_getdents64, fd, &entries, sizeof entries)) > 0;) {
        for (long at = 0; at < length;) {
            const struct entry *entry = (const void *)(entries.bytes + at);
            at += entry->length;
            if (entry->name[0] == '.')
                continue;
            HK_CHECK(tasks.n < HK_TASKS_MAX, "too many threads");
            tasks.id[tasks.n++] = atoi(entry->name);
        }
    }
    close(fd);
    return tasks;
}

/* A file of a thread; false if the thread is gone. */
static inline bool hk_task_file(int id, const char *file, char *text, size_t size)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/%s", id, file);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    size_t length = 0;
    for (ssize_t n; (n = read(fd, text + length, size - 1 - length)) > 0;)
        length += (size_t)n;
    close(fd);
    text[length] = '\0';
    return length > 0;
}

/* The number behind a label in a thread's status, in base 10 or 16. */
static inline uint64_t hk_task_status(int id, const char *label, int base)
{
    char text[4096];
    HK_CHECK(hk_task_file(id, "status", text, sizeof text), "thread %d is gone", id);
    const char *line = strstr(text, label);
    HK_CHECK(line != NULL, "no %s in the status of a thread", label);
    return strtoull(line + strlen(label), NULL, base);
}

/* The allocator's own thread; 0 if there is none. */
static inline int hk_own_task(void)
{
    struct hk_tasks tasks = hk_tasks();
    int found = 0;
    for (size_t i = 0; i < tasks.n; i++) {
        char name[64];
        if (hk_task_file(tasks.id[i], "comm", name, sizeof name) && strcmp(name, "hakmem\n") == 0) {
            HK_CHECK(found == 0, "two threads of the allocator: %d and %d", found, tasks.id[i]);
            found = tasks.id[i];
        }
    }
    return found;
}

/* The same where there must be one. Its maker waits for it, but not for ever, and it names itself. */
static inline int hk_own_task_begun(void)
{
    int task = 0;
    for (double start = hk_now(); task == 0; usleep(1000)) {
        task = hk_own_task();
        HK_CHECK(task != 0 || hk_now() - start < 10, "the allocator has no thread");
    }
    return task;
}

#endif
