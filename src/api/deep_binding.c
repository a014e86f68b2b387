/*
 * dlopen with RTLD_DEEPBIND (dlopen(3)). What is loaded so looks for symbols in its own dependencies first, and finds
 * the C library's malloc and free there, while the rest of the program, the C library included, has hakmem's. Then one
 * frees what the other allocated. PHP crashes at its start for this reason, whatever allocator is preloaded.
 *
 * So before such a library is loaded, the C library's dynamic symbols (System V ABI, "Dynamic Linking") of the names
 * that it shares with us are given the addresses of our functions: whoever asks the C library for malloc gets hakmem's
 * from then on. Who asked before, by dlsym and a handle of the C library, may have blocks of its own malloc; those that
 * come to free, realloc or malloc_usable_size by one of its symbols go on to the C library. For all other names
 * RTLD_DEEPBIND keeps its meaning.
 *
 * That is done where we stand before the C library in the order in which symbols are looked up. Where we do not (we
 * were loaded later, for a library that needs us), the program has the C library's malloc, and keeps it.
 *
 * Only in libhakmem.so: a program that is linked statically has no other dlopen to go on to.
 */
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <string.h>

#include "base/os.h"
#include "front/hot_path.h"
#include "front/realloc.h"

typedef void *hk_dlopen_function(const char *file, int mode);

/* How dlopen goes on: with which function, and in which mode. Returned in two registers. */
struct hk_dlopen_next {
    hk_dlopen_function *function;
    long mode;
};
__attribute__((used)) struct hk_dlopen_next hk_dlopen_prepare(int mode); /* called by the assembly below */

/* dlopen(file, mode), and the same by a name that leads to no other. The C library tells by the return address whose
 * run path and which namespace are meant: so the next dlopen is jumped to, where a C compiler is free to call it. */
hk_dlopen_function hk_dlopen;
/* clang-format off */
#define HK_DLOPEN_BEGIN                \
    ".text\n"                          \
    ".balign 4\n"                      \
    ".globl dlopen, hk_dlopen\n"       \
    ".hidden hk_dlopen\n"              \
    ".type dlopen, @function\n"        \
    ".type hk_dlopen, @function\n"     \
    "dlopen:\n"                        \
    "hk_dlopen:\n"                     \
    "    .cfi_startproc\n"
#define HK_DLOPEN_END                  \
    "    .cfi_endproc\n"               \
    ".size dlopen, .-dlopen\n"
#if defined(__x86_64__)
__asm__(HK_DLOPEN_BEGIN
        "    pushq %rdi\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    movl %esi, %edi\n"
        "    call hk_dlopen_prepare\n"
        "    popq %rdi\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    movl %edx, %esi\n"
        "    jmp *%rax\n"
        HK_DLOPEN_END);
#elif defined(__aarch64__)
__asm__(HK_DLOPEN_BEGIN
        "    hint #34\n" /* bti c: where indirect calls may land */
        "    stp x0, x30, [sp, #-16]!\n"
        "    .cfi_adjust_cfa_offset 16\n"
        "    .cfi_offset x30, -8\n"
        "    mov w0, w1\n"
        "    bl hk_dlopen_prepare\n"
        "    mov x16, x0\n"
        "    ldp x0, x30, [sp], #16\n" /* and the mode is in x1 */
        "    .cfi_restore x30\n"
        "    .cfi_adjust_cfa_offset -16\n"
        "    br x16\n"
        HK_DLOPEN_END);
#else
#error "dlopen is not written for this architecture"
#endif
/* clang-format on */

/* ---- Dynamic symbols ---- */

/* The symbols that an object defines, by a hash table of names: buckets of indices, and for each symbol from `first` on
 * its hash, whose lowest bit says that it is the last of its bucket (DT_GNU_HASH). */
struct hk_symbols {
    uintptr_t base;
    ElfW(Sym) *symbols;
    const char *names;
    const uint32_t *buckets;
    const uint32_t *chain;
    uint32_t nbuckets;
    uint32_t first;
};

static const ElfW(Phdr) *hk_segment_of_type(const struct dl_phdr_info *object, ElfW(Word) type)
{
    for (unsigned i = 0; i < object->dlpi_phnum; i++)
        if (object->dlpi_phdr[i].p_type == type)
            return &object->dlpi_phdr[i];
    return NULL;
}

static const ElfW(Phdr) *hk_segment_at(const struct dl_phdr_info *object, uintptr_t address)
{
    for (unsigned i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
        if (segment->p_type == PT_LOAD && address - (object->dlpi_addr + segment->p_vaddr) < segment->p_memsz)
            return segment;
    }
    return NULL;
}

/* False if the object lacks what is needed. */
static bool hk_symbols_of(const struct dl_phdr_info *object, struct hk_symbols *s)
{
    const ElfW(Phdr) *segment = hk_segment_of_type(object, PT_DYNAMIC);
    if (segment == NULL)
        return false;
    *s = (struct hk_symbols){.base = object->dlpi_addr};
    const uint32_t *hash = NULL;
    for (const ElfW(Dyn) *d = (const void *)(s->base + segment->p_vaddr); d->d_tag != DT_NULL; d++) {
        /* glibc's loader relocates d_ptr in place, others do not. */
        uintptr_t address = d->d_un.d_ptr < s->base ? s->base + d->d_un.d_ptr : d->d_un.d_ptr;
        if (d->d_tag == DT_SYMTAB)
            s->symbols = (void *)address;
        else if (d->d_tag == DT_STRTAB)
            s->names = (const void *)address;
        else if (d->d_tag == DT_GNU_HASH)
            hash = (const void *)address;
    }
    if (s->symbols == NULL || s->names == NULL || hash == NULL || hash[0] == 0)
        return false;
    s->nbuckets = hash[0];
    s->first = hash[1];
    s->buckets = hash + 4 + hash[2] * (sizeof(ElfW(Addr)) / sizeof *hash);
    s->chain = s->buckets + s->nbuckets;
    return true;
}

static uint32_t hk_symbol_hash(const char *name)
{
    uint32_t h = 5381;
    for (; *name != '\0'; name++)
        h = h * 33 + (unsigned char)*name;
    return h;
}

static uint32_t hk_symbol_next(const struct hk_symbols *s, uint32_t i)
{
    return (s->chain[i - s->first] & 1) != 0 ? 0 : i + 1;
}

static bool hk_symbol_is_function(const ElfW(Sym) *symbol)
{
    return symbol->st_shndx != SHN_UNDEF && ELF64_ST_TYPE(symbol->st_info) == STT_FUNC;
}

/* The function of a name after symbol i, or the first if that is 0; 0 if there is none. There may be several, of
 * different versions. */
static uint32_t hk_symbol_find(const struct hk_symbols *s, const char *name, uint32_t i)
{
    uint32_t hash = hk_symbol_hash(name);
    i = i == 0 ? s->buckets[hash % s->nbuckets] : hk_symbol_next(s, i);
    for (; i != 0; i = hk_symbol_next(s, i))
        if (((s->chain[i - s->first] ^ hash) | 1) == 1 && hk_symbol_is_function(&s->symbols[i]) &&
            strcmp(s->names + s->symbols[i].st_name, name) == 0)
            break;
    return i;
}

/* The address of a function; NULL if there is none of that name. */
static void *hk_symbol_address(const struct hk_symbols *s, const char *name)
{
    uint32_t i = hk_symbol_find(s, name, 0);
    return i != 0 ? (void *)(s->base + s->symbols[i].st_value) : NULL;
}

/* ---- Blocks of the C library's malloc, for those who ask it ---- */

static struct {
    void (*free)(void *p);
    void *(*realloc)(void *p, size_t n);
    size_t (*usable_size)(void *p);
} hk_libc; /* constant once the symbols lead to us */

static bool hk_is_libcs(const void *p) { return p != NULL && hk_key_of_any(p) == 0; }

static void hk_free_whose(void *p)
{
    if (hk_is_libcs(p))
        hk_libc.free(p);
    else
        hk_free_hot(p);
}

static void *hk_realloc_whose(void *p, size_t n)
{
    return hk_is_libcs(p) ? hk_libc.realloc(p, n) : hk_realloc_any(p, n, "realloc");
}

static void *hk_reallocarray_whose(void *p, size_t count, size_t n)
{
    size_t size;
    if (__builtin_mul_overflow(count, n, &size))
        return hk_no_memory();
    return hk_realloc_whose(p, size);
}

static size_t hk_usable_size_whose(void *p) { return hk_is_libcs(p) ? hk_libc.usable_size(p) : hk_usable_size(p); }

/* Where a symbol of the C library is to lead, given our function of that name. */
static uintptr_t hk_redirection_of(const char *name, uintptr_t ours)
{
    if (strncmp(name, "__libc_", 7) == 0)
        name += 7;
    return strcmp(name, "free") == 0 || strcmp(name, "cfree") == 0 ? (uintptr_t)hk_free_whose
           : strcmp(name, "realloc") == 0                          ? (uintptr_t)hk_realloc_whose
           : strcmp(name, "reallocarray") == 0                     ? (uintptr_t)hk_reallocarray_whose
           : strcmp(name, "malloc_usable_size") == 0               ? (uintptr_t)hk_usable_size_whose
                                                                   : ours;
}

/* ---- Redirection ---- */

/* Makes the functions of libc lead to ours of the same name, but for dlopen, which goes on to libc's. */
static void hk_symbols_redirect(const struct hk_symbols *libc, const struct hk_symbols *ours)
{
    for (uint32_t bucket = 0; bucket < ours->nbuckets; bucket++)
        for (uint32_t i = ours->buckets[bucket]; i != 0; i = hk_symbol_next(ours, i)) {
            const ElfW(Sym) *symbol = &ours->symbols[i];
            const char *name = ours->names + symbol->st_name;
            if (!hk_symbol_is_function(symbol) || strcmp(name, "dlopen") == 0)
                continue;
            uintptr_t to = hk_redirection_of(name, ours->base + symbol->st_value);
            for (uint32_t at = 0; (at = hk_symbol_find(libc, name, at)) != 0;)
                /* Lookups by other threads go on meanwhile. */
                __atomic_store_n(&libc->symbols[at].st_value, to - libc->base, __ATOMIC_RELEASE);
        }
}

static bool hk_redirect(const struct dl_phdr_info *object, const struct hk_symbols *ours)
{
    struct hk_symbols libc;
    if (!hk_symbols_of(object, &libc))
        return false;
    const ElfW(Phdr) *segment = hk_segment_at(object, (uintptr_t)libc.symbols);
    if (segment == NULL)
        return false;
    if (hk_libc.free == NULL) { /* else these lead to us: a child was forked in the middle of this */
        *(void **)&hk_libc.realloc = hk_symbol_address(&libc, "realloc");
        *(void **)&hk_libc.usable_size = hk_symbol_address(&libc, "malloc_usable_size");
        *(void **)&hk_libc.free = hk_symbol_address(&libc, "free");
    }
    size_t page = hk_os_page_size();
    uintptr_t start = hk_align_down(libc.base + segment->p_vaddr, page);
    size_t size = hk_align_up(libc.base + segment->p_vaddr + segment->p_filesz - start, page);
    bool writable = (segment->p_flags & PF_W) != 0;
    bool executable = (segment->p_flags & PF_X) != 0;
    if (!writable && !hk_os_unprotect((void *)start, size, executable))
        return false;
    hk_symbols_redirect(&libc, ours);
    if (!writable)
        hk_os_protect((void *)start, size, executable);
    return true;
}

static bool hk_is_libc(const struct dl_phdr_info *object)
{
    const char *file = strrchr(object->dlpi_name, '/');
    return strcmp(file != NULL ? file + 1 : object->dlpi_name, "libc.so.6") == 0;
}

static atomic_bool hk_redirected;

struct hk_redirect_visit {
    struct hk_symbols ours;
    bool refused;
};

/* These are called for each object, in the order in which they were loaded, by one thread at a time: the loader holds
 * a lock (dl_load_write_lock). A result that is not 0 ends it. */
static int hk_visit_to_redirect(struct dl_phdr_info *object, size_t size, void *argument)
{
    (void)size;
    struct hk_redirect_visit *visit = argument;
    if (hk_redirected)
        return 1;
    if (hk_segment_at(object, (uintptr_t)&hk_redirected) != NULL) {
        visit->refused = !hk_symbols_of(object, &visit->ours);
        return visit->refused;
    }
    if (!hk_is_libc(object))
        return 0;
    if (visit->ours.symbols != NULL) {
        hk_redirected = hk_redirect(object, &visit->ours);
        visit->refused = !hk_redirected;
    }
    return 1;
}

static int hk_visit_for_dlopen(struct dl_phdr_info *object, size_t size, void *address)
{
    (void)size;
    struct hk_symbols libc;
    if (!hk_is_libc(object) || !hk_symbols_of(object, &libc))
        return 0;
    *(void **)address = hk_symbol_address(&libc, "dlopen");
    return 1;
}

/* The dlopen that comes after ours. In the scope of a library that needs us, the C library may stand before us; and a
 * dlsym that is not the loader's may look for what comes after itself. */
static hk_dlopen_function *hk_next_dlopen(void)
{
    hk_dlopen_function *next;
    *(void **)&next = dlsym(RTLD_NEXT, "dlopen");
    if (next == NULL || next == hk_dlopen)
        dl_iterate_phdr(hk_visit_for_dlopen, &next);
    return next;
}

struct hk_dlopen_next hk_dlopen_prepare(int mode)
{
    if ((mode & RTLD_DEEPBIND) != 0 && (mode & RTLD_NOLOAD) == 0 && !hk_redirected) {
        struct hk_redirect_visit visit = {.refused = false};
        dl_iterate_phdr(hk_visit_to_redirect, &visit);
        if (visit.refused) /* rather no RTLD_DEEPBIND than two allocators */
            mode &= ~RTLD_DEEPBIND;
    }
    return (struct hk_dlopen_next){.function = hk_next_dlopen(), .mode = mode};
}
