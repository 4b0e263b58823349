#pragma once

/// What the sections of a page share.

#include <optional>
#include <string>
#include <string_view>

namespace fq::html {

/// A number that stands out: what it is, the number, and a note, all HTML.
[[nodiscard]] std::string tile(std::string_view label, const std::string& value, const std::string& note);

/// The heading of a column of a table of class `sortable`; `column` is its place, `key` its name in "#sort=".
[[nodiscard]] std::string head(std::string_view key, int column, const std::string& label,
                               std::string_view classes = {});
/// A cell that sorts by `value`, the last ones without; `style` is a declaration.
[[nodiscard]] std::string cell(std::optional<double> value, const std::string& text,
                               std::string_view classes = {}, const std::string& style = {});

}  // namespace fq::html
