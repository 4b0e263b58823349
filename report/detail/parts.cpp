#include "fakequant/report/detail/parts.h"

#include <cmath>

#include <fmt/format.h>

namespace fq::html {

std::string tile(std::string_view label, const std::string& value, const std::string& note) {
  return fmt::format("<div class=tile><span>{}</span><b>{}</b><span class=note>{}</span></div>\n", label,
                     value, note);
}

std::string head(std::string_view key, int column, const std::string& label, std::string_view classes) {
  return fmt::format("<th scope=col class=\"{}\" data-key=\"{}\" data-column={}>{}</th>", classes, key,
                     column, label);
}

std::string cell(std::optional<double> value, const std::string& text, std::string_view classes,
                 const std::string& style) {
  std::string key;
  if (value) key = std::isfinite(*value) ? fmt::format("{:.9g}", *value) : "1e999";
  return fmt::format("<td class=\"{}{}\" data-v=\"{}\"{}>{}</td>", value ? "" : "unknown ", classes, key,
                     style.empty() ? "" : fmt::format(" style=\"{}\"", style), text);
}

}  // namespace fq::html
