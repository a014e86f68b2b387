/* Options: the table, every type with its bounds, made-up environments and what they are told on standard error. */
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "c_begin.h"
#include "base/options.h"
#include "c_end.h"

namespace
{

const struct {
    const char *name, *type;
    uint64_t default_value, min, max;
} kOptions[] = {
#define HK_OPTION(name, type, default_value, min, max, doc) {#name, #type, default_value, min, max},
#include "base/options.def"
#undef HK_OPTION
};

std::string read(const char *name)
{
    char buf[64];
    hk_text text = hk_text_on(buf, sizeof buf);
    EXPECT_TRUE(hk_option_read(name, &text)) << name;
    return buf;
}

/* All options have their defaults before and after each test. */
class Options : public testing::Test
{
  protected:
    void SetUp() override { reset(); }
    void TearDown() override { reset(); }

    static void reset()
    {
        for (unsigned i = 0; i < HK_NOPTIONS; i++)
            hk_option_values[i] = kOptions[i].default_value;
    }
    /* Reads an environment; returns what was said about it. */
    static std::string start_with(std::vector<const char *> variables)
    {
        variables.push_back(nullptr);
        testing::internal::CaptureStderr();
        hk_options_init(const_cast<char *const *>(variables.data()));
        return testing::internal::GetCapturedStderr();
    }
    static bool is(const char *name, const char *type)
    {
        for (const auto &option : kOptions)
            if (strcmp(option.name, name) == 0)
                return strcmp(option.type, type) == 0;
        return false;
    }
};

TEST_F(Options, TableIsInOrder)
{
    EXPECT_EQ(std::size(kOptions), static_cast<size_t>(HK_NOPTIONS));
    for (const auto &option : kOptions) {
        EXPECT_LE(option.min, option.default_value) << option.name;
        EXPECT_LE(option.default_value, option.max) << option.name;
        EXPECT_LT(strlen(option.name), 31u) << option.name;
        for (const char *c = option.name; *c != '\0'; c++)
            EXPECT_TRUE((*c >= 'a' && *c <= 'z') || *c == '_' || (*c >= '0' && *c <= '9')) << option.name;
    }
}

bool is_for_the_start(const std::string &name)
{
    return name == "help" || name == "prefault" || name.rfind("prewarm", 0) == 0;
}

TEST_F(Options, TakeTheirBoundsAndNothingBeyond)
{
    for (const auto &option : kOptions) {
        if (is(option.name, "profile") || is(option.name, "on_error") || is(option.name, "thp") ||
            is(option.name, "trace") || strcmp(option.name, "help") == 0 || is_for_the_start(option.name))
            continue;
        for (uint64_t value : {option.min, option.max}) {
            EXPECT_EQ(hk_option_write(option.name, std::to_string(value).c_str()), HK_OPTION_OK) << option.name;
            EXPECT_EQ(read(option.name), std::to_string(value));
        }
        EXPECT_EQ(hk_option_write(option.name, std::to_string(option.max + 1).c_str()), HK_OPTION_INVALID);
        if (option.min > 0) {
            EXPECT_EQ(hk_option_write(option.name, std::to_string(option.min - 1).c_str()), HK_OPTION_INVALID);
        }
        for (const char *bad : {"", " ", "x", "-1", "1x", "1 ", " 1", "0x1", "99999999999999999999999", "1.5"})
            EXPECT_EQ(hk_option_write(option.name, bad), HK_OPTION_INVALID) << option.name << "=" << bad;
        EXPECT_EQ(read(option.name), std::to_string(option.max)) << "a bad value changes nothing";
    }
}

TEST_F(Options, BytesHaveUnits)
{
    const struct {
        const char *text;
        uint64_t value; /* 0: not valid */
    } cases[] = {
        {"65536", 65536},
        {"64K", 64 << 10},
        {"64k", 64 << 10},
        {"3M", 3 << 20},
        {"3m", 3 << 20},
        {"1G", 1 << 30},
        {"1g", 1 << 30},
        {"2G", 0},
        {"K", 0},
        {"64KB", 0},
        {"64 K", 0},
        {"64T", 0},
        {"18446744073709551615G", 0},
        {"17179869184G", 0}, /* 2^34 units of 2^30 */
        {"18014398509481984K", 0},
    };
    for (const auto &c : cases) {
        reset();
        enum hk_option_result result = hk_option_write("thread_budget", c.text);
        EXPECT_EQ(result, c.value != 0 ? HK_OPTION_OK : HK_OPTION_INVALID) << c.text;
        if (c.value != 0) {
            EXPECT_EQ(hk_option(thread_budget), c.value) << c.text;
        }
    }
    EXPECT_EQ(hk_option_write("magazine_blocks", "1K"), HK_OPTION_INVALID) << "a count has no unit";
}

TEST_F(Options, LimitsMayReferToTheCgroup)
{
    for (const char *value : {"0", "1", "4096", "100%", "1%", "75%"}) {
        EXPECT_EQ(hk_option_write("limit_hard", value), HK_OPTION_OK) << value;
        EXPECT_EQ(read("limit_hard"), value);
    }
    EXPECT_EQ(hk_option_write("limit_hard", "3G"), HK_OPTION_OK);
    EXPECT_EQ(hk_option(limit_hard), 3ull << 30);
    EXPECT_EQ(hk_option_write("limit_hard", "cgroup"), HK_OPTION_OK);
    EXPECT_EQ(read("limit_hard"), "100%");
    for (const char *bad : {"0%", "101%", "%", "-1%", "50 %", "1G%", "Cgroup", "cgroups"})
        EXPECT_EQ(hk_option_write("limit_hard", bad), HK_OPTION_INVALID) << bad;
    EXPECT_EQ(read("limit_hard"), "100%") << "a bad value changes nothing";
}

TEST_F(Options, KindsOfEventsMayBeSeveral)
{
    const struct {
        const char *text, *value;
        uint64_t kinds;
    } cases[] = {
        {"none", "none", 0},
        {"lru", "lru", HK_TRACE_LRU},
        {"drain,purge", "purge,drain", HK_TRACE_PURGE | HK_TRACE_DRAIN},
        {"purge,slot,lru,drain", "purge,slot,lru,drain",
         HK_TRACE_PURGE | HK_TRACE_SLOT | HK_TRACE_LRU | HK_TRACE_DRAIN},
    };
    for (const auto &c : cases) {
        EXPECT_EQ(hk_option_write("trace", c.text), HK_OPTION_OK) << c.text;
        EXPECT_EQ(hk_option(trace), c.kinds);
        EXPECT_EQ(read("trace"), c.value);
    }
    for (const char *bad : {"", ",", "purge,", ",purge", "purge,,lru", "purg", "purges", "all", "Purge", "none,lru"})
        EXPECT_EQ(hk_option_write("trace", bad), HK_OPTION_INVALID) << bad;
}

TEST_F(Options, WordsAreTakenAsTheyAre)
{
    for (const char *word : {"warn", "ignore", "abort"}) {
        EXPECT_EQ(hk_option_write("on_error", word), HK_OPTION_OK);
        EXPECT_EQ(read("on_error"), word);
    }
    for (const char *bad : {"", "0", "1", "Abort", "abor", "aborted"})
        EXPECT_EQ(hk_option_write("on_error", bad), HK_OPTION_INVALID) << bad;
    EXPECT_EQ(hk_option(on_error), static_cast<uint64_t>(HK_ON_ERROR_ABORT));
}

TEST_F(Options, UnknownAndFixedNames)
{
    for (const char *name : {"", "foo", "STATS", "stat", "statss", "HAKMEM_STATS"}) {
        char buf[8];
        hk_text text = hk_text_on(buf, sizeof buf);
        EXPECT_EQ(hk_option_write(name, "1"), HK_OPTION_UNKNOWN) << name;
        EXPECT_FALSE(hk_option_read(name, &text)) << name;
    }
    for (const auto &option : kOptions) {
        if (!is_for_the_start(option.name))
            continue;
        std::string before = read(option.name);
        EXPECT_EQ(hk_option_write(option.name, "1"), HK_OPTION_FIXED) << option.name;
        EXPECT_EQ(read(option.name), before);
    }
    EXPECT_EQ(hk_option_write("help", "x"), HK_OPTION_INVALID);
}

TEST_F(Options, ProfilesSetSeveralAtOnce)
{
    EXPECT_EQ(hk_option_write("profile", "low-memory"), HK_OPTION_OK);
    EXPECT_EQ(read("profile"), "low-memory");
    EXPECT_LT(hk_option(magazine_blocks), kOptions[HK_OPTION_magazine_blocks].default_value);
    EXPECT_LT(hk_option(superslab_max_cached), kOptions[HK_OPTION_superslab_max_cached].default_value);
    reset();
    hk_option_write("profile", "throughput");
    EXPECT_GT(hk_option(thread_budget), kOptions[HK_OPTION_thread_budget].default_value);
    reset();
    hk_option_write("profile", "hardened");
    EXPECT_EQ(hk_option(checked), 1u);
    EXPECT_EQ(hk_option_write("profile", "fast"), HK_OPTION_INVALID);
    for (const char *profile : {"default", "throughput", "low-memory", "hardened", "debug"}) {
        reset();
        EXPECT_EQ(hk_option_write("profile", profile), HK_OPTION_OK);
        for (unsigned i = 0; i < HK_NOPTIONS; i++) {
            EXPECT_GE(hk_option_values[i], kOptions[i].min) << profile << " sets " << kOptions[i].name;
            EXPECT_LE(hk_option_values[i], kOptions[i].max) << profile << " sets " << kOptions[i].name;
        }
    }
}

/* ---- The environment ---- */

TEST_F(Options, EnvironmentIsReadWithoutAWord)
{
    EXPECT_EQ(start_with({"PATH=/bin", "HAKMEM_STATS=1", "HAKMEM_THREAD_BUDGET=1M", "HAKMEM_ON_ERROR=warn", "HOME=/"}),
              "");
    EXPECT_EQ(hk_option(stats), 1u);
    EXPECT_EQ(hk_option(thread_budget), 1u << 20);
    EXPECT_EQ(hk_option(on_error), static_cast<uint64_t>(HK_ON_ERROR_WARN));
    EXPECT_EQ(start_with({}), "");
    testing::internal::CaptureStderr();
    hk_options_init(nullptr);
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST_F(Options, UnknownVariablesAreNamed)
{
    EXPECT_EQ(start_with({"HAKMEM_FOO=1"}), "hakmem: unknown option HAKMEM_FOO (HAKMEM_HELP=1 lists them)\n");
    EXPECT_EQ(start_with({"HAKMEM_=1"}), "hakmem: unknown option HAKMEM_ (HAKMEM_HELP=1 lists them)\n");
    EXPECT_EQ(start_with({"HAKMEM_stats=1"}), "hakmem: unknown option HAKMEM_stats (HAKMEM_HELP=1 lists them)\n");
    EXPECT_EQ(hk_option(stats), 0u);
    for (const char *not_ours : {"HAKMEM", "HAKMEMSTATS=1", "XHAKMEM_STATS=1", "HAKMEM_STATS", "=HAKMEM_STATS=1"})
        EXPECT_EQ(start_with({not_ours}), "") << not_ours;
    EXPECT_EQ(hk_option(stats), 0u);
    std::string name = "HAKMEM_" + std::string(1000, 'X'), said = start_with({(name + "=1").c_str()});
    EXPECT_EQ(said.compare(0, 30, "hakmem: unknown option HAKMEM_X"), -1) << said;
    EXPECT_LT(said.size(), 300u) << "a line is a line";
    EXPECT_EQ(said.back(), '\n');
}

TEST_F(Options, BadValuesAreNamedWithWhatIsUsed)
{
    EXPECT_EQ(start_with({"HAKMEM_ON_ERROR=xyz"}),
              "hakmem: HAKMEM_ON_ERROR=xyz is not valid: expected abort, warn or ignore; using abort\n");
    EXPECT_EQ(start_with({"HAKMEM_STATS=2"}), "hakmem: HAKMEM_STATS=2 is not valid: expected 0 or 1; using 0\n");
    EXPECT_EQ(start_with({"HAKMEM_STATS="}), "hakmem: HAKMEM_STATS= is not valid: expected 0 or 1; using 0\n");
    EXPECT_EQ(start_with({"HAKMEM_SUPERSLAB_TTL_SEC=86401"}),
              "hakmem: HAKMEM_SUPERSLAB_TTL_SEC=86401 is not valid: expected a number from 0 to 86400; using 10\n");
    EXPECT_EQ(start_with({"HAKMEM_THREAD_BUDGET=1"}),
              "hakmem: HAKMEM_THREAD_BUDGET=1 is not valid: expected bytes (K, M or G may follow) from 16384 to "
              "1073741824; using " +
                  std::to_string(kOptions[HK_OPTION_thread_budget].default_value) + "\n");
    std::string value = "HAKMEM_STATS=" + std::string(2000, '1');
    EXPECT_LT(start_with({value.c_str()}).size(), 600u);
}

TEST_F(Options, OptionsBesideAProfileWinInWhateverOrder)
{
    EXPECT_EQ(start_with({"HAKMEM_MAGAZINE_BLOCKS=40", "HAKMEM_PROFILE=low-memory", "HAKMEM_SUPERSLAB_TTL_SEC=5"}), "");
    EXPECT_EQ(hk_option(magazine_blocks), 40u);
    EXPECT_EQ(hk_option(superslab_ttl_sec), 5u);
    EXPECT_EQ(hk_option(superslab_max_cached), 2u) << "the profile's";
}

TEST_F(Options, HelpListsEveryOption)
{
    std::string help = start_with({"HAKMEM_HELP=1"});
    for (const auto &option : kOptions) {
        std::string name = "  HAKMEM_";
        for (const char *c = option.name; *c != '\0'; c++)
            name += static_cast<char>(toupper(*c));
        size_t at = help.find("\n" + name + "=");
        ASSERT_NE(at, std::string::npos) << name;
        size_t end = help.find("\n  HAKMEM_", at + 1);
        std::string entry = help.substr(at, end == std::string::npos ? end : end + 1 - at);
        EXPECT_EQ(entry.substr(entry.size() - 2), ")\n") << "nothing of it is cut off: " << entry;
    }
    EXPECT_EQ(help.back(), '\n');
    for (size_t begin = 0, end; (end = help.find('\n', begin)) != std::string::npos; begin = end + 1)
        EXPECT_LE(end - begin, 79u) << help.substr(begin, end - begin);
}

} // namespace
