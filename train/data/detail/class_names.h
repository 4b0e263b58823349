#pragma once

/// How many classes a data set file states, and what they are called.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fakequant/core/io/detail/hdf5_reader.h"

namespace fq::detail {

constexpr std::int64_t kMostClasses = std::int64_t{1} << 24;

struct StatedClasses {
  std::int64_t count = 0;          ///< 0: not stated
  std::vector<std::string> names;  ///< `count` of them, or none
};

/// The names in one text: a JSON list of strings, or lines, or what commas divide, without blanks around.
/// None for JSON that is no such list.
[[nodiscard]] std::vector<std::string> split_names(std::string_view text);

/// The attribute `classes` of `group`, or else of the file: a count, a list of names or a text of either.
/// What is none of these is logged as a warning and left alone. Throws FileError for a count that cannot be
/// one.
[[nodiscard]] StatedClasses read_classes(const Hdf5Reader& file, const std::string& group);

}  // namespace fq::detail
