#include <hakmem/hakmem.h>

static_assert(noexcept(hak_malloc(1)) &&noexcept(hak_free(nullptr)) &&noexcept(hak_version()), "nothing throws");

extern "C" int header_as_cxx_sees_it()
{
    void *p = hak_calloc(2, 8);
    p = hak_realloc(p, 100);
    hak_free_sized(p, 100);
    return 0;
}
