#pragma once

/// Single fields of a table.

#include <optional>
#include <string>
#include <string_view>

namespace fq::detail {

/// Empty, NA, N/A, NaN, null or none in any case, or "?".
[[nodiscard]] bool is_missing(std::string_view field);
/// All of the field as a finite number: "1", "-2.5e3", "+1".
[[nodiscard]] std::optional<double> field_number(std::string_view field);

}  // namespace fq::detail
