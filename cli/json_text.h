#pragma once

/// JSON files that people write: comments allowed, errors with file and line.

#include <nlohmann/json.hpp>
#include <string>

namespace fq::cli {

struct JsonText {
  std::string path;
  std::string text;
  nlohmann::ordered_json json;

  /// "file:12", the line where that key first stands; "file" when it does not.
  [[nodiscard]] std::string where(const std::string& key) const;
};

/// Throws FileError when the file cannot be read or is not JSON, naming the line.
[[nodiscard]] JsonText read_json_text(const std::string& path);

}  // namespace fq::cli
