/* Prints the size classes and what they waste, in Markdown: what tools/size-classes builds and runs. */
#include <stdio.h>

#include "heap/size_class.h"

static void print_size(size_t n)
{
    if (n >= HK_MIB && n % HK_MIB == 0)
        printf("%zu MiB", n / HK_MIB);
    else if (n >= HK_KIB && n % HK_KIB == 0)
        printf("%zu KiB", n / HK_KIB);
    else
        printf("%zu", n);
}

static void print_classes(unsigned first, unsigned end)
{
    printf("| class | block size | slots | blocks | tail, bytes | tail | colours | pages | magazine, blocks "
           "| magazine, KiB |\n"
           "|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n");
    for (unsigned i = first; i < end; i++) {
        const struct hk_class *cls = &hk_classes[i];
        size_t bytes = cls->slots * HK_SLOT_SIZE;
        size_t tail = bytes - (size_t)cls->nblocks * cls->size;
        printf("| %u | %u | %u | %u | %zu | %.1f %% | %u | %u | %u | %.1f |\n", i, cls->size, cls->slots, cls->nblocks,
               tail, 100.0 * (double)tail / (double)bytes, cls->ncolours, cls->colour_pages, cls->magazine_max,
               (double)cls->magazine_max * cls->size / (double)HK_KIB);
    }
    printf("\n");
}

/* What is wasted if each size from first to last is asked for once. */
static void print_waste(size_t first, size_t last)
{
    size_t asked = 0, wasted = 0, most = 0;
    for (size_t n = first; n <= last; n++) {
        size_t waste = hk_classes[hk_class_of(n)].size - n;
        asked += n;
        wasted += waste;
        most = hk_max(most, waste);
    }
    printf("| ");
    print_size(first);
    printf(" | ");
    print_size(last);
    printf(" | %.2f %% | %zu |\n", 100.0 * (double)wasted / (double)asked, most);
}

int main(void)
{
    printf(
        "# Size classes\n\n"
        "Printed by `tools/size-classes` from the tables in `src/heap/size_class.def` and `src/heap/size_class.c`; a\n"
        "test compares. A slab is a run of slots (64 KiB each) cut into blocks; its tail holds no block and, but for\n"
        "colouring, is never touched, so it costs address space and no memory. Its first block begins at one of so\n"
        "many colours in one of so many pages. The magazine columns are what one magazine of the class may hold at\n"
        "most.\n\n");
    printf("## Small\n\n");
    print_classes(0, HK_CLASS_FIRST_MEDIUM);
    printf("## Medium\n\n");
    print_classes(HK_CLASS_FIRST_MEDIUM, HK_CLASS_FIRST_ALIGNED);
    printf("## Aligned requests only\n\n");
    print_classes(HK_CLASS_FIRST_ALIGNED, HK_NCLASSES);

    printf(
        "## Waste\n\n"
        "Bytes of blocks that were not asked for, if every size of the band is asked for once: as a part of the bytes\n"
        "asked for, and the most in one block.\n\n"
        "| from | to | waste | most, bytes |\n|--:|--:|--:|--:|\n");
    for (size_t last = HK_MIN_ALIGN, first = 1; last <= HK_MEDIUM_MAX; first = last + 1, last *= 2)
        print_waste(first, last);
    print_waste(1, HK_SMALL_MAX);
    print_waste(HK_SMALL_MAX + 1, HK_MIB);
    return 0;
}
