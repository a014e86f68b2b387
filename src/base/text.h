/* Text built in a caller's buffer, for messages and reports: no allocation, no locale, no locks. */
#ifndef HK_BASE_TEXT_H
#define HK_BASE_TEXT_H

#include "base/base.h"

/* Invariant: length < size, and buf[length] is NUL. What does not fit is dropped. */
struct hk_text {
    char *buf;
    size_t size;
    size_t length;
};

#define HK_TEXT(name, bytes) \
    char name##_buf[bytes];  \
    struct hk_text name = hk_text_on(name##_buf, sizeof name##_buf)

struct hk_text hk_text_on(char *buf, size_t size);
void hk_text_char(struct hk_text *text, char c);
void hk_text_str(struct hk_text *text, const char *s);
void hk_text_span(struct hk_text *text, const char *s, size_t length);
void hk_text_dec(struct hk_text *text, uint64_t value);
void hk_text_ptr(struct hk_text *text, const void *p);
/* Blanks up to a column, counted from the start of the text's last line. */
void hk_text_pad(struct hk_text *text, size_t column);
/* A right-aligned number that ends at a column. */
void hk_text_dec_at(struct hk_text *text, uint64_t value, size_t column);
/* A message, a report: see os.h. */
void hk_text_to_stderr(const struct hk_text *text);
void hk_text_report(const struct hk_text *text);

bool hk_str_equal(const char *a, const char *b);
/* Decimal digits only, the whole of s; false if it is anything else or overflows. */
bool hk_str_to_u64(const char *s, size_t length, uint64_t *value);

#endif
