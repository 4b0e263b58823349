#pragma once

/// Validation of whole numbers in files.

#include <cstdint>
#include <string_view>

#include "fakequant/core/io/state_dict.h"

namespace fq::detail {

/// Larger than any count of a run, and small enough that sums and products by small numbers fit into 64 bits.
inline constexpr std::int64_t kMostCounted = std::int64_t{1} << 48;

/// Returns `value` as a whole number from `least` to kMostCounted. Otherwise throws ArgumentError, which
/// names `function` and `name`.
[[nodiscard]] std::int64_t whole_number(const nlohmann::json& value, std::string_view name,
                                        std::string_view function, std::int64_t least = 0);
/// Returns the attribute `name` of a state in the same way. Also throws ArgumentError if it is missing.
[[nodiscard]] std::int64_t whole_number(const StateDict& state, std::string_view name,
                                        std::string_view function, std::int64_t least = 0);

/// Returns the attribute `seed`, which has 64 bits. Throws as `whole_number` does.
[[nodiscard]] std::uint64_t seed_number(const StateDict& state, std::string_view function);

}  // namespace fq::detail
