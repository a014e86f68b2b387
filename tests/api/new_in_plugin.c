/*
 * A C program that loads a C++ library later, into a scope of its own, as scripting languages load their extensions:
 * then the C++ runtime is not there when hakmem starts, and cannot be found by name in the program.
 *
 *   new_in_plugin PATH-OF-THE-PLUGIN
 */
#include "check.h"

typedef int plugin_function(void);

static int call(void *plugin, const char *name)
{
    plugin_function *function = (plugin_function *)(uintptr_t)dlsym(plugin, name);
    REQUIRE(function != NULL);
    return function();
}

int main(int argc, char **argv)
{
    REQUIRE(argc == 2);
    free(malloc(100));
    void *plugin = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (plugin == NULL)
        fprintf(stderr, "%s\n", dlerror());
    REQUIRE(plugin != NULL);
    CHECK(call(plugin, "plugin_allocates") == 1);
    CHECK(call(plugin, "plugin_gets_null") == 1);
    CHECK(call(plugin, "plugin_catches_bad_alloc") == 1);
    int calls = call(plugin, "plugin_calls_its_handler");
    CHECK_MSG(calls == 3, "%d calls", calls);
    return check_result();
}
