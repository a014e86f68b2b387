#include "base/fault.h"

#include "base/options.h"
#include "base/os.h"
#include "base/text.h"

static void hk_text_free_already(struct hk_text *text, const struct hk_fault *fault)
{
    hk_text_str(text, "a block of ");
    hk_text_dec(text, fault->block_size);
    hk_text_str(text, " bytes that is free already");
}

static void hk_text_fault(struct hk_text *text, const struct hk_fault *fault)
{
    switch (fault->kind) {
    case HK_FAULT_NONE: break;
    case HK_FAULT_DOUBLE_FREE:
        hk_text_str(text, "double free: ");
        hk_text_free_already(text, fault);
        break;
    case HK_FAULT_USE_AFTER_FREE:
        hk_text_str(text, "use after free: ");
        hk_text_free_already(text, fault);
        break;
    case HK_FAULT_INSIDE:
        hk_text_str(text, "invalid pointer: inside a block of ");
        hk_text_dec(text, fault->block_size);
        hk_text_str(text, " bytes at ");
        hk_text_ptr(text, fault->block);
        break;
    case HK_FAULT_FOREIGN: hk_text_str(text, "invalid pointer: not memory of hakmem"); break;
    case HK_FAULT_WRONG_SIZE:
        hk_text_str(text, "wrong size: the block has ");
        hk_text_dec(text, fault->block_size);
        hk_text_str(text, " usable bytes");
        break;
    }
}

void hk_fault_report(const struct hk_fault *fault, const char *call)
{
    uint64_t on_error = hk_option(on_error);
    if (on_error == HK_ON_ERROR_IGNORE)
        return;
    HK_TEXT(text, 256);
    hk_text_str(&text, "hakmem: ");
    hk_text_str(&text, fault->late ? "free" : call);
    hk_text_char(&text, '(');
    hk_text_ptr(&text, fault->ptr);
    if (fault->kind == HK_FAULT_WRONG_SIZE) {
        hk_text_str(&text, ", ");
        hk_text_dec(&text, fault->size_given);
    }
    hk_text_str(&text, "): ");
    hk_text_fault(&text, fault);
    hk_text_str(&text, fault->late ? " (noticed late)\n" : "\n");
    hk_text_to_stderr(&text);
    if (on_error == HK_ON_ERROR_ABORT)
        hk_os_abort();
}

void hk_assert_failed(const char *what, const char *file, int line)
{
    HK_TEXT(text, 512);
    hk_text_str(&text, "hakmem: internal error: ");
    hk_text_str(&text, what);
    hk_text_str(&text, " does not hold at ");
    hk_text_str(&text, file);
    hk_text_char(&text, ':');
    hk_text_dec(&text, (uint64_t)line);
    hk_text_char(&text, '\n');
    hk_text_to_stderr(&text);
    hk_os_abort();
}
