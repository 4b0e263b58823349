#include <bit>
#include <charconv>
#include <cmath>
#include <cstdint>

#include "fakequant/core/detail/check.h"
#include "fakequant/reference/tensorrt.h"

namespace fq::tensorrt {

float calibration_cache_scale(std::string_view entry) {
  std::uint32_t word = 0;
  const auto [end, error] = std::from_chars(entry.data(), entry.data() + entry.size(), word, 16);
  FQ_CHECK(entry.size() == 8 && error == std::errc{} && end == entry.data() + entry.size(),
           "calibration_cache_scale", "the entry '{}' is not eight hexadecimal digits", entry);
  return std::bit_cast<float>(word);
}

std::string calibration_cache_entry_of_scale(float scale) {
  FQ_CHECK(scale >= 0 && std::isfinite(scale), "calibration_cache_entry",
           "the scale is {}: it must be finite and not negative", scale);
  return fmt::format("{:08x}", std::bit_cast<std::uint32_t>(scale));
}

std::string calibration_cache_entry(float amax) {
  FQ_CHECK(amax >= 0 && std::isfinite(amax), "calibration_cache_entry",
           "amax is {}: it must be finite and not negative", amax);
  return calibration_cache_entry_of_scale(amax / 127.0f);
}

}  // namespace fq::tensorrt
