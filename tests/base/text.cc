/* Text in a fixed buffer: what fits is there, what does not is dropped, and the end is always a NUL. */
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <thread>
#include <unistd.h>

#include "c_begin.h"
#include "base/text.h"
#include "c_end.h"

namespace
{

class Text : public testing::Test
{
  protected:
    char buf[64];
    hk_text text = hk_text_on(buf, sizeof buf);

    std::string content() const
    {
        EXPECT_EQ(strlen(buf), text.length);
        return buf;
    }
};

TEST_F(Text, NumbersArePrintedInFull)
{
    EXPECT_EQ(content(), "");
    hk_text_dec(&text, 0);
    hk_text_char(&text, ' ');
    hk_text_dec(&text, UINT64_MAX);
    hk_text_char(&text, ' ');
    hk_text_ptr(&text, reinterpret_cast<void *>(0xdeadbeef0));
    hk_text_ptr(&text, nullptr);
    EXPECT_EQ(content(), "0 18446744073709551615 0xdeadbeef00x0");
}

TEST_F(Text, WhatDoesNotFitIsDropped)
{
    for (size_t size = 1; size <= 12; size++) {
        char small[16];
        memset(small, '#', sizeof small);
        hk_text t = hk_text_on(small, size);
        hk_text_str(&t, "abc");
        hk_text_dec(&t, 12345);
        hk_text_char(&t, '!');
        EXPECT_EQ(std::string(small), std::string("abc12345!").substr(0, size - 1));
        EXPECT_EQ(t.length, strlen(small));
        EXPECT_EQ(small[size], '#') << "behind the buffer";
    }
}

TEST_F(Text, ColumnsCountFromTheLastLine)
{
    hk_text_str(&text, "first line\nab");
    hk_text_pad(&text, 5);
    hk_text_char(&text, '|');
    hk_text_pad(&text, 3);
    hk_text_char(&text, '|');
    EXPECT_EQ(content(), "first line\nab   ||") << "a column that is passed is left behind";
}

TEST_F(Text, NumbersEndAtTheirColumn)
{
    for (uint64_t value : {0ull, 9ull, 10ull, 99ull, 100ull, 99999ull}) {
        hk_text line = hk_text_on(buf, sizeof buf);
        hk_text_dec_at(&line, value, 8);
        std::string digits = std::to_string(value);
        EXPECT_EQ(std::string(buf), std::string(8 - digits.size(), ' ') + digits);
    }
    text = hk_text_on(buf, sizeof buf);
    hk_text_dec_at(&text, 123456789, 4);
    EXPECT_EQ(content(), "123456789") << "wider than its column";
}

TEST_F(Text, SpansNeedNoEnd)
{
    const char letters[] = {'a', 'b', 'c', 'd'};
    hk_text_span(&text, letters, 3);
    EXPECT_EQ(content(), "abc");
}

TEST_F(Text, GoesToStandardErrorAsItIs)
{
    hk_text_str(&text, "100 % of it\n");
    testing::internal::CaptureStderr();
    hk_text_to_stderr(&text);
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "100 % of it\n");
}

/* A pipe that does not block, and is full. */
class FullPipe : public Text
{
  protected:
    int ends[2] = {-1, -1};
    int saved = -1;
    size_t full = 0;

    void SetUp() override
    {
        ASSERT_EQ(pipe2(ends, O_NONBLOCK), 0);
        const std::string page(4096, '-');
        for (ssize_t n; (n = write(ends[1], page.data(), page.size())) > 0;)
            full += static_cast<size_t>(n);
        saved = dup(2);
        dup2(ends[1], 2);
    }
    void TearDown() override
    {
        close(ends[0]);
        close(ends[1]);
    }
    void tell()
    {
        hk_text_str(&text, "double free\n");
        hk_text_to_stderr(&text);
        dup2(saved, 2);
        close(saved);
    }
};

TEST_F(FullPipe, IsWaitedFor)
{
    std::string got;
    std::thread reader([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        std::string part(4096, 0);
        while (got.size() < full + strlen("double free\n")) {
            ssize_t n = read(ends[0], part.data(), part.size());
            if (n > 0)
                got.append(part, 0, static_cast<size_t>(n));
            else
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
    });
    tell();
    reader.join();
    EXPECT_EQ(got.substr(full), "double free\n");
}

TEST_F(FullPipe, ButNotForEver)
{
    auto before = std::chrono::steady_clock::now();
    for (int i = 0; i < 1000; i++)
        hk_text_to_stderr(&text);
    tell();
    EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(20)) << "and only once";
}

TEST(Strings, ToNumbers)
{
    const struct {
        const char *text;
        bool ok;
        uint64_t value;
    } cases[] = {
        {"0", true, 0},
        {"7", true, 7},
        {"007", true, 7},
        {"18446744073709551615", true, UINT64_MAX},
        {"18446744073709551616", false, 0},
        {"18446744073709551620", false, 0},
        {"99999999999999999999", false, 0},
        {"", false, 0},
        {"-1", false, 0},
        {"+1", false, 0},
        {" 1", false, 0},
        {"1 ", false, 0},
        {"0x10", false, 0},
        {"1e3", false, 0},
        {"/", false, 0},
        {":", false, 0},
    };
    for (const auto &c : cases) {
        uint64_t value = 0;
        EXPECT_EQ(hk_str_to_u64(c.text, strlen(c.text), &value), c.ok) << c.text;
        if (c.ok) {
            EXPECT_EQ(value, c.value) << c.text;
        }
    }
    uint64_t value;
    EXPECT_TRUE(hk_str_to_u64("123456", 3, &value));
    EXPECT_EQ(value, 123u);
    EXPECT_TRUE(hk_str_equal("abc", "abc"));
    EXPECT_FALSE(hk_str_equal("abc", "abcd"));
}

} // namespace
