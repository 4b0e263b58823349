#pragma once

/// Checks of one group, and checks that compare groups.

#include <optional>
#include <string>
#include <vector>

#include "fakequant/core/io/detail/hdf5_reader.h"
#include "fakequant/train/data/detail/checks/data_checks.h"
#include "fakequant/train/data/detail/data_file.h"

namespace fq::detail {

/// Properties of a group, for comparison with other groups.
struct GroupSummary {
  std::string name;
  Shape sample_shape;
  DType dtype = DType::u8;
  std::int64_t rows = 0;
  bool tokens = false;
  Normalisation how;
  Tensor labels;                    ///< i64 [rows] of classes; undefined for other labels and without labels
  std::int64_t stated_classes = 0;  ///< 0 if not stated
  std::vector<std::string> class_names;
};

/// Returns the label and its name, for example "3 (cat)".
[[nodiscard]] std::string class_text(std::int64_t label, const std::vector<std::string>& names);

/// Checks group `name` with the number `index`, and appends its findings. Returns nullopt if its samples
/// cannot be read.
[[nodiscard]] std::optional<GroupSummary> check_group(const std::string& path, const std::string& name,
                                                      std::uint32_t index, std::vector<Finding>& findings,
                                                      Duplicates& duplicates, const CheckProgress& progress);
/// Checks that shapes and values match between groups. Finds classes without samples, and duplicates.
void check_together(const std::vector<GroupSummary>& groups, const Duplicates& duplicates,
                    std::vector<Finding>& findings);

}  // namespace fq::detail
