#pragma once

/// What a JSON file is: one of the kinds of file_reader.h.

#include <optional>
#include <string>

namespace fq::cli {

/// None for what fakequant does not write as JSON, and for what is no JSON. Values below the second level are
/// read over, not kept.
[[nodiscard]] std::optional<std::string> json_kind(const std::string& path);

}  // namespace fq::cli
