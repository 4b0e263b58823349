#pragma once

/// Single fields of a table.

#include <optional>
#include <string>
#include <string_view>

namespace fq::detail {

/// Empty, NA, N/A, NaN, null or none in any case, or "?".
[[nodiscard]] bool is_missing(std::string_view field);
/// All of the field as a finite number: "1", "-2.5e3", "+1"; "true" and "false", in any case, are 1 and 0.
[[nodiscard]] std::optional<double> field_number(std::string_view field);
/// What a field looks like that is no number, and the way out: of a decimal comma, a date, a percentage or a
/// price; else empty.
[[nodiscard]] std::string field_hint(std::string_view field);

}  // namespace fq::detail
