/*
 * A program with more rights than its caller (set-user-ID and the like) does not listen to the caller's environment.
 * LD_PRELOAD does not reach such a program, so this one has hakmem linked in.
 *
 *   secure_environment           runs a copy of itself, plain and with a set-ID bit
 *   secure_environment child     allocates, and says on stdout whether the kernel calls it secure
 */
#include "check.h"
#include "child.h"

#include <fcntl.h>
#include <hakmem/hakmem.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

static struct child child;

static void copy_of_this_program(char *path)
{
    struct stat stat;
    int from = open("/proc/self/exe", O_RDONLY | O_CLOEXEC), to = mkstemp(path);
    REQUIRE(from >= 0 && to >= 0 && fstat(from, &stat) == 0);
    while (stat.st_size > 0) {
        ssize_t copied = sendfile(to, from, NULL, (size_t)stat.st_size);
        REQUIRE(copied > 0);
        stat.st_size -= copied;
    }
    close(from);
    close(to);
}

/* As root another owner, as anybody else another of his groups. */
static bool give_it_other_rights(const char *path)
{
    gid_t groups[64];
    const uid_t nobody = 65534;
    if (geteuid() == 0)
        return chown(path, nobody, (gid_t)-1) == 0 && chmod(path, S_ISUID | 0755) == 0;
    int count = getgroups(64, groups);
    for (int i = 0; i < count; i++)
        if (groups[i] != getegid())
            return chown(path, (uid_t)-1, groups[i]) == 0 && chmod(path, S_ISGID | 0755) == 0;
    return false;
}

static void run(const char *path)
{
    const char *const arguments[] = {"child", NULL};
    const char *const environment[] = {"HAKMEM_FOO=1", "HAKMEM_HELP=1", "HAKMEM_STATS=1", "HAKMEM_ON_ERROR=xyz", NULL};
    child_run(&child, path, arguments, environment);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "child") == 0) {
        printf("secure=%lu hakmem=%s\n", getauxval(AT_SECURE), hak_version());
        free(malloc(100));
        return 0;
    }

    char path[] = "./secure-XXXXXX";
    copy_of_this_program(path);
    REQUIRE(chmod(path, 0755) == 0);
    run(path);
    CHECK(child_exited(&child, 0));
    CHECK(strncmp(child.out, "secure=0 ", 9) == 0);
    CHECK_MSG(count_lines(child.err) > 10, "the environment has no effect on a program without rights either");

    bool has_rights = give_it_other_rights(path);
    if (has_rights)
        run(path);
    unlink(path);
    if (!has_rights || strncmp(child.out, "secure=1 ", 9) != 0) {
        fprintf(stderr, "skipped: no program can be given other rights here\n");
        return check_failures > 0 ? 1 : CHECK_SKIPPED;
    }
    CHECK(child_exited(&child, 0));
    CHECK_MSG(child.err[0] == 0, "%s", child.err);
    return check_result();
}
