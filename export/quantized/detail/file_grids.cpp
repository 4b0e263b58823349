#include "fakequant/export/quantized/detail/file_grids.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "fakequant/core/blocks/detail/block_map.h"
#include "fakequant/core/detail/check.h"

namespace fq::detail {

nlohmann::ordered_json grid_rule(const std::string& quantizer, const Format& format) {
  // The null removes an axis that a default rule has set. A caller with scales per channel sets its own.
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
  // Weight grids of this library are narrow: they have no lowest code. Files of other tools may use it.
  const auto all = codes.to_vector<float>();
  return *std::ranges::min_element(all) >= static_cast<float>(narrow.lower()) ? Format(narrow) : format;
}

Tensor scaled_codes(const Tensor& codes, const Tensor& scale, const Granularity& by) {
  Tensor out = codes.clone();
  if (out.numel() == 0) return out;
  const BlockMap map = BlockMap::of(codes.shape(), by.block_shape(codes.shape()));
  FQ_CHECK(scale.numel() == map.blocks(), "import_quantized", "{} scales are for {} blocks of {}",
           scale.numel(), map.blocks(), to_string(codes.shape()));
  auto* values = out.mutable_data<float>();
  const auto* steps = scale.data<float>();
  for (std::int64_t i = 0; i < out.numel(); ++i) values[i] *= steps[map.block_index(i)];
  return out;
}

Tensor scaled_mx_codes(const Tensor& codes, const Tensor& scale, const Granularity& by, float bound) {
  Tensor out = scaled_codes(codes, scale, by);
  if (out.numel() == 0) return out;
  const BlockMap map = BlockMap::of(codes.shape(), by.block_shape(codes.shape()));
  std::vector<float> largest(static_cast<std::size_t>(map.blocks()));
  const auto* code = codes.data<float>();
  const auto block = [&](std::int64_t i) -> float& { return largest[std::size_t(map.block_index(i))]; };
  for (std::int64_t i = 0; i < out.numel(); ++i) block(i) = std::max(block(i), std::abs(code[i]));
  auto* values = out.mutable_data<float>();
  for (std::int64_t i = 0; i < out.numel(); ++i)
    // m = bound / 2 in codes would give the next smaller power of two as the scale.
    if (block(i) == bound / 2 && std::abs(code[i]) == bound / 2) values[i] *= 1 + 0x1p-7f;
  return out;
}

}  // namespace fq::detail
