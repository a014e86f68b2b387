// A C++ library for a C program to load: see new_in_plugin.c. Its functions return 1 for yes and 0 for no.
#include <cstddef>
#include <cstdint>
#include <new>
#include <string>
#include <vector>

namespace
{

int calls;

void give_up_at_the_third_call()
{
    if (++calls == 3)
        std::set_new_handler(nullptr);
}

bool throws_bad_alloc()
{
    volatile size_t n = PTRDIFF_MAX;
    try {
        ::operator delete(::operator new(n));
        return false;
    } catch (const std::bad_alloc &) {
        return true;
    }
}

} // namespace

extern "C" int plugin_allocates()
{
    std::vector<std::string> strings;
    for (size_t i = 0; i < 10000; i++)
        strings.emplace_back(i % 200, 'x');
    size_t total = 0;
    for (const auto &string : strings)
        total += string.size();
    return total == 10000 / 200 * (199 * 200 / 2) ? 1 : 0;
}

extern "C" int plugin_catches_bad_alloc() { return throws_bad_alloc() ? 1 : 0; }

// How often the handler was called until it gave up.
extern "C" int plugin_calls_its_handler()
{
    calls = 0;
    std::set_new_handler(give_up_at_the_third_call);
    return throws_bad_alloc() ? calls : -1;
}

extern "C" int plugin_gets_null()
{
    volatile size_t n = PTRDIFF_MAX;
    return ::operator new(n, std::nothrow) == nullptr ? 1 : 0;
}
