#include "fakequant/report/detail/html.h"

#include <cmath>

#include <fmt/format.h>

namespace fq::html {

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    // HTML forbids control characters. Names and messages may have any bytes. Numeric references also protect
    // quoted attributes.
    const bool plain = (code >= 0x20 && code != 0x7f) || c == '\n' || c == '\t';
    if (!plain)
      out += "\ufffd";
    else if (std::string_view("&<>\"'").find(c) != std::string_view::npos)
      out += fmt::format("&#{};", code);
    else
      out += c;
  }
  return out;
}

std::string number(double value, int digits) {
  const std::string text = fmt::format("{:.{}g}", std::fabs(value), digits);
  return value < 0 ? "−" + text : text;
}

std::string number(std::optional<double> value, int digits) {
  return value ? number(*value, digits) : std::string(unknown);
}

// Inserts a comma before every third digit from the end. A minus sign is not a digit.
std::string grouped(std::int64_t count) {
  std::string digits = std::to_string(count);
  for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > (count < 0 ? 1 : 0); at -= 3)
    digits.insert(static_cast<std::size_t>(at), ",");
  return digits;
}

std::string percent(std::optional<double> share) {
  if (!share) return std::string(unknown);
  return *share == 0 ? "0" : fmt::format("{:.3g} %", 100 * *share);
}

std::string decibels(std::optional<double> value) {
  if (!value) return std::string(unknown);
  return std::isfinite(*value) ? fmt::format("{:.1f} dB", *value) : "∞ dB";
}

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
  // data-v is the sort key that the script reads as a number. 1e999 is infinity in JavaScript, and an empty
  // key sorts last.
  if (value) key = std::isfinite(*value) ? fmt::format("{:.9g}", *value) : "1e999";
  return fmt::format("<td class=\"{}{}\" data-v=\"{}\"{}>{}</td>", value ? "" : "unknown ", classes, key,
                     style.empty() ? "" : fmt::format(" style=\"{}\"", style), text);
}

}  // namespace fq::html
