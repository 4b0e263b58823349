#pragma once

/// Text and elements that all HTML pages share.

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

/// A number that stands out: what it is, the number, and a note, all HTML.
[[nodiscard]] std::string tile(std::string_view label, const std::string& value, const std::string& note);

/// The heading of a column of a table of class `sortable`; `column` is its place, `key` its name in "#sort=".
[[nodiscard]] std::string head(std::string_view key, int column, const std::string& label,
                               std::string_view classes = {});
/// A cell that sorts by `value`, the last ones without; `style` is a declaration.
[[nodiscard]] std::string cell(std::optional<double> value, const std::string& text,
                               std::string_view classes = {}, const std::string& style = {});

}  // namespace fq::html
