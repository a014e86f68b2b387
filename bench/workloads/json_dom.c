/*
 * A JSON document, parsed into a tree of values and dropped.
 *
 * Stands for services and tools that read documents: one block for each value, each key and each string, arrays and
 * objects that grow while they are read. The next document is there before the last is dropped, as where a
 * configuration or a cached answer is replaced.
 *
 * The text is made beforehand: an array of records with numbers, names, a list of tags and a nested object.
 *
 * Figure: nanoseconds per value, parsing and dropping; build_ns and drop_ns are its halves. Check: the sum over all
 * values of the tree is that of the text.
 *
 *     json_dom RECORDS DOCUMENTS
 */
#include "arguments.h"
#include "sizes.h"

enum { MOST_RECORD = 1024, MOST_TAGS = 6, MEDIAN_TEXT = 40, MOST_TEXT = 200, FIRST_ROOM = 4 };
static const double TEXT_OCTAVES = 1.0;

/* The document and what its values sum up to. */
static struct {
    char *text;
    char *end;
    uint64_t sum;
    size_t values;
} document;

static uint64_t sum_of_text(const char *text, size_t length)
{
    uint64_t sum = length;
    for (size_t i = 0; i < length; i++)
        sum = sum * 31 + (unsigned char)text[i];
    return sum;
}

static void write_plain(const char *text)
{
    size_t length = strlen(text);
    memcpy(document.end, text, length);
    document.end += length;
}

static void write_number(uint64_t number)
{
    document.end += sprintf(document.end, "%llu", (unsigned long long)number);
    document.sum += number;
    document.values++;
}

static void write_string(size_t length, uint64_t *state)
{
    *document.end++ = '"';
    for (size_t i = 0; i < length; i++)
        document.end[i] = (char)('a' + random_next(state) % 26);
    document.sum += sum_of_text(document.end, length);
    document.values++;
    document.end += length;
    *document.end++ = '"';
}

static void write_record(size_t number, uint64_t *state)
{
    document.values += 3; /* the record, its list and the object in it */
    write_plain("{\"id\": ");
    write_number(number);
    write_plain(", \"user_name\": ");
    write_string(size_between(state, 4, 20), state);
    write_plain(", \"tags\": [");
    for (size_t i = 0, tags = size_between(state, 0, MOST_TAGS); i < tags; i++) {
        write_plain(i ? ", " : "");
        write_string(size_between(state, 2, 12), state);
    }
    write_plain("], \"position\": {\"latitude\": ");
    write_number(random_next(state) % 100000);
    write_plain(", \"longitude\": ");
    write_number(random_next(state) % 100000);
    write_plain("}, \"description\": ");
    write_string(size_lognormal(state, MEDIAN_TEXT, TEXT_OCTAVES, 1, MOST_TEXT), state);
    write_plain("}");
}

static void write_document(size_t records)
{
    uint64_t state = 1;
    document.text = document.end = table_of(records, MOST_RECORD);
    document.values = 1;
    write_plain("[");
    for (size_t i = 0; i < records; i++) {
        write_plain(i ? ",\n" : "");
        write_record(i, &state);
    }
    write_plain("]");
    *document.end = '\0';
}

enum type { NUMBER, STRING, LIST, OBJECT };

struct value {
    enum type type;
    union {
        uint64_t number;
        char *string;
        struct {
            struct value **item;
            char **key; /* of an object */
            uint32_t count;
            uint32_t room;
        } list;
    } as;
};

static void *allocate(size_t size)
{
    void *block = malloc(size);
    if (!block)
        fail("malloc(%zu) returned NULL", size);
    return block;
}

static void *grow(void *block, size_t size)
{
    void *grown = realloc(block, size);
    if (!grown)
        fail("realloc to %zu returned NULL", size);
    return grown;
}

static void expect(const char **at, char character)
{
    if (**at != character)
        fail("the document has '%c' where '%c' is expected", **at, character);
    ++*at;
}

static void skip_blanks(const char **at)
{
    while (**at == ' ' || **at == '\n')
        ++*at;
}

static char *parse_string(const char **at)
{
    expect(at, '"');
    const char *begin = *at;
    while (**at != '"')
        ++*at;
    size_t length = (size_t)(*at - begin);
    char *text = allocate(length + 1);
    memcpy(text, begin, length);
    text[length] = '\0';
    ++*at;
    return text;
}

static struct value *parse(const char **at);

static void parse_items(const char **at, struct value *list, char end)
{
    for (++*at; **at != end;) {
        if (list->as.list.count == list->as.list.room) {
            uint32_t room = list->as.list.room ? 2 * list->as.list.room : FIRST_ROOM;
            list->as.list.item = grow(list->as.list.item, room * sizeof *list->as.list.item);
            if (list->type == OBJECT)
                list->as.list.key = grow(list->as.list.key, room * sizeof *list->as.list.key);
            list->as.list.room = room;
        }
        uint32_t index = list->as.list.count++;
        if (list->type == OBJECT) {
            list->as.list.key[index] = parse_string(at);
            expect(at, ':');
            skip_blanks(at);
        }
        list->as.list.item[index] = parse(at);
        if (**at == ',')
            ++*at;
        skip_blanks(at);
    }
    ++*at;
}

static struct value *parse(const char **at)
{
    struct value *value = allocate(sizeof *value);
    *value = (struct value){0};
    if (**at == '{' || **at == '[') {
        value->type = **at == '{' ? OBJECT : LIST;
        parse_items(at, value, **at == '{' ? '}' : ']');
    } else if (**at == '"') {
        value->type = STRING;
        value->as.string = parse_string(at);
    } else {
        value->type = NUMBER;
        for (; **at >= '0' && **at <= '9'; ++*at)
            value->as.number = value->as.number * 10 + (uint64_t)(**at - '0');
    }
    return value;
}

static uint64_t sum_of(const struct value *value)
{
    if (value->type == NUMBER)
        return value->as.number;
    if (value->type == STRING)
        return sum_of_text(value->as.string, strlen(value->as.string));
    uint64_t sum = 0;
    for (size_t i = 0; i < value->as.list.count; i++)
        sum += sum_of(value->as.list.item[i]);
    return sum;
}

static void drop(struct value *value)
{
    if (value->type == STRING)
        free(value->as.string);
    if (value->type == LIST || value->type == OBJECT) {
        for (size_t i = 0; i < value->as.list.count; i++) {
            drop(value->as.list.item[i]);
            if (value->type == OBJECT)
                free(value->as.list.key[i]);
        }
        free(value->as.list.item);
        free(value->as.list.key);
    }
    free(value);
}

int main(int argc, char **argv)
{
    size_t records = count_argument(argc, argv, 1, "RECORDS");
    size_t documents = count_argument(argc, argv, 2, "DOCUMENTS");
    write_document(records);

    double parsing = 0, dropping = 0;
    struct value *last = NULL;
    struct stopwatch start = stopwatch_start();
    for (size_t i = 0; i <= documents; i++) {
        struct value *next = NULL;
        if (i < documents) {
            struct stopwatch phase = stopwatch_start();
            const char *at = document.text;
            next = parse(&at);
            parsing += stopwatch_read(phase).cpu;
            if (at != document.end || sum_of(next) != document.sum)
                fail("the tree's values are not those of the text");
        }
        struct stopwatch phase = stopwatch_start();
        if (last)
            drop(last);
        dropping += stopwatch_read(phase).cpu;
        last = next;
    }
    struct stopwatch elapsed = stopwatch_read(start);
    double each = 1e9 / (double)(documents * document.values);
    report((parsing + dropping) * each, "ns", elapsed, "build_ns=%.1f drop_ns=%.1f values=%zu", parsing * each,
           dropping * each, document.values);
    return 0;
}
