#include "base/text.h"

#include <string.h>

#include "base/os.h"

struct hk_text hk_text_on(char *buf, size_t size)
{
    buf[0] = '\0';
    return (struct hk_text){.buf = buf, .size = size, .length = 0};
}

void hk_text_char(struct hk_text *text, char c)
{
    if (text->length + 1 < text->size) {
        text->buf[text->length++] = c;
        text->buf[text->length] = '\0';
    }
}

void hk_text_span(struct hk_text *text, const char *s, size_t length)
{
    for (size_t i = 0; i < length; i++)
        hk_text_char(text, s[i]);
}

void hk_text_str(struct hk_text *text, const char *s) { hk_text_span(text, s, strlen(s)); }

static void hk_text_digits(struct hk_text *text, uint64_t value, unsigned base)
{
    char digits[20];
    size_t n = 0;
    do {
        digits[n++] = "0123456789abcdef"[value % base];
        value /= base;
    } while (value != 0);
    while (n > 0)
        hk_text_char(text, digits[--n]);
}

void hk_text_dec(struct hk_text *text, uint64_t value) { hk_text_digits(text, value, 10); }

void hk_text_ptr(struct hk_text *text, const void *p)
{
    hk_text_str(text, "0x");
    hk_text_digits(text, (uintptr_t)p, 16);
}

void hk_text_pad(struct hk_text *text, size_t column)
{
    size_t line = text->length;
    while (line > 0 && text->buf[line - 1] != '\n')
        line--;
    for (size_t at = text->length - line; at < column; at++)
        hk_text_char(text, ' ');
}

void hk_text_dec_at(struct hk_text *text, uint64_t value, size_t column)
{
    size_t width = 1;
    for (uint64_t rest = value; rest >= 10; rest /= 10)
        width++;
    hk_text_pad(text, hk_sub_sat(column, width));
    hk_text_dec(text, value);
}

void hk_text_to_stderr(const struct hk_text *text) { hk_os_write_stderr(text->buf, text->length); }

void hk_text_report(const struct hk_text *text) { hk_os_write_report(text->buf, text->length); }

bool hk_str_equal(const char *a, const char *b) { return strcmp(a, b) == 0; }

bool hk_str_to_u64(const char *s, size_t length, uint64_t *value)
{
    if (length == 0)
        return false;
    uint64_t result = 0;
    for (size_t i = 0; i < length; i++) {
        if (s[i] < '0' || s[i] > '9')
            return false;
        if (__builtin_mul_overflow(result, 10u, &result) ||
            __builtin_add_overflow(result, (unsigned)(s[i] - '0'), &result))
            return false;
    }
    *value = result;
    return true;
}
