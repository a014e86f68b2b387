/* The header alone is enough, in C as in C++ (header_cxx.cc). */
#include <hakmem/hakmem.h>

#include <stdlib.h>

int header_as_cxx_sees_it(void);

int main(void)
{
    void *p = hak_malloc(HAK_VERSION_MAJOR + 1);
    size_t usable = hak_usable_size(p);
    bool could = hak_expand(p, usable);
    hak_free(p);

    /* Blocks are of one kind, whatever name they came by. */
    void *of_hak = hak_malloc(100), *of_libc = malloc(100);
    free(of_hak);
    hak_free(of_libc);
    return could && hak_version() != NULL ? header_as_cxx_sees_it() : 1;
}
