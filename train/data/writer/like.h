#pragma once

/// Another data set, whose samples new ones are to be like.

#include <optional>
#include <string>
#include <vector>

#include "fakequant/core/blocks/shape.h"
#include "fakequant/core/dtype.h"

namespace fq::detail {

/// What values are multiplied by, and of each channel what is then taken off and what that is divided by.
struct StoredNormalisation {
  double scale = 0;  ///< 0: nothing is said of it
  std::vector<double> mean = {}, deviation = {};
};

struct LikeData {
  Shape sample;
  DType dtype = DType::u8;
  std::vector<std::string> classes;  ///< names, or none
  StoredNormalisation how;
  std::vector<std::string> columns;  ///< of a table, as from-csv names them
};

/// Of the first group of a data set. Throws FileError for what is none.
[[nodiscard]] LikeData read_like(const std::string& path);

}  // namespace fq::detail
