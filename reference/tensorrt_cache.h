#pragma once

/// Scales as TensorRT's calibration cache writes them: the bits of a float, eight hexadecimal digits, the
/// highest first.

#include <string>
#include <string_view>

namespace fq::tensorrt {

/// The scale of an entry, "3c010a14". Throws ArgumentError unless it is eight hexadecimal digits.
[[nodiscard]] float calibration_cache_scale(std::string_view entry);
/// The entry of a scale. Throws ArgumentError for one that is negative or not finite.
[[nodiscard]] std::string calibration_cache_entry_of_scale(float scale);
/// The entry of a signed 8-bit tensor of that range: of the scale fl(amax / 127). Throws ArgumentError for an
/// amax that is negative or not finite.
[[nodiscard]] std::string calibration_cache_entry(float amax);

}  // namespace fq::tensorrt
