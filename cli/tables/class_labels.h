#pragma once

/// Class names in text for people.

#include <cstdint>
#include <string>
#include <vector>

namespace fq::cli {

/// "cat", or "3" without names.
[[nodiscard]] std::string class_label(const std::vector<std::string>& names, std::int64_t index);
/// "cat, dog, .."; at most 12 of them.
[[nodiscard]] std::string names_text(const std::vector<std::string>& names);
/// "10 classes: cat, dog, .."; without names "10 classes".
[[nodiscard]] std::string classes_text(std::int64_t count, const std::vector<std::string>& names);

}  // namespace fq::cli
