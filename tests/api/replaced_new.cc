// A program that replaces the basic forms of operator new and delete, and those alone: all others must call them
// ([new.delete.single], [new.delete.array]), wherever they come from. Its blocks have a header, so that one which is
// freed by somebody else's form is noticed.
#include "check.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>

namespace
{

constexpr size_t HEADER = 64;

struct counts {
    long news, deletes, aligned_news, aligned_deletes;
} made;
bool out_of_memory;

void *with_header(size_t n)
{
    void *p = nullptr;
    if (out_of_memory || posix_memalign(&p, HEADER, HEADER + n) != 0)
        throw std::bad_alloc();
    return static_cast<char *>(p) + HEADER;
}

void free_with_header(void *p)
{
    if (p != nullptr)
        free(static_cast<char *>(p) - HEADER);
}

} // namespace

// They need not come with sized forms: that is the point.
#pragma GCC diagnostic ignored "-Wsized-deallocation"

void *operator new(size_t n)
{
    made.news++;
    return with_header(n);
}

void operator delete(void *p) noexcept
{
    made.deletes += p != nullptr;
    free_with_header(p);
}

void *operator new(size_t n, std::align_val_t)
{
    made.aligned_news++;
    return with_header(n);
}

void operator delete(void *p, std::align_val_t) noexcept
{
    made.aligned_deletes += p != nullptr;
    free_with_header(p);
}

namespace
{

template <size_t Alignment> struct alignas(Alignment) Object {
    unsigned char bytes[Alignment];
    ~Object() { bytes[0] = 0; } // arrays of them know their length, and their delete its size
};

void counted(const char *what, long news, long deletes, long aligned_news, long aligned_deletes)
{
    CHECK_MSG(made.news == news && made.deletes == deletes && made.aligned_news == aligned_news &&
                  made.aligned_deletes == aligned_deletes,
              "%s: %ld and %ld, aligned %ld and %ld", what, made.news, made.deletes, made.aligned_news,
              made.aligned_deletes);
    made = {};
}

template <typename T> T *hidden(T *p)
{
    asm volatile("" : "+r"(p));
    return p;
}

void expressions_call_the_basic_forms()
{
    delete hidden(new Object<8>);
    counted("sized delete", 1, 1, 0, 0);
    delete[] hidden(new Object<8>[5]);
    counted("array, sized", 1, 1, 0, 0);
    delete[] hidden(new char[100]);
    counted("array of char", 1, 1, 0, 0);
    delete hidden(new (std::nothrow) Object<8>);
    counted("nothrow", 1, 1, 0, 0);
    delete[] hidden(new (std::nothrow) Object<8>[5]);
    counted("nothrow array", 1, 1, 0, 0);
    delete hidden(new Object<32>);
    delete[] hidden(new Object<32>[5]);
    delete hidden(new (std::nothrow) Object<32>);
    delete[] hidden(new (std::nothrow) Object<32>[5]);
    counted("aligned", 0, 0, 4, 4);
    delete hidden(new std::string(1000, 'x'));
    counted("string", 2, 2, 0, 0);
}

void direct_calls_do()
{
    ::operator delete(::operator new(10), std::nothrow);
    ::operator delete[](::operator new[](10), std::nothrow);
    ::operator delete[](::operator new[](10), size_t{10});
    counted("direct", 3, 3, 0, 0);
    constexpr std::align_val_t line{64};
    ::operator delete(::operator new(10, line), line, std::nothrow);
    ::operator delete[](::operator new[](10, line), line, std::nothrow);
    ::operator delete[](::operator new[](10, line), size_t{10}, line);
    counted("direct, aligned", 0, 0, 3, 3);
}

void what_they_throw_is_caught_by_the_nothrow_forms()
{
    out_of_memory = true;
    CHECK(hidden(new (std::nothrow) char) == nullptr);
    CHECK(hidden(new (std::nothrow) char[10]) == nullptr);
    CHECK(hidden(new (std::nothrow) Object<32>) == nullptr);
    CHECK(hidden(new (std::nothrow) Object<32>[5]) == nullptr);
    out_of_memory = false;
    counted("nothrow without memory", 2, 0, 2, 0);
}

int arguments_of_a_constructor;

__attribute__((constructor)) void constructor(int argc, char **, char **) { arguments_of_a_constructor = argc; }

// What hakmem asks the loader for at start is asked before the C library has been initialised.
void the_c_library_has_its_arguments()
{
    CHECK(getenv("PATH") != nullptr);
    CHECK(strcmp(program_invocation_name, "") != 0);
    CHECK(arguments_of_a_constructor == 1);
}

} // namespace

int main()
{
    the_c_library_has_its_arguments();
    expressions_call_the_basic_forms();
    direct_calls_do();
    what_they_throw_is_caught_by_the_nothrow_forms();
    return check_result();
}
