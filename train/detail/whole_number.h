#pragma once

/// Counts in files.

#include <cstdint>
#include <string_view>

#include "fakequant/core/io/state_dict.h"

namespace fq::detail {

/// More than any run counts to, and so little that sums and products by small numbers stay in 64 bits.
inline constexpr std::int64_t kMostCounted = std::int64_t{1} << 48;

/// `value` as a whole number from `least` to kMostCounted. Throws ArgumentError in the name of `function`,
/// naming `name`.
[[nodiscard]] std::int64_t whole_number(const nlohmann::json& value, std::string_view name,
                                        std::string_view function, std::int64_t least = 0);
/// The same of an attribute; throws ArgumentError for one that is missing, too.
[[nodiscard]] std::int64_t whole_number(const StateDict& state, std::string_view name,
                                        std::string_view function, std::int64_t least = 0);

/// The attribute `seed`: 64 bits. Throws likewise.
[[nodiscard]] std::uint64_t seed_number(const StateDict& state, std::string_view function);

}  // namespace fq::detail
