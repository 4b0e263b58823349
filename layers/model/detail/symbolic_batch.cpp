#include "fakequant/layers/model/detail/symbolic_batch.h"

#include <cctype>

namespace fq::detail {

Shape add_symbolic_batch(const Shape& sample) {
  Shape shape{kSymbolicBatch};
  shape.insert(shape.end(), sample.begin(), sample.end());
  return shape;
}

std::string show_batch_symbol(const std::string& message) {
  const auto is_digit = [&](std::size_t i) {
    return i < message.size() && std::isdigit(static_cast<unsigned char>(message[i])) != 0;
  };
  const auto is_word = [&](std::size_t i) {
    return i < message.size() &&
           (std::isalnum(static_cast<unsigned char>(message[i])) != 0 || message[i] == '_');
  };
  std::string out;
  for (std::size_t begin = 0; begin < message.size();) {
    std::size_t end = begin;
    while (is_digit(end)) ++end;
    if (end == begin) {
      out += message[begin++];
      continue;
    }
    const std::string digits = message.substr(begin, end - begin);
    // A number within a name ("conv1000003") is no size.
    const bool part_of_name = (begin > 0 && is_word(begin - 1)) || is_word(end);
    const bool decimal = (begin > 1 && message[begin - 1] == '.' && is_digit(begin - 2)) ||
                         (end < message.size() && message[end] == '.' && is_digit(end + 1));
    // 18 digits fit int64.
    const std::int64_t value = part_of_name || decimal || digits.size() > 18 ? 0 : std::stoll(digits);
    if (!has_symbolic_batch(value))
      out += digits;
    else
      out += value == kSymbolicBatch ? "N" : std::to_string(value / kSymbolicBatch) + "*N";
    begin = end;
  }
  return out;
}

std::string batch_text(const Shape& shape) { return show_batch_symbol(to_string(shape)); }

}  // namespace fq::detail
