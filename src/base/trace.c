#include "base/trace.h"

#include "base/os.h"

void hk_trace_write(const char *event, const struct hk_trace_field *fields, size_t n)
{
    uint64_t now = hk_os_now_ms();
    HK_TEXT(text, 256);
    hk_text_str(&text, "hakmem-trace: ms=");
    hk_text_dec(&text, now);
    hk_text_char(&text, ' ');
    hk_text_str(&text, event);
    for (size_t i = 0; i < n; i++) {
        hk_text_char(&text, ' ');
        hk_text_str(&text, fields[i].name);
        hk_text_char(&text, '=');
        hk_text_dec(&text, fields[i].value);
    }
    hk_text_char(&text, '\n');
    hk_text_report(&text);
}
