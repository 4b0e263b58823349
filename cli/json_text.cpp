#include "fakequant/cli/json_text.h"

#include <algorithm>

#include <fmt/format.h>

#include "fakequant/core/error.h"
#include "fakequant/core/io/atomic_file.h"

namespace fq::cli {
namespace {

std::int64_t line_of(const std::string& text, std::size_t position) {
  const auto end = text.begin() + std::ptrdiff_t(std::min(position, text.size()));
  return 1 + std::count(text.begin(), end, '\n');
}

}  // namespace

std::string JsonText::where(const std::string& key) const {
  const std::string quoted = '"' + key + '"';
  for (auto at = text.find(quoted); at != std::string::npos; at = text.find(quoted, at + 1)) {
    const auto next = text.find_first_not_of(" \t\n\r", at + quoted.size());
    if (next != std::string::npos && text[next] == ':') return fmt::format("{}:{}", path, line_of(text, at));
  }
  return path;
}

JsonText read_json_text(const std::string& path) {
  JsonText file{path, read_file(path), {}};
  try {
    file.json = nlohmann::ordered_json::parse(file.text, nullptr, true, true);
  } catch (const nlohmann::ordered_json::parse_error& error) {
    const auto byte = error.byte > 0 ? error.byte - 1 : 0;
    throw FileError(
        path, {},
        fmt::format("[json] {}:{}: not valid JSON: {}", path, line_of(file.text, byte), error.what()));
  }
  return file;
}

}  // namespace fq::cli
