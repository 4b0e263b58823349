#pragma once

/// Text of HTML pages.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace fq::html {

/// For text and quoted attributes, whatever it holds: &, <, >, both quotes, and bytes that HTML has no place
/// for.
[[nodiscard]] std::string escaped(std::string_view text);

/// What stands for a number that is not known.
inline constexpr std::string_view unknown = "–";

/// "0.01234", "−1.235e+05"
[[nodiscard]] std::string number(double value, int digits = 4);
[[nodiscard]] std::string number(std::optional<double> value, int digits = 4);
/// "1,638,400"
[[nodiscard]] std::string grouped(std::int64_t count);
/// "0.0123 %", "0" for none.
[[nodiscard]] std::string percent(std::optional<double> share);
/// "43.1 dB"; "∞ dB" without an error.
[[nodiscard]] std::string decibels(std::optional<double> value);

}  // namespace fq::html
