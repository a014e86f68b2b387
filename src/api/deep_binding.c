/*
 * dlopen with RTLD_DEEPBIND (dlopen(3)). What is loaded so looks for symbols in its own dependencies first, and finds
 * the C library's malloc and free there, while the rest of the program, the C library included, has hakmem's. Then one
 * of them frees what the other allocated: PHP ends so, whatever allocator is preloaded.
 *
 * So before the first such library is loaded, the C library's symbols of the names that it shares with us are made to
 * lead to us, in its dynamic symbol table (System V ABI, "Dynamic Linking"): whoever asks the C library for malloc is
 * given hakmem's. Nothing has been bound to its own before, as we stand before it where the program's symbols are
 * looked for; where we do not, all stays as it is. For all other names RTLD_DEEPBIND keeps its meaning.
 *
 * Only in libhakmem.so: a program that is linked statically has no other dlopen to go on to.
 */
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <string.h>

#include "base/base.h"
#include "base/os.h"

typedef void *hk_dlopen_function(const char *file, int mode);

/* How dlopen goes on: with which function, and in which mode. Returned in two registers. */
struct hk_dlopen_next {
    hk_dlopen_function *function;
    long mode;
};
struct hk_dlopen_next hk_dlopen_prepare(int mode);

/* dlopen(file, mode). The C library tells by the return address whose run path and which namespace are meant: so this
 * jumps there, as no C function is sure to. */
#if defined(__x86_64__)
__asm__(".text\n"
        ".globl dlopen\n"
        ".type dlopen, @function\n"
        "dlopen:\n"
        "    .cfi_startproc\n"
        "    pushq %rdi\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    movl %esi, %edi\n"
        "    call hk_dlopen_prepare\n"
        "    popq %rdi\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    movl %edx, %esi\n"
        "    jmp *%rax\n"
        "    .cfi_endproc\n"
        ".size dlopen, .-dlopen\n");
#elif defined(__aarch64__)
__asm__(".text\n"
        ".balign 4\n"
        ".globl dlopen\n"
        ".type dlopen, @function\n"
        "dlopen:\n"
        "    .cfi_startproc\n"
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
        "    .cfi_endproc\n"
        ".size dlopen, .-dlopen\n");
#else
#error "dlopen is not written for this architecture"
#endif

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
        /* The loader of the GNU C library has added the base; others have not. */
        uintptr_t address = d->d_un.d_ptr < s->base ? s->base + d->d_un.d_ptr : d->d_un.d_ptr;
        if (d->d_tag == DT_SYMTAB)
            s->symbols = (void *)address;
        else if (d->d_tag == DT_STRTAB)
            s->names = (const void *)address;
        else if (d->d_tag == DT_GNU_HASH)
            hash = (const void *)address;
    }
    if (s->symbols == NULL || s->names == NULL || hash == NULL)
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

static bool hk_symbol_is_function(const ElfW(Sym) *symbol)
{
    return symbol->st_shndx != SHN_UNDEF && ELF64_ST_TYPE(symbol->st_info) == STT_FUNC;
}

/* Makes all functions of an object that have a name lead to an address. */
static void hk_symbols_lead(const struct hk_symbols *s, const char *name, uintptr_t address)
{
    uint32_t hash = hk_symbol_hash(name);
    uint32_t i = s->buckets[hash % s->nbuckets];
    for (; i != 0; i = (s->chain[i - s->first] & 1) != 0 ? 0 : i + 1) {
        ElfW(Sym) *symbol = &s->symbols[i];
        if (((s->chain[i - s->first] ^ hash) | 1) == 1 && hk_symbol_is_function(symbol) &&
            strcmp(s->names + symbol->st_name, name) == 0)
            __atomic_store_n(&symbol->st_value, address - s->base, __ATOMIC_RELAXED); /* lookups go on meanwhile */
    }
}

/* Makes the functions of libc that have the name of one of ours lead to that, but for dlopen, which needs its own. */
static void hk_symbols_lead_to(const struct hk_symbols *libc, const struct hk_symbols *ours)
{
    for (uint32_t bucket = 0; bucket < ours->nbuckets; bucket++) {
        uint32_t i = ours->buckets[bucket];
        for (; i != 0; i = (ours->chain[i - ours->first] & 1) != 0 ? 0 : i + 1) {
            const ElfW(Sym) *symbol = &ours->symbols[i];
            const char *name = ours->names + symbol->st_name;
            if (hk_symbol_is_function(symbol) && strcmp(name, "dlopen") != 0)
                hk_symbols_lead(libc, name, ours->base + symbol->st_value);
        }
    }
}

/* ---- The C library ---- */

enum hk_redirection { HK_NOT_YET, HK_NOT_NEEDED, HK_REDIRECTED, HK_REFUSED };

/* Written while the loader's lock is held. */
static _Atomic(enum hk_redirection) hk_redirection;

static enum hk_redirection hk_redirect(const struct dl_phdr_info *libc, const struct hk_symbols *ours)
{
    struct hk_symbols theirs;
    if (!hk_symbols_of(libc, &theirs))
        return HK_REFUSED;
    const ElfW(Phdr) *segment = hk_segment_at(libc, (uintptr_t)theirs.symbols);
    if (segment == NULL || (segment->p_flags & PF_W) != 0)
        return HK_REFUSED;
    size_t page = hk_os_page_size();
    uintptr_t start = (theirs.base + segment->p_vaddr) & ~(page - 1);
    size_t size = hk_align_up(theirs.base + segment->p_vaddr + segment->p_filesz - start, page);
    bool executable = (segment->p_flags & PF_X) != 0;
    if (!hk_os_unprotect((void *)start, size, executable))
        return HK_REFUSED;
    hk_symbols_lead_to(&theirs, ours);
    hk_os_protect((void *)start, size, executable);
    return HK_REDIRECTED;
}

/* Called for each object, in the order in which they were loaded, under the loader's lock. */
static int hk_visit_object(struct dl_phdr_info *object, size_t size, void *argument)
{
    (void)size;
    struct hk_symbols *ours = argument;
    if (hk_redirection != HK_NOT_YET)
        return 1;
    if (hk_segment_at(object, (uintptr_t)&hk_redirection) != NULL && !hk_symbols_of(object, ours))
        hk_redirection = HK_REFUSED;
    const char *file = strrchr(object->dlpi_name, '/');
    if (strcmp(file != NULL ? file + 1 : object->dlpi_name, "libc.so.6") == 0)
        hk_redirection = ours->symbols == NULL ? HK_NOT_NEEDED : hk_redirect(object, ours);
    return hk_redirection != HK_NOT_YET;
}

struct hk_dlopen_next hk_dlopen_prepare(int mode)
{
    if ((mode & RTLD_DEEPBIND) != 0 && (mode & RTLD_NOLOAD) == 0) {
        struct hk_symbols ours = {0};
        if (hk_redirection == HK_NOT_YET)
            dl_iterate_phdr(hk_visit_object, &ours);
        if (hk_redirection == HK_REFUSED) /* rather all of the program's symbols than two mallocs */
            mode &= ~RTLD_DEEPBIND;
    }
    struct hk_dlopen_next next = {.mode = mode};
    *(void **)&next.function = dlsym(RTLD_NEXT, "dlopen");
    return next;
}
