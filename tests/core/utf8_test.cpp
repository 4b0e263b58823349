#include <gtest/gtest.h>

#include "fakequant/core/detail/text.h"

namespace fq::utf8_test {
namespace {

using detail::printable;
using detail::valid_utf8;

TEST(Utf8, KeepsText) {
  for (const char* text : {"", "conv1.weight", "\u00e9\u4e2d\U0001f600", "98 % \u00b1 1\n\tnext", "\ufffd"}) {
    EXPECT_EQ(valid_utf8(text), text);
    EXPECT_EQ(printable(text), text);
  }
}

// Invalid UTF-8 by RFC 3629: lone and missing bytes, overlong forms, surrogates, values beyond
// U+10FFFF.
TEST(Utf8, ReplacesInvalidBytes) {
  EXPECT_EQ(valid_utf8("a\xff"
                       "b"),
            "a\ufffdb");
  EXPECT_EQ(valid_utf8("\xe4\xb8"), "\ufffd\ufffd");
  EXPECT_EQ(valid_utf8("\xc0\x80"), "\ufffd\ufffd");
  EXPECT_EQ(valid_utf8("\xed\xa0\x80"), "\ufffd\ufffd\ufffd");
  EXPECT_EQ(valid_utf8("\xf4\x90\x80\x80"), "\ufffd\ufffd\ufffd\ufffd");
  EXPECT_EQ(valid_utf8("\xf8\x88\x80\x80\x80"), "\ufffd\ufffd\ufffd\ufffd\ufffd");
  EXPECT_EQ(printable("a\xff"), "a\\xff");
}

TEST(Utf8, EscapesControlCharacters) {
  EXPECT_EQ(printable("\x1b[31mred"), "\\x1b[31mred");
  EXPECT_EQ(printable(std::string("a\r\b\x7f\0", 5)), "a\\x0d\\x08\\x7f\\x00");
  EXPECT_EQ(printable("\u009b2J"), "\\x9b2J");  // CSI in one character
  EXPECT_EQ(printable("h5.\u202etxt"), "h5.\\u202etxt");
}

}  // namespace
}  // namespace fq::utf8_test
