#include "fakequant/train/data/reader/tokenizer/unicode_classes.h"

#include <algorithm>
#include <iterator>

namespace fq::detail {
namespace {

struct Range {
  char32_t first, last;
};

constexpr Range kLetters[] = {
#define FQ_LETTERS(first, last) {first, last},
#include "fakequant/train/data/reader/tokenizer/unicode_ranges.def"
};

constexpr Range kNumbers[] = {
#define FQ_NUMBERS(first, last) {first, last},
#include "fakequant/train/data/reader/tokenizer/unicode_ranges.def"
};

constexpr Range kSpaces[] = {{0x9, 0xd},       {0x20, 0x20},     {0x85, 0x85},     {0xa0, 0xa0},
                             {0x1680, 0x1680}, {0x2000, 0x200a}, {0x2028, 0x2029}, {0x202f, 0x202f},
                             {0x205f, 0x205f}, {0x3000, 0x3000}};

template <class Ranges>
bool holds(const Ranges& ranges, char32_t c) {
  const auto found = std::ranges::lower_bound(ranges, c, {}, &Range::last);
  return found != std::end(ranges) && found->first <= c;
}

}  // namespace

bool is_letter(char32_t c) { return holds(kLetters, c); }
bool is_number(char32_t c) { return holds(kNumbers, c); }
bool is_space(char32_t c) { return holds(kSpaces, c); }

}  // namespace fq::detail
