/*
 * Strings that are built piece by piece, with a realloc for every piece.
 *
 * Stands for scripting languages, templates, loggers and protocol code that appends without keeping spare room: the
 * block grows by a few bytes each time, mostly within what the allocator had rounded up to. A cheap answer to "it fits
 * already" is what counts.
 *
 * One string after the other is built from pieces of 1 to 32 bytes up to a drawn length; the last KEPT strings stay
 * alive.
 *
 * Figure: pieces appended per second. Check: the text of every string when it is dropped.
 *
 *     string_builder KEPT PIECES
 */
#include "arguments.h"
#include "sizes.h"

enum { MOST_PIECE = 32, MEDIAN_LENGTH = 120, MOST_LENGTH = 4096, ALPHABET = 26 };
static const double LENGTH_OCTAVES = 1.3;

/* The alphabet over and over: every string is a part of it that begins at one of its first letters. */
static char source[ALPHABET + MOST_LENGTH + MOST_PIECE];

struct string {
    char *text;
    size_t length;
    size_t letter; /* where in source it begins */
};

static void append(struct string *string, size_t piece)
{
    char *grown = realloc(string->text, string->length + piece + 1);
    if (!grown)
        fail("realloc to %zu returned NULL", string->length + piece + 1);
    string->text = grown;
    memcpy(grown + string->length, source + string->letter + string->length, piece);
    string->length += piece;
    grown[string->length] = '\0';
}

static void check_and_drop(struct string *string)
{
    if (!string->text)
        return;
    if (memcmp(string->text, source + string->letter, string->length) != 0 || string->text[string->length] != '\0')
        fail("a string of %zu bytes changed", string->length);
    free(string->text);
}

int main(int argc, char **argv)
{
    size_t kept = count_argument(argc, argv, 1, "KEPT");
    size_t pieces = count_argument(argc, argv, 2, "PIECES");
    struct string *strings = table_of(kept, sizeof *strings);
    for (size_t i = 0; i < sizeof source; i++)
        source[i] = (char)('a' + i % ALPHABET);
    uint64_t state = 1;

    size_t built = 0;
    struct stopwatch start = stopwatch_start();
    for (size_t piece = 0; piece < pieces; built++) {
        struct string *string = &strings[built % kept];
        check_and_drop(string);
        *string = (struct string){.letter = built % ALPHABET};
        size_t full_length = size_lognormal(&state, MEDIAN_LENGTH, LENGTH_OCTAVES, 1, MOST_LENGTH);
        for (; string->length < full_length && piece < pieces; piece++)
            append(string, size_between(&state, 1, MOST_PIECE));
    }
    struct stopwatch elapsed = stopwatch_read(start);
    for (size_t i = 0; i < kept; i++)
        check_and_drop(&strings[i]);
    report((double)pieces / elapsed.cpu * 1e-6, "Mappends/s", elapsed, "strings=%zu", built);
    return 0;
}
