#include "base/options.h"

#include <string.h>

#include "base/os.h"

_Atomic uint64_t hk_option_values[HK_NOPTIONS] = {
#define HK_OPTION(name, type, default_value, min, max, doc) [HK_OPTION_##name] = (default_value),
#include "base/options.def"
#undef HK_OPTION
};

enum hk_option_type {
    HK_TYPE_flag,
    HK_TYPE_count,
    HK_TYPE_bytes,
    HK_TYPE_limit,
    HK_TYPE_profile, /* the first that is a list of words */
    HK_TYPE_on_error,
    HK_TYPE_thp,
    HK_TYPE_trace, /* of which several may be given: each is a bit */
};

#define HK_WORDS_MAX 5
#define HK_WORD_LENGTH 12

/* Lists of words; a word's position is the option's value. */
static const char hk_words[][HK_WORDS_MAX][HK_WORD_LENGTH] = {
    [HK_TYPE_profile] = {"default", "throughput", "low-memory", "hardened", "debug"},
    [HK_TYPE_on_error] = {[HK_ON_ERROR_ABORT] = "abort", [HK_ON_ERROR_WARN] = "warn", [HK_ON_ERROR_IGNORE] = "ignore"},
    [HK_TYPE_thp] = {[HK_THP_AUTO] = "auto", [HK_THP_ALWAYS] = "always", [HK_THP_NEVER] = "never"},
    [HK_TYPE_trace] = {"purge", "slot", "lru", "drain"},
};
#define HK_TRACE_WORDS 4u

/* Flat text instead of pointers: the table needs no relocation when the library is loaded. */
struct hk_option_info {
    char name[32];
    uint64_t default_value, min, max;
    enum hk_option_type type;
    char doc[192];
};

static const struct hk_option_info hk_option_infos[HK_NOPTIONS] = {
#define HK_OPTION(name, type, default_value, min, max, doc) {#name, default_value, min, max, HK_TYPE_##type, doc},
#include "base/options.def"
#undef HK_OPTION
};

/* What a profile sets; pairs of option and value. */
struct hk_profile_setting {
    uint8_t profile;
    uint8_t option;
    uint32_t value;
};

enum { HK_PROFILE_DEFAULT, HK_PROFILE_THROUGHPUT, HK_PROFILE_LOW_MEMORY, HK_PROFILE_HARDENED, HK_PROFILE_DEBUG };

static const struct hk_profile_setting hk_profile_settings[] = {
    {HK_PROFILE_THROUGHPUT, HK_OPTION_thread_budget, 4u << 20},
    {HK_PROFILE_THROUGHPUT, HK_OPTION_superslab_max_cached, 512},
    {HK_PROFILE_THROUGHPUT, HK_OPTION_superslab_max_memory_mb, 1024},
    {HK_PROFILE_THROUGHPUT, HK_OPTION_superslab_ttl_sec, 60},
    {HK_PROFILE_THROUGHPUT, HK_OPTION_surplus_mb, 1024},
    {HK_PROFILE_LOW_MEMORY, HK_OPTION_magazine_blocks, 16},
    {HK_PROFILE_LOW_MEMORY, HK_OPTION_thread_budget, 64u << 10},
    {HK_PROFILE_LOW_MEMORY, HK_OPTION_superslab_max_cached, 2},
    {HK_PROFILE_LOW_MEMORY, HK_OPTION_superslab_max_memory_mb, 4},
    {HK_PROFILE_LOW_MEMORY, HK_OPTION_superslab_ttl_sec, 1},
    {HK_PROFILE_LOW_MEMORY, HK_OPTION_surplus_mb, 8},
    {HK_PROFILE_HARDENED, HK_OPTION_checked, 1},
    {HK_PROFILE_DEBUG, HK_OPTION_checked, 1},
    {HK_PROFILE_DEBUG, HK_OPTION_stats, 1},
};

static const char hk_prefix[] = "HAKMEM_";

static bool hk_type_is_words(enum hk_option_type type) { return type >= HK_TYPE_profile; }

static void hk_text_value(struct hk_text *text, const struct hk_option_info *info, uint64_t value)
{
    if (info->type == HK_TYPE_trace) {
        hk_text_str(text, value == 0 ? "none" : "");
        for (unsigned i = 0; i < HK_TRACE_WORDS; i++) {
            if (((value >> i) & 1) == 0)
                continue;
            hk_text_str(text, (value & ((1u << i) - 1)) != 0 ? "," : "");
            hk_text_str(text, hk_words[info->type][i]);
        }
    } else if (hk_type_is_words(info->type)) {
        hk_text_str(text, hk_words[info->type][value]);
    } else {
        hk_text_dec(text, value & ~HK_LIMIT_PERCENT);
        hk_text_str(text, (value & HK_LIMIT_PERCENT) != 0 ? "%" : "");
    }
}

static void hk_text_expected(struct hk_text *text, const struct hk_option_info *info)
{
    if (info->type == HK_TYPE_flag) {
        hk_text_str(text, "0 or 1");
    } else if (info->type == HK_TYPE_limit) {
        hk_text_str(text, "bytes (K, M or G may follow), cgroup, or a percentage of the cgroup's limit");
    } else if (hk_type_is_words(info->type)) {
        uint64_t last = info->type == HK_TYPE_trace ? HK_TRACE_WORDS - 1 : info->max;
        hk_text_str(text, info->type == HK_TYPE_trace ? "none, or with commas between: " : "");
        for (uint64_t i = 0; i <= last; i++) {
            hk_text_str(text, i == 0 ? "" : i == last ? " or " : ", ");
            hk_text_str(text, hk_words[info->type][i]);
        }
    } else {
        hk_text_str(text, info->type == HK_TYPE_bytes ? "bytes (K, M or G may follow) from " : "a number from ");
        hk_text_dec(text, info->min);
        hk_text_str(text, " to ");
        hk_text_dec(text, info->max);
    }
}

static bool hk_parse_number(const struct hk_option_info *info, const char *text, uint64_t *value)
{
    size_t length = strlen(text);
    unsigned shift = 0;
    if ((info->type == HK_TYPE_bytes || info->type == HK_TYPE_limit) && length > 0) {
        char unit = (char)(text[length - 1] | 0x20);
        shift = unit == 'k' ? 10 : unit == 'm' ? 20 : unit == 'g' ? 30 : 0;
        length -= shift != 0;
    }
    if (!hk_str_to_u64(text, length, value) || *value > (UINT64_MAX >> shift))
        return false;
    *value <<= shift;
    return *value >= info->min && *value <= info->max;
}

static bool hk_parse_limit(const struct hk_option_info *info, const char *text, uint64_t *value)
{
    size_t length = strlen(text);
    if (hk_str_equal(text, "cgroup")) {
        *value = HK_LIMIT_PERCENT | 100;
        return true;
    }
    if (length < 2 || text[length - 1] != '%')
        return hk_parse_number(info, text, value);
    if (!hk_str_to_u64(text, length - 1, value) || *value < 1 || *value > 100)
        return false;
    *value |= HK_LIMIT_PERCENT;
    return true;
}

static bool hk_parse_trace(const char *text, uint64_t *value)
{
    *value = 0;
    if (hk_str_equal(text, "none"))
        return true;
    for (const char *end;; text = end + 1) {
        end = text + strcspn(text, ",");
        unsigned i = 0;
        while (i < HK_TRACE_WORDS && (strlen(hk_words[HK_TYPE_trace][i]) != (size_t)(end - text) ||
                                      strncmp(text, hk_words[HK_TYPE_trace][i], (size_t)(end - text)) != 0))
            i++;
        if (i == HK_TRACE_WORDS)
            return false;
        *value |= 1u << i;
        if (*end == '\0')
            return true;
    }
}

static bool hk_parse_value(const struct hk_option_info *info, const char *text, uint64_t *value)
{
    if (info->type == HK_TYPE_limit)
        return hk_parse_limit(info, text, value);
    if (info->type == HK_TYPE_trace)
        return hk_parse_trace(text, value);
    if (!hk_type_is_words(info->type))
        return hk_parse_number(info, text, value);
    for (*value = 0; *value <= info->max; (*value)++)
        if (hk_str_equal(text, hk_words[info->type][*value]))
            return true;
    return false;
}

static const struct hk_option_info *hk_option_find(const char *name)
{
    for (unsigned i = 0; i < HK_NOPTIONS; i++)
        if (hk_str_equal(name, hk_option_infos[i].name))
            return &hk_option_infos[i];
    return NULL;
}

static void hk_profile_apply(uint64_t profile)
{
    for (size_t i = 0; i < HK_COUNT(hk_profile_settings); i++)
        if (hk_profile_settings[i].profile == profile)
            hk_option_store(hk_profile_settings[i].option, hk_profile_settings[i].value);
}

/* A line of the help fits into a terminal of 80 columns. */
#define HK_HELP_WIDTH 79u
#define HK_HELP_INDENT 6u

static void hk_text_paragraph(struct hk_text *text, const char *words)
{
    for (size_t left = strlen(words), n; left > 0; words += n, left -= n) {
        n = left;
        if (n > HK_HELP_WIDTH - HK_HELP_INDENT) /* as many words as fit: none is as long as a line */
            for (n = HK_HELP_WIDTH - HK_HELP_INDENT; words[n] != ' '; n--)
                ;
        hk_text_pad(text, HK_HELP_INDENT);
        hk_text_span(text, words, n);
        hk_text_char(text, '\n');
        n += n < left;
    }
}

static void hk_options_print(void)
{
    HK_TEXT(text, 8192);
    hk_text_str(&text, "hakmem options: environment variable and default, what it does (what it may be)\n");
    for (unsigned i = 0; i < HK_NOPTIONS; i++) {
        const struct hk_option_info *info = &hk_option_infos[i];
        hk_text_str(&text, "  ");
        hk_text_str(&text, hk_prefix);
        for (const char *c = info->name; *c != '\0'; c++)
            hk_text_char(&text, *c >= 'a' && *c <= 'z' ? (char)(*c - 'a' + 'A') : *c);
        hk_text_char(&text, '=');
        hk_text_value(&text, info, info->default_value);
        hk_text_char(&text, '\n');
        HK_TEXT(words, 512);
        hk_text_str(&words, info->doc);
        hk_text_str(&words, " (");
        hk_text_expected(&words, info);
        hk_text_str(&words, ")");
        hk_text_paragraph(&text, words_buf);
    }
    hk_text_to_stderr(&text);
}

static void hk_warn_unknown(const char *name, size_t length)
{
    HK_TEXT(text, 256);
    hk_text_str(&text, "hakmem: unknown option ");
    hk_text_span(&text, name, hk_min(length, 128));
    hk_text_str(&text, " (HAKMEM_HELP=1 lists them)\n");
    hk_text_to_stderr(&text);
}

static void hk_warn_invalid(const struct hk_option_info *info, const char *variable, size_t name_length,
                            const char *value)
{
    HK_TEXT(text, 512);
    hk_text_str(&text, "hakmem: ");
    hk_text_span(&text, variable, name_length);
    hk_text_char(&text, '=');
    hk_text_span(&text, value, strnlen(value, 128));
    hk_text_str(&text, " is not valid: expected ");
    hk_text_expected(&text, info);
    hk_text_str(&text, "; using ");
    hk_text_value(&text, info, hk_option_load((enum hk_option_id)(info - hk_option_infos)));
    hk_text_char(&text, '\n');
    hk_text_to_stderr(&text);
}

/* The lower case of a character of a variable's name; '?', which is in no name of ours, for one that has none: small
 * letters, too. */
static char hk_lower_of_upper(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c == '_' || (c >= '0' && c <= '9') ? c : '?';
}

/* One variable of the environment: "HAKMEM_NAME=value". The profile is applied in a pass of its own, before the
 * rest. */
static void hk_options_read_variable(const char *variable, bool profile_pass)
{
    const char *equals = strchr(variable, '=');
    if (equals == NULL || strncmp(variable, hk_prefix, sizeof hk_prefix - 1) != 0)
        return;
    size_t name_length = (size_t)(equals - variable);
    HK_TEXT(name, sizeof hk_option_infos[0].name);
    for (const char *c = variable + sizeof hk_prefix - 1; c < equals; c++)
        hk_text_char(&name, hk_lower_of_upper(*c));
    const struct hk_option_info *info = hk_option_find(name.buf);
    if (info == NULL) {
        if (!profile_pass)
            hk_warn_unknown(variable, name_length);
        return;
    }
    enum hk_option_id id = (enum hk_option_id)(info - hk_option_infos);
    if ((id == HK_OPTION_profile) != profile_pass)
        return;
    uint64_t value;
    if (!hk_parse_value(info, equals + 1, &value)) {
        hk_warn_invalid(info, variable, name_length, equals + 1);
        return;
    }
    hk_option_store(id, value);
    if (profile_pass)
        hk_profile_apply(value);
}

void hk_options_init(char *const *environment)
{
    if (environment == NULL || hk_os_is_secure())
        return;
    for (char *const *variable = environment; *variable != NULL; variable++)
        hk_options_read_variable(*variable, true);
    for (char *const *variable = environment; *variable != NULL; variable++)
        hk_options_read_variable(*variable, false);
    if (hk_option(help))
        hk_options_print();
}

/* True for options that are read at start only. */
static bool hk_option_is_fixed(unsigned id)
{
    return id == HK_OPTION_help || (id >= HK_OPTION_prewarm_superslabs && id <= HK_OPTION_prefault);
}

enum hk_option_result hk_option_write(const char *name, const char *text)
{
    const struct hk_option_info *info = hk_option_find(name);
    if (info == NULL)
        return HK_OPTION_UNKNOWN;
    enum hk_option_id id = (enum hk_option_id)(info - hk_option_infos);
    uint64_t value;
    if (!hk_parse_value(info, text, &value))
        return HK_OPTION_INVALID;
    if (hk_option_is_fixed(id))
        return HK_OPTION_FIXED;
    hk_option_store(id, value);
    if (id == HK_OPTION_profile)
        hk_profile_apply(value);
    return HK_OPTION_OK;
}

bool hk_option_read(const char *name, struct hk_text *to)
{
    const struct hk_option_info *info = hk_option_find(name);
    if (info == NULL)
        return false;
    hk_text_value(to, info, hk_option_load((enum hk_option_id)(info - hk_option_infos)));
    return true;
}
