// Every form of operator new and delete of C++17, by expressions and by direct calls; new_handler and bad_alloc.
#include "check.h"

#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <memory>
#include <new>
#include <string>
#include <vector>

namespace
{

constexpr size_t MIB = size_t{1} << 20;

template <size_t Size, size_t Alignment> struct alignas(Alignment) Object {
    static inline int alive = 0;
    unsigned char bytes[Size];

    Object()
    {
        alive++;
        for (unsigned char &byte : bytes)
            byte = 0x77;
    }
    ~Object()
    {
        alive--;
        for (unsigned char byte : bytes)
            CHECK(byte == 0x77);
    }
};

template <typename T> T *checked(T *p)
{
    REQUIRE(p != nullptr);
    CHECK_MSG(is_aligned(p, alignof(T)) && is_aligned(p, 16), "%p for an alignment of %zu", static_cast<void *>(p),
              alignof(T));
    CHECK(malloc_usable_size(p) >= sizeof(T));
    return p;
}

// An array of objects with destructors begins with its length, so p need not be the block.
template <typename T> T *checked_array(T *p)
{
    REQUIRE(p != nullptr);
    CHECK_MSG(is_aligned(p, alignof(T)), "%p for an alignment of %zu", static_cast<void *>(p), alignof(T));
    return p;
}

// What the compiler generates: sized and, beyond 16, aligned forms.
template <typename T> void by_expressions()
{
    for (int round = 0; round < 200; round++) {
        T *one = checked(new T), *other = checked(new (std::nothrow) T);
        T *many = checked_array(new T[7]), *others = checked_array(new (std::nothrow) T[7]);
        CHECK(T::alive == 16);
        delete one;
        delete[] many;
        delete other;
        delete[] others;
        CHECK(T::alive == 0);
        auto owned = std::make_unique<T[]>(3);
        auto shared = std::make_shared<T>();
        std::vector<T> grown(static_cast<size_t>(round % 9));
        CHECK(is_aligned(owned.get(), alignof(T)) && is_aligned(shared.get(), alignof(T)));
        CHECK(is_aligned(grown.data(), alignof(T)));
    }
    CHECK(T::alive == 0);
}

void all_expressions()
{
    by_expressions<Object<1, 1>>();
    by_expressions<Object<17, 1>>();
    by_expressions<Object<100, 8>>();
    by_expressions<Object<400, 16>>();
    by_expressions<Object<32, 32>>();
    by_expressions<Object<64, 64>>();
    by_expressions<Object<100, 128>>();
    by_expressions<Object<5000, 256>>();
    by_expressions<Object<1, 4096>>();
    by_expressions<Object<70000, 65536>>();
}

// Every new with every delete that may follow it, called by name.
void all_direct_calls()
{
    const auto &nt = std::nothrow;
    for (size_t n = 0; n <= 3 * MIB; n = n < 300 ? n + 1 : n + n / 5) {
        void *plain[] = {::operator new(n),     ::operator new(n),     ::operator new(n),
                         ::operator new(n, nt), ::operator new(n, nt), ::operator new(n, nt)};
        void *array[] = {::operator new[](n),     ::operator new[](n),     ::operator new[](n),
                         ::operator new[](n, nt), ::operator new[](n, nt), ::operator new[](n, nt)};
        for (int i = 0; i < 6; i++) {
            for (void *p : {plain[i], array[i]}) {
                REQUIRE(p != nullptr);
                CHECK(is_aligned(p, 16));
                CHECK(malloc_usable_size(p) >= n);
                pattern_fill(p, 0, n, n);
            }
            CHECK(plain[i] != array[i] && plain[i] != plain[(i + 1) % 6]);
        }
        for (int i = 0; i < 6; i++)
            CHECK(pattern_holds(plain[i], 0, n, n) && pattern_holds(array[i], 0, n, n));
        for (int i = 0; i < 6; i += 3) {
            ::operator delete(plain[i]), ::operator delete(plain[i + 1], n), ::operator delete(plain[i + 2], nt);
            ::operator delete[](array[i]), ::operator delete[](array[i + 1], n), ::operator delete[](array[i + 2], nt);
        }
    }
    for (size_t alignment = 1; alignment <= 4 * MIB; alignment *= 2) {
        const auto al = static_cast<std::align_val_t>(alignment);
        for (size_t n = 0; n <= 300000; n = n * 2 + 1) {
            void *plain[] = {::operator new(n, al), ::operator new(n, al), ::operator new(n, al),
                             ::operator new(n, al, nt)};
            void *array[] = {::operator new[](n, al), ::operator new[](n, al), ::operator new[](n, al),
                             ::operator new[](n, al, nt)};
            for (int i = 0; i < 4; i++) {
                REQUIRE(plain[i] != nullptr && array[i] != nullptr);
                CHECK_MSG(is_aligned(plain[i], alignment) && is_aligned(array[i], alignment),
                          "%p and %p for an alignment of %zu", plain[i], array[i], alignment);
                CHECK(malloc_usable_size(plain[i]) >= n && malloc_usable_size(array[i]) >= n);
                pattern_fill(plain[i], 0, n, 1), pattern_fill(array[i], 0, n, 2);
            }
            for (int i = 0; i < 4; i++)
                CHECK(pattern_holds(plain[i], 0, n, 1) && pattern_holds(array[i], 0, n, 2));
            ::operator delete(plain[0], al), ::operator delete(plain[1], n, al);
            ::operator delete(plain[2], al, nt), ::operator delete(plain[3], al);
            ::operator delete[](array[0], al), ::operator delete[](array[1], n, al);
            ::operator delete[](array[2], al, nt), ::operator delete[](array[3], al);
        }
    }
}

void null_may_be_deleted()
{
    const auto al = std::align_val_t{64};
    errno = EILSEQ;
    const auto null = [] { return hide(nullptr); };
    ::operator delete(null()), ::operator delete[](null());
    ::operator delete (null(), size_t{8}), ::operator delete[](null(), size_t{8});
    ::operator delete(null(), std::nothrow), ::operator delete[](null(), std::nothrow);
    ::operator delete(null(), al), ::operator delete[](null(), al);
    ::operator delete (null(), size_t{8}, al), ::operator delete[](null(), size_t{8}, al);
    ::operator delete(null(), al, std::nothrow), ::operator delete[](null(), al, std::nothrow);
    CHECK(errno == EILSEQ);
}

// Blocks of operator new are malloc's blocks: programs mix them, though they should not.
void malloc_and_new_mix()
{
    free(hide(::operator new(100)));
    ::operator delete(hide(malloc(100)));
    void *p = realloc(hide(::operator new[](100)), 5000);
    CHECK(p != nullptr && malloc_usable_size(p) >= 5000);
    ::operator delete[](p);
}

// The size is a hint for speed: programs that get it wrong (a derived class without a virtual destructor) go on.
void sized_delete_of_another_size()
{
    for (size_t n = 1; n < 300000; n = n * 3 + 1) {
        ::operator delete(::operator new(n), hide_size(2 * n + 100));
        ::operator delete[](::operator new[](n), hide_size(n / 2));
    }
}

using New = void *(size_t);

void *aligned_new(size_t n) { return ::operator new (n, std::align_val_t{64}); }
void *aligned_new_array(size_t n) { return ::operator new[](n, std::align_val_t{64}); }
void *plain_new(size_t n) { return ::operator new(n); }
void *plain_new_array(size_t n) { return ::operator new[](n); }
void *nothrow_new(size_t n) { return ::operator new(n, std::nothrow); }
void *nothrow_new_array(size_t n) { return ::operator new[](n, std::nothrow); }
void *nothrow_aligned_new(size_t n) { return ::operator new (n, std::align_val_t{64}, std::nothrow); }
void *nothrow_aligned_new_array(size_t n) { return ::operator new[](n, std::align_val_t{64}, std::nothrow); }

New *const throwing[] = {plain_new, plain_new_array, aligned_new, aligned_new_array};
New *const not_throwing[] = {nothrow_new, nothrow_new_array, nothrow_aligned_new, nothrow_aligned_new_array};

// Not SIZE_MAX itself: libstdc++ 12 rounds it up to the alignment, to 0, so there would be nothing to compare with.
const size_t too_large[] = {SIZE_MAX - 64, size_t{PTRDIFF_MAX} + 1, PTRDIFF_MAX};

template <typename Exception> bool throws(New *allocate, size_t n)
{
    try {
        ::operator delete(allocate(hide_size(n)));
        return false;
    } catch (const Exception &) {
        return true;
    }
}

void without_a_handler()
{
    std::set_new_handler(nullptr);
    for (size_t n : too_large) {
        for (New *allocate : throwing)
            CHECK_MSG(throws<std::bad_alloc>(allocate, n), "%zu bytes", n);
        for (New *allocate : not_throwing)
            CHECK_MSG(allocate(hide_size(n)) == nullptr, "%zu bytes", n);
    }
    bool thrown = false;
    try {
        volatile size_t count = PTRDIFF_MAX / 16;
        delete[] new Object<16, 1>[ count ];
    } catch (const std::bad_alloc &) {
        thrown = true;
    }
    CHECK(thrown);
    // The exception is a real one: it can be copied, and unwinding destroyed what was on the way.
    try {
        std::string text(100, 'x');
        std::vector<char> never(hide_size(PTRDIFF_MAX));
    } catch (const std::exception &error) {
        CHECK(error.what() != nullptr);
    }
}

// Undefined, and what the runtimes' own forms do.
void alignments_that_are_no_powers_of_two()
{
    for (size_t wrong : {size_t{0}, size_t{3}, size_t{48}, size_t{192}, size_t{5} << 20}) {
        const auto alignment = static_cast<std::align_val_t>(hide_size(wrong));
        bool thrown = false;
        try {
            ::operator delete(::operator new(100, alignment), alignment);
        } catch (const std::bad_alloc &) {
            thrown = true;
        }
        CHECK_MSG(thrown, "alignment %zu", wrong);
        CHECK_MSG(::operator new(100, alignment, std::nothrow) == nullptr, "alignment %zu", wrong);
        CHECK_MSG(::operator new[](100, alignment, std::nothrow) == nullptr, "alignment %zu", wrong);
    }
}

int handler_calls;

struct Refused {
};

void give_up_at_the_third_call()
{
    if (++handler_calls == 3)
        std::set_new_handler(nullptr);
}
void throw_bad_alloc_at_the_third_call()
{
    if (++handler_calls == 3)
        throw std::bad_alloc();
}
void throw_refused()
{
    handler_calls++;
    throw Refused();
}

void sizes_that_would_wrap_around()
{
    if (!under_hakmem())
        return;
    for (size_t n = SIZE_MAX; n > SIZE_MAX - 64; n--) {
        for (New *allocate : throwing)
            CHECK_MSG(throws<std::bad_alloc>(allocate, n), "%zu bytes", n);
        for (New *allocate : not_throwing)
            CHECK_MSG(allocate(hide_size(n)) == nullptr, "%zu bytes", n);
    }
}

void with_handlers()
{
    for (size_t n : too_large) {
        for (New *allocate : throwing) {
            handler_calls = 0;
            std::set_new_handler(give_up_at_the_third_call);
            CHECK_MSG(throws<std::bad_alloc>(allocate, n) && handler_calls == 3, "%d calls", handler_calls);
            handler_calls = 0;
            std::set_new_handler(throw_bad_alloc_at_the_third_call);
            CHECK_MSG(throws<std::bad_alloc>(allocate, n) && handler_calls == 3, "%d calls", handler_calls);
            handler_calls = 0;
            std::set_new_handler(throw_refused);
            CHECK_MSG(throws<Refused>(allocate, n) && handler_calls == 1, "%d calls", handler_calls);
        }
        // The nothrow forms call the handler too.
        for (New *allocate : not_throwing) {
            handler_calls = 0;
            std::set_new_handler(give_up_at_the_third_call);
            CHECK_MSG(allocate(hide_size(n)) == nullptr && handler_calls == 3, "%d calls", handler_calls);
        }
    }
    std::set_new_handler(nullptr);
}

// The nothrow forms return NULL then. A library in C cannot catch, so this is where it has to find a way.
void nothrow_with_a_handler_that_throws()
{
    for (New *allocate : not_throwing) {
        handler_calls = 0;
        std::set_new_handler(throw_bad_alloc_at_the_third_call);
        CHECK_MSG(allocate(hide_size(PTRDIFF_MAX)) == nullptr && handler_calls == 3, "%d calls", handler_calls);
    }
    std::set_new_handler(nullptr);
}

char *reserve;

void free_the_reserve()
{
    handler_calls++;
    ::operator delete(reserve);
    reserve = nullptr;
    std::set_new_handler(nullptr);
}

size_t address_space_in_use()
{
    size_t pages = 0;
    FILE *statm = fopen("/proc/self/statm", "r");
    REQUIRE(statm != nullptr && fscanf(statm, "%zu", &pages) == 1);
    fclose(statm);
    return pages * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

// Memory is really short: the handler gives a reserve back, and the second try is served.
void handler_that_frees_a_reserve()
{
    struct rlimit old;
    REQUIRE(getrlimit(RLIMIT_AS, &old) == 0);
    for (New *const *forms : {throwing, not_throwing}) {
        for (int i = 0; i < 4; i++) {
            reserve = static_cast<char *>(::operator new(300 * MIB));
            struct rlimit tight = old;
            tight.rlim_cur = address_space_in_use() + 64 * MIB;
            REQUIRE(setrlimit(RLIMIT_AS, &tight) == 0);
            handler_calls = 0;
            std::set_new_handler(free_the_reserve);
            void *p = nullptr;
            try {
                p = forms[i](280 * MIB);
            } catch (const std::bad_alloc &) {
            }
            CHECK_MSG(p != nullptr && handler_calls == 1, "form %d: %p after %d calls", i, p, handler_calls);
            ::operator delete(p);
            ::operator delete(reserve);
            reserve = nullptr;
            std::set_new_handler(nullptr);
            REQUIRE(setrlimit(RLIMIT_AS, &old) == 0);
        }
    }
}

} // namespace

int main()
{
    all_expressions();
    all_direct_calls();
    null_may_be_deleted();
    malloc_and_new_mix();
    sized_delete_of_another_size();
    without_a_handler();
    alignments_that_are_no_powers_of_two();
    sizes_that_would_wrap_around();
    with_handlers();
    handler_that_frees_a_reserve();
    nothrow_with_a_handler_that_throws();
    return check_result();
}
