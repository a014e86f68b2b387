/*
 * Maps of strings to strings, as C++ programs build them, and their end.
 *
 * Stands for headers, attributes, symbol tables, parsed configurations: std::map with keys and values that are too long
 * to be kept inside the string, so each entry is a node and up to two strings. When a map goes, its blocks are freed in
 * the order of its keys, which is no order of addresses, and most of them have left the caches.
 *
 * Some maps are built, then they go, in shuffled order, and so on until MAPS have been there.
 *
 * Figure: nanoseconds per entry, building and tearing down; build_ns and drop_ns are its halves. Check, not timed: the
 * values of all entries, and that a key is found.
 *
 *     string_map ENTRIES_OF_EACH AT_ONCE MAPS
 */
#include "arguments.h"
#include "sizes.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

using StringMap = std::map<std::string, std::string>;

static std::string key_of(uint64_t number)
{
    uint64_t state = number;
    std::string key(size_lognormal(&state, 20, 0.7, 8, 80), '\0');
    for (char &letter : key)
        letter = static_cast<char>('a' + random_next(&state) % 26);
    return key;
}

static void fill(StringMap &map, uint64_t first, size_t entries)
{
    for (uint64_t number = first; number < first + entries; number++) {
        uint64_t state = ~number;
        map.emplace(key_of(number), std::string(size_lognormal(&state, 32, 1.0, 1, 300), 'v'));
    }
}

static void check(const StringMap &map, uint64_t first, size_t entries)
{
    size_t found = 0;
    for (const auto &[key, value] : map)
        found += value.find_first_not_of('v') == std::string::npos;
    if (found > entries || found != map.size() || map.find(key_of(first + entries / 2)) == map.end())
        fail("a map of %zu entries has %zu that are as they were put in", map.size(), found);
}

int main(int argc, char **argv)
{
    size_t entries = count_argument(argc, argv, 1, "ENTRIES_OF_EACH");
    size_t at_once = count_argument(argc, argv, 2, "AT_ONCE");
    size_t maps = count_argument(argc, argv, 3, "MAPS");
    auto **map = static_cast<StringMap **>(table_of(at_once, sizeof(StringMap *)));
    uint64_t state = 1;

    double building = 0, dropping = 0;
    stopwatch start = stopwatch_start();
    for (size_t left = maps, count; left > 0; left -= count) {
        count = std::min(left, at_once);
        uint64_t first = left * entries;
        stopwatch phase = stopwatch_start();
        for (size_t i = 0; i < count; i++) {
            map[i] = new StringMap;
            fill(*map[i], first + i * entries, entries);
        }
        building += stopwatch_read(phase).cpu;
        for (size_t i = 0; i < count; i++)
            check(*map[i], first + i * entries, entries);
        for (size_t i = count - 1; i > 0; i--)
            std::swap(map[i], map[size_between(&state, 0, i)]);
        phase = stopwatch_start();
        for (size_t i = 0; i < count; i++)
            delete map[i];
        dropping += stopwatch_read(phase).cpu;
    }
    stopwatch elapsed = stopwatch_read(start);
    double each = 1e9 / static_cast<double>(maps * entries);
    report((building + dropping) * each, "ns", elapsed, "build_ns=%.1f drop_ns=%.1f", building * each, dropping * each);
    return 0;
}
