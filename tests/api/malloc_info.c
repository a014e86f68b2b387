/* malloc_info writes well-formed XML in the shape of glibc's, which monitoring programs parse. */
#include "check.h"

#include <ctype.h>
#include <malloc.h>
#include <string.h>

/* A reader of the little XML that malloc_info uses: elements and attributes, no text, no entities. */
struct xml {
    const char *at;
    const char *error; /* NULL while all is well */
};

enum { NAME_MAX_LENGTH = 32, ATTRIBUTES_MAX = 8, DEPTH_MAX = 4 };

struct element {
    char name[NAME_MAX_LENGTH];
    int attributes;
    char names[ATTRIBUTES_MAX][NAME_MAX_LENGTH], values[ATTRIBUTES_MAX][NAME_MAX_LENGTH];
    bool is_end, is_empty; /* </name>, <name/> */
};

static void skip_space(struct xml *xml)
{
    while (isspace((unsigned char)*xml->at))
        xml->at++;
}

static bool take(struct xml *xml, const char *token)
{
    size_t length = strlen(token);
    if (strncmp(xml->at, token, length) != 0)
        return false;
    xml->at += length;
    return true;
}

static void take_while(struct xml *xml, char *to, bool (*belongs)(char))
{
    int length = 0;
    while (belongs(*xml->at) && length < NAME_MAX_LENGTH - 1)
        to[length++] = *xml->at++;
    to[length] = 0;
    if (length == 0)
        xml->error = "a name or a value is missing";
}

static bool is_name_char(char c) { return isalnum((unsigned char)c) || c == '_'; }
static bool is_value_char(char c) { return c != '"' && c != '<' && c != '&' && c != 0; }

static bool next_element(struct xml *xml, struct element *element)
{
    memset(element, 0, sizeof *element);
    skip_space(xml);
    if (!take(xml, "<")) {
        if (*xml->at != 0)
            xml->error = "text outside of elements";
        return false;
    }
    element->is_end = take(xml, "/");
    take_while(xml, element->name, is_name_char);
    for (;;) {
        const char *before = xml->at;
        skip_space(xml);
        if (take(xml, ">"))
            return xml->error == NULL;
        if (take(xml, "/>")) {
            element->is_empty = true;
            return xml->error == NULL;
        }
        if (xml->at == before || element->is_end || element->attributes == ATTRIBUTES_MAX) {
            xml->error = "not an attribute";
            return false;
        }
        int i = element->attributes++;
        take_while(xml, element->names[i], is_name_char);
        if (!take(xml, "=\"")) {
            xml->error = "= and \" expected";
            return false;
        }
        take_while(xml, element->values[i], is_value_char);
        if (!take(xml, "\"")) {
            xml->error = "\" expected";
            return false;
        }
    }
}

static const char *attribute(const struct element *element, const char *name)
{
    for (int i = 0; i < element->attributes; i++)
        if (strcmp(element->names[i], name) == 0)
            return element->values[i];
    return "";
}

static uint64_t number(const struct element *element, const char *name)
{
    const char *text = attribute(element, name);
    char *end;
    CHECK_MSG(isdigit((unsigned char)*text), "<%s>: %s=\"%s\"", element->name, name, text);
    uint64_t value = strtoull(text, &end, 10);
    CHECK_MSG(*end == 0 && value < (uint64_t)1 << 47, "<%s>: %s=\"%s\"", element->name, name, text);
    return value;
}

static bool is_element(const struct element *element, const char *name, const char *type)
{
    return strcmp(element->name, name) == 0 && (type == NULL || strcmp(attribute(element, "type"), type) == 0);
}

struct totals {
    int fast, rest, mmap, current, max, aspace, mprotect;
    uint64_t bytes_mmap, bytes_current, bytes_max;
};

static void count_total(struct totals *totals, const struct element *element)
{
    if (is_element(element, "total", NULL)) {
        (void)number(element, "count");
        uint64_t size = number(element, "size");
        totals->fast += is_element(element, "total", "fast");
        totals->rest += is_element(element, "total", "rest");
        if (is_element(element, "total", "mmap")) {
            totals->mmap++;
            totals->bytes_mmap = size;
        }
    } else if (is_element(element, "system", "current")) {
        totals->current++;
        totals->bytes_current = number(element, "size");
    } else if (is_element(element, "system", "max")) {
        totals->max++;
        totals->bytes_max = number(element, "size");
    } else if (is_element(element, "aspace", NULL)) {
        (void)number(element, "size");
        totals->aspace += is_element(element, "aspace", "total");
        totals->mprotect += is_element(element, "aspace", "mprotect");
    } else {
        CHECK_MSG(false, "<%s type=\"%s\"> is not known here", element->name, attribute(element, "type"));
    }
}

static void check_totals(const struct totals *totals, bool of_all)
{
    CHECK(totals->fast == 1 && totals->rest == 1 && totals->mmap == of_all);
    CHECK(totals->current == 1 && totals->max == 1 && totals->aspace == 1 && totals->mprotect == 1);
    CHECK_MSG(totals->bytes_max >= totals->bytes_current, "max %ju, current %ju", (uintmax_t)totals->bytes_max,
              (uintmax_t)totals->bytes_current);
}

/* Returns the totals of all heaps. */
static struct totals check_document(const char *text)
{
    struct xml xml = {text, NULL};
    struct element element, open[DEPTH_MAX];
    struct totals all = {0}, heap = {0};
    int depth = 0, roots = 0, heaps = 0, sizes = 0;

    while (next_element(&xml, &element)) {
        if (element.is_end) {
            CHECK_MSG(depth > 0 && strcmp(open[depth - 1].name, element.name) == 0, "</%s>", element.name);
            depth -= depth > 0;
            if (is_element(&element, "heap", NULL)) {
                CHECK_MSG(sizes == 1, "%d <sizes> in a heap", sizes);
                check_totals(&heap, false);
            }
            continue;
        }
        const char *parent = depth == 0 ? "" : open[depth - 1].name;
        if (strcmp(parent, "") == 0) {
            roots++;
            CHECK(is_element(&element, "malloc", NULL) && strcmp(attribute(&element, "version"), "1") == 0);
        } else if (strcmp(parent, "malloc") == 0 && is_element(&element, "heap", NULL)) {
            CHECK_MSG(number(&element, "nr") == (uint64_t)heaps, "heap %d has another number", heaps);
            CHECK_MSG(all.fast + all.rest == 0, "a heap after the totals");
            heaps++;
            sizes = 0;
            heap = (struct totals){0};
        } else if (strcmp(parent, "malloc") == 0) {
            count_total(&all, &element);
        } else if (strcmp(parent, "heap") == 0 && is_element(&element, "sizes", NULL)) {
            sizes++;
        } else if (strcmp(parent, "heap") == 0) {
            /* glibc adds <aspace type="subheaps"> to heaps made by mmap. */
            if (!is_element(&element, "aspace", "subheaps"))
                count_total(&heap, &element);
        } else {
            CHECK_MSG(strcmp(parent, "sizes") == 0 &&
                          (is_element(&element, "size", NULL) || is_element(&element, "unsorted", NULL)),
                      "<%s> in <%s>", element.name, parent);
            uint64_t from = number(&element, "from"), to = number(&element, "to");
            uint64_t total = number(&element, "total"), count = number(&element, "count");
            CHECK_MSG(from <= to && total >= from * count && total <= to * count, "%s %s %s %s",
                      attribute(&element, "from"), attribute(&element, "to"), attribute(&element, "total"),
                      attribute(&element, "count"));
        }
        if (!element.is_empty) {
            REQUIRE(depth < DEPTH_MAX);
            open[depth++] = element;
        }
    }
    CHECK_MSG(xml.error == NULL, "%s, before: %.40s", xml.error, xml.at);
    CHECK(depth == 0 && roots == 1 && heaps >= 1);
    check_totals(&all, true);
    return all;
}

static struct totals document(void)
{
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    REQUIRE(out != NULL);
    CHECK(malloc_info(0, out) == 0);
    fclose(out);
    int before = check_failures;
    struct totals totals = check_document(text);
    if (check_failures > before)
        fprintf(stderr, "the document:\n%s\n", text);
    free(text);
    return totals;
}

int main(void)
{
    enum { BLOCKS = 5000 };
    static void *blocks[BLOCKS];

    struct totals before = document();
    for (size_t i = 0; i < BLOCKS; i++) {
        blocks[i] = malloc(i);
        REQUIRE(blocks[i] != NULL);
    }
    void *large = malloc((size_t)100 << 20);
    REQUIRE(large != NULL);
    struct totals grown = document();
    CHECK_MSG(grown.bytes_current + grown.bytes_mmap >= before.bytes_current + before.bytes_mmap + ((size_t)100 << 20),
              "current %ju, mmap %ju", (uintmax_t)grown.bytes_current, (uintmax_t)grown.bytes_mmap);
    /* Holes of many sizes. */
    for (int i = 0; i < BLOCKS; i += 2)
        free(blocks[i]);
    free(large);
    document();
    for (int i = 1; i < BLOCKS; i += 2)
        free(blocks[i]);
    document();

    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    REQUIRE(out != NULL);
    CHECK(malloc_info(hide_size(1) != 0, out) == EINVAL);
    CHECK(malloc_info(-1, out) == EINVAL);
    fclose(out);
    CHECK_MSG(length == 0, "wrong options, and still: %s", text);
    free(text);
    return check_result();
}
