#pragma once

/// Text and elements that all HTML pages share.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace fq::html {

/// Escapes &, <, > and quotes for texts and quoted attributes. Replaces control characters except for line
/// ends and tabs by U+FFFD.
[[nodiscard]] std::string escaped(std::string_view text);

/// Text of an unknown number.
inline constexpr std::string_view unknown = "–";

/// Returns "0.01234", "−1.235e+05".
[[nodiscard]] std::string number(double value, int digits = 4);
[[nodiscard]] std::string number(std::optional<double> value, int digits = 4);
/// Returns "1,638,400".
[[nodiscard]] std::string grouped(std::int64_t count);
/// Returns "0.0123 %"; "0" for a share of 0.
[[nodiscard]] std::string percent(std::optional<double> share);
/// Returns "43.1 dB"; "∞ dB" without an error.
[[nodiscard]] std::string decibels(std::optional<double> value);

/// Returns a tile with a large number, its label and a note. All three are HTML.
[[nodiscard]] std::string tile(std::string_view label, const std::string& value, const std::string& note);

/// Returns the heading of a column in a table of class `sortable`. `column` is its index and `key` its name
/// in "#sort=".
[[nodiscard]] std::string head(std::string_view key, int column, const std::string& label,
                               std::string_view classes = {});
/// Returns a cell that sorts by `value`; cells without a value come last. `style` is a CSS declaration.
[[nodiscard]] std::string cell(std::optional<double> value, const std::string& text,
                               std::string_view classes = {}, const std::string& style = {});

}  // namespace fq::html
