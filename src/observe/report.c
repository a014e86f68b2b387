#include "observe/report.h"

#include <errno.h>

#include "base/os.h"
#include "base/text.h"
#include "heap/purge_counts.h"
#include "observe/stats.h"

#define HK_COLUMN 40 /* where the numbers end */

static void hk_row(struct hk_text *text, const char *name, size_t value, const char *doc)
{
    hk_text_str(text, "  ");
    hk_text_str(text, name);
    hk_text_dec_at(text, value, HK_COLUMN);
    if (*doc != '\0') {
        hk_text_str(text, "   ");
        hk_text_str(text, doc);
    }
    hk_text_char(text, '\n');
}

static void hk_section(struct hk_text *text, const char *title)
{
    hk_text_str(text, title);
    hk_text_char(text, '\n');
}

static void hk_report_memory(struct hk_text *text, const struct hk_stats *stats)
{
    hk_text_str(text, "hakmem: statistics of ");
    hk_text_str(text, program_invocation_short_name);
    hk_text_char(text, '[');
    hk_text_dec(text, hk_os_process_id());
    hk_text_str(text, "]\n");
    hk_section(text, "hakmem: memory, in bytes");
    hk_row(text, "live", stats->live_bytes, "blocks that the program has");
    hk_row(text, "cached", stats->cached_bytes, "freed blocks in threads' magazines and reserves, or on their way");
    hk_row(text, "on_their_way", stats->sent_bytes, "of cached: freed by threads that do not own them");
    hk_row(text, "free_in_slabs", stats->free_bytes, "free blocks of slabs");
    hk_row(text, "large_runs", stats->large.run_bytes, "of live: blocks of superslabs");
    hk_row(text, "large_mappings", stats->large.mapping_bytes, "of live: blocks that are mappings");
    hk_row(text, "metadata", stats->meta_used, "hakmem's own structures, of which not every page has memory");
    hk_row(text, "metadata_mapped", stats->meta_mapped, "");
    hk_row(text, "resident_estimate", stats->resident, "at most: used and not given back");
    hk_row(text, "committed", stats->committed, "readable and writable");
    hk_row(text, "committed_peak", stats->committed_peak, "");
    hk_row(text, "mapped", stats->mapped, "address space");
}

static void hk_report_counters(struct hk_text *text, const struct hk_stats *stats)
{
    hk_section(text, "hakmem: superslabs (2 MiB) and slots (64 KiB)");
    hk_row(text, "superslabs_mapped", stats->superslabs.reserved, "address space made into superslabs");
    hk_row(text, "superslabs_carved", stats->superslabs.carved, "cut into slots");
    hk_row(text, "superslabs_large", stats->superslabs.large, "in large blocks");
    hk_row(text, "superslabs_cached", stats->superslabs.cached, "empty, with their memory (LRU cache)");
    hk_row(text, "superslabs_cached_peak", stats->superslabs.cached_peak, "");
    hk_row(text, "superslabs_purged", stats->superslabs.purged, "memory given back to the OS");
    hk_row(text, "superslabs_unmapped", stats->superslabs.unmapped, "address space given back to the OS");
    hk_row(text, "superslabs_huge", stats->superslabs.huge, "advised for huge pages");
    hk_row(text, "slots_active", stats->pool.slots_active, "");
    hk_row(text, "slots_empty", stats->pool.slots_empty, "free, with their memory");
    hk_row(text, "slots_populated", stats->pool.slots_populated, "of these, never used");
#define HK_POOL_COUNTER(name, doc) hk_row(text, #name, stats->pool.name, doc);
#include "base/stats.def"
    hk_section(text, "hakmem: heaps");
    hk_row(text, "heaps", stats->heaps, "of threads, parked ones included");
    hk_row(text, "heaps_parked", stats->heaps_parked, "whose thread has exited");
#define HK_HEAP_COUNTER(name, doc) hk_row(text, #name, stats->heap.name, doc);
#include "base/stats.def"
    hk_section(text, "hakmem: large blocks");
    hk_row(text, "large_live", stats->large.runs + stats->large.mappings, "");
    hk_row(text, "large_allocs", stats->large.allocs, "");
    hk_row(text, "large_frees", stats->large.frees, "");
    hk_row(text, "large_remaps", stats->large.remaps, "grown by moving pages, not bytes");
    hk_row(text, "mapping_cache_hits", stats->large.cache_hits, "");
    hk_section(text, "hakmem: memory given back");
#define HK_PURGE_COUNTER(name, doc) hk_row(text, #name, hk_purge_counts.name, doc);
#include "base/stats.def"
    hk_section(text, "hakmem: system calls");
    hk_row(text, "mmap", hk_os_counts.mmap, "");
    hk_row(text, "munmap", hk_os_counts.munmap, "");
    hk_row(text, "mprotect", hk_os_counts.mprotect, "");
    hk_row(text, "madvise", hk_os_counts.madvise, "");
    hk_row(text, "mremap", hk_os_counts.mremap, "");
    hk_row(text, "failed", hk_os_counts.failed, "of these");
}

/* The bands of the report, by their largest block. */
static const uint32_t hk_bands[] = {16, 32, 64, 128, 256, 512, 1024, 4096, 1u << 16, 2u << 20};

static void hk_report_classes(struct hk_text *text, const struct hk_stats *stats)
{
    hk_section(text,
               "hakmem: blocks by size\n        up to           live         cached           free          slabs");
    for (unsigned band = 0; band < HK_COUNT(hk_bands); band++) {
        struct hk_class_stats sum = {0};
        for (unsigned cls = 0; cls < HK_NCLASSES; cls++) {
            uint32_t size = hk_classes[cls].size;
            if (size > hk_bands[band] || (band > 0 && size <= hk_bands[band - 1]))
                continue;
            sum.live += stats->classes[cls].live;
            sum.cached += stats->classes[cls].cached;
            sum.free += stats->classes[cls].free;
            sum.slabs += stats->classes[cls].slabs;
        }
        if (sum.slabs == 0)
            continue;
        hk_text_dec_at(text, hk_bands[band], 13);
        hk_text_dec_at(text, sum.live, 28);
        hk_text_dec_at(text, sum.cached, 43);
        hk_text_dec_at(text, sum.free, 58);
        hk_text_dec_at(text, sum.slabs, 73);
        hk_text_char(text, '\n');
    }
}

/* Too large for the smallest stacks that threads may have. */
struct hk_report {
    struct hk_stats stats;
    char text[8192];
};

void hk_report_print(void)
{
    size_t page = hk_os_page_size(), size = hk_align_up(sizeof(struct hk_report), page);
    struct hk_report *report = hk_os_map(size, page);
    if (report == NULL) {
        static const char message[] = "hakmem: no memory to print statistics\n";
        hk_os_write_stderr(message, sizeof message - 1);
        return;
    }
    struct hk_text text = hk_text_on(report->text, sizeof report->text);
    hk_stats_read(&report->stats);
    hk_report_memory(&text, &report->stats);
    hk_report_classes(&text, &report->stats);
    hk_report_counters(&text, &report->stats);
    hk_text_report(&text);
    hk_os_unmap(report, size, size);
}

struct mallinfo2 hk_report_mallinfo(void)
{
    struct hk_stats stats;
    hk_stats_read(&stats);
    size_t idle = stats.pool.slots_empty * HK_SLOT_SIZE + stats.superslabs.cached * HK_SUPERSLAB_SIZE;
    size_t arena = stats.slab_bytes + idle, large = stats.large.run_bytes + stats.large.mapping_bytes;
    return (struct mallinfo2){
        .arena = arena,
        .ordblks = stats.superslabs.carved + 1,
        .hblks = stats.large.runs + stats.large.mappings,
        .hblkhd = large,
        .uordblks = stats.live_bytes - large,
        .fordblks = arena - (stats.live_bytes - large),
        .keepcost = idle,
    };
}

void hk_report_xml(FILE *stream)
{
    struct hk_stats stats;
    hk_stats_read(&stats);
    size_t rest_count = 0;
    size_t rest_bytes = 0;
    fprintf(stream, "<malloc version=\"1\">\n<heap nr=\"0\">\n<sizes>\n");
    for (unsigned i = 0; i < HK_NCLASSES; i++) {
        const struct hk_class_stats *cls = &stats.classes[i];
        size_t count = cls->free + cls->cached;
        size_t bytes = count * hk_classes[i].size;
        if (count != 0)
            fprintf(stream, "  <size from=\"%u\" to=\"%u\" total=\"%zu\" count=\"%zu\"/>\n", hk_classes[i].size,
                    hk_classes[i].size, bytes, count);
        rest_count += count;
        rest_bytes += bytes;
    }
    size_t system = stats.resident;
    fprintf(stream, "</sizes>\n");
    fprintf(stream, "<total type=\"fast\" count=\"0\" size=\"0\"/>\n");
    fprintf(stream, "<total type=\"rest\" count=\"%zu\" size=\"%zu\"/>\n", rest_count, rest_bytes);
    fprintf(stream, "<system type=\"current\" size=\"%zu\"/>\n", system);
    fprintf(stream, "<system type=\"max\" size=\"%zu\"/>\n", stats.committed_peak);
    fprintf(stream, "<aspace type=\"total\" size=\"%zu\"/>\n", stats.mapped);
    fprintf(stream, "<aspace type=\"mprotect\" size=\"%zu\"/>\n", stats.committed);
    fprintf(stream, "</heap>\n");
    fprintf(stream, "<total type=\"fast\" count=\"0\" size=\"0\"/>\n");
    fprintf(stream, "<total type=\"rest\" count=\"%zu\" size=\"%zu\"/>\n", rest_count, rest_bytes);
    fprintf(stream, "<total type=\"mmap\" count=\"%zu\" size=\"%zu\"/>\n", stats.large.runs + stats.large.mappings,
            stats.large.run_bytes + stats.large.mapping_bytes);
    fprintf(stream, "<system type=\"current\" size=\"%zu\"/>\n", system);
    fprintf(stream, "<system type=\"max\" size=\"%zu\"/>\n", stats.committed_peak);
    fprintf(stream, "<aspace type=\"total\" size=\"%zu\"/>\n", stats.mapped);
    fprintf(stream, "<aspace type=\"mprotect\" size=\"%zu\"/>\n", stats.committed);
    fprintf(stream, "</malloc>\n");
}
