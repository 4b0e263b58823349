#include "fakequant/export/quantized/detail/grid_rule.h"

#include <algorithm>

namespace fq::detail {

nlohmann::ordered_json grid_rule(const std::string& quantizer, const Format& format) {
  nlohmann::ordered_json rule{{"pattern", quantizer}, {"enable", true}, {"axis", nullptr}};
  if (!format.is_integer()) {
    rule["num_bits"] = {format.floating().exponent, format.floating().mantissa};
    return rule;
  }
  rule["num_bits"] = format.integer().bits;
  rule["unsigned"] = format.integer().is_unsigned;
  rule["narrow_range"] = format.integer().narrow_range;
  return rule;
}

nlohmann::ordered_json all_off() { return {{"pattern", "*"}, {"enable", false}}; }

Format narrowed(const Format& format, const Tensor& codes) {
  if (!format.is_integer() || format.integer().is_unsigned) return format;
  IntFormat narrow = format.integer();
  narrow.narrow_range = true;
  const auto all = codes.to_vector<float>();
  return *std::ranges::min_element(all) >= static_cast<float>(narrow.lower()) ? Format(narrow) : format;
}

}  // namespace fq::detail
